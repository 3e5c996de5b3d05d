"""The states and logits of given tokens, for any model."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.characters import COUNT
from regard.errors import UserError
from regard.models import Facts
from regard.models.causal import causal_features


class Inputs(NamedTuple):
    """The tensors that a model reads; all but the tokens are optional."""

    tokens: Tensor  # (B, T) ids, (B, T, N) numbers, or (B, T, C) ids of characters
    real: Tensor | None = None  # (B, T) True: not padding
    source: Tensor | None = None  # (B, Ts) ids; or images, (B, H, W, 3) pixels or (B, cells, D) features
    source_real: Tensor | None = None  # (B, Ts); of an image (B, H) or (B, cells)
    segments: Tensor | None = None  # (B, T) ids
    positions: Tensor | None = None  # (B, T) rows of the model's table of positions

    def states(self, module: Any) -> Tensor:
        """The states (B, T, width) of the last layer at the tokens."""
        config: Facts = module.config
        if (self.source is not None) != config.reads_source:
            cure = "give what it reads as source=…" if self.source is None else "leave source out"
            has = "has" if self.source is None else "does not read"
            raise UserError(f"source: this model {has} a source; {cure}.")
        if not config.causal:
            return module.features(self.tokens, self.real, self.segments, self.positions)
        return causal_features(module, *self)

    def logits(self, module: Any) -> Tensor:
        """The logits at the tokens, (B, T, V), or of each text, (B, classes)."""
        states = self.states(module)
        return module.readout(states, self.real) if module.config.one_per_text else module.readout(states)

    def checked(self, config: Facts) -> Inputs:
        """The same inputs, with masks of 0 and 1 as boolean masks, if they fit the model and each other."""
        for name, one in self._asdict().items():
            if one is not None and not isinstance(one, Tensor):
                cure = "its ids: model.tokenizer.encode(text)" if isinstance(one, str) else "torch.tensor(…)"
                raise UserError(f"{name}: should be a tensor (rows, length), not a {type(one).__name__}; give {cure}.")
        if config.numbers:
            count, values = config.numbers, self.tokens
            if values.dim() != 3 or values.shape[2] != count or not values.is_floating_point():
                found = f"{tuple(values.shape)} of {values.dtype}".replace("torch.", "")
                raise UserError(f"tokens: this model reads numbers of shape (rows, length, {count}), not {found}.")
        elif config.characters and self.tokens.dim() == 3:
            _check_ids("tokens", self.tokens.flatten(1), COUNT)
        else:
            _check_ids("tokens", self.tokens, config.token_vocab)
        if self.source is not None and config.reads_source:
            if config.source_shape:
                _check_image(self.source, config.source_shape)
            else:
                _check_ids("source", self.source, config.source_vocab)
            if len(self.source) != len(self.tokens):
                have = f"has {len(self.source)} rows, but tokens have {len(self.tokens)}"
                raise UserError(f"source: {have}; give as many.")
        if self.segments is not None and config.segment_kinds:
            _check_ids("segments", self.segments, config.segment_kinds, self.tokens.shape)
        if self.positions is not None and config.position_rows is not None:
            _check_ids("positions", self.positions, config.position_rows, self.tokens.shape)
        real = _as_boolean("real", self.real, self.tokens)
        places = None if self.source is None else self.source.reshape(*self.source.shape[:2], -1)[..., 0]  # (B, Ts)
        return self._replace(real=real, source_real=_as_boolean("source_real", self.source_real, places))

    def to(self, device: torch.device) -> Inputs:
        """The same inputs on a device."""
        return Inputs(*(None if one is None else one.to(device) for one in self))  # type: ignore[arg-type]


def _check_ids(name: str, ids: Tensor, count: int, shape: torch.Size | tuple[int, ...] | None = None) -> None:
    if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool:
        found = f"{tuple(ids.shape)} of {ids.dtype}".replace("torch.", "")
        raise UserError(f"{name}: should be whole numbers of shape (rows, length), not {found}.")
    if shape is not None and (ids.shape[1] != shape[1] or len(ids) not in (1, shape[0])):
        raise UserError(f"{name}: {tuple(ids.shape)} does not fit tokens of shape {tuple(shape)}.")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        found = f"{int(ids.min())} to {int(ids.max())}"
        raise UserError(f"{name}: {found} are not all ids of this model, whose ids are 0 to {count - 1}.")


def _check_image(source: Tensor, shape: tuple[int, ...]) -> None:
    if source.shape[1:] != shape or source.dtype == torch.bool:
        expected = ", ".join(map(str, ("rows", *shape)))
        found = f"{tuple(source.shape)} of {source.dtype}".replace("torch.", "")
        raise UserError(f"source: should be images, numbers of shape ({expected}), not {found}.")


def _as_boolean(name: str, given: Tensor | None, like: Tensor | None) -> Tensor | None:
    if given is None or like is None:
        return given
    if given.shape != like.shape[:2]:
        raise UserError(f"{name}: {tuple(given.shape)} does not fit ids of shape {tuple(like.shape)}.")
    return given if given.dtype == torch.bool else given != 0
