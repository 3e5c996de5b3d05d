"""Recipes for captions of images and of clips."""

from dataclasses import replace

from regard.data.flickr8k import Flickr8k
from regard.data.scenes import Scenes
from regard.data.synthetic import ClipCaptions
from regard.models import CaptionerConfig
from regard.objectives import Captioning
from regard.recipes.recipe import Plan, Recipe

DRAWN = Plan(schedule="linear", decay=0.0, evaluate=250, samples=300, select="exact")  # of data that is drawn


def scenes() -> Recipe:
    """Captions of drawn scenes, with attention over the image: some minutes on a CPU, without a download.

    The decoder is Bahdanau's. `model.decoder=attend` is Show, Attend and Tell (Xu et al. 2015); `model.decoder=once` is
    Show and Tell, without attention (Vinyals et al. 2015). `model.attention=hard objective=hard` reads one cell at each
    word.
    """
    return Recipe(
        name="scenes",
        title="captions of drawn scenes",
        data=Scenes(),
        model=CaptionerConfig(width=128, embed=64, blocks=4, decoder="bahdanau", dropout=0.0),  # a cell for each place
        objective=Captioning(doubly=0.0),
        plan=replace(DRAWN, steps=2500, batch_tokens=64 * 24, rate=2e-3, warmup=100),
        metrics=("exact", "pointing", "bleu4", "cider"),
    )


def flickr8k() -> Recipe:
    """Captions of photographs (Flickr8k), with attention over the features of a frozen EfficientNet-Lite0.

    The soft attention of Xu et al. (2015): an additive score, a gate, the doubly stochastic term. `--beam 3` of `eval`
    and `caption` finds better captions than greedy decoding, by which the best step is chosen.
    """
    return Recipe(
        name="flickr8k",
        title="captions of photographs (Flickr8k), or of images of your own",
        data=Flickr8k(),
        model=CaptionerConfig(encoder="features", width=768, embed=512, decoder="attend", dropout=0.6),
        objective=Captioning(smoothing=0.1),
        plan=Plan(
            steps=2500, batch_tokens=4096, rate=5e-4, warmup=200, evaluate=250, samples=1000, patience=4, select="bleu4"
        ),
        metrics=("bleu1", "bleu2", "bleu3", "bleu4", "cider"),
    )


def clip_captions() -> Recipe:
    """Captions of clips of a moving shape, with attention over the frames. Drawn; two minutes on a CPU."""
    return Recipe(
        name="clip-captions",
        title="captions of clips, with attention over the frames",
        data=ClipCaptions(),
        model=CaptionerConfig(encoder="frames", grid=12, width=128, embed=32, cell="gru", decoder="luong", dropout=0.0),
        objective=Captioning(doubly=0.0),
        plan=replace(DRAWN, steps=1500, batch_tokens=64 * 12, rate=3e-3, warmup=50),
        metrics=("exact", "pointing", "bleu4", "cider"),
    )
