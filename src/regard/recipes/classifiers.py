"""Recipes for your own texts with a class, several labels or a number each, or a tag for each word."""

from dataclasses import replace

from regard.data.conll import Conll
from regard.data.labelled import Labelled, MultiLabelled, Rated
from regard.heads import CrfHeadConfig
from regard.models import BiLstmConfig, KimConfig, StructuredConfig
from regard.objectives import BinaryAnswers, Classification, Regression
from regard.recipes.recipe import FINETUNE_TEXTS, Plan, Recipe

PLAN = Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5)


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
        plan=replace(PLAN, select="accuracy"),
        metrics=("accuracy",),
        finetune=FINETUNE_TEXTS,
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
        plan=replace(PLAN, select="f1_micro"),
        metrics=("f1_micro", "f1_macro"),
        finetune=FINETUNE_TEXTS,
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
        plan=PLAN,
        metrics=("mse", "pearson", "spearman"),
        finetune=FINETUNE_TEXTS,
    )


def tag() -> Recipe:
    """A tagger of the words of your own sentences, such as one that finds names: `data.train=FILE`.

    The file has a word on each line, and its tag in the column `data.column`, as in CoNLL-2003. The model is a
    bidirectional LSTM over words and their characters, with a conditional random field (Lample et al. 2016; Ma & Hovy
    2016). `model.embedding=FILE` fills the word embeddings with vectors. `head=tag` leaves the random field out.

    `from=DIR` trains a Transformer that reads sub-words, such as BERT, under a new head; the tag of a word is predicted
    at its first sub-word (Devlin et al. 2019). Any other model in DIR (word vectors, ELMo, a translator) adds its
    states to the vectors of the words; `model=bilstm` uses a Transformer so, too, and `model.tune=true` trains it.
    """
    return Recipe(
        name="tag",
        title="a tagger of the words of your own sentences",
        data=Conll(),
        model=BiLstmConfig(),
        objective=Classification(),
        head=CrfHeadConfig(),
        plan=Plan(
            epochs=30,
            batch_tokens=1024,
            rate=2e-3,
            schedule="linear",
            decay=0.0,
            clip=5.0,
            evaluate=400,
            patience=10,
            select="entity_f1",
        ),
        metrics=("entity_f1", "entity_precision", "entity_recall", "accuracy"),
        finetune=(*FINETUNE_TEXTS, "head=tag", "head.dropout=0.1", "plan.epochs=5", "plan.clip=1"),
    )
