"""The cells of a ladder: each rung with each seed, all of the same size and trained on the same tokens."""

import statistics
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.checkpoint import FORMAT, check_format
from regard.config import from_json, to_json
from regard.data.run_files import digests, run_files
from regard.errors import UserError
from regard.file_io import read_json, read_object, write_json
from regard.migrations import migrated
from regard.models import ModelConfig
from regard.recipes import KINDS, Recipe, with_vocabularies
from regard.recording import attentions, watch
from regard.stored import stored_recipe
from regard.training.chance import describe_chance
from regard.training.evaluate import evaluate
from regard.training.events import Finished
from regard.training.extractor import Start
from regard.training.ladder.pictured import pictured
from regard.training.ladder.quality import curve, evaluations, read_log, values
from regard.training.loop import Diverged
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.verbs.forced import BATCH_TOKENS
from regard.verbs.loaded import load

TOLERANCE = 0.05  # the largest relative error in the number of parameters
CLOSE = 0.02  # below this error, a coarser width, which suits a GPU, is better than a smaller error
GRAINS = (8, 2, 1)  # widths are multiples of the first if that gives a close size, else of the second or third
UNSTATED = 2  # the format of results that do not say it
COUNTED = 16  # tokens of the source, and of the target, for which operations are counted


@dataclass(frozen=True)
class Cell:
    """One rung with one seed: the recipe, the part and the beam of the evaluation, and the path of the result."""

    name: str
    seed: int
    recipe: Recipe
    out: Path
    beam: int = 1
    part: Literal["test", "valid"] = "test"  # test: valid where there is no test set
    start: Start | None = None  # the model that it starts from; None: new weights and tokenizers

    @property
    def result(self) -> Path:
        return self.out.with_suffix(".json")


def cells(recipe: Recipe, rungs: Mapping[str, Recipe], seeds: int, out: Path, beam: int = 1) -> list[Cell]:
    """Each rung, in the size of the recipe's model, with each seed; all rungs of a seed come before the next seed."""
    for name in ("minutes", "epochs"):
        if getattr(recipe.plan, name) is not None:
            raise UserError(f"plan.{name}: every rung must train on the same tokens; limit it with plan.steps instead.")
    sized: Any = prepare(recipe).config
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
    if cell.result.exists():
        found = read_json(cell.result)
        complete = isinstance(found, dict) and {"beam", "recipe", "curve"} <= found.keys()
        if not complete or found["beam"] != cell.beam or _recipe_of(found, cell.result) != cell.recipe:
            raise UserError(f"{cell.result}: measured with other settings; remove it or choose another --out.")
        if found.get("files", files := digests(run_files(cell.recipe.data))) != files:
            raise UserError(f"{cell.result}: measured on other data; remove it or choose another --out.")
        return {**found, "recipe": to_json(cell.recipe, KINDS)}
    if not all("training" in line for line in evaluations(read_log(cell.out))):
        raise _untimed(cell)
    run = Run(cell.recipe, cell.out, "auto", cell.start)
    finished = follow(run)
    found = {"cell": cell.name, "seed": cell.seed, **_evaluate_best(cell, run), "seconds": finished.seconds}
    found |= {"beam": cell.beam, "format": FORMAT, "recipe": to_json(cell.recipe, KINDS), "files": digests(run.files)}
    write_json(cell.result, found)
    return found


def _untimed(cell: Cell) -> UserError:
    return UserError(f"{cell.out}: its log has no time of training; remove it or choose another --out.")


def _recipe_of(found: Mapping[str, Any], path: Path) -> Any:
    """The recipe of a stored result as the present format has it; None if it has settings that are gone."""
    version = check_format(path, found.get("format", UNSTATED))
    try:
        return from_json(migrated(found["recipe"], version, path), KINDS)
    except UserError:
        return None


