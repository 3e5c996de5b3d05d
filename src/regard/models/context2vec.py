"""context2vec (Melamud et al. 2016): a vector of the context of a word, and vectors of words, in one space.

One LSTM reads the words before a place, another the words after it, and a network with one hidden layer joins both
states. The word at the place is not read, so the vector of the context can be compared with the vector of every word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.data.example import Direction
from regard.errors import UserError
from regard.layers.checks import check_config, resized_embed
from regard.layers.product import Product
from regard.layers.recurrent import KERNELS, Recurrent, last_first, real_first
from regard.mask import zero_padding
from regard.models.directions import add_targets
from regard.models.facts import Facts
from regard.models.layered import ReadsTokensAlone
from regard.taps import add_layer, inner_layers


@dataclass(frozen=True)
class Context2vecConfig(Facts):
    """Two recurrent networks, one for each side of a place. The paper has width 600, embed 300 and inner 1200."""

    causal: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("context",)
    takes_head: ClassVar[bool] = True
    output_layer: ClassVar[str] = "target"
    direction: ClassVar[Direction] = "both"  # a text is read between bos and eos

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    cell: str = "lstm"  # kind of recurrent cell: rnn, lstm or gru
    width: int = 300  # width of the recurrent states, the vectors of contexts and the vectors of words
    embed: int = 300  # width of the token embeddings
    inner: int = 600  # width of the hidden layer that joins both sides
    layers: int = 1  # number of recurrent layers of each side
    power: float = 0.75  # noise words are drawn in proportion to (count + 1) to this power (Mikolov et al. 2013)
    dropout: float = 0.1  # dropout on embeddings, between layers and before the hidden layer
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "inner", "layers"), {"cell": tuple(KERNELS)})
        if not 0 <= self.power <= 1:
            raise UserError(f"model.power={self.power}: give 0 (all words alike) to 1 (as often as in the text).")

    def resized(self, width: int) -> Self:
        return replace(self, width=width, embed=resized_embed(self, width), inner=2 * width)

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        depths = (tuple(f"{side}.onward.{depth}" for side in ("before", "after")) for depth in range(self.layers))
        return (("embedding",), *depths, ("join",), ("target",))

    def build(self) -> Context2vec:
        return Context2vec(self)

    def build_body(self) -> Context2vec:
        return Context2vec(self, readout=False)


class Context2vec(ReadsTokensAlone):
    """Embedding, a recurrent network for each side, a network that joins them, and a vector for each target word.

    Without ``readout`` it is a body: it has no vectors of target words.
    """

    def __init__(self, config: Context2vecConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        sizes = config.cell, config.embed, config.width, config.layers
        self.embedding = nn.Embedding(config.vocab, config.embed)
        self.before, self.after = (Recurrent(*sizes, dropout=config.dropout) for _ in range(2))
        self.join = nn.Sequential(
            nn.Linear(2 * config.width, config.inner), nn.ReLU(), nn.Linear(config.inner, config.width)
        )
        self.target = nn.Embedding(config.vocab, config.width) if readout else None
        for table in (self.embedding, self.target):
            if table is not None:
                nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
        self.register_buffer("frequency", torch.zeros(config.vocab if readout else 0, dtype=torch.long))
        self.frequency: Tensor  # of each token among the targets of the training text

    def states(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The vector of the context of each place, (B, T, width), for tokens (B, T).

        The first layer of ``layers`` is the embeddings, which are those of the places themselves.
        """
        x = zero_padding(self.drop(self.embedding(tokens)), real)
        add_layer(x)
        there = torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device) if real is None else real
        with inner_layers():  # each side has read other tokens
            sides = (_beside(self.before, x, real_first(there)), _beside(self.after, x, last_first(there)))
        joined: Tensor = self.join(self.drop(torch.cat(sides, -1)))
        add_layer(joined)
        return joined

    def log_noise(self) -> Tensor:
        """The log-probability (V,) with which each word is drawn as noise."""
        return (self.config.power * (self.frequency + 1.0).log()).log_softmax(dim=0)

    def count_batch(self, batch: Batch) -> None:
        """Count the words of a batch of the training text."""
        add_targets(self.frequency, batch)

    def product(self, features: Tensor) -> Product:
        """The logits of the words of a place as an uncomputed product: context · word + log noise(word).

        Trained with k noise words, context · word is log p(word | context) − log (k · noise(word)) at the optimum (Levy
        & Goldberg 2014), so that these logits are log p(word | context) up to a constant.
        """
        assert self.target is not None
        return Product(features, self.target.weight, self.log_noise().to(features.dtype))

    def readout(self, features: Tensor) -> Tensor:
        """The logits (…, V) of the words of places with these features (…, width)."""
        return self.product(features).logits()


def _beside(rnn: Recurrent, x: Tensor, order: Tensor) -> Tensor:
    """The state (B, T, width) before each place, of a network that reads x (B, T, embed) in this order (B, T).

    The state before the first place is zeros.
    """
    states, _ = rnn(x.take_along_dim(order[..., None], dim=1))
    return F.pad(states, (0, 0, 1, -1)).take_along_dim(order.argsort(1)[..., None], dim=1)
