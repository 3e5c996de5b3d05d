"""Heads by their names, and what is done to a head: off, uniform, one-hot, or a row of weights of the caller.

A change concerns one head of one layer, and all its queries, at every step of decoding. With w the weights of a query
over the Tk keys, the head reads these weights instead:

- off: 0 for every key, so that the context of the head is 0;
- uniform: 1 / n for each of the n visible keys, those that the mask allows the query to look at;
- one-hot: 1 for the visible key with the largest w, of equal ones the first, and 0 for the others;
- a number k: 1 for key k, counted from 0 in the columns of the picture, and 0 for the others;
- a row: row[k] for key k, and 0 for the keys after the row.

Then the keys that the mask hides get 0 again (``regard.edit``). Nothing is renormalised: a query that may not look at
key k reads nothing. A query without a visible key reads nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError, nearest
from regard.models.parts import head_counts, path_of, reads_by_part
from regard.readers import edit
from regard.recording import attentions
from regard.taps import visible_keys
from regard.verbs.given import listed
from regard.verbs.loaded import Loaded

CHANGES = ("off", "uniform", "one-hot")
NAME = re.compile(r"(?:(\w+):)?L(\d+)[·.]?H(\d+)", re.IGNORECASE)
Change = str | int | tuple[float, ...]  # one of CHANGES, a key, or a row of weights
Heads = str | Iterable[str] | Mapping[str, str | int | Sequence[float]]


@dataclass(frozen=True)
class Head:
    """A head of a model. Layers and heads count from 0 in their part, as in the pictures."""

    part: str
    layer: int
    head: int
    read: str = field(compare=False, repr=False)  # the name on a tape
    alone: bool = field(compare=False, repr=False)  # whether the model has one part
    first: bool = field(compare=False, repr=False)  # whether it is in the part that is shown first

    @property
    def name(self) -> str:
        """The name in options and in JSON: cross:L1H2, or L1H2 in a model of one part."""
        return f"L{self.layer}H{self.head}" if self.alone else f"{self.part}:L{self.layer}H{self.head}"

    @property
    def label(self) -> str:
        """The name in a sentence: L1·H2, with the part if it is not the one that is shown first."""
        return f"{'' if self.first else self.part + ' '}L{self.layer}·H{self.head}"


def heads_of(model: Loaded) -> list[Head]:
    """All heads of a model in the order of the pictures: the part that is shown first, from its lowest layer up."""
    by_part, counts = reads_by_part(model.module), head_counts(model.module)
    return [
        Head(part, layer, head, read, len(by_part) == 1, place == 0)
        for place, (part, reads) in enumerate(by_part.items())
        for layer, read in enumerate(reads)
        for head in range(counts[path_of(read)])
    ]


def find_head(model: Loaded, name: str) -> Head:
    """The head with this name, such as L1H2, cross:L1H2 or l1·h2; without a part, of the part that is shown first."""
    heads = heads_of(model)
    if not heads:
        raise UserError(f"{name}: {model.path} has no attention.")
    if (found := NAME.fullmatch(name.strip())) is None:
        cure = f"a head is named by its layer and its number, both from 0, such as {heads[0].name}"
        raise UserError(f"{name!r:.60}: no name of a head; {cure}.")
    given, layer, number = found[1], int(found[2]), int(found[3])
    parts = list(dict.fromkeys(head.part for head in heads))
    part = parts[0] if given is None else given.lower()
    if part not in parts:
        raise UserError(f"{name}: no such part of {model.path}.{nearest(part, parts)}")
    of_part = [head for head in heads if head.part == part]
    of_layer = [head for head in of_part if head.layer == layer]
    if not of_layer:
        raise UserError(f"{name}: {part} of {model.path} has {_numbered('layer', of_part[-1].layer)}.")
    if number >= len(of_layer):
        raise UserError(f"{name}: layer {layer} of {part} has {_numbered('head', len(of_layer) - 1)}.")
    return of_layer[number]


def _numbered(what: str, last: int) -> str:
    return f"{what}s 0 to {last}" if last else f"one {what}, 0"


def head_changes(model: Loaded, heads: Heads) -> dict[Head, Change]:
    """The changes that a caller names: a head, several, "L1H2=uniform", or a mapping of names to changes."""
    if isinstance(heads, Mapping):
        items: list[tuple[Any, Any]] = list(heads.items())
    else:
        named = [heads] if isinstance(heads, str) else listed(heads, "heads")
        parted = (one.partition("=") if isinstance(one, str) else (one, "", "") for one in named)
        items = [(name, change or "off") for name, _, change in parted]
    if wrong := [name for name, _ in items if not isinstance(name, str)]:
        raise UserError(f'heads: {wrong[0]!r:.40} is no name of a head; give one such as "L1H2".')
    if not items:
        raise UserError('heads: none is named; give one, such as "L1H2".')
    found = dict[Head, Change]()
    for name, change in items:
        head = find_head(model, name)
        if head in found:
            raise UserError(f"{name}: {head.name} is named twice; give one change for each head.")
        found[head] = checked_change(name, change)
    return found


def checked_change(name: str, change: Any) -> Change:
    """The change of a head: one of CHANGES, a key or a row; others are refused."""
    if isinstance(change, str):
        text = change.strip().lower()
        if text in CHANGES:
            return text
        if not (text.isascii() and text.isdecimal()):
            known = f"{', '.join(CHANGES)}, or the number of a key from 0"
            raise UserError(f"{name}={change:.40}: no such change of a head; give {known}.")
        return int(text)
    if isinstance(change, int) and not isinstance(change, bool) and change >= 0:
        return change
    try:
        row = tuple(float(weight) for weight in change)
    except (TypeError, ValueError):
        row = ()
    if not row or not all(map(isfinite, row)):
        known = f"{', '.join(CHANGES)}, the number of a key from 0, or a row of weights"
        raise UserError(f"{name}={change!r:.40}: no such change of a head; give {known}.")
    return row


def check_keys(changes: Mapping[Head, Change], keys: Mapping[str, int]) -> None:
    """Refuse keys that a text does not have, given the number of keys of each part."""
    for head, change in changes.items():
        count = keys[head.part]
        if isinstance(change, int) and change >= count:
            raise UserError(f"{head.name}={change}: {head.part} has keys 0 to {count - 1} for this text.")
        if isinstance(change, tuple) and len(change) > count:
            raise UserError(f"{head.name}: a row of {len(change)} weights, but {head.part} has {count} keys.")


def described(changes: Mapping[Head, Change]) -> str:
    """The changes as a part of a sentence: "without L1·H2 and L1·H3 and with L0·H0 uniform"."""
    off = [head.label for head, change in changes.items() if change == "off"]
    others = [f"{head.label} {_worded(change)}" for head, change in changes.items() if change != "off"]
    named = [(word, _listed(some)) for word, some in (("without", off), ("with", others)) if some]
    return " and ".join(f"{word} {some}" for word, some in named)


def _worded(change: Change) -> str:
    if isinstance(change, str):
        return change
    return f"at key {change}" if isinstance(change, int) else "at given weights"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def for_page(changes: Mapping[Head, Change]) -> list[dict[str, Any]]:
    """The changes as a page holds them: `HeadChange` in web/src/engine/api.ts."""
    return [
        {"part": head.part, "layer": head.layer, "head": head.head, **_for_page(change)}
        for head, change in changes.items()
    ]


def _for_page(change: Change) -> dict[str, Any]:
    if isinstance(change, str):
        return {"kind": change}
    return {"kind": "one-hot", "key": change} if isinstance(change, int) else {"kind": "row", "weights": list(change)}


@dataclass(eq=False)
class Edits:
    """The function that `regard.edit` gets for one attention module: its heads, changed in some rows of the batch."""

    shared_by: int  # how many layers use the module: its reads are those of the layers in turn
    variants: int  # the batch has as many groups of rows, of one size
    changes: dict[int, list[tuple[int, int, Change]]]  # by layer of the module: group of rows, head, change
    reads: int = 0  # so far

    def __call__(self, weights: Tensor) -> Tensor:
        mine, self.reads = self.changes.get(self.reads % self.shared_by, []), self.reads + 1
        if not mine:
            return weights
        changed, size, mask = weights.clone(), len(weights) // self.variants, visible_keys()
        visible = weights.new_ones((), dtype=torch.bool) if mask is None else mask
        heads, seen = changed, visible.expand_as(weights)
        if changed.dim() == 3:  # (B, Tq, Tk) → (B, H, Tq, Tk), the same memory
            heads, seen = changed[:, None], seen[:, None]
        for variant, head, change in mine:
            rows = slice(variant * size, (variant + 1) * size)
            heads[rows, head] = changed_weights(heads[rows, head], seen[rows, head], change)
        return changed


def changed_weights(weights: Tensor, visible: Tensor, change: Change) -> Tensor:
    """The weights (…, Tq, Tk) of a head after a change; the definition is that of the module."""
    changed = torch.zeros_like(weights)
    if change == "uniform":
        return visible / visible.sum(-1, keepdim=True).clamp_min(1).to(weights.dtype)
    if change == "one-hot":
        best = weights.masked_fill(~visible, -1.0).argmax(-1, keepdim=True)
        return changed.scatter(-1, best, 1.0).where(visible, 0.0)
    if isinstance(change, int):
        changed[..., change : change + 1] = 1.0  # a step may come before the key is there
    elif isinstance(change, tuple):
        row = weights.new_tensor(change)[: weights.shape[-1]]
        changed[..., : len(row)] = row
    return changed


@contextmanager
def heads_changed(model: Loaded, variants: Sequence[Mapping[Head, Change]]) -> Iterator[None]:
    """Inside, the model of this caller has these changes: one variant for each of as many equal groups of rows.

    A batch of the same text, once for each variant, is read by all variants at once.
    """
    modules = attentions(model.module)
    found: dict[str, dict[int, list[tuple[int, int, Change]]]] = defaultdict(lambda: defaultdict(list))
    for variant, changes in enumerate(variants):
        for head, change in changes.items():
            turn = int(head.read.partition("[")[2].removesuffix("]") or 0)
            found[path_of(head.read)][turn].append((variant, head.head, change))
    edits = {path: Edits(modules[path].shared_by, len(variants), turns) for path, turns in found.items()}
    with edit(model.module, edits):
        yield
