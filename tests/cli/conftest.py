"""The command line, run in this process: the exit code and what was printed."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.cli import main


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def regard(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Said]:
    """`regard("translate", run, stdin="…")`, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object, stdin: str | bytes = b"") -> Said:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words and the same words backwards in capitals, as a file of pairs."""
    words = ["".join(chr(97 + (7 * i + 3 * j * (i % 5)) % 6) for j in range(2 + i % 6)) for i in range(200)]
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{word}\t{word[::-1].upper()}\n" for word in words), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny(pairs: Path) -> list[str]:
    """Settings with which a recipe trains in a moment."""
    tokens = [f"data.train={pairs}", "data.source_tokens=char", "data.target_tokens=char"]
    model = ["model.width=16", "model.embed=8", "model.capacity=16"]
    plan = ["plan.steps=6", "plan.warmup=2", "plan.evaluate=3", "plan.log=2", "plan.threads=1", "plan.batch_tokens=512"]
    return [*tokens, *model, *plan]


@pytest.fixture(scope="session")
def trained(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `regard train translate` with these settings leaves; tests work on copies."""
    run = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "translate", *tiny, "--out", str(run)]) == 0
    return run
