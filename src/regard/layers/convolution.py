"""Convolutions over the positions of a text, whose weights are normalised (Salimans & Kingma 2016).

A causal convolution sees a position and earlier ones, in one pass or step by step with equal results. A centred one
sees as many positions before as after.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WeightNorm(nn.Module):
    """A matrix or a convolution whose weight is normalised: that of each output channel is gain · v / ‖v‖.

    The standard ``deviation`` of an initial weight is by default that of torch's layers, √(1 / (3 · inputs · kernel)).
    A decoder with ``fixed`` weights does not compute them at every step (``regard.decode.fast_layers``).
    """

    def __init__(self, shape: tuple[int, ...], deviation: float | None) -> None:
        super().__init__()
        self.fixed: Tensor | None = None  # the weight, if v and gain do not change any more
        self.v = nn.Parameter(torch.empty(shape))
        self.gain = nn.Parameter(torch.empty(shape[0], *[1] * (len(shape) - 1)))
        self.bias = nn.Parameter(torch.zeros(shape[0]))
        nn.init.normal_(self.v, std=(3 * prod(shape[1:])) ** -0.5 if deviation is None else deviation)
        if not self.v.is_meta:  # no numbers; a sum on the device `meta` makes torch import 800 modules, for seconds
            with torch.no_grad():
                self.gain.copy_(self._length())

    @property
    def weight(self) -> Tensor:
        """W, of the shape of v."""
        if self.fixed is not None and not torch.is_grad_enabled():
            return self.fixed
        return self.v * (self.gain / self._length())

    def _length(self) -> Tensor:
        return torch.linalg.vector_norm(self.v, dim=tuple(range(1, self.v.dim())), keepdim=True)


class NormedLinear(WeightNorm):
    """y = W x + b, with a normalised W (outputs, inputs)."""

    def __init__(self, inputs: int, outputs: int, deviation: float | None = None) -> None:
        super().__init__((outputs, inputs), deviation)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class CentredConvolution(WeightNorm):
    """yₜ = b + Σᵢ Wᵢ xₜ₊ᵢ₋ₕ for i = 0 … kernel − 1, with h = (kernel − 1) / 2; positions outside of x are zeros."""

    def __init__(self, inputs: int, outputs: int, kernel: int, deviation: float | None = None) -> None:
        assert kernel % 2, "an even kernel has no centre"
        super().__init__((outputs, inputs, kernel), deviation)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, inputs, T) → (B, outputs, T)"""
        return F.conv1d(x, self.weight, self.bias, padding=self.v.shape[2] // 2)


class CausalConvolution(WeightNorm):
    """yₜ = b + Σᵢ Wᵢ xₜ₋ᵢ·d for i = 0 … kernel − 1, with a dilation d (van den Oord et al. 2016).

    The weight (outputs, inputs, kernel) has W₀, of the present position, in its last column.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, dilation: int = 1, deviation: float | None = None
    ) -> None:
        super().__init__((outputs, inputs, kernel), deviation)
        self.dilation, self.kernel, self.inputs = dilation, kernel, inputs

    @property
    def reach(self) -> int:
        """The number of earlier positions that an output depends on."""
        return (self.kernel - 1) * self.dilation

    def zeros(self, rows: int) -> Tensor:
        """The inputs before the first position: zeros (B, inputs, reach)."""
        return self.v.new_zeros(rows, self.inputs, self.reach)

    def forward(self, x: Tensor, before: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, inputs, T), after the inputs ``before`` (B, inputs, reach) → (B, outputs, T), and the last inputs.

        With ``lengths`` (B,), only so many first places of each row are real; the last inputs are those before them.
        """
        steps, x = x.shape[2], torch.cat([before, x], dim=2)
        if steps == 1:  # a step of decoding: a product, which is faster than a convolution
            y = F.linear(x[:, :, :: self.dilation].flatten(1), self.weight.flatten(1), self.bias)[..., None]
        else:
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
