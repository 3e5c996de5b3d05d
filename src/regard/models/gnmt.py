"""GNMT, Google's translator of deep residual LSTMs (Wu et al. 2016, section 3).

The first layer of the encoder reads the source in both directions, the others in one. From the third layer on, the
input of a layer is added to its output. In the decoder, the output of the first layer at the step before is the query
of the attention, and the context is an input of every layer.

Departures from the paper: the decoder starts from zeros, because the paper names no other start, so that it reads the
source through attention alone; training is that of the plan, without reinforcement learning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.layers.checks import check_config, resized_embed
from regard.layers.recurrent import Recurrent, padding_last
from regard.layers.unrolled import UnrolledRecurrent
from regard.models.facts import Translates
from regard.models.recurrent_decoders import EncoderDecoder, RecurrentState, check_source
from regard.scores import NOT_FOR_A_SOURCE, build_score, check_score
from regard.taps import add_layer, inner_layers

RESIDUAL = 2  # the first layer, counted from 0, whose input is added to its output


@dataclass(frozen=True)
class GnmtConfig(Translates):
    """A translator of deep residual LSTMs, whose attention reads the first layer of the decoder."""

    input_embedding: ClassVar[str] = "encoder.embedding"
    longest_setting: ClassVar[str] = "capacity"
    query: ClassVar[Literal["before", "state", "layer"]] = "before"

    source_vocab: int = 0  # size of the source vocabulary; 0: taken from the source tokenizer
    target_vocab: int = 0  # size of the target vocabulary; 0: taken from the target tokenizer
    width: int = 128  # width of the states of every layer; each direction of the first encoder layer has all of it
    embed: int = 128  # width of the token embeddings
    layers: int = 3  # LSTM layers of the encoder, and of the decoder; from the third on they are residual
    # how query and key are compared: dot, scaled_dot, general (multiplicative), additive (concat), cosine or location
    score: str = "additive"
    capacity: int = 256  # the longest source, in tokens
    dropout: float = 0.1  # dropout on embeddings, between layers and before the readout
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the source embedding starts from

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "layers", "capacity"), {})
        check_score(self.score, NOT_FOR_A_SOURCE)
        if self.layers < 2:
            why = "the second layer of the encoder joins the two directions of the first"
            raise UserError(f"model.layers={self.layers}: must be at least 2, because {why}")

    @property
    def longest(self) -> int:
        """The most tokens that the model reads."""
        return self.capacity

    def resized(self, width: int) -> Self:
        return replace(self, width=width, embed=resized_embed(self, width))

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        numbers = range(self.layers)
        return (
            ("encoder.embedding", "target_embedding"),
            *((f"encoder.layers.{number}",) for number in numbers),
            ("decoder.layers.0", "decoder.attention"),
            *((f"decoder.layers.{number}",) for number in numbers[1:]),
            ("readout_",),
        )

    def build(self) -> Gnmt:
        return Gnmt(self)


class GnmtEncoder(nn.Module):
    """Token embeddings and a stack of LSTMs: the first in both directions, residual from the third on (figure 3)."""

    def __init__(self, config: GnmtConfig) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.embedding = nn.Embedding(config.source_vocab, config.embed, padding_idx=PAD)
        both = Recurrent("lstm", config.embed, 2 * width, directions=2)
        inputs = [2 * width] + [width] * (config.layers - 2)
        self.layers = nn.ModuleList([both, *(Recurrent("lstm", size, width) for size in inputs)])

    def forward(self, source: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, Ts) tokens → the states (B, Ts, width) of the last layer."""
        x = self.embedding(source)
        add_layer(x)
        for depth, layer in enumerate(self.layers):
            with inner_layers():  # the states of a layer are the sum
                output, _ = layer(F.dropout(x, self.dropout, self.training), real)
            x = output + x if depth >= RESIDUAL else output
            add_layer(x)
        return x


class GnmtDecoder(nn.Module):
    """cₜ = attend(h¹ₜ₋₁); hᵏₜ = LSTM([hᵏ⁻¹ₜ; cₜ]) (+ hᵏ⁻¹ₜ from the third layer on), where h⁰ₜ is the token.

    Only the first layer needs a loop over the steps. The contexts are then known, so every other layer reads the whole
    target in one call of the recurrent kernel: the reason that Wu et al. 2016 give for this attention.
    """

    def __init__(self, config: GnmtConfig) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        inputs = [config.embed] + [width] * (config.layers - 1)
        self.layers = nn.ModuleList(Recurrent("lstm", size + width, width) for size in inputs)
        self.attention = Attention(build_score(config.score, width, config.capacity))

    def start(self, states: Tensor, real: Tensor | None = None) -> RecurrentState:
        rows, width = len(states), states.shape[-1]
        hidden = states.new_zeros(rows, len(self.layers), 2, width)
        at = torch.zeros((), dtype=torch.long, device=states.device)
        return RecurrentState(hidden, at, rows, memory=self.attention.memory(states, real))

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        layers: list[Any] = list(self.layers)
        loop, at = UnrolledRecurrent(layers[0], x), state.positions(x)
        hidden, outputs, contexts = state.hidden[:, :1], [], []
        for t in range(x.shape[1]):
            read, state = state.read(self.attention, hidden[:, :, 0], at[t : t + 1])
            output, hidden = loop.step(read.squeeze(1), hidden)
            outputs.append(output)
            contexts.append(read)
        x, context, after = torch.stack(outputs, 1), torch.cat(contexts, 1), [hidden]
        for depth, layer in enumerate(layers[1:], start=1):
            dropped = F.dropout(x, self.dropout, self.training)
            output, hidden = layer.advance(torch.cat([dropped, context], -1), state.hidden[:, depth : depth + 1])
            x = output + x if depth >= RESIDUAL else output
            after.append(hidden)
        return x, replace(state, hidden=torch.cat(after, 1), at=state.at + x.shape[1])


class Gnmt(EncoderDecoder):
    """Encoder, decoder, output layer."""

    def __init__(self, config: GnmtConfig) -> None:
        super().__init__()
        self.config = config
        self.target_embedding = nn.Embedding(config.target_vocab, config.embed, padding_idx=PAD)
        self.encoder = GnmtEncoder(config)
        self.decoder = GnmtDecoder(config)
        self.readout_ = nn.Linear(config.width, config.target_vocab)

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:
        """The states (B, Ts, width) of a source (B, Ts)."""
        return self.encoder(source, source_real)

    def start(
        self, source: Tensor, source_real: Tensor | None = None, rows: int | None = None, capacity: int | None = None
    ) -> RecurrentState:
        """Reads the source (B, Ts): the state before the first target token.

        All decoders have these four arguments; only the source matters here. Padding may be anywhere; it is moved to
        the end, because a score may depend on positions.
        """
        check_source(source, self.config.capacity)
        source, source_real = padding_last(source, source_real)
        return self.decoder.start(self.encode(source, source_real), source_real)
