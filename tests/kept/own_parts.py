"""A user's own data, field, task, objective, model, head and metric, for runs that are opened with `kinds=MINE`.

The task: which share of the letters of a word are vowels. It is the package of docs/extending.md, with a body under a
head beside it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from regard import Attention, Corpus, Memory, Plan, Recipe
from regard.data.batches import Batch
from regard.data.fields import InputText
from regard.data.flat import Lengths, Rows
from regard.file_io import write_json
from regard.heads import HeadConfig
from regard.metrics import Metric
from regard.models import Facts
from regard.objectives.objective import Objective, Sums
from regard.scores import Dot
from regard.tasks import Task, whole_text


class Number:
    """A number of each example."""

    size, dtype = 0, np.dtype(np.float32)

    @classmethod
    def fit(cls, values: Iterable[float], name: str, data: Any) -> Self:
        return cls()

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls()

    def save(self, path: Path) -> None:
        write_json(path, {})

    def encode(self, values: Sequence[float]) -> list[list[float]]:
        return [[value] for value in values]


@dataclass(frozen=True)
class Word:
    text: str
    share: float


@dataclass(frozen=True)
class Words:
    """Random words, and the share of their letters that are vowels."""

    tasks: ClassVar[tuple[str, ...]] = ("vowels",)

    count: int = 60  # words to train on
    seed: int = 1
    tokens: str = "char"

    def load(self) -> Corpus:
        chance = random.Random(self.seed)
        words = [self._word(chance) for _ in range(self.count + 16)]
        examples = [Word(word, sum(letter in "aeiou" for letter in word) / len(word)) for word in words]
        return Corpus(train=examples[16:], valid=examples[:8], test=examples[8:16])

    def _word(self, chance: random.Random) -> str:
        """Drawn by `random()`, which Python promises not to change."""
        length = 2 + int(chance.random() * 7)
        return "".join("abcdefghiou"[int(chance.random() * 11)] for _ in range(length))


@dataclass(frozen=True)
class SquaredError(Objective):
    weights: ClassVar[Mapping[str, float]] = {"nll": 1.0}
    heads: ClassVar[tuple[str, ...]] = ("number",)

    def count(self, batch: Batch) -> dict[str, int]:
        return {"nll": batch.counts["targets"]}

    def sums(self, model: Any, batch: Batch) -> Sums:
        error = (model(batch) - batch["targets"]) * batch.real["tokens"].any(dim=1)
        return {"nll": error.square().sum(), "absolute": error.abs().sum()}


def collate(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    text = whole_text(rows, widths, random)
    fields = {**text.fields, "targets": rows.padded("share", 1)[:, 0]}
    return Batch(fields, text.real, {**text.counts, "targets": int(rows.lengths("share").sum())})


def widths(lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
    return {"text": lengths["text"]}


TASK = Task(
    name="vowels",
    verb="look",
    fields={"text": InputText, "share": Number},
    widths=widths,
    collate=collate,
    head="number",
    objective=SquaredError,
    metrics=("mean_error",),
)


@dataclass(frozen=True)
class PoolConfig(Facts):
    causal: ClassVar[bool] = False
    reads_source: ClassVar[bool] = False
    longest: ClassVar[int | None] = None
    predicts: ClassVar[tuple[str, ...]] = ("number",)
    one_per_text: ClassVar[bool] = True
    attention_rows: ClassVar[tuple[str, ...]] = ("share",)

    vocab: int = 0
    width: int = 8

    @property
    def token_vocab(self) -> int:
        return self.vocab

    def build(self) -> Pool:
        return Pool(self)


class Pool(nn.Module):
    """One learnt query attends to the embeddings of a text."""

    def __init__(self, config: PoolConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.query = nn.Parameter(torch.zeros(1, config.width))
        self.attention = Attention(Dot())
        self.out = nn.Linear(config.width, 1)

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        return self.embedding(tokens)

    def readout(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        query = self.query.expand(len(features), -1, -1)
        return self.out(self.attention(query, Memory(features, features, real)))[:, 0, 0]

    def forward(self, batch: Batch) -> Tensor:
        return self.readout(self.features(batch["tokens"]), batch.real["tokens"])


@dataclass(frozen=True)
class NumberHeadConfig(HeadConfig):
    """The mean of the states of a text, and a linear layer."""

    predicts: ClassVar[str] = "number"
    one_per_text: ClassVar[bool] = True

    def build(self, body: Facts) -> NumberHead:
        return NumberHead(body.width)  # type: ignore[attr-defined]


class NumberHead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, 1)

    def forward(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        real = torch.ones(features.shape[:2]) if real is None else real
        mean = (features * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        return self.out(mean)[:, 0]


def vowels() -> Recipe:
    return Recipe(
        name="vowels",
        title="the share of vowels in a word",
        data=Words(),
        model=PoolConfig(),
        objective=SquaredError(),
        plan=Plan(steps=6),
        metrics=("mean_error",),
    )


MINE: dict[str, dict[str, Any]] = {
    "recipe": {"vowels": vowels},
    "data": {"words": Words},
    "task": {"vowels": TASK},
    "model": {"pool": PoolConfig},
    "head": {"number": NumberHeadConfig},
    "objective": {"squared": SquaredError},
    "metric": {"mean_error": Metric("mean error", "sums", lambda sums, counts: sums["absolute"] / counts["nll"], True)},
}
