"""The jobs of a ladder in several processes that share a device."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

import torch

from regard.errors import UserError
from regard.training.events import Finished
from regard.training.interrupt import SignalGuard
from regard.training.run import Run

INTERRUPTED = 130  # the exit status of a process after Ctrl-C

Job = TypeVar("Job")
Result = TypeVar("Result")
Follow = Callable[[Run], Finished]  # iterates a run to its end
Climb = Callable[[Job, Follow], Result]  # does the work of a job; a function of a module, so that processes find it


def side_by_side(climb: Climb[Job, Result], every: Iterable[Job], processes: int) -> Iterator[Result]:
    """The results of jobs that run in several processes on one device, in the order in which they end.

    The first jobs run while the later ones are still being prepared. An interrupt ends all processes.
    """
    threads = max(1, (os.cpu_count() or 1) // processes)
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_start_worker, initargs=(threads,))
    with SignalGuard().installed(), pool:
        try:
            waiting = [pool.submit(partial(_climb_silently, climb, job)) for job in every]
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool as error:
            cure = "lower --jobs if memory ran out; the same command continues from what is saved"
            raise UserError(f"--jobs {processes}: a process of the ladder was killed; {cure}.") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()


def _climb_silently(climb: Climb[Job, Result], job: Job) -> Result:
    """Do a job without output. An interrupt ends the process; without this, it would begin the next job."""
    try:
        return climb(job, finish)
    except KeyboardInterrupt:  # the run is saved
        os._exit(INTERRUPTED)


def finish(run: Run) -> Finished:
    """Iterate a run to its end without output."""
    *_, last = run
    assert isinstance(last, Finished)
    return last


def _start_worker(threads: int) -> None:
    """Prepare a process of `side_by_side`, which does not outlive the process that started it.

    A terminal sends Ctrl-C to all processes. Outside of a run, which saves then, the first process ends the others.
    """
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
