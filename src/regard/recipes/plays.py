"""Recipes for language models of characters: Shakespeare's plays, or a text of your own."""

from regard.data.streams import Shakespeare
from regard.models import GptConfig
from regard.objectives import TeacherForcing
from regard.recipes.plan import Plan
from regard.recipes.recipe import Recipe


def shakespeare() -> Recipe:
    """Shakespeare by characters: a GPT of 10.7 million parameters, three minutes on a GPU.

    `data.train=FILE` reads a text of your own instead.
    """
    return Recipe(
        name="shakespeare",
        title="Shakespeare by characters, 10.7M parameters",
        data=Shakespeare(),
        model=_gpt(width=384, heads=6, layers=6, context=256, dropout=0.2),
        objective=TeacherForcing(),
        plan=Plan(steps=5000, batch_tokens=64 * 256, rate=1e-3, warmup=100, betas=(0.9, 0.99), decay=0.1, evaluate=250),
        metrics=("perplexity",),
    )


def shakespeare_cpu() -> Recipe:
    """Shakespeare by characters: a GPT of 0.8 million parameters, some minutes on a CPU.

    `data.train=FILE` reads a text of your own instead.
    """
    return Recipe(
        name="shakespeare-cpu",
        title="Shakespeare by characters, 0.8M parameters",
        data=Shakespeare(),
        model=_gpt(width=128, heads=4, layers=4, context=64, dropout=0.0),
        objective=TeacherForcing(),
        plan=Plan(steps=2000, batch_tokens=12 * 64, rate=1e-3, warmup=100, betas=(0.9, 0.99), decay=0.1, evaluate=250),
        metrics=("perplexity",),
    )


def _gpt(width: int, heads: int, layers: int, context: int, dropout: float) -> GptConfig:
    """A small GPT-2 without biases."""
    return GptConfig(
        width=width,
        heads=heads,
        layers=layers,
        inner=4 * width,
        context=context,
        attention_bias=False,
        feed_bias=False,
        dropout=dropout,
        attention_dropout=dropout,
    )
