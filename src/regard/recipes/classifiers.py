"""Recipes for your own texts with a class, several labels or a number each."""

from regard.data.labelled import Labelled, MultiLabelled, Rated
from regard.models import KimConfig, StructuredConfig
from regard.objectives import BinaryAnswers, Classification, Regression
from regard.recipes.recipe import Plan, Recipe


def classify() -> Recipe:
    """A classifier of your own texts that shows its attention weights (Lin et al. 2017): `data.train=FILE`.

    The file is a table with the columns `data.text` and `data.label`, or has label<TAB>text on each line. `model=kim`
    trains Kim's convolutional network instead, and `model=bert` or `model=gpt` a Transformer; `from=DIR` starts from a
    model that was trained on other text. `objective.class_weights=balanced` gives rare classes more weight.
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


def multilabel() -> Recipe:
    """A classifier that gives each of your own texts any number of labels: `data.train=FILE`.

    The file is a table with the columns `data.text` and `data.labels`, or has labels<TAB>text on each line. A cell has
    the labels of its text, separated by |, as in "sport|politics". `head.threshold` is the probability from which a
    label is given.
    """
    return Recipe(
        name="multilabel",
        title="several labels for each of your own texts",
        data=MultiLabelled(),
        model=KimConfig(),
        objective=BinaryAnswers(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5, select="f1_micro"),
        metrics=("f1_micro", "f1_macro"),
    )


def rate() -> Recipe:
    """A number for each of your own texts, such as a rating: `data.train=FILE`.

    The file is a table with the columns `data.text` and `data.number`, or has number<TAB>text on each line.
    """
    return Recipe(
        name="rate",
        title="a number for each of your own texts (regression)",
        data=Rated(),
        model=KimConfig(),
        objective=Regression(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5),
        metrics=("mse", "pearson", "spearman"),
    )
