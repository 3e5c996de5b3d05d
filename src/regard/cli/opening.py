"""The model that a command is to use, wherever it comes from."""

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
    """A run, a public checkpoint or `hf:NAME`, ready to be used."""
    from regard.verbs import load

    return load(run, device, precision, long, allow_pickle, download)
