"""Scenes: drawn images of coloured shapes, with captions whose words have known regions.

An image has three or more objects on a grid of 4 × 4 places. The caption names them in reading order: rows from top to
bottom, and each row from left to right. So the image determines the caption. Some combinations of a size, a colour and
a shape never occur in the training set (`HELD_OUT`), but do in the other sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Captioned, Region, Tokens
from regard.data.synthetic import Drawn
from regard.errors import UserError

COLOURS = {
    "red": (215, 45, 40),
    "green": (50, 165, 70),
    "blue": (50, 90, 225),
    "yellow": (235, 210, 45),
    "purple": (155, 60, 190),
    "white": (240, 240, 240),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring")
HELD_OUT = (
    ("small", "red", "ring"),
    ("large", "blue", "cross"),
    ("small", "yellow", "triangle"),
    ("large", "white", "square"),
)
GRID = 4  # places in a row, and rows
FEWEST = 3  # objects
RADII = {"small": (4.1, 4.5), "large": (7.0, 7.5)}  # the least and the greatest, in pixels of an image of 64 × 64
NOISE = 10  # the most that noise adds to a pixel or takes from it, of 255
BLOCK = 100  # images that are drawn at a time: they fit into a processor's cache

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Scenes(Drawn):
    """Drawn scenes of 3 or more objects with captions: "a red circle above a small blue square and a white ring"."""

    tasks: ClassVar[tuple[str, ...]] = ("caption",)
    least: ClassVar[Mapping[str, int]] = {"test": 1}

    train: int = 24_000  # number of training scenes
    valid: int = 1000  # number of validation scenes
    test: int = 1000  # number of test scenes
    objects: int = 4  # the most objects of a scene; the fewest are 3
    size: int = 64  # width and height of an image in pixels
    seed: int = 1  # random seed of the scenes
    target_tokens: Tokens = "word"  # the kind of tokens of the captions

    def __post_init__(self) -> None:
        super().__post_init__()
        if not FEWEST <= self.objects <= 8:
            raise UserError(f"data.objects={self.objects}: give from {FEWEST} to 8.")
        if not 32 <= self.size <= 512 or self.size % GRID:
            raise UserError(f"data.size={self.size}: give a multiple of {GRID} from 32 to 512.")

    def draw(self, part: int, count: int) -> list[Captioned]:
        """The scenes of one part; part 0, the training set, has no held-out combinations."""
        random = np.random.default_rng((self.seed, part))
        every = product(RADII, COLOURS, SHAPES)
        looks = [look for look in every if part or look not in HELD_OUT]
        examples = list[Captioned]()
        for at in range(0, count, BLOCK):
            scenes = _random_scenes(random, min(BLOCK, count - at), self.objects, looks, self.size)
            images = draw(scenes, random, self.size)
            examples += [_captioned(image, scene) for image, scene in zip(images, scenes)]
        return examples


@dataclass(frozen=True, slots=True)
class Object:
    """A shape of a scene. Its place is counted row by row; `x` and `y` are its centre and, like `radius`, in pixels."""

    kind: str  # small or large
    colour: str
    shape: str
    place: int
    x: float
    y: float
    radius: float

    @property
    def words(self) -> list[str]:
        size = ["small"] if self.kind == "small" else []
        return [*size, self.colour, self.shape]


def _random_scenes(
    random: np.random.Generator, count: int, most: int, looks: list[tuple[str, str, str]], size: int
) -> list[list[Object]]:
    """Random scenes; the objects of a scene are in reading order."""
    cell = size / GRID
    places = np.argsort(random.random((count, GRID**2)), axis=1)[:, :most]  # different places of each scene
    numbers = random.integers(FEWEST, most + 1, count)
    look = random.integers(len(looks), size=(count, most))
    radius, shift = random.random((count, most)), random.uniform(-1, 1, (count, most, 2))
    scenes = []
    for row in range(count):
        scene = []
        for one in range(numbers[row]):
            kind, colour, shape = looks[look[row, one]]
            least, greatest = RADII[kind]
            pixels = (least + (greatest - least) * radius[row, one]) * cell / 16
            place, room = int(places[row, one]), (cell / 2 - pixels) / 2  # it stays near the middle of its place
            y, x = ((n + 0.5) * cell + room * move for n, move in zip(divmod(place, GRID), shift[row, one]))
            scene.append(Object(kind, colour, shape, place, x, y, pixels))
        scenes.append(sorted(scene, key=lambda each: each.place))
    return scenes


def draw(scenes: list[list[Object]], random: np.random.Generator, size: int) -> NDArray[np.uint8]:
    """The images of scenes, (count, size, size, 3)."""
    count = len(scenes)
    grid: Any = np.arange(size, dtype=np.float32)
    # The background: a grey, with waves of a random direction and length.
    grey = random.uniform(50, 105, (count, 1, 1)).astype(np.float32)
    wave = random.uniform(-0.5, 0.5, (count, 2, 1, 1)).astype(np.float32) * 64 / size
    images: Floats = np.repeat(
        (grey + 10 * np.sin(wave[:, 0] * grid[:, None] + wave[:, 1] * grid))[..., None], 3, axis=-1
    )
    for row, scene in enumerate(scenes):
        for each in scene:
            reach = int(np.ceil(each.radius)) + 1
            top, left = max(int(each.y) - reach, 0), max(int(each.x) - reach, 0)
            part = images[row, top : int(each.y) + reach + 1, left : int(each.x) + reach + 1]
            y = top + 0.5 + np.arange(part.shape[0], dtype=np.float32)[:, None] - each.y
            x = left + 0.5 + np.arange(part.shape[1], dtype=np.float32) - each.x
            cover = np.clip(0.5 - distance(each.shape, x, y, each.radius), 0, 1)[..., None]  # of each pixel
            part += cover * (np.array(COLOURS[each.colour], np.float32) - part)
    images += random.integers(-NOISE, NOISE + 1, images.shape, np.int8)
    return images.clip(0, 255, out=images).astype(np.uint8)


def distance(shape: str, x: Floats, y: Floats, radius: float) -> Floats:
    """The distance in pixels from the edge of a shape, negative inside it; y grows downwards."""
    across, along = np.abs(x), np.abs(y)
    match shape:
        case "circle":
            return np.hypot(x, y) - radius
        case "square":
            return np.maximum(across, along) - 0.9 * radius
        case "triangle":
            slope = 0.55  # half the base over the height
            return np.maximum(y - 0.8 * radius, (across - slope * (y + radius)) / np.hypot(1, slope))
        case "cross":
            wide, thin = radius, 0.33 * radius
            return np.minimum(np.maximum(across - wide, along - thin), np.maximum(across - thin, along - wide))
        case _:  # a ring
            return np.abs(np.hypot(x, y) - 0.75 * radius) - 0.25 * radius


def _captioned(image: NDArray[np.uint8], scene: list[Object]) -> Captioned:
    """The image with its caption, and the regions of the words that name objects.

    The caption has pairs of objects with their relation, joined by "and"; the last object may be alone.
    """
    size, words, regions = len(image), list[str](), list[Region]()
    for number, each in enumerate(scene):
        if number % 2:
            before = scene[number - 1]
            words += ["left", "of"] if before.place // GRID == each.place // GRID else ["above"]
        elif number:
            words.append("and")
        words.append("a")
        edges = (each.x - each.radius, each.y - each.radius, each.x + each.radius, each.y + each.radius)
        left, top, right, bottom = (float(edge) / size for edge in edges)
        for word in each.words:
            regions.append(Region(len(words), (left, top, right, bottom)))
            words.append(word)
    return Captioned(image, " ".join(words), regions=tuple(regions))
