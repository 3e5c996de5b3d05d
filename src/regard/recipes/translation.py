"""Recipes for pairs of texts: translation, dates, pronunciation."""

from dataclasses import replace

from regard.data.dates import Dates
from regard.data.french import French
from regard.data.sounds import Sounds
from regard.data.sources import GreekEnglish, Multi30k, Pairs, Wmt14
from regard.models import SIZES, ConvS2sConfig, GnmtConfig, Seq2SeqConfig, TransformerConfig
from regard.objectives import TeacherForcing
from regard.recipes.recipe import Plan, Recipe, with_vocabularies

# By the name of the model: the settings of `dates` that follow from it. The default Transformer is made for long texts:
# it is large, and does not learn dates at the rate of a recurrent network, in so few steps.
DATES: dict[str, tuple[str, ...]] = {
    "transformer": (
        *("model.width=128", "model.layers=2", "model.inner=256", "model.dropout=0"),
        *("plan.rate=1e-3", "plan.steps=1200"),
    ),
}


def dates() -> Recipe:
    """Dates written in many languages → ISO 8601, in a minute on a CPU.

    `model=transformer` trains a small Transformer, in a few minutes; `model=gnmt` and `model=convs2s` fit, too.
    """
    return Recipe(
        name="dates",
        title="dates in 24 languages to ISO 8601",
        data=Dates(),
        model=Seq2SeqConfig(width=128, embed=64, decoder="luong", capacity=64, dropout=0.0),
        objective=TeacherForcing(),
        plan=Plan(
            steps=450,
            batch_tokens=2048,
            rate=4e-3,
            schedule="linear",
            warmup=50,
            decay=0.0,
            evaluate=150,
            samples=300,
            select="exact",
        ),
        metrics=("exact", "alignment"),
    )


def french() -> Recipe:
    """French → English sentences of a grammar, whose gold alignment is known, with the model of Bahdanau et al. 2015.

    A few minutes on a CPU. The sentence of the paper's figure 3 is in the language of the grammar, but no four
    successive words of it are in the data.
    """
    return Recipe(
        name="french",
        title="French to English, sentences of a grammar with their alignment",
        data=French(),
        model=Seq2SeqConfig(width=160, embed=64, decoder="bahdanau", capacity=64, dropout=0.1),
        objective=TeacherForcing(),
        plan=Plan(
            steps=3000,
            batch_tokens=2048,
            rate=2e-3,
            schedule="linear",
            warmup=100,
            decay=0.0,
            evaluate=500,
            samples=300,
            select="exact",
        ),
        metrics=("exact", "alignment", "aer"),
    )


def sounds() -> Recipe:
    """Letters → phonemes: the pronunciation of English words (CMU dictionary)."""
    return Recipe(
        name="sounds",
        title="English spelling to phonemes (CMUdict, without stress)",
        data=Sounds(),
        model=Seq2SeqConfig(width=512, embed=256, layers=2, capacity=64, dropout=0.3),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(
            steps=8000, batch_tokens=8192, rate=1e-3, warmup=400, evaluate=500, samples=2000, select="word_error"
        ),
        metrics=("word_error", "phoneme_error"),
    )


def translate() -> Recipe:
    """Your own pairs: `data.train=pairs.tsv`, or two parallel files `data.train=src.txt,tgt.txt`.

    A table has the columns `data.source` and `data.target`. `model=transformer` trains a Transformer instead.
    """
    return Recipe(
        name="translate",
        title="pairs of your own",
        data=Pairs(),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.2),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=10_000, batch_tokens=4096, rate=1e-3, warmup=500, evaluate=500, patience=5),
        metrics=("bleu", "exact"),
    )


