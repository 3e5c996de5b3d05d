"""ULMFiT with its stages and tools left out, one after the other, on TREC, MR and SST-2 (Howard & Ruder 2018, §5).

The first argument is the run of a general language model (`regard train ulmfit data.train=FILE`). For each corpus and
seed, the language model is tuned on the texts once; the rows that have this stage share it. A row without general
pre-training has a language model of the texts alone, with the same objective. Every classifier is trained for the same
number of epochs. Cells that are finished are read from `--out`; the others are trained, or resumed.

    python benchmarks/ulmfit.py runs/ulmfit
    python benchmarks/ulmfit.py runs/ulmfit --corpora trec --seeds 1 plan.epochs=2 plan.tune_lm=1

Words with = are settings of the classifiers. The accuracy is that of the development set, at the best step by accuracy.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.data.files import find_data
from regard.file_io import write_json
from regard.recipes import KINDS, Recipe, find_recipe, with_vocabularies
from regard.training.ladder.cells import Cell, measure
from regard.training.ladder.side_by_side import finish
from regard.training.tuning import tuning_recipe
from regard.training.warm_start import warm_start_from, warm_started

HELD_OUT = 500  # questions of TREC that are for development: the public file has no other
NONE = ("plan.layer_decay=1", "plan.schedule=constant", "plan.warmup=0", "plan.unfreeze=0")
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {  # the language model that a row starts from, and its settings
    "none of the tools": ("tuned", NONE),
    "+ rates by layer": ("tuned", NONE[1:]),
    "+ triangular rates": ("tuned", NONE[3:]),
    "+ gradual unfreezing": ("tuned", ()),
    "without general pre-training": ("scratch", ()),
    "without tuning on the texts": ("general", ()),
}


def trec(place: Path) -> list[str]:
    """The settings of TREC with its six classes. The development set is drawn with a fixed seed."""
    files = {part: place / f"trec-{part}.csv" for part in ("train", "dev")}
    if not all(path.exists() for path in files.values()):
        with gzip.open(find_data("trec/train.csv.gz"), "rt", encoding="utf-8", newline="") as file:
            lines = [(row["coarse"], row["text"]) for row in csv.DictReader(file)]
        random.Random(0).shuffle(lines)
        place.mkdir(parents=True, exist_ok=True)
        for path, part in zip(files.values(), (lines[HELD_OUT:], lines[:HELD_OUT])):
            with path.open("w", encoding="utf-8", newline="") as out:
                csv.writer(out).writerows([("label", "text"), *part])
    return [f"data.train={files['train']}", f"data.valid={files['dev']}"]


def mr(place: Path) -> list[str]:
    """The settings of the movie reviews (Pang & Lee 2005)."""
    return [f"data.{part}={find_data(f'sentclf/MR.{name}.tsv.gz')}" for part, name in PARTS.items()]


def sst2(place: Path) -> list[str]:
    """The settings of the Stanford Sentiment Treebank with two classes."""
    columns = ["data.text=sentence", "data.label=label"]
    return [*columns, *(f"data.{part}={find_data(f'sst2/{name}.tsv.gz')}" for part, name in PARTS.items())]


PARTS = {"train": "train", "valid": "dev"}
CORPORA: dict[str, Callable[[Path], list[str]]] = {"trec": trec, "mr": mr, "sst2": sst2}


def cell(name: str, seed: int, recipe: Recipe, out: Path, start: Path | None) -> dict[str, Any]:
    """The result of a run with a seed, which is trained, resumed or read."""
    seeded = replace(recipe, plan=replace(recipe.plan, seed=seed))
    found = measure(
        Cell(name, seed, seeded, out, part="valid", start=None if start is None else warm_start_from(start)), finish
    )
    print(f"{out}: {found['scores']}", flush=True)
    return found


def measured(general: Path, data: list[str], settings: list[str], seed: int, out: Path) -> dict[str, float]:
    """The accuracy of each row for one corpus and seed."""

    def started(start: Path, *own: str) -> tuple[Recipe, Any]:
        stated = [*data, "plan.select=accuracy", *settings, *own]
        return warm_started(find_recipe("classify"), stated, warm_start_from(start), start)

    # The settings that the general model gives to classifiers; other models that a row starts from give none.
    _, given = started(general)
    settings = [*given.finetune, *settings]
    recipe, given = started(general)
    starts = {"general": general, "tuned": out / "tuned", "scratch": out / "scratch"}
    cell("tuned", seed, tuning_recipe(recipe, given, KINDS), starts["tuned"], general)
    new = replace(recipe, model=with_vocabularies(recipe.model), data=replace(recipe.data, vocab=16_000))
    scratch = replace(tuning_recipe(new, None, KINDS), objective=given.objective)
    cell("scratch", seed, scratch, starts["scratch"], None)
    found = {}
    for number, (name, (start, own)) in enumerate(ROWS.items()):
        recipe, _ = started(starts[start], *own, "plan.tune_lm=0")
        scores = cell(name, seed, recipe, out / f"row-{number}", starts[start])["scores"]
        found[name] = scores["accuracy"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("general", type=Path, help="the run of the general language model")
    parser.add_argument("settings", nargs="*", help="settings of the classifiers, name=value")
    parser.add_argument("--corpora", default=",".join(CORPORA))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/ulmfit-stages"))
    given = parser.parse_intermixed_args()
    table: dict[str, dict[str, list[float]]] = {name: {} for name in ROWS}
    for corpus in given.corpora.split(","):
        data = CORPORA[corpus](given.out)
        for seed in range(1, given.seeds + 1):
            found = measured(given.general, data, given.settings, seed, given.out / corpus / f"seed-{seed}")
            for name, accuracy in found.items():
                table[name].setdefault(corpus, []).append(100 * accuracy)
    write_json(given.out / "ulmfit.json", table)
    corpora = given.corpora.split(",")
    print("|", " | ".join(["accuracy, %", *corpora]), "|")
    print("|---" * (1 + len(corpora)) + "|")
    for name, values in table.items():
        print("|", " | ".join([name, *(shown(values[corpus]) for corpus in corpora)]), "|")


def shown(values: list[float]) -> str:
    """The mean, and the standard deviation of several seeds."""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


if __name__ == "__main__":
    main()
