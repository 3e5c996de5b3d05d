"""Files that are whole or absent, and the style and script that travel inside every page."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from regard.checkpoint import atomic_write


def write(path: str | Path, content: str | bytes) -> Path:
    """Puts a file in its place in one move, and makes the folders on the way to it."""
    path = Path(path)
    with atomic_write(path) as aside:
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@cache
def asset(name: str) -> str:
    """A style sheet or script kept beside this file, to be put inside a page."""
    return files("regard.render").joinpath(name).read_text(encoding="utf-8")
