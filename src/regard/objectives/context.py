"""Negative sampling for vectors of contexts (Mikolov et al. 2013; Melamud et al. 2016, eq. 1)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch
from regard.errors import UserError
from regard.objectives.objective import Objective, Sums

CHUNK = 1024  # places whose logits are computed at once, if all words are compared


class ContextModel(Protocol):
    """A model with a vector for the context of each place, and one for each word, such as `Context2vec`."""

    target: Any  # an nn.Embedding: the vectors of words
    training: bool

    def features(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The vectors of the contexts, (B, T, W)."""
        ...

    def log_noise(self) -> Tensor:
        """The log-probability (V,) with which each word is drawn as noise."""
        ...


@dataclass(frozen=True)
class ContextSampling(Objective):
    """Tell the word w of a context c from noise words n: the loss is −log σ(c · w) − Σ log σ(−c · n).

    The loss of an evaluation is the expectation over the noise, so that it does not depend on random numbers.
    """

    negatives: int = 10  # number of noise words for each place
    heads: ClassVar[tuple[str, ...]] = ("context",)

    def __post_init__(self) -> None:
        if self.negatives < 1:
            raise UserError(f"objective.negatives={self.negatives}: give 1 or more, such as 10.")

    def sums(self, model: ContextModel, batch: Batch) -> Sums:
        targets = batch["targets"].flatten()  # (N,)
        contexts = model.features(batch["tokens"], batch.visible("tokens")).flatten(0, 1)  # (N, W)
        words, noise = model.target.weight, model.log_noise().exp()
        found = F.logsigmoid((contexts * F.embedding(targets.clamp_min(0), words)).sum(-1))
        if model.training:
            drawn = torch.rand(len(targets), self.negatives, device=targets.device, dtype=noise.dtype)
            some = torch.searchsorted(noise.cumsum(0), drawn).clamp_max(len(noise) - 1)  # (N, K)
            found = found + F.logsigmoid(-(F.embedding(some, words) @ contexts[..., None]).squeeze(-1)).sum(-1)
        else:
            parts = [F.logsigmoid(-F.linear(part, words)) @ noise.to(words.dtype) for part in contexts.split(CHUNK)]
            found = found + self.negatives * torch.cat(parts)
        return {"nll": -found.masked_fill(targets == IGNORED, 0.0).sum()}
