"""Fine-tuning on sentence pairs, beside the Trainer of `transformers`: the same checkpoint, pairs and number of steps.

    python benchmarks/finetuning.py [DIR] [--epochs 3] [--rows 32] [--pairs 0] [--device cpu] [--turns 1]
    python benchmarks/finetuning.py --size bert-base --device cuda --turns 3

DIR is a BERT-like public checkpoint. Without it, a network of a published size (BERT-base) with random weights is made;
its scores mean nothing, its speed does. The data is STS-B ($REGARD_DATA/stsb). `accelerate` must be installed.

The same on both sides: the whole network is trained with fused AdamW (decay 0.01, clipped at norm 1), a linear decay of
the rate and a warm-up of a tenth, dropout as in the checkpoint, on a GPU in bf16; texts are encoded before the first
step; batches are padded dynamically. Different: theirs has batches of `--rows` random pairs, ours of pairs of similar
lengths, under the number of tokens that gives the same number of batches in an epoch. All else is each side's default:
ours captures CUDA graphs on a GPU, theirs runs eagerly (--compile compiles it).

The time is that of the training steps, without loading, encoding and evaluation, but with captures and compilation;
the ratio of the second half of the steps is without these. The ratio of the process's CPU time is that to trust on a
CPU that other processes use. The score is Spearman's correlation on the development pairs after the last step.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import random
import tempfile
import time
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batches import FILLER
from regard.data.files import find_data
from regard.metrics import spearman
from regard.recipes import find_recipe
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started

Pair = tuple[str, str, float]
RATE, WARMUP = 5e-5, 0.1
SIZES = {"bert-tiny": (128, 2, 2, 512), "bert-base": (768, 12, 12, 3072), "bert-large": (1024, 24, 16, 4096)}


def pairs(part: str, most: int) -> list[Pair]:
    """The pairs of STS-B, or `most` of them at random: the file is sorted by source, and the first ones are short."""
    with gzip.open(find_data(f"stsb/stsb-en-{part}.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        found = [(first, second, float(number)) for first, second, number in csv.reader(file)]
    return random.Random(0).sample(found, min(most, len(found))) if most else found


def random_checkpoint(size: str, place: Path) -> Path:
    """A network of a published size with random weights, and BERT's tokenizer."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    width, layers, heads, inner = SIZES[size]
    torch.manual_seed(0)
    config = BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner)
    BertModel(config).save_pretrained(place)
    with gzip.open(find_data("tokenizers/bert_uncased_vocab.txt.gz"), "rb") as words:
        (place / "vocab.txt").write_bytes(words.read())
    BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place)
    return place


