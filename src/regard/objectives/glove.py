"""GloVe: word vectors by least squares on the logarithms of co-occurrence counts (Pennington et al. 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.data.cooccurrence import Cells, cooccurrences, most_cells
from regard.data.words import Sentences
from regard.errors import UserError
from regard.file_io import finite_error
from regard.models.word_vectors import Glove
from regard.objectives.hogwild import Piece, PieceSums, SharedTrainer, check_workers
from regard.objectives.objective import SCHEDULE, Objective, Rate, Sums

MOST_CELLS = 1024  # cells of one update
MOST_REPEATS = 16  # about how many cells of one update have the same word: more would make the update too large
NAMES = ("embedding.weight", "output", "bias", "output_bias")  # the weights, in the order of the sums of AdaGrad


@dataclass(frozen=True)
class GloveSquares(Objective):
    """Weighted least squares: Σ f(Xᵢⱼ) · (wᵢ · cⱼ + bᵢ + dⱼ − log Xᵢⱼ)², f(X) = min((X / x_max)^alpha, 1).

    Xᵢⱼ is the sum of 1 / distance over all places of the words i and j in one line, at most `window` words apart. The
    sum has both (i, j) and (j, i). AdaGrad follows the gradient of half of it.
    """

    heads: ClassVar[tuple[str, ...]] = ("words",)
    learns_by: ClassVar[str] = "cooccurrences"
    plan_settings: ClassVar[tuple[str, ...]] = SCHEDULE

    window: int = 10  # the largest distance of two words that are counted as a pair, in words
    x_max: float = 100.0  # the count from which a cell has the full weight
    alpha: float = 0.75  # the power of the weight
    workers: int = 1  # CPU processes that share the matrices; a resumed run is bit-equal with one, not with several

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 100:
            raise UserError(f"objective.window={self.window}: give a number from 1 to 100, such as 10.")
        for name in ("x_max", "alpha"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UserError(f"objective.{name}={getattr(self, name)}: give a number above 0.")
        check_workers(self.workers)

    def weight(self, counts: Tensor) -> Tensor:
        """f(X)."""
        return (counts / self.x_max).pow(self.alpha).clamp(max=1)

    def loss(self, model: Glove, words: Tensor, contexts: Tensor, counts: Tensor) -> Tensor:
        """The definition: the loss of cells (N,), of words and context words with these counts."""
        error = model.log_counts(words, contexts) - counts.log()
        return (self.weight(counts) * error.square()).sum()

    def trainer(self, model: Glove, batches: Any, plan: Any, rate: Rate) -> GloveTrainer:
        return GloveTrainer(self, model, batches, plan, rate)

    def sums(self, model: Any, batch: Batch) -> Sums:
        raise UserError("the trainer computes the loss: it needs the counts of the text.")


class GloveTrainer(SharedTrainer):
    """AdaGrad on the cells of the co-occurrence counts, in random order; an epoch of E steps reads every cell once."""

    term = "squares"
    shortest, longest = MOST_CELLS, 2**16

    def __init__(self, objective: GloveSquares, model: Glove, batches: Sentences, plan: Any, rate: Rate) -> None:
        super().__init__(model, batches, plan, rate, objective.workers)
        self._objective = objective
        self._cells: Cells = cooccurrences(batches, len(model.output), objective.window)
        self._squares = [torch.ones_like(weight) for weight in self._weights]  # of AdaGrad
        largest = most_cells(self._cells, len(model.output))
        self._at_once = int(np.clip(MOST_REPEATS * len(self._cells) // largest, 1, MOST_CELLS))

    @property
    def _weights(self) -> list[Tensor]:
        weights = dict(self._model.named_parameters())
        return [weights[name] for name in NAMES]

    def state(self) -> dict[str, Tensor]:
        """The sums of AdaGrad, by weight."""
        return {f"squares.{name}": squares for name, squares in zip(NAMES, self._squares)}

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        for name, squares in zip(NAMES, self._squares):
            found = state.get(f"squares.{name}")
            if found is None or found.shape != squares.shape or found.dtype != squares.dtype:
                raise UserError(f"squares.{name}: it is absent, or of another shape or type")
            if wrong := finite_error({f"squares.{name}": found}):
                raise UserError(wrong)
            squares.copy_(found)

    def span(self, step: int) -> tuple[int, int]:
        """The first of the cells that a step reads, and their end."""
        number, parts = step % len(self._batches), len(self._batches)
        return number * len(self._cells) // parts, (number + 1) * len(self._cells) // parts

    def train_piece(self, piece: Piece) -> PieceSums:
        cells = self._cells[piece.start : piece.stop]
        device, total = self._model.output.device, 0.0
        words, contexts = (torch.from_numpy(cells[name].astype(np.int64)).to(device) for name in ("word", "context"))
        counts = torch.from_numpy(cells["count"].copy()).to(device)
        for at in range(0, len(cells), self._at_once):
            i, j, x = (each[at : at + self._at_once] for each in (words, contexts, counts))
            other = i != j  # these have a cell (j, i) too
            i, j, x = torch.cat([i, j[other]]), torch.cat([j, i[other]]), torch.cat([x, x[other]])
            total += float(self._update(i, j, x, piece.rate))
        both = 2 * len(cells) - int((words == contexts).sum())
        return np.array([total, both])

    @torch.no_grad()
    def _update(self, words: Tensor, contexts: Tensor, counts: Tensor, rate: float) -> Tensor:
        """One step of AdaGrad on cells; the loss before it. A row of several cells gets the sum of its steps.

        As in the published program, the sums are those of the squared products rate · gradient, not of the squared
        gradients. So the learning rate of frequent words falls more slowly.
        """
        weights, squares = self._weights, self._squares
        w, c = weights[0].index_select(0, words), weights[1].index_select(0, contexts)
        error = (w * c).sum(-1) + weights[2][words] + weights[3][contexts] - counts.log()
        slope = self._objective.weight(counts) * error
        scaled = rate * slope
        changes = (scaled[:, None] * c, scaled[:, None] * w, scaled, scaled)  # rate · gradient
        for weight, square, rows, change in zip(weights, squares, (words, contexts, words, contexts), changes):
            weight.index_add_(0, rows, change / square.index_select(0, rows).sqrt(), alpha=-1)
            square.index_add_(0, rows, change.square())
        return (slope * error).sum()
