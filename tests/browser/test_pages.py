"""Pages in a real browser."""

import csv
import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from regard.render import AttentionView, Frame, ImageView, Layer
from regard.render.html import report_html
from regard.render.image_view import images_html
from regard.render.view_data import Origin, Special, Unknown
from regard.report.sections import Curve, Folded, Gallery, Heatmap, Heatmaps, Line, LineGallery, Pre, Table


def soft(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


def frames(tokens: list[str]) -> list[Frame]:
    return [
        Frame(token, [(token, 5.25, 0.9), ("?", -1.0, 0.01)], np.full(4, at + 1.0), np.full(4, float(at)))
        for at, token in enumerate(tokens)
    ]


def translator() -> AttentionView:
    """A Transformer that translates: two layers of two heads in each part; a context has the value layer.head."""
    source, target = ["של", Unknown("👩‍👩‍👧"), "c"], ["x", "y", "<eos>"]
    past = ["<bos>", "x", "y"]
    axes = {"encoder": (source, source), "decoder": (past, past), "cross": (target, source)}
    layers = []
    for part, (rows, columns) in axes.items():
        visible = np.tril(np.ones((3, 3), dtype=bool)) if part == "decoder" else np.ones((3, 3), dtype=bool)
        for at in range(2):
            weights = np.where(visible, soft(2, 3, 3), 0)
            sign = -1 if part == "decoder" else 1
            contexts = np.array([[[sign * (at + head / 10 + 0.05)] * 2] * 3 for head in range(2)])
            layers.append(Layer(f"{part}.{at}", weights, rows, columns, part, at, visible=visible, contexts=contexts))
    return AttentionView("שלום 1 → hello 2", target, source, layers, frames(target))


def stages(page: Any) -> list[str]:
    """The titles of the panels that are shown, in their order."""
    return page.locator(".steps > section:visible h2").evaluate_all(
        "all => all.map((h2) => h2.querySelector('b').textContent + h2.childNodes[1].textContent.trim())"
    )


def tips(page: Any, panel: str) -> list[str]:
    return page.locator(f"[data-stage={panel}] .strip i").evaluate_all("all => all.map((one) => one.dataset.tip)")


def test_the_context_follows_the_layer_the_head_and_the_part(opened: Any) -> None:
    page = opened(translator().html())
    assert stages(page) == ["1Weights", "2Context", "3State", "4Logits → softmax → argmax"]
    assert page.inner_text(".label") == "cross · layer 1 · head 1"  # layer 1 aligns; never a mean
    assert tips(page, "context") == ["[0]  1.15", "[1]  1.15"]
    page.keyboard.press("h")
    assert page.inner_text(".label") == "cross · layer 1 · mean of 2 heads"
    assert tips(page, "context") == ["[0]  1.05", "[1]  1.05", "[2]  1.15", "[3]  1.15"]
    page.keyboard.press("h")
    assert tips(page, "context") == ["[0]  1.05", "[1]  1.05"]
    assert page.inner_text(".label") == "cross · layer 1 · head 0"
    assert page.inner_text(".status").startswith("cross · layer 1 · head 0. Step 1 of 3.")
    page.keyboard.press("p")  # the encoder takes no steps
    assert page.locator(".steps").is_hidden()
    page.keyboard.press("p")
    page.select_option(".layer", "0")
    page.get_by_role("button", name="0", exact=True).click()
    assert tips(page, "context") == ["[0]  -0.05", "[1]  -0.05"]
    page.keyboard.press("L")  # before the first layer: the mean of all layers has no context
    assert stages(page) == ["1Weights", "2State", "3Logits → softmax → argmax"]
    assert "−1 " in page.inner_text("[data-stage=state] .legend")


def test_recurrent_decoders_show_the_state_that_is_the_query(opened: Any) -> None:
    tokens = ["2", "0"]
    expected = {
        "before": ["1State s₍ₜ₋₁₎", "2Weights", "3Context", "4State s₍ₜ₎", "5Logits → softmax → argmax"],
        "state": ["1State s₍ₜ₎", "2Weights", "3Context", "4Logits → softmax → argmax"],
    }
    for query, titles in expected.items():
        layer = Layer("cross", soft(1, 2, 3), part="cross", contexts=np.ones((1, 2, 4)), query=query)
        page = opened(AttentionView("t", tokens, list("abc"), [layer], frames(tokens)).html())
        page.keyboard.press("ArrowRight")
        assert stages(page) == titles
        assert tips(page, "state")[0] == "[0]  2"
    page = opened(AttentionView("t", tokens, list("abc"), [], frames(tokens)).html())
    assert stages(page) == ["1State", "2Logits → softmax → argmax"]


def test_masks_unknown_tokens_and_scripts(opened: Any) -> None:
    page = opened(translator().html())
    assert page.locator("h1 bdi").all_inner_texts() == ["שלום 1", "hello 2"]
    left, right = (page.locator("h1 bdi").nth(at).bounding_box()["x"] for at in (0, 1))
    assert left < right  # the source stands before the arrow, though it is written from right to left
    assert page.locator(".matrix thead .unknown").all_inner_texts() == ["👩‍👩‍👧"]
    assert page.locator(".ringed").is_visible()
    assert page.locator(".matrix td.masked").count() == 0
    page.keyboard.press("P")  # the decoder
    cell = page.locator(".matrix tbody tr").first.locator("td").nth(2)
    assert cell.get_attribute("aria-label") == "\u2068<bos>\u2069 may not look at \u2068y\u2069"
    assert "repeating-linear-gradient" in cell.evaluate("one => getComputedStyle(one).backgroundImage")
    assert page.locator(".matrix td.masked").count() == 3
    assert page.locator(".hatched").is_visible()


def test_the_keyboard_reaches_everything(opened: Any) -> None:
    page = opened(translator().html())
    page.focus(".layer")
    page.keyboard.press("ArrowUp")  # the menu's own key
    assert page.inner_text(".label") == "cross · layer 0 · head 1"
    page.keyboard.press("H")
    assert page.inner_text(".label") == "cross · layer 0 · head 0"
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".count") == "Step 2 of 3"
    page.keyboard.press("s")
    assert (page.inner_text(".vmax"), page.get_attribute("[data-scale=fixed]", "aria-pressed")) == ("1", "true")
    page.keyboard.press("v")
    assert page.locator(".lines [tabindex='0']").count() == 1
    assert page.locator(".lines .ring").count() == 1
    page.focus(".lines [tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.index") == "1"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.side") == "column"
    assert "👩‍👩‍👧\u2069 (unknown) is looked at by" in page.inner_text(".status")
    assert "have no line" in page.inner_text(".limits")


