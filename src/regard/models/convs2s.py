"""ConvS2S, a convolutional translator (Gehring et al. 2017): gated convolutions, attention in every decoder layer.

A layer is a convolution with a gate (a gated linear unit, Dauphin et al. 2017) and a residual connection. Those of the
encoder are centred, those of the decoder see a position and earlier ones. Positions are learned embeddings. All weights
but embeddings and the output layer are normalised, and a sum of two terms is multiplied by √½, which keeps its
variance. A published model has several widths; a setting may have one number for each layer.

Departures from the paper: gradients of the encoder are not divided by the number of attentions, since Adam does not
depend on the scale of a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, Memory
from regard.errors import UserError
from regard.layers.checks import check_config
from regard.layers.convolution import CausalConvolution, CentredConvolution, NormedLinear
from regard.layers.recurrent import padding_last, real_first
from regard.layers.tokens import TokenEmbedding, check_capacity, check_length, real_positions
from regard.layers.transformer import Shape
from regard.mask import zero_padding
from regard.models.causal import Causal
from regard.models.facts import Translates
from regard.scores import Dot
from regard.taps import add_layer, collected_layers

HALF = sqrt(0.5)
EMBEDDED = 0.1  # the standard deviation of initial embeddings (section 3.5)


@dataclass(frozen=True)
class ConvS2sConfig(Translates):
    """A convolutional translator with attention in every layer of its decoder."""

    parallel: ClassVar[bool] = True
    input_embedding: ClassVar[str] = "encoder.embedding.tokens"
    embedding_width: ClassVar[str] = "width"

    source_vocab: int = 0  # size of the source vocabulary; 0: taken from the source tokenizer
    target_vocab: int = 0  # size of the target vocabulary; 0: taken from the target tokenizer
    width: int = 128  # width of embeddings, of queries, keys and values, and of the outputs of both stacks
    layers: int = 3  # number of convolutions of the encoder, and of the decoder
    channels: tuple[int, ...] = (128,)  # channels of each layer; the last number is that of all further layers
    kernels: tuple[int, ...] = (3,)  # positions that each layer reads, odd; the last number is that of all further ones
    context: int = 256  # the longest source or target, in tokens
    dropout: float = 0.1  # dropout on embeddings, on the input of each convolution and before the readout
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the source embedding starts from

    def __post_init__(self) -> None:
        check_config(self, ("width", "layers", "context"), {})
        for name, numbers in (("channels", self.channels), ("kernels", self.kernels)):
            given = f"model.{name}={','.join(map(str, numbers))}"
            if not numbers or min(numbers) < 1:
                raise UserError(f"{given}: give at least one number, each at least 1")
            if len(numbers) > self.layers:
                raise UserError(
                    f"{given}: has {len(numbers)} numbers for model.layers={self.layers}; give at most one each"
                )
        if not all(kernel % 2 for kernel in self.kernels):
            raise UserError(f"model.kernels={','.join(map(str, self.kernels))}: must be odd, to have a centre")

    @property
    def longest(self) -> int:
        """The most tokens that the model reads."""
        return self.context

    @property
    def longest_target(self) -> int:
        return self.context

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """The channels before a layer, its own, and its kernel: for every layer of a stack."""
        channels, kernels = (_extended(numbers, self.layers) for numbers in (self.channels, self.kernels))
        return list(zip([channels[0], *channels], channels, kernels))

    def resized(self, width: int) -> Self:
        if width == self.width:
            return self
        channels = (number * width / self.width for number in self.channels)
        grain = 8 if width >= 128 else 1  # multiples of 8 are fast on a GPU
        return replace(self, width=width, channels=tuple(max(1, round(n / grain)) * grain for n in channels))

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        first = [f"{stack}.{part}" for stack in ("encoder", "decoder") for part in ("embedding", "into")]
        encoder, decoder = ([f"{stack}.layers.{at}" for at in range(self.layers)] for stack in ("encoder", "decoder"))
        *lower, last = encoder
        layers = [*((path,) for path in lower), (last, "encoder.out"), *((path,) for path in decoder)]
        return (tuple(first), *layers, ("decoder.out", "readout_"))

    def build(self) -> ConvS2s:
        return ConvS2s(self)


@dataclass(frozen=True, eq=False)
class ConvS2sState:
    """The state of the decoder: R rows of S sentences. The rows (beams) of a sentence share its memory."""

    inputs: tuple[Tensor, ...]  # the last inputs of each convolution: (R, channels, reach)
    memory: Memory  # of the S sentences, the same for all layers
    at: Tensor  # 0-d, tokens read so far: on the device, so that a step can be captured

    @property
    def sentences(self) -> int:
        return len(self.memory.keys)

    def select(self, rows: Tensor) -> ConvS2sState:
        return replace(self, inputs=tuple(each[rows] for each in self.inputs))

    def keep(self, sentences: Tensor, rows: Tensor) -> ConvS2sState:
        """The state of these sentences alone."""
        return replace(self.select(rows), memory=self.memory.select(sentences))


class Residual(nn.Module):
    """(y + x) √½, where x (B, T, inputs) is projected if its width is not that of y."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.project = _linear(inputs, outputs) if inputs != outputs else nn.Identity()

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        return (y + self.project(x)) * HALF


