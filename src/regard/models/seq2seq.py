"""Recurrent encoder–decoders: without attention, Bahdanau's, Luong's; any score in each.

The encoder reads the source in both directions. The five decoders differ in one thing only, where the source's context
enters, and so they are five small classes with the same two methods.

============== ================================================ ============================
decoder        context                                          from
============== ================================================ ============================
once           the encoder's last state starts the decoder      Sutskever et al. 2014
every          … and is an input of every step                  Cho et al. 2014
bahdanau       attention before the recurrence, fed into it     Bahdanau et al. 2015
luong          attention after the recurrence                   Luong et al. 2015, §3.1
luong-feeding  … whose result is an input of the next step      Luong et al. 2015, §3.3
============== ================================================ ============================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, Memory
from regard.data.batches import Batch
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.layers.product import Product
from regard.layers.recurrent import KERNELS, Recurrent, real_first
from regard.layers.unrolled import Stepwise, Unrolled
from regard.models.checks import check_config, check_shared_width
from regard.models.facts import Facts
from regard.scores import UNFIT_FOR_A_SOURCE, WINDOWS, Score, build_score, check_score


@dataclass(frozen=True)
class Seq2SeqConfig(Facts):
    """A recurrent encoder–decoder."""

    causal: ClassVar[bool] = True
    reads_source: ClassVar[bool] = True
    predicts: ClassVar[tuple[str, ...]] = ("target",)
    sizes: ClassVar[Mapping[str, str]] = {"source_vocab": "source", "target_vocab": "target"}
    input_embedding: ClassVar[str] = "source_embedding"
    longest_setting: ClassVar[str] = "capacity"
    widths: ClassVar[tuple[str, ...]] = ("width", "embed")
    width_step: ClassVar[int] = 2  # the two directions of the encoder share the width

    source_vocab: int = 0  # 0: taken from the source tokenizer
    target_vocab: int = 0  # 0: taken from the target tokenizer
    width: int = 256  # of the recurrent states; the encoder's two directions share it
    embed: int = 128  # of the token embeddings
    layers: int = 1  # in the encoder and in the decoder
    cell: str = "gru"  # rnn, lstm or gru
    decoder: str = "bahdanau"  # once, every, bahdanau, luong or luong-feeding: where the context enters
    score: str = "additive"  # dot, scaled_dot, general, additive, cosine or location
    window: str = "none"  # none, local-m or local-p: Luong's local attention
    radius: int = 10  # of the window, in source positions
    capacity: int = 256  # the longest source, in tokens
    dropout: float = 0.1  # on embeddings, between layers and before the readout
    embedding: str = ""  # a file of word vectors (word2vec or GloVe text) to start the source embedding from

    def __post_init__(self) -> None:
        names: dict[str, Iterable[str]] = {"cell": KERNELS, "decoder": DECODERS, "window": WINDOWS}
        check_config(self, ("width", "embed", "layers", "capacity", "radius"), names)
        check_score(self.score, UNFIT_FOR_A_SOURCE)
        check_shared_width(self.width)

    @property
    def longest(self) -> int:
        """The most tokens that the model reads."""
        return self.capacity

    @property
    def token_vocab(self) -> int:
        return self.target_vocab

    @property
    def word_vectors(self) -> str:
        return self.embedding

    def without_attention(self) -> Self:
        """The same model, whose decoder reads the source's last state once (Sutskever et al. 2014)."""
        return replace(self, decoder="once")

    def build(self) -> Seq2Seq:
        return Seq2Seq(self)


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The state of a recurrent decoder. Beams reorder what is a row's own and share the source's memory."""

    hidden: Tensor  # (B, layers, parts, width)
    at: Tensor  # 0-d, tokens read so far: on the device, so that a step can be captured
    context: Tensor | None = None  # (B, width): the fixed context, or what was attended to in the step before
    memory: Memory | None = None  # of B sentences; the rest has B·K rows when each of them has K beams

    def select(self, rows: Tensor) -> RecurrentState:
        """Beams move within their sentences (``decode.State.select``), so what a sentence's beams share stays put."""
        context = None if self.context is None else self.context[rows]
        return replace(self, hidden=self.hidden[rows], context=context)

    def read(self, attention: Attention, q: Tensor, at: Tensor) -> Tensor:
        """What the queries (B·K, T, width) read: the K beams of a sentence are more queries of its one memory."""
        assert self.memory is not None
        sentences = len(self.memory.keys)
        if len(q) == sentences:
            return attention(q, self.memory, q_at=at)
        folded, at = q.reshape(sentences, -1, q.shape[-1]), at.repeat(len(q) // sentences)  # (B, K·T, width), (K·T,)
        return attention(folded, self.memory, q_at=at).reshape(*q.shape[:2], -1)

    def positions(self, x: Tensor) -> Tensor:
        """Of the T tokens about to be read."""
        return self.at + torch.arange(x.shape[1], device=x.device)


class Plain(nn.Module):
    """No attention: all the decoder knows of the source is one vector, given once or at every step."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.every = config.decoder == "every"
        inputs = config.embed + (config.width if self.every else 0)
        self.rnn = Recurrent(config.cell, inputs, config.width, config.layers, dropout=config.dropout)

    def start(self, hidden: Tensor, states: Tensor, last: Tensor, real: Tensor | None) -> RecurrentState:
        return RecurrentState(hidden, _nothing(hidden), context=last if self.every else None)

    def advance(self, x: Tensor, carry: RecurrentState) -> tuple[Tensor, RecurrentState]:
        if carry.context is not None:
            x = torch.cat([x, carry.context[:, None].expand(-1, x.shape[1], -1)], -1)
        features, hidden = self.rnn.advance(x, carry.hidden)
        return features, replace(carry, hidden=hidden, at=carry.at + x.shape[1])


class Bahdanau(nn.Module):
    """The state before the step asks, the answer enters the step: s_t = f(s_{t-1}, y_{t-1}, c_t) (2015, eq. 4-6)."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.rnn = Recurrent(
            config.cell, config.embed + config.width, config.width, config.layers, dropout=config.dropout
        )
        self.attention = Attention(_score(config))
        self.out = nn.Linear(2 * config.width + config.embed, config.width)

    def start(self, hidden: Tensor, states: Tensor, last: Tensor, real: Tensor | None) -> RecurrentState:
        return RecurrentState(hidden, _nothing(hidden), memory=self.attention.memory(states, real))

    def advance(self, x: Tensor, carry: RecurrentState) -> tuple[Tensor, RecurrentState]:
        loop, at = Unrolled(self.rnn, x), carry.positions(x)
        hidden, outputs, contexts = carry.hidden, [], []
        for t in range(x.shape[1]):
            query = hidden[:, -1, 0].unsqueeze(1)  # the top layer's h
            context = carry.read(self.attention, query, at[t : t + 1]).squeeze(1)
            output, hidden = loop.step(context, hidden)
            outputs.append(output)
            contexts.append(context)
        joined = torch.cat([torch.stack(outputs, 1), torch.stack(contexts, 1), x], -1)
        return torch.tanh(self.out(joined)), replace(carry, hidden=hidden, at=carry.at + x.shape[1])


