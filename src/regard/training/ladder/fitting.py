"""Chooses the widths of a model so that it has a given number of parameters."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

import torch

from regard.errors import UserError
from regard.models import ModelConfig

TOLERANCE = 0.05  # the largest relative error in the number of parameters
CLOSE = 0.02  # below this error, a coarser width, which suits a GPU, is better than a smaller error
GRAINS = (8, 2, 1)  # widths are multiples of the first if that gives a close size, else of the second or third
VOCABULARIES = ("vocab", "source_vocab", "target_vocab")


@cache
def parameters(config: ModelConfig) -> int:
    """The number of parameters of a model, counted without allocating them."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def fit_size(name: str, config: ModelConfig, target: int) -> ModelConfig:
    """The config with widths that give about `target` parameters."""
    if parameters(config) == target:
        return config
    for grain in GRAINS:
        near = _neighbours(lambda k, grain=grain: config.resized(grain * k), target)  # type: ignore[misc]
        best = min(near, key=lambda each: _error(each, target))
        if _error(best, target) <= CLOSE:
            break
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


def _neighbours(build: Callable[[int], ModelConfig], target: int) -> tuple[ModelConfig, ModelConfig]:
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
