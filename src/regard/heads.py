"""Heads: the output layers that read the features of a body, and the table HEADS of those that settings can name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import set_sizes
from regard.data.batches import Batch
from regard.errors import UserError
from regard.layers.crf import LinearChain
from regard.layers.init import init_weights
from regard.layers.transformer import ACTIVATIONS
from regard.mask import zero_padding
from regard.scores import at_least_float32

if TYPE_CHECKING:
    from regard.models.bert import BertConfig
    from regard.models.facts import Facts


Pool = Literal["auto", "first", "last", "mean", "max", "concat"]
Hidden = Literal["auto", "none", "tanh", "relu", "gelu"]
CONCAT = ("last", "max", "mean")  # what pool=concat joins (Howard & Ruder 2018, §3.3)


class HeadConfig(Protocol):
    """The settings of a head: a frozen dataclass. A config may inherit from this class to get the defaults.

    The module that `build` makes maps features (B, T, width) and `real` (B, T), or None, to logits. If each row of a
    batch has several texts, a third argument is their number, and the features are those of all texts, (B · texts, T,
    width).
    """

    predicts: ClassVar[str]  # what the head predicts: the `head` of the tasks that it serves
    sizes: ClassVar[Mapping[str, str]] = {}  # settings that follow from the data, and the field whose size each has
    one_per_text: ClassVar[bool] = False  # whether the head makes one prediction per text, and not one per token
    threshold: float = 0.5  # the probability from which a label is given, if the head predicts several
    longest: int | None = None  # the most tokens of a text that the head is for; None: as many as the body reads
    tag_sequences: ClassVar[bool] = False  # whether the module is one of `TagSequences`
    # whether it reads the states of the encoder, of a body with an encoder and a decoder, and not those of the decoder
    reads_encoder: ClassVar[bool] = False
    # Modules of a model without this head whose weights the head starts from: their paths, and those here.
    init_from: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        """Refuse a number of classes below 0, and a probability of dropout outside 0 … 1, of heads that have them."""
        if (labels := getattr(self, "labels", 0)) < 0:
            raise UserError(f"head.labels={labels}: must be at least 0")
        if not 0 <= (dropout := getattr(self, "dropout", 0.0)) < 1:
            raise UserError(f"head.dropout={dropout}: must be at least 0 and below 1")

    def for_body(self, body: Facts) -> Self:
        """The settings with the values that depend on the body filled in."""
        return self

    def with_sizes(self, sizes: Mapping[str, int], padded: bool = False) -> Self:
        """The settings with the sizes of the fields, see `regard.config.set_sizes`."""
        return set_sizes(self, self.sizes, sizes, padded, "head")

    def with_names(self, names: Mapping[str, tuple[str, ...]]) -> Self:
        """The settings with the names of the classes, by field, if the head needs them."""
        return self

    def build(self, body: Facts) -> Any:
        """The head of a body, with new weights."""


@dataclass(frozen=True, kw_only=True)
class PooledHeadConfig(HeadConfig):
    """Settings of a head that predicts once per text: pooling, a hidden layer (optional) and a linear layer."""

    one_per_text: ClassVar[bool] = True
    init_from: ClassVar[Mapping[str, str]] = {"pooled": "hidden"}  # BERT's pooler

    pool: Pool = "auto"  # state that is read, mean or max of all, concat: last, max and mean; auto: as suits the model
    # activation of a hidden layer; auto: gelu for ELECTRA, tanh for BERT and T5, none for others
    hidden: Hidden = "auto"
    inner: int = 0  # width of the hidden layer; 0: that of the pooled vector
    bias: bool | None = None  # whether the last layer has a bias; none: not if the body is causal
    dropout: float = 0.1  # dropout before the last layer

    def __post_init__(self) -> None:
        if self.inner < 0:
            raise UserError(f"head.inner={self.inner}: must be at least 0")
        super().__post_init__()

    def for_body(self, body: Facts) -> Self:
        hidden: Hidden = "tanh" if body.pooling == "first" or body.reads_source else "none"
        if "replaced" in body.predicts:
            hidden = "gelu"
        return replace(
            self,
            pool=body.pooling if self.pool == "auto" else self.pool,
            hidden=hidden if self.hidden == "auto" else self.hidden,
            bias=body.reads_source or not body.causal if self.bias is None else self.bias,
        )


class PooledHead(nn.Module):
    """Pooling, a hidden layer (optional), and a linear layer."""

    def __init__(self, config: PooledHeadConfig, width: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        width = pooled_width(config.pool, width)
        inner = width if config.hidden == "none" else config.inner or width
        self.hidden = None if config.hidden == "none" else nn.Linear(width, inner)
        self.out = nn.Linear(inner, outputs, bias=bool(config.bias))

    def forward(self, features: Tensor, real: Tensor | None = None, texts: int = 1) -> Tensor:
        """The states of texts (B · texts, T, width) → (B, outputs)"""
        return self.outputs(add_texts(pooled(features, real, self.config.pool), texts))

    def outputs(self, x: Tensor) -> Tensor:
        """Vectors of texts (N, width) → (N, outputs)"""
        if self.hidden is not None:
            x = ACTIVATIONS[self.config.hidden](self.hidden(x))
        return self.out(F.dropout(x, self.config.dropout, self.training))


@dataclass(frozen=True)
class ClassHeadConfig(PooledHeadConfig):
    """One class per text: the states are pooled to one vector, then a hidden layer (optional) and a linear layer.

    The automatic settings are those of the published classifiers: BERT's (Devlin et al. 2019) for a body that reads a
    text in both directions, GPT-2's for a causal body.
    """

    predicts: ClassVar[str] = "class"
    sizes: ClassVar[Mapping[str, str]] = {"labels": "label"}

    labels: int = 0  # number of classes; 0: taken from the data

    def build(self, body: Facts) -> PooledHead:
        head = PooledHead(self.for_body(body), body.width, self.labels)
        init_weights(head, 0.02)
        return head


def pooled(features: Tensor, real: Tensor | None, pool: str) -> Tensor:
    """One vector (B, width) for each text (B, T, width): its first or last real state, or their mean or maximum.

    The maximum is taken for each feature. ``concat`` joins three, (B, 3 · width). The vector of a text without tokens
    is 0.
    """
    if pool == "concat":
        return torch.cat([pooled(features, real, part) for part in CONCAT], -1)
    if real is None:
        real = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
    if pool == "mean":
        return zero_padding(features, real).sum(1) / real.sum(1, keepdim=True).clamp(min=1).to(features.dtype)
    if pool == "max":
        return features.masked_fill(~real[..., None], -math.inf).amax(1).masked_fill(~real.any(1, keepdim=True), 0.0)
    last = real.shape[1] - 1 - real.flip(1).int().argmax(1)
    places = real.int().argmax(1) if pool == "first" else last
    found = features.take_along_dim(places[:, None, None], dim=1).squeeze(1)
    return found.masked_fill(~real.any(1, keepdim=True), 0.0)


def add_texts(vectors: Tensor, texts: int) -> Tensor:
    """The vectors of the texts of each row, added: (B · texts, width) → (B, width).

    GPT reads the two orders of a pair in this way (Radford et al. 2018, §3.3).
    """
    return vectors if texts == 1 else vectors.unflatten(0, (-1, texts)).sum(1)


def pooled_width(pool: str, width: int) -> int:
    """The width of the vector that ``pooled`` makes of states of a width."""
    return len(CONCAT) * width if pool == "concat" else width


@dataclass(frozen=True)
class VectorHeadConfig(HeadConfig):
    """One vector per text, without weights: the states are pooled as `regard embed` does (Reimers & Gurevych 2019).

    Of a T5, these are the states of its encoder (Ni et al. 2022, Sentence-T5).
    """

    predicts: ClassVar[str] = "vector"
    one_per_text: ClassVar[bool] = True
    reads_encoder: ClassVar[bool] = True

    pool: Literal["mean", "max", "first", "last"] = "mean"  # mean or max of all states, or the state that is read
    normalise: bool = True  # whether vectors have length 1
    longest: int | None = None  # the most tokens of a text, special tokens included; none: as many as the model reads

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < 1:
            raise UserError(f"head.longest={self.longest}: must be at least 1, or none")

    def for_body(self, body: Facts) -> Self:
        if self.pool == "first" and body.causal and not body.reads_source:
            raise UserError("head.pool=first: the first state of a causal model has read one token; use mean or last.")
        return self

    def build(self, body: Facts) -> VectorHead:
        return VectorHead(self)


class VectorHead(nn.Module):
    """Pooling, and a normalisation (optional)."""

    def __init__(self, config: VectorHeadConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """The states of texts (B, T, width) → vectors (B, width)"""
        return text_vectors(features, real, self.config.pool, self.config.normalise)


def text_vectors(states: Tensor, real: Tensor | None, pool: str, normalise: bool) -> Tensor:
    """The vector (B, width) of each text (B, T, width), in float32 or better: `pooled`, with length 1 if normalised."""
    vectors = pooled(at_least_float32(states), real, pool)
    return F.normalize(vectors, dim=-1) if normalise else vectors


@dataclass(frozen=True)
class ChoiceHeadConfig(PooledHeadConfig):
    """One logit for each of several texts, of which one is right: the layers of a class head with one output."""

    predicts: ClassVar[str] = "choice"

    bias: bool | None = True  # whether the last layer has a bias

    def build(self, body: Facts) -> ChoiceHead:
        head = ChoiceHead(self.for_body(body), body.width, 1)
        init_weights(head, 0.02)
        return head


class ChoiceHead(PooledHead):
    """A pooled head with one output for each text, so that there may be any number of choices."""

    def forward(self, features: Tensor, real: Tensor | None = None, texts: int = 1) -> Tensor:
        """The states of texts (B · texts, T, width) → the logit of each text of a row, (B, texts)"""
        return self.outputs(pooled(features, real, self.config.pool)).reshape(-1, texts)


@dataclass(frozen=True)
class NumberHeadConfig(PooledHeadConfig):
    """One number per text or sequence: the states are pooled, then a hidden layer (optional) and a linear layer."""

    predicts: ClassVar[str] = "number"

    bias: bool | None = True  # whether the last layer has a bias
    dropout: float = 0.0  # dropout before the last layer

    def build(self, body: Facts) -> NumberHead:
        return NumberHead(self.for_body(body), body.width)


@dataclass(frozen=True)
class LabelsHeadConfig(PooledHeadConfig):
    """Several independent labels per text: the states are pooled, then a hidden layer (optional) and a linear layer.

    The sigmoid of an output is the probability of a label; the text has the labels whose probability is high enough.
    """

    predicts: ClassVar[str] = "labels"
    sizes: ClassVar[Mapping[str, str]] = {"labels": "labels"}

    labels: int = 0  # number of labels; 0: taken from the data
    threshold: float = 0.5  # the probability from which a label is given

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold < 1:
            raise UserError(f"head.threshold={self.threshold}: must be between 0 and 1")

    def build(self, body: Facts) -> PooledHead:
        return PooledHead(self.for_body(body), body.width, self.labels)


class NumberHead(PooledHead):
    """A pooled head with one output, which is multiplied by a deviation and added to a mean.

    Both are those of the training numbers, so that a model learns numbers of any size: prices as well as ratings.
    """

    statistics: Tensor

    def __init__(self, config: PooledHeadConfig, width: int) -> None:
        super().__init__(config, width, 1)
        self.register_buffer("statistics", torch.zeros(3))  # count, mean, sum of the squared differences from the mean

    def count_batch(self, batch: Batch) -> None:
        """Add the targets, which are numbers, to the statistics (Chan et al. 1979); NaN does not count."""
        targets = batch["targets"]
        found = targets[~targets.isnan()].double().to(self.statistics.device)
        if len(found):
            count, mean, squares = self.statistics.double()
            shift, total = found.mean() - mean, count + len(found)
            squares = squares + (found - found.mean()).square().sum() + shift.square() * count * len(found) / total
            self.statistics = torch.stack([total, mean + shift * len(found) / total, squares]).to(self.statistics)

    def _apply(self, function: Any, recurse: bool = True) -> Self:
        """The statistics stay in float32 when the weights are converted: a mean of 1234 is 1232 in bfloat16."""
        statistics = self.statistics
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        self.statistics = statistics.to(self.statistics.device)
        return self

    def forward(self, features: Tensor, real: Tensor | None = None, texts: int = 1) -> Tensor:
        """The states of texts (B · texts, T, width) → numbers (B,)"""
        mean, deviation = self.mean_and_deviation()
        return mean + deviation * at_least_float32(super().forward(features, real, texts).squeeze(-1))

    def mean_and_deviation(self) -> tuple[Tensor, Tensor]:
        """Those of the training numbers; 0 and 1 if there are none, as in a public checkpoint."""
        count, mean, squares = self.statistics
        return mean, torch.where(squares > 0, squares / count.clamp_min(1), 1.0).sqrt()


@dataclass(frozen=True)
class TagHeadConfig(HeadConfig):
    """One class for each place of a text or sequence: a linear layer."""

    predicts: ClassVar[str] = "tag"
    sizes: ClassVar[Mapping[str, str]] = {"labels": "tags"}

    labels: int = 0  # number of classes; 0: taken from the data
    dropout: float = 0.0  # dropout before the linear layer

    def build(self, body: Facts) -> PlaceHead:
        return PlaceHead(body.width, self.labels, self.dropout)


class TagSequences(Protocol):
    """A head whose tags depend on one another: its logits score whole sequences (`HeadConfig.tag_sequences`)."""

    def log_probability(self, emissions: Tensor, allowed: Tensor, real: Tensor | None = None) -> Tensor:
        """The log-probability (B,) that the tag of every place is one of those `allowed` (B, T, L) there."""

    def entity_log_probability(
        self, emissions: Tensor, tags: Tensor, spans: Tensor, real: Tensor | None = None
    ) -> Tensor:
        """The log-probability (N,) of entities `spans` (N, 3), see `regard.layers.crf.LinearChain`."""

    def best(self, emissions: Tensor, real: Tensor | None = None) -> Tensor:
        """The tags (B, T) of the best sequence; those of padding are arbitrary."""


def tag_sequences(model: Any) -> TagSequences | None:
    """The head of a model if it is one of `TagSequences`; None: the tag of each place has logits of its own."""
    return model.head if model.config.tag_sequences else None


def best_tags(model: Any, logits: Tensor, real: Tensor | None) -> Tensor:
    """The best tags (B, T) for the logits (B, T, L) of a model: those of the best sequence, or of each place."""
    chain = tag_sequences(model)
    return logits.argmax(-1) if chain is None else chain.best(logits, real)


@dataclass(frozen=True)
class CrfHeadConfig(HeadConfig):
    """One class for each place of a text: a linear layer, and a conditional random field over the classes.

    If the classes are the tags of a scheme, such as B-PER and I-PER, predictions are legal in that scheme.
    """

    predicts: ClassVar[str] = "tag"
    tag_sequences: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = {"labels": "tags"}

    labels: int = 0  # number of classes; 0: taken from the data
    names: tuple[str, ...] = ()  # the names of the classes; empty: taken from the data
    dropout: float = 0.0  # dropout before the linear layer

    def __post_init__(self) -> None:
        if self.labels < 0 or (self.names and len(self.names) != self.labels):
            raise UserError(f"head.labels={self.labels}: follows from the data; leave it, and head.names, out.")
        super().__post_init__()

    def with_names(self, names: Mapping[str, tuple[str, ...]]) -> Self:
        return replace(self, names=names.get("tags", self.names))

    def build(self, body: Facts) -> CrfHead:
        return CrfHead(self, body.width)


class CrfHead(LinearChain):
    """A linear layer at each place, whose outputs are the emissions of a conditional random field."""

    def __init__(self, config: CrfHeadConfig, width: int) -> None:
        super().__init__(config.labels, config.names)
        self.out, self.dropout = nn.Linear(width, config.labels), config.dropout

    def forward(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """The states (B, T, width) → emissions (B, T, labels)"""
        return self.out(F.dropout(features, self.dropout, self.training))


@dataclass(frozen=True)
class KeysHeadConfig(HeadConfig):
    """Several independent yes-or-no answers at each place, such as which keys of a piano sound: a linear layer."""

    predicts: ClassVar[str] = "keys"
    sizes: ClassVar[Mapping[str, str]] = {"keys": "keys"}

    keys: int = 0  # number of answers at each place; 0: taken from the data
    dropout: float = 0.0  # dropout before the linear layer

    def build(self, body: Facts) -> PlaceHead:
        return PlaceHead(body.width, self.keys, self.dropout)


@dataclass(frozen=True)
class SpanHeadConfig(HeadConfig):
    """The first and the last token of an answer in a passage: a linear layer with two outputs at each place.

    Which places may be chosen is decided by the objective and by the verb (Devlin et al. 2019, §4.2).
    """

    predicts: ClassVar[str] = "span"

    dropout: float = 0.0  # dropout before the linear layer

    def build(self, body: Facts) -> PlaceHead:
        return PlaceHead(body.width, 2, self.dropout)


class PlaceHead(nn.Module):
    """A linear layer at each place."""

    def __init__(self, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.out, self.dropout = nn.Linear(width, outputs), dropout

    def forward(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """The states (B, T, width) → logits (B, T, outputs)"""
        return self.out(F.dropout(features, self.dropout, self.training))


class MaskedHead(nn.Module):
    """Transforms a state to the width of the embeddings; logits are its product with the embedding matrix."""

    def __init__(self, config: BertConfig, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, width)
        self.activation = ACTIVATIONS[config.head_activation or config.activation]
        self.norm = nn.LayerNorm(width, eps=config.epsilon)
        self.weight = None if config.tied else nn.Parameter(torch.empty(config.vocab, width))
        self.bias = nn.Parameter(torch.zeros(config.vocab))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=0.02)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(features)))


class ReplacedHead(nn.Module):
    """One logit for each position: whether its token was replaced."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.out = nn.Linear(config.width, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(features))).squeeze(-1)


HEADS: dict[str, type[HeadConfig]] = {
    "class": ClassHeadConfig,
    "choice": ChoiceHeadConfig,
    "number": NumberHeadConfig,
    "vector": VectorHeadConfig,
    "labels": LabelsHeadConfig,
    "tag": TagHeadConfig,
    "crf": CrfHeadConfig,
    "keys": KeysHeadConfig,
    "span": SpanHeadConfig,
}
