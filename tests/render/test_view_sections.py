"""Elements that escape their text, and sections in the terminal and as JSON."""

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import regard
from regard.render import AttentionView, Layer
from regard.render.formatting import Markup, lines, tag
from regard.render.html import report_html
from regard.render.terminal import sections_text
from regard.report.sections import Curve, Gallery, Heatmap, Heatmaps, Interlinear, Line, MarkedText, Pre, Table, Text


def test_text_and_attributes_are_escaped_and_elements_are_not() -> None:
    inner = tag("b", {"title": 'a "b" & c'}, "x < y")
    assert inner == '<b title="a &quot;b&quot; &amp; c">x &lt; y</b>'
    assert tag("p", {}, "a & ", inner) == f"<p>a &amp; {inner}</p>"
    assert lines(["<", inner]) == f"&lt;\n{inner}\n"
    assert isinstance(inner, Markup)


def test_attributes_that_are_none_are_left_out_and_numbers_are_short() -> None:
    assert tag("rect", {"x": 1 / 3, "y": 2.0, "width": 7, "class": None}) == '<rect x="0.33" y="2" width="7"/>'


@given(st.text(), st.text())
def test_any_text_can_be_read_back(text: str, attribute: str) -> None:
    element = ET.fromstring(tag("a", {"b": attribute}, text))
    if text.isprintable() and attribute.isprintable():
        assert (element.text or "", element.get("b")) == (text, attribute)


def test_no_markup_is_written_outside_the_renderers() -> None:
    root = Path(regard.__file__).parent
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] != "render":  # </s> and </w> are tokens
            assert not re.search(r"</(?!s>|w>|seg>)[a-z]+[0-9]?>|import html\b", path.read_text(encoding="utf-8")), path


VIEW = AttentionView("v", ["a"], ["x"], [Layer("l", np.ones((1, 1, 1)))])
SECTIONS = [
    Text("one\ntwo\n\nthree [b]four[/b]", "Words"),
    Table("T", ["name", "length\n8", "kind"], [["a", 1234, "<x>"], ["b", None, "yy"], ["c", 3, "z"]], "note", first=2),
    Pre("a  b", "P"),
    Curve("loss", "step", "nats", [Line("l", [0, 1], [2, float("nan")])]),
    Heatmaps("H", [Heatmap("h", "x", "y", np.ones((1, 2)))]),
    Gallery("G", [VIEW]),
]


def test_sections_in_the_terminal() -> None:
    console = Console(width=40)
    with console.capture() as captured:
        console.print(sections_text(SECTIONS))
    printed = [line.rstrip() for line in captured.get().splitlines()]
    assert printed[:4] == ["Words", "one two", "", "three [b]four[/b]"]
    assert printed[5:11] == ["T", "      length", "name       8  kind", "a      1,234  <x>", "b          –  yy", "note"]
    assert printed[12:14] == ["P", "  a  b"]
    assert not any(name in captured.get() for name in ("loss", "H", "G"))


def test_a_marked_part_is_bold_and_keeps_its_asterisks_in_plain_text() -> None:
    table = Table("", ["", "text"], [["a", MarkedText("we <play> it", 3, 9)]])
    console = Console(force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(sections_text([table]))
    assert "we \x1b[1m*<play>*\x1b[0m it" in captured.get()
    assert "<td>we <b>&lt;play&gt;</b> it</td>" in report_html("", [table]).replace(' class=""', "")


def test_interlinear_lines_are_broken_at_the_width_and_escaped() -> None:
    columns = [(f"token{n}", "masked" if n == 3 else "", "<b>" if n == 3 else "") for n in range(12)]
    section = Interlinear("An example", ["reads", "hidden", "predicts"], columns, marked=[3], note="a note")
    console = Console(width=60, file=io.StringIO(), record=True)
    console.print(sections_text([section]))
    shown = console.export_text().splitlines()
    assert all(len(line) <= 60 for line in shown)
    reads = [line.split()[1:] for line in shown if line.startswith("reads")]
    assert len(reads) == 2
    assert [token for line in reads for token in line] == [f"token{n}" for n in range(12)]
    (hidden,) = [line for line in shown if line.startswith("hidden")]  # the second part has none
    first = next(line for line in shown if line.startswith("reads"))
    assert hidden.index("masked") == first.index("token3")
    page = report_html("A page", [section])
    assert page.count("<li") == 13
    assert '<li class="marked">' in page
    assert "&lt;b&gt;" in page
    with pytest.raises(ValueError, match="every column must have 2 cells"):
        Interlinear("", ["a", "b"], [("x",)])


def test_the_names_of_rows_are_not_broken_where_a_table_is_narrow() -> None:
    rows = [("transformer-xl", "next token: perplexity 185.3 on the validation text", "95.00 ± 3.54 %", 161744)] * 2
    console = Console(width=50, file=io.StringIO(), color_system=None)
    console.print(sections_text([Table("Families", ["family", "its own task", "probe", "parameters"], rows)]))
    found = console.file.getvalue()  # type: ignore[attr-defined]
    assert found.count("transformer-xl") == 2
    assert max(map(len, found.splitlines())) <= 50


def in_terminal(table: Table, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as found:
        console.print(sections_text([table]))
    return found.get().splitlines()


def test_a_list_is_broken_after_its_commas() -> None:
    names = [f"name-{at:02}" for at in range(12)]
    rows = [["languages", ",".join(names), "the names of all languages of the corpus"], ["count", "1,200,300", "words"]]
    lines = in_terminal(Table("", ["setting", "value", "what it is"], rows), 50)
    assert max(map(len, lines)) <= 50
    assert re.findall(r"name-\d\d,?", "\n".join(lines)) == [f"{name}," for name in names[:-1]] + names[-1:]
    assert any("1,200,300" in line for line in lines)


@pytest.mark.parametrize("width", [70, 80, 100])
def test_words_and_numbers_are_whole_where_there_is_room(width: int) -> None:
    """The widest text gets narrower, and not the columns beside it."""
    about = "a long sentence about the value that stands beside it and has many words " * 2
    rows = [[f"data.longest_name_{at}", about, "12.34 ± 0.56 %", 1234567, about] for at in range(3)]
    columns = ["setting", "description", "score", "parameters", "note"]
    lines = in_terminal(Table("", columns, rows), width)
    assert max(map(len, lines)) <= width
    printed = {word for line in lines for word in line.split()}
    assert printed == {*columns, *about.split(), "12.34", "±", "0.56", "%", "1,234,567", *(row[0] for row in rows)}


def test_numbers_are_whole_longer_than_words() -> None:
    rows = [["Donaudampfschiffahrt", "123456.789", "Elektrizitätswerk"]]
    lines = in_terminal(Table("", ["a", "b", "c"], rows), 30)
    assert max(map(len, lines)) <= 30
    assert any("123456.789" in line for line in lines)


def test_a_narrow_terminal_has_every_letter() -> None:
    rows = [["unbreakable-name", "123456.789", "other"]]
    lines = in_terminal(Table("", ["a", "b", "c"], rows), 12)
    assert max(map(len, lines)) <= 12
    assert sorted("".join(lines).replace(" ", "")) == sorted("abc" + "".join(rows[0]))
