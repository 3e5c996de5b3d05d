"""A view in a cell of a notebook: the page in a frame computes; where scripts are removed, the picture stays."""

import re
from typing import Any

import pytest

import regard

pytestmark = pytest.mark.slow  # `make journeys` runs it


@pytest.fixture(scope="module")
def cell() -> str:
    return regard.look(regard.load("dates", "cpu"), "3 février 2021")._repr_html_()


def notebook(cell: str, theme: str = "") -> str:
    """A page like that of JupyterLab, with one output."""
    return (
        f"<!doctype html><html><body{theme}><h1>Notebook</h1><div class=output>{cell}</div><p>after</p></body></html>"
    )


def test_the_page_in_a_cell_computes_and_has_the_theme_of_the_notebook(cell: str, opened: Any) -> None:
    page = opened(notebook(cell, ' data-jp-theme-light="false"'))
    frame = page.frame_locator("iframe")
    frame.locator(".edit-view textarea, .edit-view input").first.fill("4 mars 1999")
    frame.get_by_text("1999-03-04").first.wait_for()
    assert page.locator(".output > div svg").is_hidden()  # the picture
    heights = page.locator("iframe").evaluate(
        "one => [one.offsetHeight, one.contentDocument.documentElement.offsetHeight]"
    )
    assert heights[0] == heights[1] > 400
    assert page.frames[1].evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_cell_without_scripts_shows_the_picture(cell: str, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(notebook(cell))
    assert page.locator(".output > div svg").is_visible()
    page.set_content(notebook(re.sub("<iframe.*</iframe>", "", cell, flags=re.DOTALL)))
    assert page.locator(".output > div svg").is_visible()
    context.close()
