"""The Transformer: an encoder, and a decoder that attends to it (Vaswani et al. 2017). Marian and T5 are settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import lcm, sqrt
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Memory
from regard.errors import UserError, nearest
from regard.layers.checks import refuse
from regard.layers.init import copy_start, init_weights
from regard.layers.kv_cache import KVCache
from regard.layers.product import Product
from regard.layers.tokens import TokenEmbedding, check_capacity, check_length, real_positions
from regard.layers.transformer import Shape, Stack, resized_widths, scaled_inner
from regard.mask import EVERYTHING, Mask
from regard.models.causal import Causal, causal_features
from regard.models.facts import Translates
from regard.taps import collected_layers

SHARED = ("all", "sides", "target", "none")


@dataclass(frozen=True)
class TransformerConfig(Shape, Translates):
    """A Transformer that reads a source and generates a target."""

    takes_padding: ClassVar[bool] = True
    takes_positions: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    embedding_width: ClassVar[str] = "width"
    first_weights: ClassVar[tuple[str, ...]] = ("copies",)

    source_vocab: int = 0  # size of the source vocabulary; 0: taken from the source tokenizer
    target_vocab: int = 0  # size of the target vocabulary; 0: taken from the target tokenizer
    positions: str = "sinusoidal"  # kind of positions: none, sinusoidal, sinusoidal-halves, learned, t5 or relative
    activation: str = "relu"  # function in the feed-forward layers: relu, gelu, gelu-tanh, gelu-sigmoid, silu or tanh
    decoder_layers: int = 0  # number of blocks of the decoder; 0: as many as the encoder has
    decoder_heads: int = 0  # number of heads of each attention of the decoder; 0: as many as the encoder has
    decoder_inner: int = 0  # width inside the feed-forward layers of the decoder; 0: that of the encoder
    # the embeddings that share one matrix: target (target, output), sides (source, target), all or none
    shared: str = "target"
    scaled: bool = True  # token embeddings are multiplied by √width
    readout_bias: bool = False  # whether the output layer has a bias
    copies: bool = False  # the decoder starts by predicting the tokens of the source that it attends to
    readout_scale: float = 1.0  # the last states are multiplied by this before the output layer; 0: by 1 / √width

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared not in SHARED:
            raise UserError(f"model.shared={self.shared}: no such choice.{nearest(self.shared, SHARED)}")
        if self.positions == "xl":
            raise UserError("model.positions=xl: works only for language models; use relative or t5")
        for field in ("decoder_layers", "decoder_heads", "decoder_inner"):
            if (size := getattr(self, field)) < 0:
                raise UserError(f"model.{field}={size}: must be at least 0")
        if not self.head_width and self.width % (self.decoder_heads or self.heads):
            heads, cure = f"model.decoder_heads={self.decoder_heads}", "change one of them, or set model.head_width"
            raise UserError(f"{heads}: model.width={self.width} is not a multiple of it; {cure}")
        if self.shared in ("all", "sides") and self.source_vocab != self.target_vocab:
            sizes = f"model.source_vocab={self.source_vocab} and model.target_vocab={self.target_vocab}"
            cure = "set data.joint=true, or model.shared=target"
            raise UserError(f"model.shared={self.shared}: needs one vocabulary, not {sizes}; {cure}")
        if self.copies:
            for name, fit in (("positions", "t5"), ("shared", "all")):
                if (found := getattr(self, name)) != fit:
                    cure = f"set model.{name}={fit}, or model.copies=false"
                    raise UserError(f"model.{name}={found}: does not fit model.copies=true; {cure}")

    @property
    def decoder(self) -> Shape:
        """The decoder's shape."""
        return replace(
            self,
            layers=self.decoder_layers or self.layers,
            heads=self.decoder_heads or self.heads,
            inner=self.decoder_inner or self.inner,
        )

    @property
    def input_embedding(self) -> str:
        return "embedding.tokens" if self.shared in ("all", "sides") else "source_embedding.tokens"

    @property
    def embedding_scale(self) -> float:
        return sqrt(self.width) if self.scaled else 1.0

    def resized(self, width: int) -> Self:
        decoder = self.decoder
        layers = self.layers + decoder.layers
        attentions = (self.layers + 2 * decoder.layers) / layers
        inner = (self.layers * self.inner + decoder.layers * decoder.inner) / layers
        near, share = resized_widths(self, width, lcm(self.heads, decoder.heads), attentions, inner)
        decoder_inner = scaled_inner(self.decoder_inner, share) if self.decoder_inner else 0
        return replace(self, width=near, inner=scaled_inner(self.inner, share), decoder_inner=decoder_inner)

    @property
    def readout_factor(self) -> float:
        """The factor of the last states: `readout_scale`, or else 1 / √width, as in T5."""
        return self.readout_scale or self.width**-0.5

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        embeddings = ("embedding", "source_embedding")
        return (embeddings, *self.stack_groups("encoder"), *self.decoder.stack_groups("decoder"), ("readout_",))

    def with_sizes(self, sizes: Mapping[str, int], padded: bool = False) -> Self:
        """The settings with the sizes of the fields; under a head, both sides read the text."""
        both = dict.fromkeys(("source", "target"), sizes["text"]) if "text" in sizes else {}
        return super().with_sizes({**sizes, **both}, padded)

    def without_readout(self) -> Self:
        """The settings of a body, which has no output layer."""
        shared = {"sides": "all", "none": "target"}.get(self.shared, self.shared)
        return replace(self, shared=shared, readout_bias=False)

    def build(self) -> Transformer:
        return Transformer(self)

    def build_body(self) -> Transformer:
        return Transformer(self.without_readout())


