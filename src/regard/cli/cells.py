"""The cells of a ladder: one model in many guises, each of the same size and trained on the same tokens."""

import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from regard.checkpoint import marked, read_json, write_json
from regard.cli.conclude import judge, read_log
from regard.cli.progress import follow
from regard.config import to_json
from regard.errors import UserError
from regard.models import Seq2SeqConfig
from regard.recipes import KINDS, Recipe
from regard.scores import SCORES
from regard.train.prepare import prepare
from regard.train.run import Run

TOLERANCE = 0.05  # of the parameters


@dataclass(frozen=True)
class Cell:
    """One rung, one seed: what to train and where its result goes."""

    name: str
    seed: int
    recipe: Recipe
    out: Path

    @property
    def result(self) -> Path:
        return self.out.with_suffix(".json")


def cells(recipe: Recipe, seeds: int, out: Path) -> list[Cell]:
    """Every rung with every seed, a whole ladder before the next seed begins."""
    if not isinstance(recipe.model, Seq2SeqConfig):
        raise UserError(f"ladder {recipe.name}: only translation has rungs without attention; try: regard ladder dates")
    if recipe.plan.minutes is not None:
        raise UserError("plan.minutes: every rung must see the same tokens; bound a ladder by plan.steps instead.")
    sized = prepare(recipe).config
    assert isinstance(sized, Seq2SeqConfig)
    models = {name: _fitted(rung, parameters(sized)) for name, rung in rungs(sized).items()}
    found = []
    for seed in range(recipe.plan.seed, recipe.plan.seed + seeds):
        plan = replace(recipe.plan, seed=seed, patience=0)  # to stop early would be to see fewer tokens
        for name, model in models.items():
            unsized = replace(model, source_vocab=0, target_vocab=0)
            cell = replace(recipe, model=unsized, plan=plan)
            found.append(Cell(name, seed, cell, out / "cells" / name.replace(" ", "-") / f"seed-{seed}"))
    return found


def rungs(config: Seq2SeqConfig) -> dict[str, Seq2SeqConfig]:
    """No attention, every score, and Luong's two windows."""
    decoder = "bahdanau" if config.decoder in ("once", "every") else config.decoder
    reading = replace(config, decoder=decoder, window="none")
    return {
        "no attention": replace(config, decoder="once"),
        **{score: replace(reading, score=score) for score in SCORES},
        **{f"general {window}": replace(reading, score="general", window=window) for window in ("local-m", "local-p")},
    }


def parameters(config: Seq2SeqConfig) -> int:
    """How many numbers a model has to learn, counted without making it."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def _fitted(config: Seq2SeqConfig, target: int) -> Seq2SeqConfig:
    """The same model in the width that brings it nearest to so many parameters."""
    low, high = 1, 1
    while parameters(replace(config, width=2 * high)) < target:
        high *= 2
    while low < high:  # the least half-width with at least as many
        middle = (low + high) // 2
        enough = parameters(replace(config, width=2 * middle)) >= target
        low, high = (low, middle) if enough else (middle + 1, high)
    near = [replace(config, width=2 * half) for half in (max(low - 1, 1), low)]
    best = min(near, key=lambda each: abs(parameters(each) - target))
    if abs(parameters(best) / target - 1) > TOLERANCE:
        raise UserError(
            f"model.width={config.width}: no width gives {config.decoder}/{config.score} {target:,} parameters within "
            f"{TOLERANCE:.0%}; choose a larger model.width."
        )
    return best


def measure(cell: Cell, console: Console, title: str) -> dict[str, Any]:
    """The result of a cell: read where it is finished, else trained, from wherever it was left."""
    wanted = to_json(cell.recipe, KINDS)
    if cell.result.exists():
        found: dict[str, Any] = read_json(cell.result)
        if found.get("recipe") != wanted:
            raise UserError(f"{cell.result}: measured with other settings; remove it or choose another --out.")
        return found
    run = Run(cell.recipe, cell.out, "resume" if marked(cell.out, "latest") else "overwrite")
    outcome = judge(cell.name, run, follow(run, console, title))
    log = [line for line in read_log(cell.out) if line["kind"] == "train"]
    found = {
        "cell": cell.name,
        "seed": cell.seed,
        "width": getattr(cell.recipe.model, "width", None),
        "tokens_per_second": statistics.median(line["tokens_per_second"] for line in log),
        **outcome.numbers,
        "recipe": wanted,
    }
    write_json(cell.result, found)
    return found
