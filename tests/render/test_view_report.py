"""Reports: all kinds of sections, in order, in one file."""

import math
import re

import numpy as np
import pytest

from regard.metrics import METRICS
from regard.render import AttentionView, Layer
from regard.render.charts import curve_svg
from regard.render.html import report_html
from regard.report.figures import metric_curve
from regard.report.sections import Curve, Folded, Gallery, Line, Pre, Table, Text


def cells_of(page: str, row: str) -> list[tuple[str, str]]:
    """The (class, text) of each cell in the table's row that begins with that text."""
    line = next(line for line in page.splitlines() if f">{row}<" in line and line.startswith("<tr><td"))
    return re.findall(r'<td class="([^"]*)">([^<]*)</td>', line)


def test_sections_come_in_order_and_escaped():
    view = AttentionView("a <view>", ["a"], ["x"], [Layer("cross", np.ones((1, 1, 1)))])
    page = report_html(
        "dates <ladder>",
        [
            Text("one & two\n\nthree", "Words"),
            Curve("loss", "step", "nats", [Line("l", [0, 1], [2, 1])]),
            Gallery("G", [view]),
            Pre("a  <b>"),
        ],
    )
    places = [
        page.index(part)
        for part in (
            "dates &lt;ladder&gt;</bdi></h1>",
            "<p>one &amp; two</p><p>three</p>",
            "l: 1, 1",
            "a &lt;view&gt;",
            "a  &lt;b&gt;",
        )
    ]
    assert places == sorted(places)
    assert "a looks at x: 1" in page
    assert set(re.findall(r"\w+://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}
    assert page.count("<script") == 2  # the data of the picture, and the script that draws it
    assert "<script" not in report_html("t", [Pre("a")])


def test_pictures_of_a_gallery_share_one_colour_scale():
    faint, strong = (np.full((1, 2, 50), 0.01), np.full((1, 2, 50), 0.01))
    strong[0, :, 0] = 0.3
    views = [AttentionView("t", ["a", "b"], ["x"] * 50, [Layer("l", weights)]) for weights in (faint, strong)]
    assert [view.matrix().scale_max for view in views] == [0.05, 0.5]
    page = report_html("t", [Gallery("G", views)])
    assert page.count(">0.5</text>") == 2
    assert page.count('<figure class="large">') == 2  # half a page would be too small for fifty columns
    assert "<figure><figcaption" in report_html("t", [Gallery("G", [AttentionView("t", ["a"], ["x"], [])])])


def test_numbers_are_aligned_right_and_the_best_are_marked():
    rows = [
        ["none", 412345, "61.2 ± 3.1", None, 0.81234],
        ["dot", 410112, "99.6 ± 0.1", "88.1 %", 0.5],
        ["add", 1, "99.6 ± 0.2", "94 %", 0.5],
    ]
    table = Table(
        "S",
        ["score", "size", "match", "aligned", "loss"],
        rows,
        "note",
        {"match": "high", "aligned": "high", "loss": "low"},
    )
    page = report_html("t", [table])
    assert cells_of(page, "none") == [
        ("", "none"),
        ("figure", "412,345"),
        ("figure", "61.2 ± 3.1"),
        ("figure", "–"),
        ("figure", "0.8123"),
    ]
    assert [kind for kind, _ in cells_of(page, "dot")] == ["", "figure", "figure best", "figure", "figure best"]
    assert [kind for kind, _ in cells_of(page, "add")] == [
        "",
        "figure",
        "figure best",
        "figure best",
        "figure best",
    ]
    assert '<p class="quiet">note</p>' in page


def test_a_vector_keeps_its_spaces_and_a_caption_has_its_full_title():
    """A column has one style: that of vectors, if all of its cells are vectors."""
    rows = [
        ["a", " 1.00 -0.50  2.00 …", "1.00 2.00"],
        ["b", "+1.00 -0.50 | -2.00 +0.50", "masked 1.00"],
        ["c", "-1.00  0.50", ""],
        ["d", "", ""],
    ]
    table = Table("", ["", "vector", "mixed"], rows)
    page = report_html("t", [table, Gallery("G", [AttentionView("a & b", ["a"], ["x"], [])])])
    for name, vector, mixed in rows:
        assert cells_of(page, name)[1:] == [("vector", vector), ("", mixed)]
    assert '<figcaption title="a &amp; b"><bdi>a &amp; b</bdi></figcaption>' in page


def test_words_between_backticks_are_code():
    page = report_html("t", [Text("give `a < b` or one ` alone")])
    assert "<p>give <code>a &lt; b</code> or one ` alone</p>" in page


def test_only_cells_that_are_written_from_right_to_left_have_a_direction():
    page = report_html("Report", [Table("Words", ["word"], [["שלום"], ["peace"]])])
    assert re.findall(r"<td([^>]*)>", page) == [' class="" dir="auto"', ' class=""']


def test_dates_and_names_are_not_numbers():
    assert cells_of(report_html("t", [Table("", ["a", "b"], [["x", "2021-02-03"]])]), "x")[1] == ("", "2021-02-03")


def test_wrong_tables_raise_errors_with_the_name():
    with pytest.raises(ValueError, match='table "S": row 1 has 1 cells for 2 columns'):
        Table("S", ["a", "b"], [[1, 2], [1]])
    with pytest.raises(ValueError, match='"c", which is no column'):
        Table("S", ["a"], [[1]], best={"c": "low"})


def test_a_value_that_is_no_number_is_never_the_best():
    page = report_html(
        "t", [Table("S", ["a", "loss"], [["x", float("nan")], ["y", 2.0], ["z", 3.0]], "", {"loss": "low"})]
    )
    assert [cells_of(page, name)[1][0] for name in "xyz"] == ["figure", "figure best", "figure"]


def test_equal_values_have_no_best():
    page = report_html("t", [Table("S", ["a", "by chance"], [["x", 2.0], ["y", 2.0]], "", {"by chance": "high"})])
    assert [cells_of(page, name)[1][0] for name in "xy"] == ["figure", "figure"]


def test_nine_lines_differ_in_colour_or_dashes():
    picture = curve_svg(Curve("C", "x", "y", [Line(str(n), [1, 2], [n, n + 1]) for n in range(12)]))
    styles = re.findall(r'<path class="(line s\d)" d="M[^"]*h26"( stroke-dasharray="[^"]*")?/>', picture)
    assert len(styles) == len(set(styles)) == 12


def ticks_of(picture: str) -> list[str]:
    """The labels below the x axis."""
    return [part.partition("<")[0] for part in re.findall(r'class="quiet middle" x="[^"]*" y="344">(.*)', picture)]


def test_ticks_are_at_the_measured_points_if_there_are_few() -> None:
    few = [2, 6, 10, 14, 18]
    found = ticks_of(curve_svg(Curve("", "x", "y", [Line("a", few, few), Line("b", [6, 18], [1, 2])])))
    assert found == [str(x) for x in few]
    for xs in (list(range(1, 40)), [0.5, 3, 9.5], [1, 2, 3, 1000]):  # many, no whole numbers, labels without room
        found = ticks_of(curve_svg(Curve("", "x", "y", [Line("a", xs, xs)])))
        assert 3 <= len(found) <= 7
        assert "3" not in found


def test_lines_that_coincide_are_striped() -> None:
    """Each is seen, and a point names all of them."""
    lines = [Line(name, [0, 1], ys) for name, ys in [("a", [0, 0]), ("b", [0, 1]), ("c", [0, 0]), ("d", [0, 0])]]
    picture = curve_svg(Curve("", "x", "y", lines))
    assert [picture.count(f'stroke-dasharray="18 36" stroke-dashoffset="{at}"') for at in (0, -18, -36)] == [1, 1, 1]
    assert picture.count("<title>a · c · d: 0, 0</title>") == 3
    assert picture.count("<title>b: 0, 0</title>") == 1


def levels_of(picture: str) -> list[str]:
    """The labels beside the y axis, from the lowest."""
    return re.findall(r'class="quiet end" x="74" y="[^"]*">([^<]*)', picture)


@pytest.mark.parametrize(
    ("metric", "values", "levels"),
    [
        ("alignment", [0.960, 0.970], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),  # a small change looks small
        ("exact", [0.0, 0.0], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ("pearson", [-0.3, 0.9], ["-0.5", "0", "0.5", "1"]),
        ("word_error", [0.5, 1.4], ["0", "0.5", "1", "1.5"]),  # no point is left out
        ("bleu", [31.0, 38.0], ["0", "10", "20", "30", "40"]),
        ("loss", [0.0, 0.0], ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]),
        ("loss", [2.31, 2.38], ["2.3", "2.32", "2.34", "2.36", "2.38"]),
        ("loss", [4.5, 0.02], ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5"]),  # decades
    ],
)
def test_an_axis_stays_in_the_range_of_its_metric(metric: str, values: list[float], levels: list[str]) -> None:
    curve = metric_curve("", "step", METRICS[metric], [Line("a", [1, 2], values)])
    assert levels_of(curve_svg(curve)) == levels


def test_the_bar_of_a_deviation_ends_with_the_axis() -> None:
    curve = Curve("", "x", "accuracy", [Line("a", [1, 2], [0.95, 0.5], [0.2, 0.1])], ends=(0, 1))
    picture = curve_svg(curve)
    assert levels_of(picture)[-1] == "1"
    top = re.findall(r'class="rule" d="M84 ([\d.]+)H736"', picture)[-1]  # the highest rule
    assert re.findall(r'd="M84\.0 [\d.]+V([\d.]+)"', picture) == [top]


def test_a_line_without_points_is_not_in_the_legend_and_the_others_keep_their_colours() -> None:
    lines = [Line("none", [], []), Line("lost", [0, 1], [math.nan, math.nan]), Line("seen", [0, 1], [1, 2])]
    picture = curve_svg(Curve("", "x", "y", lines))
    assert re.findall(r">(none|lost|seen)<", picture) == ["seen"]
    assert re.findall(r'<path class="line (s\d)" d="M[^"]*h26"', picture) == ["s2"]


def test_a_page_folds_sections_and_the_rows_after_the_first() -> None:
    table = Table("T", ["name", "n"], [[f"row {at}", at] for at in range(5)], "note", first=2)
    page = report_html("t", [Folded("Settings", "model=<m>", [Pre("a=1"), table])])
    folded = page.partition("<details><summary>model=&lt;m&gt;</summary>")[2]
    first, _, rest = folded.partition("<details><summary>3 more rows</summary>")
    assert [name for name in ("a=1", "<h3>T</h3>", ">row 0<", ">row 1<", ">row 2<") if name in first] == [
        *("a=1", "<h3>T</h3>", ">row 0<", ">row 1<")
    ]
    assert re.findall(r">(row \d)<", rest) == ["row 2", "row 3", "row 4"]
    assert rest.count("<th ") == 2  # the columns are named again
    whole = report_html("t", [Table("T", ["n"], [[1]], first=1)])
    assert "<details>" not in whole
