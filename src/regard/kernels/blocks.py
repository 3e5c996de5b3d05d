"""Self-attention through a window, cut into blocks: time and memory grow with length × window, not with its square.

The queries are cut into blocks of about a window's length. All that a block may see lies in the stretch of keys from
one window before it to its end, or to one window behind: overlapping stretches, which are views of the padded keys.
Each block then is a small dense attention of its own, and any attention kernel can do many of those at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST = {"cpu": 32, "cuda": 64}  # queries in a block: smaller ones leave a matrix product with too little to do
STEP = 8  # stretches are whole multiples: kernels want their rows aligned


@dataclass(frozen=True, eq=False)
class Blocks:
    """A windowed self-attention as N × n dense ones of ``size`` queries, n of them to a sequence of ``length``."""

    q: Tensor  # (N, n, size, D)
    k: Tensor  # (N, n, stretch, D)
    v: Tensor  # (N, n, stretch, Dv)
    table: Tensor  # (N or 1, n, size, stretch), True where a query may look
    leading: tuple[int, ...]  # N = B · …
    length: int

    def joined(self, read: Tensor) -> Tensor:
        """(N, n, size, Dv) → (..., T, Dv): what the blocks read, as one sequence again."""
        return read.flatten(1, 2)[:, : self.length].unflatten(0, self.leading)


def in_blocks(q: Tensor, k: Tensor, v: Tensor, window: int, causal: bool, keys: Tensor | None) -> Blocks:
    """Cuts (..., T, D) into blocks; ``keys`` (B, T) is False at padding, B the first of the leading dimensions."""
    leading, length = q.shape[:-2], q.shape[-2]
    reach = -(-window // STEP) * STEP
    size = max(LEAST.get(q.device.type, LEAST["cuda"]), reach)
    count = -(-length // size)
    stretch = reach + size + (0 if causal else reach)

    def stretches(x: Tensor) -> Tensor:
        """(N, T, …) → (N, n, stretch, …), views of the padded x: block i begins at ``i · size - reach``."""
        behind = count * size - length + stretch - reach - size
        padded = F.pad(x, (0, 0) * (x.dim() - 2) + (reach, behind))
        return padded.unfold(1, stretch, size).movedim(-1, 2)

    def flat(x: Tensor) -> Tensor:
        return x.expand(*leading, *x.shape[-2:]).flatten(0, -3)  # (..., T, D) → (N, T, D)

    blocks = F.pad(flat(q), (0, 0, 0, count * size - length)).unflatten(1, (count, size))
    table = _within(size, stretch, reach, window, causal, q.device)
    inside = stretches(torch.ones(1, length, dtype=torch.bool, device=q.device))  # (1, n, stretch)
    if keys is not None:
        rows = keys.reshape(-1, *[1] * (len(leading) - 1), length).expand(*leading, length).flatten(0, -2)
        inside = stretches(rows)  # (N, n, stretch)
    # A query made up to fill the last block sees whatever is there: nobody will read what it reads.
    made_up = (torch.arange(count * size, device=q.device) >= length).view(count, size, 1)
    return Blocks(
        blocks, stretches(flat(k)), stretches(flat(v)), (table & inside.unsqueeze(2)) | made_up, tuple(leading), length
    )


def _within(size: int, stretch: int, reach: int, window: int, causal: bool, device: torch.device) -> Tensor:
    """(size, stretch): which part of its stretch a query of a block may see, the same in every block."""
    back = torch.arange(size, device=device)[:, None] + reach - torch.arange(stretch, device=device)
    return (back >= 0) & (back <= window) if causal else back.abs() <= window
