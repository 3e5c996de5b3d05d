"""What readers of a page do, by the keyboard alone, on a phone and on a desk: answers and numbers are Python's."""

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from user import User, number

from regard import ablate, classify, edit, look, rank_heads, translate
from regard.verbs import Loaded, tag
from regard.verbs.filling import fill
from regard.verbs.forced import token_logps

DATE, OTHER = "3 février 2021", "12 mars 1999"
SENTENCE, TARGET = "the dog sees a house .", "der Hund sieht ein Haus ."
SHOWN = 6e-5  # a log-probability of the page has four decimals
WIDTHS = pytest.mark.parametrize("width", [390, 1300])
Pages, Models, Users = Callable[..., str], Callable[[str], Loaded], Callable[..., User]


def weight_said(text: str) -> float:
    """The weight at the end of a tip, before the name of the head."""
    found = re.search(r": ([\d.e-]+)(?: \(|$)", text)
    assert found, text
    return float(found[1])


@WIDTHS
def test_edit_the_text_go_back_and_open_a_copied_link(
    width: int, page_of: Pages, model_of: Models, used: Users
) -> None:
    html, model = page_of("dates", DATE), model_of("dates")
    old, new = (one.text for one in translate(model, [DATE, OTHER]))
    user = used(html, width=width)
    user.answered(old)
    user.edit(OTHER)
    user.answered(new)
    user.page.wait_for_function("() => document.querySelectorAll('.matrix thead th').length === 12")
    weights = look(model, OTHER).layers[0].weights[0]
    user.go(".matrix [role=gridcell]")
    user.press("ArrowDown", "ArrowRight", "ArrowRight")
    said = user.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert weight_said(said) == pytest.approx(weights[1, 2], abs=2e-6)
    assert user.fits

    address = user.page.url.split("#")[1]
    copied = used(html, width=width, address=address)
    copied.answered(new)
    assert copied.page.input_value(".edit-view input") == OTHER
    cell = copied.page.locator(".matrix tbody tr").nth(1).locator("td").nth(2)
    copied.page.wait_for_function("() => document.querySelectorAll('.matrix thead th').length === 12")
    assert cell.get_attribute("aria-label") == said

    user.page.go_back()
    user.answered(old)
    assert user.page.input_value(".edit-view input") == DATE
    user.page.go_forward()
    user.answered(new)


@WIDTHS
def test_switch_a_head_off_and_read_the_damage(width: int, page_of: Pages, model_of: Models, used: Users) -> None:
    model = model_of("runs/transformer")
    user = used(page_of("runs/transformer", SENTENCE), width=width)
    user.tab("off")
    user.go("[data-kind=off]")
    user.press("Enter")
    user.page.wait_for_selector(".deltas tbody tr")
    label = re.fullmatch(r"(\w+) · (?:layer \d+ · )?head (\d)", user.page.text_content("h2 .label"))
    expected = ablate(model, SENTENCE, f"{label[1]}:L0H{label[2]}")
    deltas = user.page.locator(".deltas tbody td:nth-child(4)").all_text_contents()
    assert [number(one) for one in deltas] == pytest.approx(expected.deltas, abs=SHOWN)
    assert user.page.locator(".deltas tbody td:first-child").all_text_contents() == expected.pieces
    user.answered(expected.after.answer or "∅")
    said = user.page.text_content(".verdict").translate({0x2068: None, 0x2069: None})
    assert said == expected.sentence
    assert user.fits

    user.go(".off-view section > .controls button")
    user.press("Enter")
    user.page.wait_for_function("() => document.querySelectorAll('.damages tbody tr').length === 6")
    damages = user.page.locator(".damages tbody td:nth-child(2)").all_text_contents()
    assert [number(one) for one in damages] == pytest.approx(
        [one.delta for one in rank_heads(model, SENTENCE)], abs=SHOWN
    )
    user.page.go_back()
    user.answered(expected.before.answer or "∅")
    assert user.page.locator(".deltas").is_hidden()


@WIDTHS
def test_choose_a_head_in_the_grid_and_compare_two(width: int, page_of: Pages, model_of: Models, used: Users) -> None:
    seen = look(model_of("runs/gpt"), SENTENCE)
    user = used(page_of("runs/gpt", SENTENCE), width=width)
    user.tab("grid")
    user.go(".thumbnail[tabindex='0']")
    names = user.page.locator(".thumbnail b").all_text_contents()
    first = user.page.evaluate("document.activeElement.querySelector('b').textContent")
    user.press("ArrowRight" if names.index(first) == 0 else "ArrowLeft")
    second = user.page.evaluate("document.activeElement.querySelector('b').textContent")
    assert {first, second} == set(names)
    user.press("Enter")
    head = int(second[-1])
    assert user.page.text_content("h2 .label").endswith(f"head {head}")
    user.press("ArrowRight" if names.index(first) == 1 else "ArrowLeft", "Shift+Enter")
    captions = user.page.locator(".pictures figcaption").all_text_contents()
    assert [caption.split(" (")[0].replace(" ", "") for caption in captions[:2]] == [second, first]
    user.go(".pictures figure:last-child .spot")
    user.press("ArrowUp", "Home")  # from the last row, on which the page of a language model opens
    said = user.page.locator(".pictures figure:last-child .spot").get_attribute("aria-label")
    weights = seen.layers[0].weights
    found = [number(one.split()[0]) for one in said.rpartition("\u2069: ")[2].split(", ")]
    one, other = weights[head, -2, 0], weights[1 - head, -2, 0]
    assert found == pytest.approx([one, other, one - other], abs=3e-6)
    assert user.fits


