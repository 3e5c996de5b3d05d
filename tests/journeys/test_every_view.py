"""Every view of every kind of model: axe finds nothing serious in light and dark, and nothing scrolls sideways."""

from collections.abc import Callable
from typing import Any

import pytest
from user import User

from regard.shipped import SHIPPED

SENTENCE, TARGET = "the dog sees a house .", "der Hund sieht ein Haus ."
PAGES = {
    "dates": ("dates", "3 février 2021"),
    "dates-plain": ("dates-plain", "3 février 2021"),
    "french": ("french", "L'accord a été signé en août 1992 ."),
    "stories": ("stories", "Anna found a red ball in the park."),
    "blanks": ("blanks", "Anna had a blue kite, and Tom had a red [MASK]."),
    "translator": ("runs/transformer", SENTENCE, "--target", TARGET),
    "language": ("runs/gpt", SENTENCE),
    "masked": ("runs/bert", "the [MASK] sees a house ."),
    "classifier": ("runs/headed-bert", "the dog is good"),
    "tagger": ("runs/tagger", SENTENCE),
    "scenes": ("scenes", "scene.png"),
}
NOT_SHIPPED = {"stories", "blanks"} - SHIPPED.keys()
SERIOUS = """async () => (await axe.run()).violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary: why }) => `${id}: ${html.slice(0, 200)} ${why}`))"""
QUIET = "() => document.querySelector('[aria-busy=true]') === null"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 390)])
@pytest.mark.parametrize("name", [name for name in PAGES if name not in NOT_SHIPPED])
def test_nothing_keeps_people_from_using_a_view(
    name: str, scheme: str, width: int, page_of: Callable[..., str], used: Callable[..., User], axe: str, tagger: str
) -> None:
    page: Any = used(page_of(*PAGES[name]), width=width, scheme=scheme, still=True).page
    page.evaluate(axe)
    tabs = page.locator("[role=tab]:visible")
    seen = list[str]()
    if not tabs.count():
        assert page.evaluate(SERIOUS) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for at in range(tabs.count()):
        tabs.nth(at).click()
        view = tabs.nth(at).get_attribute("data-view")
        if view == "off" and page.locator("[data-kind=off]").get_attribute("aria-disabled") != "true":
            page.locator("[data-kind=off]").click()
            page.wait_for_selector(".deltas tbody tr")
        if view == "next":
            page.wait_for_selector(".next-view tbody tr:visible")
        if view == "cell":
            page.wait_for_selector(".lines-of li, .cell-view .quiet:not(:empty)")
        page.wait_for_function(QUIET)
        assert page.evaluate(SERIOUS) == [], (name, view)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, view)
        seen.append(view)
    if name not in ("dates-plain", "scenes"):
        assert {"matrix", "lines", "off", "cell", "masks"} <= set(seen)
