"""A page that was made of a model with changed heads opens in that state, and says how to make it again."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import ablate, load, look, translate
from regard.verbs import look_ablated

pytestmark = pytest.mark.slow  # `make journeys` runs it


def test_a_page_of_changed_heads_opens_with_them_and_puts_them_back(
    opened: Any, translator: Callable[..., Path], tmp_path: Path
) -> None:
    model = load(translator(decoder="bahdanau"), "cpu")
    found = ablate(model, "abc", "L0H0=uniform", 3)
    view = look_ablated(model, "abc", "L0H0=uniform", 3)
    page = opened(view.html())
    page.click("[data-view=off]")
    page.wait_for_selector(".verdict:not(.quiet)")
    assert page.text_content(".verdict").startswith("With L0·H0 uniform the answer ")
    assert "ask=" not in page.url
    assert page.locator(".chips button").all_text_contents() == ["L0·H0 uniform ×"]
    total = page.locator(".deltas tfoot td").nth(2).text_content()
    assert float(total.replace("−", "-")) == pytest.approx(found.after.total, abs=1e-4)
    row = "[...document.querySelectorAll('.matrix tbody tr')].map((tr) => tr.querySelector('th').textContent)"
    assert page.evaluate(row) == [str(piece) for piece in view.rows]
    page.get_by_role("button", name="Command").click()
    assert " abc --off cross:L0H0=uniform --beam 3 -o look.html" in page.inner_text(".code")
    page.get_by_role("button", name="Python").click()
    code = f"{page.inner_text('.code')}.save('again.npz')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    again = np.load(tmp_path / "again.npz")
    np.testing.assert_array_equal(again[view.layers[0].name], view.layers[0].weights)

    page.click(".chips button")
    page.wait_for_selector(".verdict.quiet")
    assert "ask=%7B%7D" in page.url
    page.wait_for_function(
        f"(rows) => JSON.stringify({row}) === JSON.stringify(rows)", arg=list(look(model, "abc", beam=3).rows)
    )
    page.get_by_role("button", name="As it was").click()
    page.wait_for_selector(".verdict:not(.quiet)")
    assert page.locator(".chips button").count() == 1
    assert "ask=" not in page.url


def test_a_cell_of_a_notebook_computes_and_is_as_tall_as_its_page(opened: Any, translator: Callable[..., Path]) -> None:
    model = load(translator(decoder="bahdanau"), "cpu")
    page = opened(f"<!doctype html><title>Notebook</title>{look(model, 'abc')._repr_html_()}<p>the next cell</p>")
    frame = page.frame_locator("iframe[data-regard=page]")
    frame.locator(".boxes .text").fill("cab")
    (answer,) = translate(model, ["cab"])
    frame.locator("output").filter(has_text=answer.text or "∅").wait_for(timeout=20_000)
    assert page.locator("body > div > svg").is_hidden()
    page.wait_for_function(
        "() => ((f) => Math.abs(f.clientHeight - f.contentDocument.documentElement.offsetHeight) < 2)"
        "(document.querySelector('iframe'))",
        timeout=20_000,
    )
