"""Fine-tuning on sentence pairs, beside the Trainer of `transformers`: the same checkpoint, pairs, batches and steps.

    python benchmarks/finetuning.py DIR [--epochs 1] [--rows 32] [--pairs 0] [--device cpu] [--turns 1]
    python benchmarks/finetuning.py --size bert-base --device cuda

DIR is a BERT-like public checkpoint. With --size, a network of that published size with random weights is made instead;
its scores mean nothing, its speed does. The data is STS-B ($REGARD_DATA/stsb). Both sides train the whole network with
AdamW, a linear decay and a warm-up of a tenth, on a GPU in bf16, and pad to the longest pair of a batch. Ours has
batches of as many tokens as give the same number of steps. The time is that of the training steps, without loading,
encoding and evaluation. The score is Spearman's correlation on the development pairs after the last step.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.files import find_data
from regard.metrics import spearman
from regard.recipes import find_recipe
from regard.training.evaluate import evaluate
from regard.training.ladder.quality import evaluations, read_log
from regard.training.ladder.side_by_side import finish
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs.loaded import load

Pair = tuple[str, str, float]
RATE, WARMUP = 5e-5, 0.1


def pairs(part: str, most: int) -> list[Pair]:
    """The pairs of STS-B; `most` of 0: all."""
    with gzip.open(find_data(f"stsb/stsb-en-{part}.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        return [(first, second, float(number)) for first, second, number in csv.reader(file)][: most or None]


def random_checkpoint(size: str, place: Path) -> Path:
    """A network of a published size with random weights, and BERT's tokenizer."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    sizes = {"bert-tiny": (128, 2, 2, 512), "bert-base": (768, 12, 12, 3072), "bert-large": (1024, 24, 16, 4096)}
    width, layers, heads, inner = sizes[size]
    torch.manual_seed(0)
    config = BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner)
    BertModel(config).save_pretrained(place)
    with gzip.open(find_data("tokenizers/bert_uncased_vocab.txt.gz"), "rb") as words:
        (place / "vocab.txt").write_bytes(words.read())
    BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place)
    return place


def ours(
    checkpoint: Path, files: dict[str, Path], steps: int, epochs: float, seed: int, given: Any
) -> dict[str, float]:
    """Train as `regard train similarity from=DIR` does."""
    settings = [
        *(f"data.{part}={path}" for part, path in files.items()),
        *(f"plan.rate={RATE}", "plan.schedule=linear", f"plan.warmup={round(WARMUP * steps)}", f"plan.seed={seed}"),
        *("plan.epochs=none", f"plan.steps={steps}", f"plan.evaluate={steps}", f"plan.log={steps}", "plan.patience=0"),
        f"plan.device={given.device}",
    ]
    recipe, start = warm_started(find_recipe("similarity"), settings, warm_start_from(checkpoint), checkpoint)

    def batches(tokens: int) -> int:
        changed = replace(recipe, plan=replace(recipe.plan, batch_tokens=tokens))
        return len(prepare(changed, given=start).batches)

    low, high = (
        128,
        128 * given.rows,
    )  # the tokens of a batch that give as many batches in an epoch as the other side has
    while high - low > 32:
        middle = (low + high) // 2
        low, high = (middle, high) if batches(middle) > steps / epochs else (low, middle)
    with tempfile.TemporaryDirectory() as place:
        run = Run(replace(recipe, plan=replace(recipe.plan, batch_tokens=high)), Path(place) / "run", "refuse", start)
        finish(run)
        seconds = evaluations(read_log(run.out))[-1]["training"]
        found = evaluate(load(run.out, given.device), run.prepared.corpus.valid, ("spearman",))
    return {"seconds": seconds, "spearman": found.values["spearman"]}


def theirs(
    checkpoint: Path, train: list[Pair], valid: list[Pair], steps: int, seed: int, given: Any
) -> dict[str, float]:
    """Train with the Trainer of `transformers`."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=1)
    mean, deviation = np.mean([one[2] for one in train]), np.std([one[2] for one in train])

    def encoded(some: list[Pair]) -> list[dict[str, Any]]:
        found = tokenizer([one[0] for one in some], [one[1] for one in some], truncation=True)
        labels = [(one[2] - mean) / deviation for one in some]
        return [{**{name: found[name][at] for name in found}, "labels": label} for at, label in enumerate(labels)]

    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            place,
            per_device_train_batch_size=given.rows,
            max_steps=steps,
            learning_rate=RATE,
            warmup_steps=round(WARMUP * steps),
            lr_scheduler_type="linear",
            weight_decay=0.01,
            bf16=given.device != "cpu",
            use_cpu=given.device == "cpu",
            seed=seed,
            report_to=[],
            save_strategy="no",
            logging_steps=steps,
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, DataCollatorWithPadding(tokenizer), encoded(train))
        seconds = trainer.train().metrics["train_runtime"]
        found = trainer.predict(encoded(valid)).predictions
    return {
        "seconds": seconds,
        "spearman": spearman(np.asarray(found).reshape(-1), np.array([one[2] for one in valid])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument("--size", choices=("bert-tiny", "bert-base", "bert-large"))
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=32, help="pairs of a batch")
    parser.add_argument("--pairs", type=int, default=0, help="the most training pairs; 0: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--turns", type=int, default=1, help="both sides in turns, each with another seed")
    given = parser.parse_args()
    if (given.checkpoint is None) == (given.size is None):
        parser.error("give a checkpoint or --size")
    train, valid = pairs("train", given.pairs), pairs("dev", 0)
    steps = max(1, round(given.epochs * len(train) / given.rows))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        checkpoint = given.checkpoint or random_checkpoint(given.size, folder / "random")
        files = {"train": folder / "train.csv", "valid": folder / "dev.csv"}
        for path, some in zip(files.values(), (train, valid)):
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("first", "second", "number"), *some])
        print(f"{len(train):,} pairs, {steps} steps of about {given.rows} pairs, {given.device}")
        for seed in range(1, given.turns + 1):
            one = ours(checkpoint, files, steps, given.epochs, seed, given)
            other = theirs(checkpoint, train, valid, steps, seed, given)
            speeds = [steps * given.rows / each["seconds"] for each in (one, other)]
            print(
                f"seed {seed}: regard {speeds[0]:,.1f} pairs/s, Spearman {one['spearman']:.4f}; transformers "
                f"{speeds[1]:,.1f} pairs/s, {other['spearman']:.4f}; ratio {speeds[0] / speeds[1]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
