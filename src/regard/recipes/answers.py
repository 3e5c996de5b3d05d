"""Recipes for questions about passages, and for texts that are made from templates."""

from dataclasses import replace

from regard.data.made_texts import MadeAnswers, MadeChoices, MadeEntailment
from regard.data.squad import Questions
from regard.heads import ChoiceHeadConfig, ClassHeadConfig
from regard.models import BertConfig
from regard.objectives import Classification, SpanAnswers
from regard.recipes.recipe import FINETUNE, Plan, Recipe

# A Transformer that learns to compare two texts within minutes on a CPU. Its attention depends on distances; it starts
# by attending to equal tokens; and its initial weights are larger than BERT's, which suit greater widths.
SMALL = BertConfig(
    width=64,
    layers=3,
    heads=4,
    inner=128,
    norm_place="pre",
    positions="t5",
    dropout=0.0,
    outputs=(),
    initial=None,
    mimetic=True,
)

MADE = Plan(steps=2000, batch_tokens=2048, rate=2e-3, schedule="linear", evaluate=500, select="em")


def answer() -> Recipe:
    """A model that finds the answers to questions in passages (Devlin et al. 2019, §4.2): `data.train=FILE`.

    The file is a .json file of SQuAD 1.1 or 2.0, or a table with the columns `data.question`, `data.passage` and
    `data.answer`. A long passage is read in windows of `data.window` tokens. The model is a small Transformer;
    `from=DIR` fine-tunes one that was trained on other text.
    """
    return Recipe(
        name="answer",
        title="answers to questions, as spans of your own passages",
        data=Questions(),
        model=SMALL,
        objective=SpanAnswers(),
        plan=Plan(
            steps=4000, batch_tokens=8192, rate=5e-4, schedule="linear", evaluate=200, patience=10, select="answer_f1"
        ),
        metrics=("em", "answer_f1"),
        finetune=(*FINETUNE, "plan.batch_tokens=4096"),
    )


def made_answers() -> Recipe:
    """Questions about invented people, made from templates: no file is needed.

    The names and the templates of the test are not those of training. A guess from the words that a question and a
    sentence share is mostly wrong.
    """
    return Recipe(
        name="made-answers",
        title="questions about invented people (made from templates)",
        data=MadeAnswers(),
        model=SMALL,
        objective=SpanAnswers(),
        plan=MADE,
        metrics=("em", "answer_f1"),
        finetune=FINETUNE,
    )


def made_entailment() -> Recipe:
    """Whether a statement follows from two others, or contradicts them: made from templates, no file is needed."""
    return Recipe(
        name="made-entailment",
        title="entailment of statements (made from templates)",
        data=MadeEntailment(),
        model=SMALL,
        head=ClassHeadConfig(pool="max", hidden="none", dropout=0.0),
        objective=Classification(),
        plan=replace(MADE, steps=6000, rate=1e-3, select="accuracy"),
        metrics=("accuracy",),
        finetune=FINETUNE,
    )


def made_choices() -> Recipe:
    """Which of four statements follows from two sentences: made from templates, no file is needed."""
    return Recipe(
        name="made-choices",
        title="the right one of four statements (made from templates)",
        data=MadeChoices(),
        model=SMALL,
        head=ChoiceHeadConfig(pool="max", hidden="none", dropout=0.0),
        objective=Classification(),
        plan=replace(MADE, steps=6000, rate=1e-3, select="accuracy"),
        metrics=("accuracy",),
        finetune=FINETUNE,
    )
