"""Trains the models that come with regard, writes them into src/regard/shipped/, and measures them.

    make models                                   all of them: about half an hour on two CPU cores
    python benchmarks/models.py dates stories     some of them
    python benchmarks/models.py --measure         nothing is trained: the figures of the models that are there

Every model is trained from a recipe with a fixed seed and one thread, so that the same command gives the same bytes on
the same machine with the same torch. Weights are rounded to float16 when they are written, and the figures are those of
the rounded weights, on the test examples.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard import Loaded, Run, load
from regard.checkpoint import resolve, save_step
from regard.file_io import check_finite, read_bytes, save_tensors, write_json
from regard.recipes import KINDS, change, find_recipe
from regard.shipped import HERE, SHIPPED
from regard.stored import MODEL, WEIGHTS, recipe_content, stored_weights
from regard.training.evaluate import evaluate


@dataclass(frozen=True)
class Made:
    """How a model is trained, and what is measured."""

    recipe: str
    settings: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("exact",)
    beside: tuple[str, ...] = ()  # a recipe and its settings: a simpler model that is measured on the same examples


ALL = ("plan.threads=1", "plan.device=cpu", "plan.precision=float32", "plan.seed=1")
MADE = {
    "dates": Made("dates", ("plan.steps=900", "plan.evaluate=300"), ("exact", "alignment")),
    "dates-plain": Made("dates", ("plan.steps=900", "plan.evaluate=300", "model.decoder=once")),
    "french": Made("french", (), ("exact", "alignment", "aer")),
    "stories": Made("stories", (), ("perplexity",), ("bigram", "data=stories")),
    "blanks": Made("stories", ("model=bert",), ("perplexity", "filled")),
    "scenes": Made("scenes", ("model.width=96", "model.embed=32", "plan.evaluate=500"), ("exact", "pointing")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the models; all if none is named")
    parser.add_argument("--measure", action="store_true", help="measure the models that are there; train nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/models"), help="where the runs are written")
    parser.add_argument("--out", type=Path, default=HERE, help="where the models are written")
    args = parser.parse_args()
    for name in args.names:
        if name not in MADE:
            parser.error(f"{name}: no such model; give some of {', '.join(MADE)}")
    rows = []
    for name in args.names or MADE:
        minutes = "" if args.measure else f"{trained(name, args.runs / name) / 60:.1f}"
        if not args.measure:
            ship(args.runs / name, args.out / name)
        rows.append([name, *measured(name, args.out / name), minutes])
        print("|", " | ".join(rows[-1]), "|", flush=True)
    print("| model | parameters | bytes | figures | CPU minutes |")
    print("|---|---:|---:|---|---:|")
    for row in rows:
        print("|", " | ".join(row), "|")
    print(f"All {len(SHIPPED)} models: {size(args.out):,} bytes.")


def trained(name: str, out: Path, more: tuple[str, ...] = ()) -> float:
    """Train a model; the seconds that it took one core. A run that is there is replaced."""
    made = MADE[name]
    recipe = change(find_recipe(made.recipe), [*made.settings, *ALL, *more], KINDS)
    began = time.process_time()
    for event in Run(recipe, out, existing="overwrite" if out.exists() else "refuse"):
        if type(event).__name__ == "Evaluated":
            print(f"{name}: {event}", flush=True)
    return time.process_time() - began


def ship(run: Path, out: Path) -> None:
    """Write the best step of a run, its weights rounded to float16, as a run that has nothing else."""
    step = resolve(run)
    weights = {
        weight: tensor.to(torch.float16) if tensor.is_floating_point() else tensor
        for weight, tensor in stored_weights(step).items()
    }
    check_finite(weights, run)  # a weight beyond 65,504 would be infinite
    fields = {f"fields/{path.name}": read_bytes(path) for path in sorted((step / "fields").iterdir())}
    if out.exists():
        recipe_content(out)  # refuses to replace what is no run
        shutil.rmtree(out)
    out.mkdir(parents=True)
    files = {MODEL: read_bytes(step / MODEL), WEIGHTS: lambda path: save_tensors(path, weights), **fields}
    save_step(out, int(step.name), files, keep=1)
    recipe = {key: value for key, value in recipe_content(run)[0].items() if key != "asked"}
    write_json(out / "recipe.json", recipe)


def measured(name: str, path: Path) -> list[str]:
    """The parameters, the bytes and the figures of a model."""
    model = load(path, "cpu")
    made, (_, examples) = MADE[name], model.examples()
    figures = figures_of(model, examples, made.metrics)
    if made.beside:
        with TemporaryDirectory() as folder:
            recipe = change(find_recipe(made.beside[0]), [*made.beside[1:], *ALL], KINDS)
            for _ in Run(recipe, Path(folder) / "run"):
                pass
            other = load(Path(folder) / "run", "cpu")
        figures += f" ({made.beside[0]}: {figures_of(other, examples, made.metrics)})"
    return [f"{model.parameter_count:,}", f"{size(path):,}", figures]


def figures_of(model: Loaded, examples: Sequence[Any], metrics: tuple[str, ...]) -> str:
    """The figures of a model as text."""
    scores = evaluate(model, examples, metrics).values
    return ", ".join(f"{model.metrics[key].title} {model.metrics[key].show(value)}" for key, value in scores.items())


def size(folder: Path) -> int:
    """The bytes of all files below a folder, without those of Python."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "py" not in file.suffix)


if __name__ == "__main__":
    main()
