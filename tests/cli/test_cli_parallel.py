"""`torchrun -m regard train`: a rank that dies ends the job with one message; a signal saves, and the run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from regard.checkpoint import resolve

ENDLESS = ["plan.steps=100000", "plan.evaluate=5", "plan.samples=4", "plan.log=1"]


def _torchrun(*arguments: object, cwd: Path, restarts: int = 0) -> subprocess.Popen[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", restarts]
    launch = [*map(str, launch), "--nproc-per-node", "2", "-m", "regard"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [*launch, *map(str, arguments)], cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes
    )


def _until_trained(process: subprocess.Popen[str], run: Path) -> None:
    """Wait for the first step that was judged and saved."""
    while process.poll() is None and not (run / "best").exists():
        time.sleep(0.05)
    assert (run / "best").exists()


def _ranks(torchrun: int) -> list[int]:
    """The processes that torchrun has started, in the order of their ranks."""
    found = Path(f"/proc/{torchrun}/task/{torchrun}/children").read_text().split()
    return sorted(map(int, found))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the ranks")
def test_a_rank_that_is_killed_ends_the_job(tiny: list[str], tmp_path: Path) -> None:
    with _torchrun("train", "translate", *tiny, *ENDLESS, "--out", "run", cwd=tmp_path) as process:
        _until_trained(process, tmp_path / "run")
        os.kill(_ranks(process.pid)[1], signal.SIGKILL)
        out, err = process.communicate(timeout=600)
    assert process.returncode != 0
    told = [line for line in (out + err).splitlines() if line.startswith(("error:", "stopped and saved"))]
    assert len(told) == 1  # which of the two depends on what the first rank was doing
    assert "--resume" in told[0]
    assert int(resolve(tmp_path / "run").name) >= 5


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the ranks")
def test_torchrun_restarts_a_run_whose_ranks_are_killed_and_its_weights_are_the_same(
    tiny: list[str], tmp_path: Path
) -> None:
    """Each rank is killed once, the second one first."""
    command = ["train", "translate", *tiny, "plan.steps=60", "plan.evaluate=10", "plan.log=1", "--existing", "auto"]
    with _torchrun(*command, "--out", "whole", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    with _torchrun(*command, "--out", "killed", cwd=tmp_path, restarts=3) as process:
        for place, step in ((1, 10), (0, 30)):
            _until_step(process, tmp_path / "killed", step)
            os.kill(_ranks(process.pid)[place], signal.SIGKILL)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert out.count("resumed at step") == 2
    for name in ("weights.safetensors", "training/trainer.safetensors"):
        whole, killed = ((resolve(tmp_path / run, ("latest",)) / name).read_bytes() for run in ("whole", "killed"))
        assert whole == killed
    told = [
        list(map(json.loads, (tmp_path / run / "metrics.jsonl").read_text().splitlines()))
        for run in ("whole", "killed")
    ]
    steps = [[(line["kind"], line["step"], line.get("loss")) for line in lines] for lines in told]
    assert steps[0] == steps[1]


def _until_step(process: subprocess.Popen[str], run: Path, step: int) -> None:
    """Wait until a step is saved, and two ranks run."""
    latest = run / "latest"
    while process.poll() is None:
        if latest.exists() and int(latest.read_text() or 0) >= step and len(_ranks(process.pid)) == 2:
            return
        time.sleep(0.02)
    raise AssertionError(f"ended with {process.returncode} before step {step}")


@pytest.mark.slow
def test_sigterm_saves_and_two_ranks_go_on(tiny: list[str], tmp_path: Path) -> None:
    with _torchrun("train", "translate", *tiny, *ENDLESS, "--out", "run", cwd=tmp_path) as process:
        _until_trained(process, tmp_path / "run")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=600)
    assert "Traceback" not in out
    assert "error:" not in err
    assert "continue with: torchrun --nproc-per-node 2 -m regard train translate --resume --out run" in out
    step = int(Path(tmp_path / "run/latest").read_text(encoding="utf-8"))
    resumed = ["train", "translate", "--resume", "--json", "--out", "run", "plan.minutes=0.0001"]
    with _torchrun(*resumed, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0
    (line,) = out.splitlines()  # one rank speaks
    assert json.loads(line)["run"] == "run"
    assert f"finished at step {step} (plan.minutes)" in err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find threads")
def test_the_threads_of_the_ranks_end_with_the_training(tmp_path: Path) -> None:
    """One that runs while Python ends may abort the process."""
    script = """
        from pathlib import Path
        from regard.training.parallel import join_ranks

        def threads():
            return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}

        with join_ranks() as ranks:
            assert ranks.agree(1) and ranks.gather(ranks.rank) == [0, 1]
            assert any("gloo" in name for name in threads())
        assert not any("gloo" in name for name in threads())
        print("ended")
    """
    (tmp_path / "ranks.py").write_text(dedent(script))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"]
    done = subprocess.run(launch, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.count("ended")) == (0, 2), done.stderr


@pytest.mark.slow
def test_a_mistake_is_told_once(tiny: list[str], tmp_path: Path) -> None:
    with _torchrun("train", "translate", *tiny, "plan.rat=1", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert (out, err.count("error: plan.rat=1")) == ("", 1)


def test_one_process_needs_no_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of one, as `torchrun --nproc-per-node 1` makes it, is no different from none."""
    from regard.training.parallel import ALONE, join_ranks

    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with join_ranks() as ranks:
        assert ranks is ALONE
