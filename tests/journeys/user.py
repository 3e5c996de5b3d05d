"""Somebody who uses a page with a keyboard alone."""

from typing import Any

PATIENCE = 60_000  # milliseconds for one action: a step that hangs fails soon


class User:
    """Somebody who presses keys, and reads what a page says."""

    def __init__(self, page: Any):
        self.page = page
        page.set_default_timeout(PATIENCE)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def go(self, selector: str, key: str = "Tab", most: int = 150) -> None:
        """Presses Tab until the focus is on such an element."""
        there = "(selector) => document.activeElement?.matches(selector) ?? false"
        for _ in range(most):
            if self.page.evaluate(there, selector):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{most} times {key} do not reach {selector}")

    def tab(self, name: str) -> None:
        """Chooses a tab with the arrow keys."""
        selector = f"[role=tab][data-view={name}]"
        of = self.page.locator("[role=tablist]", has=self.page.locator(selector)).get_attribute("aria-label")
        self.go(f"[role=tablist][aria-label={of}] [role=tab]")
        self.go(selector, "ArrowRight", 12)
        assert self.page.locator(selector).get_attribute("aria-selected") == "true"

    def wait(self, selector: str, text: str) -> None:
        """Waits until an element has this text."""
        has = "([selector, text]) => document.querySelector(selector)?.textContent === text"
        self.page.wait_for_function(has, arg=[selector, text])

    def answered(self, text: str) -> None:
        self.wait(".edit-view output", text)

    def edit(self, text: str) -> None:
        """Writes another text, and leaves the box."""
        self.press("Escape", "e")
        self.page.keyboard.type(text)
        self.press("Enter", "Escape")

    @property
    def fits(self) -> bool:
        """Whether nothing but boxes that say so scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def number(text: str) -> float:
    """A number of a page."""
    return float(text.replace("−", "-"))
