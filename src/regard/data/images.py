"""Images: reading them safely from files, and the fields of an image: pixels, features of a frozen network, frames.

Pillow reads the files. It belongs to the extra `captions` and is imported when the first file is read.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regard.data.efficientnet import CELLS, FEATURES, PIXELS, load_efficientnet
from regard.data.fields import Checks, StoredField
from regard.data.files import CACHE_CURE, cache_folder, cached
from regard.device import choose_device
from regard.errors import UserError
from regard.file_io import atomic_write, read_bytes

Pixels = NDArray[np.uint8]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
NEED = 'reading image files needs Pillow: pip install "regard[captions]"'
MOST_PIXELS = 80_000_000  # of an image file, read from its header before anything is decoded
LONGEST_SIDE = 2**16  # pixels; to scale one row of 80 million pixels would need gigabytes
MOST_BYTES = 2**28  # of an image file
AT_ONCE = 32  # images that the frozen network reads at a time


def read_image(image: str | Path | bytes | Pixels, size: int, width: int | None = None) -> Pixels:
    """An image as an array (size, width, 3) of red, green and blue; without a width, it is a square.

    The image is a file (JPEG, PNG, WebP or GIF), the content of one, or an array (H, W, 3). It is turned upright by its
    EXIF data and scaled to this size: the aspect ratio is not kept, so that a grid of cells covers the whole image.
    Transparent parts become white. Of an animation, the first frame is read.
    """
    width = size if width is None else width
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise UserError(f"image: an array {image.shape} of {image.dtype}; give a uint8 array (height, width, 3).")
        if image.shape[:2] == (size, width):
            return image
    return np.asarray(_opened(image, width, size).resize((width, size)))  # bicubic, Pillow's default


def read_picture(image: str | Path | bytes, pixels: int) -> Pixels:
    """An image to be shown, as an array (H, W, 3): upright, with its own aspect ratio and at most about so many pixels.

    It is read like the images of `read_image`.
    """
    found = _opened(image, math.isqrt(pixels), math.isqrt(pixels))
    scale = min(1.0, (pixels / (found.width * found.height)) ** 0.5)
    return np.asarray(found.resize([max(1, round(side * scale)) for side in found.size]))


def _opened(image: str | Path | bytes | Pixels, width: int, height: int) -> Any:
    """The upright RGB image of Pillow; a JPEG that is larger than twice this size may be decoded at a smaller one."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise UserError(NEED) from error
    if isinstance(image, np.ndarray):
        return Image.fromarray(image)
    name = "image" if isinstance(image, bytes) else str(image)
    content = image_bytes(image)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large images and of damaged EXIF data
            with Image.open(io.BytesIO(content), formats=FORMATS) as file:
                if file.width * file.height > MOST_PIXELS:
                    raise UserError(_too_large(name, f"{file.width:,} × {file.height:,}"))
                if max(file.size) > LONGEST_SIDE:
                    found = f"{file.width:,} × {file.height:,} pixels, but a side has at most {LONGEST_SIDE:,}"
                    raise UserError(f"{name}: {found}; crop the image.")
                file.draft(None, (2 * width, 2 * height))
                return _upright(file)
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise UserError(_too_large(name, "far too many")) from error
    except UnidentifiedImageError as error:
        raise UserError(f"{name}: not a JPEG, PNG, WebP or GIF image; give an image file.") from error
    except Exception as error:  # a damaged file raises errors of many classes in the decoders of Pillow
        why = str(error) or type(error).__name__
        raise UserError(f"{name}: a damaged or truncated image ({why:.80}); fetch or export it again.") from error


def image_bytes(image: str | Path | bytes) -> bytes:
    """The content of an image file."""
    if isinstance(image, bytes):
        return image
    path = Path(os.path.expanduser(image))
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise UserError(f"{image}: no such file; give the path of an image.") from error
    except (OSError, ValueError) as error:  # a name that is too long, or has a zero byte
        raise UserError(f"{image!s:.80}: cannot be read ({error!s:.80}); give the path of an image.") from error
    if path.is_dir():
        raise UserError(f"{image}: a folder; give the image files in it, such as {path / '*.jpg'}.")
    if not path.is_file():
        raise UserError(f"{image}: a pipe or a device; give an image file.")
    if size > MOST_BYTES:
        raise UserError(f"{image}: {size:,} bytes; give an image of at most {MOST_BYTES:,}.")
    return read_bytes(path)


def _too_large(name: str, found: str) -> str:
    return f"{name}: {found} pixels, but at most {MOST_PIXELS:,} are read; give a smaller image."


