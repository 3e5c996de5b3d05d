"""The features and logits of given tokens, for any model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.models import Facts
from regard.models.causal import causal_features


def features(
    module: Any,
    tokens: Tensor,
    real: Tensor | None = None,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    segments: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """The states (B, T, width) of the last layer at tokens (B, T)."""
    config: Facts = module.config
    if (source is not None) != config.reads_source:
        cure = "give the tokens it reads as source=…" if source is None else "leave source out"
        raise UserError(f"source: this model {'has' if source is None else 'does not read'} a source; {cure}.")
    if not config.causal:
        return module.features(tokens, real, segments, positions)
    return causal_features(module, tokens, real, source, source_real, segments, positions)


Inputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def check_inputs(
    module: Any,
    tokens: Tensor,
    real: Tensor | None,
    source: Tensor | None,
    source_real: Tensor | None,
    segments: Tensor | None,
    positions: Tensor | None,
) -> Inputs:
    """Check that the tensors fit the model and each other; return them, with masks of 0 and 1 as boolean masks."""
    config: Facts = module.config
    given = {"tokens": tokens, "real": real, "source": source, "source_real": source_real}
    for name, one in {**given, "segments": segments, "positions": positions}.items():
        if one is not None and not isinstance(one, Tensor):
            cure = "its ids: model.tokenizer.encode(text)" if isinstance(one, str) else "torch.tensor(…)"
            raise UserError(f"{name}: should be a tensor (rows, length), not a {type(one).__name__}; give {cure}.")
    _check_ids("tokens", tokens, config.token_vocab)
    if source is not None and config.reads_source:
        _check_ids("source", source, config.source_vocab)
        if len(source) != len(tokens):
            raise UserError(f"source: has {len(source)} rows, but tokens have {len(tokens)}; give as many.")
    if segments is not None and config.segment_kinds:
        _check_ids("segments", segments, config.segment_kinds, tokens.shape)
    if positions is not None and config.position_rows is not None:
        _check_ids("positions", positions, config.position_rows, tokens.shape)
    return (
        tokens,
        _as_boolean("real", real, tokens),
        source,
        _as_boolean("source_real", source_real, source),
        segments,
        positions,
    )


def _check_ids(name: str, ids: Tensor, count: int, shape: torch.Size | tuple[int, ...] | None = None) -> None:
    if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool:
        found = f"{tuple(ids.shape)} of {ids.dtype}".replace("torch.", "")
        raise UserError(f"{name}: should be whole numbers of shape (rows, length), not {found}.")
    if shape is not None and (ids.shape[1] != shape[1] or len(ids) not in (1, shape[0])):
        raise UserError(f"{name}: {tuple(ids.shape)} does not fit tokens of shape {tuple(shape)}.")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        found = f"{int(ids.min())} to {int(ids.max())}"
        raise UserError(f"{name}: {found} are not all ids of this model, whose ids are 0 to {count - 1}.")


def _as_boolean(name: str, given: Tensor | None, like: Tensor | None) -> Tensor | None:
    if given is None or like is None:
        return given
    if given.shape != like.shape:
        raise UserError(f"{name}: {tuple(given.shape)} does not fit ids of shape {tuple(like.shape)}.")
    return given if given.dtype == torch.bool else given != 0


def logits(module: Any, real: Tensor | None, states: Tensor) -> Tensor:
    """The logits of states: of every token, or of the whole text where the model makes one prediction per text."""
    return module.readout(states, real) if module.config.one_per_text else module.readout(states)
