"""Data for sequence models that is drawn from a seed: the adding problem, copy memory, clips of a moving shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Corpus, NumberedValues, TaggedText, TaggedValues, Tokens
from regard.errors import UserError

SYMBOLS, RECALLED = 8, 10  # of copy memory: different symbols, and how many are to be recalled
BLANK, GO = "0", "9"  # of copy memory: nothing to read or to answer, and the signal to recall
# The shapes of clips. They differ in their pixels and have no symmetry that hides a movement.
SHAPES = np.array(
    [
        [[1, 1, 1], [1, 0, 1], [1, 1, 1]],
        [[0, 1, 0], [1, 1, 1], [0, 1, 0]],
        [[1, 0, 0], [1, 0, 0], [1, 1, 1]],
        [[1, 0, 1], [0, 1, 0], [1, 0, 1]],
    ],
    np.float32,
)
MOVES = {"still": (0, 0), "up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}  # rows and columns


@dataclass(frozen=True)
class Adding:
    """The adding problem (Hochreiter & Schmidhuber 1997): the sum of the two numbers of a sequence that are marked.

    A step has two numbers: one that is uniform in 0 … 1, and a marker, which is 1 at two steps and 0 elsewhere.
    """

    tasks: ClassVar[tuple[str, ...]] = ("regress",)

    train: int = 50_000  # the number of training sequences
    valid: int = 1000  # the number of validation sequences
    test: int = 1000  # the number of test sequences
    length: int = 600  # the steps of a sequence
    seed: int = 1  # what the sequences are drawn from

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "length": 2, "seed": 0})

    def load(self) -> Corpus:
        return Corpus(self._draw(0, self.train), self._draw(1, self.valid), self._draw(2, self.test))

    def _draw(self, part: int, count: int) -> list[NumberedValues]:
        random = np.random.default_rng((self.seed, part))
        values = np.zeros((count, self.length, 2), np.float32)
        values[:, :, 0] = random.random((count, self.length), np.float32)
        first = random.integers(self.length, size=count)
        second = (first + random.integers(1, self.length, size=count)) % self.length  # another step
        rows = np.arange(count)
        values[rows, first, 1] = values[rows, second, 1] = 1.0
        sums = values[rows, first, 0] + values[rows, second, 0]
        return [NumberedValues(one, float(total)) for one, total in zip(values, sums)]


@dataclass(frozen=True)
class CopyMemory:
    """Copy memory (Hochreiter & Schmidhuber 1997; Arjovsky et al. 2016): ten symbols that are recalled after a delay.

    The text has ten symbols 1 … 8, blanks (0), and eleven signals (9). The tags are blank but for the last ten, which
    are the symbols. The characters of the text are its tokens.
    """

    tasks: ClassVar[tuple[str, ...]] = ("recall",)
    tokens: ClassVar[Tokens] = "char"

    train: int = 10_000  # the number of training sequences
    valid: int = 1000  # the number of validation sequences
    test: int = 1000  # the number of test sequences
    delay: int = 1000  # the steps between the first symbol and the first signal, less ten; a sequence has 20 more
    seed: int = 1  # what the sequences are drawn from

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "delay": 1, "seed": 0})

    def load(self) -> Corpus:
        return Corpus(self._draw(0, self.train), self._draw(1, self.valid), self._draw(2, self.test))

    def _draw(self, part: int, count: int) -> list[TaggedText]:
        drawn = np.random.default_rng((self.seed, part)).integers(1, SYMBOLS + 1, size=(count, RECALLED))
        symbols = ["".join(map(str, row)) for row in drawn.tolist()]
        read, blank = BLANK * (self.delay - 1) + GO * (RECALLED + 1), BLANK * (self.delay + RECALLED)
        return [TaggedText(one + read, blank + one) for one in symbols]


@dataclass(frozen=True)
class Clips:
    """Clips of a small shape that moves: each frame is an image, and its label is how the shape moved since the last.

    An edge of the image continues at the opposite edge. The first frame is still.
    """

    tasks: ClassVar[tuple[str, ...]] = ("frames",)

    train: int = 4000  # the number of training clips
    valid: int = 500  # the number of validation clips
    test: int = 500  # the number of test clips
    size: int = 8  # the height and width of an image, in pixels
    frames: int = 12  # the frames of a clip
    noise: float = 0.1  # the standard deviation of the noise that is added to each pixel
    seed: int = 1  # what the clips are drawn from

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "size": 5, "frames": 2, "seed": 0})
        if not 0 <= self.noise < float("inf"):
            raise UserError(f"data.noise={self.noise}: give 0 (none) or more.")

    def load(self) -> Corpus:
        return Corpus(self._draw(0, self.train), self._draw(1, self.valid), self._draw(2, self.test))

    def _draw(self, part: int, count: int) -> list[TaggedValues]:
        random = np.random.default_rng((self.seed, part))
        return [TaggedValues(*self._clip(random)) for _ in range(count)]

    def _clip(self, random: np.random.Generator) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """The frames (frames, size · size), and the movement of each."""
        image = np.zeros((self.size, self.size), np.float32)
        image[:3, :3] = SHAPES[random.integers(len(SHAPES))]
        names = list(MOVES)
        moves = ["still", *(names[number] for number in random.integers(len(names), size=self.frames - 1))]
        at = random.integers(self.size, size=2) + np.cumsum([MOVES[name] for name in moves], axis=0)
        drawn = np.stack([np.roll(image, (int(row), int(column)), (0, 1)) for row, column in at])
        noise = random.standard_normal(drawn.shape, np.float32) * np.float32(self.noise)
        return (drawn + noise).reshape(self.frames, -1), tuple(moves)


def check_sizes(data: Any, least: dict[str, int]) -> None:
    """Refuse a setting of a corpus that is below its least value."""
    for name, low in least.items():
        if (value := getattr(data, name)) < low:
            raise UserError(f"data.{name}={value}: give {low} or more.")
