"""Image files of every kind, good and bad; and the fields of images."""

import builtins
import io
import json
import os
import struct
import warnings
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regard.data.fields import encode
from regard.data.images import AT_ONCE, NETWORKS, FeatureField, ImageField, read_image, read_picture
from regard.errors import UserError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

RED, BLUE = (220, 30, 40), (20, 40, 210)


def halves(mode: str = "RGB") -> Any:
    """An image of 40 × 20: red on the left, blue on the right."""
    pixels = np.empty((20, 40, 3), np.uint8)
    pixels[:, :20], pixels[:, 20:] = RED, BLUE
    return Image.fromarray(pixels).convert(mode)


def content(image: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def near(pixel: Any, colour: tuple[int, int, int], by: int = 40) -> bool:
    return bool((np.abs(pixel.astype(int) - colour) <= by).all())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_each_format_is_read_as_a_square(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image"  # the content decides, not the name
    path.write_bytes(content(halves(), kind))
    for image in (path, str(path), path.read_bytes()):
        found = read_image(image, 8)
        assert found.shape == (8, 8, 3)
        assert found.dtype == np.uint8
        assert near(found[4, 1], RED)
        assert near(found[4, 6], BLUE)


def test_an_image_is_turned_upright_by_its_exif_data() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn by 90 degrees to the right
    found = read_image(content(halves(), "JPEG", exif=exif), 8)
    assert near(found[1, 4], RED)  # the left half is now above
    assert near(found[6, 4], BLUE)


def test_a_large_image_is_read_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # Pillow warns of more
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_image(content(halves(), "PNG"), 8).shape == (8, 8, 3)


def test_a_picture_keeps_its_aspect_ratio() -> None:
    assert read_picture(content(halves(), "PNG"), 1000).shape == (20, 40, 3)  # it is not enlarged
    assert read_picture(content(halves(), "JPEG"), 200).shape == (10, 20, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = read_picture(content(halves().resize((400, 200)), "JPEG", exif=exif), 200)
    assert turned.shape == (20, 10, 3)
    assert near(turned[4, 5], RED)
    assert read_picture(content(Image.new("RGB", (1, 3000), RED), "PNG"), 100).shape == (548, 1, 3)


def test_modes_of_one_channel_are_grey() -> None:
    grey = read_image(content(halves("L"), "PNG"), 8)
    assert (grey[..., 0] == grey[..., 2]).all()
    wide = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    assert (read_image(content(wide, "PNG"), 4) == 128).all()  # of 16 bits, the upper 8
    assert (read_image(content(Image.new("1", (4, 4), 1), "PNG"), 4) == 255).all()


def test_a_palette_and_cmyk_keep_their_colours() -> None:
    assert near(read_image(content(halves("P"), "PNG"), 8)[4, 1], RED)
    assert near(read_image(content(halves("CMYK"), "JPEG"), 8)[4, 1], RED)


def test_transparent_parts_are_white() -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert (read_image(content(clear, "PNG"), 4) == 255).all()
    assert (read_image(content(Image.new("LA", (4, 4), (0, 0)), "PNG"), 4) == 255).all()
    palette = Image.new("P", (4, 4), 0)
    assert (read_image(content(palette, "PNG", transparency=0), 4) == 255).all()


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_read(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    found = read_image(content(frames[0], kind, save_all=True, append_images=frames[1:]), 4)
    assert near(found[2, 2], RED)


def test_an_image_of_one_pixel_and_a_thin_one_are_read() -> None:
    assert (read_image(content(Image.new("RGB", (1, 1), RED), "PNG"), 16) == RED).all()
    assert read_image(content(Image.new("RGB", (1, 3000), RED), "PNG"), 16).shape == (16, 16, 3)


def test_arrays_are_scaled_too() -> None:
    array = np.asarray(halves())
    assert near(read_image(array, 8)[4, 1], RED)
    square = np.zeros((8, 8, 3), np.uint8)
    assert read_image(square, 8) is square
    for wrong in (array[..., :2], array.astype(np.float32), array[:0]):
        with pytest.raises(UserError, match="give a uint8 array"):
            read_image(wrong, 8)


def png_of(width: int, height: int) -> bytes:
    """A PNG file that states its size and has almost no data."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(99))))
    parts = [
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"This is a text, not an image.\n", "not a JPEG, PNG, WebP or GIF image"),
        (b"", "not a JPEG, PNG, WebP or GIF image"),
        (b"\xff\xd8\xff\xe0" + bytes(50), "not a JPEG, PNG, WebP or GIF image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a JPEG, PNG, WebP or GIF image"),
        (png_of(30_000, 30_000), "pixels, but at most 80,000,000 are read"),
        (png_of(10_000, 10_000), "10,000 × 10,000 pixels, but at most 80,000,000 are read"),
        (png_of(70_000_000, 1), "70,000,000 × 1 pixels, but a side has at most 65,536; crop the image"),
        (png_of(20, 20), "a damaged or truncated image"),
    ],
    ids=["text", "empty", "bytes", "postscript", "30,000", "10,000", "one row", "truncated"],
)
def test_a_bad_file_is_refused_in_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jpg"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as error:
        read_image(path, 8)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_truncated_file_is_refused(kind: str) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    data = content(noise, kind)
    with pytest.raises(UserError, match=r"a damaged or truncated image|not a JPEG"):
        read_image(data[: len(data) // 2], 8)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_image(tmp_path / "none.png", 8)
    with pytest.raises(UserError, match="a folder; give the image files in it"):
        read_image(tmp_path, 8)
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", Path("/dev/zero")):
        with pytest.raises(UserError, match="a pipe or a device; give an image file"):
            read_image(path, 8)
    for name in ("long" * 2000, "zero\0byte"):
        with pytest.raises(UserError, match="cannot be read"):
            read_image(tmp_path / name, 8)


def test_without_pillow_the_error_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return ordinary(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r'pip install "regard\[captions\]"'):
        read_image(b"", 8)
    assert read_image(np.zeros((8, 8, 3), np.uint8), 8).shape == (8, 8, 3)  # drawn scenes need no Pillow


def test_the_field_of_pixels_is_saved_and_encodes(tmp_path: Path) -> None:
    field = ImageField.fit([], "image", SimpleNamespace(size=16))
    field.save(tmp_path / "image.json")
    assert ImageField.load(tmp_path / "image.json") == field
    data = content(halves(), "PNG")
    first, second, third = field.encode([data, data, content(halves("L"), "PNG")])
    assert first is second  # one array for the captions of an image
    assert first.shape == third.shape == (16, 16, 3)
    for bad in ({}, {"pixels": "9"}, {"pixels": 0}, []):
        (tmp_path / "image.json").write_text(json.dumps(bad))
        with pytest.raises(UserError, match="not the image size"):
            ImageField.load(tmp_path / "image.json")


def test_images_that_several_examples_share_are_stored_once() -> None:
    data = [content(Image.new("RGB", (9, 9), colour), "PNG") for colour in (RED, BLUE)]
    examples = [SimpleNamespace(image=data[number]) for number in (0, 0, 0, 1, 0)]
    reports = list[tuple[str, int, int]]()
    column = encode({"image": ImageField(4)}, examples, lambda *report: reports.append(report))["image"]
    assert reports == [("encoding the examples", column.values.nbytes, column.values.nbytes)]
    assert column.values.shape == (3 * 4, 4, 3)
    assert column.lengths.tolist() == [4] * 5
    assert [tuple(column[number][0, 0]) for number in range(5)] == [RED, RED, RED, BLUE, RED]


def test_features_are_computed_once_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    computed = list[int]()

    def network(pixels: Any) -> Any:
        computed.append(len(pixels))
        return np.broadcast_to(pixels[:, :7, :7, :1].reshape(-1, 49, 1) / 8, (len(pixels), 49, 1280)).astype(np.float32)

    monkeypatch.setitem(NETWORKS, "efficientnet-lite0", lambda device: network)
    field = FeatureField.fit([], "image", None)
    images = [np.full((224, 224, 3), number, np.uint8) for number in range(AT_ONCE + 2)]
    first = field.encode([*images, images[0]])
    assert sum(computed) == len(images)
    assert first[-1] is first[0]
    assert first[8].shape == (49, field.size)
    assert first[8][0, 0] == 1
    again = FeatureField().encode([image.copy() for image in images])  # by content, not by object
    assert sum(computed) == len(images)
    assert all((a == b).all() for a, b in zip(first, again))
    damaged = next((tmp_path / "features/efficientnet-lite0").iterdir())
    damaged.write_bytes(b"short")
    assert (field.encode(images)[8] == first[8]).all()
    assert sum(computed) == len(images) + 1
    wide, tall = field.encode([np.zeros((4, 9, 3), np.uint8), np.zeros((9, 4, 3), np.uint8)])
    assert wide is not tall  # the same bytes are another image in another shape


def test_the_field_of_features_is_saved(tmp_path: Path) -> None:
    FeatureField().save(tmp_path / "image.json")
    assert FeatureField.load(tmp_path / "image.json") == FeatureField()
    for network in ('"other"', "[]"):
        (tmp_path / "image.json").write_text(f'{{"network": {network}}}')
        with pytest.raises(UserError, match="not the frozen network of a run"):
            FeatureField.load(tmp_path / "image.json")
    with pytest.raises(UserError, match="no such frozen network; use efficientnet-lite0"):
        FeatureField("other")
