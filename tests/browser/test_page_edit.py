"""Editing the text of a page, and changing heads in it: the answers and the numbers are those of Python."""

from pathlib import Path
from typing import Any

import pytest
import torch

from encoded import fields_for
from regard.data.tokenizers import train_tokenizer
from regard.models import TransformerConfig
from regard.readers import edit
from regard.tasks import TASKS
from regard.verbs import Loaded, look
from regard.verbs.ablating import Ablation, ablate, rank_heads
from regard.verbs.forced import token_logps
from regard.verbs.search import translate

pytestmark = pytest.mark.slow  # `make journeys` runs it

BOX = ".edit-view input"
ANSWERED = "text => document.querySelector('.edit-view output').textContent === text"
OLD, NEW = "abc", "abq"  # q is not in the vocabulary


@pytest.fixture(scope="module")
def model() -> Loaded:
    """A Transformer that was not trained; its weights are so large that texts have different answers."""
    source, target = (train_tokenizer("char", lines, 40) for lines in (["abc cab"], ["xyz zxy"]))
    torch.manual_seed(3)
    sizes = {"width": 16, "heads": 2, "layers": 2, "inner": 32, "context": 24, "dropout": 0.0}
    module = TransformerConfig(source_vocab=source.size, target_vocab=target.size, **sizes).build().eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(2.0 if weight.dim() > 1 else 1.0)
    return Loaded(Path("tiny"), module, torch.device("cpu"), fields_for(TASKS["translate"], source, target))


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def column(page: Any, table: str, place: int) -> list[float]:
    cells = page.locator(f"{table} tbody td:nth-child({place})").all_text_contents()
    return [number(one) for one in cells]


def test_an_edited_text_is_answered_as_python_answers_it(model: Loaded, opened: Any) -> None:
    old, new = (ablate(model, text, "L0H0").before for text in (OLD, NEW))
    page = opened(look(model, OLD).html())
    page.wait_for_function(ANSWERED, arg=old.answer)
    difference = page.get_by_role("tab", name="Difference")
    assert difference.is_hidden()  # nothing has changed
    shown = page.text_content("h2 .label")
    page.keyboard.press("e")  # selects the text of the box
    page.keyboard.type(NEW)
    page.wait_for_function(ANSWERED, arg=new.answer)
    score = page.text_content(".answer .quiet:last-child").removeprefix("log p ")
    assert number(score) == pytest.approx(new.total, abs=1e-4)
    assert page.text_content(".rings .unknown") == "q"
    assert page.text_content("h2 .label") == shown  # the chosen layer and head stay

    same = page.locator(".aligned li:not(.other)").all_text_contents()
    tokens = page.locator(".aligned li > :is(span:not(.unseen), ins)").all_text_contents()
    assert tokens == new.pieces
    assert page.locator(".aligned del").count() == len(old.pieces) - len(same)

    difference.click()
    layer, head = (int(shown.split()[at]) for at in (3, 6))
    weights = [look(model, text, part="cross", layer=layer).layers[0].weights[head] for text in (OLD, NEW)]
    cell = page.locator(".difference-view td[role=gridcell]").last
    assert cell.get_attribute("aria-label").startswith("writing \u2068<eos>\u2069, looks at")
    removed = page.locator(".difference-view thead th").last.locator("del").count()
    change = cell.get_attribute("aria-label").split(": ")[1]
    assert removed == 1  # c became q
    before, now = (float(one.split()[0]) for one in change.split(", ")[:2])
    assert (before, now) == pytest.approx([one[-1, -1] for one in weights], abs=1e-5)
    assert number(change.split(", ")[2]) == pytest.approx(weights[1][-1, -1] - weights[0][-1, -1], abs=1e-5)

    page.fill(BOX, " ")
    page.wait_for_function("() => document.querySelector('.edit-view .trouble').textContent.includes('empty')")
    assert page.locator(BOX).get_attribute("aria-invalid") == "true"
    assert page.text_content(".edit-view output") == new.answer  # the last answer stays
    page.go_back()
    page.wait_for_function("() => document.querySelector('.edit-view .trouble').hidden")
    assert page.input_value(BOX) == NEW
    page.get_by_role("button", name="As it was").click()
    page.wait_for_function(ANSWERED, arg=old.answer)
    assert page.input_value(BOX) == OLD


