"""Numbers out of any model: the features and logits of tokens that somebody else has made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.errors import UserError
from regard.layers.recurrent import real_first
from regard.models import Gpt, Model, Structured, Transformer


def features(
    module: Model,
    tokens: Tensor,
    real: Tensor | None = None,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    segments: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """The states (B, T, width) of a model's last layer at tokens (B, T), whatever its family."""
    if (source is not None) != (module.task == "translate"):
        cure = "give the tokens it reads as source=…" if source is None else "leave source out"
        raise UserError(f"source: this model {'has' if source is None else 'does not read'} a source; {cure}.")
    match module.task:
        case "classify":
            assert isinstance(module, Structured)
            _refuse("segments", segments)
            _refuse("positions", positions)
            return module.states(tokens, real)
        case "fill":
            return module.features(tokens, real, segments, positions)  # type: ignore[operator]
        case _:
            _refuse("segments", segments)
            return _spoken(module, tokens, real, source, source_real, positions)


def logits(module: Model, tokens: Tensor, real: Tensor | None, states: Tensor) -> Tensor:
    """The logits of states: of every place, or of the whole text where that is what a model classifies."""
    if isinstance(module, Structured):
        return module(_text(tokens, real))
    return module.readout(states)


def _spoken(
    module: Any,
    tokens: Tensor,
    real: Tensor | None,
    source: Tensor | None,
    source_real: Tensor | None,
    positions: Tensor | None,
) -> Tensor:
    """Of a model that reads from left to right. One that knows no padding reads the real tokens first."""
    rows, length = tokens.shape
    state = module.start(source, source_real, rows=rows, capacity=length)
    if isinstance(module, Transformer) or (isinstance(module, Gpt) and module.config.positions != "xl"):
        found, _ = module.advance(tokens, state, real, positions)
        return found
    _refuse("positions", positions)
    if real is None:
        found, _ = module.advance(tokens, state)
        return found
    order = real_first(real)
    found, _ = module.advance(tokens.gather(1, order), state)
    return found.take_along_dim(order.argsort(1)[..., None], dim=1)


def _text(tokens: Tensor, real: Tensor | None) -> Batch:
    real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
    return Batch(tokens, tokens[:, 0], real, list(range(len(tokens))), len(tokens))


def _refuse(name: str, given: Tensor | None) -> None:
    if given is not None:
        raise UserError(f"{name}: this model has none; leave them out.")
