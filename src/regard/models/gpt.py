"""Language models that read from left to right: GPT, GPT-2, GPT-3 and Transformer-XL.

One model; the family is in the settings. ``SIZES`` in ``regard.models`` has the published ones.

================== ========= ============== ==============================================================
model              norm      positions      what was new
================== ========= ============== ==============================================================
GPT (2018)         post      learned        pre-train on text, fine-tune on tasks
GPT-2 (2019)       pre       learned        bytes in, no fine-tuning
GPT-3 (2020)       pre       learned        every second layer sees a window only
Transformer-XL     post      xl             a memory of earlier segments; distances instead of positions
================== ========= ============== ==============================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.errors import UserError, nearest
from regard.layers.adaptive import AdaptiveEmbedding, AdaptiveSoftmax, Clustered, Clusters
from regard.layers.init import init_weights
from regard.layers.kv_cache import KVCache
from regard.layers.product import Product
from regard.layers.segment_memory import SegmentMemory
from regard.layers.tokens import TokenEmbedding, check_capacity, check_length
from regard.layers.transformer import Shape, Stack
from regard.scores import Score, XLRelative

SOFTMAXES = ("plain", "adaptive")


@dataclass(frozen=True)
class GptConfig(Shape):
    """A Transformer that says what comes next."""

    causal: ClassVar[bool] = True
    reads_source: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("next",)

    vocab: int = 0  # 0: taken from the tokenizer
    tied: bool = True  # the readout is the token embedding
    scaled: bool = False  # token vectors are multiplied by √width
    memory: int = 0  # xl: how many tokens before a segment are remembered; 0: all, as by other models
    memory_zeros: bool = False  # xl: the memory starts full of zeros, which are looked at, instead of empty
    clamp: int = 0  # xl: distances beyond this one are alike; 0: none are
    shared_biases: bool = False  # xl: what any query asks of contents and distances is the same in all layers
    softmax: str = "plain"  # or adaptive: tokens in clusters, from frequent to rare; logits are log-probabilities
    cutoffs: tuple[int, ...] = ()  # adaptive: the first token of every further cluster
    divide: int = 1  # adaptive: each cluster's vectors are so many times narrower than those of the one before
    embed: int = 0  # adaptive: the width of the vectors of the first cluster; 0: that of the states
    projections: tuple[int, ...] = ()  # adaptive: clusters (0, 1, …) whose readout has a projection of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("memory", "memory_zeros", "clamp", "shared_biases"):
            if (value := getattr(self, field)) and self.positions != "xl":
                raise UserError(f"model.{field}={value}: goes with model.positions=xl, only")
        if min(self.memory, self.clamp) < 0:
            raise UserError(f"model.memory={self.memory}, model.clamp={self.clamp}: must be at least 0")
        if self.memory_zeros and not self.memory:
            raise UserError("model.memory_zeros=True: there is no memory to be full of them; set model.memory")
        if self.softmax not in SOFTMAXES:
            raise UserError(f"model.softmax={self.softmax}: no such softmax.{nearest(self.softmax, SOFTMAXES)}")
        if self.softmax == "adaptive":
            self._check_clusters()
        elif self.cutoffs or self.divide != 1 or self.embed or self.projections:
            raise UserError("model.cutoffs, divide, embed and projections go with model.softmax=adaptive, only")

    def _check_clusters(self) -> None:
        ends = (0, *self.cutoffs, *([self.vocab] if self.vocab else []))
        if any(start >= end for start, end in pairwise(ends)):
            cutoffs = ",".join(map(str, self.cutoffs))
            raise UserError(
                f"model.cutoffs={cutoffs}: must rise, from at least 1 to less than model.vocab={self.vocab}"
            )
        if self.divide < 1 or min(self.clusters.widths) < 1:
            narrowest = f"the last of {len(self.cutoffs) + 1} clusters must be left a width of at least 1"
            raise UserError(f"model.divide={self.divide}: {narrowest}; change it, or model.embed")
        if self.projections and not 0 <= min(self.projections) <= max(self.projections) <= len(self.cutoffs):
            raise UserError(f"model.projections={self.projections}: clusters are numbered 0 to {len(self.cutoffs)}")

    @property
    def clusters(self) -> Clusters:
        """Of an adaptive softmax, and of the embedding with it."""
        return Clusters(self.vocab, self.width, self.embed or self.width, self.cutoffs, self.divide)

    def self_score(self) -> Score:
        if self.positions == "xl":
            return XLRelative(self.heads, self.head, self.width, self.clamp or None)
        return super().self_score()

    def build(self) -> Gpt:
        return Gpt(self)


class Gpt(nn.Module):
    """Embedding, causal stack, readout. ``advance`` reads any number of tokens: a prompt and a step are one method."""

    task = "language"

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        adaptive = config.softmax == "adaptive"
        self.embedding = TokenEmbedding(
            config,
            config.vocab,
            scale=sqrt(config.width) if config.scaled else 1.0,
            tokens=AdaptiveEmbedding(config.clusters) if adaptive else None,
        )
        self.stack = Stack(config, causal=True)
        self.readout_: AdaptiveSoftmax | nn.Linear | None = None
        if adaptive:
            self.readout_ = AdaptiveSoftmax(config.clusters, config.tied, config.projections)
        elif not config.tied:
            self.readout_ = nn.Linear(config.width, config.vocab, bias=False)
        init_weights(self, 0.02)
        if config.shared_biases:
            _share_biases(self.stack)

    def start(
        self,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        rows: int | None = None,
        capacity: int | None = None,
    ) -> KVCache | SegmentMemory:
        """The state before the first token, with room for ``capacity`` of them. Every decoder starts so."""
        if not self.config.memory:
            return KVCache(rows or 1, check_capacity(capacity, self.config.context, self.config.longest))
        if not self.config.memory_zeros:
            return SegmentMemory(self.config.memory)
        return self.stack.remembering_zeros(rows or 1, self.config.memory)

    def advance(
        self,
        tokens: Tensor,
        state: KVCache | SegmentMemory,
        real: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, KVCache | SegmentMemory]:
        """Reads tokens (R, T): features (R, T, width) and the state after them. Padding may stand on either side."""
        check_length(tokens, self.config.longest)
        tokens = state.fold(tokens)
        places = state.positions(tokens, real) if positions is None else positions
        features, state = self.stack.advance(self.embedding(tokens, places), state, real)
        return state.unfold(features), state

    def product(self, features: Tensor) -> Product | Clustered:
        """The readout, its products not yet made."""
        if isinstance(self.readout_, AdaptiveSoftmax):
            return self.readout_(features, self.embedding.tokens)
        return Product(features, self.embedding.tokens.weight if self.readout_ is None else self.readout_.weight)

    def readout(self, features: Tensor) -> Tensor:
        product = self.product(features)
        return F.linear(*product) if isinstance(product, Product) else product.log_probs()

    def preallocate(self, state: KVCache | SegmentMemory, steps: int = 1) -> KVCache | SegmentMemory:
        """The state in the shape that it has in all the steps to come, so that they can be captured."""
        return self.stack.preallocate(state, steps)

    def step(self, tokens: Tensor, state: KVCache | SegmentMemory) -> tuple[Tensor, KVCache | SegmentMemory]:
        features, state = self.advance(tokens[:, None], state)
        return self.readout(features[:, 0]), state

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V) of every position, given the tokens before it."""
        rows, length = batch.tokens.shape
        features, _ = self.advance(batch.tokens, self.start(rows=rows, capacity=length))
        return self.readout(features)


def _share_biases(stack: Stack) -> None:
    """Let the first layer's u and v of Dai et al. 2019 be those of all."""
    first, *others = (block.attention.read.score for block in stack.layers)
    for score in others:
        score.content, score.position = first.content, first.position
