"""Heatmaps."""

import xml.etree.ElementTree as ET

import numpy as np

from regard.render.charts import curve_svg, heatmap_svg
from regard.render.html import report_html
from regard.render.svg import NEGATIVE
from regard.report.sections import Curve, Heatmap, Heatmaps, Line


def test_cells_have_a_colour_for_their_sign_and_a_tooltip() -> None:
    picture = heatmap_svg(Heatmap("t", "across", "down", [[1.0, -0.5], [0.0, float("nan")]], ["a", "<b>"], ["x", "y"]))
    ET.fromstring(picture)
    assert "<title>a, x: 1</title>" in picture
    assert "<title>a, y: -0.5</title>" in picture
    assert picture.count("<title>") == 3  # of the picture, and of the two cells that are not blank
    assert NEGATIVE in picture
    assert "&lt;b&gt;" in picture


def test_vmax_has_the_full_colour() -> None:
    assert 'fill-opacity="0.1"' in heatmap_svg(Heatmap("", "", "", [[0.1]], vmax=1.0))
    assert 'fill-opacity="1"' in heatmap_svg(Heatmap("", "", "", [[0.1]]))
    ET.fromstring(heatmap_svg(Heatmap("", "", "", np.zeros((2, 300)))))


def test_a_heatmap_without_rows_or_columns_is_drawn() -> None:
    for shape in ((0, 3), (3, 0)):
        ET.fromstring(heatmap_svg(Heatmap("", "x", "y", np.zeros(shape))))


def test_a_report_with_heatmaps_and_logarithmic_curves() -> None:
    page = report_html("t", [Heatmaps("some", [Heatmap("one", "x", "y", [[1.0]])])])
    assert '<figcaption title="one"><bdi>one</bdi></figcaption>' in page
    straight = curve_svg(Curve("", "n", "ms", [Line("a", [10, 100, 1000, 0], [1, 10, 100, 5])], log_y=True, log_x=True))
    points = [float(part.split('"')[1]) for part in straight.split("cx=")[1:]]
    assert len(points) == 3  # zero has no logarithm
    assert abs((points[2] - points[1]) - (points[1] - points[0])) < 0.2


def test_few_columns_are_as_wide_as_their_names() -> None:
    names = ["bad", "good", "indifferent"]
    picture = heatmap_svg(Heatmap("", "predicted", "true", np.eye(3), names, names))
    assert all(picture.count(f">{name}<") == 2 for name in names)  # below its column and beside its row


def test_wide_cells_have_their_numbers_and_the_key_has_two_digits() -> None:
    values = [[0.07123, 0.17], [0.001, 0.94274]]
    wide = heatmap_svg(Heatmap("", "layer", "task", values, ["a", "b"], ["embedding", "layer 1"]))
    assert [f">{number}</text>" in wide for number in ("0.07", "0.17", "0.00", "0.94")] == [True, True, False, True]
    assert wide.count(">0.94<") == 2  # the cell, and the end of the key
    assert "b, layer 1: 0.94274" in wide  # on hover
    narrow = heatmap_svg(Heatmap("", "layer", "task", values, side=30))
    assert ">0.07<" not in narrow
    assert ">-12.5<" in heatmap_svg(Heatmap("", "", "", [[-12.46, 3.0]], columns=["a long name", "b"]))


def test_every_row_is_named_beside_narrow_cells() -> None:
    rows = ["previous", "next", "itself"]
    picture = heatmap_svg(Heatmap("", "head", "", np.ones((3, 90)), rows))
    assert all(f">{name}<" in picture for name in rows)
