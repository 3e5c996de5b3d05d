"""An LSTM layer with a projection and clipping (Sak et al. 2014, §2; Peters et al. 2018).

The state is two tensors: the output h (B, width) and the cells c (B, cells).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.recurrent import flatten_bfloat16
from regard.layers.unrolled import StepwiseLinear

FORGET = 1.0  # added to the forget gate, so that a new layer forgets little (Jozefowicz et al. 2015)


class ProjectedLstm(nn.Module):
    """c' = clip(σ(f + 1) ⊙ c + σ(i) ⊙ tanh(g)), h' = clip(P (σ(o) ⊙ tanh(c'))), with i, f, g, o = W x + U h + b.

    If ``width`` is not less than ``cells``, there is no projection P and no clipping of h, and the width is ``cells``.
    A limit of 0 means no clipping. ``lstm`` has the weights: its second bias is the constant of the forget gate.
    """

    def __init__(self, inputs: int, cells: int, width: int, cell_clip: float = 0.0, state_clip: float = 0.0) -> None:
        super().__init__()
        projects = width < cells
        self.width, self.cells = width if projects else cells, cells
        self.cell_clip, self.state_clip = cell_clip, state_clip if projects else 0.0
        lstm: Any = nn.LSTM(inputs, cells, batch_first=True, proj_size=width if projects else 0)
        nn.init.zeros_(lstm.bias_ih_l0)
        nn.init.zeros_(lstm.bias_hh_l0)
        lstm.bias_hh_l0.requires_grad_(False)
        lstm.bias_hh_l0.data[cells : 2 * cells] = FORGET
        self.lstm = lstm

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves or converts the weights, as in ``to``. They are then one block of memory, for cuDNN."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        flatten_bfloat16(self.lstm)
        return self

    def forward(
        self, x: Tensor, h: Tensor, c: Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Reads x (B, T, inputs) from a state on: outputs (B, T, width) and the state after the last real place.

        The steps are a loop; W x of all steps is one product before it, and the gradient of a weight one product after
        it (``StepwiseLinear``). On a GPU, without clipping and padding, this is cuDNN's kernel. A clipped cell changes
        the next step and no kernel clips, so clipping always needs the loop. On a CPU torch's LSTM with a projection
        has no oneDNN kernel and is hardly faster than the loop.
        """
        if x.is_cuda and real is None and not self.cell_clip and not self.state_clip:
            outputs, (h, c) = self.lstm(x, (h[None].contiguous(), c[None].contiguous()))
            return outputs, (h[0], c[0])
        bias = self.lstm.bias_ih_l0 + self.lstm.bias_hh_l0
        known = F.linear(x.transpose(0, 1), self.lstm.weight_ih_l0, bias)  # (T, B, 4 · cells)
        recur = StepwiseLinear(self.lstm.weight_hh_l0, known)
        project = self.lstm.proj_size and StepwiseLinear(
            self.lstm.weight_hr_l0, known.new_zeros(()).expand(*known.shape[:2], self.width)
        )
        found = []
        for t in range(x.shape[1]):
            i, f, g, o = recur(h.to(known.dtype)).chunk(4, dim=-1)
            cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            cell = cell.clamp(-self.cell_clip, self.cell_clip) if self.cell_clip else cell
            output = torch.sigmoid(o) * torch.tanh(cell)
            output = project(output.to(known.dtype)) if project else output
            output = output.clamp(-self.state_clip, self.state_clip) if self.state_clip else output
            found.append(output)
            before, (h, c) = (h, c), (output.to(h.dtype), cell.to(c.dtype))  # autocast may have computed other types
            if real is not None:  # the state does not change at padding
                h, c = (new.where(real[:, t, None], old) for new, old in zip((h, c), before))
        return torch.stack(found, 1), (h, c)
