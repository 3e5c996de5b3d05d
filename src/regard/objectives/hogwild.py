"""Processes on a CPU that change the same matrices without locks (Hogwild, Niu et al. 2011)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import UserError

Sums = NDArray[np.float64]
Work = Callable[[int, int], Sums]  # the number of a step and of a piece of it → sums that are added over all pieces
MOST_WORKERS = 256


def check_workers(workers: int) -> None:
    """Refuse a number of workers that this machine cannot have."""
    if not 1 <= workers <= MOST_WORKERS:
        raise UserError(f"objective.workers={workers}: give a number from 1 to {MOST_WORKERS}.")
    if workers > 1 and "fork" not in multiprocessing.get_all_start_methods():
        raise UserError(f"objective.workers={workers}: this system cannot fork processes; give objective.workers=1.")


class Pool:
    """Several processes that share the pieces of a step: the process that calls `run`, and `workers` − 1 others.

    Each process takes the next piece that no other has taken, and computes with one thread. The tensors that `work`
    changes must be in shared memory. With one worker the pieces are done in their order, in this process.
    """

    def __init__(self, work: Work, workers: int) -> None:
        self._work = work
        context = multiprocessing.get_context("fork" if workers > 1 else None)
        self._taken = context.Value("q", 0)
        self._others: list[tuple[Any, Connection]] = []
        for _ in range(workers - 1):
            ours, theirs = context.Pipe()
            process = context.Process(target=self._serve, args=(theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self._others.append((process, ours))

    def run(self, step: int, pieces: int) -> Sums:
        """Do all pieces of a step; the sums over the pieces."""
        self._taken.value = 0
        for _, pipe in self._others:
            pipe.send((step, pieces))
        with one_thread():
            total = self._take(step, pieces)
        for process, pipe in self._others:
            try:
                total = total + pipe.recv()
            except (EOFError, OSError):
                process.join(1)
                cure = "resume the run, or give objective.workers=1"
                raise UserError(f"a worker process ended (exit code {process.exitcode}); {cure}.") from None
        return total

    def close(self) -> None:
        for process, pipe in self._others:
            pipe.close()
            process.terminate()
            process.join()

    def _take(self, step: int, pieces: int) -> Sums:
        total: Sums = np.zeros(3)
        while True:
            with self._taken.get_lock():
                piece = self._taken.value
                self._taken.value += 1
            if piece >= pieces:
                return total
            total = total + self._work(step, piece)

    def _serve(self, pipe: Connection, parent: int) -> None:
        """What another process does: steps, until the first process ends or closes the pipe."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is interrupted, and ends this one
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        torch.set_num_threads(1)
        while True:
            while not pipe.poll(1.0):
                if os.getppid() != parent:  # the first process was killed
                    return
            try:
                step, pieces = pipe.recv()
            except (EOFError, OSError):
                return
            pipe.send(self._take(step, pieces))


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes with one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
