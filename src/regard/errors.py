"""The exception for mistakes of the user, a check of sizes, names that are suggested, lack of memory, safe texts."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

# Characters that control a terminal or end a line, and halves of surrogate pairs, which cannot be printed.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
CLOSE = 0.55  # the ratio of `difflib` from which a name is close to another one: "xlnet" and "albert" have less


class UserError(ValueError):
    """A mistake of the user. The message is one line: the setting or file, its value, and how to fix it."""


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of an error message about an unknown name: the closest known name, or all of them, after a prefix."""
    options = sorted(known)
    close = get_close_matches(name, options, n=1, cutoff=CLOSE)
    return f' Did you mean "{prefix}{close[0]}"?' if close else f" Known: {', '.join(prefix + one for one in options)}."


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
