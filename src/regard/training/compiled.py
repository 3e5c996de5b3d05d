"""Compilation of the Transformer block, with `torch.compile`."""

from contextlib import AbstractContextManager

import torch
from torch import nn

from regard.layers.transformer import Block


def compile_blocks(model: nn.Module) -> int:
    """Mark every block of a model for compilation at its first call, in place; return the number of blocks.

    All blocks share one program, which is compiled once and not per layer. The rest of the model, with its search and
    caches, is not compiled. `Module.compile` keeps the names of the weights, which `torch.compile` would change.
    """
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        block.compile()
    return len(blocks)


def uncompiled() -> AbstractContextManager[object]:
    """A context manager in which compiled blocks run uncompiled.

    A program is compiled for one grad mode and few shapes. Evaluation has no gradients and other shapes than training,
    so that each new shape would be compiled again.
    """
    return torch.compiler.set_stance("force_eager")
