"""Recipes for a person's own text: what comes next, and what it is."""

from regard.data.sources import Labelled, Lines
from regard.models import LstmnConfig, StructuredConfig
from regard.objectives import Labelling, NextToken
from regard.recipes.plan import Plan
from regard.recipes.recipe import Recipe


def text() -> Recipe:
    """A language model of your own lines that attends to its own past: `data.train=FILE`."""
    return Recipe(
        name="text",
        title="a language model of your own text",
        data=Lines(),
        model=LstmnConfig(),
        objective=NextToken(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=2e-3, evaluate=200),
        metrics=("perplexity",),
    )


def labels() -> Recipe:
    """A classifier of your own texts that shows what it looked at: `data.train=FILE` of label<TAB>text."""
    return Recipe(
        name="labels",
        title="a classifier of your own texts",
        data=Labelled(),
        model=StructuredConfig(),
        objective=Labelling(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5, select="accuracy"),
        metrics=("accuracy",),
    )
