"""`torchrun -m regard train`: a rank that dies ends the job with one message; a signal saves, and the run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.checkpoint import resolve

ENDLESS = ["plan.steps=100000", "plan.evaluate=5", "plan.samples=4", "plan.log=1"]


def _torchrun(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "regard"]
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
