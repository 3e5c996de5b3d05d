"""Compiling: the block that a Transformer repeats, turned into fused kernels once."""

from contextlib import AbstractContextManager

import torch
from torch import nn

from regard.layers.transformer import Block


def compile_blocks(model: nn.Module) -> int:
    """Let every block of a model be compiled when it is first called, in place; how many there are.

    All blocks are one program, so that it is compiled once and not for each layer; and the model around them, with its
    searches and caches, stays ordinary code. `Module.compile` keeps the names of the weights, which `torch.compile`
    would change.
    """
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        block.compile()
    return len(blocks)


def uncompiled() -> AbstractContextManager[object]:
    """Inside, compiled blocks run as ordinary code.

    A program is compiled for one grad mode and few shapes. Evaluating has neither the gradients nor the shapes of
    training: there it would be compiled again and again.
    """
    return torch.compiler.set_stance("force_eager")
