"""The directory of a run: checks before anything is written, its creation and removal, and its saved steps.

A step has the model, and under `training/` what is needed to resume the run.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from regard.checkpoint import Content, Existing, check_steps, delete_old_steps, read_pointer, save_step, truncate_after
from regard.config import Kinds, to_json
from regard.data.run_files import named_paths, with_paths
from regard.errors import UserError
from regard.file_io import (
    NO_FOLLOW,
    RESTORE,
    as_user_error,
    discard,
    is_number,
    is_whole,
    lock_file,
    read_json,
    remove_leftovers,
    save_tensors,
    write_json,
)
from regard.models import Model
from regard.objectives.objective import Trainer
from regard.recipes import KINDS, Plan, Recipe
from regard.shipped import check_not_shipped
from regard.stored import (
    MODEL,
    TRAINER,
    WEIGHTS,
    Stored,
    load_weights,
    recipe_content,
    stored_training,
    weights_sha256,
)
from regard.training.extractor import Start
from regard.training.optim import depends_on_steps
from regard.training.prepare import ABSENT, Prepared, without_metrics

TUNED = "tuned"  # in the directory of a classifier: the run of its language model, see `regard.training.tuning`
POINTERS = ("latest", "best")
FILES = ("metrics.jsonl", *POINTERS, "report.html", "recipe.json")  # of a run, besides its steps

# Settings of the plan that a resumed run may change: they do not change the update of a step. For plan.accumulate that
# is true only if all ranks together read as many batches as before, which `check_batches` checks. plan.minutes changes
# the rates of the steps that are left, and of no other.
FREE_OF_PLAN = (
    *("minutes", "patience", "keep", "log"),
    *("device", "threads", "capture", "checkpoint", "compile", "accumulate"),
)


def is_run(out: Path) -> bool:
    """Whether the directory has a run."""
    return (out / "recipe.json").is_file()


def check_folder(out: Path, existing: Existing) -> None:
    """Refuse to overwrite anything without the user's permission, or anything that is no run."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: this is a file; choose another --out.")
    check_not_shipped(out)
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
    if not is_run(out) and not _is_begun(out):
        raise UserError(f"{out}: holds other files and no run; choose another --out.")
    if not is_run(out) and existing == "resume":
        raise UserError(f"{out}: holds no run to resume; leave out --resume (in Python: existing) to start one.")
    if is_run(out) and existing in ("resume", "auto") and read_pointer(out, "latest") is None:
        cure = 'start it again with --overwrite (in Python: existing="overwrite")'
        raise UserError(f"{out}: the run has no saved step to resume from; {cure}.")


def _is_begun(out: Path) -> bool:
    """Whether a directory without a recipe has only what a run leaves that is killed before it writes its recipe.

    This is step 0, and the run of its language model, which may be killed as early.
    """
    paths = [path.relative_to(out) for path in (*out.glob("*"), *out.glob("steps/*"))]
    seen = {path.as_posix() for path in paths if not path.name.startswith(".")}
    tuned = out / TUNED
    begun = tuned.is_dir() and (is_run(tuned) or _is_begun(tuned))
    return seen <= {"latest", "steps", "steps/000000", *([TUNED] if begun else [])}


def resumed_recipe(out: Path, run: Stored, given: Recipe, kinds: Kinds, reschedule: bool = False) -> Recipe:
    """The recipe of a run that is resumed with a given recipe; refuses settings that the run was not started with.

    Settings that only the first weights depend on are those of the run, whatever the given recipe has. `reschedule`
    allows another length where the learning rate depends on it.
    """
    for plain in [without_metrics(given, needs, kinds) for needs in ABSENT]:
        if (run.recipe.metrics, run.recipe.plan.select) == (plain.metrics, plain.plan.select):
            given = plain  # `prepare` left the others out
    if type(given.model) is type(run.recipe.model):
        own = {name: getattr(run.recipe.model, name) for name in run.recipe.model.first_weights}
        given = replace(given, model=replace(given.model, **own))
    _check_same(out, run, run.recipe, given, kinds, reschedule)
    return given


def repeated_recipe(
    out: Path, run: Stored, asked: Recipe, given: Recipe, kinds: Kinds, reschedule: bool = False
) -> Recipe:
    """The recipe of a run that is resumed by a command which may have started it; refuses the run of other settings.

    What the command asks for, `given`, is compared with what the command before it asked for. What followed from the
    data, and from the model of from=, is that of the run.
    """
    changed = _check_same(out, run, asked, given, kinds, reschedule)
    plan = {name: getattr(given.plan, name) for name in FREE_OF_PLAN}
    plan |= {} if same_length(asked.plan, given.plan) else {"steps": given.plan.steps, "epochs": given.plan.epochs}
    kept = (run.files or {}).keys() - changed  # a file that was moved has its new path in the run
    paths = {name: path for name, path in named_paths(run.recipe.data) if name in kept}
    about = {"name": given.name, "title": given.title, "data": with_paths(given.data, paths)}
    return replace(run.recipe, **about, plan=replace(run.recipe.plan, **plan))


