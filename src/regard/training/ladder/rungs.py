"""The rungs of a ladder, and published results on the same data.

A rung is a name and a recipe; a new family of models is one more entry of RUNGS.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from regard.data.sources import Multi30k
from regard.errors import UserError, nearest
from regard.models import Seq2SeqConfig, TransformerConfig
from regard.recipes import Plan, Recipe, find_recipe
from regard.report.sections import Table
from regard.scores import NOT_FOR_A_SOURCE, SCORES

# The settings of a plan that each family of models has of its own. The other settings are the same for all rungs.
OWN = ("rate", "schedule", "warmup", "optimizer", "betas", "epsilon", "decay", "clip")
HEADS = (1, 2, 8)  # the numbers of heads that are compared in the same width


def rungs(recipe: Recipe) -> dict[str, Recipe]:
    """For a recurrent recipe, every kind of attention; for a Transformer, every family of translation models."""
    if (build_rungs := RUNGS.get(type(recipe.model))) is None:
        raise UserError(f"ladder {recipe.name}: only translation has rungs without attention; try: regard ladder dates")
    return build_rungs(recipe, recipe.model)


def select_rungs(found: dict[str, Recipe], names: Sequence[str]) -> dict[str, Recipe]:
    """The rungs with these names, in the order of the ladder; a space in a name may be written as a dash."""
    wanted = {name.strip().replace("-", " "): name for name in names}
    dashless = {rung.replace("-", " "): rung for rung in found}
    for name, given in wanted.items():
        if name not in dashless:
            raise UserError(f"--rungs {given}: the ladder has no such rung.{nearest(name, found)}")
    return {rung: found[rung] for name, rung in dashless.items() if name in wanted}


def with_attentions(recipe: Recipe, model: Seq2SeqConfig) -> dict[str, Recipe]:
    """The recipe with every kind of attention."""
    return {name: replace(recipe, model=rung) for name, rung in attentions(model).items()}


def attentions(config: Seq2SeqConfig) -> dict[str, Seq2SeqConfig]:
    """No attention, every score that can attend to a source, and Luong's two windows."""
    decoder = "bahdanau" if config.decoder in ("once", "every") else config.decoder
    reading = replace(config, decoder=decoder, window="none")
    scores = [score for score in SCORES if score not in NOT_FOR_A_SOURCE]
    return {
        "no attention": config.without_attention(),
        **{score: replace(reading, score=score) for score in scores},
        **{f"general {window}": replace(reading, score="general", window=window) for window in ("local-m", "local-p")},
    }


def families(recipe: Recipe, model: TransformerConfig) -> dict[str, Recipe]:
    """No attention (Sutskever et al. 2014), Bahdanau et al. 2015, Luong et al. 2015, GNMT (Wu et al. 2016), ConvS2S
    (Gehring et al. 2017), and the Transformer (Vaswani et al. 2017, §3.5) with several kinds of positions and numbers
    of heads.

    The models of the other families and their plans are those of their own recipes for such data. Their capacity is the
    Transformer's context, so that all get the same batches. The numbers of heads are compared in the same width.
    """
    recurrent = find_recipe("multi30k-de-en" if isinstance(recipe.data, Multi30k) else "translate")
    config = cast(Seq2SeqConfig, recurrent.model)
    embed = min(config.embed, model.width)
    width = config.width * embed // config.embed // 2 * 2
    rnn = replace(config, width=max(width, 2), embed=embed, capacity=model.context)
    deep, convolutional = find_recipe("multi30k-gnmt"), find_recipe("multi30k-convs2s")
    layers = min(model.layers + 1, deep.model.layers)  # more layers would be too narrow to fit the size
    heads = [number for number in HEADS if not model.width % number]
    return {
        "no attention": _trained(recipe, recurrent.plan, rnn.without_attention()),
        "additive": _trained(recipe, recurrent.plan, replace(rnn, decoder="bahdanau", score="additive")),
        "general": _trained(recipe, recurrent.plan, replace(rnn, decoder="luong", score="general")),
        "gnmt": _trained(recipe, deep.plan, replace(deep.model, layers=layers, capacity=model.context)),
        "convs2s": _trained(
            recipe, convolutional.plan, replace(convolutional.model, layers=layers, context=model.context)
        ),
        "transformer sinusoidal": replace(recipe, model=replace(model, positions="sinusoidal")),
        "transformer learned": replace(recipe, model=replace(model, positions="learned")),
        **{
            f"transformer {number} head{'s' if number > 1 else ''}": replace(
                recipe, model=replace(model, heads=number, decoder_heads=0, head_width=0)
            )
            for number in heads
        },
    }


def _trained(recipe: Recipe, plan: Plan, model: Any) -> Recipe:
    """The recipe with another model, and with those settings of that model's plan that suit its family."""
    own: dict[str, Any] = {name: getattr(plan, name) for name in OWN}
    return replace(recipe, model=model, plan=replace(recipe.plan, **own))


RUNGS: Mapping[type, Callable[[Recipe, Any], dict[str, Recipe]]] = {
    Seq2SeqConfig: with_attentions,
    TransformerConfig: families,
}


@dataclass(frozen=True)
class Published:
    """A column of published results by rung."""

    measure: str  # the name of the metric
    figures: Mapping[str, float]
    note: str  # the data, the model and the source
    elsewhere: Table | None = None  # results on other data, which cannot be compared


WMT14 = Table(
    "Published on WMT 14, on newstest2014 (other data: not comparable with the ladder)",
    ["", "EN-DE BLEU", "EN-FR BLEU"],
    [
        ["ByteNet", "23.75", "–"],
        ["GNMT + RL", "24.6", "39.92"],
        ["ConvS2S", "25.16", "40.46"],
        ["MoE", "26.03", "40.56"],
        ["Transformer base", "27.3", "38.1"],
        ["Transformer big", "28.4", "41.8"],
    ],
    "Vaswani et al. 2017, table 2: single models of 65 million parameters and more, trained on 4.5 (EN-DE) and 36 "
    "(EN-FR) million pairs of WMT 14 and measured on its test set. The ladder trains small models on other data.",
)
MULTI30K = {
    ("en", "de"): Published(
        "tokenised BPE BLEU",
        {"additive": 38.0, "transformer sinusoidal": 41.0},
        "Published, test2016: tokenised BPE BLEU, which is not sacreBLEU. About 38 for recurrent networks "
        "with attention; 41.0 for Transformer-Tiny, 4 layers of width 128 (Wu et al. 2021). Both from memory.",
        WMT14,
    ),
    ("en", "fr"): Published(
        "tokenised BPE BLEU",
        {"transformer sinusoidal": 61.8},
        "Published, test2016: tokenised BPE BLEU, which is not sacreBLEU. 61.8 for Transformer-Tiny, 4 layers of width "
        "128 (Wu et al. 2021), from memory.",
        WMT14,
    ),
    ("de", "en"): Published(
        "tutorial's own BLEU",
        {"no attention": 20.6, "additive": 28.3, "transformer learned": 36.5},
        "Published, test2016: a tutorial series, ten epochs each, a BLEU of its own, which is not sacreBLEU. GRU 20.6 "
        "(LSTM 13.8), GRU with additive attention 28.3, Transformer of 9M parameters 36.5.",
    ),
}


def published(recipe: Recipe) -> Published | None:
    """The published results for the data of a recipe; None if there are none that can be compared."""
    data = recipe.data
    return MULTI30K.get((data.source, data.target)) if isinstance(data, Multi30k) else None