@dataclass(frozen=True, eq=False)
class DecoderState:
    """The state of the decoder: its KV cache, and the source's memory for each layer."""

    cache: KVCache
    sources: tuple[Memory, ...]
    mask: Mask

    def select(self, rows: Tensor) -> DecoderState:
        return replace(self, cache=self.cache.select(rows))

    @property
    def sentences(self) -> int:
        return self.cache.sentences

    def keep(self, sentences: Tensor, rows: Tensor) -> DecoderState:
        pairs = self.mask.pairs
        return DecoderState(
            self.cache.keep(sentences, rows),
            tuple(one.select(sentences) for one in self.sources),
            self.mask if pairs is None else replace(self.mask, pairs=pairs[sentences]),
        )


class Transformer(Causal):
    """Encoder, decoder, output layer. ``advance`` reads any number of tokens, for teacher forcing and for decoding."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        scale = config.embedding_scale
        self.embedding = TokenEmbedding(config, config.target_vocab, scale=scale)
        self.source_embedding = None
        if config.shared in ("target", "none"):
            self.source_embedding = TokenEmbedding(config, config.source_vocab, scale=scale)
        self.encoder = Stack(config, causal=False)
        self.decoder = Stack(config.decoder, causal=True, reads_source=True)
        self.readout_ = None
        if config.shared in ("sides", "none"):
            self.readout_ = nn.Linear(config.width, config.target_vocab, bias=False)
        self.readout_bias = nn.Parameter(torch.zeros(config.target_vocab)) if config.readout_bias else None
        init_weights(self)
        # The logits start with a variance near one, whatever the scale: T5's embeddings start with deviation 1.
        nn.init.normal_(self.embedding.tokens.weight, std=config.width**-0.5 / config.readout_factor)
        if config.copies:
            copy_start(self.encoder, self.decoder)

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:
        """The states (B, Ts, width) of a source (B, Ts)."""
        check_length(source, self.config.longest)
        embedding = self.source_embedding or self.embedding
        x = embedding(source, real_positions(source, source_real))
        return self.encoder(x, source_real)

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The states (B, T, width) of the decoder at a text (B, T) that both sides read: for a body under a head.

        The decoder starts with token 0, as that of T5, and is one token behind: its state at a token has read the
        tokens before it, and attends to the whole text in the encoder (Lewis et al. 2020, §3.1, of BART).
        """
        before = F.pad(tokens[:, :-1], (1, 0))
        if real is not None:
            before = before.masked_fill(~F.pad(real[:, :-1], (1, 0)), 0)  # with padding on the left, the start is later
        return causal_features(self, before, real, tokens, real, segments, positions)

    def layers(
        self,
        source: Tensor,
        source_real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The states (B, Ts, D) of every layer of the encoder at a source (B, Ts), the embeddings first."""
        refuse("segments", segments)
        refuse("positions", positions)
        with collected_layers() as found:
            self.encode(source, source_real)
        return tuple(found)

    def start(
        self, source: Tensor, source_real: Tensor | None = None, rows: int | None = None, capacity: int | None = None
    ) -> DecoderState:
        """Reads the source (B, Ts): the state before the first target token, with a capacity in tokens."""
        states = self.encode(source, source_real)
        mask = EVERYTHING
        if source_real is not None:
            at = torch.arange(source.shape[1], device=source.device)
            mask = Mask(keys=source_real).resolved(at[:1], at, 4)
        size = check_capacity(capacity, self.config.context, self.config.longest)
        return DecoderState(KVCache(len(source), size), self.decoder.source_memories(states), mask)

    def advance(
        self, tokens: Tensor, state: DecoderState, real: Tensor | None = None, positions: Tensor | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Reads target tokens (R, T) from a state on: features (R, T, width) and the state after them."""
        check_length(tokens, self.config.longest)
        cache = state.cache
        tokens = cache.merge_beams(tokens)
        x = self.embedding(tokens, cache.positions(tokens, real) if positions is None else positions)
        features, after = self.decoder.advance(x, cache, real, state.sources, state.mask)
        return after.split_beams(features), replace(state, cache=after)

    def product(self, features: Tensor) -> Product:
        """The logits as an uncomputed matrix product."""
        if self.config.readout_factor != 1.0:
            features = features * self.config.readout_factor
        weight = self.embedding.tokens.weight if self.readout_ is None else self.readout_.weight
        return Product(features, weight, self.readout_bias)

    def preallocate(self, state: DecoderState, steps: int = 1) -> DecoderState:
        """The state with a shape that does not change in the next ``steps`` steps, so that they can be captured."""
        cache = self.decoder.preallocate(state.cache, steps)
        return replace(state, cache=cache)
