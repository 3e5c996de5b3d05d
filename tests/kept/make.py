"""Write the kept runs of the present format into `tests/kept/format-N/`, with the answers that they give now.

    PYTHONPATH=src:tests python -m kept.make --out /tmp/kept/format-N    those that every format has, into a new folder
    PYTHONPATH=src:tests python -m kept.make --out DIR NAME …            others, to try

Without --out the folder is made in its place. A run stores where its files were: a place that says nothing is better.

See README.md beside this file: what is kept is never written again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kept.answers import among, answers, climbed, resumed, shortened
from kept.cases import AGAIN, CASES, LADDERS, Case, Ladder, files
from kept.own_parts import MINE
from regard import Run
from regard.checkpoint import FORMAT
from regard.recipes import KINDS, change, find_recipe, with_kinds
from regard.stored import stored
from regard.training.events import Progress, Saved
from regard.training.extractor import started
from tiny_public import bert

HERE = Path(__file__).parent


def make(out: Path, names: Sequence[str]) -> None:
    """Write the data, and the runs and ladders of these names, each with its expected answers."""
    (out / "expected").mkdir(parents=True)
    for name, content in files().items():
        path = out / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    with among(out):
        for name in names:
            began = time.perf_counter()
            if name in CASES:
                make_run(name, CASES[name])
                write_expected(name, CASES[name])
            else:
                make_ladder(name, LADDERS[name])
            print(f"{name:<20} {time.perf_counter() - began:5.1f} s", flush=True)
        Path("stored").mkdir()
        for name in names:
            pack(Path("runs" if name in CASES else "ladders") / name, Path("stored") / f"{name}.zip")
        for left in ("runs", "ladders", "public"):
            shutil.rmtree(left, ignore_errors=True)


def make_run(name: str, case: Case) -> None:
    """Train a run to the step at which it is stopped, and the run that it starts from before it."""
    if Path("runs", name).exists():
        return
    if (start := case.start.removeprefix("runs/")) in CASES:
        make_run(start, CASES[start])
    run, settings, kinds = Path("runs") / name, case.settings.split(), with_kinds(MINE) if case.own else KINDS
    if case.start:
        if case.start in PUBLIC and not Path(case.start).exists():
            PUBLIC[case.start](Path(case.start))
        recipe, init = started(case.recipe, settings, case.start, kinds)
    else:
        recipe, init = change(find_recipe(case.recipe, kinds), settings, kinds), None
    train_until(Run(recipe, run, init=init, kinds=kinds), lambda event: _stops(event, case))


# Directories of public checkpoints to start from. They are not kept: a run needs its start no more.
PUBLIC: dict[str, Callable[[Path], object]] = {
    "public/bert": lambda path: bert(
        path, hidden_size=8, num_hidden_layers=1, intermediate_size=8, max_position_embeddings=24
    ),
}


def train_until(run: Run, stops: Callable[[Any], bool]) -> None:
    """Train a run until an event."""
    events = iter(run)
    for event in events:
        if stops(event):
            events.close()  # type: ignore[attr-defined]
            break
    else:
        raise AssertionError(f"{run.out}: the run ended before it was stopped")


def _stops(event: Any, case: Case) -> bool:
    """Whether a run is stopped at this event: when the step is saved, or between two evaluations."""
    if isinstance(event, Saved):
        in_stage = ("tuned" in event.path.parts) == bool(case.stage)
        return event.step == case.stop and in_stage
    return isinstance(event, Progress) and event.step == case.stop == 5


def write_expected(name: str, case: Case) -> None:
    """Write what the run answers, and what a resumed copy of it becomes."""
    kinds, run, question = MINE if case.own else None, Path("runs") / name, case.question
    asked = {"verb": question.verb, "given": question.given, "targets": question.targets}
    said = answers(run, question.verb, question.given, question.targets, kinds)
    found = {"own": case.own, **asked, "answers": said}
    if case.resumes:
        copy = Path("copy") / name
        shutil.copytree(run, copy)
        found["resumed"] = resumed(copy, kinds)
        shutil.rmtree("copy")
    write(name, found)


def make_ladder(name: str, ladder: Ladder) -> None:
    """Train every cell of a ladder, then one of them again, only to the step at which it is stopped."""
    place = Path("ladders") / name
    whole = climbed(ladder.command, place)
    half = place / ladder.half
    recipe = stored(half).asked
    half.with_suffix(".json").unlink()
    for path in (half, *half.parent.glob("probe-*")):
        shutil.rmtree(path)
    train_until(Run(recipe, half), lambda event: isinstance(event, Progress) and event.step == 2)
    for left in ("ladder.json", "ladder.html"):
        (place / left).unlink()
    write(name, {"command": ladder.command, "half": ladder.half, "cells": whole})


def pack(folder: Path, out: Path) -> None:
    """Put the files of a run, or of a ladder, into one file."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != ".lock":
                packed.writestr(zipfile.ZipInfo(path.as_posix()), path.read_bytes(), zipfile.ZIP_DEFLATED, 9)


def write(name: str, expected: dict[str, Any]) -> None:
    """Write the expected values of a run or a ladder: a line for each answer, so that it can be read."""

    def lines(value: Any, depth: int) -> str:
        if not depth or not isinstance(value, dict) or not value:
            return json.dumps(value, ensure_ascii=False)
        parts = (f"{json.dumps(key)}: {lines(each, depth - 1)}" for key, each in value.items())
        return "{\n" + ",\n".join(parts) + "\n}"

    path = Path("expected") / f"{name}.json"
    path.write_text(lines(shortened(expected), 3) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / f"format-{FORMAT}")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.out.exists():
        sys.exit(f"{options.out}: is there already, and what is kept is never written again")
    torch.set_num_threads(1)
    make(options.out, options.names or AGAIN)


if __name__ == "__main__":
    main()
