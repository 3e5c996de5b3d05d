"""Trees of tensors: tensors in dataclasses, tuples, lists and dicts, such as the state of a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")  # a tree


def tensors(tree: Any) -> Iterator[Tensor]:
    """Every tensor of a tree of dataclasses, tuples, lists and dicts, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list, Mapping)):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from tensors(part)
    else:
        for name in _field_names(tree):
            yield from tensors(getattr(tree, name))


def with_tensors(tree: T, values: Iterator[Tensor]) -> T:
    """A copy of a tree in which `values` replace its tensors, in order."""
    built: Any = tree
    if isinstance(tree, Tensor):
        built = next(values)
    elif isinstance(tree, (tuple, list)):
        built = type(tree)(with_tensors(part, values) for part in tree)
    elif isinstance(tree, Mapping):
        built = {name: with_tensors(part, values) for name, part in tree.items()}
    elif names := _field_names(tree):
        built = replace(tree, **{name: with_tensors(getattr(tree, name), values) for name in names})  # type: ignore[type-var]
    return built


def copied(tree: T) -> T:
    """A copy of a tree with copies of its tensors."""
    return with_tensors(tree, (tensor.clone() for tensor in tensors(tree)))


def signature(tree: Any) -> object:
    """What must be equal for a graph to be used again: shape, dtype and device of tensors, and all other values."""
    if isinstance(tree, Tensor):
        return tree.shape, tree.dtype, tree.device
    if isinstance(tree, (tuple, list)):
        return tuple(map(signature, tree))
    if isinstance(tree, Mapping):
        return tuple((name, signature(part)) for name, part in tree.items())
    if names := _field_names(tree):
        return type(tree), tuple(signature(getattr(tree, name)) for name in names)
    return tree


def _field_names(tree: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass; empty for any other object."""
    return tuple(getattr(type(tree), "__dataclass_fields__", ()))
