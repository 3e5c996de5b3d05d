"""Chooses the widths of a model so that it has a given number of parameters."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from math import log
from typing import Any, TypeVar

import torch

from regard.errors import UserError
from regard.models import ModelConfig

TOLERANCE = 0.05  # the largest relative error in the number of parameters
CLOSE = 0.02  # below this error, a coarser width, which suits a GPU, is better than a smaller error
GRAINS = (8, 2)  # widths are multiples of the first if that gives a close size, else of the second
MAX_RATIO_CHANGE = log(1.5)  # by which inner width / width should change at most
VOCABULARIES = ("vocab", "source_vocab", "target_vocab")

M = TypeVar("M", bound=ModelConfig)


@cache
def parameters(config: ModelConfig) -> int:
    """The number of parameters of a model, counted without allocating them."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def fit_size(name: str, config: ModelConfig, target: int) -> ModelConfig:
    """The config with widths that give about `target` parameters."""
    if parameters(config) == target:
        return config
    best = _fit_with_inner(config, target) if "inner" in config.widths else _fit_width(config, target)
    if _error(best, target) > TOLERANCE:
        raise UserError(
            f"model.width: no width gives the rung {name} {target:,} parameters within {TOLERANCE:.0%}; "
            "start from a larger model.width."
        )
    return best


def with_vocabularies(config: ModelConfig, sizes: ModelConfig | None = None) -> ModelConfig:
    """The config with the vocabulary sizes of another, or with 0, so that they are set from the data."""
    names = [field.name for field in fields(config) if field.name in VOCABULARIES]
    found: dict[str, Any] = {name: getattr(sizes, name, 0) for name in names}
    return replace(config, **found)


def _fit_width(config: Any, target: int) -> Any:
    """Change only `width`; or `width` and `embed`, if the states would become narrower than the embeddings."""
    best = _search_grains(lambda width: replace(config, width=width), target)
    if "embed" not in config.widths:
        return best
    became_narrow = best.width < config.embed <= config.width
    if _error(best, target) <= TOLERANCE and not became_narrow:
        return best
    share = min(config.embed / config.width, 1.0)
    return _search_grains(lambda width: replace(config, width=width, embed=max(round(share * width), 1)), target)


def _search_grains(build: Callable[[int], M], target: int) -> M:
    """The best width that is a multiple of the first grain, or of the second if that is not close."""
    for grain in GRAINS:
        near = _neighbours(lambda k, grain=grain: build(grain * k), target)  # type: ignore[misc]
        best = min(near, key=lambda each: _error(each, target))
        if _error(best, target) <= CLOSE:
            break
    return best


def _fit_with_inner(config: Any, target: int) -> Any:
    """Change all widths in proportion, in multiples of the width's step, then adjust the inner width.

    The step is as coarse as possible while the inner width stays near its proportion.
    """

    def ratio_change(each: Any) -> float:
        return abs(log(each.inner / each.width * config.width / config.inner))

    for grain in (*GRAINS, 1):
        if config.width % (grain * config.width_step) == 0:
            near = _neighbours(partial(_scaled, config, grain * config.width_step), target)
            best = min((_adjust_inner(each, target) for each in near), key=ratio_change)
            if _error(best, target) <= CLOSE and ratio_change(best) < MAX_RATIO_CHANGE:
                break
    return best


def _scaled(config: Any, step: int, k: int) -> Any:
    """The config with a width of k steps and its other widths in proportion; a width of 0 stays 0."""
    share = k * step / config.width
    sizes = {name: getattr(config, name) for name in config.widths}
    found = {name: max(round(share * size), 1) if size else 0 for name, size in sizes.items()}
    return replace(config, **found | {"width": k * step})


def _adjust_inner(config: Any, target: int) -> Any:
    """The config with the best inner width; the number of parameters is linear in the inner width."""
    grain = GRAINS[0] if config.inner % GRAINS[0] == 0 else 1
    now = parameters(config)
    slope = parameters(replace(config, inner=config.inner + grain)) - now
    return replace(config, inner=max(config.inner + grain * round((target - now) / slope), grain))


def _neighbours(build: Callable[[int], M], target: int) -> tuple[M, M]:
    """Of build(1), build(2), …, which grow in size: the last that is too small and the first that is not.

    If none is too small, the first config twice.
    """
    upper = 1
    while parameters(build(upper)) < target:
        upper *= 2
    sizes = range(1, upper + 1)
    at = sizes[bisect_left(sizes, target, key=lambda k: parameters(build(k)))]
    return build(max(at - 1, 1)), build(at)


def _error(config: ModelConfig, target: int) -> float:
    return abs(parameters(config) / target - 1)
