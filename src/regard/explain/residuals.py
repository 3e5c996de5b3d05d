"""Residual connections carry the positions of words.

Three encoders with three layers learn to predict the symbol two positions earlier. To attend to that position, a layer
needs the position of each word. The first encoder has residual connections. The second has none, so the input of a
layer is only what the layer before computed. The third has none either, but positions are added again before every
layer (“timing signals”).

With residual connections, the input of a layer is added to its output, so positions pass through all layers. Without
them, a state is only a mixture of other states: the positions are lost after the first layer, and then all words attend
to the same places. If positions are added again before every layer, the heads can attend to the correct position again.
With fewer steps than the default, no network has learned the task yet, and the numbers do not show this.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.explain.experiment import TinyTransformer, accuracy, sizes_of, train, training_of
from regard.explain.options import ResidualsOptions
from regard.explain.positions import OFFSET, RATE, ROWS, SYMBOLS, lookback_batch
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.layers.kv_cache import AttentionPlan
from regard.layers.positions import sinusoids
from regard.layers.transformer import Shape
from regard.recording import record
from regard.report.sections import Curve, Heatmap, Heatmaps, Line, Section, Table

SHAPE = Shape(width=48, heads=2, layers=3, inner=96, norm_place="post", dropout=0.0, positions="sinusoidal")
READING = """
Without residual connections the network does not learn the task: it names some symbol of the text, which is better
than chance. With timing signals the same network solves it, so the missing information was the positions.
`model.residual=false` removes the residual connections of any Transformer in the library. (Timing signals exist only in
this experiment.)
"""
NOTE = (
    "“position R²” is the R² of a linear probe that predicts the position of a word from its state: 1 means that the "
    "state contains the position, 0 that it does not. It is measured at the input of each layer and at the output. "
    "“attention” is the weight of a layer's best head on the symbol two positions earlier. Layers count from 0."
)


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


def run(options: ResidualsOptions, report: Report = no_report) -> Result:
    """Trains three networks of three layers to predict the symbol two positions earlier."""
    length, steps, seed = options.length, options.steps, options.seed
    networks = []
    for name, (residual, timing) in NETWORKS.items():
        torch.manual_seed(seed)
        network = LayerwiseTransformer(replace(SHAPE, residual=residual, context=length), SYMBOLS, timing)
        loss = train(
            name, network, lambda generator: lookback_batch(length, ROWS, generator), steps, seed, RATE, report
        )
        networks.append(_evaluate(name, network.eval(), loss, length, seed))
    layers = range(len(networks[0].offset_attention))
    names = ["loss", "accuracy", *(f"position R², layer {at}" for at in layers), "position R², output"]
    names += [f"attention, layer {at}" for at in layers]
    numbers = [
        [f"{one.loss:.3f}", f"{one.accuracy:.0%}", *(f"{v:.2f}" for v in (*one.position_r2, *one.offset_attention))]
        for one in networks
    ]
    columns = ["", *(one.name.replace(", with ", ", with\n") for one in networks)]
    lines = [Line(one.name, range(len(one.position_r2)), one.position_r2) for one in networks]
    chance = (
        f"Chance is an accuracy of {1 / SYMBOLS:.1%} (1 in {SYMBOLS}) and a loss of {math.log(SYMBOLS):.3f}; uniform "
        f"attention has the weight {1 / length:.2f}."
    )
    side = max(3, min(16, 192 // length))
    sections: list[Section] = [
        prose(__doc__),
        *(
            Heatmaps(
                f"{one.name[0].upper()}{one.name[1:]}: accuracy {one.accuracy:.0%}",
                [
                    Heatmap(f"layer {at}", "key", "query", weights, side=side, vmax=1.0)
                    for at, weights in enumerate(one.weights)
                ],
            )
            for one in networks
        ),
        Curve(
            "How well a state predicts its position",
            "input of layer (last: output)",
            "R² of a linear probe",
            lines,
            ends=(0, 1),
        ),
        Table("The symbol two positions earlier", columns, list(zip(names, *numbers)), f"{chance} {NOTE}"),
        reading(READING, options),
    ]
    data = {"length": length, "steps": steps, "seed": seed, "networks": networks}
    about = (
        f"Three encoders ({sizes_of(SHAPE)}), each {training_of(steps, seed)}. The task is to predict, at every "
        f"position, the symbol {OFFSET} positions earlier in a text of {length} symbols, each one of {SYMBOLS}. Chance "
        f"is {1 / SYMBOLS:.1%}."
    )
    return Result("What residual connections carry", about, data, sections)


@torch.no_grad()
def _evaluate(name: str, network: LayerwiseTransformer, loss: float, length: int, seed: int) -> NetworkResult:
    tokens, targets = lookback_batch(length, 256, torch.Generator().manual_seed(2**40 + seed))
    with record(network) as tape:
        states = network.layers(tokens)
    weights = torch.stack([tape[layer] for layer in tape])  # (layers, B, H, T, T)
    heads = weights.diagonal(-OFFSET, dim1=-2, dim2=-1).mean(dim=(1, -1))  # (layers, H)
    best = heads.argmax(dim=1)
    return NetworkResult(
        name,
        loss,
        accuracy(network.readout(states[-1]), targets),
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
