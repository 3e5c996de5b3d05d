"""What looking costs: a forward pass of GPT-2 with nothing recorded, one layer recorded, and all of them.

With nothing recorded the pass is the fused one. A recorded layer computes its weights beside it, from the definition,
and carries them to the CPU.

    python benchmarks/recording.py                 # small sizes on a CPU; 512, 2,048 and 8,192 tokens on a GPU
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from regard.models import SIZES
from regard.recording import record

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


def measured(run: Callable[[], None], times: int) -> dict[str, float]:
    """The median time of some runs after one that warms up, and the most memory beyond what was there before."""
    run()
    if CUDA:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if CUDA else 0
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        if CUDA:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    found = {"milliseconds": 1000 * statistics.median(seconds)}
    if CUDA:
        found["MiB"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=[512, 2048, 8192] if CUDA else [128, 256, 512])
    parser.add_argument("--times", type=int, default=5 if CUDA else 3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    config = replace(SIZES["gpt2"], context=max(given.lengths))
    model = config.build().to(DEVICE, torch.bfloat16 if CUDA else torch.float32).eval()
    patterns: dict[str, Any] = {"nothing": None, "one layer": "stack.blocks.5.*", "all layers": "*"}
    results = []
    for length in given.lengths:
        tokens = torch.randint(0, config.vocab, (1, length), device=DEVICE)
        for what, pattern in patterns.items():

            def run(tokens: torch.Tensor = tokens, pattern: str | None = pattern, length: int = length) -> None:
                with torch.no_grad(), nullcontext() if pattern is None else record(model, pattern):
                    model.advance(tokens, model.start(rows=1, capacity=length))

            found = {"tokens": length, "recorded": what, **measured(run, given.times)}
            results.append(found)
            if not given.json:
                memory = f"{found['MiB']:10,.0f} MiB" if CUDA else ""
                print(f"{length:6,} tokens, {what:12} recorded {found['milliseconds']:10.1f} ms {memory}", flush=True)
    if given.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
