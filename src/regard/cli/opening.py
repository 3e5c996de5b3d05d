"""What every command needs: the tables of kinds, and the model that it uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.config import Kinds
    from regard.verbs import Loaded

_ADDED: "ContextVar[Kinds | None]" = ContextVar("kinds", default=None)


@contextmanager
def added(kinds: "Kinds | None") -> Iterator[None]:
    """Inside, commands know the kinds of a user's own tables beside ours."""
    token = _ADDED.set(kinds)
    try:
        yield
    finally:
        _ADDED.reset(token)


def all_kinds() -> "Kinds":
    """Our tables of kinds, with those that were added."""
    from regard.recipes import with_kinds

    return with_kinds(_ADDED.get())


def opened(
    run: Path,
    device: str = "auto",
    precision: str = "auto",
    long: str = "error",
    download: bool = False,
    allow_pickle: bool = False,
) -> "Loaded":
    """A run, a public checkpoint or `hf:NAME`, loaded for use."""
    from regard.verbs import load

    return load(run, device, precision, long, allow_pickle, download, all_kinds())
