"""The directory of a run: checks before anything is written, its creation and removal, and its saved steps.

A step has the model, and under `training/` what is needed to resume the run.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.checkpoint import Content, Existing, check_steps, read_pointer, save_step, truncate_after
from regard.config import Kinds, to_json
from regard.errors import UserError
from regard.file_io import (
    NO_FOLLOW,
    RESTORE,
    as_user_error,
    discard,
    lock_file,
    read_json,
    remove_leftovers,
    save_tensors,
    write_json,
)
from regard.models import Model
from regard.objectives.objective import Trainer
from regard.recipes import KINDS, Recipe
from regard.stored import MODEL, TRAINER, WEIGHTS, load_weights, recipe_content, stored, stored_training
from regard.training.optim import depends_on_steps
from regard.training.prepare import ABSENT, Prepared, without_metrics

TUNED = "tuned"  # in the directory of a classifier: the run of its language model, see `regard.training.tuning`
FILES = ("metrics.jsonl", "latest", "best", "report.html", "recipe.json")  # of a run, besides its steps

# Settings that a resumed run may change: they do not change the update of a step. For plan.accumulate that is true only
# if all ranks together read as many batches as before, which `check_batches` checks. plan.minutes changes the rates of
# the steps that are left, and of no other.
FREE = (
    *("name", "title", "plan.minutes", "plan.patience", "plan.keep", "plan.log"),
    *("plan.device", "plan.threads", "plan.capture", "plan.checkpoint", "plan.compile", "plan.accumulate"),
)


def is_run(out: Path) -> bool:
    """Whether the directory has a run."""
    return (out / "recipe.json").is_file()


def check_folder(out: Path, existing: Existing) -> None:
    """Refuse to overwrite anything without the user's permission, or anything that is no run."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: this is a file; choose another --out.")
    check_steps(out)
    if is_run(out) and existing == "refuse":
        raise UserError(
            f"{out}: holds a run; continue it with --resume, replace it with --overwrite, or choose another --out "
            '(in Python: existing="resume", existing="overwrite", or another directory). A command that is repeated '
            "after a failure has --existing auto."
        )
    if is_run(out) and existing == "overwrite":
        try:
            recipe_content(out)  # its settings need not be those of the present format
        except UserError as error:
            cure = "it is not overwritten; delete it yourself, or choose another --out"
            raise UserError(f"{out}: its recipe.json is not that of a run ({error}); {cure}.") from error
    paths = [path.relative_to(out) for path in (*out.glob("*"), *out.glob("steps/*"))]
    seen = {path.as_posix() for path in paths if not path.name.startswith(".")}
    # A run that was killed before its recipe was written has left step 0, or the run of its language model.
    if not is_run(out) and not seen <= {"latest", "steps", "steps/000000", *([TUNED] if is_run(out / TUNED) else [])}:
        raise UserError(f"{out}: holds other files and no run; choose another --out.")
    if not is_run(out) and existing == "resume":
        raise UserError(f"{out}: holds no run to resume; leave out --resume (in Python: existing) to start one.")
    if is_run(out) and existing in ("resume", "auto") and read_pointer(out, "latest") is None:
        cure = 'start it again with --overwrite (in Python: existing="overwrite")'
        raise UserError(f"{out}: the run has no saved step to resume from; {cure}.")


