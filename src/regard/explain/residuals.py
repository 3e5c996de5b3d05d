"""Residual connections carry positions: networks with them, without them, and with positions added at every layer.

Without residual connections, a layer's input is only the output of attention and feed-forward. The positions of words
are then lost after the first layer, and heads can no longer attend to a position. If positions are added again before
every layer ("timing signals"), the network works without residual connections.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.explain.experiment import IGNORE_INDEX, Experiment, TinyTransformer, train
from regard.explain.positions import OFFSET, RATE, ROWS, SYMBOLS, lookback_batch
from regard.layers.kv_cache import AttentionPlan
from regard.layers.positions import sinusoids
from regard.layers.transformer import Shape
from regard.recording import record

SHAPE = Shape(width=48, heads=2, layers=3, inner=96, norm_place="post", dropout=0.0, positions="sinusoidal")


class LayerwiseTransformer(TinyTransformer):
    """A Transformer that returns the states of every layer; with timing, positions are added before each layer."""

    def __init__(self, shape: Shape, vocab: int, timing: bool) -> None:
        super().__init__(shape, vocab)
        self.timing = timing

    def layers(self, tokens: Tensor) -> list[Tensor]:
        """The input of every layer, and the output of the last one: (B, T, width) each"""
        at = torch.arange(tokens.shape[1])
        inputs = [self.embedding(tokens, at[None])]
        for number, block in enumerate(self.stack.layers, 1):
            states, _ = block(inputs[-1], AttentionPlan())
            last = number == len(self.stack.layers)
            inputs.append(states + sinusoids(at, states.shape[-1]) if self.timing and not last else states)
        return inputs

    def states(self, tokens: Tensor, mask: object = None) -> Tensor:
        return self.layers(tokens)[-1]


NETWORKS = {  # residual connections, timing signals
    "with residuals": (True, False),
    "without": (False, False),
    "without, with timing signals": (False, True),
}


@dataclass(frozen=True)
class NetworkResult:
    """The results of one of the three networks."""

    name: str
    loss: float
    accuracy: float
    position_r2: list[float]  # R² of a linear probe for the position: on each layer's input, and on the output
    offset_attention: list[float]  # attention of each layer's best head to the symbol two positions earlier
    weights: list[list[list[float]]]  # (layers, T, T) for one text: the weights of these best heads


def run(length: int = 12, steps: int = 320, seed: int = 1) -> Experiment[list[NetworkResult]]:
    """Trains three networks of three layers to predict the symbol two positions earlier."""
    results = []
    for name, (residual, timing) in NETWORKS.items():
        torch.manual_seed(seed)
        network = LayerwiseTransformer(replace(SHAPE, residual=residual, context=length), SYMBOLS, timing)

        def sample_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            return lookback_batch(length, ROWS, generator)

        loss = yield from train(name, network, sample_batch, steps, seed, RATE)
        results.append(_evaluate(name, network.eval(), loss, length, seed))
    return results


@torch.no_grad()
def _evaluate(name: str, network: LayerwiseTransformer, loss: float, length: int, seed: int) -> NetworkResult:
    tokens, targets = lookback_batch(length, 256, torch.Generator().manual_seed(2**40 + seed))
    with record(network) as tape:
        states = network.layers(tokens)
    correct = network.readout(states[-1]).argmax(dim=-1) == targets
    weights = torch.stack([tape[layer] for layer in tape])  # (layers, B, H, T, T)
    heads = weights.diagonal(-OFFSET, dim1=-2, dim2=-1).mean(dim=(1, -1))  # (layers, H)
    best = heads.argmax(dim=1)
    return NetworkResult(
        name,
        loss,
        (correct.sum() / (targets != IGNORE_INDEX).sum()).item(),
        position_r2=[position_r2(layer) for layer in states],
        offset_attention=heads.amax(dim=1).tolist(),
        weights=[layer[0, head].tolist() for layer, head in zip(weights, best)],
    )


def position_r2(states: Tensor) -> float:
    """R² of a linear probe that predicts a word's position from its state, fitted on one half of the texts (B, T, W).

    The R² is that of the other half.
    """
    rows, length, width = states.shape
    x = torch.cat([states.double(), torch.ones(rows, length, 1, dtype=torch.float64)], dim=-1)
    y = torch.arange(length, dtype=torch.float64).expand(rows, length)
    fitted, held_out = x[: rows // 2].flatten(0, 1), x[rows // 2 :].flatten(0, 1)
    normal = fitted.mT @ fitted + 1e-6 * torch.eye(width + 1, dtype=torch.float64)
    predicted = held_out @ torch.linalg.solve(normal, fitted.mT @ y[: rows // 2].flatten())
    error = (predicted - y[rows // 2 :].flatten()).square().mean()
    return max(0.0, (1 - error / y.var(correction=0)).item())
