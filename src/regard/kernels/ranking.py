"""The most probable tokens of each row and their log-probabilities, without a softmax over all tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.kernels import has_triton

MAX_COUNT = 32  # the most tokens that the GPU kernels can find


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` most probable tokens of each row (R, V), best first: log-probabilities and tokens, (R, count)."""
    if has_triton(logits.device) and count <= MAX_COUNT:
        from regard.kernels.ranking_triton import launch_top_tokens

        with torch.cuda.device_of(logits):  # Triton launches on the current device
            return launch_top_tokens(logits if logits.stride(1) == 1 else logits.contiguous(), count)
    precise = logits.float()
    best, tokens = precise.topk(count, dim=1)
    return best - precise.logsumexp(dim=1, keepdim=True), tokens
