"""How fast a page is in Chromium, and how large: by default a page of 12 layers × 12 heads × 128 tokens.

    python benchmarks/pages.py                                    # random weights
    python benchmarks/pages.py --layers 6 --heads 8 --tokens 64 --turns 5
    python benchmarks/pages.py --bertviz                          # the page that BertViz makes of the same weights

The page is what a user saves: `AttentionView(...).save("page.html")`. Its weights are random rows that sum to 1. Each
turn opens it in a new window. Printed is the median over the turns, in milliseconds, and the smallest and largest:

- first paint: from the start of the navigation to the first contentful paint, as the browser reports it;
- opened: until the second frame after the page has loaded, which is when it answers;
- heads: the same for the address that opens the head grid;
- tab: from a click on the tab of the head grid until the second frame after it, in a page that shows the matrix;
- layer: from the key that goes to the next layer until the second frame after it: matrix, and head grid.

The second frame is the first one that surely holds what the event has changed. `--bertviz` needs BertViz and IPython,
which Regard does not: install them elsewhere and name that folder in PYTHONPATH. Its views are given all layers, as
they are without arguments. Its pages fetch their libraries from the network; the figure is the size of the page alone.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from regard.render import AttentionView, Layer

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


def bertviz_bytes(view: AttentionView) -> dict[str, int]:
    """The sizes of the pages that BertViz makes of the same weights: its view of heads and that of the model."""
    import torch
    from bertviz import head_view, model_view

    attention = [torch.tensor(layer.weights)[None] for layer in view.layers]
    pages = {made.__name__: made(attention, list(view.rows), html_action="return") for made in (head_view, model_view)}
    return {name: len(page.data.encode()) for name, page in pages.items()}


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="How fast a page is in Chromium, and how large.")
    for name, default in {"layers": 12, "heads": 12, "tokens": 128, "turns": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bertviz", action="store_true", help="also the sizes of BertViz's pages")
    asked = parser.parse_args()
    view = page_of(asked.layers, asked.heads, asked.tokens)
    print(f"{asked.layers} layers × {asked.heads} heads × {asked.tokens} tokens")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        start = time.perf_counter()
        path = view.save(Path(folder) / "page.html")
        print(f"page: {path.stat().st_size:,} bytes, written in {time.perf_counter() - start:.1f} s")
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
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
