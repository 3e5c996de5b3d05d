"""A trained model with everything that goes with it, ready to be used."""

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.checkpoint import read_json, resolve
from regard.config import from_json
from regard.data.tokenizers import EOS, Tokenizer
from regard.device import autocast, choose_device
from regard.errors import UserError, nearest
from regard.models import Model
from regard.recipes import KINDS, Recipe
from regard.stored import load_weights, read_tokenizers, stored_recipe

VERBS = {"translate": "translate", "language": "score", "classify": "classify"}  # what to do with a model, by its task
LONG = ("error", "truncate")
PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, its tokenizers and its recipe, as one step of a run left them."""

    path: Path  # what was asked for: a run, or a step of one
    step: int
    recipe: Recipe
    module: Model  # on the device, in evaluation mode
    target_tokenizer: Tokenizer  # of a classifier: its labels
    source_tokenizer: Tokenizer | None  # None for a language model
    device: torch.device
    precision: str = "float32"
    long: str = "error"  # what becomes of a text past the model's limit: error or truncate

    def expect(self, verb: str, *tasks: str) -> None:
        """Refuse a verb that is for models of other tasks, and say which one to use."""
        if self.module.task not in tasks:
            kind = {"translate": "a translator", "language": "a language model", "classify": "a classifier"}
            cure = f"use: regard {VERBS[self.module.task]} {shlex.quote(str(self.path))}"
            raise UserError(f"{self.path}: this is {kind[self.module.task]}, which cannot {verb}; {cure}")

    @property
    def longest(self) -> int | None:
        """The most tokens that a text may have; None where any length will do."""
        return self.module.config.longest

    def read(self, texts: Sequence[str], first: int = 1) -> list[list[int]]:
        """The tokens of texts that the model reads: sources, or the lines of a language model.

        One past the limit is cut, or refused by its number; `first` is the number of the first text.
        """
        tokens = (self.source_tokenizer or self.target_tokenizer).encode_batch([text.strip() for text in texts])
        most = self.longest
        if most is not None and self.module.task == "language":
            most -= 1  # the beginning takes a place
        for number, found in enumerate(tokens, first):
            if most is not None and len(found) > most and self.long == "error":
                raise UserError(
                    f"line {number}: {len(found)} tokens, but the model reads at most {most}; "
                    "shorten it, or cut such lines with --long truncate"
                )
        return [found[:most] for found in tokens]

    def captions(self, source: list[int], target: list[int]) -> tuple[list[str], list[str]]:
        """What to write beside the columns (the source) and the rows (the target and its end) of an alignment."""
        columns = self.source_tokenizer.pieces(source) if self.source_tokenizer else []
        return columns, self.target_tokenizer.pieces([*target, EOS])

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of the model's matrix products."""
        return autocast(self.precision, self.device)


def load(path: str | Path, device: str = "auto", precision: str = "float32", long: str = "error") -> Loaded:
    """The best step of a run, or else its latest; or the step whose directory is named."""
    for name, value, known in (("precision", precision, PRECISIONS), ("long", long, LONG)):
        if value not in known:
            raise UserError(f"{name}={value}: no such choice.{nearest(value, known)}")
    place = choose_device(device)
    folder = resolve(Path(path))
    if not folder.name.isdecimal():
        raise UserError(
            f"{path}: a step outside its run, which holds the recipe; name the run, or a step in its steps/."
        )
    run = folder.parents[2] if folder.parent.name == ".old" else folder.parents[1]
    module = from_json(read_json(folder / "model.json"), KINDS).build()
    load_weights(module, folder / "weights.safetensors")
    source, target = read_tokenizers(folder)
    return Loaded(
        path=Path(path),
        step=int(folder.name),
        recipe=stored_recipe(run),
        module=module.to(place).eval(),
        target_tokenizer=target,
        source_tokenizer=source,
        device=place,
        precision=precision,
        long=long,
    )
