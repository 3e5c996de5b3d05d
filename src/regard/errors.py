"""The exception for mistakes of the user, and suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake of the user. The message is one line: the setting or file, its value, and how to fix it."""


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of an error message about an unknown name: the closest known name, or all of them, after a prefix."""
    options = sorted(known)
    close = get_close_matches(name, options, n=1, cutoff=0.5)
    return f' Did you mean "{prefix}{close[0]}"?' if close else f" Known: {', '.join(prefix + one for one in options)}."
