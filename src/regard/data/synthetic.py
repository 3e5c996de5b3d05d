"""Data for sequence models that is drawn from a seed: the adding problem, copy memory, clips of a moving shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Captioned, Corpus, NumberedValues, Region, TaggedText, TaggedValues, Tokens
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
SHAPE_NAMES = ("square", "plus", "corner", "cross")
MOVES = {"still": (0, 0), "up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}  # rows and columns


def check_sizes(data: Any, least: Mapping[str, int]) -> None:
    """Refuse a setting of a corpus that is below its least value."""
    for name, low in least.items():
        if (value := getattr(data, name)) < low:
            raise UserError(f"data.{name}={value}: give {low} or more.")


class Drawn:
    """Data that is drawn from a seed: a subclass has the settings `train`, `valid`, `test` and `seed`, and `draw`."""

    least: ClassVar[Mapping[str, int]] = {}  # the least values of its other settings

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "seed": 0, **self.least})

    def load(self) -> Corpus:
        sizes = (getattr(self, part) for part in ("train", "valid", "test"))
        train, valid, test = (list(self.draw(part, size)) for part, size in enumerate(sizes))
        return Corpus(train, valid, test)

    def draw(self, part: int, count: int) -> Iterable[Any]:
        """So many examples of a part: 0 is for training, 1 for validation, 2 for the test."""
        raise NotImplementedError


@dataclass(frozen=True)
class Adding(Drawn):
    """The adding problem (Hochreiter & Schmidhuber 1997): the sum of the two numbers of a sequence that are marked.

    A step has two numbers: one that is uniform in 0 … 1, and a marker, which is 1 at two steps and 0 elsewhere.
    """

    tasks: ClassVar[tuple[str, ...]] = ("regress",)
    least: ClassVar[Mapping[str, int]] = {"length": 2}

    train: int = 50_000  # the number of training sequences
    valid: int = 1000  # the number of validation sequences
    test: int = 1000  # the number of test sequences
    length: int = 600  # the steps of a sequence
    seed: int = 1  # random seed of the sequences

    @property
    def memory(self) -> int:
        """The steps that a network must remember: all of a sequence."""
        return self.length

    def draw(self, part: int, count: int) -> list[NumberedValues]:
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
class CopyMemory(Drawn):
    """Copy memory (Hochreiter & Schmidhuber 1997; Arjovsky et al. 2016): ten symbols that are recalled after a delay.

    The text has ten symbols 1 … 8, blanks (0), and eleven signals (9). The tags are blank but for the last ten, which
    are the symbols. The characters of the text are its tokens.
    """

    tasks: ClassVar[tuple[str, ...]] = ("recall",)
    least: ClassVar[Mapping[str, int]] = {"delay": 1}
    tokens: ClassVar[Tokens] = "char"

    train: int = 10_000  # the number of training sequences
    valid: int = 1000  # the number of validation sequences
    test: int = 1000  # the number of test sequences
    delay: int = 1000  # T of the papers: T − 1 blanks follow the ten symbols, and a sequence has T + 20 steps
    seed: int = 1  # random seed of the sequences

    @property
    def memory(self) -> int:
        """The steps that a network must remember: all of a sequence."""
        return self.delay + 2 * RECALLED

    def draw(self, part: int, count: int) -> list[TaggedText]:
        drawn = np.random.default_rng((self.seed, part)).integers(1, SYMBOLS + 1, size=(count, RECALLED))
        symbols = ["".join(map(str, row)) for row in drawn.tolist()]
        read, blank = BLANK * (self.delay - 1) + GO * (RECALLED + 1), BLANK * (self.delay + RECALLED)
        return [TaggedText(one + read, blank + one) for one in symbols]


@dataclass(frozen=True)
class Clips(Drawn):
    """Clips of a small shape that moves: each frame is an image, and its label is how the shape moved since the last.

    An edge of the image continues at the opposite edge. The first frame is still.
    """

    tasks: ClassVar[tuple[str, ...]] = ("frames",)
    least: ClassVar[Mapping[str, int]] = {"size": 5, "frames": 2}

    train: int = 4000  # the number of training clips
    valid: int = 500  # the number of validation clips
    test: int = 500  # the number of test clips
    size: int = 8  # the height and width of a frame, in pixels
    frames: int = 12  # the frames of a clip
    noise: float = 0.1  # the standard deviation of the noise that is added to each pixel
    seed: int = 1  # random seed of the clips

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.noise < float("inf"):
            raise UserError(f"data.noise={self.noise}: give 0 (none) or more.")

    def draw(self, part: int, count: int) -> list[Any]:
        random = np.random.default_rng((self.seed, part))
        return [self._clip(random) for _ in range(count)]

    def _clip(self, random: np.random.Generator) -> Any:
        """The frames (frames, size · size), and the movement of each."""
        shape, names = int(random.integers(len(SHAPES))), list(MOVES)
        moves = ["still", *(names[number] for number in random.integers(len(names), size=self.frames - 1))]
        return TaggedValues(self._frames(random, shape, moves).reshape(self.frames, -1), tuple(moves))

    def _frames(self, random: np.random.Generator, shape: int, moves: list[str]) -> NDArray[np.float32]:
        """The frames (frames, size, size) of a shape that starts at a random place and makes a movement before each."""
        image = np.zeros((self.size, self.size), np.float32)
        image[:3, :3] = SHAPES[shape]
        at = random.integers(self.size, size=2) + np.cumsum([MOVES[name] for name in moves], axis=0)
        drawn = np.stack([np.roll(image, (int(row), int(column)), (0, 1)) for row, column in at])
        return drawn + random.standard_normal(drawn.shape, np.float32) * np.float32(self.noise)


@dataclass(frozen=True)
class ClipCaptions(Clips):
    """Clips of a small shape that moves in two or three directions, with captions: "a square moves right then up".

    The image of a clip has its frames side by side. An edge of a frame continues at the opposite edge. The shape moves
    by one pixel a frame, two frames or more in each direction. The region of the word of a direction is the frames that
    the shape reached in this direction.
    """

    tasks: ClassVar[tuple[str, ...]] = ("caption-clip",)
    least: ClassVar[Mapping[str, int]] = {"size": 5, "frames": 7}

    train: int = 6000  # the number of training clips
    noise: float = 0.05  # the standard deviation of the noise that is added to each pixel; a shape has the value 1
    target_tokens: Tokens = "word"  # the kind of tokens of the captions

    def _clip(self, random: np.random.Generator) -> Captioned:
        shape, runs = int(random.integers(len(SHAPES))), int(random.integers(2, 4))
        # Every direction takes two frames; the frames that are left are divided at random.
        cuts = np.sort(random.integers(self.frames - 2 * runs, size=runs - 1))
        ends = [1, *(int(cut) + 1 + 2 * (run + 1) for run, cut in enumerate(cuts)), self.frames]
        names = [name for name in MOVES if name != "still"]
        moves, words, regions = ["still"], ["a", SHAPE_NAMES[shape], "moves"], list[Region]()
        for first, end in pairwise(ends):
            name = str(random.choice([name for name in names if name != moves[-1]]))
            moves += [name] * (end - first)
            words += ["then"] * (first > 1)
            regions.append(Region(len(words), (first / self.frames, 0.0, end / self.frames, 1.0)))
            words.append(name)
        grey = np.concatenate(self._frames(random, shape, moves), axis=1)
        pixels = (255 * grey).clip(0, 255).astype(np.uint8)
        return Captioned(np.repeat(pixels[..., None], 3, axis=-1), " ".join(words), regions=tuple(regions))
