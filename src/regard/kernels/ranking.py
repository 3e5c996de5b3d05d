"""The likeliest tokens of each row: a softmax and a ranking of which only the top is ever looked at."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
from torch import Tensor

MOST = 32  # that the GPU's programs look for


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` best tokens of each row (R, V), best first: their log-probabilities and themselves, (R, count)."""
    if logits.is_cuda and count <= MOST and _usable(logits.device):
        from regard.kernels.ranking_triton import launch

        with torch.cuda.device_of(logits):  # Triton launches on the current device
            return launch(logits, count) if logits.stride(1) == 1 else launch(logits.contiguous(), count)
    precise = logits.float()
    best, tokens = precise.topk(count, dim=1)
    return best - precise.logsumexp(dim=1, keepdim=True), tokens


@cache
def _usable(device: torch.device) -> bool:
    """Whether this GPU is one that Triton is for."""
    return (
        torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and importlib.util.find_spec("triton") is not None
    )
