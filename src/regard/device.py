"""Device, precision and random seeds."""

import gc
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from operator import index
from threading import Lock
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from regard.errors import UserError

_CAPTURES = Lock()
SEEDS = 2**63  # seeds are below this: both torch and numpy accept them


def check_seed(seed: SupportsIndex, name: str = "seed") -> int:
    """The seed as a Python number. Raises ``UserError`` for one that torch or numpy does not accept."""
    try:
        if 0 <= index(seed) < SEEDS:
            return index(seed)
    except TypeError:  # also from arrays and tensors of fractions, which have `__index__`
        pass
    raise UserError(f"{name}={seed!r:.40}: give a whole number from 0 to 2**63-1.")


def draw_seed() -> int:
    """A seed that the operating system draws at random."""
    return secrets.randbelow(SEEDS)


def choose_device(name: str) -> torch.device:
    """The device with this name; `auto` is the GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except TypeError:
        raise UserError(f"device: {type(name).__name__} is no name; give auto, cpu, cuda or cuda:N.") from None
    except RuntimeError:
        raise UserError(f"device={name}: no such device; give auto, cpu, cuda or cuda:N.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device={name}: not supported; give auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={name}: this machine has {torch.cuda.device_count()} GPUs; give device=auto or cpu.")
    return device


def choose_precision(name: str, device: torch.device) -> str:
    """float32 or bf16; `auto` is bf16 on a GPU that supports it."""
    if name != "auto":
        return name
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """A context in which matrix products use this precision; weights stay float32."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype in which autocast computes matrix products on this device; None: autocast is off, or has no effect."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)


def is_traced(x: Tensor) -> bool:
    """Whether torch.compile or torch.export traces the code that has this tensor.

    ``torch.compiler.is_compiling`` is no answer: it is true in all threads while any thread compiles.
    """
    return torch.compiler.is_dynamo_compiling() or isinstance(x, FakeTensor)


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """Capture the kernels of the block in a CUDA graph; `pool` is a memory pool that graphs share.

    Python's garbage collector does not run in the block. If it freed the CUDA graph of an earlier run there, CUDA would
    end this capture with an error. One thread captures at a time, since all use one stream; other threads may launch
    kernels meanwhile.
    """
    with _CAPTURES:
        collects = gc.isenabled()
        gc.disable()
        try:
            stream = _capture_stream(torch.cuda.current_device())
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                yield
        finally:
            if collects:
                gc.enable()


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """The stream on which the graphs of a device are captured: graphs that share a pool need the same stream.

    torch's default is one stream for all devices, that of the first capture; on another device it captures nothing.
    """
    return torch.cuda.Stream(device)


@contextmanager
def single_thread() -> Iterator[None]:
    """Limits torch to one thread: for small tensors, several threads are slower than one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def derive_seed(*numbers: int) -> int:
    """A seed for torch from several numbers, such as a seed and the number of a batch."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1  # 63 bits


def seed_noise(seed: int, rank: int, number: int) -> None:
    """Seed torch's random numbers on every device from these three numbers.

    Called before every batch. So a checkpoint needs no state of random generators, and random numbers drawn between
    steps do not change a step.
    """
    torch.manual_seed(derive_seed(seed, rank, number))
