"""Tokens per second of the LSTM of AWD-LSTM in training, with weight drop and without it, in one process.

Weight drop zeroes entries of the hidden-to-hidden matrices once per batch, and the fused kernels of torch run over the
result. Both models are the same and take turns, batch by batch. On a CPU the time is that of the process, so that other
load on the machine does not count. The first batches, which select kernels, are not counted.

    python benchmarks/awd_lstm.py
    python benchmarks/awd_lstm.py --device cuda --rows 80 --batches 50 --precision bf16
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace

import torch

from regard.data.batches import Batch
from regard.device import autocast, choose_device
from regard.objectives.objective import LossModule
from regard.recipes import find_recipe

WARMUPS = 2
VOCAB = 33_278  # of WikiText-2
LEAST = 0.7  # the part of the speed that must be left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16"))
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--window", type=int, default=70)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    given = parser.parse_args()
    recipe, device = find_recipe("awd-lstm"), choose_device(given.device)
    dropped = replace(recipe.model, vocab=given.vocab)
    modules = {
        name: LossModule(config.build(), recipe.objective).to(device).train()
        for name, config in {"weight drop": dropped, "without": replace(dropped, weight_drop=0.0)}.items()
    }
    tokens = torch.randint(4, given.vocab, (given.rows, given.window + 1))
    real = torch.ones(given.rows, given.window, dtype=torch.bool)
    count = real.numel()
    fields = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    batch = Batch(fields, {"tokens": real}, {"tokens": count, "targets": count}, segment=0).to(device)
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(WARMUPS + given.batches):
        for name, module in modules.items():
            synchronise(device)
            began = clock()
            with autocast(given.precision, device):
                sums, _ = module(batch, 0, None)
            (sums / count).sum().backward()
            synchronise(device)
            seconds[name].append(clock() - began)
    speeds = {name: count / statistics.median(times[WARMUPS:]) for name, times in seconds.items()}
    ratio = speeds["weight drop"] / speeds["without"]
    print(json.dumps({"tokens_per_second": speeds, "ratio": round(ratio, 3), "least": LEAST, **vars(given)}))
    return int(ratio < LEAST)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    raise SystemExit(main())
