"""Recurrent decoders that read a source: without attention, Bahdanau's and Luong's, each with any score.

The source is a text (``Seq2Seq``) or the cells of an image (``Captioner``). The five decoders differ in where the
context of the source enters the decoder. Those with attention have one more tanh layer before the output layer. It
reads the state and the context; in ``bahdanau`` it also reads the embedding of the last token. The decoders have the
same two methods, ``start`` and ``advance``.

============== ================================================ ============================
decoder        context                                          from
============== ================================================ ============================
once           the encoder's last state initializes the decoder Sutskever et al. 2014
every          … and is also an input of every step             Cho et al. 2014
bahdanau       attention before the recurrence, as its input    Bahdanau et al. 2015
luong          attention after the recurrence                   Luong et al. 2015, §3.1
luong-feeding  … and its result is an input of the next step    Luong et al. 2015, §3.3
============== ================================================ ============================

Bahdanau et al. have a maxout layer before the output layer; here it is the tanh layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.attention import Attention, Memory
from regard.errors import UserError
from regard.layers.recurrent import Recurrent
from regard.layers.unrolled import StepwiseLinear, UnrolledRecurrent
from regard.models.causal import Causal
from regard.scores import build_score
from regard.taps import collected_layers


@dataclass(frozen=True, eq=False)
class Encoded:
    """The output of an encoder. Each decoder makes its own memory of it (``Attention.memory``)."""

    states: Tensor  # (B, Ts, width): of a text, one for each token
    summary: Tensor  # (B, width): of the whole source
    real: Tensor | None = None  # (B, Ts) False at padding


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The state of a recurrent decoder: R rows of S sentences. The rows (beams) of a sentence share its memory."""

    hidden: Tensor  # (R, layers, parts, width)
    at: Tensor  # 0-d, tokens read so far: on the device, so that a step can be captured
    sentences: int  # S; each has R / S rows
    context: Tensor | None = None  # (R, width): the fixed context, or the attention result of the last step
    memory: Memory | None = None  # of the S sentences
    coverage: Tensor | None = None  # (R, Ts): the sum of the weights of all steps so far; None: not computed

    def select(self, rows: Tensor) -> RecurrentState:
        """Reorders beams within their sentences (``decode.State.select``), so the shared memory does not change."""
        context, coverage = (None if each is None else each[rows] for each in (self.context, self.coverage))
        return replace(self, hidden=self.hidden[rows], context=context, coverage=coverage)

    def keep(self, sentences: Tensor, rows: Tensor) -> RecurrentState:
        """The state of these sentences alone."""
        memory = None if self.memory is None else self.memory.select(sentences)
        return replace(self.select(rows), memory=memory, sentences=len(sentences))

    def with_coverage(self) -> RecurrentState:
        """The state before the first token, whose later states sum the attention weights."""
        if self.memory is None:
            cure = "leave the coverage penalty out, or train one with model.decoder=bahdanau"
            raise UserError(f"coverage: this model has no attention to a source; {cure}")
        keys = self.memory.keys
        dtype = torch.promote_types(keys.dtype, torch.float32)  # that of attention weights
        return replace(self, coverage=keys.new_zeros(len(self.hidden), keys.shape[-2], dtype=dtype))

    def log_coverage(self) -> Tensor:
        """(R,) Σⱼ ln min(Σₜ wₜⱼ, 1) over the real positions j of the source (Wu et al. 2016, eq. 14)."""
        assert self.coverage is not None
        assert self.memory is not None
        logs = self.coverage.clamp(1e-10, 1.0).log()
        real = self.memory.real
        if real is not None:
            logs = logs.masked_fill(~real.repeat_interleave(len(logs) // len(real), 0), 0.0)
        return logs.sum(1)

    def read(self, attention: Attention, q: Tensor, at: Tensor) -> tuple[Tensor, RecurrentState]:
        """Attention of queries (R, T, width): the context, and the state with the weights added to its coverage.

        The K = R / S rows of a sentence become more queries of its one memory.
        """
        assert self.memory is not None
        rows, sentences = q.shape[:2], len(self.memory.keys)
        if len(q) != sentences:
            q, at = q.reshape(sentences, -1, q.shape[-1]), at.repeat(len(q) // sentences)  # (S, K·T, width), (K·T,)
        if self.coverage is None:
            return attention(q, self.memory, q_at=at).reshape(*rows, -1), self
        look = attention.look(q, self.memory, q_at=at)
        weights = look.weights.reshape(*rows, -1)  # (R, T, Ts)
        return look.context.reshape(*rows, -1), replace(self, coverage=self.coverage + weights.sum(1))

    def positions(self, x: Tensor) -> Tensor:
        """The positions of the T tokens in x (R, T, …)."""
        return self.at + torch.arange(x.shape[1], device=x.device)


class DecoderSettings(Protocol):
    """The settings of a recurrent decoder, which the config of its model has."""

    @property
    def target_vocab(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def embed(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def cell(self) -> str: ...
    @property
    def decoder(self) -> str: ...
    @property
    def score(self) -> str: ...
    @property
    def window(self) -> str: ...
    @property
    def radius(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def coverage(self) -> bool: ...


class Plain(nn.Module):
    """A decoder without attention: it gets one vector of the source, at the start or at every step."""

    def __init__(self, config: DecoderSettings) -> None:
        super().__init__()
        self.every = config.decoder == "every"
        inputs = config.embed + (config.width if self.every else 0)
        self.rnn = Recurrent(config.cell, inputs, config.width, config.layers, dropout=config.dropout)

    def start(self, hidden: Tensor, source: Encoded) -> RecurrentState:
        context = source.summary if self.every else None
        return RecurrentState(hidden, _no_tokens_read(hidden), len(hidden), context=context)

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        if state.context is not None:
            x = torch.cat([x, state.context[:, None].expand(-1, x.shape[1], -1)], -1)
        features, hidden = self.rnn.advance(x, state.hidden)
        return features, replace(state, hidden=hidden, at=state.at + x.shape[1])


class Attending(nn.Module):
    """The base class of decoders with attention: a recurrent stack, attention to the source, one more layer.

    The stack reads ``inputs`` numbers at each step, and the last layer ``joined`` numbers.
    """

    def __init__(self, config: DecoderSettings, inputs: int, joined: int) -> None:
        super().__init__()
        self.rnn = Recurrent(config.cell, inputs, config.width, config.layers, dropout=config.dropout)
        score = build_score(config.score, config.width, config.capacity, config.window, config.radius)
        self.attention, self.coverage = Attention(score), config.coverage
        self.out = nn.Linear(joined, config.width)

    def start(self, hidden: Tensor, source: Encoded) -> RecurrentState:
        memory = self.attention.memory(source.states, source.real)
        coverage = hidden.new_zeros(source.states.shape[:2]) if self.coverage else None
        return RecurrentState(hidden, _no_tokens_read(hidden), len(hidden), memory=memory, coverage=coverage)


class Bahdanau(Attending):
    """Attention by the last state, then the recurrence: s_t = f(s_{t-1}, y_{t-1}, c_t) (Bahdanau 2015, eq. 4-6)."""

    def __init__(self, config: DecoderSettings) -> None:
        super().__init__(config, config.embed + config.width, 2 * config.width + config.embed)

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        loop, at = UnrolledRecurrent(self.rnn, x), state.positions(x)
        hidden, outputs, contexts = state.hidden, [], []
        for t in range(x.shape[1]):
            query = hidden[:, -1, 0].unsqueeze(1)  # the top layer's h
            read, state = self.read(query, state, at[t : t + 1])
            context = read.squeeze(1)
            output, hidden = loop.step(context, hidden)
            outputs.append(output)
            contexts.append(context)
        joined = torch.cat([torch.stack(outputs, 1), torch.stack(contexts, 1), x], -1)
        return torch.tanh(self.out(joined)), replace(state, hidden=hidden, at=state.at + x.shape[1])

    def read(self, query: Tensor, state: RecurrentState, at: Tensor) -> tuple[Tensor, RecurrentState]:
        """The context of queries (R, 1, width), and the state after the read."""
        return state.read(self.attention, query, at)


class Luong(Attending):
    """The recurrence, then attention by the new state: h̃_t = tanh(W [c_t; h_t]) (Luong et al. 2015, eq. 5).

    The recurrence does not depend on attention, so a whole target is one call of the recurrent kernel and one of
    attention, without a loop.
    """

    def __init__(self, config: DecoderSettings) -> None:
        super().__init__(config, config.embed, 2 * config.width)

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        outputs, hidden = self.rnn.advance(x, state.hidden)
        contexts, state = state.read(self.attention, outputs, state.positions(x))
        features = torch.tanh(self.out(torch.cat([contexts, outputs], -1)))
        return features, replace(state, hidden=hidden, at=state.at + x.shape[1])


class LuongFeeding(Attending):
    """Luong's decoder with input feeding: h̃_{t-1} is part of the next input, so earlier attention has an effect."""

    def __init__(self, config: DecoderSettings) -> None:
        super().__init__(config, config.embed + config.width, 2 * config.width)

    def start(self, hidden: Tensor, source: Encoded) -> RecurrentState:
        return replace(super().start(hidden, source), context=torch.zeros_like(source.summary))

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        assert state.context is not None
        loop, at = UnrolledRecurrent(self.rnn, x), state.positions(x)
        out = StepwiseLinear(self.out.weight, self.out.bias.expand(x.shape[1], x.shape[0], -1))
        hidden, fed, features = state.hidden, state.context, []
        for t in range(x.shape[1]):
            output, hidden = loop.step(fed, hidden)
            context, state = state.read(self.attention, output.unsqueeze(1), at[t : t + 1])
            fed = torch.tanh(out(torch.cat([context.squeeze(1), output], -1)))
            features.append(fed)
        return torch.stack(features, 1), replace(state, hidden=hidden, context=fed, at=state.at + x.shape[1])


Decoder = Plain | Bahdanau | Luong | LuongFeeding
DECODERS: dict[str, Callable[[DecoderSettings], Decoder]] = {
    "once": Plain,
    "every": Plain,
    "bahdanau": Bahdanau,
    "luong": Luong,
    "luong-feeding": LuongFeeding,
}


class EncoderDecoder(Causal):
    """An encoder, a recurrent decoder, an output layer. ``advance`` reads any number of tokens, for teacher forcing and
    for decoding.

    A subclass sets ``encoder``, ``target_embedding``, ``decoder`` and ``readout_`` (the last two by ``add_decoder``, if
    the encoder returns ``Encoded``), and defines ``start``.
    """

    config: Any
    encoder: nn.Module
    target_embedding: nn.Embedding
    decoder: Any
    readout_: nn.Linear

    def add_decoder(self, config: DecoderSettings, decoder: Decoder) -> None:
        """Adds the decoder, the layer that makes its first state of the source, and the output layer."""
        self.decoder, hidden = decoder, decoder.rnn
        self.bridge = nn.Linear(config.width, hidden.layers * hidden.parts * config.width)
        self.readout_ = nn.Linear(config.width, config.target_vocab)

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:
        """The states (B, Ts, width) of a source (B, Ts, …)."""
        return self.encoder(source, source_real).states

    def layers(  # type: ignore[override]
        self, source: Tensor, source_real: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The states (B, Ts, D) of every layer of the encoder at a source (B, Ts), the embeddings first."""
        with collected_layers() as found:
            self.encoder(source, source_real)
        return tuple(found)

    def start_decoder(self, source: Encoded) -> RecurrentState:
        """The state before the first target token."""
        rnn = self.decoder.rnn
        hidden = torch.tanh(self.bridge(source.summary)).unflatten(-1, (rnn.layers, rnn.parts, rnn.width))
        return self.decoder.start(hidden, source)

    def advance(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Reads target tokens (B, T) from a state on: features (B, T, width) and the state after them."""
        return self.decoder.advance(self.drop(self.target_embedding(tokens)), state)


def check_source(source: Tensor, capacity: int) -> None:
    """Raise ``UserError`` if a source is longer than the model can read."""
    if source.shape[1] > capacity:
        limit = f"the model's limit: model.capacity={capacity}"
        raise UserError(f"a source of {source.shape[1]} tokens is longer than {limit}")


def _no_tokens_read(hidden: Tensor) -> Tensor:
    """The count of tokens read before the first step: 0, as a tensor on the device."""
    return torch.zeros((), dtype=torch.long, device=hidden.device)