def resumed_recipe(
    out: Path, given: Recipe | None, kinds: Kinds, repeated: bool = False, reschedule: bool = False
) -> Recipe:
    """The recipe of a run that is resumed; refuses other settings than the run was started with.

    Without a given recipe it is the stored one. With `repeated`, the given recipe is that of the command which started
    the run, before anything followed from the data. Settings that only the first weights depend on are those of the
    run, whatever the given recipe has. `reschedule` allows another length where the learning rate depends on it.
    """
    run = stored(out, kinds)
    if given is None:
        return run.recipe
    asked = run.asked if repeated else None
    before = asked or run.recipe
    for plain in [] if asked else [without_metrics(given, needs, kinds) for needs in ABSENT]:
        if (before.metrics, before.plan.select) == (plain.metrics, plain.plan.select):  # `prepare` left the others out
            given = plain
    was, now = (_flatten(to_json(each, kinds)) for each in (before, given))
    counts = given.objective.learns_by == "counts"
    follows = given.plan.epochs is not None  # plan.steps follows from plan.epochs
    any_length = (reschedule or not depends_on_steps(given.plan)) and not counts
    first = before.model.first_weights
    free = (*FREE, *(["plan.steps"] if follows or any_length else []), *(["plan.epochs"] if any_length else []))
    # Files are compared by their contents when they are read; those of an earlier version by the batches of training.
    free = (*free, *(f"model.{name}" for name in first), *(run.files or ["data.train"]))
    changed = {name for name in was | now if was.get(name) != now.get(name)}
    for name in sorted(changed - {*free}, key=[*was, *now].index):
        started, new = (_format(each.get(name, "")) for each in (was, now))
        same = f"{name}={started}" if started else "the recipe it was started with"
        cure = f"resume with {same}, or choose another --out"
        if name in ("plan.steps", "plan.epochs") and not counts:
            cure = (
                "the learning rate depends on it; add --reschedule (in Python: reschedule=True), and the steps that "
                f"are left have the rates of the new length; or start another run: from={out} --out NEW"
            )
        raise UserError(f"{name}={new}: the run in {out} was started with {started or 'no such setting'}; {cure}.")
    if asked:
        plan = {name: value for name, value in vars(given.plan).items() if f"plan.{name}" in changed}
        about = {"name": given.name, "title": given.title, "data": given.data}
        given = replace(run.recipe, **about, plan=replace(run.recipe.plan, **plan))
    return replace(given, model=replace(given.model, **{name: getattr(run.recipe.model, name) for name in first}))


def check_batches(out: Path, accumulate: int, ranks: int, before: int) -> None:
    """Refuse to resume a run with another number of batches per step than `before`, on all ranks together."""
    if accumulate * ranks == before:
        return
    now = f"plan.accumulate={accumulate} on {ranks} {'rank' if ranks == 1 else 'ranks'}"
    fits = before % ranks == 0
    cure = f"resume with plan.accumulate={before // ranks}" if fits else f"use a number of ranks that divides {before}"
    raise UserError(f"{now}: the run in {out} was started with {before} batches a step; {cure}.")


