"""Images as a grid of cells: a small convolutional network that is trained with the model, and positions of the cells.

The cells of a grid are numbered row by row, so that a memory of them is (B, cells, width) as that of a text.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


class ChannelNorm(nn.LayerNorm):
    """Normalises the channels of each place of an image (B, channels, H, W), independently of other places."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class PixelEncoder(nn.Module):
    """Pixels (B, H, W, 3) of 0 to 255 → cells (B, rows · columns, width).

    Each block halves the image and doubles the channels: a 3 × 3 convolution of stride 2, a norm, a ReLU. A projection
    and a norm follow. So a cell depends on 2^(blocks + 1) − 1 pixels in each direction, about twice its own size: it
    describes its own part of the image. The norm is over the channels of each place: a norm over a batch would make
    each output depend on other images.
    """

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        sizes = [3, *(max(width >> (blocks - 1 - block), 4) for block in range(blocks))]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), ChannelNorm(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(sizes[-1], width, 1), ChannelNorm(width))

    def forward(self, pixels: Tensor) -> Tensor:
        scaled = pixels.to(next(self.parameters()).dtype) / 127.5 - 1.0  # −1 … 1
        cells: Tensor = self.layers(scaled.permute(0, 3, 1, 2))  # (B, width, rows, columns)
        return cells.flatten(2).transpose(1, 2)


class FeatureEncoder(nn.Module):
    """Features (B, cells, features), as of a frozen network → cells (B, cells, width): a norm and a projection."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.norm, self.project = nn.LayerNorm(features), nn.Linear(features, width)

    def forward(self, features: Tensor) -> Tensor:
        return self.project(self.norm(features.to(self.norm.weight.dtype)))


class FrameEncoder(nn.Module):
    """Frames (B, frames, numbers) of a clip → cells (B, frames, width): two convolutions over time and a norm.

    The first reads a frame with the one before it and the one after it, and so finds movements. There is no recurrent
    layer: each cell would depend on all frames, and its weight would not show which frames a word is about.
    """

    def __init__(self, numbers: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(numbers, elementwise_affine=False)  # padding, which is zeros, stays zeros
        self.layers = nn.Sequential(
            nn.Conv1d(numbers, 4 * width, 3, padding=1), nn.ReLU(), nn.Conv1d(4 * width, width, 1)
        )
        self.last = nn.LayerNorm(width)

    def forward(self, frames: Tensor) -> Tensor:
        read = self.norm(frames.to(self.last.weight.dtype)).transpose(1, 2)  # (B, numbers, frames)
        return self.last(self.layers(read).transpose(1, 2))


class GridPositions(nn.Module):
    """A learnt vector for each row and each column of a grid; that of a cell is their sum."""

    def __init__(self, rows: int, columns: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.empty(rows, 1, width))
        self.columns = nn.Parameter(torch.empty(1, columns, width))
        for weight in (self.rows, self.columns):
            nn.init.normal_(weight, std=0.5)

    def forward(self, cells: Tensor) -> Tensor:
        """The cells (B, cells, width) with their positions added; the last cells of the grid may be missing."""
        return cells + (self.rows + self.columns).flatten(0, 1)[: cells.shape[1]]
