"""The head grid, the norms of values, and the matrix of many tokens, in a real browser."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encoded import fields_for
from regard.data.tokenizers import train_tokenizer
from regard.models import TransformerConfig
from regard.render import AttentionView, Layer
from regard.tasks import TASKS
from regard.verbs import Loaded, look

pytestmark = pytest.mark.slow  # `make journeys` runs it

HEADS = "[data-view=grid]"
PEEKED = ".peeked b"


def attended(layers: int, heads: int, tokens: int) -> AttentionView:
    """An encoder whose head H of layer L looks at the token L + H before, by 0.9; past the first one, evenly."""
    words = [f"w{at}" for at in range(tokens)]
    made = []
    for layer in range(layers):
        weights = np.full((heads, tokens, tokens), 0.1 / tokens, dtype=np.float32)
        for head in range(heads):
            for row in range(tokens):
                back = row - layer - head
                weights[head, row, slice(back, back + 1) if back >= 0 else slice(None)] += (
                    0.9 if back >= 0 else 0.9 / tokens
                )
        made.append(Layer(f"layer{layer}", weights, words, words, "encoder", layer))
    return AttentionView("attended", words, words, made)


def test_heads_are_sorted_shown_chosen_and_compared(opened: Any) -> None:
    view = attended(3, 2, 8)
    page = opened(view.html())
    page.click(HEADS)
    names = page.locator(".thumbnail b")
    assert names.all_text_contents() == ["L0·H0", "L0·H1", "L1·H0", "L1·H1", "L2·H0", "L2·H1"]
    chosen = page.locator(".thumbnail[aria-selected=true]")
    assert chosen.locator("b").text_content() == "L0·H0"  # the strongest: every token looks at itself
    page.select_option("select.order", "previous")
    assert set(names.all_text_contents()[:2]) == {"L0·H1", "L1·H0"}
    weights = view.layers[1].weights[0]
    written = float(page.locator(".thumbnail", has_text="L1·H0").locator("small").text_content())
    assert written == pytest.approx(np.diagonal(weights, -1).sum() / 8, rel=0.01)

    page.locator(".thumbnail", has_text="L2·H1").hover()
    assert page.text_content(PEEKED) == "encoder · layer 2 · head 1"
    assert page.text_content("h2 .label") == "encoder · layer 0 · head 0"  # it is still chosen
    page.locator(".thumbnail", has_text="L2·H1").click()
    assert page.text_content("h2 .label") == "encoder · layer 2 · head 1"
    page.locator(".thumbnail", has_text="L0·H0").click(modifiers=["Shift"])
    captions = page.locator(".pictures figcaption").all_text_contents()
    assert captions == ["L2 · H1 (0 to 1)", "L0 · H0 (0 to 1)", "L2 · H1 − L0 · H0 (−1 to 1)"]
    first, second = view.layers[2].weights[1][3], view.layers[0].weights[0][3]
    assert page.text_content(".status") == (
        "L2 · H1 and L0 · H0 differ most here: \u2068w3\u2069 looks at \u2068w0\u2069: "
        f"{first[0]:.6g} (L2 · H1), {second[0]:.6g} (L0 · H0), +0.9"
    )
    page.go_back()
    assert chosen.count() == 1
    assert page.locator(".pictures figure:visible").count() == 1


def test_the_grid_of_heads_is_used_by_keys_alone_and_on_a_phone(opened: Any) -> None:
    page = opened(attended(12, 12, 6).html(), width=390)
    page.click(HEADS)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".thumbnail[tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "End", "ArrowUp"):
        page.keyboard.press(key)
    assert page.text_content(PEEKED) == "encoder · layer 0 · head 11"
    page.keyboard.press("Enter")
    assert "layer=0" not in page.url
    assert "heads=11" in page.url
    assert page.text_content("h2 .label") == "encoder · layer 0 · head 11"
    page.get_by_role("button", name="Compare two heads").click()  # without Shift, as with a finger
    page.locator(".thumbnail", has_text="L1·H10").first.click()
    assert "grid.with=L1" in page.url
    assert page.text_content(".status").endswith("(L1 · H10), 0")  # neither has a token so far back


def test_a_matrix_of_many_tokens_has_the_weight_of_the_cell_under_pointer_and_focus(opened: Any) -> None:
    view = attended(2, 2, 80)
    page = opened(view.html())
    assert page.locator(".matrix td").count() == 0
    plot = page.locator(".matrix-view .plot")
    box = plot.bounding_box()
    side = box["width"] / 80
    colours = """(side) => {
        const brush = document.querySelector(".matrix-view canvas").getContext("2d");
        const all = brush.getImageData(0, Math.floor(2.5 * side), 80 * side, 1).data;
        return [2, 3, 50].map((cell) => [...all.slice(4 * (cell * side + 5)).slice(0, 3)]);
    }"""
    strong, *weak = page.evaluate(colours, round(side))
    blue, grey = [0x1D, 0x4E, 0xD8], [0xF0, 0xF2, 0xF7]
    share = float(view.layers[0].weights[0][2, 2])  # of the scale, which ends at 1
    assert strong == pytest.approx([low + share * (high - low) for low, high in zip(grey, blue)], abs=2)
    assert weak == [grey, grey]
    page.mouse.move(box["x"] + side * 3.5, box["y"] + side * 4.5)
    page.mouse.move(box["x"] + side * 2.5, box["y"] + side * 2.5)
    strong = view.layers[0].weights[0][2, 2]
    tip = "\u2068w2\u2069 looks at \u2068w2\u2069: {} (L0 · H0)"
    assert page.text_content("#tip") == tip.format(f"{strong:.6g}")
    page.locator(".matrix-view .spot").focus()
    page.keyboard.press("End")
    weak = view.layers[0].weights[0][2, 79]
    assert page.locator(".matrix-view .spot").get_attribute("aria-label") == tip.replace(
        "w2\u2069:", "w79\u2069:"
    ).format(f"{weak:.6g}")
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    assert page.text_content("h2 .label") == "encoder · layer 1 · head 0"


def test_norms_are_those_of_python_in_the_page_and_in_its_engine(opened: Any) -> None:
    source, target = (train_tokenizer("char", lines, 40) for lines in (["abc cab"], ["xyz zxy"]))
    torch.manual_seed(0)
    sizes = {"width": 16, "heads": 2, "layers": 2, "inner": 32, "context": 24, "dropout": 0.0}
    module = TransformerConfig(source_vocab=source.size, target_vocab=target.size, **sizes).build().eval()
    model = Loaded(Path("tiny"), module, torch.device("cpu"), fields_for(TASKS["translate"], source, target))
    page = opened(look(model, "abc", target="zz").html())
    page.click("[data-view=norms]")
    shown = page.locator(".shares td:nth-child(2)")

    def expected(text: str) -> list[float]:
        (layer,) = look(model, text, target="zz", part="cross", layer=1).layers
        return layer.norms[int(head)].tolist()

    head = page.locator(".heads [aria-pressed=true]").text_content()
    assert page.text_content("h2 .label") == f"cross · layer 1 · head {head}"
    assert [float(one) for one in shown.all_text_contents()] == pytest.approx(expected("abc"), abs=1e-5)
    page.evaluate(
        """location.hash += '&panel=norms&ask={"text":"cab"}'; dispatchEvent(new PopStateEvent("popstate"))"""
    )
    page.wait_for_function("document.querySelector('.shares tbody th').textContent.includes('c')")
    assert [float(one) for one in shown.all_text_contents()] == pytest.approx(expected("cab"), abs=1e-5)
