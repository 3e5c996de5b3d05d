"""Data-parallel training: each process reads its share of a step's batches, and all make the same update.

`torchrun --nproc-per-node N -m regard train …` starts N ranks. The batches of a step are numbered as if one process
read them all, and rank r reads every N-th. Counts are summed over the ranks before the forward pass, gradients after
the last backward pass. So N ranks give the same update as one rank that accumulates N times as many batches.

Gradients are summed here and not by `DistributedDataParallel`, which averages them, reduces at every backward pass
(except under `no_sync`) and prevents the capture of a step as a CUDA graph.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby, islice, zip_longest
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from regard.errors import UserError

STEP_TIMEOUT = timedelta(minutes=10)  # the longest wait for another rank at a step, compilation included
EVALUATION_TIMEOUT = timedelta(hours=12)  # the longest wait for another rank while it evaluates
NOTHING = object()  # fills up the shares of ranks that have one item less
MESSAGE = 2**23  # the most numbers in one message, unless a single tensor has more


T = TypeVar("T")
R = TypeVar("R")


class Share(Protocol):
    """Does a piece of work for each item; the results are in the order of the items, and the same on every rank."""

    def __call__(self, items: Iterable[T], work: Callable[[T], R]) -> list[R]: ...


class RankLost(UserError):  # noqa: N818
    """Another rank has died or does not answer; the weights are those of the last complete step."""


@contextmanager
def _detect_lost_rank() -> Iterator[None]:
    """Turn the failure of a collective inside the block, or the function, into RankLost."""
    try:
        yield
    except RuntimeError as error:
        reason = "does not answer" if "timed out" in str(error).lower() else "has died"
        raise RankLost(f"another process of this job {reason}") from error


@dataclass(frozen=True, eq=False)
class Ranks:
    """The rank of this process among `count` processes. With one process, nothing is communicated."""

    rank: int = 0
    count: int = 1
    local: int = 0  # the rank on its machine: the number of its GPU
    local_count: int = 1  # processes on its machine, with this one
    slow_groups: Sequence[Any] = ()  # the process group with the timeout EVALUATION_TIMEOUT, until the ranks part
    store: Any = None  # torchrun's key-value store, which outlives each rank

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and prints."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        return self.count > 1

    @property
    def slow_group(self) -> Any:
        """The process group for what may take hours."""
        return self.slow_groups[0]

    def numbers(self, step: int, accumulate: int) -> range:
        """The numbers of the batches that this rank reads at a step."""
        whole = accumulate * self.count
        return range(step * whole + self.rank, (step + 1) * whole, self.count)

    def lanes(self, accumulate: int) -> range:
        """The lanes of the batches that this rank reads: a lane is the number of a batch modulo those of a step."""
        return self.numbers(0, accumulate)

    def choose_device(self, device: str) -> str:
        """The device of this rank, given that of the plan: one GPU per rank, or the CPU for all."""
        if not self.several or device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
            return device
        if device not in ("auto", "cuda"):
            raise UserError(f"plan.device={device}: {self.count} processes need a GPU each; give auto, cuda or cpu.")
        if self.local >= torch.cuda.device_count():
            found = f"this machine has {torch.cuda.device_count()} GPUs, fewer than its processes"
            raise UserError(f"plan.device={device}: {found}; lower --nproc-per-node, or give plan.device=cpu.")
        torch.cuda.set_device(self.local)
        return f"cuda:{self.local}"

    # -- collectives: all ranks must call the same ones in the same order ----------------------------------------------

    @_detect_lost_rank()
    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum of each number over all ranks, computed on the CPU without a GPU synchronisation."""
        if not self.several:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers)
        return numbers.tolist()

    @_detect_lost_rank()
    def broadcast(self, values: Sequence[float]) -> list[float]:
        """The values of the first rank, with a long timeout; the values of the other ranks are ignored."""
        if not self.several:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(numbers, src=0, group=self.slow_group)
        return numbers.tolist()

    def share(
        self,
        items: Iterable[T],
        work: Callable[[T], R],
        immediate: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> list[R]:
        """`work` of every item, in order: each rank does every `count`-th item, and all ranks get all results.

        What is done for an item depends on the item alone, so that the results do not depend on the number of ranks.
        They must be JSON values. `immediate` is entered during the work: a KeyboardInterrupt of one rank is then raised
        on all.
        """
        mine, interrupted = list[R](), False
        try:
            with immediate():
                mine = [work(item) for item in islice(items, self.rank, None, self.count)]
        except KeyboardInterrupt:
            if not self.several:
                raise
            interrupted = True
        shares = self.gather([interrupted, mine])
        if any(stopped for stopped, _ in shares):
            raise KeyboardInterrupt
        in_turn = zip_longest(*(found for _, found in shares), fillvalue=NOTHING)
        return [one for turn in in_turn for one in turn if one is not NOTHING]

    @_detect_lost_rank()
    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, in the order of the ranks. Values travel as JSON: nothing received is executed."""
        if not self.several:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.count)]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self.slow_group)
        parts = [data.new_empty(max(map(int, sizes))) for _ in sizes]
        dist.all_gather(parts, nn.functional.pad(data, (0, len(parts[0]) - len(data))), group=self.slow_group)
        return [json.loads(part[: int(size)].numpy().tobytes()) for part, size in zip(parts, sizes)]

    def gather_tensors(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """The tensors of every rank, in the order of the ranks; empty except on the first rank.

        All ranks give tensors of the same shapes and dtypes. They travel over the CPU, as bytes.
        """
        if not self.several:
            return [list(tensors)]
        received: list[list[Tensor]] = [[] for _ in range(self.count if self.first else 0)]
        for tensor in tensors:
            mine = tensor.detach().cpu().contiguous()
            parts = [torch.empty_like(mine) for _ in received]
            with _detect_lost_rank():
                sent = mine.flatten().view(torch.uint8)
                dist.gather(sent, [part.flatten().view(torch.uint8) for part in parts] or None, group=self.slow_group)
            for found, part in zip(received, parts):
                found.append(part)
        return received

    @_detect_lost_rank()
    def agree(self, number: int) -> bool:
        """Whether all ranks gave the same number, of 63 bits at most."""
        if not self.several:
            return True
        numbers = torch.tensor([number, -number])
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=self.slow_group)
        return bool(numbers[0] == -numbers[1])

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace the tensors, in place, by their sums over all ranks."""
        self._send(tensors, lambda flat: dist.all_reduce(flat, async_op=True))

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Replace the tensors, in place, by those of the first rank."""
        self._send([tensor.detach() for tensor in tensors], lambda flat: dist.broadcast(flat, src=0, async_op=True))

    def _send(self, tensors: Sequence[Tensor], send: Callable[[Tensor], Any]) -> None:
        """Send few large messages instead of many small ones; start all of them before waiting for the first."""
        if not self.several:
            return
        pending = []
        for group in _group_messages(tensors):
            flat = torch.cat([tensor.flatten() for tensor in group])
            with _detect_lost_rank():
                pending.append((group, flat, send(flat)))
        for group, flat, work in pending:
            with _detect_lost_rank():
                work.wait()
            parts = flat.split([tensor.numel() for tensor in group])
            torch._foreach_copy_(group, [part.view_as(tensor) for part, tensor in zip(parts, group)])

    def claim_output(self) -> bool:
        """Whether this rank is the first to call this method: if several ranks fail together, only one prints why."""
        try:
            return not self.several or bool(self.store.add("regard/output", 1) == 1)
        except RuntimeError:  # torchrun itself has ended
            return self.first


ALONE = Ranks()


@contextmanager
def join_ranks() -> Iterator[Ranks]:
    """Connect the ranks that torchrun started, inside the block; ALONE if the process was not started by torchrun."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=STEP_TIMEOUT)))
        store = PrefixStore(_name_of_start(store, rank, count), store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=STEP_TIMEOUT)
        slow_groups = [dist.new_group(backend="gloo", timeout=EVALUATION_TIMEOUT)]
    except (RuntimeError, ValueError) as error:  # torch's own errors are subclasses of RuntimeError
        reason = str(error).partition("\n")[0]
        raise UserError(f"the {count} ranks cannot connect to each other: {reason}.") from error
    local, local_count = os.environ.get("LOCAL_RANK", rank), os.environ.get("LOCAL_WORLD_SIZE", count)
    yield Ranks(rank, count, int(local), int(local_count), slow_groups, store)
    # The threads of a group end with the last reference to it. One that still frees a tensor while Python ends would
    # abort the process. After a failure the other ranks may be gone, and the groups are left as they are.
    slow_groups.clear()
    dist.destroy_process_group()


def _name_of_start(store: Any, rank: int, count: int) -> str:
    """A name for this start of the ranks, the same on all of them and new for every start.

    When torchrun restarts the ranks, its store still has the keys of the start before. Ranks that read those would try
    to connect to processes that have ended. So every other rank writes a random word, and the first rank answers each
    word that it finds, until every rank has confirmed the name.
    """
    word = os.urandom(8).hex()
    if rank:
        store.set(f"regard/word/{rank}", word)
        name = store.get(f"regard/name/{word}").decode()  # waits for the answer
        store.set(f"regard/{name}/{rank}", "")
        return name
    waiting, until = [*range(1, count)], time.monotonic() + STEP_TIMEOUT.total_seconds()
    while waiting:
        for other in waiting:
            if store.check([key := f"regard/word/{other}"]):  # the word may be that of a process that has ended
                store.set(f"regard/name/{store.get(key).decode()}", word)
        waiting = [other for other in waiting if not store.check([f"regard/{word}/{other}"])]
        if time.monotonic() > until:
            raise RuntimeError(f"rank {waiting[0]} did not answer")
        time.sleep(0.01)
    return word


def _group_messages(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group tensors, in order, into messages of at most MESSAGE numbers and one dtype each."""
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
