"""The mean of the newest checkpoints, and what is refused."""

import pytest
import torch

from regard.checkpoint import save_step, set_pointer
from regard.errors import UserError
from regard.file_io import load_tensors, save_tensors
from regard.stored import average
from regard.training.run import Run


def test_the_newest_steps_are_averaged(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.evaluate=2", "plan.keep=3"), out))
    steps = [load_tensors(out / f"steps/{step:06d}/weights.safetensors") for step in (4, 6, 8)]
    found = average(out, 3)
    assert found.keys() == steps[0].keys()
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, torch.stack([step[name] for step in steps]).mean(dim=0))
        assert not torch.equal(tensor, steps[-1][name])
    assert all(torch.equal(tensor, steps[-1][name]) for name, tensor in average(out, 1).items())
    with pytest.raises(UserError, match=r"plan.keep=3\), not 4; average fewer, or train with plan.keep=4"):
        average(out, 4)
    with pytest.raises(UserError, match="--average 0"):
        average(out, 0)


def test_neither_the_first_weights_nor_a_stale_best_step_are_averaged(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=4", "plan.keep=3"), out))  # steps 0 and 4 are there
    with pytest.raises(UserError, match=r"has 1 of its newest steps \(plan.keep=3\), not 2"):
        average(out, 2)
    set_pointer(out, "best", 4)
    model = (out / "steps/000004/model.json").read_bytes()

    def save(step, values):
        save_step(out, step, {"model.json": model, "weights.safetensors": lambda path: save_tensors(path, values)}, 3)

    for step in (10, 20, 30):
        save(step, {"weight": torch.full((2,), float(step)), "count": torch.tensor(step)})
    assert (out / "steps/000004").is_dir()
    found = average(out, 3)
    assert found["weight"].tolist() == [20.0, 20.0]
    assert found["count"].item() == 30
    with pytest.raises(UserError, match="not 4"):
        average(out, 4)
    save(40, {"count": torch.tensor(40)})
    with pytest.raises(UserError, match=r"000040/weights.safetensors: weight is absent, but the model's is 2"):
        average(out, 3)