@WIDTHS
@pytest.mark.parametrize(
    "given", [("dates", DATE), ("runs/transformer", SENTENCE, "--target", TARGET)], ids=lambda one: one[0]
)
def test_compute_one_cell(given: tuple[str, ...], width: int, page_of: Pages, model_of: Models, used: Users) -> None:
    seen = look(model_of(given[0]), given[1], target=given[-1] if given[2:] else None)
    user = used(page_of(*given), width=width)
    user.go(".matrix [role=gridcell]")
    user.press("ArrowDown", "Enter")
    user.tab("cell")
    user.page.wait_for_selector("[data-line=softmax]")
    assert user.page.input_value(".cell-view select >> nth=0") == "1"
    bars = user.page.locator("[data-line=softmax] .bars li").evaluate_all("all => all.map((one) => one.dataset.tip)")
    label = re.search(r"head (\d)", user.page.text_content("h2 .label"))
    layer = next(one for one in seen.layers if one.part == "cross")
    row = layer.weights[int(label[1]) if label else 0, 1]
    assert [number(one.rpartition(": ")[2]) for one in bars] == pytest.approx(row.tolist(), abs=2e-6)
    user.go(".lines-of summary")
    user.press("Enter")
    assert user.page.locator(".lines-of details[open]").count() == 1
    assert user.fits


@WIDTHS
def test_force_a_token(width: int, page_of: Pages, model_of: Models, used: Users) -> None:
    model = model_of("dates")
    (best,) = translate(model, [DATE])
    user = used(page_of("dates", DATE), width=width)
    user.tab("next")
    user.page.wait_for_selector(".next-view tr.best")
    user.go(".next-view tbody tr:nth-child(2) button")
    piece = user.page.evaluate("document.activeElement.textContent")
    user.press("Enter")
    user.page.wait_for_selector(".outcome .forced")
    answer = user.page.text_content(".edit-view output")
    assert answer.startswith(piece)
    assert answer != best.text
    totals = [
        number(one.removeprefix("log p ")) for one in user.page.locator(".continuation .total").all_text_contents()
    ]
    tokens = [best.tokens, model.target_tokenizer.encode(answer)]
    logps = token_logps(model, [(best.source_tokens, one) for one in tokens])
    assert totals == pytest.approx([one.sum() for one in logps], abs=1e-4)
    assert user.fits
    user.go(".undo button")
    user.press("Enter")
    user.answered(best.text)


@WIDTHS
def test_hide_a_token_and_read_the_guess(width: int, page_of: Pages, model_of: Models, used: Users) -> None:
    user = used(page_of("runs/bert", SENTENCE), width=width)
    user.tab("fill")
    user.go(".fill-view .toggles button")
    user.press("ArrowRight", "Enter")
    user.page.wait_for_selector(".fills section")
    (filled,) = fill(model_of("runs/bert"), [SENTENCE.replace("dog", "[MASK]")])
    (guesses,) = filled.masks
    cells = [user.page.locator(f".fills td:nth-child({place})").all_text_contents() for place in (1, 2)]
    assert cells[0] == [one.piece for one in guesses]
    assert [number(one) for one in cells[1]] == pytest.approx([one.probability for one in guesses], rel=1e-4)
    assert user.fits


@WIDTHS
def test_mask_a_token(width: int, page_of: Pages, model_of: Models, used: Users) -> None:
    model = model_of("dates")
    user = used(page_of("dates", DATE), width=width)
    user.tab("masks")
    user.go(".masks-view .toggles button")
    user.press("ArrowRight", "ArrowRight", "Enter")
    user.page.wait_for_selector(".matrix td.masked")

    def without(weights: torch.Tensor) -> torch.Tensor:
        kept = weights.index_fill(-1, torch.tensor([2]), 0.0)
        return kept / kept.sum(dim=-1, keepdim=True)

    with edit(model.module, {"decoder.attention": without}):
        (best,) = translate(model, [DATE])
    user.answered(best.text)
    assert user.page.locator(".matrix td.masked").count() == len(best.tokens) + 1
    assert user.fits


@WIDTHS
def test_a_classifier_and_a_tagger_say_what_python_says(
    width: int, tagger: str, page_of: Pages, model_of: Models, used: Users
) -> None:
    user = used(page_of("runs/headed-bert", "the dog is good"), width=width)
    user.edit("a bad old house")
    (expected,) = classify(model_of("runs/headed-bert"), ["a bad old house"])
    columns = look(model_of("runs/headed-bert"), "a bad old house").layers[0].columns
    has = "(count) => document.querySelectorAll('.matrix thead th').length === count"
    user.page.wait_for_function(has, arg=len(columns))
    user.answered(expected.label)
    shown = re.search(r"probability ([\d.]+)", user.page.text_content(".edit-view .answer"))
    assert float(shown[1]) == pytest.approx(expected.probability, rel=6e-3)
    assert user.fits
    other = used(page_of(tagger, SENTENCE), width=width)
    (tagged,) = tag(model_of(tagger), [SENTENCE])
    other.page.wait_for_selector(".aligned li")
    assert other.page.locator(".aligned small").all_text_contents() == list(tagged.tags)
    assert other.fits


