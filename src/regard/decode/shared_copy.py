"""The same model once more, with the same weights: what is changed of its parts, is changed for nobody else."""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import Any, TypeVar

from torch import nn

from regard.recording import attentions

M = TypeVar("M", bound=nn.Module)


def shared_copy(model: M) -> M:
    """A copy that shares every parameter and buffer. No tape hears it: a search is not what one looks at."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    shared.update({id(part.recorder): None for part in attentions(model).values()})
    return deepcopy(model, shared)
