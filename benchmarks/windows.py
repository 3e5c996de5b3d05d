"""Self-attention through a window against full self-attention: how time and memory grow with length.

For each side the slope of log time over log length is printed: 1 is linear, 2 is quadratic. Forward and backward, in
one process, on the same numbers; memory is the peak above the inputs, on a GPU only.

    python benchmarks/windows.py                            # a few seconds on a CPU
    python benchmarks/windows.py --lengths 2048 4096 8192 16384 32768 --window 128 --json windows.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor

from regard.attention import attend
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.scores import ScaledDot


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(mask: Mask, inputs: list[Tensor], device: str, times: int) -> tuple[float, float]:
    """Seconds of one forward and backward pass, the median of several; peak bytes above what was there."""
    score, took = ScaledDot(inputs[0].shape[-1]), []
    for _ in range(times + 1):
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated() if device == "cuda" else 0
        start = now(device)
        torch.autograd.grad(attend(score, *inputs, mask).sum(), inputs)
        took.append(now(device) - start)
    peak = torch.cuda.max_memory_allocated() - held if device == "cuda" else math.nan
    return sorted(took[1:])[times // 2], peak


def slope(points: list[tuple[int, float]]) -> float:
    """Of the least-squares line through the logarithms."""
    x, y = (torch.tensor([p[i] for p in points], dtype=torch.float64).log() for i in (0, 1))
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--shape", type=int, nargs=3, default=[1, 4, 32], metavar=("ROWS", "HEADS", "WIDTH"))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    window, (rows, heads, width) = Mask(window=args.window), args.shape
    sides = {"full": EVERYTHING, "causal": CAUSAL, "window": window, "causal window": CAUSAL & window}
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    results = []
    for name, mask in sides.items():
        points = []
        for length in args.lengths:
            inputs = [torch.randn(rows, heads, length, width, device=args.device, dtype=dtype) for _ in range(3)]
            seconds, peak = measure(mask, [x.requires_grad_() for x in inputs], args.device, args.times)
            points.append((length, seconds))
            results.append(
                {"side": name, "length": length, "seconds": seconds, "bytes": None if math.isnan(peak) else peak}
            )
            print(f"{name:14s} T={length:6d}  {seconds * 1000:9.2f} ms  {peak / 2**20:9.1f} MiB", flush=True)
        last = slope(points[-2:])
        print(f"{name:14s} slope {slope(points):.2f}, of the last doubling {last:.2f}", flush=True)
    if args.json:
        report = {"torch": torch.__version__, "device": args.device, "window": args.window, "shape": args.shape}
        args.json.write_text(json.dumps({**report, "results": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
