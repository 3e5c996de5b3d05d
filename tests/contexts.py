"""Which tests run which lines of the package, and so which tests may notice a mutant.

`collect` runs the tests once with coverage. The module is also the plugin of pytest that then tells coverage which test
runs. Programs that a test starts count as this test.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edits import PACKAGE, ROOT, digest
from mutation import Mutant

STEP = re.compile(r"(.*) \((setup|call|teardown)\)", re.DOTALL)  # as in PYTEST_CURRENT_TEST
SETTINGS = """
[run]
source = {package}
data_file = {folder}/coverage
parallel = true
context = ${{PYTEST_CURRENT_TEST-}}
"""
# Python reads this module at its start, also in the programs that a test starts
AT_START = """
import coverage
coverage.process_startup()
"""


Lines = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Table:
    """Which test runs which lines."""

    seconds: dict[str, float] = field(default_factory=dict)  # of each test that passes
    failed: tuple[str, ...] = ()  # without any mutant
    ran: Lines = field(default_factory=dict)  # by file and test: the set of lines as the bits of a number
    shared: Lines = field(default_factory=dict)  # by file and test file: the lines that the set-up of its tests runs
    imported: dict[str, int] = field(default_factory=dict)  # by file: the lines that run outside of tests
    digest: str = ""  # of the package and the tests

    def tests(self, file: str, lines: range | None = None) -> set[str]:
        """The tests that run one of these lines of a file, or any line of it."""
        wanted = -1 if lines is None else sum(1 << line for line in lines)
        return {test for test, bits in self.ran.get(file, {}).items() if bits & wanted and test in self.seconds}

    def files(self, file: str, lines: range) -> set[str]:
        """The test files in which the set-up of a test runs one of these lines."""
        wanted = sum(1 << line for line in lines)
        return {name for name, bits in self.shared.get(file, {}).items() if bits & wanted}

    def at_import(self, file: str, lines: range) -> bool:
        """Whether one of these lines runs outside of tests."""
        return bool(self.imported.get(file, 0) & sum(1 << line for line in lines))

    def write(self, path: Path) -> None:
        """Store the table."""
        tests = {test: number for number, test in enumerate(self.seconds)}
        data = {
            "seconds": {test: round(seconds, 3) for test, seconds in self.seconds.items()},
            "failed": self.failed,
            "digest": self.digest,
            "ran": {
                file: {tests[test]: f"{bits:x}" for test, bits in rows.items() if test in tests}
                for file, rows in self.ran.items()
            },
            "shared": {file: {name: f"{bits:x}" for name, bits in rows.items()} for file, rows in self.shared.items()},
            "imported": {file: f"{bits:x}" for file, bits in self.imported.items()},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(data, file)

    @classmethod
    def read(cls, path: Path) -> Table:
        """Read a stored table."""
        with gzip.open(path, "rt", encoding="utf-8") as file:
            data = json.load(file)
        tests = list(data["seconds"])
        ran = {
            name: {tests[int(number)]: int(bits, 16) for number, bits in rows.items()}
            for name, rows in data["ran"].items()
        }
        shared = {name: {one: int(bits, 16) for one, bits in rows.items()} for name, rows in data["shared"].items()}
        imported = {name: int(bits, 16) for name, bits in data["imported"].items()}
        return cls(data["seconds"], tuple(data["failed"]), ran, shared, imported, data["digest"])


def collect(jobs: int, arguments: list[str]) -> Table:
    """Run the tests once, with coverage, in several processes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(AT_START)
        (folder / "settings").write_text(SETTINGS.format(package=PACKAGE, folder=folder))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [name, str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
            ).rstrip(os.pathsep),
            "COVERAGE_PROCESS_START": str(folder / "settings"),
            "COVERAGE_CORE": "ctrace",
            "REGARD_CACHE": str(folder / "cache"),
            "TIMES_OF_TESTS": name,
        }
        command = [sys.executable, "-m", "pytest", "-p", "contexts", "-p", "no:cacheprovider", "--ignore=tests/browser"]
        workers = ["-n", str(jobs), "--tb=no", "-o", "timeout=400"]
        done = subprocess.run([*command, *workers, *arguments], cwd=ROOT, env=environment, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"the tests cannot be run: pytest ends with {done.returncode}")
        return _table(folder)


