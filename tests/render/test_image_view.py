"""ImageView: the attention of words over an image, as text, picture, page and file."""

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from regard.errors import UserError
from regard.render import ImageView
from regard.render.html import report_html
from regard.render.image_view import images_html, png
from regard.report.sections import ImageGallery

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
    empty = ImageView("", IMAGE, [], np.zeros((0, 6), np.float32), (2, 3))
    assert shown(empty)[1] == "the caption is empty"
    for each in (none, empty):  # the picture is the image alone
        assert each.svg().count("<use") == 1
        assert "fill-opacity=" not in each.svg()


def test_the_brightest_cell_is_named() -> None:
    assert view().describe(1) == "red: most weight, 0.5, in row 1, column 2"
    assert view().maps[1].tolist() == [[pytest.approx(0.2), 1.0, pytest.approx(0.2)], [pytest.approx(0.2)] * 3]


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
    cells = [[float(rect.get(name, "")) for name in ("y", "height")] for rect in groups[0].findall(f"{space}rect")]
    start = float(svg.findall(f"{space}use")[0].get("y", ""))
    assert [y for y, _ in cells] == pytest.approx([start] * 3 + [start + cells[0][1]] * 3)  # the second row is below
    assert svg.find(f"{space}title").text == "dog.png: a red dog"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("height", "width", "drawn", "rows"),
    [
        (64, 64, (128.0, 128.0), 1),
        (240, 320, (171.0, 128.0), 1),
        (8, 96, (838.0, 70.0), 3),  # frames side by side: one strip below the other
        (3000, 1, (16.0, 128.0), 1),
    ],
)
def test_a_picture_keeps_the_aspect_ratio_of_the_image(
    height: int, width: int, drawn: tuple[float, float], rows: int
) -> None:
    weights = np.full((3, 6), 1 / 6, np.float32)
    one = ImageView("a b c", np.zeros((height, width, 3), np.uint8), list("abc"), weights, (1, 6))
    svg = ElementTree.fromstring(one.svg())
    space = "{http://www.w3.org/2000/svg}"
    image = svg.find(f".//{space}image")
    assert image is not None
    assert (float(image.get("width", "")), float(image.get("height", ""))) == drawn
    places = [(float(use.get("x", "")), float(use.get("y", ""))) for use in svg.findall(f"{space}use")]
    assert len({y for _, y in places}) == rows
    last = svg.findall(f"./{space}g")[-1].findall(f"{space}rect")[-1]
    right, bottom = (
        float(last.get(at, "")) + float(last.get(side, "")) for at, side in (("x", "width"), ("y", "height"))
    )
    assert (right, bottom) == pytest.approx([start + side for start, side in zip(places[-1], drawn)])
    assert one.describe(0) == "a: most weight, 0.167, in column 1"


def test_the_caption_is_said_once() -> None:
    assert view().html().count("a red dog</h") == 1
    assert images_html([view(), view()]).count("<h2>a red dog ") == 2
    gallery = report_html("t", [ImageGallery("Attention", [view(), replace(view(), name="")])])
    assert gallery.count('<figcaption title="a red dog">') == 2
    assert gallery.count('class="quiet" x="20" y="32">dog.png<') == 1
    assert "<image" in gallery


def test_a_page_has_its_image_and_loads_nothing() -> None:
    page = view().html()
    assert "img-src data:" in page
    (source,) = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="dog.png: a red dog"', page)
    assert base64.b64decode(source) == png(IMAGE)
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert json.loads(data)["images"][0]["maps"][0] == [1.0, 0.2, 0.2, 0.2, 0.2, 0.2]
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
