"""The exception for mistakes of the user, a check of sizes, names that are suggested, lack of memory, safe texts."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

# Invisible characters that set the direction of the text around them: "a\u202etxt.exe" looks like another name. Letters
# of scripts that are written from right to left have their direction without them.
DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Characters that control a terminal or end a line, and halves of surrogate pairs, which cannot be printed.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff" + DIRECTIONS + "]")
LONGEST = 800  # characters of a message
LONGEST_WORD = 240  # characters without a space: most paths fit, a value of any length does not
NAMED = 20  # of the known names, so many are in a message
CLOSE = 0.55  # the ratio of `difflib` from which a name is close to another one: "xlnet" and "albert" have less


class UserError(ValueError):
    """A mistake of the user. The message is one line: the setting or file, its value, and how to fix it."""


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of an error message about an unknown name: the closest known name, or what there is, after a prefix.

    Of many names the message has the closest ones, and the count of the others.
    """
    options = sorted(known)
    close = get_close_matches(name, options, n=1, cutoff=CLOSE)
    if close:
        return f' Did you mean "{prefix}{close[0]}"?'
    shown = sorted(sorted(options, key=lambda one: _likeness(one, name), reverse=True)[:NAMED])
    others = f" and {len(options) - NAMED} more" if len(options) > NAMED else ""
    return f" Known: {', '.join(prefix + one for one in shown)}{others}."


def _likeness(one: str, other: str) -> tuple[int, float]:
    """How alike two names are: by their longest common part ("xlnet" is like "transformer-xl"), then as a whole."""
    match = SequenceMatcher(None, one, other)
    return match.find_longest_match().size, match.ratio()


def shorten(message: str) -> str:
    """A message of a reasonable length. Long words, and a long message, lose their middle: the cure is at the end."""
    words = (_without_middle(word, LONGEST_WORD) for word in message.split(" "))
    return _without_middle(" ".join(words), LONGEST)


def _without_middle(text: str, most: int) -> str:
    """A text of at most so many characters, and an ellipsis in its middle if it was longer."""
    kept = most // 2
    return text if len(text) <= most else f"{text[:kept]}…{text[-kept:]}"


def check_sizes(least: int = 1, **sizes: int) -> None:
    """Raise ``UserError`` for a size below the least one; a size has the name of its argument."""
    for name, size in sizes.items():
        if size < least:
            raise UserError(f"{name}={size}: must be at least {least}.")


def escape_controls(text: str, keep: str = "") -> str:
    r"""A text of unknown origin for a terminal: characters that control it are written as escapes, such as \x1b and \n.

    The characters in `keep` stay.
    """
    return CONTROL.sub(lambda one: one[0] if one[0] in keep else one[0].encode("unicode_escape").decode(), text)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a GPU or on the host. For a CPU, torch has no exception of its own."""
    on_cpu = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError) or on_cpu or type(error).__name__ == "OutOfMemoryError"  # torch's, for a GPU
