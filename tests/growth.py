"""Whether work takes time in proportion to its input, on a machine of any speed."""

import time
from collections.abc import Callable

TIMES, TRIALS = 32, 3


def is_linear(work: Callable[[int], object], most: int) -> bool:
    """Whether the CPU time of work(most) is nearer to 32 times that of work(most / 32) than to 32² times.

    Each is the least of three measurements, since other processes on the machine make some of them longer.
    """
    few, many = (min(_seconds(work, size) for _ in range(TRIALS)) for size in (most // TIMES, most))
    return many < TIMES**1.5 * few


def _seconds(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began
