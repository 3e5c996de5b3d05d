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
from math import sqrt

from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.errors import UserError
from regard.layers.past import Past, Segments
from regard.layers.product import Product
from regard.layers.tokens import TokenEmbedding, check_length
from regard.layers.transformer import Shape, Stack, start_weights


@dataclass(frozen=True)
class GptConfig(Shape):
    """A Transformer that says what comes next."""

    vocab: int = 0  # 0: taken from the tokenizer
    tied: bool = True  # the readout is the token embedding
    scaled: bool = False  # token vectors are multiplied by √width
    memory: int = 0  # xl: how many tokens before a segment are remembered
    memory_zeros: bool = False  # xl: the memory starts full of zeros, which are looked at, instead of empty

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.memory > 0) != (self.positions == "xl"):
            raise UserError(f"model.memory={self.memory}: a memory of segments goes with model.positions=xl, only")

    @property
    def longest(self) -> int | None:
        """The most tokens that the model reads; any number where positions are relative and memory is bounded."""
        return None if self.positions == "xl" else self.context

    def build(self) -> Gpt:
        return Gpt(self)


class Gpt(nn.Module):
    """Embedding, causal stack, readout. ``advance`` reads any number of tokens: a prompt and a step are one method."""

    task = "language"

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config, config.vocab, scale=sqrt(config.width) if config.scaled else 1.0)
        self.stack = Stack(config, causal=True)
        self.readout_ = None if config.tied else nn.Linear(config.width, config.vocab, bias=False)
        start_weights(self, 0.02, config.layers)

    def start(
        self,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        rows: int | None = None,
        capacity: int | None = None,
    ) -> Past | Segments:
        """The state before the first token, with room for ``capacity`` of them. Every decoder starts so."""
        if self.config.positions != "xl":
            return Past(rows or 1, capacity or self.config.context)
        if not self.config.memory_zeros:
            return Segments(self.config.memory)
        return self.stack.remembering_zeros(rows or 1, self.config.memory, self.embedding.tokens.weight)

    def advance(
        self, tokens: Tensor, state: Past | Segments, real: Tensor | None = None, positions: Tensor | None = None
    ) -> tuple[Tensor, Past | Segments]:
        """Reads tokens (R, T): features (R, T, width) and the state after them. Padding may stand on either side."""
        if self.config.longest is not None:
            check_length(tokens, self.config.longest)
        tokens = state.fold(tokens)
        places = state.positions(tokens, real) if positions is None else positions
        features, state = self.stack.advance(self.embedding(tokens, places), state, real)
        return state.unfold(features), state

    def product(self, features: Tensor) -> Product:
        """The readout, its product not yet made."""
        weight = self.embedding.tokens.weight if self.readout_ is None else self.readout_.weight
        return Product(features, weight, None)

    def readout(self, features: Tensor) -> Tensor:
        return F.linear(*self.product(features))

    def step(self, tokens: Tensor, state: Past | Segments) -> tuple[Tensor, Past | Segments]:
        features, state = self.advance(tokens[:, None], state)
        return self.readout(features[:, 0]), state

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V) of every position, given the tokens before it."""
        rows, length = batch.tokens.shape
        features, _ = self.advance(batch.tokens, self.start(rows=rows, capacity=length))
        return self.readout(features)
