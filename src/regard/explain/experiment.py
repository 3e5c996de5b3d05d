"""What the experiments share: a small Transformer, and training with the library's own loop."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.config import Kinds
from regard.data.batches import IGNORED, Batch
from regard.device import derive_seed, single_thread
from regard.explain.topic import Progress, Report, no_report
from regard.layers.tokens import TokenEmbedding
from regard.layers.transformer import Shape, Stack
from regard.mask import EVERYTHING, Mask
from regard.objectives.loss import cross_entropy
from regard.objectives.objective import LossModule, Objective, Sums
from regard.recipes import KINDS, Plan
from regard.training.loop import GradientTrainer
from regard.training.prepare import Prepared
from regard.verbs import Loaded

SampleBatch = Callable[[torch.Generator], tuple[Tensor, Tensor]]  # returns new tokens (B, T) and their targets (B, T)


@dataclass(frozen=True, eq=False)
class Prefix:
    """The tokens (R, T) that a network has read so far: the state of decoding."""

    tokens: Tensor

    def select(self, rows: Tensor) -> "Prefix":
        return Prefix(self.tokens[rows])


class TinyTransformer(nn.Module):
    """A small Transformer with logits at every position: a language model with a causal mask, else an encoder.

    ``tokens`` embeds its inputs if they are not tokens.
    """

    def __init__(self, shape: Shape, vocab: int, mask: Mask = EVERYTHING, tokens: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(shape, vocab, tokens=tokens)
        self.stack = Stack(shape, mask.causal)
        self.readout = nn.Linear(shape.width, vocab)
        self.mask = mask

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) → (B, T, vocab)"""
        return self.readout(self.states(tokens))

    def states(self, tokens: Tensor, mask: Mask | None = None) -> Tensor:
        """The output of the stack for tokens (B, T), with its own mask or another: (B, T, width)"""
        at = torch.arange(tokens.shape[1], device=tokens.device)[None]
        return self.stack(self.embedding(tokens, at), mask=self.mask if mask is None else mask)

    def step(self, tokens: Tensor, state: Prefix) -> tuple[Tensor, Prefix]:
        """Reads one token per row, and all tokens before it again: without a mask, their states change."""
        read = torch.cat([state.tokens, tokens[:, None]], dim=1)
        return self(read)[:, -1], Prefix(read)


def sizes_of(shape: Shape) -> str:
    """The sizes of a Transformer, for a reader."""
    layers, heads = (
        f"{count} {name}{'s' * (count > 1)}" for count, name in ((shape.layers, "layer"), (shape.heads, "head"))
    )
    return f"{layers}, {heads}, width {shape.width}"


def training_of(steps: int, seed: int) -> str:
    """How networks are trained, for a reader."""
    return f"trained now for {steps} steps with seed {seed}" if steps else f"not trained (steps=0), seed {seed}"


def seeds_of(count: int) -> str:
    """What a number of a table is, for a reader."""
    return f"mean ± standard deviation of {count} seeds" if count > 1 else "one seed"


@dataclass(frozen=True)
class PredictTargets(Objective):
    """The cross-entropy of a network's logits (B, T, V), without the targets that are ignored."""

    weights: ClassVar[Mapping[str, float]] = {"nll": 1.0}
    heads: ClassVar[tuple[str, ...]] = ()

    def count(self, batch: Batch) -> dict[str, int]:
        return {"nll": batch.counts["targets"]}

    def sums(self, model: Any, batch: Batch) -> Sums:
        logits = model(batch["tokens"])
        return {"nll": cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())}


@dataclass(frozen=True)
class SampledBatches:
    """Batches of new examples: batch ``step`` depends on the seed and the step alone."""

    sample: SampleBatch
    seed: int

    def batch(self, step: int) -> Batch:
        tokens, targets = self.sample(torch.Generator().manual_seed(derive_seed(self.seed, step)))
        return Batch({"tokens": tokens, "targets": targets}, counts={"targets": int((targets != IGNORED).sum())})


def mean_loss(logits: Tensor, targets: Tensor) -> float:
    """The cross-entropy of logits (B, T, V) in nats, the mean over the targets (B, T) that are not ignored."""
    return (cross_entropy(logits.flatten(0, 1), targets.flatten()) / (targets != IGNORED).sum()).item()


def accuracy(logits: Tensor, targets: Tensor) -> float:
    """How often the largest logit is that of the target, over the targets (B, T) that are not ignored."""
    return (logits.argmax(dim=-1) == targets)[targets != IGNORED].float().mean().item()


def train(
    name: str,
    network: nn.Module,
    sample: SampleBatch,
    steps: int,
    seed: int,
    rate: float = 3e-3,
    report: Report = no_report,
) -> float:
    """Trains with Adam on new examples at every step, and returns the final loss in nats.

    The learning rate rises during the first tenth of the steps and then falls linearly to 0. The final loss is the mean
    over the last twentieth of the steps.
    """
    losses = deque[float](maxlen=max(1, steps // 20))
    plan = Plan(
        steps=max(1, steps),
        rate=rate,
        schedule="linear",
        warmup=steps // 10,
        optimizer="adam",
        betas=(0.9, 0.98),
        seed=seed,
        device="cpu",
    )
    trainer = GradientTrainer(LossModule(network, PredictTargets()), SampledBatches(sample, seed), plan)
    with single_thread():
        for step in trainer.steps(0) if steps else ():
            losses.append(step.loss)
            report(Progress(name, step.n, steps, losses[-1]))
    return sum(losses) / len(losses) if losses else math.nan


def train_prepared(name: str, prepared: Prepared, steps: int, report: Report, kinds: Kinds = KINDS) -> Loaded:
    """Trains the model of a prepared recipe in memory; 0 steps give the untrained model."""
    with single_thread():
        trainer = prepared.trainer()
        for step in trainer.steps(0) if steps else ():
            report(Progress(name, step.n, steps, step.loss))
    module: Any = trainer.model.eval()
    return Loaded(Path(name), module, prepared.device, prepared.fields, prepared.recipe, kinds=kinds)