def test_long_texts_keep_their_header_and_say_how_many_lines_are_drawn(opened: Any) -> None:
    names = [f"w{at}" for at in range(45)]
    weights = soft(4, 45, 45)
    weights[:, 5] = 0.01  # weaker than the strongest 4000
    view = AttentionView("t", names, names, [Layer("l", weights)], frames(names))
    page = opened(view.html(), height=500)
    page.keyboard.press("End")
    top = page.locator(".stage").bounding_box()
    header = page.locator(".matrix thead th").first.bounding_box()
    row = page.locator(".matrix tr[aria-selected=true] th").bounding_box()
    assert row["y"] >= header["y"] + header["height"] - 1 >= top["y"]
    assert row["y"] + row["height"] <= top["y"] + top["height"] + 1
    page.keyboard.press("Home")
    page.get_by_role("button", name="mean").click()  # as lines, all heads
    page.keyboard.press("v")
    assert "4000 of " in page.inner_text(".limits")
    begins = page.locator(".lines line").evaluate_all("all => new Set(all.map((one) => one.getAttribute('y1'))).size")
    assert begins == 4 * 45  # no row is without a line


def test_a_phone_and_forced_colours(opened: Any) -> None:
    heat = Heatmap("h", "x", "y", np.random.default_rng(0).normal(size=(4, 60)))
    table = Table(
        "Scores", ["measure", *"abc"], [["a long name of a measure", "12.34 ± 0.56", "a sentence of words", "1"]]
    )
    curve = Curve("Loss", "step", "nats", [Line("a", [0, 1, 2], [3, 2, 1])])
    report = report_html(
        "Report",
        [table, curve, Heatmaps("Heat", [heat]), Gallery("G", [translator()]), LineGallery("L", [translator()])],
    )
    sizes = "all => Math.min(...all.map((one) => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a))"
    for html in (report, translator().html()):
        page = opened(html, width=390)
        assert page.evaluate("document.documentElement.scrollWidth") == 390  # only boxes scroll
        if page.locator("svg.regard text").count():
            upright = page.locator("svg.regard text:not([transform])")
            assert upright.evaluate_all(sizes) >= 9.99
            assert page.locator(".scroll:has(table.report)").evaluate("one => one.scrollWidth > one.clientWidth")
    page = opened(translator().html(), forced=True)
    assert page.evaluate("matchMedia('(forced-colors: active)').matches")
    colours = page.locator(".matrix td[role=gridcell]").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours)) > 5
    pressed = page.locator("button[aria-pressed=true]:visible").evaluate_all(
        "all => all.map((one) => `${getComputedStyle(one).color} on ${getComputedStyle(one).backgroundColor}`)"
    )
    assert len(pressed) == 3  # part, scale, head
    assert len(set(pressed)) == 1


