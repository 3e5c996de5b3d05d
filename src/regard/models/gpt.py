"""Language models that read from left to right: GPT, GPT-2, GPT-3 and Transformer-XL.

All are one model with different settings; ``SIZES`` in ``regard.models`` has the published ones.

================== ========= ============== ==============================================================
model              norm      positions      what was new
================== ========= ============== ==============================================================
GPT (2018)         post      learned        pre-train on text, fine-tune on tasks
GPT-2 (2019)       pre       learned        byte-level tokens, no fine-tuning
GPT-3 (2020)       pre       learned        every second layer attends to a window only
Transformer-XL     post      xl             a memory of earlier segments; distances instead of positions
================== ========= ============== ==============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from torch import Tensor, nn

from regard.data.example import Direction
from regard.errors import UserError
from regard.layers.adaptive import AdaptiveEmbedding, AdaptiveSoftmax, Clustered, Clusters
from regard.layers.checks import check_inputs, check_softmax
from regard.layers.init import init_weights
from regard.layers.kv_cache import KVCache
from regard.layers.product import Product
from regard.layers.segment_memory import SegmentStates
from regard.layers.tokens import TokenEmbedding, check_capacity, check_length, input_layer
from regard.layers.transformer import Shape, Stack
from regard.models.causal import LanguageModel
from regard.models.directions import Directed
from regard.models.facts import TEXT_OR_NUMBERS
from regard.scores import Score, XLRelative

State = KVCache | SegmentStates


@dataclass(frozen=True)
class GptConfig(Shape, Directed):
    """A causal Transformer that predicts the next token."""

    parallel: ClassVar[bool] = True
    input_embedding: ClassVar[str] = "embedding.tokens"
    embedding_width: ClassVar[str] = "width"
    takes_head: ClassVar[bool] = True
    finetunes: ClassVar[bool] = True
    takes_numbers: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = TEXT_OR_NUMBERS

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    tied: bool = True  # the output layer uses the token embeddings as its matrix
    scaled: bool = False  # token embeddings are multiplied by √width
    memory: int = 0  # xl: how many tokens before a segment are in the memory; 0: an ordinary KV cache
    clamp: int = 0  # xl: distances beyond this one are treated alike; 0: no limit
    shared_biases: bool = False  # xl: all layers share the biases u and v
    softmax: str = "plain"  # plain, or adaptive: tokens in clusters from frequent to rare; gives log-probabilities
    cutoffs: tuple[int, ...] = ()  # adaptive: the first token of each cluster after the first
    divide: int = 1  # adaptive: the width of the vectors is divided by this from one cluster to the next
    embed: int = 0  # adaptive: width of the vectors of the first cluster; 0: the width of the states
    projections: tuple[int, ...] = ()  # adaptive: clusters (0, 1, …) whose output has its own projection
    numbers: int = 0  # numbers of a step that are read instead of a token; 0: taken from the data
    direction: Direction = "forward"  # how the text is read: forward, backward (from its end), or both by two models

    def __post_init__(self) -> None:
        super().__post_init__()
        check_inputs(self)
        for field in ("memory", "clamp", "shared_biases"):
            if (value := getattr(self, field)) and self.positions != "xl":
                raise UserError(f"model.{field}={value}: needs model.positions=xl")
        if min(self.memory, self.clamp) < 0:
            raise UserError(f"model.memory={self.memory}, model.clamp={self.clamp}: must be at least 0")
        check_softmax(self, self.clusters)
        if self.softmax == "plain" and (self.embed or self.projections):
            raise UserError("model.cutoffs, divide, embed and projections need model.softmax=adaptive")
        if self.projections and not 0 <= min(self.projections) <= max(self.projections) <= len(self.cutoffs):
            raise UserError(f"model.projections={self.projections}: clusters are numbered 0 to {len(self.cutoffs)}")

    @property
    def clusters(self) -> Clusters:
        """The clusters of the adaptive softmax and embedding."""
        return Clusters(self.vocab, self.width, self.embed or self.width, self.cutoffs, self.divide)

    def self_score(self) -> Score:
        if self.positions == "xl":
            return XLRelative(self.heads, self.head, self.width, self.clamp or None)
        return super().self_score()

    @property
    def embedding_scale(self) -> float:
        return sqrt(self.width) if self.scaled else 1.0

    @property
    def takes_padding(self) -> bool:
        """Transformer-XL computes distances, and every token of its memory counts."""
        return self.positions != "xl"

    @property
    def takes_positions(self) -> bool:
        return self.takes_padding

    @property
    def carries(self) -> bool:
        """Transformer-XL carries the hidden states of the last ``memory`` tokens."""
        return self.memory > 0

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return (("embedding",), *self.stack_groups("stack"), ("readout_",))

    def build(self) -> Gpt:
        return Gpt(self)

    def build_body(self) -> Gpt:
        return Gpt(self, readout=False)


class Gpt(LanguageModel):
    """Embedding, causal stack, output layer. ``advance`` reads any number of tokens: a whole prompt, or one step.

    Without ``readout`` it is a body: it has no weights of an output layer.
    """

    def __init__(self, config: GptConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        adaptive = config.softmax == "adaptive"
        self.embedding = TokenEmbedding(
            config,
            config.vocab,
            scale=config.embedding_scale,
            tokens=AdaptiveEmbedding(config.clusters)
            if adaptive
            else input_layer(config.vocab, config.numbers, config.width),
        )
        self.stack = Stack(config, causal=True)
        self.readout_: AdaptiveSoftmax | nn.Linear | None = None
        if adaptive and readout:
            self.readout_ = AdaptiveSoftmax(config.clusters, config.tied, config.projections)
        elif readout and not config.tied:
            self.readout_ = nn.Linear(config.width, config.vocab, bias=False)
        init_weights(self, 0.02)
        if config.shared_biases:  # all layers use the first layer's biases u and v of Dai et al. 2019
            first, *others = (block.attention.read.score for block in self.stack.layers)
            for score in others:
                score.content, score.position = first.content, first.position

    def initial(self, rows: int, capacity: int | None = None) -> KVCache:
        """The state before the first token, with a capacity in tokens."""
        capacity = check_capacity(capacity, self.config.context, self.config.longest)
        return KVCache(rows, capacity, memory=self.config.memory)

    def start_segments(self, rows: int) -> SegmentStates:
        """Transformer-XL's memory of hidden states before the first segment of training, which is empty."""
        empty = next(self.parameters()).new_empty(rows, 0, self.config.width)
        return SegmentStates(self.config.memory, (empty,) * len(self.stack.layers))

    def advance(
        self,
        tokens: Tensor,
        state: State,
        real: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Reads tokens (R, T): features (R, T, width) and the state after them. Padding may be on either side."""
        check_length(tokens, self.config.longest)
        if real is not None and self.config.memory:
            cure = "read texts of equal length together"
            raise UserError(f"real: Transformer-XL's memory does not support padding; {cure}")
        tokens = state.merge_beams(tokens)
        if positions is None:
            positions = state.positions(tokens, real)
        x = self.embedding(tokens, positions)
        if isinstance(state, SegmentStates):
            return self.stack.advance_segment(x, state)
        features, state = self.stack.advance(x, state, real)
        return state.split_beams(features), state

    def product(self, features: Tensor) -> Product | Clustered:
        """The logits as uncomputed matrix products."""
        if isinstance(self.readout_, AdaptiveSoftmax):
            return self.readout_(features, self.embedding.tokens)
        return Product(features, self.embedding.tokens.weight if self.readout_ is None else self.readout_.weight)

    def preallocate(self, state: KVCache, steps: int = 1) -> KVCache:
        """The state with a shape that does not change in the next ``steps`` steps, so that they can be captured."""
        return self.stack.preallocate(state, steps)
