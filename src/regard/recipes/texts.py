"""Recipes for your own text: language models, a masked language model and a classifier."""

from regard.data.sources import Labelled, Lines
from regard.models import BertConfig, BigramConfig, LstmnConfig, StructuredConfig
from regard.objectives import Classification, Counting, MaskedTokens, TeacherForcing
from regard.recipes.plan import Plan
from regard.recipes.recipe import Recipe


def text() -> Recipe:
    """A language model of your own lines, an LSTM with attention to its earlier states: `data.train=FILE`.

    `model=gpt` trains a Transformer instead; `data=book` reads the file as one running text.
    """
    return Recipe(
        name="text",
        title="a language model of your own text",
        data=Lines(),
        model=LstmnConfig(),
        objective=TeacherForcing(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=2e-3, evaluate=200),
        metrics=("perplexity",),
    )


def bigram() -> Recipe:
    """A bigram language model of your own lines, by counting: `data.train=FILE`.

    `regard score RUN --tokens` prints each probability with its counts. `model.smoothing=interpolated` mixes in the
    probabilities of single words. `data=book data.window=256` reads the file as one running text.
    """
    return Recipe(
        name="bigram",
        title="a bigram language model of your own text, by counting",
        data=Lines(tokens="word"),
        model=BigramConfig(),
        objective=Counting(),
        plan=Plan(steps=10, batch_tokens=65_536, evaluate=10, log=1),
        metrics=("perplexity",),
    )


def masked() -> Recipe:
    """A masked language model of your own lines, BERT (Devlin et al. 2019): `data.train=FILE`."""
    return Recipe(
        name="masked",
        title="fill in the gaps of your own text",
        data=Lines(tokens="bpe"),
        model=BertConfig(segments=0, context=256),
        objective=MaskedTokens(),
        plan=Plan(steps=10_000, batch_tokens=8192, rate=5e-4, warmup=500, schedule="linear", evaluate=500),
        metrics=("perplexity",),
    )


def classify() -> Recipe:
    """A classifier of your own texts that shows its attention weights (Lin et al. 2017): `data.train=FILE`.

    The file is a table with the columns `data.text` and `data.label`, or has label<TAB>text on each line. `model=bert`
    or `model=gpt` trains a Transformer instead; `from=DIR` starts from a model that was trained on other text.
    """
    return Recipe(
        name="classify",
        title="a classifier of your own texts",
        data=Labelled(),
        model=StructuredConfig(),
        objective=Classification(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5, select="accuracy"),
        metrics=("accuracy",),
    )
