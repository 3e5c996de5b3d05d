"""The processes of a ladder: one that is killed ends the ladder with a message."""

import os
import signal
from typing import Any

import pytest

from regard.errors import UserError
from regard.training.ladder.side_by_side import side_by_side


def _killed(job: int, follow: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _handler(job: int, follow: Any) -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_process_that_is_killed_is_reported() -> None:
    with pytest.raises(UserError, match="--jobs 1: a process of the ladder was killed; lower --jobs"):
        list(side_by_side(_killed, [0], 1))


def test_between_two_runs_a_process_ignores_ctrl_c() -> None:
    """The terminal sends it to every process; the first one ends the others."""
    assert list(side_by_side(_handler, [0], 1)) == [True]
