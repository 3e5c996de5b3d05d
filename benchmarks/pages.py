"""How fast a page is in Chromium, and how large: by default a page of 12 layers × 12 heads × 128 tokens.

    python benchmarks/pages.py                                    # random weights
    python benchmarks/pages.py --layers 6 --heads 8 --tokens 64 --turns 5
    python benchmarks/pages.py --bertviz                          # the page that BertViz makes of the same weights
    python benchmarks/pages.py --answers                          # pages that compute: from an edit to its answer

The page is what a user saves: `AttentionView(...).save("page.html")`. Its weights are random rows that sum to 1. Each
turn opens it in a new window. Printed is the median over the turns, in milliseconds, and the smallest and largest:

- first paint: from the start of the navigation to the first contentful paint, as the browser reports it;
- opened: until the second frame after the page has loaded, which is when it answers;
- heads: the same for the address that opens the head grid;
- tab: from a click on the tab of the head grid until the second frame after it, in a page that shows the matrix;
- layer: from the key that goes to the next layer until the second frame after it: matrix, and head grid.

The second frame is the first one that surely holds what the event has changed.

`--answers` measures pages that compute: of the models `dates` and `french`, and of translators with random weights that
read 64 tokens and write 64 (Transformers of 3 + 3 layers and 4 heads; a page computes up to 5 million parameters):

- first answer: from the start of the navigation until the answer of the engine is drawn;
- edit: from the event of a keystroke in the box until the frame after the one in which the new answer and its matrix
  are drawn; the median (p50) and the 95th percentile (p95) of so many edits, each of another letter.

`--bertviz` needs BertViz and IPython,
which Regard does not: install them elsewhere and name that folder in PYTHONPATH. Its views are given all layers, as
they are without arguments. Its pages fetch their libraries from the network; the figure is the size of the page alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard import load, look, translate
from regard.data.fields import InputText, TargetText
from regard.data.french import FIGURE
from regard.data.tokenizers import train_tokenizer
from regard.models import TransformerConfig
from regard.render import AttentionView, Layer
from regard.tasks import TRANSLATE
from regard.verbs import Loaded

SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
KEY = f"""async (key) => {{
    const start = performance.now();
    document.body.dispatchEvent(new KeyboardEvent("keydown", {{ key, bubbles: true }}));
    return (await {SETTLED}) - start;
}}"""
CLICK = f"""async (selector) => {{
    const start = performance.now();
    document.querySelector(selector).click();
    return (await {SETTLED}) - start;
}}"""
HEADS = "[data-view=grid]"


def chromium() -> str | None:
    """The path of the browser."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def page_of(layers: int, heads: int, tokens: int) -> AttentionView:
    """A page of random weights, with words of four letters."""
    random = np.random.default_rng(0)
    words = [f"w{at:03d}" for at in range(tokens)]
    scores = random.normal(scale=2.0, size=(layers, heads, tokens, tokens))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    every = [Layer(f"layer{at}", weights[at], words, words, "encoder", at) for at in range(layers)]
    return AttentionView("random weights", words, words, every)


def measured(browser: Any, path: Path) -> dict[str, float]:
    """The times of one turn."""
    found = dict[str, float]()
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(path.as_uri())
    found["opened"] = page.evaluate(SETTLED)
    found["first paint"] = page.evaluate(PAINT)
    found["layer, matrix"] = page.evaluate(KEY, "l")
    found["tab"] = page.evaluate(CLICK, HEADS)
    page.close()
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(f"{path.as_uri()}#view=grid")
    found["heads"] = page.evaluate(SETTLED)
    assert page.locator(f"{HEADS}[aria-selected=true]").count(), "the page has no head grid"
    found["layer, heads"] = page.evaluate(KEY, "l")
    page.close()
    return found


ANSWERED = f"""async () => {{
    const output = document.querySelector(".edit-view output");
    while (!output.textContent) await new Promise(requestAnimationFrame);
    return await {SETTLED};
}}"""
EDIT = """async (text) => {
    const view = document.querySelector(".edit-view"), box = view.querySelector(".text");
    await new Promise((done) => setTimeout(done, 250)); // as between two words: a keystroke is sent at once
    const start = performance.now();
    const drawn = new Promise((done) => {
        let busy = false;
        const watcher = new MutationObserver(() => {
            const now = view.getAttribute("aria-busy") === "true";
            if (busy && !now) { watcher.disconnect(); done(); }
            busy ||= now;
        });
        watcher.observe(view, { attributes: true, attributeFilter: ["aria-busy"] });
    });
    box.value = text;
    box.dispatchEvent(new InputEvent("input"));
    await drawn;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    return performance.now() - start;
}"""
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WIDTHS = (132, 152, 188, 240)  # of translators of 1.5, 2, 3 and 5 million parameters
TOKENS = 64
TEXT = (LETTERS * 2)[:TOKENS]


