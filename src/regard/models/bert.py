"""Models that read a text in both directions at once: BERT, RoBERTa, ALBERT, ELECTRA, DistilBERT, XLM-R.

All are one encoder with different settings; ``SIZES`` in ``regard.models`` has the published ones. ``outputs`` names
the output layers:

========= =============================================================== ============================
output    what it predicts                                                from
========= =============================================================== ============================
masked    the token at each position                                      Devlin et al. 2019, §3.1
pooled    one vector for the text, from the state of its first token      Devlin et al. 2019
next      whether the second segment follows the first (or: their order)  Devlin 2019; Lan et al. 2020
replaced  whether a token was replaced by another model                   Clark et al. 2020
========= =============================================================== ============================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.config import format_value
from regard.data.batches import Batch
from regard.errors import UserError, nearest
from regard.heads import MaskedHead, ReplacedHead
from regard.layers.init import init_weights, mimetic_start, neighbour_embeddings, neighbour_heads
from regard.layers.product import Product
from regard.layers.tokens import TokenEmbedding, check_length, real_positions
from regard.layers.transformer import ACTIVATIONS, Shape, Stack
from regard.models.facts import Facts
from regard.models.layered import Layered

OUTPUTS = ("masked", "pooled", "next", "replaced")


@dataclass(frozen=True)
class BertConfig(Shape, Facts):
    """A Transformer that reads a text in both directions."""

    causal: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("masked", "replaced")
    input_embedding: ClassVar[str] = "embedding.tokens"
    takes_head: ClassVar[bool] = True
    finetunes: ClassVar[bool] = True
    first_weights: ClassVar[tuple[str, ...]] = ("initial", "mimetic", "neighbours")

    norm_place: str = "post"  # pre: before each sublayer, and after the last block; post: after each residual sum
    epsilon: float = 1e-12  # added to variances
    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    embed: int = 0  # width of the embeddings, if they are projected to the width of the states; 0: the same width
    segments: int = 2  # number of segment embeddings; 0: none
    embedding_norm: bool = True  # whether the embeddings are normalised, as in BERT; not in the encoder of T5
    first_position: int = 0  # the row of the position table for the first token of a text
    outputs: tuple[str, ...] = ("masked",)  # the output layers: masked, pooled, next, replaced
    tied: bool = True  # the masked output uses the token embeddings as its matrix
    head_activation: str = ""  # activation of the masked output; empty: that of the feed-forward layers
    initial: float | None = 0.02  # deviation of the initial weights; none: by the sizes of matrices (Glorot 2010)
    mimetic: bool = False  # the first layer starts by attending to equal tokens
    neighbours: bool = False  # two heads of the first layer start by attending to the tokens before and after
    mask: int = -1  # the id of the mask token, as a public checkpoint states it; -1: not stated
    specials: tuple[int, ...] = ()  # ids that are never masked, as a public checkpoint states them

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("vocab", "embed", "segments", "first_position"):
            if (size := getattr(self, field)) < 0:
                raise UserError(f"model.{field}={size}: must be at least 0")
        if self.initial is not None and not self.initial > 0:
            raise UserError(f"model.initial={self.initial}: must be above 0, or none")
        for name in self.outputs:
            if name not in OUTPUTS:
                raise UserError(f"model.outputs={','.join(self.outputs)}: no output {name}.{nearest(name, OUTPUTS)}")
        if "next" in self.outputs and "pooled" not in self.outputs:
            raise UserError(f"model.outputs={','.join(self.outputs)}: next needs pooled; add it")
        if self.head_activation and self.head_activation not in ACTIVATIONS:
            known = nearest(self.head_activation, ACTIVATIONS)
            raise UserError(f"model.head_activation={self.head_activation}: no such activation.{known}")
        if self.positions == "xl":
            raise UserError("model.positions=xl: works only for causal language models; use relative or t5")
        if self.neighbours:
            fits = {
                "positions": self.positions == "learned",
                "score": self.score == "scaled_dot",
                "heads": self.heads > 1,
                "embedding": not self.embedding,
                "embedding_norm": self.embedding_norm,
            }
            for name in (name for name, fit in fits.items() if not fit):
                found = f"model.{name}={format_value(getattr(self, name))}"
                raise UserError(f"{found}: does not fit model.neighbours=true; add model.neighbours=false")
        # What this model predicts; one without output layers can get that of masked tokens (`with_output`).
        predicted = tuple(name for name in type(self).predicts if name in self.outputs)
        object.__setattr__(self, "predicts", predicted or ("masked",))

    @property
    def segment_kinds(self) -> int:
        return self.segments

    @property
    def predicts_sentences(self) -> bool:
        return "next" in self.outputs

    @property
    def position_rows(self) -> int | None:
        return None if self.longest is None else self.longest + self.first_position

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return (("embedding",), *self.stack_groups("stack"), OUTPUTS)

    def with_output(self, name: str) -> BertConfig:
        return replace(self, outputs=tuple(each for each in OUTPUTS if each in (*self.outputs, name)))

    def build(self) -> Bert:
        return Bert(self)

    def build_body(self) -> Bert:
        return Bert(replace(self, outputs=()))


class Bert(Layered):
    """Embedding, encoder stack and output layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(
            config,
            config.vocab,
            config.embed,
            config.segments,
            norm=config.embedding_norm,
            offset=config.first_position,
        )
        self.stack = Stack(config, causal=False)
        width = config.embed or config.width
        self.masked = MaskedHead(config, width) if "masked" in config.outputs else None
        self.replaced = ReplacedHead(config) if "replaced" in config.outputs else None
        self.pooled = nn.Linear(config.width, config.width) if "pooled" in config.outputs else None
        self.next = nn.Linear(config.width, 2) if "next" in config.outputs else None
        init_weights(self, config.initial)
        if config.mimetic:
            mimetic_start(self.stack.layers[0].attention, self.embedding.segments)
        if config.neighbours:
            neighbour_embeddings(self.embedding)
            neighbour_heads(self.stack.layers[0].attention, width, self.embedding.project)

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The state of every token, (B, T) → (B, T, width). Padding may be on either side."""
        check_length(tokens, self.config.longest)
        if positions is None:
            positions = real_positions(tokens, real) + self.config.first_position
        return self.stack(self.embedding(tokens, positions, segments), real)

    def product(self, features: Tensor) -> Product:
        """The logits of masked tokens as an uncomputed matrix product."""
        if self.masked is None:
            have = ", ".join(self.config.outputs) or "states only"
            raise UserError(
                f"this model does not predict tokens (it has: {have}); load one with a masked-language head"
            )
        weight = self.embedding.tokens.weight if self.masked.weight is None else self.masked.weight
        return Product(self.masked(features), weight, self.masked.bias)

    def readout(self, features: Tensor) -> Tensor:
        """Logits of tokens (B, T, V); for a model that detects replaced tokens, one logit for each position (B, T)."""
        if self.replaced is not None and self.masked is None:
            return self.replaced(features)
        return self.product(features).logits()

    def pool(self, features: Tensor) -> Tensor:
        """One vector for each text: tanh(W · state of the first token)."""
        assert self.pooled is not None
        return torch.tanh(self.pooled(features[:, 0]))

    def follows(self, features: Tensor) -> Tensor:
        """Logits (B, 2) of a text of two parts: they stand as in the source (0), or not (1)."""
        assert self.next is not None
        return self.next(self.pool(features))

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V) of every position, given the whole text."""
        return self.readout(self.features(batch["tokens"], batch.visible("tokens")))
