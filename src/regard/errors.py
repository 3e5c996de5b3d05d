"""The one exception that speaks to people, and the suggestion that goes with it."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake of the user's, in one line: the setting or file, its value, and the cure."""


def nearest(name: str, known: Iterable[str]) -> str:
    """What to append to an error about an unknown name: the closest known one, or all of them."""
    options = sorted(known)
    close = get_close_matches(name, options, n=1, cutoff=0.5)
    return f' Did you mean "{close[0]}"?' if close else f" Known: {', '.join(options)}."
