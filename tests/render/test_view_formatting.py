"""Formatting of tokens: no blank labels, no broken graphemes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from regard.render.formatting import (
    Markup,
    bdi,
    escape,
    format_distinct,
    graphemes,
    isolate,
    labels,
    tag,
    truncate,
    visible,
)


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("", "∅"),
        (" ", "␣"),
        ("\u00a0a", "␣a"),
        ("hop 1", "hop 1"),
        (" a  b ", "␣a␣␣b␣"),
        ("\n", "↵"),
        ("\t", "⇥"),
        ("\x07", "␇"),
        ("\u0301", "◌\u0301"),
        ("</s>", "</s>"),
    ],
)
def test_invisible_characters_become_visible(piece, shown):
    assert visible(piece) == shown


def test_joiners_inside_a_word_are_kept():
    assert visible("می\u200cخواهم") == "می\u200cخواهم"


@given(st.text(max_size=20))
def test_no_label_is_blank_and_graphemes_lose_nothing(piece):
    assert cell_len(visible(piece)) > 0
    assert "".join(graphemes(piece)) == piece


@given(st.text(max_size=20), st.integers(1, 20))
def test_a_truncated_label_fits(text, cells):
    assert cell_len(truncate(visible(text), cells)) <= cells


@pytest.mark.parametrize("one", ["👩‍👩‍👧", "🇩🇪", "👍🏽", "e\u0301", "1\ufe0f\u20e3", "각"])
def test_combined_characters_are_one_grapheme(one):
    assert graphemes(f"a{one}b") == ["a", one, "b"]


def test_tokens_that_share_a_character_share_its_label():
    assert labels(["a", "👩", "\u200d", "👧", "e", "\u0301", "b"]) == ["a", "👩\u200d👧", "⋯", "⋯", "e\u0301", "⋯", "b"]
    assert labels(["\u0301", "ab", "c"]) == ["◌\u0301", "ab", "c"]
    assert labels(["ab\u200d", "c", ""]) == ["ab\u200d", "c", "∅"]


def test_right_to_left_texts_are_isolated():
    assert isolate("שלום 1 → hello") == "\u2068שלום 1\u2069 → hello"
    assert isolate("3 fé → 2021") == "3 fé → 2021"
    assert isolate("של\u202e1 → a\u2069") == "\u2068של\\u202e1\u2069 → a\\u2069"
    assert visible("ab\u202e") == "ab\ufffd"
    assert bdi("a → <b>") == "<bdi>a</bdi> → <bdi>&lt;b&gt;</bdi>"


def test_escaping_covers_markup_and_what_xml_forbids():
    assert escape('<a b="c">&\'\x00\ud800') == "&lt;a b=&quot;c&quot;&gt;&amp;&#x27;\ufffd\ufffd"
    assert escape("a\u202e\u200f \u2068של\u2069") == "a\\u202e\\u200f \u2068של\u2069"  # what `isolate` wrote stays


def test_an_element_escapes_its_attributes_and_its_text():
    attributes = {"title": '"><b>', "width": 1.239, "rx": 2, "class": None}
    assert tag("p", attributes, "x & y", Markup("<i/>")) == (
        '<p title="&quot;&gt;&lt;b&gt;" width="1.24" rx="2">x &amp; y<i/></p>'
    )
    assert tag("rect", {}) == "<rect/>"


def test_numbers_have_the_decimals_that_tell_them_apart() -> None:
    assert format_distinct([0.91, 0.5]) == ["0.910", "0.500"]
    assert format_distinct([0.99998, 0.99997, 0.5]) == ["0.99998", "0.99997", "0.50000"]
    assert format_distinct([1.0, 1.0, 1 - 1e-8]) == ["1.000"] * 3  # equal up to rounding
    assert format_distinct([]) == []