@contextmanager
def lock_run(out: Path) -> Iterator[None]:
    """Lock a run while it is trained. A second process is refused; processes that only read need no lock."""
    with as_user_error(out):
        handle = os.open(out / ".lock", os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666)
    try:
        with as_user_error(out):
            if not lock_file(handle, wait=False):
                holder = os.read(handle, 200).decode(errors="replace").strip()
                cure = "wait for it, or choose another --out"
                raise UserError(f"{out}: is trained by another process ({holder}); {cure}.")
            os.ftruncate(handle, 0)
            os.write(handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        os.close(handle)


def clear(out: Path) -> None:
    """Remove the files and steps of a run, and nothing else. The recipe is last: after a kill it is still a run."""
    if is_run(out / TUNED):
        clear(out / TUNED)
    with as_user_error(out):
        discard([path for path in (out / "steps").glob("*") if path.name.isdecimal() or path.name == ".old"])
        with suppress(OSError):  # there is none, or it has other files
            (out / "steps").rmdir()
        discard([out / name for name in FILES if os.path.lexists(out / name)])


def make_folder(out: Path) -> None:
    """Create the directory of a run, still empty."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be made: {error.strerror}; choose another --out.") from error


def open_run(out: Path, recipe: dict[str, Any], state: "RunState") -> None:
    """Write the recipe of a run whose state is saved, as JSON, and remove later lines from its log."""
    for name in FILES:
        remove_leftovers(out / name)
    write_json(out / "recipe.json", recipe)
    truncate_after(out / "metrics.jsonl", state.step, state.evaluated)


def _flatten(tree: dict[str, Any], place: str = "") -> dict[str, Any]:
    """The settings of a JSON tree as dotted name → value; the kind of a part has the part's own name."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        dotted = place if name == "kind" else f"{place}.{name}" if place else name
        found |= _flatten(value, dotted) if isinstance(value, dict) else {dotted: value}
    return found


def _format(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)


@dataclass(frozen=True)
class RunState:
    """The progress of a run."""

    step: int = 0  # updates so far
    evaluated: int = 0  # the last step that was evaluated
    best: float | None = None  # the best value of the metric plan.select
    best_loss: float | None = None  # the loss of the best step
    best_step: int | None = None
    waited: int = 0  # evaluations since the best step
    seconds: float = 0.0  # since the run began, evaluation and saving included
    evaluating: float = 0.0  # seconds of evaluation and saving
    tuning: float = 0.0  # seconds of the language model of plan.tune_lm, which came first
    data: str = ""  # the digest of the training examples
    batches: int = 0  # batches per step, on all ranks together


def save(run: Path, state: RunState, prepared: Prepared, model: Model, training: dict[str, Tensor]) -> Path:
    """Write the present step of a run: its model, and `training`, the state of its trainer. Return its directory."""
    files: dict[str, Content] = {
        MODEL: to_json(model.config, prepared.kinds),
        WEIGHTS: lambda path: save_tensors(path, model.state_dict()),
        **{f"fields/{name}.json": each.save for name, each in prepared.fields.items()},
        TRAINER: lambda path: save_tensors(path, training),
        "training/state.json": asdict(state),
    }
    return save_step(run, state.step, files, prepared.recipe.plan.keep)


def restore(folder: Path, trainer: Trainer, objective: Any, kinds: Kinds = KINDS) -> None:
    """Restore the model and the trainer that `save` wrote for this objective."""
    load_weights(trainer.model, folder, kinds)
    state = stored_training(folder, objective, kinds)
    try:
        trainer.restore(state, int(folder.name))
    except UserError as error:
        raise UserError(f"{folder / TRAINER}: {error}; {RESTORE}.") from error


def read_state(folder: Path) -> RunState:
    """The state of a run when this step was saved."""
    path = folder / "training/state.json"
    found = read_json(path)
    if isinstance(found, dict):
        found.setdefault("tuning", 0.0)  # earlier versions did not write it
    names = {field.name for field in fields(RunState)}
    if not isinstance(found, dict) or found.keys() != names:
        raise UserError(f"{path}: not the state of a run; {RESTORE}.")
    step, best = int(folder.name), found["best_step"]
    valid = {
        "step": _whole(found["step"]) and found["step"] == step,
        "evaluated": _whole(found["evaluated"]) and found["evaluated"] <= step,
        "best": _number(found["best"]) if best is not None else found["best"] is None,
        "best_loss": found["best_loss"] is None or (best is not None and _number(found["best_loss"])),
        "best_step": best is None
        or (_whole(best) and any((one / f"{best:06d}").is_dir() for one in folder.parents[:2])),
        "waited": _whole(found["waited"]),
        "seconds": _number(found["seconds"]) and found["seconds"] >= 0,
        "evaluating": _number(found["evaluating"]) and found["evaluating"] >= 0,
        "tuning": _number(found["tuning"]) and found["tuning"] >= 0,
        "data": isinstance(found["data"], str),
        "batches": _whole(found["batches"]) and found["batches"] >= 1,
    }
    for name, fits in valid.items():
        if not fits:
            why = f"cannot be the state of a run at step {step}"
            raise UserError(f"{path}: {name}={found[name]!r:.40}: {why}; {RESTORE}.")
    return RunState(**found)


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # neither NaN nor infinite
