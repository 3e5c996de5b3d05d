"""The exception for mistakes of the user, suggestions for misspelled names, and texts that are safe to print."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

# Characters that control a terminal or end a line, and halves of surrogate pairs, which cannot be printed.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class UserError(ValueError):
    """A mistake of the user. The message is one line: the setting or file, its value, and how to fix it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest known name, or all of them."""
    options = sorted(known)
    close = get_close_matches(name, options, n=1, cutoff=0.5)
    return f' Did you mean "{close[0]}"?' if close else f" Known: {', '.join(options)}."


def printable(text: str, keep: str = "") -> str:
    r"""A text of unknown origin for a terminal: characters that control it are written as escapes, such as \x1b and \n.

    The characters in `keep` stay.
    """
    return CONTROL.sub(lambda one: one[0] if one[0] in keep else one[0].encode("unicode_escape").decode(), text)
