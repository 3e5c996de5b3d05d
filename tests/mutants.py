"""Mutants of the package: a sample of small random changes, and how many of them a test notices.

    python tests/mutants.py [--sample 400] [--seed 0] [--jobs N] [--only ROOM] [--coverage FILE] [--out FILE]

The tests run once with coverage, which says which tests run which line. Then each mutant is put into a copy of the
package, and tests of the changed line run: the fastest of each file first, and the others too if a mutant survives.
A mutant is noticed if a test fails that passes without it, or does not end. What no test runs counts as not noticed.

The results are lines of JSON. Ctrl-C keeps them, and the same command goes on where it stopped, as long as the code and
the tests stay the same. `--again` tries only the mutants that were not noticed, such as after new tests.

    python tests/mutants.py --record        write the results into tests/mutants.json and docs/mutants.md
    python tests/mutants.py --try ID --tests data/test_conll.py     one mutant, with tests of your choice

tests/mutants.json has the rate to keep, and a verdict on each mutant that survived: fill in those that are empty. The
exit status is 1 if the rate of the whole sample is lower than that. The programs of kernels run in the interpreter of
Triton (pip install triton); where that is missing, the kernels do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from contexts import Table, choose, collect
from edits import ROOT, Sources, digest
from mutant_table import NOTICED, Record, committed, record, show, summary
from mutation import Mutant, mutants, sample
from trials import Copy, Result, prepare

TRITON = find_spec("triton") is not None
OUT, COVERAGE = ROOT / "build/mutants.jsonl", ROOT / "build/mutants-coverage.json.gz"


# -- one mutant


def verdict_of(mutant: Mutant, tests: list[str], table: Table, copy: Copy) -> tuple[str, Result]:
    """Run tests of a mutant: its outcome. A test that also fails without the mutant notices nothing."""
    tests = list(tests)
    while True:
        copy.write(mutant.file, mutant.text)
        found = _run(copy, tests, table)
        copy.restore(mutant.file)
        if not found.failed:
            return "survived", found
        same = [found.test] if found.test in tests else [one for one in tests if one.startswith(found.test + "::")][:1]
        if not _run(copy, same or tests, table).failed:
            return ("timeout" if found.code < 0 else "noticed"), found
        tests = [one for one in tests if one not in (same or tests)]
        if not tests:
            return "survived", Result(0, "", "its tests fail without it", found.ran)


def _run(copy: Copy, tests: list[str], table: Table) -> Result:
    times = [table.seconds.get(test, 60.0) for test in tests]  # a file with no table
    return copy.run(tests, 60 + 3 * sum(times), max(times, default=0.0))


def record_of(mutant: Mutant, outcome: str, found: Result, left: int, seconds: float) -> Record:
    """What is stored of a mutant."""
    return {
        "id": mutant.key,
        "room": mutant.room,
        "file": mutant.file,
        "line": mutant.lines[0],
        "function": mutant.function,
        "operator": mutant.operator,
        "old": mutant.old,
        "new": mutant.new,
        "outcome": outcome,
        "test": found.test or ("" if outcome != "noticed" else "the import of the package"),
        "message": found.message,
        "ran": found.ran,
        "left": left,  # tests for a second look
        "seconds": round(seconds, 1),
    }


# -- all of them


class Results:
    """The results so far, in a file of JSON lines; the last line of a mutant counts.

    `again`: a sample. What of it was noticed stays, also if the code or the tests have changed.
    """

    def __init__(self, path: Path, header: Record, *, again: Collection[str] | None = None) -> None:
        self.path, self.records = path, dict[str, Record]()
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if lines and (again is not None or json.loads(lines[0])["digest"] == header["digest"]):
            for line in lines[1:]:
                record = json.loads(line)
                self.records[record["id"]] = record
        elif lines:
            path.replace(path.with_suffix(".old"))
            print(f"the code or the tests changed: starts anew ({path.with_suffix('.old')} has the former results)")
        if again is not None:
            noticed = {key: one for key, one in self.records.items() if one["outcome"] in NOTICED}
            self.records = {key: one for key, one in noticed.items() if key in again}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for each in (header, *self.records.values()):
                file.write(json.dumps(each, ensure_ascii=False) + "\n")

    def add(self, record: Record) -> None:
        """Store a result."""
        self.records[str(record["id"])] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


Look = tuple[Mutant, list[str], int, bool]  # tests to run, how many are left for a second look, whether any is known


class Trials:
    """Tries mutants side by side, each in a process of its own."""

    def __init__(self, table: Table, results: Results, jobs: int, seconds: float, folder: Path) -> None:
        self.table, self.results, self.jobs = table, results, jobs
        self.until = time.monotonic() + seconds
        self.folder = folder
        first = Copy(folder / "0")
        self.free = [first, *(Copy(folder / str(number), first) for number in range(1, jobs))]
        self.running: dict[int, tuple[Mutant, Copy]] = {}

    def all(self, chosen: Sequence[Mutant]) -> None:
        """Try the mutants that have no result, then those again that survived the first look."""
        first, second = list[Look](), list[Look]()
        for mutant in chosen:
            tests, done = choose(mutant, self.table), self.results.records.get(mutant.key)
            if done is None and not tests.first:
                self.results.add(record_of(mutant, "not covered", Result(0), 0, 0.0))
            elif done is None:
                first.append((mutant, tests.first, len(tests.rest), tests.covered))
            if tests.rest and (done is None or done["left"]):
                second.append((mutant, tests.rest, 0, True))
        for queue in (first, second):  # the quick ones first: more of them are done if time is short
            self._queue(deque(sorted(queue, key=lambda one: self._seconds(one[1]))), len(chosen))

    def _seconds(self, tests: list[str]) -> float:
        return sum(self.table.seconds[test] for test in tests)

    def _queue(self, queue: deque[Look], size: int) -> None:
        while (queue or self.running) and time.monotonic() < self.until:
            while queue and self.free:
                mutant, tests, left, covered = queue.popleft()
                done = self.results.records.get(mutant.key)
                if done is None or done["outcome"] == "survived":
                    self._start(mutant, tests, left, covered)
            self._collect()
            _progress(self.results.records.values(), size)

    def _start(self, mutant: Mutant, tests: list[str], left: int, covered: bool) -> None:
        copy = self.free.pop()
        sys.stdout.flush()
        child = os.fork()
        if child:
            self.running[child] = mutant, copy
            return
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it started, too
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            begin = time.monotonic()
            outcome, found = verdict_of(mutant, tests, self.table, copy)
            outcome = "not covered" if outcome == "survived" and not covered else outcome
            record = record_of(mutant, outcome, found, left, time.monotonic() - begin)
            (copy.folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
        finally:
            os._exit(0)

    def _collect(self) -> None:
        time.sleep(0.05)
        for child in list(self.running):
            if os.waitpid(child, os.WNOHANG)[0]:
                _, copy = self.running.pop(child)
                self.free.append(copy)
                path = copy.folder / "record.json"
                if path.is_file():
                    self.results.add(json.loads(path.read_text(encoding="utf-8")))
                    path.unlink()

    def stop(self) -> None:
        """End what runs."""
        for child in self.running:
            os.kill(child, signal.SIGTERM)
        for child in self.running:
            os.waitpid(child, 0)
        self.running.clear()


def _progress(records: Iterable[Record], size: int, shown: list[int] = [-1]) -> None:  # noqa: B006
    counts = Counter(str(one["outcome"]) for one in records)
    done = sum(counts.values())
    if done == shown[0] or (done % 20 and done < size and not sys.stderr.isatty()):
        return
    shown[0] = done
    text = f"{done} of {size}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(
        f"\r{text}  " if sys.stderr.isatty() else text,
        end="" if sys.stderr.isatty() else "\n",
        file=sys.stderr,
        flush=True,
    )


# -- the command


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=400, metavar="N", help="mutants of all rooms (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which mutants (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="side by side (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="ROOM", help="those of the sample in these rooms, such as data")
    parser.add_argument("--try", nargs="+", metavar="ID", dest="ids", help="those with these ids, in the sample or not")
    parser.add_argument(
        "--tests", nargs="+", metavar="TEST", help="tests to run, in tests, in place of those of coverage"
    )
    parser.add_argument("--coverage", type=Path, default=COVERAGE, metavar="FILE", help="collected if not there")
    parser.add_argument("--collect", nargs="*", metavar="TEST", help="only collect coverage, of all tests or of these")
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="FILE", help="results, and where to go on (%(default)s)"
    )
    parser.add_argument("--again", action="store_true", help="try again what was not noticed")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="stop after this time")
    parser.add_argument("--record", action="store_true", help="write results that are there into the table")
    return parser.parse_args(arguments)


def main() -> int:
    """Try the mutants, and print a table."""
    given, begin = parse(), time.monotonic()
    if given.record:
        return record(given.out)
    table = Table() if given.tests else covered(given)
    if given.collect is not None:
        return 0
    every = mutants(Sources())
    chosen = sampled = sample(every, given.sample, given.seed)
    if given.ids:
        chosen = [one for one in every if one.key in given.ids]
    if given.only:
        chosen = [one for one in chosen if one.room in given.only]
    if not chosen:
        raise SystemExit("there is no such mutant")
    prepare()
    if given.tests:
        return try_with(chosen, given.tests)
    results = Results(given.out, header_of(given), again={one.key for one in sampled} if given.again else None)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trials = Trials(table, results, given.jobs, given.seconds - (time.monotonic() - begin), Path(folder))
        try:
            trials.all(chosen)
        except KeyboardInterrupt:
            print("\nstopped")
        finally:
            trials.stop()
    done = [results.records[one.key] for one in chosen if one.key in results.records]
    show(done)
    if len(done) < len(chosen):
        print(f"{len(chosen) - len(done)} are left: the same command goes on")
    whole = len(done) == given.sample and not (given.ids or given.only)
    kept = committed()
    noticed, before = counted(summary(done)), counted(kept["rooms"])
    if whole and (given.seed, given.sample) == (kept["seed"], kept["sample"]) and noticed < before:
        print(f"{before} were noticed before: new code needs tests")
        return 1
    return 0


def counted(rooms: Mapping[str, Sequence[int]]) -> int:
    """How many mutants were noticed; those of kernels need Triton."""
    return sum(some for room, (some, _) in rooms.items() if TRITON or room != "kernels")


def covered(given: argparse.Namespace) -> Table:
    """Which tests run which lines: from the file if it is of this code, else from a run of the tests."""
    if given.collect is None and given.coverage.is_file():
        table = Table.read(given.coverage)
        if table.digest == digest():
            return table
        print(f"{given.coverage} is of other code or tests: it is collected again")
    table = collect(given.jobs, [f"tests/{test}" for test in given.collect or ()])
    table.write(given.coverage)
    print(
        f"{len(table.seconds)} tests pass; {len(table.failed)} fail, and count for nothing", *table.failed, sep="\n  "
    )
    return table


def header_of(given: argparse.Namespace) -> Record:
    """What results begin with."""
    import torch

    versions = f"Python {sys.version_info[0]}.{sys.version_info[1]}, torch {torch.__version__}"
    versions += f", triton {version('triton')}" if TRITON else ""
    return {
        "digest": digest(),
        "seed": given.seed,
        "sample": given.sample,
        "date": str(date.today()),
        "with": versions,
    }


def try_with(chosen: Sequence[Mutant], tests: Sequence[str]) -> int:
    """Try mutants with tests that are named, whole files too."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy = Copy(Path(name) / "0")
        for mutant in chosen:
            outcome, found = verdict_of(mutant, [f"tests/{test}" for test in tests], Table(), copy)
            print(f"{outcome:12} {mutant.file} {mutant.function}: {mutant.operator}: {mutant.old} → {mutant.new}")
            print(f"             {found.test or f'{found.ran} tests pass'}  {found.message}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