@dataclass
class Side:
    """What one side did: the pairs and places that it read, the times at three steps, and its score."""

    name: str
    pairs: int = 0
    places: int = 0  # of the batches, padding included
    tokens: int = 0
    marks: list[tuple[float, float]] = field(default_factory=list)  # wall and CPU seconds: first, middle and last step
    spearman: float = math.nan

    def mark(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.marks.append((time.perf_counter(), time.process_time()))

    def seconds(self, first: int = 0, clock: int = 0) -> float:
        return self.marks[-1][clock] - self.marks[first][clock]

    def __str__(self) -> str:
        speed, padding = self.pairs / self.seconds(), 1 - self.tokens / self.places
        return f"{self.name} {speed:,.1f} pairs/s ({padding:.0%} padding), Spearman {self.spearman:.4f}"


def ours(checkpoint: Path, files: dict[str, Path], steps: int, seed: int, given: Any) -> Side:
    """Train as `regard train similarity from=DIR` does."""
    settings = [
        *(f"data.{part}={path}" for part, path in files.items()),
        *(f"plan.rate={RATE}", "plan.schedule=linear", f"plan.warmup={round(WARMUP * steps)}", f"plan.seed={seed}"),
        *("plan.epochs=none", f"plan.steps={steps}", f"plan.device={given.device}"),
    ]
    recipe, start = warm_started(find_recipe("similarity"), settings, warm_start_from(checkpoint), checkpoint)

    def with_budget(tokens: int) -> Any:
        return replace(recipe, plan=replace(recipe.plan, batch_tokens=tokens))

    budgets = range(128, 512 * given.rows, 32)
    batches = round(steps / given.epochs)
    at = bisect_left(budgets, -batches, key=lambda tokens: -len(prepare(with_budget(tokens), given=start).batches))
    side = Side("regard")
    with tempfile.TemporaryDirectory() as place:
        run = Run(with_budget(budgets[at]), Path(place) / "run", init=start)
        for number in range(steps):
            batch = run.prepared.batches.batch(number)
            side.pairs += sum(row != FILLER for row in batch.rows)
            side.places += batch["tokens"].numel()
            side.tokens += batch.counts["tokens"]
        side.mark()
        for step in run.trainer.steps(0):
            if step.n == steps // 2:
                side.mark()
        side.mark()
        side.spearman = run.evaluate().values["spearman"]
    return side


def theirs(checkpoint: Path, train: list[Pair], valid: list[Pair], steps: int, seed: int, given: Any) -> Side:
    """Train with the Trainer of `transformers`."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        logging,
    )

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    side = Side("transformers")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=1)
    mean, deviation = np.mean([one[2] for one in train]), np.std([one[2] for one in train])

    def encoded(some: list[Pair]) -> list[dict[str, Any]]:
        found = tokenizer([one[0] for one in some], [one[1] for one in some], truncation=True)
        labels = [float((one[2] - mean) / deviation) for one in some]  # a numpy float would be float64 for torch
        return [{**{name: found[name][at] for name in found}, "labels": label} for at, label in enumerate(labels)]

    pad = DataCollatorWithPadding(tokenizer)

    def collate(rows: list[dict[str, Any]]) -> Any:
        batch = pad(rows)
        if len(side.marks) < 3:  # a batch of training
            side.pairs += len(rows)
            side.places += batch["input_ids"].numel()
            side.tokens += sum(len(row["input_ids"]) for row in rows)
        return batch

    class Marks(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            side.mark()

        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step == steps // 2:
                side.mark()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            side.mark()

    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            place,
            per_device_train_batch_size=given.rows,
            max_steps=steps,
            learning_rate=RATE,
            warmup_steps=round(WARMUP * steps),
            lr_scheduler_type="linear",
            weight_decay=0.01,
            optim="adamw_torch_fused",
            torch_compile=given.compile,
            bf16=given.device != "cpu",
            use_cpu=given.device == "cpu",
            seed=seed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, collate, encoded(train), callbacks=[Marks()])
        trainer.train()
        found = trainer.predict(encoded(valid)).predictions
    side.spearman = spearman(np.asarray(found).reshape(-1), np.array([one[2] for one in valid]))
    return side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument(
        "--size", choices=SIZES, default="bert-base", help="of the random network, without a checkpoint"
    )
    parser.add_argument("--epochs", type=float, default=3.0, help="3: as `regard train` and BERT (Devlin 2019)")
    parser.add_argument("--rows", type=int, default=32, help="pairs of a batch")
    parser.add_argument("--pairs", type=int, default=0, help="the most training pairs; 0: all")
    parser.add_argument("--dev", type=int, default=0, help="the most development pairs; 0: all")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="the Trainer compiles its network")
    parser.add_argument("--turns", type=int, default=1, help="both sides in turns, each with another seed")
    given = parser.parse_args()
    train, valid = pairs("train", given.pairs), pairs("dev", given.dev)
    steps = max(2, round(given.epochs * math.ceil(len(train) / given.rows)))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        checkpoint = given.checkpoint or random_checkpoint(given.size, folder / "random")
        files = {"train": folder / "train.csv", "valid": folder / "dev.csv"}
        for path, some in zip(files.values(), (train, valid)):
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("first", "second", "number"), *some])
        name = given.checkpoint or f"{given.size} with random weights"
        threads = f", {torch.get_num_threads()} threads" if given.device == "cpu" else ""
        print(f"{name}: {len(train):,} pairs, {steps} steps of about {given.rows} pairs, {given.device}{threads}")
        for seed in range(1, given.turns + 1):
            one = ours(checkpoint, files, steps, seed, given)
            other = theirs(checkpoint, train, valid, steps, seed, given)
            ratio, second, cpu = (
                (other.seconds(first, clock) / other.pairs) / (one.seconds(first, clock) / one.pairs)
                for first, clock in ((0, 0), (1, 0), (0, 1))
            )
            print(
                f"seed {seed}: {one}; {other}; ratio {ratio:.2f}, of the second half {second:.2f}"
                + (f", of CPU time {cpu:.2f}" if given.device == "cpu" else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
