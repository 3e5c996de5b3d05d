"""The page: one file that loads nothing, is safe for any text and has the exact numbers."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from regard.errors import UserError
from regard.render import AttentionView, Frame, Layer
from regard.render.formatting import asset
from regard.render.view_data import Answer, Unknown

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Tree(HTMLParser):
    """Checks that tags are nested, and collects scripts and ids."""

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
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])


def soft(heads: int, rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(columns), (heads, rows)).astype(np.float32)


def stepping(tokens: list[str]) -> AttentionView:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(4), (2, len(tokens))).astype(np.float32)
    frames = [
        Frame(t, [(t, 5.25, 0.98765432), ("?", -1, 1e-9)], rng.normal(size=64), rng.normal(size=64)) for t in tokens
    ]
    layer = Layer("cross", weights, contexts=rng.normal(size=(2, len(tokens), 8)), query="before")
    return AttentionView("3 fé → 2021", tokens, list("3 fé"), [layer], frames)


def test_the_page_has_all_numbers_with_six_digits():
    view = stepping(list("2021"))
    found = data(view.html())
    (part,) = found["parts"]
    assert [layer["heads"] for layer in part["layers"]] == [[0, 1]]
    np.testing.assert_allclose(part["layers"][0]["weights"], view.layers[0].weights, rtol=6e-6)
    assert (part["columns"], part["steps"]) == (["3", "␣", "f", "é"], True)
    assert found["frames"][0]["top"] == [["2", 5.25, 0.987654], ["?", -1.0, 1e-9]]
    np.testing.assert_allclose(found["frames"][3]["state"], view.frames[3].state, rtol=6e-6)
    np.testing.assert_allclose(found["frames"][3]["before"], view.frames[3].before, rtol=6e-6)
    np.testing.assert_allclose(part["layers"][0]["contexts"], view.layers[0].contexts, rtol=6e-6)
    assert [shows for shows, _, _ in part["chain"]] == ["before", "weights", "context", "state", "logits"]
    digits = re.findall(r"0\.(\d+)", json.dumps(found["parts"]))
    assert max(len(d.lstrip("0")) for d in digits) <= 6


def test_the_page_loads_nothing():
    page = stepping(list("2021")).html()
    assert set(re.findall(r"\w+://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page


def test_a_page_is_one_figure_with_a_picture_for_browsers_without_scripts():
    page = stepping(["2"]).html()
    figure = re.search(r'<div data-figure="page">(.*?)</svg></div>', page, re.DOTALL)
    assert figure
    assert figure[1].count("<script") == 1  # its data
    assert data(page)["version"] == 1
    assert Tree(page).scripts[1].strip() == asset("built/page.js").strip()


def test_no_text_becomes_markup():
    wicked = ["</script><b>", "<!--<script>", "]]>", "&amp;\"'", "\u2028", "\ud800", "\x00"]
    tame = AttentionView("t", list("abcdefg"), list("abcdefg"), [Layer("l", np.zeros((2, 7, 7)))])
    page = AttentionView("</title><i>", wicked, wicked, [Layer("</option><i>", np.zeros((2, 7, 7)))]).html()
    page.encode("utf-8")
    assert Tree(page).tags == Tree(tame.html()).tags
    assert data(page)["parts"][0]["rows"][:4] == wicked[:4]


def test_what_is_not_finite_is_null():
    view = AttentionView("t", ["a"], ["x", "y"], [Layer("l", [[[float("nan"), float("inf")]]])])
    assert data(view.html())["parts"][0]["layers"][0]["weights"] == [[[None, None]]]


def translator(rows: int = 2, columns: int = 3, layers: int = 2, heads: int = 2) -> AttentionView:
    """A translator: three parts, each with its own axes."""
    target, source = [f"t{at}" for at in range(rows)], [f"s{at}" for at in range(columns)]
    axes = {"encoder": (source, source), "decoder": (target, ["<bos>", *target[:-1]]), "cross": (target, source)}
    found = [
        Layer(f"{part}.{at}", np.full((heads, len(q), len(k)), 1 / len(k)), q, k, part, at)
        for part, (q, k) in axes.items()
        for at in range(layers)
    ]
    frames = [Frame(piece, [(piece, 0.0, 1.0)], np.zeros(2)) for piece in target]
    return AttentionView("s → t", target, source, found, frames)


def test_every_part_has_its_own_axes_and_cross_attention_comes_first():
    found = data(translator().html())["parts"]
    assert [(part["name"], part["steps"]) for part in found] == [("cross", True), ("encoder", False), ("decoder", True)]
    assert (found[0]["rows"], found[0]["columns"]) == (["t0", "t1"], ["s0", "s1", "s2"])
    assert found[1]["rows"] == found[1]["columns"] == ["s0", "s1", "s2"]
    assert found[2]["columns"] == ["<bos>", "t0"]
    assert [layer["number"] for layer in found[2]["layers"]] == [0, 1]


def test_the_output_so_far_is_text():
    texts = [("a", None), ("b", " b"), ("\u202ec", "\u202ec")]
    frames = [Frame(piece, [(piece, 0.0, 1.0)], np.zeros(2), text=text) for piece, text in texts]
    weights = np.full((1, 3, 1), 1.0)
    page = AttentionView("t", ["a", "b", "c"], ["x"], [Layer("l", weights, part="cross")], frames).html()
    assert [frame["text"] for frame in data(page)["frames"]] == ["a", " b", r"\u202ec"]


def test_masks_are_ranges_and_unknown_tokens_are_listed():
    visible = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 1, 1]], dtype=bool)
    layer = Layer("l", soft(1, 4, 3), visible=visible)
    (part,) = data(AttentionView("t", list("abcd"), ["x", Unknown("é"), "z"], [layer]).html())["parts"]
    assert part["layers"][0]["masked"] == [[[1, 3]], [[2, 3]], [[0, 1], [2, 3]], []]
    assert part["labels"] == {"rows": list("abcd"), "columns": ["x", "é", "z"]}
    assert (part["columns"], part["unknown"]) == (["x", "é", "z"], {"rows": [], "columns": [1]})


def test_too_many_contexts_are_left_out_with_a_note():
    tokens = [str(at) for at in range(50)]
    layers = [Layer(f"l{at}", soft(2, 50, 50), contexts=np.ones((2, 50, 800)), number=at) for at in range(4)]
    frames = [Frame(piece, [(piece, 0.0, 1.0)], np.zeros(2)) for piece in tokens]
    view = AttentionView("t", tokens, tokens, layers, frames)
    assert "320,000 numbers of context vectors are too many" in (page := view.html())
    assert all(layer["contexts"] is None for layer in data(page)["parts"][0]["layers"])
    assert data(view.only(layer=1).html())["parts"][0]["layers"][0]["contexts"] is not None


def test_long_texts_have_two_bytes_per_weight():
    view = AttentionView("t", *[[str(at) for at in range(80)]] * 2, [Layer("l", soft(10, 80, 80))])
    page = view.html()
    packed = data(page)["parts"][0]["layers"][0]["weights"]
    found = np.frombuffer(base64.b64decode(packed), "<u2").reshape(10, 80, 80) / 65535
    np.testing.assert_allclose(found, view.layers[0].weights, atol=1e-5)
    assert len(packed) < 2.7 * found.size


def test_too_many_heads_are_averaged_and_too_long_a_text_raises_an_error():
    rng = np.random.default_rng(0)
    names = [str(at) for at in range(200)]
    many = [Layer(str(at), rng.random((40, 200, 200), dtype=np.float32), part="decoder", number=at) for at in range(2)]
    view = AttentionView("t", names, names, many)
    page = view.html()
    assert "80 heads are too many" in page
    found = data(page)["parts"][0]["layers"]
    assert [layer["heads"] for layer in found] == [[0], [0]]
    mean = np.frombuffer(base64.b64decode(found[1]["weights"]), "<u2").reshape(200, 200) / 65535
    np.testing.assert_allclose(mean, many[1].weights.mean(0), atol=1e-5)
    assert "too many" not in view.only(layer=1).html()
    long = [str(at) for at in range(1800)]
    with pytest.raises(UserError, match=r"3,240,000 in one matrix, is too large.*shorter text.*npz"):
        AttentionView("t", long, long, [Layer("l", np.zeros((1, 1800, 1800)))]).html()


@settings(max_examples=40)
@given(st.text(max_size=20), st.lists(st.text(max_size=6), min_size=1, max_size=4))
def test_any_text_gives_a_well_formed_page(title, pieces):
    weights = np.zeros((1, len(pieces), len(pieces)))
    frames = [Frame(piece, [(piece, 0.0, 1.0)], np.zeros(2)) for piece in pieces]
    page = AttentionView(title, pieces, pieces, [Layer("l", weights)], frames).html()
    page.encode("utf-8")
    assert len(Tree(page).scripts) == 2


def test_a_page_explains_how_to_read_it_and_names_pages_that_exist():
    page = AttentionView("t", ["a"], ["b"], [Layer("l", np.ones((1, 1, 1)))]).html()
    assert "Even weights would be 1/n each" in page
    named = set(re.findall(r"docs/[a-z-]+\.md", page))
    assert {"docs/recording.md", "docs/attention.md", "docs/interventions.md"} <= named
    assert all((Path(__file__).parents[2] / one).is_file() for one in named)


def test_a_page_begins_with_what_the_model_predicts_and_links_to_no_disk():
    answer = Answer("Predicted class: <good>, probability 0.934.", {"label": "<good>"})
    view = AttentionView("t", ["a"], ["b"], [Layer("l", np.ones((1, 1, 1)))], about="The model.", answer=answer)
    page = view.html()
    assert '<p class="quiet">Predicted class: &lt;good&gt;, probability 0.934. The model.</p>' in page
    assert "href=" not in page
    assert view.only(layer=0).answer is answer
    for shown in (view, replace(view, layers=[])):
        assert answer.sentence in "".join(part.plain for part in shown.text().renderables if isinstance(part, Text))


def test_an_encoder_with_as_many_rows_as_steps_has_no_steps():
    found = data(translator(rows=3, columns=3).html())["parts"]
    assert [(part["name"], part["steps"]) for part in found] == [("cross", True), ("encoder", False), ("decoder", True)]
