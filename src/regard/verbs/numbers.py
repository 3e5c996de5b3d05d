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


Given = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def checked(
    module: Model,
    tokens: Tensor,
    real: Tensor | None,
    source: Tensor | None,
    source_real: Tensor | None,
    segments: Tensor | None,
    positions: Tensor | None,
) -> Given:
    """The same tensors, if they fit the model and one another; a mask of 0 and 1 is as good as one of truths."""
    config: Any = module.config
    given = {"tokens": tokens, "real": real, "source": source, "source_real": source_real}
    for name, one in {**given, "segments": segments, "positions": positions}.items():
        if one is not None and not isinstance(one, Tensor):
            cure = "its ids: model.tokenizer.encode(text)" if isinstance(one, str) else "torch.tensor(…)"
            raise UserError(f"{name}: should be a tensor (rows, length), not a {type(one).__name__}; give {cure}.")
    _check_ids("tokens", tokens, getattr(config, "target_vocab", 0) or config.vocab)
    if source is not None and module.task == "translate":
        _check_ids("source", source, config.source_vocab)
        if len(source) != len(tokens):
            raise UserError(f"source: has {len(source)} rows, but tokens have {len(tokens)}; give as many.")
    if segments is not None and getattr(config, "segments", None):
        _check_ids("segments", segments, config.segments, tokens.shape)
    if positions is not None and getattr(config, "positions", "") in ("learned", "sinusoidal", "sinusoidal-halves"):
        rows = config.context + getattr(config, "first_position", 0)
        _check_ids("positions", positions, rows, tokens.shape)
    return (
        tokens,
        _truths("real", real, tokens),
        source,
        _truths("source_real", source_real, source),
        segments,
        positions,
    )


def _check_ids(name: str, ids: Tensor, count: int, shape: torch.Size | tuple[int, ...] | None = None) -> None:
    if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool:
        told = f"{tuple(ids.shape)} of {ids.dtype}".replace("torch.", "")
        raise UserError(f"{name}: should be whole numbers of shape (rows, length), not {told}.")
    if shape is not None and (ids.shape[1] != shape[1] or len(ids) not in (1, shape[0])):
        raise UserError(f"{name}: {tuple(ids.shape)} does not fit tokens of shape {tuple(shape)}.")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        found = f"{int(ids.min())} to {int(ids.max())}"
        raise UserError(f"{name}: {found} are not all ids of this model, which has 0 to {count - 1}.")


def _truths(name: str, given: Tensor | None, like: Tensor | None) -> Tensor | None:
    if given is None or like is None:
        return given
    if given.shape != like.shape:
        raise UserError(f"{name}: {tuple(given.shape)} does not fit what it is about, {tuple(like.shape)}.")
    return given if given.dtype == torch.bool else given != 0


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
