"""Training speed of the attention decoders against the usual loop of one Python step per target token.

Every side runs in this one process on the same batch: forward, cross-entropy, backward, clipping, Adam. The usual loop
is what tutorials write: a GRU cell, the attention and the concatenations at every step, autograd over all of it (and
it is given what many of them lack: keys projected once per source, one readout for all steps).

    python benchmarks/decoders.py                  # the CPU, or the GPU if there is one
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.models import Seq2SeqConfig
from regard.objectives import TeacherForcing
from regard.objectives.objective import LossModule
from regard.recipes import Plan
from regard.training.loop import train

SIZES = {  # rows, source and target length, width, vocabulary
    "cpu": {"rows": 64, "length": 24, "width": 256, "vocab": 4000},
    "cuda": {"rows": 256, "length": 32, "width": 512, "vocab": 10000},
}


class UsualLoop(nn.Module):
    """GRU encoder, additive attention, GRU decoder: the way it is usually written."""

    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, width), nn.Embedding(vocab, width)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.start = nn.Linear(width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)
        self.cell = nn.GRUCell(2 * width, width)
        self.out, self.readout = nn.Linear(3 * width, width), nn.Linear(width, vocab)

    def forward(self, batch: Batch) -> Tensor:
        states, last = self.encoder(self.source(batch["source"]))
        hidden = torch.tanh(self.start(last.transpose(0, 1).flatten(1)))
        keys, features = self.key(states), []
        for token in self.target(batch["tokens"]).unbind(1):
            energy = self.energy(torch.tanh(self.query(hidden)[:, None] + keys)).squeeze(-1)
            weights = energy.masked_fill(~batch.real["source"], float("-inf")).softmax(-1)
            context = (weights.to(states.dtype)[:, None] @ states).squeeze(1)
            hidden = self.cell(torch.cat([token, context], -1), hidden)
            features.append(torch.tanh(self.out(torch.cat([hidden, context, token], -1))))
        return self.readout(torch.stack(features, 1))


class Same:
    """The same batch at every step."""

    def __init__(self, batch: Batch) -> None:
        self.one = batch

    def batch(self, step: int) -> Batch:
        return self.one


def make_batch(rows: int, length: int, vocab: int, device: str) -> Batch:
    ids = torch.randint(4, vocab, (3, rows, length), device=device)
    real = torch.ones(rows, length, dtype=torch.bool, device=device)
    names = ("tokens", "targets", "source")
    counts = dict.fromkeys(names, rows * length)
    return Batch(dict(zip(names, ids)), {"tokens": real, "source": real}, counts, list(range(rows)))


def usual(size: dict[str, int], batch: Batch, device: str) -> Callable[[], None]:
    model = UsualLoop(size["vocab"], size["width"]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits = model(batch)
        F.cross_entropy(logits.float().flatten(0, 1), batch["targets"].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def ours(
    size: dict[str, int], batch: Batch, device: str, decoder: str, score: str, capture: bool
) -> Callable[[], None]:
    config = Seq2SeqConfig(size["vocab"], size["vocab"], size["width"], size["width"], dropout=0.0)
    model = replace(config, decoder=decoder, score=score).build().to(device)
    steps = train(LossModule(model, TeacherForcing()), Same(batch), Plan(steps=10**9, capture=capture))
    return lambda: (next(steps), None)[1]


def seconds(step: Callable[[], None], device: str, budget: float) -> float:
    """The median time of a step."""
    for _ in range(5 if device == "cuda" else 2):
        step()
    times: list[float] = []
    while sum(times) < budget or len(times) < 5:
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds for each side")
    args = parser.parse_args()
    size = SIZES[args.device]
    torch.manual_seed(0)
    batch = make_batch(size["rows"], size["length"], size["vocab"], args.device)
    sides: dict[str, Callable[[], Callable[[], None]]] = {"usual loop": lambda: usual(size, batch, args.device)}
    for decoder, score in (
        ("bahdanau", "additive"),
        ("luong-feeding", "general"),
        ("luong", "general"),
        ("luong", "additive"),
    ):
        for capture in (False, True) if args.device == "cuda" else (False,):
            name = f"{decoder}, {score}" + (", captured" if capture else "")
            sides[name] = lambda d=decoder, s=score, c=capture: ours(size, batch, args.device, d, s, c)
    base, tokens = 0.0, size["rows"] * size["length"]
    print(json.dumps({"torch": torch.__version__, "device": args.device, "threads": torch.get_num_threads(), **size}))
    for name, make in sides.items():
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        time_ = seconds(make(), args.device, args.budget)
        base = base or time_
        peak = f"  {torch.cuda.max_memory_allocated() / 2**30:5.2f} GiB" if args.device == "cuda" else ""
        print(f"{name:34s} {tokens / time_:12,.0f} tokens/s  {base / time_:6.2f} × the usual loop{peak}", flush=True)


if __name__ == "__main__":
    main()
