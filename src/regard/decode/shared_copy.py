"""A copy of a model that shares its weights: its layers can be replaced without changing the model itself."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from typing import Any, TypeVar

from torch import nn

from regard.recording import attentions

M = TypeVar("M", bound=nn.Module)


def shared_copy(model: M) -> M:
    """A copy that shares every parameter and buffer with the model. No tape records its weights."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    for part in attentions(model).values():
        shared |= {id(part.recorder): None, id(part.watchers): ()}
    return deepcopy(model, shared)


def with_layers(model: M, faster: Callable[[nn.Module], nn.Module | None]) -> M:
    """A shared copy in which `faster(layer)` replaces each layer for which it is not None; `print` shows them."""
    copy = shared_copy(model)
    for parent in list(copy.modules()):
        for name, layer in list(parent.named_children()):
            if (new := faster(layer)) is not None:
                setattr(parent, name, new)
    return copy.train(model.training)  # a new layer starts in training mode
