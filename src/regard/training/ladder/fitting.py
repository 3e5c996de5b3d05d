"""A model in the size of another: its widths are chosen so that it has as many parameters."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from math import lcm, log
from typing import Any, TypeVar

import torch

from regard.errors import UserError
from regard.models import ModelConfig, Seq2SeqConfig, TransformerConfig

TOLERANCE = 0.05  # of the parameters: no rung may be further off
CLOSE = 0.02  # so near, a width that suits a GPU is better than a nearer one
GRAINS = (8, 2)  # widths are multiples of the first where that comes close, else of the second
STRAIN = log(1.5)  # by no larger factor should inner width / width change
VOCABULARIES = ("vocab", "source_vocab", "target_vocab")

M = TypeVar("M", bound=ModelConfig)


@cache
def parameters(config: ModelConfig) -> int:
    """How many numbers a model has to learn, counted without making it."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def fitted(name: str, config: ModelConfig, target: int) -> ModelConfig:
    """The same model in the widths that bring it nearest to so many parameters."""
    if parameters(config) == target:
        return config
    best = _transformer(config, target) if isinstance(config, TransformerConfig) else _wide(config, target)
    if _off(best, target) > TOLERANCE:
        raise UserError(
            f"model.width: none gives the rung {name} {target:,} parameters within {TOLERANCE:.0%}; "
            "start from a larger model.width."
        )
    return best


def with_vocabularies(config: ModelConfig, sizes: ModelConfig | None = None) -> ModelConfig:
    """The model with the vocabularies of another, or with open ones."""
    names = [field.name for field in fields(config) if field.name in VOCABULARIES]
    found: dict[str, Any] = {name: getattr(sizes, name, 0) for name in names}
    return replace(config, **found)


def _wide(config: ModelConfig, target: int) -> ModelConfig:
    """By the width alone; where the states of a recurrent network would get narrower than what they read, by both."""
    best = _finest(lambda width: replace(config, width=width), target)
    if not isinstance(config, Seq2SeqConfig):
        return best
    became_narrow = best.width < config.embed <= config.width
    if _off(best, target) <= TOLERANCE and not became_narrow:
        return best
    share = min(config.embed / config.width, 1.0)
    return _finest(lambda width: replace(config, width=width, embed=max(round(share * width), 1)), target)


def _finest(made: Callable[[int], M], target: int) -> M:
    """The nearest of all widths that are multiples of the first grain, or of the second if that is not close."""
    for grain in GRAINS:
        best = _nearest(lambda k, grain=grain: made(grain * k), target)  # type: ignore[misc]
        if _off(best, target) <= CLOSE:
            break
    return best


def _transformer(config: TransformerConfig, target: int) -> TransformerConfig:
    """By both widths in proportion, in steps that the heads can share; what is left, by the inner width alone.

    The steps are as coarse as the inner width can make up for without losing its proportion.
    """
    heads = 1 if config.head_width else lcm(config.heads, config.decoder_heads or config.heads)

    def strain(each: TransformerConfig) -> float:
        return abs(log(each.inner / each.width * config.width / config.inner))

    for grain in (*GRAINS, 1):
        if config.width % (grain * heads) == 0:
            near = _around(partial(_scaled, config, grain * heads), target)
            best = min((_tuned(each, target) for each in near), key=strain)
            if _off(best, target) <= CLOSE and strain(best) < STRAIN:
                break
    return best


def _scaled(config: TransformerConfig, step: int, k: int) -> TransformerConfig:
    """The model in k steps of width, its inner widths in proportion."""
    share = k * step / config.width
    inner, decoder_inner = max(round(share * config.inner), 1), round(share * config.decoder_inner)
    return replace(config, width=k * step, inner=inner, decoder_inner=decoder_inner)


def _tuned(config: TransformerConfig, target: int) -> TransformerConfig:
    """The model in the inner width that brings it nearest; every grain of that costs the same."""
    grain = GRAINS[0] if config.inner % GRAINS[0] == 0 else 1
    now = parameters(config)
    each = parameters(replace(config, inner=config.inner + grain)) - now
    return replace(config, inner=max(config.inner + grain * round((target - now) / each), grain))


def _nearest(made: Callable[[int], M], target: int) -> M:
    """Of made(1), made(2), …, each larger than the one before, the one nearest to so many parameters."""
    return min(_around(made, target), key=lambda each: _off(each, target))


def _around(made: Callable[[int], M], target: int) -> tuple[M, M]:
    """The last that is too small and the first that is not; the first twice where none is too small."""
    enough = 1
    while parameters(made(enough)) < target:
        enough *= 2
    sizes = range(1, enough + 1)
    at = sizes[bisect_left(sizes, target, key=lambda k: parameters(made(k)))]
    return made(max(at - 1, 1)), made(at)


def _off(config: ModelConfig, target: int) -> float:
    return abs(parameters(config) / target - 1)
