"""Guided alignment against teacher forcing alone: quality and alignment accuracy of both, over several seeds.

    python benchmarks/guided.py                              dates, 450 steps, three seeds: ten minutes on two CPU cores
    python benchmarks/guided.py --recipe greek model.width=128
    python benchmarks/guided.py --seeds 1 plan.steps=100     settings follow as in `regard train`

Each run is `regard train RECIPE …` with the same seed and settings, once with `objective=guided`. The figures are those
of the best step on the test examples, as the command prints them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from regard.metrics import METRICS

OBJECTIVES = ("teacher", "guided")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="dates")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    args = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, args.seeds + 1):
            for objective in OBJECTIVES:
                settings = [*args.settings, f"plan.seed={seed}", f"objective={objective}"]
                scores = _train(args.recipe, settings, Path(folder) / f"{objective}-{seed}")
                found.setdefault(objective, []).append(scores)
                print(f"seed {seed} {objective}: {scores}", file=sys.stderr, flush=True)
    names = [name for name in found[OBJECTIVES[0]][0] if name in METRICS]
    print("| objective |", " | ".join(METRICS[name].title for name in names), "|")
    print("|---|" + "---:|" * len(names))
    for objective, runs in found.items():
        columns = [[run[name] for run in runs] for name in names]
        cells = [
            METRICS[name].show(statistics.fmean(column), statistics.stdev(column) if len(column) > 1 else None)
            for name, column in zip(names, columns)
        ]
        print(f"| {objective} |", " | ".join(cells), "|")


def _train(recipe: str, settings: list[str], out: Path) -> dict[str, float]:
    """The test metrics that `regard train … --json` prints."""
    command = [sys.executable, "-m", "regard", "train", recipe, *settings, "--out", str(out), "--json"]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    scores: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])["scores"]
    return scores


if __name__ == "__main__":
    main()
