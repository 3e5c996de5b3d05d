"""What a carried state is worth: the validation loss of language models that read contiguous text in short segments.

`xl` trains Transformer-XL (Dai et al. 2019) with memories of several lengths. `recurrent` trains an LSTM, RNN or GRU
with and without a carried state, and evaluates each of the models both ways. All runs have the same seed, settings
and number of steps. Settings that follow change the recipe; without any, Shakespeare's plays are read by characters and
a run takes about a minute on a CPU.

    python benchmarks/carried.py xl
    python benchmarks/carried.py recurrent model.cell=gru
    python benchmarks/carried.py xl --memories 0,64,256 data.train=FILE data.tokens=word data.window=64
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from regard import Run, load
from regard.config import Kinds, override
from regard.data.batches import Batch
from regard.models import GptConfig
from regard.objectives import TeacherForcing
from regard.objectives.objective import Sums
from regard.recipes import KINDS, find_recipe
from regard.training.evaluate import evaluate
from regard.training.events import Evaluated

SMALL = {
    "data": "shakespeare",
    "data.window": "32",
    "data.order": "contiguous",
    "plan.steps": "1000",
    "plan.evaluate": "500",
    "plan.batch_tokens": "512",
    "plan.rate": "1e-2",
}
XL = {
    "model": "gpt",
    "model.positions": "xl",
    "model.width": "64",
    "model.heads": "4",
    "model.layers": "2",
    "model.inner": "256",
    "model.dropout": "0",
    "plan.rate": "3e-3",
}
RECURRENT = {
    "model": "lstm",
    "model.cell": "lstm",
    "model.width": "128",
    "model.embed": "64",
    "model.layers": "1",
    "model.dropout": "0",
}
WAYS = {  # how a recurrent model is trained
    "carried state": {},
    "fresh state, the same windows": {"objective": "fresh"},
    "fresh state, random windows": {"data.order": "random"},
}


@dataclass(frozen=True)
class FreshStart(TeacherForcing):
    """Teacher forcing that starts each window of contiguous text from a fresh state."""

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, Any]:
        return super().__call__(model, batch, step, own)


@dataclass(frozen=True)
class NoMemory(GptConfig):
    """Transformer-XL that carries a memory of 0 tokens: each segment of contiguous text starts afresh."""

    @property
    def carries(self) -> bool:
        return True


MINE: Kinds = {
    **KINDS,
    "model": {**KINDS["model"], "no-memory": NoMemory},
    "objective": {**KINDS["objective"], "fresh": FreshStart},
}


def trained(settings: dict[str, str], out: Path) -> dict[str, Any]:
    """Train a recipe as `regard train text` does; return its lowest validation loss and its time."""
    recipe = override(find_recipe("text"), [f"{name}={value}" for name, value in settings.items()], MINE)
    began = time.perf_counter()
    losses = {
        event.step: event.values["loss"] for event in Run(recipe, out, kinds=MINE) if isinstance(event, Evaluated)
    }
    return {"loss": min(losses.values()), "losses": losses, "seconds": time.perf_counter() - began}


def memories(lengths: list[int], settings: dict[str, str], folder: Path) -> Iterator[dict[str, Any]]:
    """Transformer-XL with each length of memory; with 0, a segment sees itself alone."""
    for length in lengths:
        model = XL if length else {**XL, "model": "no-memory"}
        found = trained({**SMALL, **model, **settings, "model.memory": str(length)}, folder / str(length))
        yield {"memory": length, **found}


def states(settings: dict[str, str], folder: Path) -> Iterator[dict[str, Any]]:
    """A recurrent model, trained with a carried state and without one, and evaluated both ways."""
    for number, (way, changes) in enumerate(WAYS.items()):
        out = folder / str(number)
        found = trained({**SMALL, **RECURRENT, **settings, **changes}, out)
        model = load(out, kinds=MINE)
        assert model.recipe is not None
        data: Any = model.recipe.data
        valid, losses = data.load().valid, {}
        for order in ("contiguous", "random"):
            recipe = replace(model.recipe, data=replace(data, order=order))
            losses[order] = evaluate(replace(model, recipe=recipe), valid, ("loss",)).values["loss"]
        yield {"trained": way, "carried": losses["contiguous"], "fresh": losses["random"], "seconds": found["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("xl", "recurrent"))
    parser.add_argument("settings", nargs="*", help="settings of the recipe, such as plan.steps=4000")
    parser.add_argument("--memories", default="0,16,32,64,128", help="of xl: lengths in tokens")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_intermixed_args()
    settings = dict(setting.partition("=")[::2] for setting in given.settings)
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "xl":
            results = memories([int(length) for length in given.memories.split(",")], settings, Path(folder))
        else:
            results = states(settings, Path(folder))
        for result in results:
            if given.json:
                print(json.dumps(result), flush=True)
            elif given.what == "xl":
                line = "memory {memory:5}   validation loss {loss:.4f}   {seconds:6.1f} s"
                print(line.format(**result), flush=True)
            else:
                line = "trained with {trained:30}   loss carried {carried:.4f}, fresh {fresh:.4f}   {seconds:6.1f} s"
                print(line.format(**result), flush=True)


if __name__ == "__main__":
    main()
