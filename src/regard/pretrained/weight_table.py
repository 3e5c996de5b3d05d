"""Weight tables: the names of a public checkpoint's tensors and the names of the same tensors in our models.

An entry of a table states that some of their tensors, stacked, are one of ours; ``{}`` is the number of a layer.
Reading a checkpoint joins tensors and writing splits them, so one table serves both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.errors import UserError


@dataclass(frozen=True)
class WeightEntry:
    """Their tensors, stacked along the first dimension, are one tensor of ours.

    ``transposed``: theirs are the transpose. ``row_vector``: theirs is a matrix of one row, ours a vector.
    """

    theirs: tuple[str, ...]
    ours: str
    transposed: bool = False
    row_vector: bool = False

    def for_layer(self, number: int) -> WeightEntry:
        """The entry of one layer."""
        names = tuple(name.format(number) for name in self.theirs)
        return replace(self, theirs=names, ours=self.ours.format(number))

    def with_prefixes(self, theirs: str, ours: str) -> WeightEntry:
        """The entry with a prefix before their names and one before ours."""
        return replace(self, theirs=tuple(theirs + name for name in self.theirs), ours=ours + self.ours)

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Our tensor, made from theirs."""
        parts = [tensors[name].t() if self.transposed else tensors[name] for name in self.theirs]
        stacked = parts[0] if len(parts) == 1 else torch.cat(parts)
        return stacked.squeeze(0) if self.row_vector else stacked

    def split(self, tensor: Tensor) -> dict[str, Tensor]:
        """Their tensors, made from ours."""
        parts = (tensor[None] if self.row_vector else tensor).chunk(len(self.theirs))
        return {name: (part.t() if self.transposed else part).contiguous() for name, part in zip(self.theirs, parts)}


def entry(theirs: str, ours: str, transposed: bool = False) -> WeightEntry:
    """An entry whose names of theirs are separated by spaces: ``"q k v"`` are three tensors."""
    return WeightEntry(tuple(theirs.split()), ours, transposed)


def weight_and_bias(theirs: str, ours: str, transposed: bool = False) -> list[WeightEntry]:
    """The entries of a weight and of its bias."""
    weight = entry(" ".join(f"{name}.weight" for name in theirs.split()), f"{ours}.weight", transposed)
    return [weight, entry(" ".join(f"{name}.bias" for name in theirs.split()), f"{ours}.bias")]


def for_all_layers(entries: Iterable[WeightEntry], layers: int) -> list[WeightEntry]:
    """The entries of every layer, made from those of one."""
    return [one.for_layer(number) for number in range(layers) for one in entries]


def to_ours(table: Sequence[WeightEntry], tensors: Mapping[str, Tensor], path: object) -> dict[str, Tensor]:
    """Their tensors under our names. Raises a UserError if a tensor has no entry or an entry lacks a tensor."""
    known = {name for one in table for name in one.theirs}
    if extra := sorted(set(tensors) - known):
        more = f" and {len(extra) - 1} more" * (len(extra) > 1)
        raise UserError(
            f"{path}: {extra[0]}{more}: this model has no such tensor; the weights belong to another config.json, or "
            "to a head for another task; save the model without the head: "
            "transformers.AutoModel.from_pretrained(THIS).save_pretrained(NEW)."
        )
    for one in table:
        for name in one.theirs:
            if name not in tensors:
                raise UserError(f"{path}: the tensor {name} is missing; download or export the checkpoint again.")
    for one in table:  # its tensors must have one shape, and be vectors or matrices
        first = one.theirs[0]
        for name in one.theirs:
            shape, wanted = tensors[name].shape, tensors[first].shape
            if shape != wanted or len(shape) not in (1, 2):
                other = f"{first} is {format_shape(wanted)}" if name != first else "it should be a vector or a matrix"
                raise UserError(
                    f"{path}: {name} is {format_shape(shape)}, but {other}; download or export the checkpoint again."
                )
    return {one.ours: one.join(tensors) for one in table}


def format_shape(shape: Sequence[int] | None) -> str:
    """A shape as text for an error: 3×4; None: there is no such tensor."""
    return "absent" if shape is None else "×".join(map(str, shape)) or "one number"


def to_theirs(table: Sequence[WeightEntry], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under their names."""
    found: dict[str, Tensor] = {}
    for one in table:
        found |= one.split(tensors[one.ours])
    return found
