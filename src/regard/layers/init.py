"""The first weights of a Transformer: drawn at random, or not drawn at all where a file has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

from regard.attention import MultiHead
from regard.layers.transformer import Stack


def init_weights(model: nn.Module, deviation: float | None = None) -> None:
    """First weights: matrices and embeddings normal, biases zero; norms stay as they are.

    The deviation is the one given, or, for matrices, that of Glorot & Bengio 2010 (eq. 12). What a block adds of its
    own text, by attention and by its feed-forward layer, starts smaller by √2N in a stack of N layers, so that the sum
    does not outgrow each of them (Radford et al. 2019, §2.3). What it adds of a source does not: there is no other news
    of the source.
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
        if isinstance(part, Stack):
            layers = part.layers
            for block in set(layers):
                for last in (block.attention.out, block.feed.down):
                    last.weight.data.div_(math.sqrt(2 * len(layers)))


class SkipInit(TorchFunctionMode):
    """Inside, nothing is drawn at random: ``with Undrawn(): config.build()`` is for a model whose weights will be read.

    Drawing them takes longer than reading them. What is set to a number, or worked out, is set all the same.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        # Of a tensor or of torch.nn.init: normal_, uniform_, kaiming_uniform_ …; all return the tensor that they fill.
        if func.__name__.endswith(("normal_", "uniform_")):
            return args[0] if args else given["tensor"]
        return func(*args, **given)