def test_a_link_has_a_whole_state(page_of: Pages, used: Users) -> None:
    """The text, a head, a step and the tab: a link opens them all, and Back takes back one choice at a time."""
    html = page_of("dates", DATE)
    user = used(html)
    user.edit(OTHER)
    user.answered("1999-03-12")
    user.tab("off")
    user.go("[data-kind=uniform]")
    user.press("Enter")
    user.page.wait_for_selector(".deltas tbody tr")
    answer = user.page.text_content(".edit-view output")
    user.press("Escape")
    user.page.evaluate("document.activeElement.blur()")
    user.press("ArrowRight", "s")
    shown = user.page.inner_text("main")
    other = used(html, address=user.page.url.split("#")[1])
    other.page.wait_for_selector(".deltas tbody tr")
    other.answered(answer)
    assert other.page.inner_text("main") == shown
    user.page.go_back()  # the scale
    user.page.go_back()  # the head
    user.answered("1999-03-12")
    assert user.page.locator("[data-view=off]").get_attribute("aria-selected") == "true"


def downloaded(user: User, name: str) -> bytes:
    with user.page.expect_download() as waiting:
        user.page.get_by_role("button", name=name, exact=True).press("Enter")
    return Path(waiting.value.path()).read_bytes()


@pytest.mark.parametrize(
    "given", [("dates", DATE), ("runs/transformer", SENTENCE, "--target", TARGET)], ids=lambda one: one[0]
)
def test_every_export_has_the_numbers_that_are_shown(
    given: tuple[str, ...], page_of: Pages, used: Users, workplace: Path
) -> None:
    user = used(page_of(*given))
    user.page.locator(".matrix").wait_for()
    tips = [weight_said(one.get_attribute("aria-label")) for one in user.page.get_by_role("gridcell").all()]
    lines = list(csv.reader(io.StringIO(downloaded(user, "CSV").decode("utf-8-sig"))))
    saved = np.array([[float(cell) for cell in line[1:]] for line in lines[1:]])
    assert saved.ravel().tolist() == tips
    user.go("details.numbers > summary")
    user.press("Enter")
    table = user.page.locator("details.numbers td").all_text_contents()
    assert [float(one) for one in table] == tips
    arrays = np.load(io.BytesIO(downloaded(user, "NPZ")))
    assert arrays["weights"] == pytest.approx(saved, abs=1e-7)
    assert arrays["columns"].tolist() == lines[0][1:]
    assert downloaded(user, "PNG").startswith(b"\x89PNG")
    assert downloaded(user, "SVG").lstrip().startswith(b"<svg")

    user.page.get_by_role("button", name="Python", exact=True).press("Enter")
    code = user.page.text_content(".exports .code")
    begin, found = code.split("; ", 1)
    names: dict[str, Any] = {}
    exec(begin, names)
    weights = eval(found, names)
    if hasattr(weights, "layers"):  # a view of one head
        ((weights,),) = (layer.weights for layer in weights.layers)
    assert weights == pytest.approx(saved, abs=1e-6)

    user.page.get_by_role("button", name="Command", exact=True).press("Enter")
    command = user.page.text_content(".exports .code")
    page = workplace / "look.html"
    page.unlink(missing_ok=True)
    regard = Path(sys.prefix) / "bin"
    subprocess.run(["bash", "-c", f'PATH="{regard}:$PATH"; {command}'], check=True, cwd=workplace, timeout=300)
    assert page.stat().st_size > 50_000
    again = used(page.read_text(encoding="utf-8"))
    again.page.locator(".matrix").wait_for()
    made = [weight_said(one.get_attribute("aria-label")) for one in again.page.get_by_role("gridcell").all()]
    assert made == pytest.approx(tips, abs=1.01e-6)


def test_a_copied_line_quotes_what_was_edited(page_of: Pages, model_of: Models, used: Users) -> None:
    user = used(page_of("dates", DATE))
    text = 'it\'s "12" mars\\1999'
    user.edit(text)
    user.answered(translate(model_of("dates"), [text])[0].text)
    user.page.get_by_role("button", name="Python", exact=True).press("Enter")
    assert repr(text) in user.page.text_content(".exports .code")
    user.page.get_by_role("button", name="Command", exact=True).press("Enter")
    assert shlex.split(user.page.text_content(".exports .code"))[:4] == ["regard", "look", "dates", text]


def test_a_page_stores_no_path_of_this_disk(page_of: Pages) -> None:
    html = page_of("dates", DATE)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    assert data["origin"]["run"] == "dates"
    assert str(Path.home()) not in html
    assert sys.prefix not in html
