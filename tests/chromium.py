"""A real browser: Debian's Chromium, driven by Playwright. Its tests are skipped where one of them is not installed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 600_000  # milliseconds that a busy machine has for one action of the browser


@pytest.fixture(scope="module")  # its event loop runs in this thread, where other tests start loops of their own
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[dev]'")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium: apt install chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=PATIENCE,
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens the text of a page. A script error, or a request for anything but the file, fails the test at its end.

    `still`: without motion, as a reader may wish; `address` is what follows the "#"; `before` is a script that runs
    before those of the page; `said` is a part of messages of the console that are expected.
    """
    contexts, errors, requests, expected = [], list[str](), list[str](), list[str]()

    def open_page(
        html: str,
        width: int = 1240,
        height: int = 800,
        forced: bool = False,
        scheme: str = "light",
        still: bool = False,
        address: str = "",
        before: str = "",
        said: str = "",
    ) -> Any:
        path = tmp_path / f"{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        size = {"width": width, "height": height}
        looks = {"color_scheme": scheme, "forced_colors": "active" if forced else "none"}
        motion = "reduce" if still else "no-preference"
        contexts.append(browser.new_context(viewport=size, reduced_motion=motion, **looks))
        contexts[-1].set_default_timeout(PATIENCE)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.on("request", lambda request: requests.append(request.url))
        if before:
            page.add_init_script(before)
        if said:
            expected.append(said)
        page.goto(path.as_uri() + (f"#{address}" if address else ""))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [error for error in errors if not any(said in error for said in expected)] == []
    assert all(url.startswith(("file:", "blob:")) for url in requests)  # the engine is a blob of the page
