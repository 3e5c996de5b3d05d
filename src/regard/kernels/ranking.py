"""The most probable tokens of each row and their log-probabilities, without a softmax over all tokens."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
from torch import Tensor

MAX_COUNT = 32  # the most tokens that the GPU kernels can find


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` most probable tokens of each row (R, V), best first: log-probabilities and tokens, (R, count)."""
    if logits.is_cuda and count <= MAX_COUNT and _usable(logits.device):
        from regard.kernels.ranking_triton import launch_top_tokens

        with torch.cuda.device_of(logits):  # Triton launches on the current device
            return (
                launch_top_tokens(logits, count)
                if logits.stride(1) == 1
                else launch_top_tokens(logits.contiguous(), count)
            )
    precise = logits.float()
    best, tokens = precise.topk(count, dim=1)
    return best - precise.logsumexp(dim=1, keepdim=True), tokens


@cache
def _usable(device: torch.device) -> bool:
    """Whether Triton supports this GPU."""
    return (
        torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and importlib.util.find_spec("triton") is not None
    )
