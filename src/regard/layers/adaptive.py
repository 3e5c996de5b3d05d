"""Large vocabularies in clusters, from frequent tokens to rare ones: the rarer, the narrower their vectors.

Going in, a token is looked up in the table of its cluster (Baevski & Auli 2019, §2). Coming out, the first choice is
between the frequent tokens and the other clusters as wholes, and only within a cluster between its tokens (Grave et al.
2017): rare tokens are not even looked at where none of them is meant.
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
    """How a vocabulary, sorted from frequent to rare, is divided, and how wide the vectors of each part are."""

    vocab: int
    width: int  # of the states
    embed: int  # of the vectors of the first cluster
    cutoffs: tuple[int, ...] = ()  # the first token of every further cluster
    divide: int = 1  # each cluster's vectors are so many times narrower than those of the one before

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first token of each cluster, and that after its last."""
        return list(pairwise((0, *self.cutoffs, self.vocab)))

    @property
    def widths(self) -> list[int]:
        """Of the vectors of each cluster."""
        return [self.embed // self.divide**number for number in range(len(self.spans))]

    @property
    def tables(self) -> list[tuple[int, int]]:
        """(tokens, width) of each table: clusters of one width share one."""
        if self.divide == 1:
            return [(self.vocab, self.embed)]
        return [(end - start, width) for (start, end), width in zip(self.spans, self.widths)]

    @property
    def projected(self) -> bool:
        """Whether vectors have to be brought to the width of the states."""
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
            last = None if end == self.clusters.vocab else end - start - 1  # beyond the last of all is still an error
            parts.append(table((tokens - start).clamp(0, last)) * inside[..., None])
        # Every token has a vector in one part and zeros in the others: one product, and nobody asks which is where.
        return F.linear(torch.cat(parts, -1), torch.cat(_weights(self.projections), -1))


class Clustered(NamedTuple):
    """What log-probabilities by clusters are made of, the products not yet made.

    The first choice is between the frequent tokens and the clusters of rare ones, the second one within such a cluster.
    """

    frequent: Product  # the tokens of the first cluster
    others: Product | None  # the clusters of rare tokens, as wholes
    rare: tuple[Product, ...]  # the tokens of each of those

    def log_probs(self) -> Tensor:
        """(…, V)"""
        first = F.linear(*self.frequent)
        if self.others is None:
            return first.log_softmax(-1)
        tokens = first.shape[-1]
        first = torch.cat([first, F.linear(*self.others)], -1).log_softmax(-1)
        rare = [F.linear(*part).log_softmax(-1) + first[..., tokens + i, None] for i, part in enumerate(self.rare)]
        return torch.cat([first[..., :tokens], *rare], -1)

    @property
    def head(self) -> Product:
        """The first choice as one product: worth the copy of its weights where it is made for many positions."""
        if self.others is None:
            return self.frequent
        (x, weight, bias), (_, more, more_bias) = self.frequent, self.others
        assert bias is not None
        assert more_bias is not None
        return Product(x, torch.cat([weight, more]), torch.cat([bias, more_bias]))


class AdaptiveSoftmax(nn.Module):
    """The way out: states (…, width) → the log-probabilities of the vocabulary.

    Vectors, and the projections to their widths, are those of the embedding unless the softmax has its own.
    """

    def __init__(self, clusters: Clusters, tied: bool = True, own: tuple[int, ...] = ()) -> None:
        """``tied``: all vectors are the embedding's; ``own``: the clusters that have a projection of their own."""
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
            Product(self._narrowed(number, x, embedding), weight, bias)
            for number, (weight, bias) in enumerate(zip(tables, biases))
        )
        others = None if self.others is None else Product(frequent.x, self.others.weight, self.others.bias)
        return Clustered(frequent, others, tuple(rare))

    def _by_cluster(self, tables: list[Tensor]) -> Sequence[Tensor]:
        """Clusters that share a table have a stretch of it each."""
        sizes = [end - start for start, end in self.clusters.spans]
        return tables if len(tables) > 1 else tables[0].split(sizes)

    def _narrowed(self, number: int, x: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        """States as wide as the vectors of a cluster: by its own projection, or by the embedding's the other way."""
        if not self.clusters.projected:
            return x
        if str(number) in self.projections:
            return self.projections[str(number)](x)
        projections = _weights(embedding.projections)
        return x @ projections[number if len(projections) > 1 else 0]


def _weights(modules: Iterable[nn.Module]) -> list[Tensor]:
    return [module.weight for module in modules]  # type: ignore[misc]
