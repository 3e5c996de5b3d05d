"""ImageView: the attention of each word of a caption over an image, for a terminal, a notebook, a paper, a browser."""

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from regard.render.formatting import Markup, format_number, isolate, lines, tag, truncate
from regard.render.page import document, figure, page_script
from regard.render.page_data import rounded
from regard.render.svg import MARGIN, SMALL, box, heading, label, svg_element
from regard.render.terminal import EDGES, SHADES
from regard.render.view_data import Floats, npz_bytes, save_picture

SHADE = 0.75  # the opacity of the shade over a cell without weight
WIDE, TALL = 838, 128  # pixels of the largest image in a picture of all words
NARROW = 16  # pixels of its shortest side
GAP = 14
EMPTY = "(an empty caption)"
STRIP = 3  # an image that is this many times as wide as tall takes the whole width of a page


@dataclass(frozen=True, eq=False)
class ImageView:
    """The weights of each word over the cells of an image. Bright cells are those that the model reads."""

    title: str  # the caption
    image: NDArray[np.uint8]  # (H, W, 3)
    words: Sequence[str]
    weights: Floats | None  # (words, rows · columns), row by row; None: the model has no attention
    grid: tuple[int, int]  # rows and columns of the cells
    name: str = ""  # of the file
    about: str = ""  # which model it is from

    def __post_init__(self) -> None:
        rows, columns = self.grid
        if self.image.ndim != 3 or self.image.shape[2] != 3 or self.image.dtype != np.uint8:
            raise ValueError(f"image: {self.image.shape} of {self.image.dtype}, not a uint8 array (height, width, 3)")
        if self.weights is not None and self.weights.shape != (len(self.words), rows * columns):
            there = f"{len(self.words)} words and {rows} × {columns} cells"
            raise ValueError(f"weights: of shape {self.weights.shape}, which do not fit {there}")

    @property
    def maps(self) -> Floats:
        """The weights of each word divided by its largest weight, as a grid: (words, rows, columns); empty without."""
        if self.weights is None:
            return np.zeros((0, *self.grid), np.float32)
        weights = np.nan_to_num(self.weights, posinf=0.0, neginf=0.0).reshape(-1, *self.grid)
        return weights / np.maximum(weights.max(axis=(1, 2), keepdims=True), 1e-12)

    @property
    def alt(self) -> str:
        """The description of the image for a reader who does not see it."""
        return ": ".join(part for part in (self.name, self.title) if part) or "image"

    def describe(self, word: int) -> str:
        """Where a word looks, as a sentence: the cell with its largest weight."""
        assert self.weights is not None
        best = int(np.nan_to_num(self.weights[word]).argmax())
        row, column = divmod(best, self.grid[1])
        weight = format_number(float(f"{self.weights[word, best]:.3g}"))
        place = f"row {row + 1}, column {column + 1}" if self.grid[0] > 1 else f"column {column + 1}"
        return f"{isolate(self.words[word])}: most weight, {weight}, in {place}"

    def text(self) -> RenderableType:
        """A rich renderable for the terminal: a shaded grid for each word, as many side by side as fit its width."""
        return ImageText(self)

    def svg(self) -> Markup:
        """A picture of the image once for each word, in which the cells are as bright as their weights."""
        return image_svg(self)

    def html(self) -> str:
        """A page for a browser, one HTML file: the arrow keys step through the words."""
        return images_html([self])

    def save(self, path: str | Path) -> Path:
        """Writes an .html, .svg or .npz file, chosen by the suffix."""
        return save_picture(path, self.html, self.svg, self._npz)

    def _npz(self) -> bytes:
        weights = np.zeros((0, 0), np.float32) if self.weights is None else self.weights
        arrays = {"words": np.array(self.words, np.str_), "weights": weights, "grid": np.array(self.grid)}
        return npz_bytes({**arrays, "image": self.image})

    def __repr__(self) -> str:
        name = f" {self.name}:" if self.name else ""
        return f"<ImageView{name} {self.title!r}, {self.grid[0]} × {self.grid[1]} cells>"

    def _repr_html_(self) -> str:
        return tag("div", {"style": "overflow-x:auto"}, self.svg())


def png(image: NDArray[np.uint8]) -> bytes:
    """An image (H, W, 3) as a PNG file."""
    height, width, _ = image.shape
    filtered = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)  # 0: no filter

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(filtered.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def data_uri(image: NDArray[np.uint8]) -> str:
    """An image as a data: address, which a page may show without loading anything."""
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode('ascii')}"


