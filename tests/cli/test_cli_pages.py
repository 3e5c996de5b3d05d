"""Pages of every kind name no place on the disk that the user did not type, and link to nothing."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from untrained import FILES

pytestmark = pytest.mark.slow  # `make journeys` runs it

Regard = Callable[..., "object"]
SMALL = ["plan.steps=2", "plan.warmup=0", "plan.evaluate=2", "plan.log=1", "plan.threads=1", "plan.batch_tokens=256"]
TRANSLATOR = ["data.source_tokens=char", "data.target_tokens=char", "model.width=32", "model.embed=8"]
SCENES = ["data.train=4", "data.valid=2", "data.test=2", "data.size=32", "model.width=32", "model.embed=8"]


def test_no_page_has_an_absolute_path_or_a_link(regard: Regard, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(pairs.read_text(encoding="utf-8").splitlines(keepends=True)[:20]))
    (tmp_path / "labelled.tsv").write_text(FILES["classify"] * 4)
    data, labelled = "data.train=pairs.tsv", ["data.train=labelled.tsv", "data.valid=labelled.tsv"]
    commands: list[list[str]] = [
        ["train", "translate", data, *TRANSLATOR, *SMALL, "--out", "runs/translate"],
        ["look", "runs/translate", "abc", "-o", "look.html"],
        ["ladder", "pairs.tsv", *TRANSLATOR, *SMALL, "--rungs", "no attention,dot", "--seeds", "1", "--out", "ladder"],
        ["explain", "scores", "-o", "explain.html"],
        ["show", "translate", data, *TRANSLATOR, "--example", "-o", "example.html"],
        ["train", "classify", *labelled, "model=kim", *SMALL, "--out", "kim"],
        ["look", "kim", "a b", "-o", "filters.html"],
        ["explain", "filters", "runs=kim", "-o", "kernels.html"],
        ["train", "scenes", *SCENES, "model.blocks=2", *SMALL, "--out", "scenes"],
        ["caption", "scenes", "scenes/example.png", "--limit", "3", "-o", "caption.html"],
        ["caption", "scenes", "--extremes", "1", "-o", "extremes.html"],
    ]
    for command in commands:
        said = regard(*command)
        assert said.code == 0, (command, said.err)
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) == 11, pages
    for path in pages:
        page = path.read_text(encoding="utf-8")
        assert str(tmp_path) not in page, path
        assert str(Path.home()) not in page, path
        assert not re.search(r'(?:href|src)="(?!data:|#)', page), path