def multi30k() -> Recipe:
    """English → German captions of pictures (Multi30k), with a small Transformer (Vaswani et al. 2017).

    29,000 pairs are few: the dropout is high, and the source, the target and the output layer share one embedding.
    """
    return Recipe(
        name="multi30k",
        title="translation of captions (Multi30k)",
        data=Multi30k(source="en", target="de", vocab=8000, joint=True),
        model=TransformerConfig(
            width=256,
            heads=4,
            layers=3,
            inner=1024,
            shared="all",
            context=256,
            dropout=0.35,
            attention_dropout=0.1,
            feed_dropout=0.2,
        ),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(
            steps=5000,
            batch_tokens=8192,
            rate=1e-3,
            schedule="cosine",
            warmup=1000,
            betas=(0.9, 0.98),
            epsilon=1e-9,
            decay=0.0,
            evaluate=500,
            samples=1014,
            select="bleu",
        ),
        metrics=("bleu",),
    )


def multi30k_de_en() -> Recipe:
    """German → English captions of pictures (Multi30k), with the model of Bahdanau et al. 2015."""
    return Recipe(
        name="multi30k-de-en",
        title="translation of captions (Multi30k), Bahdanau",
        data=Multi30k(source="de", target="en", vocab=4000),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.5),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=6000, batch_tokens=4096, rate=1e-3, warmup=500, evaluate=500, samples=1014, select="bleu"),
        metrics=("bleu",),
    )


def multi30k_gnmt() -> Recipe:
    """English → German captions of pictures (Multi30k), with deep residual LSTMs: a small GNMT (Wu et al. 2016)."""
    base = multi30k()
    return replace(
        base,
        name="multi30k-gnmt",
        title="translation of captions (Multi30k), GNMT",
        model=GnmtConfig(width=256, embed=128, layers=4, dropout=0.3),
        plan=replace(base.plan, warmup=500, betas=(0.9, 0.999), epsilon=1e-8, decay=0.01),
    )


def multi30k_convs2s() -> Recipe:
    """English → German captions of pictures (Multi30k), with convolutions: a small ConvS2S (Gehring et al. 2017)."""
    base = multi30k()
    return replace(
        base,
        name="multi30k-convs2s",
        title="translation of captions (Multi30k), ConvS2S",
        model=ConvS2sConfig(width=256, layers=4, channels=(256,), dropout=0.3),
        plan=replace(base.plan, epsilon=1e-8),
    )


def wmt14() -> Recipe:
    """English → German news (WMT 14), the base Transformer of Vaswani et al. 2017, section 5.

    `data.target=fr data.vocab=32000` translates to French.
    """
    return Recipe(
        name="wmt14",
        title="translation of news (WMT 14), Transformer base",
        data=Wmt14(),
        model=with_vocabularies(SIZES["transformer-base"]),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(
            steps=100_000,
            batch_tokens=25_000,
            rate=1.0,  # a factor: the rate has a maximum of 7e-4
            schedule="noam",
            warmup=4000,
            optimizer="adam",
            betas=(0.9, 0.98),
            epsilon=1e-9,
            clip=0.0,
            evaluate=5000,
            samples=3000,
            keep=5,  # the last checkpoints are averaged
            log=100,
            select="bleu",
        ),
        metrics=("bleu",),
    )


def wmt14_big() -> Recipe:
    """English → German news (WMT 14), the big Transformer of Vaswani et al. 2017, section 5."""
    base = wmt14()
    return replace(
        base,
        name="wmt14-big",
        title="translation of news (WMT 14), Transformer big",
        model=with_vocabularies(SIZES["transformer-big"]),
        plan=replace(base.plan, steps=300_000, keep=20),
    )


def greek() -> Recipe:
    """Greek → English New Testament; its attention is compared with an alignment made by hand."""
    return Recipe(
        name="greek",
        title="Greek to English New Testament, aligned by hand",
        data=GreekEnglish(),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.3),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=4000, batch_tokens=8192, rate=1e-3, warmup=300, evaluate=400, select="aer"),
        metrics=("bleu", "aer", "alignment"),
    )
