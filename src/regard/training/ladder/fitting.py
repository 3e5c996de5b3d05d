"""A model of the size of another: its widths are chosen so that it has as many parameters."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from math import log
from typing import Any, TypeVar

import torch

from regard.errors import UserError
from regard.models import ModelConfig

TOLERANCE = 0.05  # of the parameters: no rung may be further off
CLOSE = 0.02  # so near, a width that suits a GPU is better than a nearer one
GRAINS = (8, 2)  # widths are multiples of the first where that comes close, else of the second
STRAIN = log(1.5)  # by no larger factor should inner width / width change
VOCABULARIES = ("vocab", "source_vocab", "target_vocab")

M = TypeVar("M", bound=ModelConfig)


@cache
def parameters(config: ModelConfig) -> int:
    """The number of parameters of a model, counted without allocating them."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def fitted(name: str, config: ModelConfig, target: int) -> ModelConfig:
    """The same model, with the widths that bring it nearest to `target` parameters."""
    if parameters(config) == target:
        return config
    best = _with_inner(config, target) if "inner" in config.widths else _wide(config, target)
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


def _wide(config: Any, target: int) -> Any:
    """By the width alone; by `width` and `embed` where the states would become narrower than the embeddings."""
    best = _finest(lambda width: replace(config, width=width), target)
    if "embed" not in config.widths:
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


def _with_inner(config: Any, target: int) -> Any:
    """By all widths in proportion, in multiples of the width's step; the rest by the inner width alone.

    The steps are as coarse as possible while the inner width stays near its proportion.
    """

    def strain(each: Any) -> float:
        return abs(log(each.inner / each.width * config.width / config.inner))

    for grain in (*GRAINS, 1):
        if config.width % (grain * config.width_step) == 0:
            near = _around(partial(_scaled, config, grain * config.width_step), target)
            best = min((_tuned(each, target) for each in near), key=strain)
            if _off(best, target) <= CLOSE and strain(best) < STRAIN:
                break
    return best


def _scaled(config: Any, step: int, k: int) -> Any:
    """The model with k steps of width, its other widths in proportion; a width of 0 stays 0."""
    share = k * step / config.width
    sizes = {name: getattr(config, name) for name in config.widths}
    found = {name: max(round(share * size), 1) if size else 0 for name, size in sizes.items()}
    return replace(config, **found | {"width": k * step})


def _tuned(config: Any, target: int) -> Any:
    """The model with the inner width that brings it nearest; every step of the inner width adds as many parameters."""
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
