"""Mutants of a small file, the sample of them, the tests that try them, and one that is really tried."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from contexts import Table, by_file, choose, in_turn
from edits import ROOT, Sources
from mutant_table import recorded, summary
from mutants import Results, counted
from mutation import Mutant, allocate, mutants, sample

CODE = '''"""A module."""

from typing import TYPE_CHECKING

if TYPE_CHECKING and True:
    from os import PathLike

LIMIT = -1


@cached(size=1 + 2)
class Reader:
    """Reads."""

    size: int = 1 + 1

    def __init__(self, size: int = 2 * 3) -> None:
        self.size = size
        self.rows[0] = -size
        local = size

    def __repr__(self) -> str:
        return "a" if self.size < 3 else "b"

    def read(self, lines: list[str]) -> str | None:
        """Reads lines."""
        if not lines:
            raise ValueError(f"{len(lines) + 1}" if lines == [] else "")
        for line in lines:
            if line in self.seen and len(line) <= 3 < 4:
                break
        total = sum(len(one) % 2 for one in lines if one.strip())
        total += 1
        name = "a" + lines[0]
        assert total == 3
        return lines[0] if total else None
'''


def found(tmp_path: Path, code: str, file: str = "data/files.py") -> list[Mutant]:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return mutants(Sources(tmp_path))


def test_the_mutants_of_a_file(tmp_path: Path) -> None:
    every = [(one.function, one.operator, one.old, one.new) for one in found(tmp_path, CODE)]
    first, read = "Reader.__init__", "Reader.read"
    assert every == [
        (first, "statement removed", "self.size = size", ""),
        (first, "statement removed", "self.rows[0] = -size", ""),
        (first, "minus removed", "-size", "size"),
        (read, "not removed", "not lines", "lines"),
        (
            read,
            "condition negated",
            "line in self.seen and len(line) <= 3 < 4",
            "not (line in self.seen and len(line) <= 3 < 4)",
        ),
        (
            read,
            "and, or swapped",
            "line in self.seen and len(line) <= 3 < 4",
            "line in self.seen or len(line) <= 3 < 4",
        ),
        (read, "comparison swapped", "line in self.seen", "line not in self.seen"),
        (read, "comparison swapped", "len(line) <= 3 < 4", "len(line) < 3 < 4"),
        (read, "comparison swapped", "len(line) <= 3 < 4", "len(line) <= 3 <= 4"),
        (read, "break and continue swapped", "break", "continue"),
        (read, "arithmetic swapped", "len(one) % 2", "len(one) * 2"),
        (read, "condition negated", "one.strip()", "not one.strip()"),
        (read, "arithmetic swapped", "total += 1", "total -= 1"),
        (read, "None returned", "return lines[0] if total else None", "return None"),
        (read, "condition negated", "total", "not total"),
    ]


@pytest.mark.parametrize(
    ("code", "operator", "old", "new"),
    [
        ("f(1, a=2, **b)", "argument removed", "f(1, a=2, **b)", "f(1, **b)"),
        ("f(1, a=2, **b)", "statement removed", "f(1, a=2, **b)", ""),
        ("while a < b: c = 1", "condition negated", "a < b", "not a < b"),
        ("a = b if c else d", "condition negated", "c", "not c"),
        ("a.b -= c", "statement removed", "a.b -= c", ""),
        ("x = lambda y: y // 2", "arithmetic swapped", "y // 2", "y * 2"),
        ("with a(b=1): c = 1", "argument removed", "a(b=1)", "a()"),
        ("try:\n    a()\nexcept E:\n    b()", "statement removed", "b()", ""),
        ("match a:\n    case 1 if b is c:\n        pass", "comparison swapped", "b is c", "b is not c"),
    ],
)
def test_each_operator(tmp_path: Path, code: str, operator: str, old: str, new: str) -> None:
    one = next(each for each in found(tmp_path, code) if (each.operator, each.old) == (operator, old))
    assert one.new == new
    assert ast.dump(ast.parse(one.text)) != ast.dump(ast.parse(code))


def test_a_sample_has_mutants_of_each_room_and_stays_when_code_moves(tmp_path: Path) -> None:
    code = "def f(a, b):\n    return a" + "".join(f" + b[{n}]" for n in range(40)) + "\n"
    found(tmp_path, code)
    every = found(tmp_path, "def g(a):\n    return a + 1 - 2 * 3\n", "mask.py")
    chosen = sample(every, 20, 0)
    assert Counter(one.room for one in chosen) == {"data": 17, "mask": 3}
    assert chosen == sample(every, 20, 0) != sample(every, 20, 1)
    (tmp_path / "data" / "files.py").rename(tmp_path / "data" / "rows.py")
    moved = sample(mutants(Sources(tmp_path)), 20, 0)
    assert {one.key for one in moved} == {one.key for one in chosen}


def test_the_shares_of_rooms() -> None:
    assert allocate({"a": 1000, "b": 2, "c": 100}, 50) == {"a": 44, "b": 2, "c": 4}
    assert allocate({"a": 900, "b": 100}, 5) == {"a": 5, "b": 0}
    assert allocate({"a": 2, "b": 3}, 400) == {"a": 2, "b": 3}


def table() -> Table:
    """Lines 16 to 18 run in two tests, line 16 also in a fixture; line 5 at an import."""
    seconds = {"tests/data/test_files.py::a": 1.0, "tests/data/test_files.py::b": 2.0}
    seconds |= {"tests/cli/test_cli.py::c": 0.1, "tests/cli/test_cli.py::d": 30.0, "tests/cli/test_cli.py::e": 0.2}
    lines = dict.fromkeys(("tests/data/test_files.py::b", "tests/cli/test_cli.py::d"), 7 << 16)
    return Table(
        seconds,
        (),
        {"data/files.py": lines},
        {"data/files.py": {"tests/cli/test_cli.py": 1 << 16}},
        {"data/files.py": 1 << 5},
    )


def test_the_tests_of_a_mutant(tmp_path: Path) -> None:
    by_line = {one.lines[0]: one for one in found(tmp_path, CODE)}
    chosen = choose(by_line[18], table())  # tests that run the line, and those of the file's own tests
    assert chosen.first == [
        f"tests/{name}" for name in ("data/test_files.py::a", "data/test_files.py::b", "cli/test_cli.py::d")
    ]
    none = choose(by_line[27], table())
    assert (none.covered, none.rest) == (False, [])
    assert none.first == [f"tests/{name}" for name in ("data/test_files.py::a", "data/test_files.py::b")]
    shared = Table(table().seconds, (), {}, {"data/files.py": {"tests/cli/test_cli.py": 1 << 27}}, {})
    assert choose(by_line[27], shared).first[2:] == [f"tests/cli/test_cli.py::{name}" for name in "ced"]


def test_kernels_that_coverage_does_not_see_are_tried_with_the_tests_of_kernels(tmp_path: Path) -> None:
    one = found(tmp_path, "def f(a):\n    return a + 1\n", "kernels/tiles.py")[0]
    seconds = {"tests/kernels/test_step.py::a": 1.0, "tests/cli/test_cli.py::c": 0.1}
    assert choose(one, Table(seconds)).first == ["tests/kernels/test_step.py::a"]


def test_kernels_count_where_triton_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, noticed in ((True, 5), (False, 3)):
        monkeypatch.setattr("mutants.TRITON", there)
        assert counted({"data": (3, 4), "kernels": (2, 9)}) == noticed


def test_the_fastest_test_of_each_file_comes_first() -> None:
    seconds = {"a::1": 1.0, "a::2": 2.0, "b::1": 5.0, "b::2": 6.0, "c::1": 50.0}
    assert in_turn(seconds, seconds, 3, 60.0) == {"a::1", "b::1", "c::1"}
    assert in_turn(seconds, seconds, 9, 20.0) == {"a::1", "b::1", "a::2", "b::2"}
    assert by_file(["b::2", "c::1", "b::1", "a::2"], seconds) == ["a::2", "b::1", "b::2", "c::1"]


def test_results_go_on_with_the_same_code_and_start_anew_with_other_code(tmp_path: Path) -> None:
    path, header = tmp_path / "out.jsonl", {"digest": "one"}
    results = Results(path, header)
    for key, outcome in (("a", "noticed"), ("b", "survived"), ("b", "noticed"), ("c", "survived")):
        results.add({"id": key, "outcome": outcome, "room": "data"})
    go_on = Results(path, header).records
    assert {key: one["outcome"] for key, one in go_on.items()} == {"a": "noticed", "b": "noticed", "c": "survived"}
    assert list(Results(path, {"digest": "two"}, again={"a", "b", "c"}).records) == ["a", "b"]
    assert list(Results(path, {"digest": "two"}, again={"b", "d"}).records) == ["b"]
    assert Results(path, header).records == {}
    assert path.with_suffix(".old").is_file()


def test_rates_and_verdicts_are_recorded() -> None:
    record = {"room": "data", "file": "data/a.py", "line": 3, "function": "f", "operator": "", "old": "", "new": ""}
    records = [{**record, "id": str(n), "outcome": out} for n, out in enumerate(["noticed", "timeout", "survived"])]
    assert summary(records) == {"data": (2, 3)}
    data = recorded({"date": "", "seed": 0, "sample": 3, "with": ""}, records)
    assert (data["noticed"], data["rooms"]) == (2, {"data": (2, 3)})
    assert [one["verdict"] for one in data["survivors"]] == [""]  # type: ignore[index, attr-defined]


@pytest.mark.slow
def test_a_mutant_is_tried_in_a_copy() -> None:
    """A swapped comparison fails its own tests, and passes those of another module."""
    one = next(each for each in mutants(Sources()) if (each.file, each.operator) == ("alignment.py", "None returned"))
    said = {}
    for test in ("test_alignment.py", "test_entities.py"):
        command = [sys.executable, str(ROOT / "tests/mutants.py"), "--try", one.key, "--tests", test]
        said[test] = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.match(r"noticed +alignment.py", said["test_alignment.py"])
    assert re.match(r"survived +alignment.py", said["test_entities.py"])
    assert "tests/test_alignment.py::" in said["test_alignment.py"]
