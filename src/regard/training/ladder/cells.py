"""The cells of a ladder: each rung with each seed, all of the same size and trained on the same tokens."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from regard.checkpoint import read_json, write_json
from regard.config import to_json
from regard.errors import UserError
from regard.recipes import KINDS, Recipe
from regard.training.evaluate import evaluate
from regard.training.events import Finished
from regard.training.folder import is_run
from regard.training.ladder.fitting import fit_size, parameters, with_vocabularies
from regard.training.ladder.quality import curve, evaluations, read_log
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.verbs.loaded import load


@dataclass(frozen=True)
class Cell:
    """One rung with one seed: the recipe, the beam of the evaluation, and the path of the result."""

    name: str
    seed: int
    recipe: Recipe
    out: Path
    beam: int = 1

    @property
    def result(self) -> Path:
        return self.out.with_suffix(".json")


def cells(recipe: Recipe, rungs: Mapping[str, Recipe], seeds: int, out: Path, beam: int = 1) -> list[Cell]:
    """Each rung, in the size of the recipe's model, with each seed; all rungs of a seed come before the next seed."""
    if recipe.plan.minutes is not None:
        raise UserError("plan.minutes: every rung must train on the same tokens; limit it with plan.steps instead.")
    sized = prepare(recipe).config
    target = parameters(sized)
    models = {
        name: with_vocabularies(fit_size(name, with_vocabularies(rung.model, sized), target))
        for name, rung in rungs.items()
    }
    assert len({model.longest for model in models.values()}) == 1, "rungs with another context would get other batches"
    found = []
    for seed in range(recipe.plan.seed, recipe.plan.seed + seeds):
        for name, rung in rungs.items():
            plan = replace(rung.plan, seed=seed, patience=0)  # no early stopping: every rung trains on the same tokens
            cell = replace(rung, model=models[name], plan=plan)
            found.append(Cell(name, seed, cell, out / "cells" / name.replace(" ", "-") / f"seed-{seed}", beam))
    return found


def measure(cell: Cell, follow: Callable[[Run], Finished]) -> dict[str, Any]:
    """The result of a cell: read from disk if it exists, else computed by training, or by resuming a started run.

    `follow` iterates a run to its end.
    """
    wanted = {"beam": cell.beam, "recipe": to_json(cell.recipe, KINDS)}
    if cell.result.exists():
        found: dict[str, Any] = read_json(cell.result)
        if {name: found.get(name) for name in wanted} != wanted or "curve" not in found:
            raise UserError(f"{cell.result}: measured with other settings; remove it or choose another --out.")
        return found
    if not all("training" in line for line in evaluations(read_log(cell.out))):
        raise UserError(f"{cell.out}: its log has no time of training; remove it or choose another --out.")
    run = Run(cell.recipe, cell.out, "resume" if is_run(cell.out) else "overwrite")
    finished = follow(run)
    found = {"cell": cell.name, "seed": cell.seed, **_evaluate_best(cell, run), "seconds": finished.seconds, **wanted}
    write_json(cell.result, found)
    return found


def _evaluate_best(cell: Cell, run: Run) -> dict[str, Any]:
    """The metrics of the best step of a finished run on test examples, and its curve of validation metrics."""
    corpus, recipe = run.prepared.corpus, cell.recipe
    part, examples = ("test", corpus.test) if corpus.test else ("valid", corpus.valid)
    model = load(run.out, recipe.plan.device, long="truncate")
    scores = evaluate(model, examples, ("loss", *recipe.metrics), cell.beam)
    log = read_log(cell.out)
    return {
        "part": part,
        "scores": scores.values,
        "notes": scores.notes,
        "step": model.step,
        "parameters": sum(weight.numel() for weight in model.module.parameters()),
        "width": recipe.model.width,
        "tokens_per_second": statistics.median(line["tokens_per_second"] for line in log if line["kind"] == "train"),
        "training_seconds": evaluations(log)[-1]["training"],
        "curve": [asdict(point) for point in curve(log, recipe.plan.select)],
    }
