"""Several processes that train one model: each reads its share of a step's batches, all make the same update.

`torchrun --nproc-per-node N -m regard train …` starts N ranks. The batches of a step are numbered as if one process
read them all, and rank r takes every N-th; counts are added up before the forward pass, gradients after the last
backward pass, both as sums. So N ranks are one rank that accumulates N times as many batches, dropout included.

Gradients are added up here and not by `DistributedDataParallel`: it would average what has to be summed, reduce at
every backward pass unless told not to, and keep a step from being captured as a CUDA graph.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from regard.errors import UserError

SHORT = timedelta(minutes=10)  # how long a rank may keep the others waiting at a step, compiling included
LONG = timedelta(hours=12)  # how long the first rank may take to judge, while the others wait
MESSAGE = 2**23  # numbers that are sent together, or a single tensor that has more


class RankLost(UserError):  # noqa: N818  it says what happened
    """Another rank has died or does not answer; the weights are those of the last whole step."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """Which of how many processes this is. One alone is the ordinary case, and speaks to nobody."""

    rank: int = 0
    count: int = 1
    local: int = 0  # its number on its machine: that of its GPU
    neighbours: int = 1  # how many there are on its machine, itself included
    patient: Any = None  # the process group whose messages may take LONG
    store: Any = None  # what torchrun keeps for all ranks, and outlives each of them

    @property
    def first(self) -> bool:
        """Whether this is the rank that judges, writes and speaks."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        return self.count > 1

    def numbers(self, step: int, accumulate: int) -> range:
        """The numbers of the batches that this rank reads at a step."""
        whole = accumulate * self.count
        return range(step * whole + self.rank, (step + 1) * whole, self.count)

    def place(self, device: str) -> str:
        """The device of this rank, given the plan's: a GPU of its own, or the CPU that all share."""
        if not self.several or device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
            return device
        if device not in ("auto", "cuda"):
            raise UserError(f"plan.device={device}: {self.count} processes need a GPU each; give auto, cuda or cpu.")
        if self.local >= torch.cuda.device_count():
            found = f"this machine has {torch.cuda.device_count()} GPUs and was asked for more processes"
            raise UserError(f"plan.device={device}: {found}; lower --nproc-per-node, or give plan.device=cpu.")
        torch.cuda.set_device(self.local)
        return f"cuda:{self.local}"

    # -- messages: all ranks must send the same ones in the same order -------------------------------------------------

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each number added up over all ranks, on the CPU: no GPU waits for it."""
        if not self.several:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        with _heard():
            dist.all_reduce(numbers)
        return numbers.tolist()

    def from_first(self, values: Sequence[float]) -> list[float]:
        """What the first rank has to say, however long it takes; what others give here counts for nothing."""
        if not self.several:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        with _heard():
            dist.broadcast(numbers, src=0, group=self.patient)
        return numbers.tolist()

    def agree(self, number: int) -> bool:
        """Whether all ranks gave the same number, of 63 bits at most."""
        if not self.several:
            return True
        numbers = torch.tensor([number, -number])
        with _heard():
            dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=self.patient)
        return bool(numbers[0] == -numbers[1])

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Let the tensors of every rank become the sums over all ranks."""
        self._send(tensors, lambda flat: dist.all_reduce(flat, async_op=True))

    def copy(self, tensors: Iterable[Tensor]) -> None:
        """Let the tensors of every rank become those of the first."""
        self._send([tensor.detach() for tensor in tensors], lambda flat: dist.broadcast(flat, src=0, async_op=True))

    def _send(self, tensors: Sequence[Tensor], send: Callable[[Tensor], Any]) -> None:
        """Few large messages instead of many small ones; all are under way before the first is waited for."""
        if not self.several:
            return
        under_way = []
        for group in _messages(tensors):
            flat = torch.cat([tensor.flatten() for tensor in group])
            with _heard():
                under_way.append((group, flat, send(flat)))
        for group, flat, work in under_way:
            with _heard():
                work.wait()
            parts = flat.split([tensor.numel() for tensor in group])
            torch._foreach_copy_(group, [part.view_as(tensor) for part, tensor in zip(parts, group)])

    def claim_output(self) -> bool:
        """Whether this rank is the first that asks: of several that fail together, one tells why."""
        try:
            return not self.several or bool(self.store.add("regard/told", 1) == 1)
        except RuntimeError:  # torchrun itself is gone
            return self.first


ALONE = Ranks()


@contextmanager
def joined() -> Iterator[Ranks]:
    """The ranks that torchrun has started, for as long as the block lasts; one alone where it has not."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=SHORT)))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=SHORT)
        patient = dist.new_group(backend="gloo", timeout=LONG)
    except (RuntimeError, ValueError) as error:  # torch's own errors are kinds of RuntimeError
        reason = str(error).partition("\n")[0]
        raise UserError(f"the {count} ranks have not found each other: {reason}.") from error
    local, neighbours = os.environ.get("LOCAL_RANK", rank), os.environ.get("LOCAL_WORLD_SIZE", count)
    yield Ranks(rank, count, int(local), int(neighbours), patient, store)
    dist.destroy_process_group()  # after a failure there is nobody to part from


def _messages(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors in their order, as many together as a message may hold; each message has one dtype."""
    for _, alike in groupby(tensors, key=lambda tensor: tensor.dtype):
        group: list[Tensor] = []
        size = 0
        for tensor in alike:
            if group and size + tensor.numel() > MESSAGE:
                yield group
                group, size = [], 0
            group.append(tensor)
            size += tensor.numel()
        yield group


@contextmanager
def _heard() -> Iterator[None]:
    """A message that fails means that somebody is gone. Nothing else happens inside."""
    try:
        yield
    except RuntimeError as error:
        silent = "timed out" in str(error).lower()
        raise RankLost(f"another process of this job {'does not answer' if silent else 'has died'}") from error
