"""Contrastive learning of text vectors: the right text of a pair is found among the texts of the batch."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.errors import UserError
from regard.objectives.loss import cross_entropy
from regard.objectives.objective import Objective, Sums
from regard.scores import at_least_float32


@dataclass(frozen=True)
class Contrastive(Objective):
    """Tell the second text of a pair from the other texts of its batch, by the cosine of their vectors.

    The loss of a pair is −log softmax(cos(first, text) / temperature) at its second text (Henderson et al. 2017, §4;
    Gao et al. 2021). Negatives are texts of the same batch: with `plan.accumulate` or several ranks, a step has more
    pairs, but a pair does not have more negatives; `plan.batch_tokens` sets how many it has.
    """

    temperature: float = 0.05  # number by which cosines are divided: a small one makes the nearest negatives count most
    symmetric: bool = False  # whether the loss also has the direction from second to first; each has half the weight
    heads: ClassVar[tuple[str, ...]] = ("vector",)
    measures: ClassVar[tuple[str, ...]] = ("right",)
    compares_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UserError(f"objective.temperature={self.temperature}: give a number above 0, such as 0.05.")

    def sums(self, model: Any, batch: Batch) -> Sums:
        targets, negatives = batch["targets"], batch["negatives"]  # (B,), (B, (C−1)·B)
        vectors = F.normalize(at_least_float32(model(batch)), dim=-1)  # (B·C, width)
        texts = vectors.unflatten(0, (len(targets), -1)).transpose(0, 1)  # (C, B, width)
        logits = self._logits(texts[0], texts[1:].flatten(0, 1), negatives)
        nll = cross_entropy(logits, targets)
        if self.symmetric:
            back = self._logits(texts[1], texts[0], negatives[:, : len(targets)])
            nll = (nll + cross_entropy(back, targets)) / 2
        return {"nll": nll, "right": (logits.argmax(1) == targets).sum()}

    def _logits(self, texts: Tensor, others: Tensor, negatives: Tensor) -> Tensor:
        """The cosines (B, N) of texts with their own text, at place i of row i, and with their negatives."""
        own = torch.eye(*negatives.shape, dtype=torch.bool, device=texts.device)
        with torch.autocast(texts.device.type, enabled=False):  # half precision has steps of 0.004 near a cosine of 1
            return (texts @ others.mT / self.temperature).masked_fill(~(negatives | own), -math.inf)
