"""Initial weights of a Transformer.

``init_weights`` draws random ones. Three functions then let some weights start with a purpose, for small models:
``mimetic_start`` (attend to equal tokens), ``copy_start`` (copy from the source) and ``neighbour_heads`` (attend to the
tokens before and after). ``SkipInit`` draws none, if the weights will be loaded from a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import MultiHead
from regard.errors import UserError
from regard.layers.tokens import TokenEmbedding
from regard.layers.transformer import Stack
from regard.scores import Dot


def init_weights(model: nn.Module, deviation: float | None = None) -> None:
    """Initialize matrices and embeddings from a normal distribution and biases with zero; norms are not changed.

    The standard deviation is ``deviation`` or, for matrices, that of Glorot & Bengio 2010 (eq. 12). In a stack of N
    layers the last matrices of self-attention and of the feed-forward layers are divided by √(2N), so that the residual
    sum does not grow with depth (Radford et al. 2019, §2.3). Those of cross-attention are not divided, because they
    alone bring in the source. Queries whose score is not scaled start smaller by √d, as in T5, so that the scores start
    as those of scaled attention do.
    """
    for part in model.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=deviation or part.embedding_dim**-0.5)
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=deviation or math.sqrt(2 / (part.in_features + part.out_features)))
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    for part in model.modules():
        if isinstance(part, MultiHead) and deviation is None:  # three matrices in one
            nn.init.normal_(part.qkv.weight, std=math.sqrt(2 / (part.qkv.in_features + part.inner)))
            if type(part.read.score) is Dot:
                part.qkv.weight.data[: part.inner].div_(math.sqrt(part.head_width))
        if isinstance(part, Stack):
            layers = part.layers
            for block in set(layers):
                for last in (block.attention.out, block.feed.down):
                    last.weight.data.div_(math.sqrt(2 * len(layers)))


@torch.no_grad()
def mimetic_start(attention: MultiHead, segments: nn.Embedding | None = None) -> None:
    """Let the queries of an attention start equal to its keys, so that a token attends to equal tokens from the start.

    A model that compares two texts has to find the words of one in the other, also words that it has seldom seen.
    Trained from random weights, it may need very many steps to do that; see Trockman & Kolter 2023, whose initial
    weights have the same effect. The embeddings of segments start small, otherwise all tokens of a segment would be
    similar.
    """
    queries, keys, _ = attention.qkv.weight.split(attention.inner)
    queries.copy_(keys)
    if segments is not None:
        segments.weight.mul_(0.3)


BEFORE = 8.0  # the bias of the token before, in the head of `copy_start`


@torch.no_grad()
def copy_start(encoder: Stack, decoder: Stack) -> None:
    """Let a decoder start by predicting the tokens that it attends to in the source.

    An answer that stands in the source is copied from it: the decoder attends to its first token, and then to the token
    after each one that it has written. A small model with random weights did not find this in thousands of steps.

    The output matrix of cross-attention starts as its value matrix, transposed: cross-attention then adds about the
    vectors of the tokens that it reads, and an output layer that shares the embeddings predicts these tokens. The first
    head of the encoder starts by attending to the token before, by T5's bias: the state of a token then tells which
    token it follows.
    """
    bias, attention = encoder.bias, encoder.layers[0].attention
    assert bias is not None
    bias.table.weight[1, 0] = BEFORE  # bucket 1: one token before
    attention.qkv.weight[: attention.head_width] = 0  # queries of the first head: the bias alone decides
    for block in decoder.layers:
        assert block.cross is not None
        *_, values = block.cross.qkv.weight.split(block.cross.inner)
        block.cross.out.weight.copy_(values.T)


NEIGHBOUR = 10.0  # the logit of the neighbour at the start; lower if segments add to the variance of the embeddings


@torch.no_grad()
def neighbour_embeddings(embedding: TokenEmbedding) -> None:
    """Let a quarter of the coordinates of an embedding start with positions alone, as `neighbour_heads` needs them.

    They are cosines and sines of the position. Tokens and segments start with zeros there, and positions start with
    zeros in the other coordinates. The waves have the deviation of the tokens.
    """
    positions = embedding.positions
    assert isinstance(positions, nn.Embedding)
    rows, width = positions.weight.shape
    angles = torch.arange(rows).unsqueeze(1) * _frequencies(width)
    waves = torch.stack((angles.cos(), angles.sin()), -1).flatten(1)
    size = waves.shape[1]
    if not size:  # the embedding is too narrow for a wave
        return
    for table in (embedding.tokens, embedding.segments):
        if table is not None:
            table.weight[:, :size] = 0
    positions.weight.zero_()
    positions.weight[:, :size] = waves * math.sqrt(2) * embedding.tokens.weight[:, size:].std()


@torch.no_grad()
def neighbour_heads(attention: MultiHead, width: int, project: nn.Linear | None = None) -> None:
    """Let the first two heads start by attending to the token before and the token after each token.

    A masked token tells nothing itself: it is predicted from the tokens around it. A Transformer with random weights
    soon learns how frequent the tokens are, but may need thousands of steps until it attends to the neighbours.

    The embeddings are those of `neighbour_embeddings`, of this width, and `project` is the layer between them and the
    attention, if there is one. The keys of the two heads are the waves of the position; the queries are those of the
    position before or after, which a rotation of each cosine and sine gives.
    """
    frequencies = _frequencies(min(width, attention.qkv.in_features, 4 * attention.head_width))
    size = 2 * len(frequencies)
    if not size:  # the states are too narrow for a wave
        return
    if project is not None:  # the waves pass through it unchanged
        nn.init.normal_(project.weight, std=width**-0.5)
        project.weight[:, :size] = 0
        project.weight[:size] = torch.eye(size, width)
    queries, keys, _ = attention.qkv.weight.split(attention.inner)
    for head, offset in enumerate((-1, 1)):
        cos, sin = (offset * frequencies).cos(), (offset * frequencies).sin()
        rotation = torch.block_diag(*torch.stack((cos, -sin, sin, cos), -1).view(-1, 2, 2))
        rows = slice(head * attention.head_width, (head + 1) * attention.head_width)
        for matrix, start in ((keys, torch.eye(size)), (queries, rotation)):
            matrix[rows] = 0
            matrix[rows][:size, :size] = start * math.sqrt(NEIGHBOUR * math.sqrt(attention.head_width) / size)


def _frequencies(width: int) -> Tensor:
    """The frequencies of the positions: between 0 and π, at uneven distances, since otherwise the waves would repeat.

    The frequencies of a narrower embedding are the first ones of a wider one.
    """
    number = torch.arange(1, width // 8 + 1, dtype=torch.float64)
    return (number.square() * (math.sqrt(5) - 1) / 2 % 1 * math.pi).float()


class SkipInit(TorchFunctionMode):
    """A context that skips random initialization: ``with SkipInit(): config.build()`` if the weights will be loaded.

    Drawing random weights takes longer than loading them. Constants and computed tables are still set.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        # normal_, uniform_, kaiming_uniform_ … of a tensor or of torch.nn.init; all return the tensor that they fill.
        if func.__name__.endswith(("normal_", "uniform_")):
            return args[0] if args else given["tensor"]
        return func(*args, **given)


CALLS = 100  # the most calls of torch per tensor of a file while its model is built; a model needs about 10


class _BuildLimit(SkipInit):
    """A context that ends a build with more calls of torch than the model of a file can need: a billion layers."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Callable[..., Any], types: Iterable[type], *given: Any) -> Any:
        self.calls -= 1
        if self.calls < 0:
            raise UserError("the settings describe a much larger model than the weights")
        return super().__torch_function__(func, types, *given)


def empty_weights(config: Any, count: int) -> dict[str, Tensor]:
    """The weights of the model of a config on the device `meta`: names, shapes and types, without memory.

    `count` is the number of tensors of the file that has the weights. Settings of which no model can be built raise a
    UserError, whatever the error is.
    """
    try:
        with _BuildLimit(CALLS * (count + 10)), torch.device("meta"):
            weights: dict[str, Tensor] = config.build().state_dict()
    except UserError:
        raise
    except Exception as error:  # negative sizes, sizes beyond 64 bits, …: each has another exception
        raise UserError(f"no model can be built from its settings ({str(error)[:80]})") from error
    return weights
