"""The page: one file, nothing from outside, safe for any text, the numbers as stored."""

import json
import re
from html.parser import HTMLParser

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.view import AttentionView, Frame, Layer

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Tree(HTMLParser):
    """Checks that tags nest, and keeps what scripts and ids there are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def data(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def stepping(tokens: list[str]) -> AttentionView:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(4), (2, len(tokens))).astype(np.float32)
    frames = [
        Frame(t, [(t, 5.25, 0.98765432), ("?", -1, 1e-9)], rng.normal(size=64), rng.normal(size=64)) for t in tokens
    ]
    return AttentionView("3 fé → 2021", tokens, list("3 fé"), [Layer("cross", weights)], frames)


def test_the_page_holds_every_number_to_six_digits():
    view = stepping(list("2021"))
    found = data(view.html())
    weights = view.layers[0].weights
    for choice, expected in zip(found["choices"], [weights.mean(0), *weights], strict=True):
        np.testing.assert_allclose(choice["weights"], expected, rtol=6e-6)
    assert found["columns"] == ["3", "␣", "f", "é"]
    assert found["frames"][0]["top"] == [["2", 5.25, 0.987654], ["?", -1.0, 1e-9]]
    np.testing.assert_allclose(found["frames"][3]["state"], view.frames[3].state, rtol=6e-6)
    digits = re.findall(r"0\.(\d+)", json.dumps(found["choices"]))
    assert max(len(d.lstrip("0")) for d in digits) <= 6


def test_nothing_is_fetched_from_anywhere():
    page = stepping(list("2021")).html()
    assert set(re.findall(r"\w+://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page


def test_the_parts_that_the_script_fills_are_there():
    with_steps, without = (Tree(view.html()) for view in (stepping(["2"]), AttentionView("t", ["a"], ["x"], [])))
    assert len(set(with_steps.ids)) == len(with_steps.ids)
    assert {"matrix", "choice", "said", "count", "output", "state", "bars", "context", "top"} <= set(with_steps.ids)
    assert with_steps.tags.count("option") == 3  # the mean and two heads
    assert "matrix" in without.ids
    assert not {"choice", "state", "count"} & set(without.ids)
    used = set(re.findall(r'\$\("(\w+)"\)', with_steps.scripts[1]))
    assert used <= set(with_steps.ids)


def test_no_text_can_leave_its_place():
    wicked = ["</script><b>", "<!--<script>", "]]>", "&amp;\"'", "\u2028", "\ud800", "\x00"]
    tame = AttentionView("t", list("abcdefg"), list("abcdefg"), [Layer("l", np.zeros((2, 7, 7)))])
    page = AttentionView("</title><i>", wicked, wicked, [Layer("</option><i>", np.zeros((2, 7, 7)))]).html()
    page.encode("utf-8")
    assert Tree(page).tags == Tree(tame.html()).tags
    assert data(page)["rows"][:4] == wicked[:4]


def test_what_is_not_finite_is_null():
    view = AttentionView("t", ["a"], ["x", "y"], [Layer("l", [[[float("nan"), float("inf")]]])])
    assert data(view.html())["choices"][0]["weights"] == [[None, None]]


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=20), st.lists(st.text(max_size=6), min_size=1, max_size=4))
def test_any_text_gives_a_page_that_nests(title, pieces):
    weights = np.zeros((1, len(pieces), len(pieces)))
    frames = [Frame(piece, [(piece, 0.0, 1.0)], np.zeros(2)) for piece in pieces]
    page = AttentionView(title, pieces, pieces, [Layer("l", weights)], frames).html()
    page.encode("utf-8")
    assert len(Tree(page).scripts) == 2
