"""SVG pictures: well formed for any text, deterministic, with the numbers as tooltips."""

import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.render import AttentionView, Layer
from regard.render.axes import Axis
from regard.render.charts import curve_svg
from regard.render.view_data import Unknown
from regard.report.sections import Curve, Line

SVG = "{http://www.w3.org/2000/svg}"


def cells(picture: str) -> list[ET.Element]:
    return [rect for rect in ET.fromstring(picture).iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]


def test_every_cell_has_its_weight_as_tooltip_and_opacity():
    weights = np.array([[[0.123456789, 0.876543211], [1.0, 0.0]]])
    view = AttentionView("dates", ["2", "1"], ["é", " "], [Layer("cross", weights)])
    found = cells(view.svg())
    assert [cell.find(f"{SVG}title").text for cell in found] == [
        "2 looks at é: 0.123457",
        "2 looks at ␣: 0.876543",
        "1 looks at é: 1",
        "1 looks at ␣: 0",
    ]
    assert [float(cell.get("fill-opacity")) for cell in found] == [0.123, 0.877, 1.0, 0.0]
    assert view.svg() == view.svg()


def test_long_labels_are_slanted():
    def turned(columns: list[str]) -> bool:
        return "rotate(-45)" in AttentionView("", ["a"], columns, [Layer("l", np.ones((1, 1, len(columns))))]).svg()

    assert not turned(list("３é日"))
    assert turned(["harbour", "."])


def test_slanted_labels_stay_inside_the_picture():
    root = ET.fromstring(AttentionView("", ["a"], ["x", "Morgendämmerung"], [Layer("l", np.ones((1, 1, 2)))]).svg())
    last = next(text for text in root.iter(f"{SVG}text") if text.text == "Morgendämmerung")
    x, y = map(float, re.findall(r"translate\(([\d.]+) ([\d.]+)\)", last.get("transform"))[0])
    reach = 15 * 7.2 * math.sqrt(0.5)  # fifteen letters of 12 px monospace, at 45°
    assert x + reach <= float(root.get("width"))
    assert y - reach >= 0


@settings(max_examples=60)
@given(st.text(max_size=12), st.lists(st.text(max_size=6), max_size=5), st.lists(st.text(max_size=6), max_size=5))
def test_any_text_gives_well_formed_xml(title, rows, columns):
    picture = AttentionView(title, rows, columns, [Layer("l", np.ones((1, len(rows), len(columns))))]).svg()
    picture.encode("utf-8")
    assert len(cells(picture)) == len(rows) * len(columns)


def test_nan_has_a_tooltip_and_no_colour():
    cell = cells(AttentionView("", ["a"], ["x"], [Layer("l", [[[math.nan]]])]).svg())[0]
    assert (cell.find(f"{SVG}title").text, cell.get("fill-opacity")) == ("a looks at x: nan", "0")


def lines(picture: str) -> dict[str, float]:
    """The opacity of each line, by its tooltip."""
    paths = (path for path in ET.fromstring(picture).iter(f"{SVG}path") if path.find(f"{SVG}title") is not None)
    return {path.find(f"{SVG}title").text: float(path.get("stroke-opacity")) for path in paths}


def test_lines_join_queries_and_keys():
    one = np.array([[[0.9, 0.1], [0.01, 0.99]]])
    assert lines(AttentionView("t", ["a", "b"], ["x", "y"], [Layer("l", one)]).lines()) == {
        "a looks at x: 0.9": 0.9,
        "a looks at y: 0.1": 0.1,
        "b looks at y: 0.99": 0.99,  # weaker lines are not drawn
    }
    picture = AttentionView("t", ["a", "b"], ["x", "y"], [Layer("l", np.concatenate([one, one]))]).lines()
    assert len(lines(picture)) == 6
    assert "head 1, b looks at y: 0.99" in lines(picture)
    assert all(f'class="line s{head}"' in picture for head in (0, 1))
    assert len(lines(AttentionView("t", ["a"], ["x"], []).lines())) == 0


@pytest.mark.parametrize("text", ["</title><script>&amp;", '"&<'])
def test_any_text_is_a_tooltip(text):
    for view in (
        AttentionView("t", [text], ["x"], [Layer("l", np.ones((1, 1, 1)))]),
        AttentionView("t", ["x"], [text], [Layer("l", np.ones((1, 1, 1)))]),
    ):
        tooltip = f"{view.rows[0]} looks at {view.columns[0]}: 1"
        assert list(lines(view.lines())) == [tooltip]
        assert [cell.find(f"{SVG}title").text for cell in cells(view.svg())] == [tooltip]


