"""An LSTM that attends to its own past (Cheng et al. 2016): the bridge from recurrence to self-attention."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, Memory
from regard.data.batches import Batch
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.layers.product import Product
from regard.models.checks import check_config
from regard.scores import SCORES, build_score


@dataclass(frozen=True)
class LstmnConfig:
    """A language model whose memory is a tape of all its states instead of one vector."""

    vocab: int = 0  # 0: taken from the tokenizer
    width: int = 256  # of the states
    embed: int = 128  # of the token embeddings
    score: str = "additive"  # how the present is compared with the past
    dropout: float = 0.1  # on embeddings and before the readout
    context: int = 256  # the longest line, in tokens

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "context"), {"score": SCORES})
        if self.score == "location":
            raise UserError("model.score=location: needs a source whose positions are fixed; a growing past has none")

    @property
    def longest(self) -> int:
        """The most tokens that the model reads."""
        return self.context

    def build(self) -> Lstmn:
        return Lstmn(self)


@dataclass(frozen=True, eq=False)
class Past:
    """Every state so far, to be read, and the summary that the last step made of them."""

    memory: Memory  # values are [h; c] of each token read
    summary: Tensor  # (B, width): h̃ of the step before

    def select(self, rows: Tensor) -> Past:
        return Past(self.memory.select(rows), self.summary[rows])


class Lstmn(nn.Module):
    """In an LSTM's equations, attention over all past states replaces the previous state (2016, eq. 5-10)."""

    task = "language"

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.embed, padding_idx=PAD)
        self.query = nn.Linear(config.embed + config.width, config.width)
        self.attention = Attention(build_score(config.score, config.width, config.context))
        self.gates = nn.Linear(config.embed + config.width, 4 * config.width)
        self.readout_ = nn.Linear(config.width, config.vocab)

    def start(
        self,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        rows: int | None = None,
        capacity: int | None = None,
    ) -> Past:
        """The state before the first token, with room for ``capacity`` of them.

        Every decoder starts with these four arguments; the first two are for those that read a source.
        """
        rows, capacity, width = rows or 1, capacity or self.config.context, self.config.width
        like = self.readout_.weight
        keys = self.attention.score.keys(like.new_zeros(1, width)).shape[-1]
        memory = Memory.empty((rows, capacity, keys), (rows, capacity, 2 * width), like)
        return Past(memory, like.new_zeros(rows, width))

    def advance(self, tokens: Tensor, state: Past, real: Tensor | None = None) -> tuple[Tensor, Past]:
        """Reads tokens (B, T): features (B, T, width) and the state after them. Padding, False in ``real``, may stand
        anywhere: nothing looks at it, and the summary is carried past it."""
        memory, summary, features = state.memory, state.summary, []
        if real is not None:
            memory = _padded(memory, real)
        for t, x in enumerate(self._drop(self.embedding(tokens)).unbind(1)):
            query = self.query(torch.cat([x, summary], -1))
            read, cell = self.attention(query.unsqueeze(1), memory).squeeze(1).chunk(2, -1)  # h̃, c̃: zeros at first
            summary = read if real is None else read.where(real[:, t, None], summary)
            i, f, o, g = self.gates(torch.cat([x, read], -1)).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(cell)
            memory = memory.write(self.attention.score.keys(h.unsqueeze(1)), torch.cat([h, cell], -1).unsqueeze(1))
            features.append(h)
        return torch.stack(features, 1), replace(state, memory=memory, summary=summary)

    def product(self, features: Tensor) -> Product:
        """What the logits are made of, before they are made."""
        return Product(self._drop(features), self.readout_.weight, self.readout_.bias)

    def readout(self, features: Tensor) -> Tensor:
        return F.linear(*self.product(features))

    def step(self, tokens: Tensor, state: Past) -> tuple[Tensor, Past]:
        features, state = self.advance(tokens[:, None], state)
        return self.readout(features[:, 0]), state

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V) of every position, given the tokens before it."""
        rows, length = batch.tokens.shape
        features, _ = self.advance(batch.tokens, self.start(rows=rows, capacity=length))
        return self.readout(features)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


def _padded(memory: Memory, real: Tensor) -> Memory:
    """The memory that knows which of the T slots to be written next are padding, (B, T)."""
    assert memory.used is not None
    seen = real.new_ones(len(real), memory.keys.shape[-2]) if memory.real is None else memory.real
    slots = memory.used + torch.arange(real.shape[1], device=real.device)
    return replace(memory, real=seen.index_copy(1, slots, real))
