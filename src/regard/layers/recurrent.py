"""Recurrent stacks that run on fused kernels, and step by step by the equations of their cells (`layers/cells.py`).

A state is one tensor (B, layers, parts, width), batch first: RNN and GRU have one part (h), LSTM has two (h, c). If the
layers have several widths, the state has the largest; the rest of a narrower layer is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UserError, check_sizes, nearest
from regard.layers.cells import EQUATIONS, PARTS, STATE, Gates, Weights, cell_gates
from regard.layers.dropout import dropout_mask
from regard.mask import zero_padding
from regard.taps import add_layer, collecting

KERNELS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
FUSED: dict[str, Callable[..., Any]] = {"rnn": torch.rnn_tanh, "lstm": torch.lstm, "gru": torch.gru}  # given weights
BFLOAT16_CUDNN = 91300  # the first version of cuDNN whose recurrent kernels torch uses in bfloat16


class Noise(NamedTuple):
    """What a stack in training draws once for a call, and uses at every step of it."""

    weights: list[Weights]  # of each layer; by weight drop, entries of the hidden-to-hidden matrix are zero
    masks: list[Tensor | None]  # after each layer but the last, (B, width): of variational dropout, else None


class Recurrent(nn.Module):
    """A stack of recurrent layers of one kind, in one direction or two.

    ``forward`` reads whole padded sequences (an encoder); ``advance`` continues from a state by any number of steps (a
    decoder, one direction). With two directions each has half of ``width``, so the output always has ``width``.
    ``variational`` dropout between layers has one mask for all steps of a call. In a decoder, the layers below the last
    may have another width (``hidden``), and ``weight_drop`` is the dropout of the hidden-to-hidden matrices.
    """

    def __init__(
        self,
        cell: str,
        inputs: int,
        width: int,
        layers: int = 1,
        directions: int = 1,
        dropout: float = 0.0,
        hidden: int = 0,
        weight_drop: float = 0.0,
        variational: bool = False,
    ) -> None:
        super().__init__()
        if cell not in KERNELS:
            raise UserError(f"model.cell={cell}: no such cell.{nearest(cell, KERNELS)}")
        check_sizes(inputs=inputs, width=width, layers=layers, directions=directions)
        if width % directions:
            raise UserError(f"model.width={width}: must be even, because each of two directions has half of it")
        self.cell, self.width, self.parts, self.dropout = cell, width, PARTS[cell], dropout
        self.weight_drop, self.variational = weight_drop, variational
        self.widths = [hidden or width] * (layers - 1) + [width]
        shapes = [(size, own // directions) for size, own in zip([inputs, *self.widths], self.widths)]
        kernel = KERNELS[cell]
        self.onward = nn.ModuleList([kernel(*shape, batch_first=True) for shape in shapes])
        self.returning = nn.ModuleList([kernel(*shape, batch_first=True) for shape in shapes if directions == 2])

    @property
    def layers(self) -> int:
        return len(self.onward)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves or converts the weights, as in ``to``. Those of a layer are then one block of memory, for cuDNN."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for layer in (*self.onward, *self.returning):
            flatten_bfloat16(layer)
        return self

    def forward(self, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T, inputs) → the outputs (B, T, width), and the last output of each layer (B, layers, width).

        Padding may be anywhere and changes nothing: each direction reads the real positions of a row first. This is a
        gather and not a packed sequence, so shapes are static and no length is copied to the CPU.
        """
        assert not self.weight_drop, "weight_drop is a setting of a decoder, which calls advance"
        x, noise = zero_padding(x, real), self.noise(len(x), x)
        if real is None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        runs = [(self.onward, real_first(real))]
        if self.returning:
            runs.append((self.returning, last_first(real)))
        end = (real.sum(1) - 1).clamp(min=0)[:, None, None]  # the index of the last real position after the gather
        finals = []
        for depth in range(self.layers):
            outputs, ends = [], []
            for kernels, order in runs:
                read, _ = kernels[depth](_take(x, order))
                ends.append(read.take_along_dim(end, dim=1).squeeze(1))
                outputs.append(_take(read, order.argsort(1)))
            x = torch.cat(outputs, -1)
            finals.append(torch.cat(ends, -1))
            add_layer(x)
            if depth + 1 < self.layers:
                x = self._drop(x, None if noise is None else noise.masks[depth])
        return x, torch.stack(finals, 1)

    def advance(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Reads x (B, T, inputs) from ``state`` on: outputs (B, T, width) and the new state."""
        noise = self.noise(len(x), x)
        if x.shape[1] == 1 and not collecting():
            output, state = self.step(x[:, 0], state, noise)
            return output[:, None], state
        after = []
        for depth, kernel in enumerate(self.onward):
            # The kernels need the parts of a state as (1, B, width).
            parts = tuple(part.contiguous()[None] for part in self._own(state, depth).unbind(1))
            if noise is None or not self.weight_drop:
                x, ended = kernel(x, parts if self.parts == 2 else parts[0])
            else:
                x, *last = fused(self.cell, x, parts, noise.weights[depth])
                ended = tuple(last) if self.parts == 2 else last[0]
            after.append(torch.cat(ended if self.parts == 2 else (ended,)).transpose(0, 1))
            add_layer(x)
            if depth + 1 < self.layers:
                x = self._drop(x, None if noise is None else noise.masks[depth])
        return x, self._joined(after)

    def step(self, x: Tensor, state: Tensor, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """One step of the stack: x (B, inputs) → output (B, width) and the new state.

        Several steps of one call have the same ``noise``.
        """
        after = []
        for depth in range(self.layers):
            w = self.weights(depth) if noise is None else noise.weights[depth]
            before = self._own(state, depth)
            match self.cell:
                case "gru":
                    parts: tuple[Tensor, ...] = (torch.gru_cell(x, before[:, 0], *w),)
                case "lstm":
                    parts = torch.lstm_cell(x, before.unbind(1), *w)
                case _:
                    parts = (torch.rnn_tanh_cell(x, before[:, 0], *w),)
            after.append(torch.stack(parts, 1))
            x = parts[0]
            if depth + 1 < self.layers:
                x = self._drop(x, None if noise is None else noise.masks[depth])
        return x, self._joined(after)

    def noise(self, rows: int, like: Tensor) -> Noise | None:
        """What a call in training draws once; None in evaluation, and without weight drop and variational dropout.

        Weight drop is dropout on the matrix U of W x + U h + b (Wan et al. 2013; Merity et al. 2018, §2): the same
        entries are zero at every step and in every row of the call.
        """
        if not self.training or not (self.weight_drop or self.variational):
            return None
        weights = [self.weights(depth) for depth in range(self.layers)]
        if self.weight_drop:
            weights = [w._replace(hidden=F.dropout(w.hidden, self.weight_drop)) for w in weights]
        masks = [
            dropout_mask(like, (rows, own), self.dropout) if self.variational else None for own in self.widths[:-1]
        ]
        return Noise(weights, masks)

    def _drop(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Dropout after a layer, on (B, T, width) or (B, width)."""
        if mask is None:
            return F.dropout(x, self.dropout, self.training)
        return x * (mask if x.dim() == 2 else mask[:, None])

    def _own(self, state: Tensor, depth: int) -> Tensor:
        """The part of a state that a layer has, (B, parts, its width)."""
        return state[:, depth, :, : self.widths[depth]]

    def _joined(self, layers: list[Tensor]) -> Tensor:
        """The state of the stack, given (B, parts, its width) of each layer."""
        most = max(self.widths)
        wide = [each if own == most else F.pad(each, (0, most - own)) for each, own in zip(layers, self.widths)]
        return torch.stack(wide, 1)

    def definition(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """``advance`` by the cell's equations, without dropout: the reference for tests of the fast routes."""
        traces = self.trace(x, state)
        ends = [torch.stack([each[part][:, -1] for part in STATE[self.cell]], 1) for each in traces]
        return traces[-1]["h"], self._joined(ends)

    def trace(
        self, x: Tensor, state: Tensor, change: Callable[[Gates], Gates] | None = None
    ) -> list[dict[str, Tensor]]:
        """Reads x (B, T, inputs) by the cell's equations, without dropout: for each layer its gates and its states.

        Each has a name and is (B, T, width). ``change`` gets the gates of each step, and the state follows from those
        that it returns.
        """
        traces = []
        for depth in range(self.layers):
            w, parts, steps = self.weights(depth), tuple(self._own(state, depth).unbind(1)), []
            for read in x.unbind(1):
                gates = cell_gates(self.cell, read, parts[0], w)
                gates = gates if change is None else change(gates)
                parts = EQUATIONS[self.cell].update(gates, parts)
                steps.append({**gates, **dict(zip(STATE[self.cell], parts))})
            traces.append({name: torch.stack([step[name] for step in steps], 1) for name in steps[0]})
            x = traces[-1]["h"]
        return traces

    def weights(self, depth: int) -> Weights:
        layer = self.onward[depth]
        return Weights(layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)  # type: ignore[arg-type]

    def zeros(self, rows: int, like: Tensor) -> Tensor:
        """The initial state: zeros."""
        return like.new_zeros(rows, self.layers, self.parts, max(self.widths))


@torch.no_grad()
def chrono_start(stack: Recurrent, steps: int) -> None:
    """Set the biases of the gates so that the units of an LSTM or a GRU keep their state for 2 to ``steps`` steps.

    This is chrono initialisation (Tallec & Ollivier 2018, §2). A unit whose gate keeps the part σ(b) of its state at
    each step keeps it for about 1 / (1 − σ(b)) = 1 + eᵇ steps, so b = log(u), with u uniform in 1 … steps − 1. The
    input gate of an LSTM has the bias −b: a unit that keeps its state for long writes little at each step. In a GRU the
    gate z does both: it keeps z and writes 1 − z.
    """
    for depth, width in enumerate(stack.widths):
        w = stack.weights(depth)
        gates, others = w.input_bias.view(-1, width), w.hidden_bias.view(-1, width)  # the two are added
        kept = gates.new_empty(width).uniform_(1, steps - 1).log()
        gates[1], others[1] = kept, 0  # of LSTM: i, f, g, o; of GRU: r, z, n
        if stack.cell == "lstm":
            gates[0], others[0] = -kept, 0


def fused(kind: str, x: Tensor, parts: tuple[Tensor, ...], w: Weights) -> tuple[Tensor, ...]:
    """torch's fused kernel of one layer for weights that are no parameters: the outputs and the parts of the state.

    On a GPU the weights are copied into one block of memory, in cuDNN's order; otherwise torch warns, and copies them
    itself. The gradient of the block is divided among them.
    """
    flat: Sequence[Tensor] = w
    if x.is_cuda:
        block = torch.cat([weight.flatten() for weight in w]).split([weight.numel() for weight in w])
        flat = [part.view_as(weight) for part, weight in zip(block, w)]
    state = parts if PARTS[kind] == 2 else parts[0]
    # has biases, layers, dropout, training, two directions, batch first
    return FUSED[kind](x, state, list(flat), True, 1, 0.0, True, False, True)


def flatten_bfloat16(layer: Any) -> None:
    """Puts the bfloat16 weights of an ``nn.RNNBase`` on a GPU into one block of memory, in cuDNN's order.

    Otherwise cuDNN copies them at every call, and torch warns. ``flatten_parameters``, which ``to`` calls, leaves
    bfloat16 out: torch's list of the types of cuDNN lacks it, although torch calls cuDNN's kernels for it.
    """
    cudnn, weight = torch.backends.cudnn, layer.weight_ih_l0
    if weight.dtype is not torch.bfloat16 or not weight.is_cuda or torch.bfloat16 in cudnn.CUDNN_TENSOR_DTYPES:
        return
    if (cudnn.version() or 0) < BFLOAT16_CUDNN or torch.cuda.get_device_capability(weight.device) < (8, 0):
        return
    cudnn.CUDNN_TENSOR_DTYPES.add(torch.bfloat16)
    try:
        layer.flatten_parameters()
    finally:
        cudnn.CUDNN_TENSOR_DTYPES.remove(torch.bfloat16)


def real_first(real: Tensor) -> Tensor:
    """(B, T) → indices (B, T) that put the real positions of a row first, in their order."""
    return torch.argsort(~real, dim=1, stable=True)


def last_first(real: Tensor) -> Tensor:
    """(B, T) → indices (B, T) that put the real positions of a row first, the last of them before the others."""
    return real.shape[1] - 1 - real_first(real.flip(1))


def padding_last(tokens: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Tokens (B, T) and what is real of them, with the padding of each row moved to its end."""
    if real is None:
        return tokens, None
    order = real_first(real)
    return tokens.gather(1, order), real.gather(1, order)


def _take(x: Tensor, order: Tensor) -> Tensor:
    return x.take_along_dim(order[..., None], dim=1)