def check_given(out: Path, run: Stored, start: Start | None) -> None:
    """Refuse to resume a run that started from another model; an earlier version has not stored which it was."""
    if run.given is None:
        return
    before, other = run.given.path, "or choose another --out"
    if start is None and before:
        raise UserError(f"{out}: the run was started from a model; add from={before}, {other}.")
    if start is not None and not before:
        raise UserError(f"from={start.path}: the run in {out} was started from no model; leave it out, {other}.")
    if start is not None and weights_sha256(start.weights()) != run.given.sha256:
        found = f"the run in {out} was started from {before}, which had other weights"
        raise UserError(f"from={start.path}: {found}; resume it with --resume, {other}.")


def same_length(one: Plan, other: Plan) -> bool:
    """Whether two plans have the same length: as many epochs, or as many steps if that is how it is given."""
    return one.epochs == other.epochs and (one.epochs is not None or one.steps == other.steps)


def _check_same(out: Path, run: Stored, before: Recipe, given: Recipe, kinds: Kinds, reschedule: bool) -> set[str]:
    """The settings that differ from those of the run; refuses those that may not.

    Files are compared by their contents when they are read. An earlier version has no digests of them: then the batches
    of the training data are compared.
    """
    was, now = (_flatten(to_json(each, kinds)) for each in (before, given))
    changed = {name for name in was | now if was.get(name) != now.get(name)}
    files = {name for name, _ in named_paths(before.data) if now.get(name) and (run.files is None or name in run.files)}
    plan = {f"plan.{name}" for name in FREE_OF_PLAN}
    free = {"name", "title", *plan, *_free_length(given, reschedule), *files}
    for name in sorted(changed - free, key=[*was, *now].index):
        _refuse(name, was, now, out, given)
    return changed


def _free_length(recipe: Recipe, reschedule: bool) -> list[str]:
    """The settings of the length of a run that may change when it is resumed."""
    if recipe.objective.learns_by != "counts" and (reschedule or not depends_on_steps(recipe.plan)):
        return ["plan.steps", "plan.epochs"]
    return ["plan.steps"] if recipe.plan.epochs is not None else []  # it follows from plan.epochs


def _refuse(name: str, was: dict[str, Any], now: dict[str, Any], out: Path, given: Recipe) -> NoReturn:
    """Raise the error about a setting that differs from that of the run."""
    started, new = (_format(each.get(name, "")) for each in (was, now))
    cure = f"resume with {name}={started}" if name in was else "resume with the recipe it was started with"
    cure += ", or choose another --out"
    if name in ("plan.steps", "plan.epochs") and given.objective.learns_by != "counts":
        cure = (
            "the learning rate depends on it; add --reschedule (in Python: reschedule=True), and the steps that "
            f"are left have the rates of the new length; or start another run: from={out} --out NEW"
        )
    found = f"the run in {out} was started with {started or ('no value' if name in was else 'no such setting')}"
    raise UserError(f"{name}={new}: {found}; {cure}.")


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
    """Remove the files and steps of a run, and nothing else.

    The recipe is last: after a kill it is still a run. The pointers are first, so that none is left without its step.
    """
    if is_run(out / TUNED):
        clear(out / TUNED)
    with as_user_error(out):
        discard([out / name for name in POINTERS if os.path.lexists(out / name)])
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


def open_run(out: Path, recipe: dict[str, Any], state: "RunState", keep: int) -> None:
    """Write the recipe of a run whose state is saved, as JSON, and remove later lines from its log, and old steps."""
    for name in FILES:
        remove_leftovers(out / name)
    write_json(out / "recipe.json", recipe)
    truncate_after(out / "metrics.jsonl", state.step, state.evaluated)
    delete_old_steps(out, keep)


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
        "step": is_whole(found["step"]) and found["step"] == step,
        "evaluated": is_whole(found["evaluated"]) and found["evaluated"] <= step,
        "best": is_number(found["best"]) if best is not None else found["best"] is None,
        "best_loss": found["best_loss"] is None or (best is not None and is_number(found["best_loss"])),
        "best_step": best is None
        or (is_whole(best) and any((one / f"{best:06d}").is_dir() for one in folder.parents[:2])),
        "waited": is_whole(found["waited"]),
        "seconds": is_number(found["seconds"]) and found["seconds"] >= 0,
        "evaluating": is_number(found["evaluating"]) and found["evaluating"] >= 0,
        "tuning": is_number(found["tuning"]) and found["tuning"] >= 0,
        "data": isinstance(found["data"], str),
        "batches": is_whole(found["batches"]) and found["batches"] >= 1,
    }
    for name, fits in valid.items():
        if not fits:
            why = f"cannot be the state of a run at step {step}"
            raise UserError(f"{path}: {name}={found[name]!r:.40}: {why}; {RESTORE}.")
    return RunState(**found)
