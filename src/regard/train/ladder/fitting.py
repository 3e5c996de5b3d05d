"""A model in the size of another: its widths are chosen so that it has as many parameters."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import fields, replace
from math import lcm
from typing import Any, TypeVar

import torch

from regard.errors import UserError
from regard.models import ModelConfig, TransformerConfig

TOLERANCE = 0.05  # of the parameters: no rung may be further off
CLOSE = 0.02  # so near, a width that suits a GPU is better than a nearer one
GRAINS = (8, 2)  # widths are multiples of the first where that comes close, else of the second
VOCABULARIES = ("vocab", "source_vocab", "target_vocab")

M = TypeVar("M", bound=ModelConfig)


def parameters(config: ModelConfig) -> int:
    """How many numbers a model has to learn, counted without making it."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def fitted(name: str, config: ModelConfig, target: int) -> ModelConfig:
    """The same model in the widths that bring it nearest to so many parameters."""
    best = _transformer(config, target) if isinstance(config, TransformerConfig) else _wide(config, target)
    if abs(parameters(best) / target - 1) > TOLERANCE:
        raise UserError(
            f"model.width={config.width}: no width gives the rung {name} {target:,} parameters within {TOLERANCE:.0%}; "
            "choose a larger model.width."
        )
    return best


def with_vocabularies(config: ModelConfig, sizes: ModelConfig | None = None) -> ModelConfig:
    """The model with the vocabularies of another, or with open ones."""
    names = [field.name for field in fields(config) if field.name in VOCABULARIES]
    found: dict[str, Any] = {name: getattr(sizes, name, 0) for name in names}
    return replace(config, **found)


def _wide(config: ModelConfig, target: int) -> ModelConfig:
    """By the width alone."""
    for grain in GRAINS:
        best = _nearest(lambda k, grain=grain: replace(config, width=grain * k), target)  # type: ignore[misc]
        if abs(parameters(best) / target - 1) <= CLOSE:
            break
    return best


def _transformer(config: TransformerConfig, target: int) -> ModelConfig:
    """By both widths in proportion, in steps that the heads can share; what is left, by the inner width alone."""
    heads = 1 if config.head_width else lcm(config.heads, config.decoder_heads or config.heads)
    step = heads * next(grain for grain in (*GRAINS, 1) if config.width % (grain * heads) == 0)

    def scaled(k: int) -> TransformerConfig:
        share = k * step / config.width
        inner, other = max(round(share * config.inner), 1), round(share * config.decoder_inner)
        return replace(config, width=k * step, inner=inner, decoder_inner=other)

    near = _nearest(scaled, target)
    grain = GRAINS[0] if near.inner % GRAINS[0] == 0 else 1
    return _nearest(lambda k: replace(near, inner=grain * k), target)


def _nearest(made: Callable[[int], M], target: int) -> M:
    """Of made(1), made(2), …, each larger than the one before, the one nearest to so many parameters."""
    enough = 1
    while parameters(made(enough)) < target:
        enough *= 2
    sizes = range(1, enough + 1)
    at = sizes[bisect_left(sizes, target, key=lambda k: parameters(made(k)))]  # the first that is large enough
    return min((made(k) for k in (max(at - 1, 1), at)), key=lambda each: abs(parameters(each) - target))
