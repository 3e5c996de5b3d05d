"""Causal convolutions: each position sees itself and earlier ones, in one pass or step by step with equal results."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CausalConvolution(nn.Module):
    """yₜ = b + Σᵢ Wᵢ xₜ₋ᵢ·d for i = 0 … kernel − 1, with a dilation d (van den Oord et al. 2016).

    The weight is normalised (Salimans & Kingma 2016): that of each output channel is gain · v / ‖v‖. The standard
    ``deviation`` of an initial weight is by default that of torch's convolutions, √(1 / (3 · inputs · kernel)).
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, dilation: int = 1, deviation: float | None = None
    ) -> None:
        super().__init__()
        self.dilation, self.kernel, self.inputs = dilation, kernel, inputs
        self.v = nn.Parameter(torch.empty(outputs, inputs, kernel))
        self.gain = nn.Parameter(torch.empty(outputs, 1, 1))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.normal_(self.v, std=(3 * inputs * kernel) ** -0.5 if deviation is None else deviation)
        with torch.no_grad():
            self.gain.copy_(self._length())

    @property
    def reach(self) -> int:
        """The number of earlier positions that an output depends on."""
        return (self.kernel - 1) * self.dilation

    @property
    def weight(self) -> Tensor:
        """W (outputs, inputs, kernel); the last column is W₀, of the present position."""
        return self.v * (self.gain / self._length())

    def _length(self) -> Tensor:
        return torch.linalg.vector_norm(self.v, dim=(1, 2), keepdim=True)

    def zeros(self, rows: int) -> Tensor:
        """The inputs before the first position: zeros (B, inputs, reach)."""
        return self.v.new_zeros(rows, self.inputs, self.reach)

    def forward(self, x: Tensor, before: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, inputs, T), after the inputs ``before`` (B, inputs, reach) → (B, outputs, T), and the last inputs.

        With ``lengths`` (B,), only so many first places of each row are real; the last inputs are those before them.
        """
        x = torch.cat([before, x], dim=2)
        y = F.conv1d(x, self.weight, self.bias, dilation=self.dilation)
        if lengths is None:
            return y, x[:, :, x.shape[2] - self.reach :]
        places = lengths[:, None] + torch.arange(self.reach, device=x.device)  # (B, reach)
        return y, x.take_along_dim(places[:, None], dim=2)

    def definition(self, x: Tensor) -> Tensor:
        """The outputs (B, outputs, T) of whole sequences, as the sum above: the reference for tests of ``forward``."""
        w, outputs = self.weight, self.bias[:, None]
        for i in range(self.kernel):
            shift = i * self.dilation
            earlier = F.pad(x, (shift, 0))[:, :, : x.shape[2]]
            outputs = outputs + torch.einsum("oc,bct->bot", w[:, :, self.kernel - 1 - i], earlier)
        return outputs
