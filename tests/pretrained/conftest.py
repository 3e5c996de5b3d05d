"""Public checkpoints, each made and saved once by the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Made:
    """A directory as `transformers` leaves it, and the model in it."""

    path: Path
    reference: Any


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A function that makes the checkpoint of a case, by the name of the case."""
    from references import CASES, build

    folder, made = tmp_path_factory.mktemp("public"), {}

    def make(name: str) -> Made:
        if name not in made:
            made[name] = Made(folder / name, build(CASES[name]))
            made[name].reference.save_pretrained(made[name].path)
        return made[name]

    return make
