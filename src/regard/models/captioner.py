"""Image captioning: a grid of cells of an image, and a recurrent decoder of its caption, with or without attention.

The image is pixels, which a small convolutional network reads that is trained with the model, features of a frozen
network, or the frames of a clip, which are then the cells. Each cell is a vector, as a token of a source is. So the
decoders are those of ``Seq2Seq``, and one more:

============== ================================================ ============================
decoder        context                                          from
============== ================================================ ============================
once           the mean of the cells initializes the decoder    Show and Tell, Vinyals 2015
attend         as bahdanau, multiplied by a gate β = σ(w·s + b) Show, Attend and Tell, Xu 2015
the others     see ``regard.models.recurrent_decoders``
============== ================================================ ============================

With ``attention=hard`` a step reads one cell (Xu et al. 2015, §4.1): the likeliest one, or in training a sampled one.
The objective ``hard`` trains such a model.

Departures from the papers:

- Vinyals et al. give the image as the input of a first step; here it makes the initial state, as in Xu et al.
- The cells are projected to the width of the decoder, so that all scores can compare them with its state.
- The deep output layer of Xu et al. is linear; here it is the tanh layer of ``Bahdanau``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.layers.checks import check_config, resized_embed
from regard.layers.image import FeatureEncoder, FrameEncoder, GridPositions, PixelEncoder
from regard.layers.recurrent import KERNELS
from regard.mask import zero_padding
from regard.models.facts import Translates
from regard.models.recurrent_decoders import DECODERS as TEXT_DECODERS
from regard.models.recurrent_decoders import (
    Bahdanau,
    Decoder,
    DecoderSettings,
    Encoded,
    EncoderDecoder,
    RecurrentState,
)
from regard.readers import Hard
from regard.scores import NOT_FOR_A_SOURCE, check_score

ENCODERS = ("pixels", "features", "frames")
WITHOUT_ATTENTION = ("once", "every")


@dataclass(frozen=True)
class CaptionerConfig(Translates):
    """A model that describes an image."""

    source_field: ClassVar[str] = "image"
    sizes: ClassVar[Mapping[str, str]] = {"image": "image", "target_vocab": "target"}
    window: ClassVar[str] = "none"
    radius: ClassVar[int] = 1
    coverage: ClassVar[bool] = False
    layer_groups: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("encoder", "target_embedding"),
        ("decoder", "bridge"),
        ("readout_",),
    )

    image: int = 0  # pixels on a side of the image, or numbers of a cell or of a frame; 0: taken from the data
    target_vocab: int = 0  # size of the vocabulary of the captions; 0: taken from the tokenizer
    # what an image is: pixels (read by convolutions), features (of a frozen network) or frames (of a clip)
    encoder: str = "pixels"
    blocks: int = 3  # pixels: convolutions that halve the image; 3 make 8 × 8 cells of 64 × 64 pixels
    grid: int = 7  # features: cells on a side of the grid; frames: the most frames of a clip
    positions: str = "grid"  # positions of the cells: grid (learnt row and column vectors) or none
    width: int = 256  # width of the recurrent states and of the cells
    embed: int = 128  # width of the token embeddings
    layers: int = 1  # number of recurrent layers of the decoder
    cell: str = "lstm"  # kind of recurrent cell: rnn, lstm or gru
    decoder: str = "attend"  # once (Show and Tell), attend (Show, Attend and Tell), or one of model=seq2seq
    # how query and key are compared: dot, scaled_dot, general (multiplicative), additive (concat), cosine or location
    score: str = "additive"
    attention: str = "soft"  # soft (the mean of all cells) or hard (one cell, which objective=hard trains)
    dropout: float = 0.1  # dropout on embeddings and cells, between layers and before the readout

    def __post_init__(self) -> None:
        names: dict[str, Iterable[str]] = {"cell": KERNELS, "decoder": DECODERS, "encoder": ENCODERS}
        names |= {"positions": ("grid", "none"), "attention": ("soft", "hard")}
        check_config(self, ("width", "embed", "layers", "blocks", "grid"), names)
        check_score(self.score, NOT_FOR_A_SOURCE)
        if self.attention == "hard" and self.decoder in WITHOUT_ATTENTION:
            cure = "set model.decoder=attend, or leave model.attention out"
            raise UserError(f"model.attention=hard: model.decoder={self.decoder} has no attention; {cure}")

    @property
    def capacity(self) -> int:
        """The number of cells."""
        return math.prod(self.source_grid)

    @property
    def source_grid(self) -> tuple[int, int]:
        if self.encoder == "frames":
            return 1, self.grid
        side = self.grid if self.encoder == "features" else max(1, math.ceil(self.image / 2**self.blocks))
        return side, side

    @property
    def source_shape(self) -> tuple[int, ...]:
        return (self.image, self.image, 3) if self.encoder == "pixels" else (self.capacity, self.image)

    @property
    def input_embedding(self) -> str:
        return "target_embedding"

    @property
    def query(self) -> Literal["before", "state", "layer"]:
        """Bahdanau's decoder, and that of Xu et al., attend before the recurrence, Luong's after it."""
        return "before" if self.decoder in ("bahdanau", "attend") else "state"

    def without_attention(self) -> Self:
        """The same model, whose decoder reads the mean of the cells once (Vinyals et al. 2015)."""
        return replace(self, decoder="once", attention="soft")

    def resized(self, width: int) -> Self:
        return replace(self, width=width, embed=resized_embed(self, width))

    def build(self) -> Captioner:
        return Captioner(self)


class Attend(Bahdanau):
    """Bahdanau's decoder, whose context is multiplied by a gate β = σ(w·s₍ₜ₋₁₎ + b) (Xu et al. 2015, §4.2.1)."""

    def __init__(self, config: DecoderSettings) -> None:
        super().__init__(config)
        self.gate = nn.Linear(config.width, 1)

    def read(self, query: Tensor, state: RecurrentState, at: Tensor) -> tuple[Tensor, RecurrentState]:
        context, state = super().read(query, state, at)
        return torch.sigmoid(self.gate(query)) * context, state