def translator(width: int) -> Loaded:
    """A Transformer with random weights that reads and writes 64 letters."""
    letters = train_tokenizer("char", [LETTERS], 60)
    sizes = {"layers": 3, "heads": 4, "inner": 4 * width, "context": TOKENS + 2, "dropout": 0.0}
    fields = {"source": InputText(letters), "target": TargetText(letters)}
    for seed in range(100):
        torch.manual_seed(seed)
        module = TransformerConfig(width=width, source_vocab=letters.size, target_vocab=letters.size, **sizes).build()
        model = Loaded(Path("translator"), module.eval(), torch.device("cpu"), fields, given_task=TRANSLATE)
        (found,) = translate(model, [TEXT], align=False)
        if found.ended == "limit":  # random weights may also end at once
            return model
    raise RuntimeError("every translator ends before the limit")


def edits(first: str, count: int) -> list[str]:
    """The text with one other letter each; no two are the same."""
    every = [
        f"{first[:place]}{letter}{first[place + 1 :]}"
        for place, old in enumerate(first)
        for letter in LETTERS
        if letter != old
    ]
    return [every[at] for at in np.random.default_rng(0).permutation(len(every))[:count]]


def answered(browser: Any, path: Path, texts: Sequence[str]) -> tuple[float, float, list[float]]:
    """First paint and first answer of a page, and the time of each edit."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(path.as_uri())
    first = page.evaluate(ANSWERED)
    paint = page.evaluate(PAINT)
    times = [page.evaluate(EDIT, text) for text in texts]
    page.close()
    return paint, first, times


def measure_answers(browser: Any, folder: Path, turns: int, count: int) -> None:
    """Prints a row for each model."""
    models = {"dates": (load("dates"), "3 février 2021"), "french": (load("french"), FIGURE[0])}
    models |= {f"translator, width {width}": (translator(width), TEXT) for width in WIDTHS}
    print("| model | parameters | tokens in | out | bytes | first paint | first answer | edit p50 | p95 |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, (model, first) in models.items():
        view = look(model, first)
        path = view.save(folder / f"{name}.html")
        found = [answered(browser, path, edits(first, count)) for _ in range(turns)]
        paint, answer = (statistics.median(each[at] for each in found) for at in (0, 1))
        times = sorted(time for *_, all_times in found for time in all_times)
        p50, p95 = (times[int(share * (len(times) - 1))] for share in (0.5, 0.95))
        cross = next(layer for layer in view.layers if layer.part == "cross")
        rows, columns = cross.weights.shape[-2:]
        figures = " | ".join(f"{one:.0f} ms" for one in (paint, answer, p50, p95))
        print(
            f"| {name} | {model.parameter_count:,} | {columns} | {rows} | {path.stat().st_size:,} | {figures} |",
            flush=True,
        )


def bertviz_bytes(view: AttentionView) -> dict[str, int]:
    """The sizes of the pages that BertViz makes of the same weights: its view of heads and that of the model."""
    from bertviz import head_view, model_view

    attention = [torch.tensor(layer.weights)[None] for layer in view.layers]
    pages = {made.__name__: made(attention, list(view.rows), html_action="return") for made in (head_view, model_view)}
    return {name: len(page.data.encode()) for name, page in pages.items()}


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="How fast a page is in Chromium, and how large.")
    for name, default in {"layers": 12, "heads": 12, "tokens": 128, "turns": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--answers", action="store_true", help="pages that compute, instead of a page of weights")
    parser.add_argument("--edits", type=int, default=40, help="with --answers: how many of each page and turn")
    parser.add_argument("--bertviz", action="store_true", help="also the sizes of BertViz's pages")
    asked = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if asked.answers:
        with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            measure_answers(browser, Path(folder), asked.turns, asked.edits)
            browser.close()
        return
    view = page_of(asked.layers, asked.heads, asked.tokens)
    print(f"{asked.layers} layers × {asked.heads} heads × {asked.tokens} tokens")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        start = time.perf_counter()
        path = view.save(Path(folder) / "page.html")
        print(f"page: {path.stat().st_size:,} bytes, written in {time.perf_counter() - start:.1f} s")
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        turns = [measured(browser, path) for _ in range(asked.turns)]
        browser.close()
    for name in turns[0]:
        times = sorted(turn[name] for turn in turns)
        print(f"{name:14} {statistics.median(times):6.0f} ms   ({times[0]:.0f} to {times[-1]:.0f})")
    if asked.bertviz:
        for name, size in bertviz_bytes(view).items():
            print(f"BertViz {name}: {size:,} bytes")


if __name__ == "__main__":
    main()
