"""Readers change the weights of an attention before the values are read: hard attention, and edits.

>>> with edit(model, {"decoder.attention": lambda weights: weights.eq(weights.amax(-1, keepdim=True)).float()}):
...     model(batch)                                # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention import Attention
from regard.errors import UserError
from regard.recording import matching
from regard.taps import INTERCEPTING, Change, Tap, opened

Edit = Callable[[Tensor], Tensor]  # weights (B, [H,] Tq, Tk) → the weights that are read, of the same shape


class Hard(nn.Module):
    """Hard attention: one key per query, sampled from the weights in training, the likeliest in evaluation.

    (Xu et al. 2015, §4.1.) A row without keys stays zeros. No gradient passes through the choice: train with an
    objective that uses the weights (``regard.watch``), such as REINFORCE.
    """

    def forward(self, weights: Tensor) -> Tensor:
        weights = weights.detach()
        # The argmax of w / e, with e exponential noise, is a sample of w (Gumbel-max), without a synchronisation.
        ranked = weights / torch.empty_like(weights).exponential_() if self.training else weights
        chosen = torch.zeros_like(weights).scatter_(-1, ranked.argmax(-1, keepdim=True), 1.0)
        return chosen.where(weights.sum(-1, keepdim=True) > 0, 0.0)


class Mixed(nn.Module):
    """Soft attention in some rows of a batch, and hard attention in the others."""

    def __init__(self, soft: Tensor) -> None:
        super().__init__()
        self.soft, self.hard = soft, Hard()  # (B,) True: all keys are read

    def forward(self, weights: Tensor) -> Tensor:
        rows = self.soft.reshape(-1, *[1] * (weights.dim() - 1))
        return torch.where(rows, weights, self.hard(weights))


@dataclass(frozen=True)
class Edited:
    """A reader that applies a function to the weights, after the reader that the attention had before."""

    path: str
    function: Edit
    before: Edit | None = None

    def __call__(self, weights: Tensor) -> Tensor:
        changed = self.function(weights if self.before is None else self.before(weights))
        if not isinstance(changed, Tensor):
            raise UserError(
                f"edit: the function of {self.path!r} returned {changed!r:.40}; return a tensor of weights."
            )
        if changed.shape != weights.shape:
            shapes = f"{tuple(weights.shape)} and returned {tuple(changed.shape)}"
            raise UserError(f"edit: the function of {self.path!r} got weights of shape {shapes}; keep the shape.")
        return changed


@contextmanager
def reading(model: nn.Module, pattern: str, reader: nn.Module) -> Iterator[None]:
    """Gives the attention modules whose path matches ``pattern`` another reader, for the caller alone."""
    modules = matching(model, pattern, "reading").values()
    changes = {module.number: _with_reader(reader.train(module.training)) for module in modules}
    with opened(changes, INTERCEPTING):
        yield


def _with_reader(reader: Edit) -> Change:
    return lambda tap: replace(tap, reader=reader)


@contextmanager
def edit(model: nn.Module, functions: Mapping[str, Edit]) -> Iterator[None]:
    """Changes the attention weights that a model reads: pattern of paths (as in ``record``) → function of the weights.

    A function gets the weights (B, [H,] Tq, Tk) of each read and returns those that are read instead. Then the weights
    of padding, and of all other keys that the mask forbids, are set to 0. If several functions match a module, they
    apply in their order; those of an outer ``edit`` apply first. A module that several layers share is edited in each
    of them. Other threads read the model as it is (``regard.taps``). A model with edits decodes by the definition:
    slower, without captured or fused steps.
    """
    if not isinstance(functions, Mapping):
        cure = 'give a function for each pattern of paths, such as {"*": function}'
        raise UserError(f"edit: {functions!r:.40} is no mapping; {cure}.")
    edits = [
        (path, module, function)
        for pattern, function in functions.items()
        for path, module in matching(model, pattern, "edit").items()
    ]
    changes = {module.number: _edits(module, edits) for _, module, _ in edits}
    with opened(changes, INTERCEPTING):
        yield


def _edits(module: Attention, edits: Sequence[tuple[str, Attention, Edit]]) -> Change:
    """Adds the edits of this module to its reader, or to the reader of an outer edit."""

    def change(tap: Tap) -> Tap:
        for path, edited, function in edits:
            if edited is module:
                tap = replace(tap, reader=Edited(path, function, tap.reader or module.reader))
        return tap

    return change
