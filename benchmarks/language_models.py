"""Training of recurrent and convolutional language models: tokens per second against plain PyTorch loops, in one run.

`lstm` compares with the loop of the PyTorch example for word language models: `nn.Embedding`, `nn.LSTM`, a tied
`nn.Linear`, cross-entropy of all logits, clipping, the hidden state carried on. `tcn` compares with a
naive network: convolutions padded on both sides whose end is cut off, with torch's `weight_norm`. Both sides have the
same sizes, batches, optimiser (AdamW) and text of random words. They train in turns, and the medians are compared.

    python benchmarks/language_models.py lstm
    python benchmarks/language_models.py tcn --device cuda --width 650 --rows 20
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from regard.data.streams import Book
from regard.models import RecurrentLmConfig, TcnConfig
from regard.objectives import TeacherForcing
from regard.recipes import Plan, Recipe
from regard.training.prepare import prepare

KERNEL = 3


class PlainLstm(nn.Module):
    """The model of the PyTorch example: its output layer has the weights of the embedding."""

    def __init__(self, vocab: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, width, layers, dropout=dropout, batch_first=True)
        self.decoder = nn.Linear(width, vocab)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        x, state = self.rnn(self.drop(self.encoder(tokens)), state)
        return self.decoder(self.drop(x)), tuple(part.detach() for part in state)


class PlainBlock(nn.Module):
    """Two padded convolutions, each cut at its end, with a residual connection."""

    def __init__(self, width: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.cut = (KERNEL - 1) * dilation
        make: Callable[[], nn.Module] = lambda: weight_norm(  # noqa: E731
            nn.Conv1d(width, width, KERNEL, padding=self.cut, dilation=dilation)
        )
        self.first, self.second, self.dropout = make(), make(), nn.Dropout1d(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for convolution in (self.first, self.second):
            y = self.dropout(torch.relu(convolution(y)[:, :, : -self.cut].contiguous()))
        return torch.relu(x + y)


class PlainTcn(nn.Module):
    """A naive temporal convolutional network, with tied weights."""

    def __init__(self, vocab: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocab, width)
        self.blocks = nn.Sequential(*(PlainBlock(width, 2**level, dropout) for level in range(layers)))
        self.decoder = nn.Linear(width, vocab)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        x = self.blocks(self.drop(self.encoder(tokens)).transpose(1, 2)).transpose(1, 2)
        return self.decoder(self.drop(x)), None


def plain_steps(model: nn.Module, batches: Any, plan: Plan, device: torch.device) -> Iterator[None]:
    """The plain loop: forward, cross-entropy, backward, clipping, update."""
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), plan.rate, weight_decay=plan.decay)
    state, number = None, 0
    while True:
        batch = batches.batch(number)
        tokens, targets = batch["tokens"].to(device), batch["targets"].to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits, state = model(tokens, state)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimizer.step()
        number += 1
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=("lstm", "tcn"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--window", type=int, default=35)
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    sizes: dict[str, Any] = {"width": given.width, "embed": given.width, "layers": given.layers, "tied": True}
    config = RecurrentLmConfig(**sizes, dropout=0.5) if given.family == "lstm" else TcnConfig(**sizes, dropout=0.5)
    plain_type = PlainLstm if given.family == "lstm" else PlainTcn
    numbers = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text.txt"
        drawn = (f"w{int(given.words * numbers.random() ** 3)}" for _ in range(200_000))
        file.write_text(" ".join([*(f"w{n}" for n in range(given.words)), *drawn]), encoding="utf-8")
        plan = Plan(
            steps=10**6, batch_tokens=given.rows * given.window, clip=0.25, device=given.device, warmup=0, decay=0.0
        )
        data = Book(train=str(file), tokens="word", vocab=10**6, window=given.window, order="contiguous")
        prepared = prepare(Recipe("speed", "speed", data, config, TeacherForcing(), plan))
        trainer = prepared.trainer()
        plain = plain_type(prepared.config.token_vocab, given.width, given.layers, 0.5)
        loops = {"regard": trainer.steps(0), "plain": plain_steps(plain, prepared.batches, plan, prepared.device)}
        times: dict[str, list[float]] = {name: [] for name in loops}
        for turn in range(given.turns + 1):
            for name, loop in loops.items():
                began = time.perf_counter()
                for _ in range(given.steps):
                    next(loop)
                if prepared.device.type == "cuda":
                    torch.cuda.synchronize()
                if turn:  # the first turn warms up
                    times[name].append((time.perf_counter() - began) / given.steps)
    speeds = {name: given.rows * given.window / statistics.median(found) for name, found in times.items()}
    ratio = speeds["regard"] / speeds["plain"]
    figures = ", ".join(f"{name} {speed:,.0f} tokens/s" for name, speed in speeds.items())
    print(f"{given.family} on {given.device}: {figures}; ratio {ratio:.2f} (median of {given.turns} turns)")


if __name__ == "__main__":
    main()
