"""Attention, from Bahdanau to BERT: train it, run it, look inside.

The public names. Each is imported when it is first used, so that `regard --help` does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from regard.version import __version__ as __version__

if TYPE_CHECKING:
    from regard import scores
    from regard.alignment import aer, pharaoh
    from regard.attention import Attention, Look, Memory, MultiHead, attend, weights
    from regard.checks import Calls, doctor
    from regard.data.example import Corpus, LabelledText, Pair, Text
    from regard.data.tokenizers import Tokenizer, train_tokenizer
    from regard.decode import Hypotheses, Penalty, Sampler, beam, greedy, stream
    from regard.errors import UserError
    from regard.mask import CAUSAL, EVERYTHING, Mask
    from regard.models import MODELS, SIZES
    from regard.readers import edit
    from regard.recipes import RECIPES, Plan, Recipe
    from regard.recording import Tape, record, watch
    from regard.render import AttentionView
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
    from regard.training import train
    from regard.training.run import Run
    from regard.verbs import (
        Loaded,
        ablate,
        align,
        answer,
        caption,
        classify,
        embed,
        export,
        fill,
        generate,
        generate_stream,
        load,
        look,
        rank_heads,
        score,
        translate,
        view,
    )

MODULES = {
    "regard.alignment": ("aer", "pharaoh"),
    "regard.attention": ("Attention", "Look", "Memory", "MultiHead", "attend", "weights"),
    "regard.checks": ("Calls", "doctor"),
    "regard.data.example": ("Corpus", "LabelledText", "Pair", "Text"),
    "regard.data.tokenizers": ("Tokenizer", "train_tokenizer"),
    "regard.decode": ("Hypotheses", "Penalty", "Sampler", "beam", "greedy", "stream"),
    "regard.errors": ("UserError",),
    "regard.mask": ("CAUSAL", "EVERYTHING", "Mask"),
    "regard.models": ("MODELS", "SIZES"),
    "regard.recipes": ("RECIPES", "Plan", "Recipe"),
    "regard.readers": ("edit",),
    "regard.recording": ("Tape", "record", "watch"),
    "regard.scores": (
        *("SCORES", "Additive", "Cosine", "Dot", "General", "Location", "Relative", "ScaledDot", "Score", "XLRelative"),
    ),
    "regard.training": ("train",),
    "regard.training.run": ("Run",),
    "regard.verbs": (
        *("Loaded", "ablate", "align", "answer", "caption", "classify", "embed", "export", "fill", "generate"),
        *("load", "look", "rank_heads", "score", "generate_stream", "translate", "view"),
    ),
    "regard.render": ("AttentionView",),
}
HOMES = {name: home for home, names in MODULES.items() for name in names}

# fmt: off
__all__ = [
    "CAUSAL", "EVERYTHING", "MODELS", "RECIPES", "SCORES", "SIZES", "Additive", "Attention", "AttentionView", "Calls",
    "Corpus", "Cosine", "Dot", "General", "Hypotheses", "LabelledText", "Loaded", "Location", "Look", "Mask", "Memory",
    "MultiHead", "Pair", "Penalty", "Plan", "Recipe", "Relative", "Run", "Sampler", "ScaledDot", "Score", "Tape",
    "Text", "Tokenizer", "UserError", "XLRelative", "ablate", "aer", "align", "answer", "attend", "beam", "caption",
    "classify", "doctor", "edit", "embed", "export", "fill", "generate", "generate_stream", "greedy", "load", "look",
    "pharaoh", "rank_heads", "record", "score", "scores", "stream", "train", "train_tokenizer", "translate", "view",
    "watch", "weights",
]
# fmt: on


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name == "scores":
        return importlib.import_module("regard.scores")
    if name not in HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = getattr(importlib.import_module(HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