class EncoderLayer(nn.Module):
    """A centred convolution, its gate, and a residual connection."""

    def __init__(self, shape: tuple[int, int, int], dropout: float) -> None:
        super().__init__()
        (inputs, channels, kernel), self.dropout = shape, dropout
        self.convolution = CentredConvolution(inputs, 2 * channels, kernel, _gated(inputs * kernel, 1 - dropout))
        self.residual = Residual(inputs, channels)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, inputs) → (B, T, channels). Padding, which must be at the end, is read as the zeros after a text."""
        dropped = zero_padding(F.dropout(x, self.dropout, self.training), real)
        y = F.glu(self.convolution(dropped.transpose(1, 2)), dim=1).transpose(1, 2)
        return self.residual(y, x)


class DecoderLayer(nn.Module):
    """A causal convolution, its gate, attention to the source, and a residual connection (section 3.3)."""

    def __init__(self, shape: tuple[int, int, int], width: int, dropout: float) -> None:
        super().__init__()
        (inputs, channels, kernel), self.dropout = shape, dropout
        self.convolution = CausalConvolution(
            inputs, 2 * channels, kernel, deviation=_gated(inputs * kernel, 1 - dropout)
        )
        self.query, self.out = _linear(channels, width), _linear(width, channels)
        self.attention = Attention(Dot())
        self.residual = Residual(inputs, channels)

    def forward(self, x: Tensor, embedded: Tensor, memory: Memory, before: Tensor) -> tuple[Tensor, Tensor]:
        """(R, T, inputs) and the embedded tokens (R, T, width) → (R, T, channels), and the convolution's last inputs.

        The query is dₜ = W hₜ + b + gₜ (eq. 1): hₜ is the output of the gate, gₜ the embedded token.
        """
        dropped = F.dropout(x, self.dropout, self.training)
        y, after = self.convolution(dropped.transpose(1, 2), before)
        y = F.glu(y, dim=1).transpose(1, 2)
        query = (self.query(y) + embedded) * HALF
        beams = query.reshape(len(memory.keys), -1, query.shape[-1])  # the rows of a sentence are queries of one memory
        context = self.attention(beams, memory).view_as(query)
        return self.residual((y + self.out(context)) * HALF, x), after


class ConvEncoder(nn.Module):
    """Embeddings of tokens and positions, a stack of convolutions, and a projection back to the width."""

    def __init__(self, config: ConvS2sConfig) -> None:
        super().__init__()
        shapes, keep = config.shapes, 1 - config.dropout
        self.embedding = _embedding(config, config.source_vocab)
        self.into = _linear(config.width, shapes[0][0], keep)
        self.layers = nn.ModuleList(EncoderLayer(shape, config.dropout) for shape in shapes)
        self.out = _linear(shapes[-1][1], config.width)

    def forward(self, source: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, Ts) tokens, with padding at the end → the outputs z and the embeddings e (B, Ts, width).

        The outputs stand for the last layer among its states.
        """
        embedded = self.embedding(source, real_positions(source, real))
        x = self.into(embedded)
        add_layer(embedded)
        for number, layer in enumerate(self.layers):
            if number:
                add_layer(x)
            x = layer(x, real)
        z = self.out(x)
        add_layer(z)
        return z, embedded


