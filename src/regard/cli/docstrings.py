"""The help of a command is its docstring."""

import inspect
from collections.abc import Callable


def help_of(command: Callable[..., None]) -> str:
    """A docstring with each paragraph on one line, to be wrapped where the terminal ends; examples stay as they are."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(text if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs)
