"""What a user has: the wheel, installed; the models that it ships, and small ones; pages that `regard look` makes.

`make journeys` builds the wheel, installs it into an environment of its own, and runs these tests there. Elsewhere
they are not collected: they would test the sources.
"""

import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from user import User

import regard
from chromium import browser as browser
from chromium import opened as opened
from regard import load
from regard.cli import main
from regard.data.scenes import Scenes
from regard.render.image_view import png
from regard.verbs import Loaded

collect_ignore_glob = [] if Path(regard.__file__).is_relative_to(sys.prefix) else ["test_*.py"]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "kept" / "format-2"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SMALL = ("transformer", "gpt", "bert", "headed-bert")  # runs of a few steps, of models that are not shipped
TAGGER = (
    "model=bert model.width=8 model.heads=2 model.layers=1 model.inner=8 model.context=32 head=tag data.tokens=word "
    "data.train=columns.txt data.valid=columns.txt plan.steps=2 plan.evaluate=2 plan.threads=1 plan.device=cpu"
)


@pytest.fixture(scope="session", autouse=True)
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the runs of small models in runs/, and a drawn scene."""
    folder, before = tmp_path_factory.mktemp("workplace"), Path.cwd()
    for name in SMALL:
        with zipfile.ZipFile(KEPT / "stored" / f"{name}.zip") as packed:
            packed.extractall(folder)
    os.chdir(folder)
    (folder / "columns.txt").write_bytes((KEPT / "data" / "columns.txt").read_bytes())
    (scene,) = Scenes(train=1, valid=1, test=1).load().test
    (folder / "scene.png").write_bytes(png(scene.image))
    yield folder
    os.chdir(before)


@pytest.fixture(scope="session")
def tagger(workplace: Path) -> str:
    """A tagger that was trained for two steps."""
    assert main(["train", "tag", *TAGGER.split(), "--out", "runs/tagger"]) == 0
    return "runs/tagger"


@pytest.fixture(scope="session")
def page_of(workplace: Path) -> Callable[..., str]:
    """The page that `regard look RUN TEXT …` writes, as text; each is made once."""

    @cache
    def make(*given: str) -> str:
        path = workplace / f"page-{len(list(workplace.glob('page-*')))}.html"
        assert main(["look", given[0], "-o", str(path), *given[1:]]) == 0
        return path.read_text(encoding="utf-8")

    return make


@pytest.fixture(scope="session")
def model_of(workplace: Path) -> Callable[[str], Loaded]:
    """The model of a run, in float32."""
    return cache(lambda run: load(run, device="cpu", precision="float32"))


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which finds what keeps people from using a page."""
    if not AXE.exists():
        pytest.skip("no axe-core: npm ci in web/")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture
def used(opened: Any) -> Callable[..., User]:
    """Opens a page for somebody who has a keyboard alone."""
    return lambda html, **more: User(opened(html, **more))
