"""Recurrent cells by their equations: the gates of a step, and the state that follows from them.

These are the definition. Models run torch's fused kernels with the same parameters (`layers/recurrent.py`); tests check
that both agree.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

Gates = dict[str, Tensor]  # the gates and the candidate of a step by name, (B, width) each


class Weights(NamedTuple):
    """One layer's parameters in torch's order; the gates are stacked along the first dimension."""

    input: Tensor
    hidden: Tensor
    input_bias: Tensor
    hidden_bias: Tensor


def rnn_gates(x: Tensor, h: Tensor) -> Gates:
    """n = tanh(W x + U h + b) (Elman 1990), given the two matrix products; there is a candidate, and no gate"""
    return {"n": torch.tanh(x + h)}


def rnn_update(gates: Gates, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """h' = n"""
    return (gates["n"],)


def lstm_gates(x: Tensor, h: Tensor) -> Gates:
    """i, f, o = σ(W x + U h + b),  g = tanh(W x + U h + b) (Hochreiter & Schmidhuber 1997; f: Gers et al. 2000)"""
    i, f, g, o = (x + h).chunk(4, dim=-1)
    return {"i": torch.sigmoid(i), "f": torch.sigmoid(f), "g": torch.tanh(g), "o": torch.sigmoid(o)}


def lstm_update(gates: Gates, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """c' = f ⊙ c + i ⊙ g,  h' = o ⊙ tanh(c')"""
    c = gates["f"] * before[1] + gates["i"] * gates["g"]
    return gates["o"] * torch.tanh(c), c


def gru_gates(x: Tensor, h: Tensor) -> Gates:
    """r, z = σ(W x + U h + b),  n = tanh(W x + r ⊙ (U h + b)) (Cho et al. 2014; r after the product, as in cuDNN)"""
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, dim=-1), h.chunk(3, dim=-1)
    r = torch.sigmoid(xr + hr)
    return {"r": r, "z": torch.sigmoid(xz + hz), "n": torch.tanh(xn + r * hn)}


def gru_update(gates: Gates, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """h' = (1 - z) ⊙ n + z ⊙ h"""
    return ((1 - gates["z"]) * gates["n"] + gates["z"] * before[0],)


class Equations(NamedTuple):
    """The equations of a cell."""

    gates: Callable[[Tensor, Tensor], Gates]  # from the products of the input and of the state with their matrices
    update: Callable[[Gates, Sequence[Tensor]], tuple[Tensor, ...]]  # and the parts of the state → those of the next


EQUATIONS = {
    "rnn": Equations(rnn_gates, rnn_update),
    "lstm": Equations(lstm_gates, lstm_update),
    "gru": Equations(gru_gates, gru_update),
}
STATE = {"rnn": ("h",), "lstm": ("h", "c"), "gru": ("h",)}  # the parts of a state
PARTS = {kind: len(names) for kind, names in STATE.items()}
# Of each cell with gates, what its equations compute at a step, and what it is: the gates in the order of the weights.
MEANINGS: dict[str, dict[str, str]] = {
    "rnn": {},
    "lstm": {
        "i": "the input gate",
        "f": "the forget gate",
        "g": "the candidate",
        "o": "the output gate",
        "c": "the cell, f · (c before) + i · g",
        "h": "the state, o · tanh(c)",
    },
    "gru": {
        "r": "the reset gate",
        "z": "the update gate",
        "n": "the candidate",
        "h": "the state, (1 − z) · n + z · (h before)",
    },
}


def cell_gates(kind: str, x: Tensor, h: Tensor, w: Weights) -> Gates:
    """The gates of one step of one layer: (B, inputs) and the state h (B, width) → (B, width) each"""
    return EQUATIONS[kind].gates(F.linear(x, w.input, w.input_bias), F.linear(h, w.hidden, w.hidden_bias))


def cell(kind: str, x: Tensor, before: Sequence[Tensor], w: Weights) -> tuple[Tensor, ...]:
    """One step of one layer by its equations: (B, inputs) and the parts of the state → the parts of the next state."""
    return EQUATIONS[kind].update(cell_gates(kind, x, before[0], w), before)