def stored_data(out: Path) -> Any:
    """The data of the cell with this directory, by its result or by its run; None if neither is there and is read."""
    result = out.with_suffix(".json")
    try:
        if result.is_file():
            return _recipe_of(read_object(result), result).data
        return stored_recipe(out).data
    except (UserError, KeyError, AttributeError):
        return None


def measured(cell: Cell, follow: Callable[[Run], Finished]) -> dict[str, Any] | None:
    """What `measure` finds; None if training diverged."""
    try:
        return measure(cell, follow)
    except Diverged:
        return None


def _evaluate_best(cell: Cell, run: Run) -> dict[str, Any]:
    """The metrics of the best step of a finished run on held-out examples, and its curve of validation metrics."""
    corpus, recipe = run.prepared.corpus, cell.recipe
    part, examples = ("test", corpus.test) if corpus.test and cell.part == "test" else ("valid", corpus.valid)
    model = load(run.out, recipe.plan.device, long="truncate")
    batch_tokens = max(BATCH_TOKENS, recipe.plan.batch_tokens // cell.beam)
    scores = evaluate(model, examples, ("loss", *recipe.metrics), cell.beam, batch_tokens=batch_tokens)
    log = read_log(cell.out)
    speeds, times = values(log, "train", "tokens_per_second"), values(log, "valid", "training")
    if not speeds or not times:
        raise _untimed(cell)
    return {
        "part": part,
        "examples": len(examples),
        "scores": scores.values,
        "notes": scores.notes,
        "chance": describe_chance(model, examples),
        "step": model.step,
        "steps": run.state.step,
        "parameters": model.parameter_count,
        "flops": flops(model.module.config),
        "attends": bool(attentions(model.module)),
        "attention": pictured(model, examples),
        "width": recipe.model.width,
        "tokens_per_second": statistics.median(speeds),
        "training_seconds": times[-1],
        "curve": [asdict(point) for point in curve(log, recipe.plan.select)],
    }


@cache
def parameters(config: Any) -> int:
    """The number of parameters of a model, counted without allocating them."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def flops(config: ModelConfig) -> int | None:
    """The floating-point operations of a forward pass of a translator, per target token; None for other models.

    Source and target have 16 tokens each. The products of matrices and the convolutions are counted, by torch; in
    float64 and by the definition of attention, because some fused kernels are not counted.
    """
    if not (config.causal and config.source_vocab):
        return None
    model: Any = config.build().double().eval()
    ids = torch.zeros(1, COUNTED, dtype=torch.long)
    with torch.no_grad(), watch(model) if attentions(model) else nullcontext(), FlopCounterMode(display=False) as count:
        model.readout(model.advance(ids, model.start(ids, rows=1, capacity=COUNTED))[0])
    return int(count.get_total_flops()) // COUNTED


def fit_size(name: str, config: Any, target: int) -> Any:
    """The config with widths that give about `target` parameters."""
    if parameters(config) == target:
        return config
    for grain in GRAINS:
        near = _neighbours(lambda k, grain=grain: config.resized(grain * k), target)  # type: ignore[misc]
        best = min(near, key=lambda each: _error(each, target))
        if _error(best, target) <= CLOSE:
            break
    if _error(best, target) > TOLERANCE:
        raise UserError(
            f"model.width: no width gives the rung {name} {target:,} parameters within {TOLERANCE:.0%}; "
            "start from a larger model.width."
        )
    return best


def _neighbours(build: Callable[[int], Any], target: int) -> tuple[Any, Any]:
    """Of build(1), build(2), …, which grow in size: the last that is too small and the first that is not.

    If none is too small, the first config twice.
    """
    upper = 1
    while parameters(build(upper)) < target:
        upper *= 2
    sizes = range(1, upper + 1)
    at = sizes[bisect_left(sizes, target, key=lambda k: parameters(build(k)))]
    return build(max(at - 1, 1)), build(at)


def _error(config: Any, target: int) -> float:
    return abs(parameters(config) / target - 1)