class Luong(nn.Module):
    """The state after the step asks: h̃_t = tanh(W [c_t; h_t]) (2015, eq. 5). The recurrence never waits for the answer,
    so a whole target is one call of the recurrent kernel and one attention: no loop."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.rnn = Recurrent(config.cell, config.embed, config.width, config.layers, dropout=config.dropout)
        self.attention = Attention(_score(config))
        self.out = nn.Linear(2 * config.width, config.width)

    def start(self, hidden: Tensor, states: Tensor, last: Tensor, real: Tensor | None) -> RecurrentState:
        return RecurrentState(hidden, _nothing(hidden), memory=self.attention.memory(states, real))

    def advance(self, x: Tensor, carry: RecurrentState) -> tuple[Tensor, RecurrentState]:
        outputs, hidden = self.rnn.advance(x, carry.hidden)
        contexts = carry.read(self.attention, outputs, carry.positions(x))
        features = torch.tanh(self.out(torch.cat([contexts, outputs], -1)))
        return features, replace(carry, hidden=hidden, at=carry.at + x.shape[1])


class LuongFeeding(nn.Module):
    """Luong's decoder with input feeding: h̃_{t-1} joins the next input, so that past looks are known."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.rnn = Recurrent(
            config.cell, config.embed + config.width, config.width, config.layers, dropout=config.dropout
        )
        self.attention = Attention(_score(config))
        self.out = nn.Linear(2 * config.width, config.width)

    def start(self, hidden: Tensor, states: Tensor, last: Tensor, real: Tensor | None) -> RecurrentState:
        return RecurrentState(
            hidden, _nothing(hidden), context=torch.zeros_like(last), memory=self.attention.memory(states, real)
        )

    def advance(self, x: Tensor, carry: RecurrentState) -> tuple[Tensor, RecurrentState]:
        assert carry.context is not None
        loop, at = Unrolled(self.rnn, x), carry.positions(x)
        out = Stepwise(self.out.weight, self.out.bias.expand(x.shape[1], x.shape[0], -1))
        hidden, fed, features = carry.hidden, carry.context, []
        for t in range(x.shape[1]):
            output, hidden = loop.step(fed, hidden)
            context = carry.read(self.attention, output.unsqueeze(1), at[t : t + 1]).squeeze(1)
            fed = torch.tanh(out(torch.cat([context, output], -1)))
            features.append(fed)
        return torch.stack(features, 1), replace(carry, hidden=hidden, context=fed, at=carry.at + x.shape[1])


