"""One step of a run on disk: the model, and under `training/` what is needed to resume the run."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path

from torch import Tensor

from regard.checkpoint import Content, load_tensors, read_json, save_step, save_tensors
from regard.config import to_json
from regard.errors import UserError
from regard.models import Model
from regard.objectives.trainer import Trainer
from regard.stored import load_weights
from regard.training.prepare import Prepared


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
    data: str = ""  # the digest of the training examples
    batches: int = 0  # batches per step, on all ranks together


def save(run: Path, state: RunState, prepared: Prepared, model: Model, training: dict[str, Tensor]) -> Path:
    """Write the present step of a run: its model, and `training`, the state of its trainer. Return its directory."""
    files: dict[str, Content] = {
        "model.json": to_json(model.config, prepared.kinds),
        "weights.safetensors": _writer(model.state_dict()),
        **{f"fields/{name}.json": each.save for name, each in prepared.fields.items()},
        "training/trainer.safetensors": _writer(training),
        "training/state.json": asdict(state),
    }
    return save_step(run, state.step, files, prepared.recipe.plan.keep)


def restore(folder: Path, trainer: Trainer) -> RunState:
    """Restore the model and the trainer that `save` wrote; return the state."""
    load_weights(trainer.model, folder / "weights.safetensors")
    trainer.restore(load_tensors(folder / "training/trainer.safetensors"))
    return read_state(folder)


def read_state(folder: Path) -> RunState:
    """The state of a run when this step was saved."""
    path = folder / "training/state.json"
    state = read_json(path)
    names = {field.name for field in fields(RunState)}
    if not isinstance(state, dict) or state.keys() != names:
        raise UserError(f"{path}: not the state of a run; restore the file or use another checkpoint.")
    return RunState(**state)


def _writer(tensors: dict[str, Tensor]) -> Content:
    def write(path: Path) -> None:
        save_tensors(path, tensors)

    return write
