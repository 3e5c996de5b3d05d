"""What residual connections carry: with them, without them, and without them but with the positions told again.

Without residuals a layer knows only what attention brought it. Where each word stands is then soon lost, and with it
the power to look at a place; told again at every layer ("timing signals") it is there again.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.explain.positions import BACK, RATE, ROWS, SYMBOLS, recall
from regard.explain.small import IGNORED, Experiment, Reader, learn
from regard.layers.kv_cache import AttentionPlan
from regard.layers.positions import sinusoids
from regard.layers.transformer import Shape
from regard.recording import record

SHAPE = Shape(width=48, heads=2, layers=3, inner=96, norm_place="post", dropout=0.0, positions="sinusoidal")


class Layered(Reader):
    """A reader whose layers can be seen one by one; with timing, positions are added before each of them."""

    def __init__(self, shape: Shape, vocab: int, timing: bool) -> None:
        super().__init__(shape, vocab)
        self.timing = timing

    def layers(self, tokens: Tensor) -> list[Tensor]:
        """What every layer is given, and what the last one gives: (B, T, width) each"""
        at = torch.arange(tokens.shape[1])
        given = [self.embedding(tokens, at[None])]
        for number, block in enumerate(self.stack.layers, 1):
            states, _ = block(given[-1], AttentionPlan())
            last = number == len(self.stack.layers)
            given.append(states + sinusoids(at, states.shape[-1]) if self.timing and not last else states)
        return given

    def states(self, tokens: Tensor, mask: object = None) -> Tensor:
        return self.layers(tokens)[-1]


PANELS = {
    "with residuals": (True, False),
    "without": (False, False),
    "without, with timing signals": (False, True),
}


@dataclass(frozen=True)
class Panel:
    """One of the three networks, layer by layer."""

    name: str
    loss: float
    accuracy: float  # of the symbols to be recalled
    known: list[float]  # how much of a word's place each layer is told (R² of a linear guess); last: what comes out
    there: list[float]  # attention of each layer's best head to the place that the task asks for
    weights: list[list[list[float]]]  # (layers, T, T) of one text, the head that looks there most


def residuals(length: int = 12, steps: int = 320, seed: int = 1) -> Experiment[list[Panel]]:
    """Three networks learn to recall the symbol two places before, through three layers."""
    found = []
    for name, (residual, timing) in PANELS.items():
        torch.manual_seed(seed)
        network = Layered(replace(SHAPE, residual=residual, context=length), SYMBOLS, timing)

        def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            return recall(length, ROWS, generator)

        loss = yield from learn(name, network, draw, steps, seed, RATE)
        found.append(_panel(name, network.eval(), loss, length, seed))
    return found


@torch.no_grad()
def _panel(name: str, network: Layered, loss: float, length: int, seed: int) -> Panel:
    generator = torch.Generator().manual_seed(2**40 + seed)
    tokens, targets = recall(length, 256, generator)
    with record(network) as tape:
        states = network.layers(tokens)
    right = network.readout(states[-1]).argmax(dim=-1) == targets
    weights = torch.stack([tape[one] for one in tape])  # (layers, B, H, T, T)
    heads = weights.diagonal(-BACK, dim1=-2, dim2=-1).mean(dim=(1, -1))  # (layers, H)
    best = heads.argmax(dim=1)
    return Panel(
        name,
        loss,
        (right.sum() / (targets != IGNORED).sum()).item(),
        known=[position_known(layer) for layer in states],
        there=heads.amax(dim=1).tolist(),
        weights=[layer[0, head].tolist() for layer, head in zip(weights, best)],
    )


def position_known(states: Tensor) -> float:
    """R² of the best linear guess of a word's place from its state, on texts that the guess was not fitted to."""
    rows, length, width = states.shape
    x = torch.cat([states.double(), torch.ones(rows, length, 1, dtype=torch.float64)], dim=-1)
    y = torch.arange(length, dtype=torch.float64).expand(rows, length)
    fitted, held = x[: rows // 2].flatten(0, 1), x[rows // 2 :].flatten(0, 1)
    normal = fitted.mT @ fitted + 1e-6 * torch.eye(width + 1, dtype=torch.float64)
    guess = held @ torch.linalg.solve(normal, fitted.mT @ y[: rows // 2].flatten())
    wrong = (guess - y[rows // 2 :].flatten()).square().mean()
    return max(0.0, (1 - wrong / y.var(correction=0)).item())