def test_long_texts_have_the_strongest_lines_of_each_row_and_their_number():
    names = [str(at) for at in range(100)]
    weights = np.random.default_rng(0).random((1, 100, 100))
    picture = AttentionView("", names, names, [Layer("l", weights)]).lines()
    assert len(lines(picture)) == 4000
    assert min(lines(picture).values()) > 0.4
    assert re.search(r"4,000 of [\d,]+ lines are drawn: the strongest of each row", picture)
    assert "lines are drawn" not in AttentionView("", ["a"], ["x"], [Layer("l", [[[1.0]]])]).lines()


def test_masked_cells_are_hatched_unknown_tokens_ringed_and_scripts_isolated():
    layer = Layer("l", [[[1.0, 0.0], [0.5, 0.5]]], visible=np.tril(np.ones((2, 2), dtype=bool)))
    view = AttentionView("שלום → hello", ["a", Unknown("é")], ["של", "b"], [layer])
    picture = view.svg()
    tooltips = [cell.find(f"{SVG}title").text for cell in cells(picture)]
    assert tooltips[1] == "a may not look at b"
    assert tooltips[2] == "é (unknown) looks at \u2068של\u2069: 0.5"
    assert 'class="hatch"' in picture
    assert "may not look</text>" in picture
    assert "<unk>" not in picture
    for drawn in (picture, view.lines()):
        assert drawn.count('class="ring"') == 1
        assert "\u2068שלום\u2069 → hello" in drawn
    plain = AttentionView("t", ["a"], ["b"], [Layer("l", [[[1.0]]])]).svg()
    assert 'class="hatch"' not in plain
    assert "\u2068" not in plain


def test_large_pictures_leave_out_faint_cells():
    names = [str(at) for at in range(150)]
    weights = np.where(np.eye(150) > 0, 0.9, 1e-3)[None]
    assert len(cells(AttentionView("", names, names, [Layer("l", weights)]).svg())) == 150


def test_a_curve_has_its_lines_points_and_ticks():
    lines = [Line("a & b", [0, 100, 200], [3.0, 2.0, 1.0]), Line("c", [0, 200], [1, 4])]
    picture = curve_svg(Curve("loss", "step", "nats", lines))
    root = ET.fromstring(picture)
    tooltips = [title.text for title in root.iter(f"{SVG}title")]
    assert tooltips == ["loss", "a & b: 0, 3", "a & b: 100, 2", "a & b: 200, 1", "c: 0, 1", "c: 200, 4"]
    written = {text.text for text in root.iter(f"{SVG}text")}
    assert {"loss", "step", "nats", "a & b", "c", "0", "100", "200", "1", "4"} <= written


def test_the_axis_of_an_accuracy_ends_at_one_if_only_a_bar_is_a_little_above():
    line = Line("a", [8, 32], [0.7, 0.999], [0.05, 0.003])
    written = {
        text.text for text in ET.fromstring(curve_svg(Curve("", "labels", "accuracy", [line]))).iter(f"{SVG}text")
    }
    assert "1" in written
    assert "1.1" not in written


@pytest.mark.parametrize("values", [[0.5, 1.4], [0.59, 2.4], [3.0, 900.0], [1e-9, 1.0]])
def test_a_logarithmic_axis_has_at_least_three_ticks(values):
    axis = Axis(*values, start=0.0, end=100.0, log=True)
    ticks = axis.ticks()
    assert len(ticks) > 2
    assert all(-1e-6 <= axis.at(tick) <= 100 + 1e-6 for tick in ticks)


def test_missing_points_break_the_line():
    broken = Curve("", "x", "y", [Line("a", [0, 1, 2, 3], [1, math.nan, 2, 3])])
    path = re.findall(r'class="line s0" d="([^"]+)"', curve_svg(broken))[-1]
    assert (path.count("M"), path.count("L")) == (2, 1)
    for ys in ([1.0], [float("nan"), 1.0]):  # the only point is a dash that can be seen
        assert "m-4 0h8" in curve_svg(Curve("", "x", "y", [Line("a", range(len(ys)), ys)]))
    logarithmic = curve_svg(Curve("", "x", "y", [Line("a", [0, 1, 2], [0.0, 0.001, 10])], log_y=True))
    assert len(re.findall("<circle", logarithmic)) == 2
    assert all(f">{tick}<" in logarithmic for tick in ("0.001", "0.1", "10"))


@pytest.mark.parametrize("log_y", [False, True])
@settings(max_examples=60)
@given(st.lists(st.floats(width=32), max_size=8))
def test_any_values_can_be_drawn(log_y, ys):
    root = ET.fromstring(curve_svg(Curve("t", "x", "y", [Line("a", range(len(ys)), ys)], log_y)))
    drawn = [y for y in ys if math.isfinite(y) and (y > 0 or not log_y)]
    assert len(list(root.iter(f"{SVG}circle"))) == len(drawn)


def test_a_line_with_unequal_lengths_raises_an_error():
    with pytest.raises(ValueError, match='line "a": 2 xs and 1 ys'):
        Line("a", [1, 2], [1])