def captioned(words: list[str], height: int = 60, width: int = 80, columns: int = 4) -> ImageView:
    """An image of random pixels under a caption; the word at place n reads cell n most."""
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    weights = np.full((len(words), 2 * columns), 0.05, np.float32)
    weights[range(len(words)), range(len(words))] = 0.65
    return ImageView(" ".join(words), image, words, weights, (2, columns), "photo.png", "The model is a captioner.")


def shades(page: Any, view: int = 0) -> list[int]:
    """The opacity of the shade over each cell of an image, from 0 to 255."""
    read = """one => {
        const pen = new OffscreenCanvas(one.width, one.height).getContext("2d", { willReadFrequently: true });
        pen.drawImage(one, 0, 0);
        return [...pen.getImageData(0, 0, one.width, one.height).data].filter((_, at) => at % 4 === 3);
    }"""
    return page.locator("canvas").nth(view).evaluate(read)


def sizes(page: Any, what: str) -> list[tuple[int, int]]:
    """The width and height of each element of a kind."""
    boxes = (one.bounding_box() for one in page.locator(what).all())
    return [(round(box["width"]), round(box["height"])) for box in boxes]


def test_the_words_of_a_caption_are_read_on_the_image(opened: Any) -> None:
    page = opened(captioned(["a", "red", "dog"]).html())
    assert page.inner_text("h1") == "a red dog"
    assert page.locator("h2").all_inner_texts() == ["photo.png"]
    assert shades(page) == [0] + [235] * 7  # the first word; 0.05 / 0.65 of the weight is no shade
    page.keyboard.press("ArrowRight")
    assert shades(page) == [235, 0] + [235] * 6
    assert page.inner_text(".where") == "red: most weight, 0.65, in row 1, column 2"
    assert page.inner_text(".status") == "2 of 3, red: most weight, 0.65, in row 1, column 2"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")  # there is no word after the last one
    assert page.locator("[data-word][aria-pressed=true]").all_inner_texts() == ["dog"]
    page.get_by_role("button", name="red").click()
    assert shades(page)[1] == 0
    drawn = "one => [getComputedStyle(one).imageRendering, getComputedStyle(one).opacity]"
    assert page.locator("canvas").evaluate(drawn) == ["pixelated", "0.75"]
    page.keyboard.press("s")
    page.get_by_label("Opacity").focus()
    page.keyboard.press("Home")  # of the slider, not of the caption
    assert page.locator("canvas").evaluate(drawn) == ["auto", "0"]
    assert shades(page)[1] == 0


