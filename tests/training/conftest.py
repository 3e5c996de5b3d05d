"""A recipe that trains in a second: short strings of letters, to be written backwards. CUDA graphs on a CPU."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.config import override
from regard.data.sources import Pairs
from regard.data.streams import Book
from regard.models import GptConfig, RecurrentLmConfig, Seq2SeqConfig
from regard.objectives import TeacherForcing
from regard.recipes import KINDS, Plan, Recipe
from regard.tensor_tree import tensors
from regard.training.capture import Graphs

LETTERS = "abcde"


def write_pairs(path: Path, count: int = 60) -> Path:
    """So many different words with their mirror images."""
    words = [a + b + c for a in LETTERS for b in LETTERS for c in LETTERS][:count]
    path.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    return path


@pytest.fixture
def recipe(tmp_path):
    """Settings may be given: recipe("plan.steps=4")."""
    path = write_pairs(tmp_path / "pairs.tsv")
    base = Recipe(
        name="tiny",
        data=Pairs(train=str(path), valid=str(path), source_tokens="char", target_tokens="char"),
        model=Seq2SeqConfig(width=16, embed=8, capacity=16, dropout=0.1),
        objective=TeacherForcing(),
        plan=Plan(
            steps=8, batch_tokens=160, rate=1e-2, warmup=2, evaluate=4, log=2, samples=10, threads=1, device="cpu"
        ),
        metrics=("exact",),
    )
    return lambda *settings: override(replace(base), settings, KINDS)


class Pretended:
    """What stands for a CUDA graph on a CPU: a replay runs what was captured again, on the tensors of that time."""

    def __init__(self) -> None:
        self.again = lambda: None
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        self.again()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch):
    """Makes `Graphs` of a step on a CPU, and the graphs that it captured."""
    made, capturing = [], []

    @contextlib.contextmanager
    def capture(graph, pool, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"  # other threads may allocate memory meanwhile
        made.append(graph)
        capturing.append(graph)
        yield
        capturing.pop()

    class Stream:
        def wait_stream(self, other):
            pass

    for name, value in {
        "CUDAGraph": Pretended,
        "Stream": Stream,
        "current_device": lambda: 0,
        "current_stream": Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "device": lambda device: contextlib.nullcontext(),
        "graph": capture,
        "graph_pool_handle": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr("regard.device._capture_stream", lambda device: Stream())  # without its cache

    def make(step, weights):
        def run(batch, number, factors, state):
            outputs = step(batch, factors, state)

            def again():
                for buffer, value in zip(tensors(outputs), tensors(step(batch, factors, state)), strict=True):
                    buffer.copy_(value)

            if capturing:
                capturing[-1].again = again
            return outputs

        return Graphs(run, weights), made

    return make


CARRYING = {
    "lstm": RecurrentLmConfig(cell="lstm", width=12, embed=8, dropout=0.1),
    "xl": GptConfig(width=8, heads=2, layers=2, inner=8, positions="xl", memory=12, dropout=0.1),
}


@pytest.fixture
def running(tmp_path):
    """A recipe for contiguous text and a model that carries its state: running("lstm", "plan.steps=4")."""
    path = tmp_path / "text.txt"
    path.write_text("".join(LETTERS[place * place % 31 % 5] for place in range(1500)))
    base = Recipe(
        name="running",
        data=Book(train=str(path), window=8, order="contiguous"),
        model=CARRYING["lstm"],
        objective=TeacherForcing(),
        plan=Plan(steps=8, batch_tokens=64, rate=1e-2, warmup=2, evaluate=4, log=2, threads=1, device="cpu"),
        metrics=("perplexity",),
    )
    return lambda model, *settings: override(replace(base, model=CARRYING[model]), settings, KINDS)
