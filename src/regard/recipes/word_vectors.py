"""Recipes for static word vectors of your own text."""

from regard.data.words import Words
from regard.models import GloveConfig, SkipgramConfig
from regard.objectives import GloveSquares, NegativeSampling
from regard.recipes.recipe import Plan, Recipe

PART = 100_000  # tokens of a step


def word2vec() -> Recipe:
    """Word vectors of your own text (Mikolov et al. 2013), on a CPU: `data.train=FILE`.

    `model=skipgram|cbow`, `objective=negative|hierarchical`; `objective.workers=4` trains with four processes. A step
    reads plan.batch_tokens tokens. `regard neighbours RUN king - man + woman` uses the vectors.
    """
    return Recipe(
        name="word2vec",
        title="word vectors of your own text, by skip-gram or CBOW",
        data=Words(),
        model=SkipgramConfig(),
        objective=NegativeSampling(),
        plan=Plan(epochs=5, batch_tokens=PART, rate=0.025, schedule="linear", warmup=0, device="cpu", evaluate=100),
        metrics=(),
    )


def glove() -> Recipe:
    """Word vectors of your own text from counts of words that occur together (Pennington et al. 2014), on a CPU.

    `data.train=FILE`. The counts are made once and kept in the cache. `objective.workers=4` trains with four processes.
    """
    return Recipe(
        name="glove",
        title="word vectors of your own text, GloVe",
        data=Words(),
        model=GloveConfig(),
        objective=GloveSquares(),
        plan=Plan(epochs=25, batch_tokens=PART, rate=0.05, schedule="constant", warmup=0, device="cpu", evaluate=100),
        metrics=(),
    )
