"""The table of mutants: tests/mutants.json has what is to be kept, and the verdicts; docs/mutants.md shows them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edits import ROOT

COMMITTED = ROOT / "tests/mutants.json"
PAGE = ROOT / "docs/mutants.md"
NOTICED = ("noticed", "timeout")
Record = dict[str, Any]  # of a mutant, or of all of them
NOTHING: Record = {"seed": 0, "sample": 0, "noticed": 0, "rooms": {}, "survivors": []}


def summary(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """By room: how many mutants were noticed, and how many there are."""
    rooms: dict[str, tuple[int, int]] = {}
    for one in sorted(records, key=lambda record: record["room"]):
        noticed, tried = rooms.get(one["room"], (0, 0))
        rooms[one["room"]] = noticed + (one["outcome"] in NOTICED), tried + 1
    return rooms


def committed() -> Record:
    """How many are noticed, which may not become fewer, and the verdicts on the others."""
    return json.loads(COMMITTED.read_text(encoding="utf-8")) if COMMITTED.is_file() else NOTHING


def recorded(header: Record, records: Sequence[Record]) -> Record:
    """What tests/mutants.json is with these results: verdicts of before stay."""
    before = {one["id"]: one for one in committed()["survivors"]}
    rooms = summary(records)
    survivors = [
        {
            **{name: one[name] for name in ("id", "file", "function", "operator", "old", "new", "outcome")},
            **{name: before.get(one["id"], {}).get(name, "") for name in ("verdict", "why")},
        }
        for one in sorted(records, key=lambda record: (record["file"], record["line"]))
        if one["outcome"] not in NOTICED
    ]
    kept = {name: header[name] for name in ("date", "seed", "sample", "with")}
    return {**kept, "noticed": sum(one for one, _ in rooms.values()), "rooms": rooms, "survivors": survivors}


def page(data: Record) -> str:
    """docs/mutants.md."""
    rooms, survivors = data["rooms"], data["survivors"]
    noticed, tried = (sum(column) for column in zip(*rooms.values()))
    verdicts = Counter(one["verdict"] for one in survivors)
    lines = [
        "# Mutants",
        "",
        "`make mutants` puts small random changes into copies of the package, one at a time, and runs the tests of the",
        "changed line: a comparison swapped, a condition negated, a statement or an argument removed. A test should",
        "notice each.",
        "`python tests/mutants.py --record` writes this page.",
        "",
        f"Of {tried} mutants, the tests notice {noticed}: **{100 * noticed / tried:.1f} %** (seed {data['seed']}, "
        f"{data['date']}, {data['with']}). A later change may not lower the rate.",
        "Tests were written for mutants of this sample, of which 81.5 % were noticed at first: another `--seed` says",
        "more about the rest of the package. Triton's programs run in its interpreter.",
        "",
        "| room | noticed | mutants |",
        "|---|---|---|",
        *(f"| {room} | {some} | {every} |" for room, (some, every) in rooms.items()),
        "",
        "## Those that are not noticed",
        "",
        "Equivalent: no result differs. Speed: only time, memory or the size of a file. Message: only words or layout.",
        "GPU: only code that runs on a GPU. Chance: only how random numbers fall. Missing: a test would be too costly.",
        "",
        "Each was read: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()) + ".",
        "",
        "| where | change | verdict | why |",
        "|---|---|---|---|",
        *(
            f"| `{one['file']}` {one['function']} | {_change(one)} | {one['verdict']} | {one['why']} |"
            for one in survivors
        ),
        "",
    ]
    return "\n".join(lines)


def _change(one: dict[str, str]) -> str:
    old, new = ("`` " + " ".join(one[name].split()).replace("|", "\\|")[:100] + " ``" for name in ("old", "new"))
    return f"{one['operator']}: {old}" + (f" → {new}" if one["new"] else "")


def show(records: Sequence[Record]) -> None:
    """Print what was not noticed, and the rates of the rooms."""
    verdicts = {one["id"]: one["verdict"] for one in committed()["survivors"]}
    print()
    for one in records:
        if one["outcome"] not in NOTICED:
            place = f"{one['file']}:{one['line']} {one['function']}"
            print(f"{one['outcome']:12} {one['id']} {place}: {one['operator']}: {one['old']} → {one['new']}")
            print(f"             {verdicts.get(one['id']) or 'no verdict yet'}")
    rooms = summary(records)
    print(f"\n{'room':16}{'noticed':>8}{'mutants':>8}")
    for room, (noticed, tried) in rooms.items():
        print(f"{room:16}{noticed:8}{tried:8}")
    noticed, tried = (sum(column) for column in zip(*rooms.values(), strict=True)) if rooms else (0, 0)
    print(f"{'all':16}{noticed:8}{tried:8}   {noticed / max(tried, 1):.1%}")


def record(out: Path) -> int:
    """Write the results into the table and the page."""
    header, *lines = (json.loads(line) for line in out.read_text(encoding="utf-8").splitlines())
    data = recorded(header, list({one["id"]: one for one in lines}.values()))
    COMMITTED.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")
    missing = sum(not one["verdict"] for one in data["survivors"])
    print(f"{COMMITTED.relative_to(ROOT)}: {missing} mutants have no verdict")
    return 0
