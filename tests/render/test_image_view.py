"""ImageView: the attention of words over an image, as text, picture, page and file."""

import base64
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from regard.errors import UserError
from regard.render import ImageView
from regard.render.image_view import images_html, png

IMAGE = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
EVIL = '</script><script>alert(1)</script>"<img src=x onerror=alert(2)>'


def view(words: list[str] | None = None, weights: np.ndarray | None = None) -> ImageView:
    words = ["a", "red", "dog"] if words is None else words
    if weights is None:
        weights = np.full((len(words), 6), 0.1, np.float32)
        for row in range(len(words)):
            weights[row, row % 6] = 0.5
    return ImageView(" ".join(words), IMAGE, words, weights, (2, 3), "dog.png", "The model is small.")


def shown(one: ImageView, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(one.text())
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_terminal_has_a_grid_for_each_word() -> None:
    lines = shown(view())
    assert lines[0] == "a red dog  dog.png"
    assert [line.rstrip() for line in lines[1:4]] == [
        "a       red     dog",
        "██░░░░  ░░██░░  ░░░░██",
        "░░░░░░  ░░░░░░  ░░░░░░",
    ]
    narrow = shown(view(), width=15)
    assert [line.rstrip() for line in narrow[2:4]] == ["a       red", "██░░░░  ░░██░░"]
    assert [line.rstrip() for line in narrow[6:8]] == ["dog", "░░░░██"]


def test_a_model_without_attention_says_so() -> None:
    none = ImageView("a dog", IMAGE, ["a", "dog"], None, (2, 3))
    assert shown(none)[1] == "this model has no attention weights"
    assert "This model has no attention weights." in none.html()
    assert "<canvas" not in none.html()
    assert "bright cells" not in none.html()
    assert shown(ImageView("", IMAGE, [], np.zeros((0, 6), np.float32), (2, 3)))[1] == "the caption is empty"


def test_the_brightest_cell_is_named() -> None:
    assert view().describe(1) == "red: most weight, 0.5, in row 1, column 2"
    assert view().maps[1].tolist() == [[pytest.approx(0.2), 1.0, pytest.approx(0.2)], [pytest.approx(0.2)] * 3]


def test_a_clip_is_drawn_wide_and_its_cells_are_counted() -> None:
    clip = ImageView(
        "it moves", np.zeros((8, 96, 3), np.uint8), ["it", "moves"], np.eye(12, dtype=np.float32)[:2], (1, 12)
    )
    assert clip.describe(1) == "moves: most weight, 1, in cell 2 of 12"
    svg = ElementTree.fromstring(clip.svg())
    image = svg.find(".//{http://www.w3.org/2000/svg}image")
    assert image is not None
    assert (image.get("width"), image.get("height")) == ("768", "64")  # 12 : 1, as the image
    assert len({use.get("x") for use in svg.findall(".//{http://www.w3.org/2000/svg}use")}) == 1  # below each other
    assert 'class="stack wide"' in clip.html()
    assert "receptive field" in clip.html()
    assert 'class="stack wide"' not in view().html()


def test_a_png_is_read_back() -> None:
    image = pytest.importorskip("PIL.Image")
    assert (np.asarray(image.open(io.BytesIO(png(IMAGE)))) == IMAGE).all()


def test_a_picture_has_the_image_once_and_a_shade_for_each_cell() -> None:
    svg = ElementTree.fromstring(view().svg())
    space = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f".//{space}image")) == 1
    assert len(svg.findall(f".//{space}use")) == 3
    groups = svg.findall(f"./{space}g")
    shades = [[float(rect.get("fill-opacity", "")) for rect in group.findall(f"{space}rect")] for group in groups]
    assert shades[1] == [0.6, 0.0, 0.6, 0.6, 0.6, 0.6]
    assert svg.find(f"{space}title").text == "dog.png: a red dog"  # type: ignore[union-attr]


def test_a_page_has_its_image_and_loads_nothing() -> None:
    page = view().html()
    assert "img-src data:" in page
    (source,) = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="dog.png: a red dog"', page)
    assert base64.b64decode(source) == png(IMAGE)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(data)[0]["maps"][0] == [1.0, 0.2, 0.2, 0.2, 0.2, 0.2]
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_no_word_becomes_markup() -> None:
    evil = ImageView(EVIL, IMAGE, [EVIL], np.full((1, 6), 1 / 6, np.float32), (2, 3), EVIL, EVIL)
    page = images_html([evil], EVIL)
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "<script>alert" not in evil.svg()
    assert page.count("</script>") == 2


def test_a_view_is_saved_by_its_suffix(tmp_path: Path) -> None:
    assert view().save(tmp_path / "a.html").read_text(encoding="utf-8") == view().html()
    assert view().save(tmp_path / "a.svg").read_text(encoding="utf-8") == view().svg()
    with np.load(view().save(tmp_path / "a.npz")) as stored:
        assert stored["words"].tolist() == ["a", "red", "dog"]
        assert (stored["image"] == IMAGE).all()
        assert stored["weights"].shape == (3, 6)
    with pytest.raises(UserError, match=r"end the name in \.html, \.svg or \.npz"):
        view().save(tmp_path / "a.pdf")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="weights: of shape"):
        view(weights=np.zeros((2, 6), np.float32))
    with pytest.raises(ValueError, match="not a uint8 array"):
        ImageView("", IMAGE.astype(float), [], None, (2, 3))  # type: ignore[arg-type]
