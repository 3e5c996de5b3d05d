"""Recipes that answer a text with a text: text to text, replies of a play, headings of paragraphs."""

from dataclasses import replace

from regard.data.passages import Play, Titles
from regard.data.text2text import TextToText
from regard.models import TransformerConfig
from regard.objectives import TeacherForcing
from regard.recipes.recipe import FINETUNE, Plan, Recipe

# A T5 (Raffel et al. 2020) of a size that trains on a laptop: relative positions, and no limit of the length.
SMALL_T5 = TransformerConfig(
    width=256, heads=4, layers=3, inner=1024, positions="t5", norm="rms", shared="all", dropout=0.1
)


def text2text() -> Recipe:
    """Your own texts and the texts that answer them, T5 (Raffel et al. 2020): `data.train=FILE`.

    `data.source` and `data.target` are columns or templates of columns, `data.prefix` is the text before each source.
    `from=DIR` starts from a T5 or another translator. `data=mixture` has several files, each a task with its prefix.
    """
    return Recipe(
        name="text2text",
        title="texts to texts, with task prefixes",
        data=TextToText(),
        model=replace(SMALL_T5, copies=True),
        objective=TeacherForcing(),
        plan=Plan(steps=10_000, batch_tokens=4096, rate=1e-3, warmup=500, evaluate=500, patience=5),
        metrics=("exact", "bleu", "text_spearman"),
        finetune=(*FINETUNE, "plan.rate=3e-4"),
    )


def reply() -> Recipe:
    """A turn of a play → the next turn (Vinyals & Le 2015): Shakespeare's plays, or `data.train=FILE`."""
    return Recipe(
        name="reply",
        title="replies to a turn of a play",
        data=Play(),
        model=replace(SMALL_T5, dropout=0.3),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=1500, batch_tokens=4096, rate=1e-3, warmup=200, evaluate=100, patience=4),
        metrics=("perplexity", "rouge1", "rougeL"),
    )


def titles() -> Recipe:
    """A paragraph → its heading: WikiText-2, or `data.train=FILE` with lines such as " = Heading = "."""
    return Recipe(
        name="titles",
        title="headings of paragraphs",
        data=Titles(),
        model=replace(SMALL_T5, dropout=0.2),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=6000, batch_tokens=8192, rate=1e-3, warmup=500, evaluate=500, patience=5, select="rougeL"),
        metrics=("rouge1", "rouge2", "rougeL", "exact"),
    )
