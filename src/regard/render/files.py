"""Writing files atomically, and the files of this package that pages contain."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from regard.checkpoint import atomic_write


def write(path: str | Path, content: str | bytes) -> Path:
    """Writes a file atomically, and creates its parent folders."""
    path = Path(path)
    with atomic_write(path) as temporary:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@cache
def asset(name: str) -> str:
    """The text of a style sheet, a script or a fragment of HTML of this package."""
    return files("regard.render").joinpath(name).read_text(encoding="utf-8")
