"""Recurrent encoder–decoders: without attention, Bahdanau's and Luong's, each with any score.

The encoder reads the source in both directions. The decoders are those of ``regard.models.recurrent_decoders``, where a
table compares them.

Departures from the papers:

- The initial state of every decoder is computed from the last states of both directions of the encoder.
- The encoders of Sutskever et al., Cho et al. and Luong et al. read in one direction; here all read in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.layers.checks import check_config, check_shared_width, resized_directions
from regard.layers.recurrent import KERNELS, Recurrent, padding_last
from regard.models.facts import Translates
from regard.models.recurrent_decoders import DECODERS, Encoded, EncoderDecoder, RecurrentState, check_source
from regard.scores import NOT_FOR_A_SOURCE, WINDOWS, check_score
from regard.taps import add_layer


@dataclass(frozen=True)
class Seq2SeqConfig(Translates):
    """A recurrent encoder–decoder."""

    input_embedding: ClassVar[str] = "encoder.embedding"
    longest_setting: ClassVar[str] = "capacity"
    layer_groups: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("encoder.embedding", "target_embedding"),
        ("encoder.rnn",),
        ("decoder", "bridge"),
        ("readout_",),
    )

    source_vocab: int = 0  # size of the source vocabulary; 0: taken from the source tokenizer
    target_vocab: int = 0  # size of the target vocabulary; 0: taken from the target tokenizer
    width: int = 256  # width of the recurrent states; each direction of the encoder has half of it
    embed: int = 128  # width of the token embeddings
    layers: int = 1  # number of recurrent layers of the encoder, and of the decoder
    cell: str = "gru"  # kind of recurrent cell: rnn, lstm or gru
    decoder: str = "bahdanau"  # where the context enters: once, every, bahdanau, luong or luong-feeding
    # how query and key are compared: dot, scaled_dot, general (multiplicative), additive (concat), cosine or location
    score: str = "additive"
    window: str = "none"  # Luong's local attention: none, local-m or local-p
    radius: int = 10  # source positions of the window on each side of its centre
    capacity: int = 256  # the longest source, in tokens
    dropout: float = 0.1  # dropout on embeddings, between layers and before the readout
    # no effect on outputs: for reading state.coverage from Python; the coverage penalty of a search does not need it
    coverage: bool = False
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the source embedding starts from

    def __post_init__(self) -> None:
        names: dict[str, Iterable[str]] = {"cell": KERNELS, "decoder": DECODERS, "window": WINDOWS}
        check_config(self, ("width", "embed", "layers", "capacity", "radius"), names)
        check_score(self.score, NOT_FOR_A_SOURCE)
        check_shared_width(self.width)
        if self.coverage and self.decoder in ("once", "every"):
            cure = "set model.decoder=bahdanau, luong or luong-feeding"
            raise UserError(f"model.coverage=true: model.decoder={self.decoder} has no attention to add up; {cure}")

    @property
    def longest(self) -> int:
        """The most tokens that the model reads."""
        return self.capacity

    @property
    def query(self) -> Literal["before", "state", "layer"]:
        """Bahdanau's decoder attends before the recurrence, Luong's after it."""
        return "before" if self.decoder == "bahdanau" else "state"

    def without_attention(self) -> Self:
        """The same model, whose decoder reads the source's last state once (Sutskever et al. 2014)."""
        return replace(self, decoder="once", coverage=False)

    def resized(self, width: int) -> Self:
        return resized_directions(self, width)

    def build(self) -> Seq2Seq:
        return Seq2Seq(self)


class RecurrentEncoder(nn.Module):
    """Reads a text: token embeddings, then a recurrent stack."""

    def __init__(self, embedding: nn.Embedding, rnn: Recurrent) -> None:
        super().__init__()
        self.embedding, self.rnn = embedding, rnn

    def forward(self, source: Tensor, real: Tensor | None = None) -> Encoded:
        """(B, Ts) tokens → the states of the last layer, and its state after the last token."""
        x = F.dropout(self.embedding(source), self.rnn.dropout, self.training)
        add_layer(x)
        states, last = self.rnn(x, real)
        return Encoded(states, last[:, -1], real)


class Seq2Seq(EncoderDecoder):
    """A recurrent encoder of a text, and one of the decoders above."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        embedding = nn.Embedding(config.source_vocab, config.embed, padding_idx=PAD)
        self.target_embedding = nn.Embedding(config.target_vocab, config.embed, padding_idx=PAD)
        rnn = Recurrent(config.cell, config.embed, config.width, config.layers, directions=2, dropout=config.dropout)
        self.encoder = RecurrentEncoder(embedding, rnn)
        self.add_decoder(config, DECODERS[config.decoder](config))

    def start(
        self, source: Tensor, source_real: Tensor | None = None, rows: int | None = None, capacity: int | None = None
    ) -> RecurrentState:
        """Reads the source (B, Ts): the state before the first target token.

        All decoders have these four arguments; `rows` is for models without a source, `capacity` for those with a KV
        cache. Padding may be anywhere. It is moved to the end, so that position j of the memory is the j-th token of a
        row, as scores and windows that depend on positions need.
        """
        check_source(source, self.config.capacity)
        return self.start_decoder(self.encoder(*padding_last(source, source_real)))
