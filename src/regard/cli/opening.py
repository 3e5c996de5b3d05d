"""Loads the model of a command."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.verbs import Loaded


def opened(
    run: Path,
    device: str = "auto",
    precision: str = "float32",
    long: str = "error",
    download: bool = False,
    allow_pickle: bool = False,
) -> "Loaded":
    """The model of a run, of a public checkpoint or of `hf:NAME`."""
    from regard.verbs import load

    return load(run, device, precision, long, allow_pickle, download)
