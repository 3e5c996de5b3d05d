"""Real kills at random moments: the run that goes on is, bit for bit, the run that was never interrupted."""

import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint import read_pointer, resolve
from regard.recipes import Recipe

KILLS = 5


def _work(recipe: Recipe, out: Path, ready: Any) -> None:
    """What the process does that will be killed: start the run, or go on with it, to its end."""
    from regard.training.folder import is_run
    from regard.training.run import Run

    torch.set_num_threads(1)
    run = Run(recipe, out, "resume" if is_run(out) else "refuse")
    ready.set()
    for _ in run:
        pass


def test_killed_at_any_moment_a_run_resumes_bit_equal(recipe, tmp_path):
    made = recipe("plan.steps=24", "plan.evaluate=3", "plan.keep=3")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.training.run", "torch._dynamo"])  # so that a process starts in no time

    def start(out: Path) -> Any:
        ready = context.Event()
        process = context.Process(target=_work, args=(made, out, ready))
        process.start()
        assert ready.wait(timeout=600)
        return process

    straight, killed = tmp_path / "straight", tmp_path / "killed"
    process = start(straight)
    began = time.perf_counter()
    process.join()
    whole = time.perf_counter() - began
    assert process.exitcode == 0

    moments, steps = random.Random(11), set()
    for number in range(KILLS):
        before = read_pointer(killed, "latest")
        process = start(killed)
        saves = number % 2 == 0  # these kills come after a step was saved; on a busy machine, the others may all not
        while saves and process.is_alive() and read_pointer(killed, "latest") == before:
            process.join(timeout=0.001)
        process.join(timeout=moments.uniform(0.0, 0.1 if saves else 0.4) * whole)
        process.kill()
        process.join()
        if read_pointer(killed, "latest"):
            resolve(killed)  # loadable, whatever the moment
            steps.add(read_pointer(killed, "latest"))
    assert len(steps) > 1
    last = start(killed)
    last.join()
    assert last.exitcode == 0

    for name in ("weights.safetensors", "training/trainer.safetensors", "model.json", "fields/source.json"):
        ours, theirs = (resolve(run, ("latest",)) / name for run in (killed, straight))
        assert ours.read_bytes() == theirs.read_bytes(), name
    assert read_pointer(killed, "best") == read_pointer(straight, "best")
    assert _told(killed) == _told(straight)


def _told(run: Path) -> list[tuple[object, ...]]:
    """The lines of metrics.jsonl without what the clock says."""
    import json

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["kind"], line["loss"]) for line in lines]