# -- the terminal -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImageText:
    """A rich renderable: the caption, and for each word the grid of its weights."""

    view: ImageView

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view, maps = self.view, self.view.maps
        yield Text.assemble((view.title, "bold"), *([("  " + view.name, "dim")] if view.name else []))
        if not len(maps):
            yield Text("this model has no attention weights" if view.weights is None else "the caption is empty", "dim")
            return
        wide = 2 * view.grid[1]
        tiles = [_tile(word, one, wide) for word, one in zip(view.words, maps)]
        across = max(1, (options.max_width + 2) // (wide + 2))
        for first in range(0, len(tiles), across):
            for parts in zip(*tiles[first : first + across]):
                line = Text("  ").join(parts)
                line.no_wrap, line.overflow = True, "crop"
                yield line
            yield Text("")
        bounds = "  ".join(f"{shade} <{edge:.0%}" for shade, edge in zip(SHADES, (*EDGES, 1.01))).replace(
            "<101%", "≤100%"
        )
        yield Text(f"{bounds}  of the largest weight of the word", "dim")


def _tile(word: str, weights: Floats, wide: int) -> list[Text]:
    """The name of a word above the grid of its weights, two letters wide a cell."""
    name = truncate(word, wide)
    found = [Text(name + " " * (wide - cell_len(name)), "bold")]
    for row in np.digitize(weights, EDGES):
        shades = Text("".join(2 * SHADES[level] for level in row), "blue")
        shades.highlight_regex("·+", "dim")
        found.append(shades)
    return found


# -- pictures and pages -----------------------------------------------------------------------------------------------


def image_svg(view: ImageView) -> Markup:
    """The image once for each word, under the word; each cell has a shade that is the darker the less its weight.

    The images have their own aspect ratio: as many as fit stand side by side, and strips of frames below one another.
    """
    (high, long), maps = view.image.shape[:2], view.maps
    scale = min(TALL / high, WIDE / long)
    wide, tall = max(round(long * scale), NARROW), max(round(high * scale), NARROW)
    step = max(1, min(high // tall, long // wide))  # of a large image every n-th row and column is drawn
    uri = data_uri(view.image[::step, ::step])
    identity = f"i{zlib.crc32(uri.encode()):08x}"  # two pictures of one page may not share a name
    count, across = max(1, len(maps)), (WIDE + GAP) // (wide + GAP)
    names = [name for name in (view.name,) if name]
    right, down, top = wide + GAP, tall + GAP + 20, MARGIN + 25 * bool(view.title) + 21 * len(names)
    width = max(MARGIN + min(count, across) * right + 6, round(2 * MARGIN + cell_len(view.title) * 8.6), 260)
    place = {"width": wide, "height": tall, "preserveAspectRatio": "none"}
    picture = tag("image", {"id": identity, "href": uri, **place}, tag("title", {}, isolate(view.alt)))
    body = [*heading(view.title, *names), tag("defs", {}, picture)]
    for number in range(count):
        x, y = MARGIN + number % across * right, top + number // across * down
        body.append(tag("use", {"href": f"#{identity}", "x": x, "y": y + 18}))
        if number < len(maps):
            shades = _cells(maps[number], x, y + 18, wide, tall)
            body.append(label(truncate(view.words[number], int(wide / SMALL)), x, y + 12, "piece"))
            body.append(tag("g", {"fill": "#0b0f16"}, tag("title", {}, view.describe(number)), *shades))
    return svg_element(width, top + -(-count // across) * down + MARGIN, view.alt, body)


def _cells(weights: Floats, x: float, y: float, wide: float, tall: float) -> Iterator[Markup]:
    """The shades of the cells of an image whose upper left corner is (x, y)."""
    width, height = wide / weights.shape[1], tall / weights.shape[0]
    for row, cells in enumerate(weights):
        for column, weight in enumerate(cells):
            place = box(float(x + column * width), float(y + row * height), float(width), float(height))
            yield tag("rect", {**place, "fill-opacity": f"{SHADE * (1 - weight):.2f}"})


READING = (
    "A word is generated while the model reads the bright cells; the darker a cell, the less it is read. The brightest "
    "cell of every word has the largest weight of that word. What the model reads in a cell also depends on the parts "
    "of the image around the cell."
)


def images_html(views: Sequence[ImageView], title: str = "") -> str:
    """A page of images with their captions. The arrow keys step through the words of the image that was last used."""
    alone, attention = len(views) == 1, any(len(view.maps) for view in views)
    captions = [view.title or EMPTY for view in views]
    title = title or (captions[0] if alone else f"{len(views)} captions")
    sections = [
        _section(view, number, "" if caption == title else caption)
        for number, (view, caption) in enumerate(zip(views, captions))
    ]
    about = next((view.about for view in views if view.about), "")
    footer = tag("footer", {}, tag("p", {}, READING))
    body = [
        tag("header", {}, tag("h1", {}, title)),
        *([tag("p", {"class": "quiet"}, about)] if about else []),
        figure("images", {"images": [_data(view) for view in views]}, lines(sections)),
        *([footer] if attention else []),
    ]
    return document(title, tag("main", {"class": "text"}, lines(body)), page_script())


def _section(view: ImageView, number: int, title: str) -> Markup:
    """One image under its caption, whose words are buttons; for browsers without a script, a picture of all words."""
    high, long = view.image.shape[:2]
    stack = tag(
        "div",
        {"class": "stack strip-of-frames" if long >= STRIP * high else "stack"},
        tag("img", {"src": Markup(data_uri(view.image)), "alt": isolate(view.alt)}),
        *([tag("canvas", {"aria-hidden": "true"}, "")] if len(view.maps) else []),
    )
    words = [
        tag("button", {"type": "button", "data-word": at, "aria-pressed": "false"}, word)
        for at, word in enumerate(view.words)
    ]
    parts = [
        *([tag("h2", {}, title, " ", tag("small", {}, view.name))] if title or view.name else []),
        tag("figure", {}, stack, tag("figcaption", {"class": "quiet where"}, "")),
        *([tag("div", {"class": "words", "role": "group", "aria-label": "Words"}, *words)] if len(view.maps) else []),
        *([tag("noscript", {}, tag("div", {"class": "scroll"}, view.svg()))] if len(view.maps) else []),
        *([] if view.weights is not None else [tag("p", {"class": "quiet"}, "This model has no attention weights.")]),
    ]
    return tag("section", {"class": "card seen", "data-view": number, "tabindex": "-1"}, lines(parts))


def _data(view: ImageView) -> dict[str, Any]:
    """What the script of the page draws: the weights of each word relative to its largest one, and a sentence."""
    said = [view.describe(word) for word in range(len(view.maps))]
    return {
        "rows": view.grid[0],
        "columns": view.grid[1],
        "maps": [rounded(one.ravel().tolist(), 3) for one in view.maps],
        "said": said,
    }
