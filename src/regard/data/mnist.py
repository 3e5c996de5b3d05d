"""Handwritten digits (MNIST, LeCun et al. 1998) that are read pixel by pixel, or some pixels at each step."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.data.download import CURE
from regard.data.example import Corpus, LabelledValues
from regard.data.files import find_data, opened
from regard.data.synthetic import check_sizes
from regard.errors import UserError

MEAN, DEVIATION = 0.1307, 0.3081  # of the pixels of the training images, from 0 to 1
PIXELS = 28 * 28  # of an image
HELD_OUT = 10_000  # the last training images are the validation images
BYTES = 0x08  # the code for unsigned bytes in an idx file


@dataclass(frozen=True)
class Mnist:
    """Handwritten digits, in $REGARD_DATA/mnist: the 784 pixels of an image, step by step, and its digit.

    The last 10,000 training images are the validation images. Pixels are standardised.
    """

    tasks: ClassVar[tuple[str, ...]] = ("recognise",)

    pixels: int = 1  # how many are read at each step; 784: the whole image in one step
    permuted: bool = False  # whether all images have their pixels in the same random order
    seed: int = 1  # random seed of that order
    train: int = 0  # how many training images are read; 0: all
    files: ClassVar[tuple[str, ...]] = tuple(
        f"mnist/{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
    )

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 0, "seed": 0, "pixels": 1})

    @property
    def memory(self) -> int:
        """The steps that a network must remember: all of an image; 0 if that is one step."""
        steps = PIXELS // self.pixels
        return steps if steps > 1 else 0

    def load(self) -> Corpus:
        train, test = (self._read(*names) for names in (self.files[:2], self.files[2:]))
        held = min(HELD_OUT, len(train) // 6)
        return Corpus(train[: len(train) - held][: self.train or None], train[len(train) - held :], test)

    def _read(self, images: str, labels: str) -> list[LabelledValues]:
        pixels, digits = read_idx(find_data(images, CURE), 3), read_idx(find_data(labels, CURE), 1)
        if len(pixels) != len(digits):
            raise UserError(f"{images}: {len(pixels)} images, but {len(digits)} labels in {labels}; fetch both again.")
        values = pixels.reshape(len(pixels), -1)
        if self.permuted:
            values = values[:, np.random.default_rng(self.seed).permutation(values.shape[1])]
        if values.shape[1] % self.pixels:
            raise UserError(
                f"data.pixels={self.pixels}: an image has {values.shape[1]}; give a divisor of this number."
            )
        scaled = ((values.astype(np.float32) / 255 - MEAN) / DEVIATION).reshape(len(values), -1, self.pixels)
        return [LabelledValues(one, str(digit)) for one, digit in zip(scaled, digits.tolist())]


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """The array of an idx file of unsigned bytes: two zeros, the type, the number of axes, their sizes, the numbers."""
    with opened(path) as file:
        content = file.read()
    start = 4 + 4 * axes
    if len(content) < start or content[:4] != bytes((0, 0, BYTES, axes)):
        raise UserError(f"{path}: not an idx file of bytes with {axes} axes; fetch it again.")
    shape = struct.unpack(f">{axes}I", content[4:start])
    found = np.frombuffer(content, np.uint8, offset=start)
    if found.size != np.prod(shape, dtype=object) or not found.size:
        stated = " × ".join(map(str, shape))
        raise UserError(f"{path}: states {stated} numbers, but has {found.size:,}; fetch it again.")
    return found.reshape(shape)