Decoder = Plain | Bahdanau | Luong | LuongFeeding
DECODERS: dict[str, Callable[[Seq2SeqConfig], Decoder]] = {
    "once": Plain,
    "every": Plain,
    "bahdanau": Bahdanau,
    "luong": Luong,
    "luong-feeding": LuongFeeding,
}


class Seq2Seq(nn.Module):
    """Encoder, decoder, readout. ``advance`` reads any number of tokens: teacher forcing and search are one method."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.source_vocab, config.embed, padding_idx=PAD)
        self.target_embedding = nn.Embedding(config.target_vocab, config.embed, padding_idx=PAD)
        self.encoder = Recurrent(
            config.cell, config.embed, config.width, config.layers, directions=2, dropout=config.dropout
        )
        self.decoder = DECODERS[config.decoder](config)
        hidden = self.decoder.rnn
        self.bridge = nn.Linear(config.width, hidden.layers * hidden.parts * config.width)
        self.readout_ = nn.Linear(config.width, config.target_vocab)

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:
        """The states (B, Ts, width) of a source (B, Ts)."""
        states, _ = self._encode(source, source_real)
        return states

    def start(
        self, source: Tensor, source_real: Tensor | None = None, rows: int | None = None, capacity: int | None = None
    ) -> RecurrentState:
        """Reads the source (B, Ts): the state before the first target token. Every decoder starts with these four
        arguments; `rows` and `capacity` are for those without a source or with a cache that grows.

        Padding may stand anywhere. It is moved behind what is real, so that position j of the memory is a row's j-th
        token: scores and windows that depend on positions then see no padding either.
        """
        if source.shape[1] > self.config.capacity:
            raise UserError(
                f"a source of {source.shape[1]} tokens is past the model's limit: model.capacity={self.config.capacity}"
            )
        if source_real is not None:
            order = real_first(source_real)
            source, source_real = source.gather(1, order), source_real.gather(1, order)
        states, last = self._encode(source, source_real)
        rnn = self.decoder.rnn
        hidden = torch.tanh(self.bridge(last[:, -1])).unflatten(-1, (rnn.layers, rnn.parts, rnn.width))
        return self.decoder.start(hidden, states, last[:, -1], source_real)

    def advance(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Reads target tokens (B, T) onward from a state: features (B, T, width) and the state after them."""
        return self.decoder.advance(self._drop(self.target_embedding(tokens)), state)

    def product(self, features: Tensor) -> Product:
        """What the logits are made of, before they are made."""
        return Product(self._drop(features), self.readout_.weight, self.readout_.bias)

    def readout(self, features: Tensor) -> Tensor:
        return F.linear(*self.product(features))

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        features, state = self.advance(tokens[:, None], state)
        return self.readout(features[:, 0]), state

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V) of every target position, given the targets before it."""
        features, _ = self.advance(batch["tokens"], self.start(batch["source"], batch.real["source"]))
        return self.readout(features)

    def _encode(self, source: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        states, last = self.encoder(self._drop(self.source_embedding(source)), real)
        return states, last

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


def _score(config: Seq2SeqConfig) -> Score:
    return build_score(config.score, config.width, config.capacity, config.window, config.radius)


def _nothing(hidden: Tensor) -> Tensor:
    """How many tokens have been read before the first."""
    return torch.zeros((), dtype=torch.long, device=hidden.device)