def test_heads_are_changed_and_ranked_as_ablate_does(model: Loaded, opened: Any) -> None:
    page = opened(look(model, NEW).html(), width=390)
    page.click("[data-view=off]")

    def check(expected: Ablation) -> None:
        page.wait_for_function(ANSWERED, arg=expected.after.answer or "∅")
        assert page.locator(".deltas tbody td:first-child").all_text_contents() == expected.pieces
        assert column(page, ".deltas", 4) == pytest.approx(expected.deltas, abs=1e-4)
        total = page.text_content(".deltas tfoot td:nth-child(4)")
        assert number(total) == pytest.approx(expected.delta, abs=1e-4)
        said = page.text_content(".verdict").translate({0x2068: None, 0x2069: None})
        assert said == expected.sentence

    page.select_option(".off-view select >> nth=0", label="encoder L0·H1")
    assert page.text_content("h2 .label") == "encoder · layer 0 · head 1"
    page.click("[data-kind=off]")
    check(ablate(model, NEW, "encoder:L0H1"))
    page.select_option(".off-view select >> nth=0", label="L1·H0")
    page.click("[data-kind=uniform]")
    check(ablate(model, NEW, {"encoder:L0H1": "off", "cross:L1H0": "uniform"}))
    page.get_by_role("button", name="Put back: encoder L0·H1 off").click()
    check(ablate(model, NEW, "cross:L1H0=uniform"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    page.get_by_role("button", name="Rank all heads by damage").click()
    page.wait_for_function("() => document.querySelectorAll('.damages tbody tr').length === 12")
    ranked = rank_heads(model, NEW)
    assert column(page, ".damages", 2) == pytest.approx([one.delta for one in ranked], abs=1e-4)
    same = [one == "the same" for one in page.locator(".damages td:nth-child(4)").all_text_contents()]
    assert same == [not one.changed for one in ranked]
    page.locator(".damages button").first.click()
    check(ablate(model, NEW, ranked[0].name))
    page.go_back()
    check(ablate(model, NEW, "cross:L1H0=uniform"))


def test_a_row_is_dragged_with_keys_and_pointer(model: Loaded, opened: Any) -> None:
    page = opened(look(model, NEW).html())
    page.click("[data-view=off]")
    page.select_option(".off-view select >> nth=0", label="L0·H0")
    bars = page.get_by_role("slider")
    bars.first.focus()
    page.keyboard.press("End")  # the whole weight for the first key, in the first row
    page.wait_for_function("() => document.querySelector('.deltas tbody td')")
    assert [float(one.get_attribute("aria-valuenow")) for one in bars.all()] == [1, 0, 0]
    (best,) = translate(model, [NEW])

    def first_row(weights: torch.Tensor) -> torch.Tensor:
        changed = weights.clone()
        changed[:, 0, 0] = torch.eye(weights.shape[-1])[0]
        return changed

    pair = best.source_tokens, best.tokens
    (before,) = token_logps(model, [pair])
    with edit(model.module, {"decoder.blocks.0.cross.read": first_row}):
        (after,) = token_logps(model, [pair])
    assert column(page, ".deltas", 4) == pytest.approx((after - before).tolist(), abs=1e-4)

    bars.nth(1).scroll_into_view_if_needed()
    box = bars.nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 45, steps=3)
    page.mouse.up()
    assert [float(one.get_attribute("aria-valuenow")) for one in bars.all()] == [0.5, 0.5, 0]
    assert page.text_content(".off-view .sum") == "Sum: 1."
    page.go_back()
    page.wait_for_function("() => document.querySelector('[role=slider]').getAttribute('aria-valuenow') === '1.000'")
