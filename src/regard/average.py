"""The mean of the weights of a run's last checkpoints, often better than each of them (Vaswani et al. 2017, §6.1)."""

from pathlib import Path

from torch import Tensor

from regard.checkpoint import load_tensors, resolve
from regard.errors import UserError
from regard.stored import stored_recipe


def average(run: Path, count: int) -> dict[str, Tensor]:
    """The weights of the newest `count` steps of a run, averaged in float32.

    Tensors that are not floats come from the newest step. Step 0 is not used, nor an old step that is kept only because
    it is the best.
    """
    if count < 1:
        raise UserError(f"--average {count}: give 1 or more.")
    keep = stored_recipe(run).plan.keep
    names = [path.name for path in (run / "steps").glob("*") if path.name.isdecimal() and int(path.name)]
    newest = sorted(names, key=int)[-min(count, keep) :]
    if len(newest) < count:
        cure = f"average fewer, or train with plan.keep={count}"
        raise UserError(f"{run}: has {len(newest)} of its newest steps (plan.keep={keep}), not {count}; {cure}.")
    total: dict[str, Tensor] = {}
    for name in newest:
        for weight, tensor in load_tensors(resolve(run / "steps" / name) / "weights.safetensors").items():
            if tensor.is_floating_point() and weight in total:
                total[weight] += tensor.float()
            else:
                total[weight] = tensor.float() if tensor.is_floating_point() else tensor
    return {weight: tensor / count if tensor.is_floating_point() else tensor for weight, tensor in total.items()}