def _upright(file: Any) -> Any:
    """The first frame of an open file as an upright RGB image, its transparent parts white."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(file)
    if image.mode.startswith("I"):  # 16 bits a pixel, which Pillow would clip at 255
        image = Image.fromarray((np.asarray(image).clip(0, 2**16 - 1) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _is_size(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 4096


@dataclass(frozen=True)
class ImageField(StoredField):
    """An image as its pixels: an array (size, size, 3)."""

    size: int  # width and height in pixels
    stored: ClassVar[Checks] = {"pixels": _is_size}
    content = "the image size of a run"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)

    @classmethod
    def fit(cls, values: Iterable[Any], name: str, data: Any) -> Self:
        """The field of the size `data.size`."""
        return cls(data.size)

    def encode(self, values: Sequence[Any]) -> list[Pixels]:
        """Arrays (size, size, 3); equal objects give the same array."""
        found = {id(value): read_image(value, self.size) for value in {id(value): value for value in values}.values()}
        return [found[id(value)] for value in values]


@dataclass(frozen=True)
class ClipField(StoredField):
    """The frames of a clip, from an image that has them side by side: grey pixels (frames, pixels · pixels)."""

    frames: int
    pixels: int  # width and height of a frame
    stored: ClassVar[Checks] = {"frames": _is_size, "pixels": _is_size}
    content = "the frames of a run"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)

    @property
    def size(self) -> int:
        """The numbers of a frame."""
        return self.pixels**2

    @classmethod
    def fit(cls, values: Iterable[Any], name: str, data: Any) -> Self:
        """The field of `data.frames` frames of the size `data.size`."""
        return cls(data.frames, data.size)

    def encode(self, values: Sequence[Any]) -> list[Pixels]:
        """Arrays (frames, pixels · pixels)."""
        found = []
        for value in values:
            grey = read_image(value, self.pixels, self.frames * self.pixels).mean(-1).astype(np.uint8)
            frames = grey.reshape(self.pixels, self.frames, self.pixels).swapaxes(0, 1)
            found.append(frames.reshape(self.frames, -1))
        return found


@dataclass(frozen=True)
class FeatureField(StoredField):
    """An image as the features that a frozen network computes for each cell of a grid, row by row: (cells, size).

    The features of an image are stored in the cache, under the SHA-256 of its content and the name of the network; a
    few images are computed each time.
    """

    network: str = "efficientnet-lite0"
    stored: ClassVar[Checks] = {"network": lambda network: isinstance(network, str) and network in NETWORKS}
    content = "the frozen network of a run"
    cells: ClassVar[int] = CELLS
    size: ClassVar[int] = FEATURES  # features of a cell
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float16)

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise UserError(f"network={self.network}: no such frozen network; use {' or '.join(NETWORKS)}.")

    @classmethod
    def fit(cls, values: Iterable[Any], name: str, data: Any) -> Self:
        return cls()

    def encode(self, values: Sequence[Any]) -> list[NDArray[np.float16]]:
        """Arrays (cells, size); equal objects give the same array."""
        different = {id(value): value for value in values}
        keys = {number: _digest(value) for number, value in different.items()}
        known = {key: found for key in keys.values() if (found := self._read(key)) is not None}
        missing = {key: different[number] for number, key in keys.items() if key not in known}
        for key, features in zip(missing, self._compute(list(missing.values()))):
            known[key] = features
            if len(missing) > AT_ONCE:
                with atomic_write(cached(self._folder, f"{key}.float16"), CACHE_CURE) as file:
                    file.write(features.tobytes())
        return [known[keys[id(value)]] for value in values]

    def _compute(self, images: Sequence[Any]) -> Iterable[NDArray[np.float16]]:
        """The features of each image, computed by the network."""
        if not images:
            return
        network = NETWORKS[self.network](choose_device("auto"))
        for at in range(0, len(images), AT_ONCE):
            pixels = np.stack([read_image(image, PIXELS) for image in images[at : at + AT_ONCE]])
            yield from network(pixels).astype(np.float16)

    def _read(self, key: str) -> NDArray[np.float16] | None:
        """The features in the cache; None if they are not there, or damaged."""
        try:
            content = np.fromfile(cache_folder() / self._folder / f"{key}.float16", np.float16)
        except OSError:
            return None
        return content.reshape(CELLS, FEATURES) if content.size == CELLS * FEATURES else None

    @property
    def _folder(self) -> str:
        return f"features/{self.network}"


def _digest(image: Any) -> str:
    """The SHA-256 of an image: of its file, or of its shape and pixels."""
    if isinstance(image, np.ndarray):
        return hashlib.sha256(f"{image.shape}".encode() + image.tobytes()).hexdigest()
    return hashlib.sha256(image_bytes(image)).hexdigest()


NETWORKS: dict[str, Any] = {"efficientnet-lite0": load_efficientnet}  # device → network
