"""The directory of a run: what may be written into it, and what it already holds."""

import os
import shutil
from pathlib import Path
from typing import Any, Literal

from regard.checkpoint import read_pointer, truncate_after, write_json
from regard.config import Kinds, to_json
from regard.errors import UserError
from regard.recipes import Recipe
from regard.stored import recipe_json, stored_recipe
from regard.training.schedule import ENDLESS

Existing = Literal["refuse", "resume", "overwrite"]  # what to do about a run that is already there

# Settings that a resumed run may change: they do not change what is learnt at a step. Of accumulate that is true as
# long as all ranks together read as many batches as before, which `check_batches` sees to.
FREE = (
    *("name", "title", "plan.minutes", "plan.patience", "plan.keep", "plan.log"),
    *("plan.device", "plan.threads", "plan.capture", "plan.compile", "plan.accumulate"),
)


def is_run(out: Path) -> bool:
    """Whether a run has been started here."""
    return (out / "recipe.json").is_file()


def check_folder(out: Path, existing: Existing) -> None:
    """Refuse to write over anything that the user did not say may go."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: this is a file; choose another --out.")
    if is_run(out) and existing == "refuse":
        raise UserError(
            f"{out}: holds a run; go on with --resume, replace it with --overwrite, or choose another --out."
        )
    if not is_run(out) and out.is_dir() and not _vacant(out):
        raise UserError(f"{out}: holds other files and no run; choose another --out.")
    if not is_run(out) and existing == "resume":
        raise UserError(f"{out}: holds no run to resume; leave --resume out to start one.")
    if existing == "resume" and read_pointer(out, "latest") is None:
        raise UserError(f"{out}: the run has no saved step to go on from; start it again with --overwrite.")


def check_same(out: Path, recipe: Recipe, kinds: Kinds) -> None:
    """Refuse to go on with a run under settings that it was not started with."""
    was, now = (_flat(to_json(each, kinds)) for each in (stored_recipe(out, kinds), recipe))
    falls = recipe.plan.schedule not in ENDLESS  # over the steps, so that with more of them each has another rate
    free = (*FREE, *([] if falls else ["plan.steps"]))
    for name in was | now:
        if name not in free and was.get(name) != now.get(name):
            started, given = _told(was.get(name)), _told(now.get(name))
            same = f"{name}={started}" if started else "the recipe it was started with"
            cure = f"resume with {same}, or choose another --out"
            if name == "plan.steps":
                cure = f"over those its rate falls; to train longer, start another run from it: from={out} --out NEW"
            raise UserError(
                f"{name}={given}: the run in {out} was started with {started or 'no such setting'}; {cure}."
            )


def check_batches(out: Path, accumulate: int, ranks: int, before: int) -> None:
    """Refuse to go on with a run whose steps were made of more or fewer batches: `before`, on all ranks together."""
    if accumulate * ranks == before:
        return
    now = f"plan.accumulate={accumulate} on {ranks} {'rank' if ranks == 1 else 'ranks'}"
    fits = before % ranks == 0
    cure = f"resume with plan.accumulate={before // ranks}" if fits else f"use a number of ranks that divides {before}"
    raise UserError(f"{now}: the run in {out} was started with {before} batches a step; {cure}.")


def clear(out: Path) -> None:
    """Remove a run. It steps aside in one move first: a kill leaves the whole run or none."""
    aside = out.with_name(f".{out.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(out, aside)
    shutil.rmtree(aside, ignore_errors=True)


def make_folder(out: Path) -> None:
    """The directory, still empty: no run yet."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be made: {error.strerror}; choose another --out.") from error


def open_run(out: Path, recipe: Recipe, step: int, kinds: Kinds) -> None:
    """Make the directory a run that goes on from a step, which is already saved."""
    write_json(out / "recipe.json", recipe_json(recipe, kinds))
    truncate_after(out / "metrics.jsonl", step)


def _vacant(out: Path) -> bool:
    """Whether nothing is here but, at most, the first step of a start that was killed before it had its recipe."""
    paths = (path.relative_to(out) for path in (*out.iterdir(), *out.glob("steps/*")))
    seen = {path.as_posix() for path in paths if not path.name.startswith(".")}
    return seen <= {"latest", "steps", "steps/000000"}


def _flat(tree: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Dotted name → value; the kind of a part stands under the part's own name."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        dotted = place if name == "kind" else f"{place}.{name}" if place else name
        found |= _flat(value, dotted) if isinstance(value, dict) else {dotted: value}
    return found


def _told(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
