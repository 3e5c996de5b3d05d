"""A view of a tape has the model that read the text, and a cell of a notebook has the page and a picture."""

import html
import re

import numpy as np
import pytest

import regard
from regard.render import page
from regard.render.page import Live
from regard.verbs import Loaded

DATE = "3 février 2021"


@pytest.fixture(scope="module")
def model() -> Loaded:
    return regard.load("dates", "cpu")


def test_a_view_of_a_tape_computes_as_look_does(model: Loaded) -> None:
    with regard.record(model.module) as tape:
        (found,) = regard.translate(model, [DATE])
    view, seen = regard.view(tape), regard.look(model, DATE)
    assert view.origin is not None
    assert (view.origin.run, list(view.origin.texts), view.origin.target) == ("dates", [DATE], found.text)
    assert view.live is not None
    assert isinstance(made := view.live(), Live)
    assert made == seen.live()  # type: ignore[misc]
    np.testing.assert_allclose(view.matrix().weights, seen.matrix().weights, atol=1e-6)


def test_a_view_with_other_names_or_of_a_part_does_not_compute(model: Loaded) -> None:
    with regard.record(model.module) as tape:
        regard.translate(model, [DATE])
    assert regard.view(tape, rows=list("abcdefghijk")).live is None
    seen = regard.look(model, DATE).only("cross", 0)
    assert seen.live is not None
    assert "shows a part" in str(seen.live())


def test_a_text_that_its_tokens_do_not_spell_has_no_page_that_computes(model: Loaded) -> None:
    with regard.record(model.module) as tape:
        regard.translate(model, ["3 февраля 2021 🎉"])  # the emoji is not in the vocabulary
    assert regard.view(tape).live is None


def test_a_cell_of_a_notebook_has_a_picture_and_the_page(model: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = regard.look(model, DATE)
    cell = seen._repr_html_()
    picture, frame = cell.split("<iframe ")
    assert seen.svg() in picture
    found = re.search(r'srcdoc="([^"]*)"', frame)
    assert found is not None
    assert html.unescape(found[1]) == seen.html()
    monkeypatch.setattr(page, "MOST_IN_CELL", 1000)
    assert "<iframe" not in (small := seen._repr_html_())
    assert seen.svg() in small
