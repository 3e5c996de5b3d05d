"""Additive attention, softmax(wᵀ tanh(q + k)) @ v: our fused kernels against the formula, eager and compiled.

Every side runs in this one process on the same numbers, in bfloat16; torch's fused dot-product attention stands beside
them for scale. "step" is one step of a recurrent decoder, 32 of them captured in a CUDA graph, a step's share given.

    python benchmarks/additive.py                  # needs a GPU
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.additive_triton import additive_attend

ROWS, WIDTH = 128, 64  # 16 sentences of 8 heads
STEPS, STEP = 32, (256, 32, 512)  # a decoder's steps; rows, keys, width
Read = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def formula(q: Tensor, k: Tensor, w: Tensor, v: Tensor) -> Tensor:
    logits = torch.tanh(q[:, :, None] + k[:, None]) @ w.to(q.dtype)
    return logits.float().softmax(-1).to(v.dtype) @ v


def fused(q: Tensor, k: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return additive_attend(q, k, w, v, None)


def dot(q: Tensor, k: Tensor, w: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.unflatten(0, (-1, 8)) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).flatten(0, 1)


def made(rows: int, queries: int, keys: int, width: int) -> tuple[list[Tensor], Tensor]:
    """q, k, w, v and the gradient that comes back."""
    q, k, v, upstream = (
        torch.randn(rows, length, width, device="cuda", dtype=torch.bfloat16)
        for length in (queries, keys, keys, queries)
    )
    w = torch.randn(width, device="cuda") / width**0.5
    return [x.requires_grad_() for x in (q, k, w, v)], upstream


def milliseconds(work: Callable[[], object], times: int) -> float:
    """The median of repeated runs, by the device's own clock."""
    took = []
    for _ in range(times + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end))
    return sorted(took[2:])[times // 2]


def both_ways(read: Read, inputs: list[Tensor], upstream: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(read(*inputs), inputs, upstream, allow_unused=True)


def measure(name: str, read: Read, length: int) -> None:
    inputs, upstream = made(ROWS, length, length, WIDTH)
    torch.cuda.empty_cache()
    try:
        with torch.no_grad():
            forward = milliseconds(lambda: read(*inputs), 5)
        torch.cuda.reset_peak_memory_stats()
        whole = milliseconds(both_ways(read, inputs, upstream), 5)
    except torch.OutOfMemoryError:
        return print(f"{name:9s} L={length:5d}  out of memory", flush=True)
    rate = ROWS * length**2 * WIDTH / forward / 1e9
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"{name:9s} L={length:5d}  forward {forward:8.2f} ms ({rate:5.2f}·10¹² terms/s)"
        f"  forward + backward {whole:8.2f} ms  {peak:6.2f} GiB",
        flush=True,
    )


def captured(work: Callable[[], object]) -> float:
    """Microseconds of one ``work`` among STEPS of them in a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(STEPS):
            work()
    return milliseconds(graph.replay, 20) / STEPS * 1000


def measure_step(name: str, read: Read) -> None:
    rows, keys, width = STEP
    inputs, upstream = made(rows, 1, keys, width)
    with torch.no_grad():
        forward = captured(lambda: read(*inputs))
    whole = captured(both_ways(read, inputs, upstream))
    print(f"{name:9s} step     forward {forward:8.2f} µs  forward + backward {whole:8.2f} µs", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    sides: dict[str, Read] = {"fused": fused, "dot": dot, "eager": formula}
    sides["compiled"] = torch.compile(formula, dynamic=False)
    parser.add_argument("--sides", nargs="+", choices=sides, default=list(sides))
    args = parser.parse_args()
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for name, read in ((name, sides[name]) for name in args.sides):
        for length in args.lengths:
            if length <= 2048 or name in ("fused", "dot"):  # the formula would need 200 GiB
                measure(name, read, length)
        if name != "dot":
            measure_step(name, read)


if __name__ == "__main__":
    main()
