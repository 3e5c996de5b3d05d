"""A body under a head: any model that gives features, with another output layer than its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

from torch import Tensor

from regard.config import Table
from regard.data.batches import Batch
from regard.models.facts import Model, SharesFacts, of_body


@dataclass(frozen=True)
class HeadedConfig(SharesFacts):
    """A body and the head that reads its features.

    The model is not causal, even if its body is: it reads a whole text and generates nothing.
    """

    causal: ClassVar[bool] = False

    body: Annotated[Any, Table("model")]  # the config of a model whose own output layers are left out
    head: Annotated[Any, Table("head")]

    width = of_body("width")
    filter_sizes = of_body("filter_sizes")
    segment_kinds = of_body("segment_kinds")
    position_rows = of_body("position_rows")
    direction = of_body("direction")
    reads_words = of_body("reads_words")

    @property
    def predicts(self) -> tuple[str, ...]:
        return (self.head.predicts,)

    @property
    def one_per_text(self) -> bool:
        return self.head.one_per_text

    @property
    def tag_sequences(self) -> bool:
        return self.head.tag_sequences

    @property
    def reads_encoder(self) -> bool:
        return self.head.reads_encoder and self.body.reads_source

    @property
    def threshold(self) -> float:
        return self.head.threshold

    @property
    def longest(self) -> int | None:
        limits = [limit for limit in (self.body.longest, self.head.longest) if limit is not None]
        return min(limits, default=None)

    @property
    def input_embedding(self) -> str:
        return f"body.{self.body.input_embedding}"

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return (*(tuple(f"body.{path}" for path in group) for group in self.body.layer_groups), ("head",))

    def resized(self, width: int) -> HeadedConfig:
        return replace(self, body=self.body.resized(width))

    def split(self) -> tuple[Any, Any]:
        return self.body.split()[0], self.head

    def with_sizes(self, sizes: Mapping[str, int], padded: bool = False) -> HeadedConfig:
        """The sizes of the fields that the head predicts are the head's alone; only vocabularies may be padded."""
        inputs = {name: size for name, size in sizes.items() if name not in self.head.sizes.values()}
        return HeadedConfig(self.body.with_sizes(inputs, padded), self.head.with_sizes(sizes))

    def with_names(self, names: Mapping[str, tuple[str, ...]]) -> HeadedConfig:
        return replace(self, head=self.head.with_names(names))

    def build(self) -> Headed:
        return Headed(self)


class Headed(Model):
    """A body without its own output layers, and a head."""

    def __init__(self, config: HeadedConfig) -> None:
        super().__init__()
        self.config = config
        self.body = config.body.build_body()
        self.head = config.head.build(config.body)
        if config.reads_encoder:
            self.body.decoder.requires_grad_(False)  # it is not run: no layer of it is one to train or to unfreeze

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The states (B, T, width) of the body at tokens (B, T)."""
        if self.config.reads_encoder:
            return self.body.encode(tokens, real)
        return self.body.features(tokens, real, segments, positions)

    def layers(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The states (B, T, D) of every layer of the body at tokens (B, T), the embeddings first."""
        return self.body.layers(tokens, real, segments, positions)

    def readout(self, features: Tensor, real: Tensor | None = None, texts: int = 1) -> Tensor:
        """The logits of the head, given the features (B · texts, T, width) of rows with so many texts each."""
        return self.head(features, real) if texts == 1 else self.head(features, real, texts)

    def forward(self, batch: Batch) -> Tensor:
        tokens, real, segments, texts = texts_of(batch)
        return self.readout(
            self.features(tokens, real, segments if self.config.segment_kinds > 1 else None), real, texts
        )


class Texts(NamedTuple):
    """The texts of a batch, of which each row may have several."""

    tokens: Tensor  # (B · texts, T)
    real: Tensor | None  # (B · texts, T); None: there is no padding
    segments: Tensor | None  # (B · texts, T)
    texts: int = 1  # texts of a row


def texts_of(batch: Batch) -> Texts:
    """The texts of a batch, row after row: its tokens (B, T), or, if a row has several texts, (B, T, texts).

    In that case `segments` (B, T, texts) are negative where a text has ended.
    """
    tokens, segments = batch["tokens"], batch.fields.get("segments")
    if segments is None or segments.dim() == 2:
        return Texts(tokens, batch.visible("tokens"), segments)
    places = segments.mT.flatten(0, 1)
    return Texts(tokens.mT.flatten(0, 1), places >= 0, places.clamp_min(0), tokens.shape[2])