class ConvDecoder(nn.Module):
    """Embeddings, a stack of causal convolutions that attend to the source, and a projection back to the width."""

    def __init__(self, config: ConvS2sConfig) -> None:
        super().__init__()
        shapes, keep = config.shapes, 1 - config.dropout
        self.embedding = _embedding(config, config.target_vocab)
        self.into = _linear(config.width, shapes[0][0], keep)
        self.layers = nn.ModuleList(DecoderLayer(shape, config.width, config.dropout) for shape in shapes)
        self.out = _linear(shapes[-1][1], config.width)

    def start(self, z: Tensor, embedded: Tensor, real: Tensor | None = None) -> ConvS2sState:
        """The keys are z, the values (z + e) √½ √m in a source of m tokens (section 3.5): a mean of m vectors whose
        variance is one has the variance 1/m."""
        m = z.new_full((1, 1, 1), z.shape[1]) if real is None else real.sum(1).view(-1, 1, 1).to(z.dtype)
        layers: list[Any] = list(self.layers)
        memory = layers[0].attention.memory(z, real, values=(z + embedded) * HALF * m.sqrt())
        inputs = tuple(layer.convolution.zeros(len(z)) for layer in layers)
        return ConvS2sState(inputs, memory, torch.zeros((), dtype=torch.long, device=z.device))

    def advance(self, tokens: Tensor, state: ConvS2sState) -> tuple[Tensor, ConvS2sState]:
        at = state.at + torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.embedding(tokens, at[None])
        x, inputs = self.into(embedded), []
        for layer, before in zip(self.layers, state.inputs):
            x, after = layer(x, embedded, state.memory, before)
            inputs.append(after)
        return self.out(x), replace(state, inputs=tuple(inputs), at=state.at + tokens.shape[1])


class ConvS2s(Causal):
    """Encoder, decoder, output layer. ``advance`` reads any number of tokens, for teacher forcing and for decoding."""

    def __init__(self, config: ConvS2sConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ConvEncoder(config)
        self.decoder = ConvDecoder(config)
        self.readout_ = nn.Linear(config.width, config.target_vocab)
        nn.init.normal_(self.readout_.weight, std=sqrt((1 - config.dropout) / config.width))
        nn.init.zeros_(self.readout_.bias)

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:
        """The states (B, Ts, width) of a source (B, Ts)."""
        return _moved_back(self.encoder(*padding_last(source, source_real))[0], source_real)

    def layers(  # type: ignore[override]
        self, source: Tensor, source_real: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The states (B, Ts, D) of every layer of the encoder at a source (B, Ts), the embeddings first."""
        with collected_layers() as found:
            self.encoder(*padding_last(source, source_real))
        return tuple(_moved_back(each, source_real) for each in found)

    def start(
        self, source: Tensor, source_real: Tensor | None = None, rows: int | None = None, capacity: int | None = None
    ) -> ConvS2sState:
        """Reads the source (B, Ts): the state before the first target token, for at most ``capacity`` tokens.

        Padding may be anywhere; it is moved to the end, so that a convolution never reads padding between two tokens.
        """
        check_length(source, self.config.longest)
        check_capacity(capacity, self.config.context, self.config.longest)
        source, source_real = padding_last(source, source_real)
        z, embedded = self.encoder(source, source_real)
        return self.decoder.start(z, embedded, source_real)

    def advance(self, tokens: Tensor, state: ConvS2sState) -> tuple[Tensor, ConvS2sState]:
        """Reads target tokens (R, T) from a state on: features (R, T, width) and the state after them."""
        check_length(tokens, self.config.longest)
        return self.decoder.advance(tokens, state)


def _moved_back(states: Tensor, real: Tensor | None) -> Tensor:
    """States (B, Ts, D) of a source whose padding was moved to the end, at the places of its tokens."""
    return states if real is None else states.take_along_dim(real_first(real).argsort(1)[..., None], dim=1)


def _extended(numbers: Sequence[int], count: int) -> list[int]:
    return [*numbers, *[numbers[-1]] * (count - len(numbers))]


def _embedding(config: ConvS2sConfig, vocab: int) -> TokenEmbedding:
    """Embeddings of tokens plus those of positions."""
    shape = Shape(width=config.width, heads=1, positions="learned", context=config.context, dropout=config.dropout)
    embedding = TokenEmbedding(shape, vocab)
    for table in embedding.parameters():
        nn.init.normal_(table, std=EMBEDDED)
    return embedding


def _linear(inputs: int, outputs: int, keep: float = 1.0) -> NormedLinear:
    """A projection whose outputs start with the variance of its inputs, of which dropout keeps a part."""
    return NormedLinear(inputs, outputs, sqrt(keep / inputs))


def _gated(inputs: int, keep: float) -> float:
    """The standard deviation of weights before a gate, which divides the variance by four (section 3.5)."""
    return sqrt(4 * keep / inputs)
