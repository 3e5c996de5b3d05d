"""Training with processes on a CPU that change the same matrices without locks (Hogwild, Niu et al. 2011)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.words import Sentences
from regard.device import single_thread
from regard.errors import UserError
from regard.objectives.objective import Rate, Step

MOST_WORKERS = 256
PIECES = 4  # pieces of a step for each of several workers: a worker that is slower than the others takes fewer


class Piece(NamedTuple):
    """A part of a step that one process trains on: the places from `start` to `stop` of what is read."""

    step: int
    number: int  # of the piece, in its step
    start: int
    stop: int
    rate: float  # the learning rate


PieceSums = NDArray[np.float64]  # (2,) the loss of a piece, and the number of its summands


def check_workers(workers: int) -> None:
    """Refuse a number of workers that this machine cannot have."""
    if not 1 <= workers <= MOST_WORKERS:
        raise UserError(f"objective.workers={workers}: give a number from 1 to {MOST_WORKERS}.")
    if workers > 1 and "fork" not in multiprocessing.get_all_start_methods():
        raise UserError(f"objective.workers={workers}: this system cannot fork processes; give objective.workers=1.")


class SharedTrainer(ABC):
    """A trainer of word vectors with one or several processes. The pieces of a step are parts of `span`."""

    term: ClassVar[str]  # the name of the loss
    shortest: ClassVar[int]  # places of a piece
    longest: ClassVar[int]

    def __init__(self, model: Any, batches: Sentences, plan: Any, rate: Rate, workers: int) -> None:
        if workers > 1 and model.output.device.type != "cpu":
            raise UserError(f"objective.workers={workers}: workers share a CPU; set plan.device=cpu.")
        self._model, self._batches, self._plan, self._rate, self._workers = model, batches, plan, rate, workers
        with torch.no_grad():
            for table in (model.embedding.weight, model.output):
                table[: batches.first] = 0  # special tokens have no vectors

    @property
    def model(self) -> Any:
        return self._model

    @abstractmethod
    def span(self, step: int) -> tuple[int, int]:
        """The first place that a step reads, and the end of its places."""
        ...

    @abstractmethod
    def train_piece(self, piece: Piece) -> PieceSums:
        """Train on a piece of a step, in place."""
        ...

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The tensors beside the model that training changes."""
        ...

    def pieces(self, step: int) -> list[Piece]:
        """The pieces of a step. Several workers need several pieces each, else some of them wait for the last one."""
        first, last = self.span(step)
        size = self.longest
        if self._workers > 1:
            size = int(np.clip((last - first) // (PIECES * self._workers), self.shortest, self.longest))
        starts = range(first, last, size)
        return [
            Piece(step, number, start, min(start + size, last), self._rate(step + number / len(starts)))
            for number, start in enumerate(starts)
        ]

    def steps(self, start: int) -> Iterator[Step]:
        if self._workers > 1:
            self._model.share_memory()
            for tensor in self.state().values():
                tensor.share_memory_()
        pool = Pool(self.train_piece, self._workers)
        try:
            for n in range(start, self._plan.steps):
                began, rate = time.perf_counter(), self._rate(n)
                loss, count = pool.run(self.pieces(n))
                mean = torch.tensor(loss / max(count, 1.0))
                words, seconds = self._batches.count_words(n), time.perf_counter() - began
                yield Step(n + 1, words, mean[None], mean, (self.term,), rate, seconds=seconds)
        finally:
            pool.close()


class Pool:
    """Several processes that share the pieces of a step: the process that calls `run`, and `workers` − 1 others.

    Each process takes the next piece that no other has taken, and computes with one thread. The tensors that `work`
    changes must be in shared memory. With one worker the pieces are done in their order, in this process.
    """

    def __init__(self, work: Callable[[Piece], PieceSums], workers: int) -> None:
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

    def run(self, pieces: Sequence[Piece]) -> PieceSums:
        """Do all pieces of a step; the sums over the pieces."""
        self._taken.value = 0
        for process, pipe in self._others:
            with _needed(process):
                pipe.send(pieces)
        with single_thread():
            total = self._take(pieces)
        for process, pipe in self._others:
            with _needed(process):
                total = total + pipe.recv()
        return total

    def close(self) -> None:
        for process, pipe in self._others:
            pipe.close()
            process.terminate()
            process.join()

    def _take(self, pieces: Sequence[Piece]) -> PieceSums:
        total: PieceSums = np.zeros(2)
        while True:
            with self._taken.get_lock():
                number = self._taken.value
                self._taken.value += 1
            if number >= len(pieces):
                return total
            total = total + self._work(pieces[number])

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
                pieces = pipe.recv()
            except (EOFError, OSError):
                return
            pipe.send(self._take(pieces))


@contextmanager
def _needed(process: Any) -> Iterator[None]:
    """Inside, a pipe to a process that has ended is a UserError."""
    try:
        yield
    except (EOFError, OSError):
        process.join(1)
        cure = "resume the run, or give objective.workers=1"
        raise UserError(f"a worker process ended (exit code {process.exitcode}); {cure}.") from None
