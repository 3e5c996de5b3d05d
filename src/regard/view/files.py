"""Files that are whole or absent, and the style and script that travel inside every page."""

import os
import secrets
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

from regard.errors import UserError


def write(path: str | Path, content: str | bytes) -> Path:
    """Writes aside, then renames: a reader sees the old file or the new one, never half of either."""
    path = Path(path)
    aside = path.with_name(f".{secrets.token_hex(8)}.part")  # same folder: a rename must not cross file systems
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "xb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise UserError(
            f'Cannot write "{path}": {error.strerror or error}. Free some space or name another place.'
        ) from error
    finally:
        with suppress(OSError):  # where the folder itself is out of reach, the error above has said so
            aside.unlink(missing_ok=True)
    return path


@cache
def asset(name: str) -> str:
    """A style sheet or script kept beside this file, to be put inside a page."""
    return files("regard.view").joinpath(name).read_text(encoding="utf-8")
