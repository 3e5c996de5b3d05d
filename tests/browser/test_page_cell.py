"""One cell by hand, the next token, hidden tokens and masks: the numbers of a page are those of Python."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from encoded import fields_for
from regard.data.tokenizers import train_tokenizer
from regard.decode.sample import Sampler
from regard.models import BertConfig, GptConfig, ModelConfig, Seq2SeqConfig, TransformerConfig
from regard.readers import edit
from regard.tasks import TASKS
from regard.verbs import Loaded, look
from regard.verbs.filling import fill
from regard.verbs.forced import token_logps
from regard.verbs.search import translate

pytestmark = pytest.mark.slow  # `make journeys` runs it

TEXT = "abc cab"
WIDE = {"width": 16, "heads": 2, "layers": 2, "inner": 24, "context": 24, "dropout": 0.0}


def untrained(config: ModelConfig, task: str, *tokenizers: Any, seed: int = 4) -> Loaded:
    """A model that was not trained; its weights are so large that its attention is uneven."""
    torch.manual_seed(seed)
    module = config.build().eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(2.0 if weight.dim() > 1 else 1.0)
    return Loaded(Path("tiny"), module, torch.device("cpu"), fields_for(TASKS[task], *tokenizers))


def model_of(family: str) -> Loaded:
    lines = [TEXT, "x yz"]
    source, target = train_tokenizer("char", lines, 40), train_tokenizer("char", ["xyz zxy"], 40)
    if family == "bert":
        masked = train_tokenizer("char", lines, 40, mask="[MASK]")
        return untrained(BertConfig(vocab=masked.size, **WIDE), "masked", masked)
    if family == "gpt":
        return untrained(GptConfig(vocab=source.size, **WIDE), "language", source)
    sizes = {"source_vocab": source.size, "target_vocab": target.size}
    if family == "recurrent":
        config = Seq2SeqConfig(**sizes, width=12, embed=6, score="additive")
        return untrained(config, "translate", source, target, seed=8)  # answers "zx"
    return untrained(TransformerConfig(**sizes, **WIDE), "translate", source, target)


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def calculated(text: str) -> float:
    """What a calculator finds."""
    for sign, own in {"−": "-", "·": "*", "×": "*", "÷": "/"}.items():
        text = text.replace(sign, own)
    text = re.sub(r"√(\d+)", r"math.sqrt(\1)", text)
    text = re.sub(r"e\^([\d.e-]+)", r"math.exp(\1)", text.replace("e^(", "math.exp(").replace("tanh(", "math.tanh("))
    return float(eval(text, {"math": math}))


def check_arithmetic(lines: Sequence[str]) -> int:
    """Each "a = b" holds within the digits of b. Returns how many there are."""
    count = 0
    for step in "\n".join(lines).replace("\n= ", " = ").split("\n"):
        first, *rest = step.split(" = ")
        pairs = list(pairwise([first, *rest]))
        if "e^" in first:  # the powers, their sum, and the quotient of the two
            found = re.fullmatch(r"(.*?) / \((.*)\)", first)
            assert found is not None, step
            above, below = rest[0].split(" / ")
            pairs = [(found[1], above), (found[2], below), (rest[0], rest[1])]
        for left, right in pairs:
            digits = len(re.sub(r"e.*|\D", "", right).lstrip("0"))
            expected = pytest.approx(number(right), rel=10.0 ** (1 - max(2, digits)), abs=1e-12)
            assert calculated(left) == expected, step
            count += 1
    return count


@pytest.mark.parametrize(
    ("family", "part", "names"),
    [
        ("recurrent", "cross", ["Wq + Uk", "tanh", "v ⊙ tanh", "Σ", "softmax", "Σ over keys"]),
        ("transformer", "cross", ["q ⊙ k", "Σ", "÷ √8", "softmax", "Σ over keys", "W^O"]),
        ("gpt", "decoder", ["q ⊙ k", "Σ", "÷ √8", "mask", "softmax", "W^O"]),
        ("bert", "encoder", ["q ⊙ k", "Σ", "÷ √8", "softmax", "W^O"]),
    ],
)
def test_a_cell_is_computed_line_by_line(family: str, part: str, names: list[str], opened: Any) -> None:
    model = model_of(family)
    seen = look(model, TEXT)
    page = opened(seen.html())
    page.get_by_role("gridcell").nth(1).wait_for()
    page.focus(".matrix td[tabindex='0']")
    last = family == "gpt"  # a language model begins at its last step
    page.keyboard.press("ArrowUp" if last else "ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-line=softmax]")
    where = re.search(r"layer (\d+) · head (\d+)", page.inner_text(".cell-view .told"))
    layer, head = (int(one) for one in where.groups()) if where else (0, 0)
    titles = page.locator(".lines-of h3 b").all_text_contents()
    assert [one for one in titles if one in names] == names

    row = int(page.input_value(".cell-view select >> nth=0"))
    assert row == (page.locator(".matrix tbody tr").count() - 2 if last else 1)
    bars = page.locator("[data-line=softmax] .bars li").evaluate_all("all => all.map((one) => one.dataset.tip)")
    found = [number(one.rpartition(": ")[2]) for one in bars]
    weights = next(one for one in seen.layers if one.part == part and (one.number or 0) == layer).weights[head, row]
    assert found == pytest.approx(weights[: len(found)].tolist(), abs=2e-6)

    page.locator(".lines-of details").evaluate_all("all => all.forEach((one) => (one.open = true))")
    page.wait_for_selector(".lines-of .numbers")
    sums = page.locator(".lines-of .sum").all_text_contents()
    assert check_arithmetic([one for one in sums if " = " in one]) > 20

    page.focus(".matrix td[tabindex='0']")
    page.keyboard.press("ArrowDown")  # the view follows
    page.wait_for_function(f"() => document.querySelector('.cell-view select').value === '{row + 1}'")


class Kept(Sampler):
    """Keeps the probabilities of the draws."""

    def _draw(self, probs: Tensor) -> Tensor:
        object.__setattr__(self, "probs", probs / probs.sum(dim=-1, keepdim=True))
        return probs.argmax(dim=-1)


def column(page: Any, place: int) -> list[str]:
    return page.locator(f".next-view tbody tr:not([hidden]) td:nth-child({place})").all_text_contents()


def test_the_next_token_is_sampled_and_forced_as_in_python(opened: Any) -> None:
    model = model_of("transformer")
    (best,) = translate(model, [TEXT])
    pair = best.source_tokens, best.tokens
    page = opened(look(model, TEXT).html())
    page.evaluate("location.hash = 'panel=next&step=2&next.t=0.7&next.k=4&next.p=0.8'")
    page.wait_for_selector(".next-view tr.best")
    with torch.no_grad():
        module = model.module
        bos = model.target_tokenizer.special_tokens.bos
        state = module.start(torch.tensor([pair[0]]), torch.ones(1, len(pair[0]), dtype=torch.bool))
        logits = module.readout(module.advance(torch.tensor([[bos, best.tokens[0]]]), state)[0])
    logits = logits[0, -1].float()
    forbidden = torch.tensor(model.forbidden)
    chances = logits.softmax(dim=-1).index_fill(0, forbidden, 0.0).sort(descending=True).values.tolist()
    shown = [number(one) for one in column(page, 2)]
    assert shown == pytest.approx(chances[: len(shown)], rel=1e-4)
    allowed = logits.index_fill(0, forbidden, -torch.inf)
    sampler = Kept(temperature=0.7, top_k=4, top_p=0.8)
    sampler(allowed[None])
    expected = [one for one in sampler.probs[0].tolist() if one > 0]
    after = [number(one) for one in column(page, 3)]
    assert after[: len(expected)] == pytest.approx(expected, rel=1e-4)
    assert set(after[len(expected) :]) == {0.0}
    cut = page.locator(".next-view tr.cut:not([hidden])")
    assert cut.count() == len(shown) - len(expected)
    assert "line-through" in cut.first.locator("button").evaluate("one => getComputedStyle(one).textDecoration")

    other = page.locator(".next-view tbody button").nth(1)
    piece = other.text_content()
    other.click()
    page.wait_for_selector(".outcome .forced")
    (forced,) = (id for id in range(len(logits)) if model.target_tokenizer.pieces([id]) == [piece])
    ask = page.evaluate("JSON.parse(new URLSearchParams(location.hash.slice(1)).get('ask'))")
    assert ask == {"forced": [best.tokens[0], forced]}
    chips = page.locator(".undo button")
    assert chips.all_text_contents() == [f"2: {model.target_tokenizer.pieces(best.tokens[1:2])[0]} → {piece} ✕"]
    own, mine = (page.locator(".continuation").nth(at).locator("li").all_text_contents() for at in (0, 1))
    ends = [re.match(r"(<eos>|.)", one)[1] for one in mine]
    tokens = [model.target_tokenizer.encode(one)[0] for one in ends if one != "<eos>"]
    totals = [number(one.removeprefix("log p ")) for one in page.locator(".continuation .total").all_text_contents()]
    given = [(pair[0], best.tokens), (pair[0], tokens)]
    assert totals == pytest.approx([one.sum() for one in token_logps(model, given)], abs=1e-4)
    assert len(own) == len(best.tokens) + 1
    chips.first.click()
    page.wait_for_function("() => document.querySelector('.undo').hidden")
    page.go_back()  # to what was forced
    page.wait_for_selector(".outcome .forced")


def test_a_language_model_goes_on_from_a_forced_token(opened: Any) -> None:
    model = model_of("gpt")
    page = opened(look(model, TEXT).html())
    page.evaluate("location.hash = 'panel=next&step=3&next.more=4'")
    page.wait_for_selector(".next-view tr.best")
    page.locator(".next-view tbody button").nth(2).click()
    page.wait_for_selector(".outcome .forced")
    ask = page.evaluate("JSON.parse(new URLSearchParams(location.hash.slice(1)).get('ask'))")
    ids = model.tokenizer.encode(TEXT)
    special = model.tokenizer.special_tokens
    whole = [special.bos, *ids[: ask["prefix"]], *ask["forced"]]
    assert len(whole) == 4  # the third token of the text is another one
    scores, forbidden = list[float](), torch.tensor(model.forbidden)
    with torch.no_grad():
        while len(scores) < ask["limit"] and whole[-1] != special.eos:  # the likeliest tokens follow
            logits = model.module.readout(model.module.advance(torch.tensor([whole]), model.module.start(1))[0])
            logps = logits[0].log_softmax(dim=-1)
            scores = scores or [logps[-2, ask["forced"][0]].item()]
            whole.append(int(logps[-1].index_fill(0, forbidden, -torch.inf).argmax()))
            scores.append(logps[-1, whole[-1]].item())
    total = page.locator(".outcome .total").nth(1).text_content()
    assert number(total.strip().removeprefix("log p ")) == pytest.approx(sum(scores), abs=1e-4)


def test_hidden_tokens_are_guessed_as_fill_guesses_them(opened: Any) -> None:
    model = model_of("bert")
    page = opened(look(model, TEXT).html())
    page.get_by_role("tab", name="Hide and guess").click()
    tokens = page.locator(".fill-view .toggles button")
    tokens.nth(1).focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.fills section').length === 1")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.fills section').length === 2")
    (filled,) = fill(model, ["a[MASK][MASK] cab"])
    for place, guesses in enumerate(filled.masks):
        section = page.locator(".fills section").nth(place)
        names = section.locator("td:first-child").all_text_contents()
        chances = [number(one) for one in section.locator("td:nth-child(2)").all_text_contents()]
        assert chances == pytest.approx([one.probability for one in guesses], rel=1e-4)
        assert names == [one.piece.replace(" ", "␣") for one in guesses]


def test_nobody_looks_at_a_masked_token(opened: Any) -> None:
    model = model_of("recurrent")
    page = opened(look(model, TEXT).html())
    page.get_by_role("tab", name="Masks").click()
    page.wait_for_selector(".masks-view .toggles button")
    assert "no self-attention" in page.inner_text(".masks-view")
    page.locator(".masks-view .toggles button").nth(2).click()
    page.wait_for_selector(".matrix td.masked")

    def without(weights: Tensor) -> Tensor:
        kept = weights.index_fill(-1, torch.tensor([2]), 0.0)
        return kept / kept.sum(dim=-1, keepdim=True)

    with edit(model.module, {"decoder.attention": without}):
        (best,) = translate(model, [TEXT])
        (logps,) = token_logps(model, [(best.source_tokens, best.tokens)])
        (layer,) = look(model, TEXT).layers
    total = page.locator(".outcome .total").nth(1).text_content()
    assert number(total.strip().removeprefix("log p ")) == pytest.approx(logps.sum(), abs=1e-4)
    assert page.locator(".matrix td.masked").count() == len(layer.weights[0])
    tip = page.get_by_role("gridcell").first.get_attribute("aria-label")
    assert number(re.search(r": ([\d.e-]+)", tip)[1]) == pytest.approx(layer.weights[0, 0, 0], abs=2e-6)
    page.get_by_role("button", name="Show all again").click()
    page.wait_for_function("() => !document.querySelector('.matrix td.masked')")