def test_the_address_has_the_state_and_back_undoes_a_choice(opened: Any) -> None:
    page = opened(translator().html())
    assert page.evaluate("location.hash") == ""
    page.get_by_role("button", name="0", exact=True).click()
    page.get_by_role("tab", name="Lines").click()
    page.keyboard.press("Enter")  # the same tab again: no entry
    page.locator(".count").click()
    page.keyboard.press("ArrowRight")  # the focus is on no tab: a step
    assert page.evaluate("location.hash") == "#heads=0&view=lines&step=2"
    address = page.url
    page.go_back()  # a step is no entry of the history
    assert page.inner_text(".label") == "cross · layer 1 · head 0"
    assert page.locator(".matrix").is_visible()
    page.go_back()
    assert page.inner_text(".label") == "cross · layer 1 · head 1"
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("svg.lines").is_visible()
    assert page.inner_text(".count") == "Step 2 of 3"
    assert page.inner_text(".label") == "cross · layer 1 · head 0"


def special_view() -> AttentionView:
    """Two heads of three tokens, the first a special one, which takes four fifths of the weight."""
    tokens = [Special("<bos>"), "=it's", "-b"]
    weights = np.array([[[1, 0, 0], [0.75, 0.25, 0], [0.85, 0.0123456, 0.1376544]]] * 2, np.float32)
    layer = Layer("decoder", weights, part="decoder", visible=np.tril(np.ones((3, 3), bool)))
    return AttentionView("t", tokens, tokens, [layer], origin=Origin("runs/my run", ["it's", "b"], None))


