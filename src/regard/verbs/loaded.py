"""A trained model with everything that goes with it, ready to be used."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint import load_tensors, read_json, resolve
from regard.config import from_json
from regard.data.tokenizers import EOS, Tokenizer
from regard.errors import UserError, nearest
from regard.recipes import KINDS, Recipe

VERBS = {"translate": "translate", "language": "score", "classify": "classify"}  # by task, what to do with such a model
LONG = ("error", "truncate")
PRECISIONS = {"float32": None, "bf16": torch.bfloat16}


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, its tokenizers and its recipe, as one step of a run left them."""

    path: Path  # the directory of the step
    step: int
    recipe: Recipe
    config: Any  # of the model, its vocabularies filled in
    module: Any  # the torch module, on the device, in evaluation mode
    target_tokenizer: Tokenizer
    source_tokenizer: Tokenizer | None  # None where nothing is translated
    device: torch.device
    precision: str = "float32"
    long: str = "error"  # what becomes of a source past the model's limit: error or truncate

    def expect(self, verb: str, *tasks: str) -> None:
        """Refuse a verb that is for models of other tasks, and say which one to use."""
        if self.module.task not in tasks:
            better = VERBS[self.module.task]
            raise UserError(f"{self.path}: {verb} is not for a model of the task {self.module.task}; use: {better}")

    def read(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of each source; one past the limit is refused by its number, or cut."""
        assert self.source_tokenizer is not None
        tokens = self.source_tokenizer.encode_batch([line.strip() for line in lines])
        longest = self.longest
        for number, source in enumerate(tokens, 1):
            if longest and len(source) > longest and self.long == "error":
                cure = "shorten it, or say --long truncate"
                raise UserError(f"line {number}: {len(source)} tokens, the model reads at most {longest}; {cure}.")
        return [source[:longest] for source in tokens]

    @property
    def longest(self) -> int | None:
        """The most tokens that a source may have; None where any length will do."""
        return getattr(self.config, "capacity", None)

    def captions(self, source: list[int], target: list[int]) -> tuple[list[str], list[str]]:
        """What to write beside the columns (the source) and the rows (the target and its end) of an alignment."""
        columns = self.source_tokenizer.pieces(source) if self.source_tokenizer else []
        return columns, self.target_tokenizer.pieces([*target, EOS])

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of the model's matrix products."""
        kind = PRECISIONS[self.precision]
        return torch.autocast(self.device.type, kind) if kind else nullcontext()


def load(path: str | Path, device: str = "auto", precision: str = "float32", long: str = "error") -> Loaded:
    """The best step of a run, or else its latest; or the step whose directory is named."""
    for name, value, known in (("precision", precision, PRECISIONS), ("long", long, LONG)):
        if value not in known:
            raise UserError(f"{name}={value}: no such choice.{nearest(value, known)}")
