"""Try a mutant: run tests of a copy of the package with one changed file, in a process that is forked and can be ended.

The process that forks has imported torch, so a trial costs a second and not five. Nothing is written into the working
tree.
"""

from __future__ import annotations

import compileall
import contextlib
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edits import PACKAGE, ROOT

# What tests import, but none of the package, whose copy each trial imports
BEFORE = (
    "numpy",
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "torch.utils.checkpoint",
    "pytest",
    "hypothesis",
    "rich.console",
    "typer.testing",
    "safetensors.torch",
    "tokenizers",
    "sacrebleu",
    "regex",
    "transformers",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.t5.modeling_t5",
    "PIL.Image",
    "sentencepiece",
    "torchmetrics",
)
MEMORY, FILE = 12 << 30, 1 << 30  # of one process: a mutant may ask for all there is
LEAST_SECONDS = 20.0  # for one test, and to begin


@dataclass(frozen=True)
class Result:
    """What the tests said."""

    code: int  # of pytest; -1 if the time was over
    test: str = ""  # the first that failed
    message: str = ""
    ran: int = 0

    @property
    def failed(self) -> bool:
        """Whether something noticed the change: a test, an import, or the clock."""
        return self.code not in (0, 5)


def prepare() -> None:
    """Import what all trials need. After this, processes can be forked."""
    os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}, CUDA_VISIBLE_DEVICES="")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    for name in BEFORE:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # tests that need it are skipped
    gc.freeze()  # pages that the collector does not touch stay shared


class Copy:
    """A copy of the package in which one file at a time is changed."""

    def __init__(self, folder: Path, like: Copy | None = None) -> None:
        self.folder = folder
        if like is None:
            shutil.copytree(PACKAGE, folder / "src/regard", ignore=shutil.ignore_patterns("__pycache__"))
            compileall.compile_dir(folder / "src/regard", quiet=1)
        else:
            shutil.copytree(like.folder / "src/regard", folder / "src/regard")
        (folder / "docs").symlink_to(ROOT / "docs")

    def write(self, file: str, text: str) -> None:
        """Change a file. Its time changes too, so that no compiled module of another text is read."""
        path = self.folder / "src/regard" / file
        path.write_text(text, encoding="utf-8")
        os.utime(path, (time.time() + 100, time.time() + 100))

    def restore(self, file: str) -> None:
        """Undo the change."""
        shutil.copy2(PACKAGE / file, self.folder / "src/regard" / file)

    def run(self, tests: Sequence[str], seconds: float, slowest: float) -> Result:
        """Run tests until one fails, with a limit for all and, from the time of the slowest, a limit for each."""
        work = self.folder / "work"
        work.mkdir()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            try:
                _be_alone(work, self.folder / "src")
                _run_tests(tests, work, max(LEAST_SECONDS, 5 * slowest))
            finally:
                os._exit(70)
        try:
            in_time = _wait(child, seconds)
            report = work / "report.json"
            found = Result(**json.loads(report.read_text())) if report.is_file() else Result(70, "the tests end")
            return found if in_time or (found.failed and report.is_file()) else Result(-1, "the time is over")
        finally:
            _end(child)
            shutil.rmtree(work, ignore_errors=True)


def _be_alone(work: Path, source: Path) -> None:
    """Leave the terminal, and the folders and the network of the user."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log = os.open(work / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in ("temporary", "cache", "hypothesis"):
        (work / name).mkdir()
    nowhere = {f"{one}_proxy": "http://127.0.0.1:9" for one in ("http", "https", "all", "HTTP", "HTTPS", "ALL")}
    os.environ.update(
        nowhere,
        no_proxy="127.0.0.1,localhost",
        TMPDIR=str(work / "temporary"),
        REGARD_CACHE=str(work / "cache"),
        HYPOTHESIS_STORAGE_DIRECTORY=str(work / "hypothesis"),
        TORCHINDUCTOR_CACHE_DIR=str(work.parent.parent / "inductor"),
        PYTHONPATH=os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    sys.path[:0] = [str(source)]
    sys.argv = ["pytest"]
    sys.dont_write_bytecode = True
    os.chdir(ROOT)


def _run_tests(tests: Sequence[str], work: Path, seconds: float) -> None:
    """Run tests in this process, and leave a report of them."""
    import pytest

    watcher = Watcher(tests, work / "report.json")
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    settings = ["-x", "-q", "--tb=line", "--no-header", "-o", "addopts=", f"--timeout={seconds:.0f}"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={work / 'tests'}", "--hypothesis-seed=0"]
    code = int(pytest.main([*settings, *plugins, *files], plugins=[watcher]))
    watcher.write(code)
    sys.stdout.flush()
    os._exit(0)


class Watcher:
    """A plugin of pytest that runs the chosen tests in their order, and knows which failed."""

    def __init__(self, tests: Sequence[str], report: Path) -> None:
        self.places = {test: place for place, test in enumerate(tests)}
        self.report = report
        self.test = self.message = ""
        self.ran = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep what was chosen: tests, or whole files. A test that is not there any more does not count."""
        places = {one: self.places.get(one.nodeid, self.places.get(one.nodeid.partition("::")[0])) for one in items}
        items[:] = sorted((one for one in items if places[one] is not None), key=places.__getitem__)

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be imported."""
        self._failed(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test that failed."""
        self.ran += report.when == "call"
        self._failed(report)

    def _failed(self, report: Any) -> None:
        if report.failed and not self.test:
            lines = str(report.longrepr).strip().splitlines() or [""]
            errors = [line[1:].strip() for line in lines if line.startswith("E ")]
            self.test, self.message = report.nodeid, (errors or lines[-1:])[0][:200]
            self.write(1)  # what follows, such as the ends of fixtures, may hang

    def write(self, code: int) -> None:
        """Store what is known."""
        text = json.dumps({"code": code, "test": self.test, "message": self.message, "ran": self.ran})
        self.report.with_suffix(".new").write_text(text)
        self.report.with_suffix(".new").replace(self.report)


def _wait(child: int, seconds: float) -> bool:
    """Wait for a process; False if it takes longer."""
    until = time.monotonic() + seconds
    pause = 0.01
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)
    return False


def _end(child: int) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
