"""One step of a run on disk: the model as verbs load it, and under `training/` what only going on needs."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path

from torch import Tensor
from torch.optim import Optimizer

from regard.checkpoint import Content, load_tensors, read_json, save_step, save_tensors
from regard.config import to_json
from regard.errors import UserError
from regard.objectives import Judged
from regard.recipes import KINDS
from regard.stored import load_weights
from regard.training.optim import optimizer_state, restore_optimizer
from regard.training.prepare import Prepared


@dataclass(frozen=True)
class Mark:
    """How far a run has come."""

    step: int = 0  # updates made
    judged: int = 0  # the last step that was evaluated
    best: float | None = None  # the best value of the measure that selects
    best_loss: float | None = None  # of that step
    best_step: int | None = None
    waited: int = 0  # evaluations since the best
    seconds: float = 0.0  # of training, judging and saving included
    judging: float = 0.0  # of those, spent on judging and saving; not known of runs from before they were timed
    data: str = ""  # the digest of the training examples
    batches: int = 0  # that make one step, on all ranks together; 0: plan.accumulate, before there were ranks


def save(run: Path, mark: Mark, prepared: Prepared, judged: Judged, optimizer: Optimizer) -> Path:
    """Write the step that the run has come to."""
    files: dict[str, Content] = {
        "model.json": to_json(prepared.config, KINDS),
        "weights.safetensors": _writer(judged.model.state_dict()),
        "target.json": prepared.target_tokenizer.save,
        "training/optimizer.safetensors": _writer(optimizer_state(optimizer, judged)),
        "training/state.json": asdict(mark),
    }
    if prepared.source_tokenizer is not None:
        files["source.json"] = prepared.source_tokenizer.save
    if judged.own is not None:
        files["training/objective.safetensors"] = _writer(judged.own.state_dict())
    return save_step(run, mark.step, files, prepared.recipe.plan.keep)


def restore(folder: Path, judged: Judged, optimizer: Optimizer) -> Mark:
    """Put everything back as `save` found it."""
    load_weights(judged.model, folder / "weights.safetensors")
    if judged.own is not None:
        load_weights(judged.own, folder / "training/objective.safetensors")
    restore_optimizer(optimizer, judged, load_tensors(folder / "training/optimizer.safetensors"))
    return read_mark(folder)


def read_mark(folder: Path) -> Mark:
    """How far the run had come when this step was saved."""
    path = folder / "training/state.json"
    state = read_json(path)
    names = {field.name for field in fields(Mark)}
    if not isinstance(state, dict) or state.keys() | {"batches", "judging"} != names:
        raise UserError(f"{path}: not the state of a run; restore the file or use another checkpoint.")
    return Mark(**state)


def _writer(tensors: dict[str, Tensor]) -> Content:
    def write(path: Path) -> None:
        save_tensors(path, tensors)

    return write
