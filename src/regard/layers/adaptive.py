"""Adaptive embedding and softmax: a large vocabulary in clusters, with narrower vectors for rarer tokens.

The embedding takes a token's vector from the table of its cluster (Baevski & Auli 2019, §2). The softmax has two levels
(Grave et al. 2017): first over the frequent tokens and one entry for each other cluster, then over the tokens of a
cluster. The logits of rare tokens are not needed for a loss whose targets are frequent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.product import Product


@dataclass(frozen=True)
class Clusters:
    """The clusters of a vocabulary that is sorted from frequent to rare, and the widths of their vectors."""

    vocab: int
    width: int  # of the states
    embed: int  # width of the vectors of the first cluster
    cutoffs: tuple[int, ...] = ()  # the first token of each cluster after the first
    divide: int = 1  # the width of the vectors is divided by this from one cluster to the next

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first token of each cluster, and the one after its last."""
        return list(pairwise((0, *self.cutoffs, self.vocab)))

    @property
    def widths(self) -> list[int]:
        """The width of the vectors of each cluster."""
        return [self.embed // self.divide**number for number in range(len(self.spans))]

    @property
    def tables(self) -> list[tuple[int, int]]:
        """(tokens, width) of each table; if all clusters have the same width, they share one table."""
        if self.divide == 1:
            return [(self.vocab, self.embed)]
        return [(end - start, width) for (start, end), width in zip(self.spans, self.widths)]

    @property
    def projected(self) -> bool:
        """Whether vectors have to be projected to the width of the states."""
        return self.divide > 1 or self.embed != self.width


class AdaptiveEmbedding(nn.Module):
    """The vectors of tokens, (B, T) → (B, T, width)."""

    def __init__(self, clusters: Clusters) -> None:
        super().__init__()
        self.clusters = clusters
        self.tables = nn.ModuleList(nn.Embedding(tokens, width) for tokens, width in clusters.tables)
        widths = [width for _, width in clusters.tables] if clusters.projected else []
        self.projections = nn.ModuleList(nn.Linear(width, clusters.width, bias=False) for width in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        if len(self.tables) == 1:
            x = self.tables[0](tokens)
            return self.projections[0](x) if self.projections else x
        parts = []
        for (start, end), table in zip(self.clusters.spans, self.tables):
            inside = (tokens >= start) & (tokens < end)
            # Not clamped at the end of the vocabulary, so that a token past the end raises.
            last = None if end == self.clusters.vocab else end - start - 1
            parts.append(table((tokens - start).clamp(0, last)) * inside[..., None])
        # Every token has its vector in one part and zeros in the others, so one product projects all clusters.
        return F.linear(torch.cat(parts, -1), torch.cat(_weights(self.projections), -1))


class Clustered(NamedTuple):
    """The logits of an adaptive softmax as uncomputed matrix products.

    The first softmax is over ``frequent`` and ``others``, the second over the tokens of one rare cluster.
    """

    frequent: Product  # the tokens of the first cluster
    others: Product | None  # one logit for each rare cluster
    rare: tuple[Product, ...]  # the tokens of each rare cluster

    def logits(self) -> Tensor:
        """The log-probabilities of the whole vocabulary, (…, V)."""
        first = F.linear(*self.frequent)
        if self.others is None:
            return first.log_softmax(-1)
        tokens = first.shape[-1]
        first = torch.cat([first, F.linear(*self.others)], -1).log_softmax(-1)
        rare = [F.linear(*part).log_softmax(-1) + first[..., tokens + i, None] for i, part in enumerate(self.rare)]
        return torch.cat([first[..., :tokens], *rare], -1)

    @property
    def head(self) -> Product:
        """The logits of the first softmax as one product; it copies the weights, so use it for many positions."""
        if self.others is None:
            return self.frequent
        (x, weight, bias), (_, more, more_bias) = self.frequent, self.others
        assert bias is not None
        assert more_bias is not None
        return Product(x, torch.cat([weight, more]), torch.cat([bias, more_bias]))


class AdaptiveSoftmax(nn.Module):
    """The output layer: states (…, width) → the log-probabilities of the vocabulary.

    It uses the vectors and projections of the embedding, except for those that it has itself.
    """

    def __init__(self, clusters: Clusters, tied: bool = True, own: tuple[int, ...] = ()) -> None:
        """``tied``: use the vectors of the embedding; ``own``: clusters whose projection is not the embedding's."""
        super().__init__()
        self.clusters = clusters
        shapes = [] if tied else clusters.tables
        self.tables = nn.ModuleList(nn.Linear(width, tokens, bias=False) for tokens, width in shapes)
        self.biases = nn.ParameterList(torch.zeros(tokens) for tokens, _ in clusters.tables)
        self.others = nn.Linear(clusters.embed, len(clusters.cutoffs)) if clusters.cutoffs else None
        self.projections = nn.ModuleDict(
            {str(i): nn.Linear(clusters.width, clusters.widths[i], bias=False) for i in own if clusters.projected}
        )

    def forward(self, x: Tensor, embedding: AdaptiveEmbedding) -> Clustered:
        tables = self._by_cluster(_weights(self.tables or embedding.tables))
        biases = self._by_cluster(list(self.biases))
        frequent, *rare = (
            Product(self._project(number, x, embedding), weight, bias)
            for number, (weight, bias) in enumerate(zip(tables, biases))
        )
        others = None if self.others is None else Product(frequent.x, self.others.weight, self.others.bias)
        return Clustered(frequent, others, tuple(rare))

    def _by_cluster(self, tables: list[Tensor]) -> Sequence[Tensor]:
        """The table of each cluster: if clusters share one table, a slice of it."""
        sizes = [end - start for start, end in self.clusters.spans]
        return tables if len(tables) > 1 else tables[0].split(sizes)

    def _project(self, number: int, x: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        """States projected to the width of a cluster: by its own matrix, or by the transpose of the embedding's."""
        if not self.clusters.projected:
            return x
        if str(number) in self.projections:
            return self.projections[str(number)](x)
        projections = _weights(embedding.projections)
        return x @ projections[number if len(projections) > 1 else 0]


def _weights(modules: Iterable[nn.Module]) -> list[Tensor]:
    return [module.weight for module in modules]  # type: ignore[misc]