def _table(folder: Path) -> Table:
    """The table of the data that the processes of a run left."""
    from coverage import CoverageData

    seconds: dict[str, float] = {}
    passed, failed = set[str](), set[str]()
    for path in folder.glob("times-*"):
        for text in path.read_text(encoding="utf-8").splitlines():
            test, step, outcome, time = json.loads(text)
            seconds[test] = seconds.get(test, 0.0) + time
            passed |= {test} if (step, outcome) == ("call", "passed") else set()
            failed |= {test} if outcome == "failed" else set()
    ran: Lines = defaultdict(lambda: defaultdict(int))
    shared: Lines = defaultdict(lambda: defaultdict(int))
    imported: dict[str, int] = defaultdict(int)
    for path in folder.glob("coverage.*"):
        data = CoverageData(str(path))
        data.read()
        for measured in data.measured_files():
            file = Path(measured).relative_to(PACKAGE).as_posix()
            for line, contexts in data.contexts_by_lineno(measured).items():
                for context in contexts:
                    step = STEP.fullmatch(context)
                    if step is None:
                        imported[file] |= 1 << line
                        continue
                    ran[file][step[1]] |= 1 << line
                    if step[2] == "setup":
                        shared[file][step[1].partition("::")[0]] |= 1 << line
    good = {test: time for test, time in sorted(seconds.items()) if test in passed - failed}
    return Table(good, tuple(sorted(failed)), ran, shared, imported, digest())


# -- the tests of a mutant

TESTS, SECONDS = 40, 60.0  # of the first look at a mutant
ALL_TESTS, ALL_SECONDS = 2000, 240.0  # of the second look, at a mutant that survived


@dataclass(frozen=True)
class Choice:
    """The tests of a mutant."""

    first: list[str]
    rest: list[str]  # for the second look
    covered: bool = True


def choose(mutant: Mutant, table: Table) -> Choice:
    """The tests that run the changed lines, then those of the same fixtures and of the file's own tests."""
    lines = mutant.lines
    own, files = table.tests(mutant.file, lines), table.files(mutant.file, lines)
    if not own and not files:
        lines = mutant.statement_lines
        own, files = table.tests(mutant.file, lines), table.files(mutant.file, lines)
    matching = {test for test in table.seconds if _matches(test.partition("::")[0], mutant.file)}
    if not mutant.function or table.at_import(mutant.file, lines):  # what an import makes, any test may use
        own |= table.tests(mutant.file) | matching
        own |= set() if own else {test for test in table.seconds if test.startswith(f"tests/{mutant.room}/")}
    sharing = {test for test in table.seconds if test.partition("::")[0] in files}
    covered = bool(own or sharing)
    if not covered:  # coverage does not see compiled code, and processes that are killed
        own |= table.tests(mutant.file, mutant.function_lines)
        if mutant.room == "kernels":  # nor Triton's interpreter, which is another process
            own |= {test for test in table.seconds if test.startswith("tests/kernels/")}
    near = matching | sharing
    first = in_turn(own, table.seconds, TESTS, SECONDS)
    first |= in_turn(near - own, table.seconds, TESTS, SECONDS)
    rest = in_turn(own - first, table.seconds, ALL_TESTS, ALL_SECONDS)
    return Choice(by_file(first, table.seconds), by_file(rest, table.seconds) if covered else [], covered)


def _matches(test: str, file: str) -> bool:
    """Whether a test file has the name of a file of the package: cli/test_cli_train.py that of cli/train.py."""
    path, tested = Path(file), Path(test)
    stem = path.parent.name if path.stem == "__init__" else path.stem
    name = tested.stem.removeprefix("test_").removeprefix(f"{path.parent.name}_")
    room = tested.parent.name in (path.parent.name, "tests")
    return room and (name == stem or name.startswith(f"{stem}_"))


def in_turn(tests: Iterable[str], seconds: dict[str, float], most: int, budget: float) -> set[str]:
    """Some of the tests: the fastest of each file, then the next of each file, until there are enough."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda one: (seconds[one], one)):
        files[test.partition("::")[0]].append(test)
    ranked = sorted((place, seconds[test], test) for ones in files.values() for place, test in enumerate(ones))
    chosen: set[str] = set()
    for _, time_of, test in ranked[:most]:
        if time_of <= budget or not chosen:
            chosen.add(test)
            budget -= time_of
    return chosen


def by_file(tests: Iterable[str], seconds: dict[str, float]) -> list[str]:
    """The tests in the order of their files, so that a fixture of a file is made once: the fastest file first."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda one: (seconds[one], one)):
        files[test.partition("::")[0]].append(test)
    return [
        one
        for _, ones in sorted((sum(map(seconds.__getitem__, ones)), ones) for ones in files.values())
        for one in ones
    ]


# -- the plugin, in each process that runs tests


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """What a fixture of several tests runs counts for all tests of the file."""
    _now(f"{item.nodeid} (setup)")
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What the test itself runs."""
    _now(f"{item.nodeid} (call)")
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """What runs after it counts for no test."""
    _now("")
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a step took; with several processes, in the process that ran it."""
    if "PYTEST_XDIST_WORKER" in os.environ and not report.skipped:
        path = Path(os.environ["TIMES_OF_TESTS"], f"times-{os.getpid()}")
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.when, report.outcome, report.duration]) + "\n")


def pytest_sessionfinish() -> None:
    """Store the lines: a process of several may be ended without its last words."""
    from coverage import Coverage

    if current := Coverage.current():
        current.switch_context("")
        current.save()


def _now(context: str) -> None:
    from coverage import Coverage

    if current := Coverage.current():
        current.switch_context(context)
