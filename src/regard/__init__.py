"""Attention, from Bahdanau to BERT: train it, run it, look inside.

The shop window. A name is imported when it is first asked for, so that `regard --help` need not wait for torch.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import scores
    from regard.alignment import aer, pharaoh
    from regard.attention import Attention, Look, Memory, MultiHead, attend, weights
    from regard.data.example import Corpus, Example
    from regard.data.tokenizers import Tokenizer, train_tokenizer
    from regard.decode import Hypotheses, Sampler, beam, greedy, stream
    from regard.errors import UserError
    from regard.mask import CAUSAL, EVERYTHING, Mask
    from regard.models import MODELS, SIZES
    from regard.recipes import RECIPES, Plan, Recipe
    from regard.record import Tape, record
    from regard.scores import (
        SCORES,
        Additive,
        Cosine,
        Dot,
        General,
        Location,
        Relative,
        ScaledDot,
        Score,
        XLRelative,
    )
    from regard.train import train
    from regard.train.run import Run
    from regard.verbs import (
        Loaded,
        align,
        classify,
        embed,
        export,
        fill,
        generate,
        load,
        look,
        score,
        speak,
        translate,
        view,
    )
    from regard.view import AttentionView

SHELVES = {
    "regard.alignment": ("aer", "pharaoh"),
    "regard.attention": ("Attention", "Look", "Memory", "MultiHead", "attend", "weights"),
    "regard.data.example": ("Corpus", "Example"),
    "regard.data.tokenizers": ("Tokenizer", "train_tokenizer"),
    "regard.decode": ("Hypotheses", "Sampler", "beam", "greedy", "stream"),
    "regard.errors": ("UserError",),
    "regard.mask": ("CAUSAL", "EVERYTHING", "Mask"),
    "regard.models": ("MODELS", "SIZES"),
    "regard.recipes": ("RECIPES", "Plan", "Recipe"),
    "regard.record": ("Tape", "record"),
    "regard.scores": (
        *("SCORES", "Additive", "Cosine", "Dot", "General", "Location", "Relative", "ScaledDot", "Score", "XLRelative"),
    ),
    "regard.train": ("train",),
    "regard.train.run": ("Run",),
    "regard.verbs": (
        *("Loaded", "align", "classify", "embed", "export", "fill", "generate"),
        *("load", "look", "score", "speak", "translate", "view"),
    ),
    "regard.view": ("AttentionView",),
}
HOMES = {name: home for home, names in SHELVES.items() for name in names}

__all__ = [
    "CAUSAL",
    "EVERYTHING",
    "MODELS",
    "RECIPES",
    "SCORES",
    "SIZES",
    "Additive",
    "Attention",
    "AttentionView",
    "Corpus",
    "Cosine",
    "Dot",
    "Example",
    "General",
    "Hypotheses",
    "Loaded",
    "Location",
    "Look",
    "Mask",
    "Memory",
    "MultiHead",
    "Plan",
    "Recipe",
    "Relative",
    "Run",
    "Sampler",
    "ScaledDot",
    "Score",
    "Tape",
    "Tokenizer",
    "UserError",
    "XLRelative",
    "aer",
    "align",
    "attend",
    "beam",
    "classify",
    "embed",
    "export",
    "fill",
    "generate",
    "greedy",
    "load",
    "look",
    "pharaoh",
    "record",
    "score",
    "scores",
    "speak",
    "stream",
    "train",
    "train_tokenizer",
    "translate",
    "view",
    "weights",
]


class Window(ModuleType):
    """This module. `record`, `train` and `view` are functions here and also the names of modules below.

    Importing a module sets it on its parent; this parent keeps the function. `from regard.view.page import …` works.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "scores":
            return importlib.import_module("regard.scores")
        if name not in HOMES:
            raise AttributeError(f"module 'regard' has no attribute {name!r}")
        value = getattr(importlib.import_module(HOMES[name]), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(__all__)


sys.modules[__name__].__class__ = Window
