"""Trees of tensors: what a search carries from one step to the next is tensors in dataclasses, tuples and lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")  # a tree


def tensors(tree: Any) -> Iterator[Tensor]:
    """Every tensor of a tree of dataclasses, tuples and lists, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for part in tree:
            yield from tensors(part)
    else:
        for name in _names(tree):
            yield from tensors(getattr(tree, name))


def with_tensors(tree: T, values: Iterator[Tensor]) -> T:
    """The same tree with other tensors in the places of its own."""
    built: Any = tree
    if isinstance(tree, Tensor):
        built = next(values)
    elif isinstance(tree, (tuple, list)):
        built = type(tree)(with_tensors(part, values) for part in tree)
    elif names := _names(tree):
        built = replace(tree, **{name: with_tensors(getattr(tree, name), values) for name in names})  # type: ignore[type-var]
    return built


def outline(tree: Any) -> object:
    """What must be the same for a captured graph to be usable: shapes, types, and whatever is no tensor."""
    if isinstance(tree, Tensor):
        return tree.shape, tree.dtype, tree.device
    if isinstance(tree, (tuple, list)):
        return tuple(map(outline, tree))
    if names := _names(tree):
        return type(tree), tuple(outline(getattr(tree, name)) for name in names)
    return tree


def _names(tree: Any) -> tuple[str, ...]:
    """The fields of a dataclass; nothing of anything else."""
    return tuple(getattr(type(tree), "__dataclass_fields__", ()))


def put_back(places: list[Tensor], values: list[Tensor]) -> None:
    """Writes values where others were, those of a kind at once: most are single numbers, and a launch is dear."""
    moved = [(place, value) for place, value in zip(places, values) if place.data_ptr() != value.data_ptr()]
    for kind in {place.dtype for place, _ in moved}:
        pairs = [pair for pair in moved if pair[0].dtype == kind]
        torch._foreach_copy_([place for place, _ in pairs], [value for _, value in pairs])
