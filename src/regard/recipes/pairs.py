"""Recipes for your own pairs of texts with a class or a number each, contexts with choices, and text vectors."""

from dataclasses import replace

from regard.data.related import RelatedPairs
from regard.data.text_pairs import Choices, LabelledPairs, RatedPairs
from regard.models import BertConfig, StructuredConfig
from regard.objectives import Classification, Contrastive, Regression
from regard.recipes.recipe import FINETUNE, FINETUNE_TEXTS, Plan, Recipe

PLAN = Plan(steps=2000, batch_tokens=2048, rate=2e-3, evaluate=200, patience=5)


def pair() -> Recipe:
    """A classifier of your own pairs of texts, such as whether one follows from the other: `data.train=FILE`.

    The file is a table with the columns `data.first`, `data.second` and `data.label`, or has
    label<TAB>first<TAB>second on each line. The model reads both texts as one, with a special token between them.
    `model=bert` or `model=gpt` trains a Transformer. `from=DIR` starts from a model that was trained on other text.
    `objective.language=0.5` adds the loss of a language model (`model=gpt`).
    """
    return Recipe(
        name="pair",
        title="a classifier of your own pairs of texts",
        data=LabelledPairs(),
        model=StructuredConfig(),
        objective=Classification(),
        plan=replace(PLAN, select="accuracy"),
        metrics=("accuracy",),
        finetune=FINETUNE_TEXTS,
    )


def similarity() -> Recipe:
    """A number for each of your own pairs of texts, such as how similar they are: `data.train=FILE`.

    The file is a table with the columns `data.first`, `data.second` and `data.number`, or has
    number<TAB>first<TAB>second on each line. `from=DIR` starts from a model that was trained on other text.
    `data.both_orders=true` reads each pair in both orders, as GPT does.
    """
    return Recipe(
        name="similarity",
        title="a number for each of your own pairs of texts",
        data=RatedPairs(),
        model=StructuredConfig(),
        objective=Regression(),
        plan=replace(PLAN, select="spearman"),
        metrics=("pearson", "spearman"),
        finetune=FINETUNE_TEXTS,
    )


def choice() -> Recipe:
    """The right one of several choices for each of your own contexts: `data.train=FILE`.

    The file is a table with the columns `data.context`, `data.choices` (several) and `data.label`, or has
    label<TAB>context<TAB>choice<TAB>choice … on each line. The label is the number, the letter or the text of the right
    choice. The model gives each context with one of its choices a logit. `from=DIR` starts from a model that was
    trained on other text.
    """
    return Recipe(
        name="choice",
        title="the right one of several choices",
        data=Choices(),
        model=StructuredConfig(),
        objective=Classification(),
        plan=replace(PLAN, select="accuracy"),
        metrics=("accuracy",),
        finetune=FINETUNE,
    )


def embed() -> Recipe:
    """Vectors of texts, from pairs of texts that belong together (Reimers & Gurevych 2019): `data.train=FILE`.

    The file is a table with the columns `data.first` and `data.second`, or has first<TAB>second on each line.
    `from=DIR` starts from a model that was trained on other text, such as a public BERT or sentence-transformers model.
    `head.pool` is how states become one vector. With numbers for the validation pairs (`data.number`, `data.least`) the
    best step is the one whose cosines rank the pairs most as the numbers do.
    """
    return Recipe(
        name="embed",
        title="vectors of your own texts, from pairs that belong together",
        data=RelatedPairs(),
        model=BertConfig(segments=0, context=128, width=128, heads=4, layers=2),
        objective=Contrastive(),
        plan=Plan(
            steps=1000, batch_tokens=2048, rate=5e-4, warmup=100, schedule="linear", evaluate=100, select="spearman"
        ),
        metrics=("spearman", "accuracy"),
        finetune=(*FINETUNE, "plan.rate=2e-5"),
    )