def test_a_number_is_the_same_in_the_tip_the_table_and_every_file(opened: Any, tmp_path: Path) -> None:
    page = opened(special_view().html())
    page.locator(".matrix tbody tr").nth(2).locator("td").nth(1).hover()
    assert page.inner_text("#tip") == "\u2068-b\u2069 looks at \u2068=it's\u2069: 0.0123456 (H0)"
    page.get_by_text("Show as table").click()
    assert page.locator(".numbers tbody tr").nth(2).locator("td").all_inner_texts() == ["0.85", "0.0123456", "0.137654"]
    assert page.locator(".numbers tbody tr").nth(0).locator("td").nth(1).inner_text() == "may not look"
    files = {}
    for name in ("CSV", "NPZ", "SVG", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        files[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[name])
    rows = list(csv.reader(files["CSV"].read_text(encoding="utf-8-sig").splitlines()))
    assert rows == [
        ["", "<bos>", "'=it's", "'-b"],
        ["<bos>", "1", "", ""],
        ["'=it's", "0.75", "0.25", ""],
        ["'-b", "0.85", "0.0123456", "0.137654"],
    ]
    with np.load(files["NPZ"], allow_pickle=False) as arrays:
        np.testing.assert_allclose(arrays["weights"], special_view().layers[0].weights[0], atol=1e-6)
        assert arrays["rows"].tolist() == ["<bos>", "=it's", "-b"]
    drawn = ElementTree.parse(files["SVG"]).getroot()
    assert "-b looks at =it's: 0.0123456 (H0)" in [re.sub("[\u2068\u2069]", "", text) for text in drawn.itertext()]
    header = files["PNG"].read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(header[16:20], "big") == 2 * int(drawn.get("width", ""))


def test_special_tokens_are_hidden_and_a_page_says_how_to_make_it_again(opened: Any) -> None:
    page = opened(special_view().html())
    page.get_by_role("button", name="Hide special tokens").click()
    assert page.locator(".special").inner_text() == "Special tokens hidden: 80 % of the weight"
    assert page.locator(".matrix thead th").all_inner_texts() == ["=it's", "-b"]
    page.get_by_role("button", name="Python").click()
    code = page.inner_text(".code")
    assert code == (
        "import regard; regard.look(regard.load('runs/my run'), (\"it's\", 'b')).only(part='decoder', head=0)"
    )
    page.get_by_role("button", name="Command").click()
    command = "regard look 'runs/my run' 'it'\"'\"'s' b --part decoder --head 0 -o look.html"
    assert page.inner_text(".code") == command
    assert shlex.split(command)[2:5] == ["runs/my run", "it's", "b"]


def test_the_matrices_of_a_report_have_tips_the_keyboard_and_a_theme(opened: Any) -> None:
    page = opened(report_html("Report", [Gallery("Pictures", [special_view(), translator()])]))
    assert page.locator(".matrix").count() == 2
    assert page.locator("svg.regard").count() == 0  # the static pictures are for browsers without scripts
    page.locator(".matrix").first.locator("td[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    assert page.inner_text("#tip") == "\u2068=it's\u2069 may not look at \u2068-b\u2069"
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#tip") == "\u2068=it's\u2069 looks at \u2068=it's\u2069: 0.25"
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }") is None
    assert page.evaluate(ground) == "rgb(14, 17, 22)"


def test_data_of_another_version_is_not_drawn(opened: Any) -> None:
    html = translator().html().replace('{"version":1,', '{"version":2,')
    page = opened(html)
    assert "data of version 2" in page.inner_text("[role=alert]")
    assert page.locator("svg.regard").is_visible()  # the picture for browsers without scripts stays


def test_damaged_data_are_not_drawn(opened: Any) -> None:
    page = opened(translator().html().replace('{"version":1,', '{"version":1,,'))
    assert "are damaged" in page.inner_text("[role=alert]")
    assert page.locator("svg.regard").is_visible()


@pytest.mark.slow
def test_images_keep_their_shape_on_a_desk_and_on_a_phone(opened: Any) -> None:
    strip = captioned(["a", "clip"], height=8, width=96, columns=12)
    html = images_html([captioned(["a", "very", "long", "caption", "of", "one", "dog"]), strip])
    for width, expected in ((1240, [(420, 315), (960, 80)]), (390, [(300, 225), (300, 25)])):
        page = opened(html, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert sizes(page, "img") == sizes(page, "canvas") == expected
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        assert shades(page, 0)[0] == 0
        assert shades(page, 1)[1] == 0
    tall = opened(captioned(["a"], height=2000, width=1).html())
    assert sizes(tall, "img") == [(420, 840)]


def test_only_a_really_wide_matrix_of_a_report_scrolls(opened: Any) -> None:
    letters, words, wide = list("fredag 5 mars 1985"), ["sentence"] * 18, ["x"] * 90
    galleries = [
        Gallery(
            "", [AttentionView(name, ["generate"], columns, [Layer("l", soft(1, 1, len(columns)))]) for name in "ab"]
        )
        for columns in (letters, words, wide)
    ]
    page = opened(report_html("Report", galleries), width=1300)
    places = page.locator("figure").evaluate_all("all => all.map((one) => one.offsetTop)")
    assert places[0] == places[1]  # two share a row
    for width in (1300, 1180, 1000, 820):
        page.set_viewport_size({"width": width, "height": 800})
        scrolls = "all => all.map((one) => one.scrollWidth > one.clientWidth)"
        found = page.locator(".gallery .stage").evaluate_all(scrolls)
        assert found[:4] == [False] * 4, width
    assert found[4:] == [True, True]


def test_a_fold_opens_by_the_keyboard(opened: Any) -> None:
    page = opened(report_html("Report", [Folded("Settings", "model=gpt", [Pre("a=1")])]), width=390)
    assert page.locator("pre").is_hidden()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("pre").is_visible()