DECODERS: dict[str, Callable[[DecoderSettings], Decoder]] = {"attend": Attend, **TEXT_DECODERS}


class ImageEncoder(nn.Module):
    """The cells of an image, with their positions, and their mean."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.pixels = config.encoder == "pixels"
        if self.pixels:
            self.cells: nn.Module = PixelEncoder(config.width, config.blocks)
        else:
            kind = FrameEncoder if config.encoder == "frames" else FeatureEncoder
            self.cells = kind(config.image, config.width)
        self.positions = GridPositions(*config.source_grid, config.width) if config.positions == "grid" else None

    def forward(self, source: Tensor, real: Tensor | None = None) -> Encoded:
        """Pixels (B, H, W, 3) with ``real`` (B, H), or features or frames (B, cells, D) with ``real`` (B, cells).

        An image that has no real row of pixels is all padding.
        """
        states = self.cells(source if self.pixels else zero_padding(source, real))
        if real is not None and self.pixels:
            real = real.any(1, keepdim=True).expand(states.shape[:2])
        states = self.dropout(states if self.positions is None else self.positions(states))
        if real is None:
            return Encoded(states, states.mean(1))
        count = real.sum(1, keepdim=True).clamp_min(1)
        return Encoded(states, zero_padding(states, real).sum(1) / count, real)


class Captioner(EncoderDecoder):
    """An encoder of an image, and a recurrent decoder of its caption."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ImageEncoder(config)
        self.target_embedding = nn.Embedding(config.target_vocab, config.embed, padding_idx=PAD)
        decoder = DECODERS[config.decoder](config)
        if config.attention == "hard":
            decoder.attention.reader = Hard()  # type: ignore[union-attr]
        self.add_decoder(config, decoder)

    def start(
        self, source: Tensor, source_real: Tensor | None = None, rows: int | None = None, capacity: int | None = None
    ) -> RecurrentState:
        """Reads an image: the state before the first token of its caption. See ``Seq2Seq.start`` for the arguments."""
        expected = self.config.source_shape
        fits = source.dim() == len(expected) + 1 and source.shape[2:] == expected[1:]
        fewest = 1 if self.config.encoder == "frames" else expected[0]  # a clip may be shorter
        if not fits or not fewest <= source.shape[1] <= expected[0]:
            found, fitting = (" × ".join(map(str, shape)) for shape in (source.shape[1:], expected))
            cure = "set model.encoder and model.grid as the data needs"
            raise UserError(
                f"an image of {found} numbers: model.encoder={self.config.encoder} reads {fitting}; {cure}."
            )
        return self.start_decoder(self.encoder(source, source_real))
