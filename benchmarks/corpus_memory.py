"""How many bytes of memory a training corpus takes for each of its tokens, from the process that holds it.

A made parallel corpus (two plain files, one example a line) is prepared as a run prepares it: read, encoded, and the
batches of the first epoch planned, with `prepare`. Each figure is a growth of the process divided by the number of
tokens on both sides, special tokens not counted:

- `corpus and plan`: what the batches alone hold: the encoded corpus and the plan of the first epoch;
- `everything`: that, and all else that `prepare` returns, such as the validation examples. The training examples
  are not among it: their text is dropped once it is encoded;
- `peak`: the most that the process grew by at any moment on the way.

Each is read after the garbage collector has run. `as left` is the process as it then is, with freed memory that it has
not given back to the system; `in use` is after giving that back (`malloc_trim`). The two are taken in processes of
their own.

The tokenizers are trained in a process of their own. The measured process reads them and prepares the first hundred
lines twice before the baseline is taken, so that neither imports, nor tokenizers, nor the first use of a library count.
Figures are given for RssAnon (memory of the process itself) and VmRSS (with the pages of mapped files) of
/proc/self/status, so that this runs on Linux only.

    python benchmarks/corpus_memory.py                      # 2 million tokens
    python benchmarks/corpus_memory.py --tokens 8000000 --json
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import override
from regard.data.batches import Batches
from regard.data.fields import encode
from regard.recipes import KINDS, Recipe, find_recipe
from regard.stored import field_path, read_fields
from regard.tasks import TASKS
from regard.training.prepare import prepare

SEED = 7
SHORTEST, LONGEST = 15, 45  # tokens of a side: 30 on average
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
WARM_UP = 100  # examples that are prepared before the baseline is taken
KINDS_OF_MEMORY = ("RssAnon", "VmRSS")


def made_words(count: int, rng: np.random.Generator) -> list[str]:
    """So many different words of two to nine letters."""
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(rng.choice(LETTERS, rng.integers(2, 10)))] = None
    return list(words)


def write_corpus(folder: Path, tokens: int, words: int) -> None:
    """Write `all.src` and `all.tgt`, with so many tokens together, and the same for the first hundred lines."""
    rng = np.random.default_rng(SEED)
    known = made_words(words, rng)
    frequencies = 1 / np.arange(1, words + 1)  # Zipf's law
    pairs = round(tokens / (SHORTEST + LONGEST))
    for side in ("src", "tgt"):
        lengths = rng.integers(SHORTEST, LONGEST + 1, pairs)
        drawn = rng.choice(words, int(lengths.sum()), p=frequencies / frequencies.sum())
        lines = [" ".join(known[word] for word in line) for line in np.split(drawn, np.cumsum(lengths)[:-1])]
        (folder / f"all.{side}").write_text("\n".join(lines) + "\n")
        (folder / f"few.{side}").write_text("\n".join(lines[:WARM_UP]) + "\n")


def recipe_for(folder: Path, name: str, vocab: int, kind: str) -> Recipe:
    """A recipe that translates the files of this name; the first hundred lines are its validation set."""
    files = {part: f"{folder}/{stem}.src,{folder}/{stem}.tgt" for part, stem in (("train", name), ("valid", "few"))}
    settings = [f"data.{part}={given}" for part, given in files.items()]
    settings += [f"data.vocab={vocab}", f"data.source_tokens={kind}", f"data.target_tokens={kind}", "plan.device=cpu"]
    return override(find_recipe("translate"), settings, KINDS)


def train_tokenizers(folder: Path, vocab: int, kind: str) -> None:
    """Leave the fields of the whole corpus in the folder, where `prepare` looks for those of a saved step."""
    prepared = prepare(recipe_for(folder, "all", vocab, kind))
    (folder / "fields").mkdir()
    for name, field in prepared.fields.items():
        field.save(field_path(folder, name))


def memory(trim: bool) -> dict[str, int]:
    """The bytes of the process now; with `trim`, after freed memory has been given back to the system."""
    gc.collect()
    if trim:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    status = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[2:] == ["kB"]}
    return {name: status[name] for name in (*KINDS_OF_MEMORY, "VmHWM")}


def measure(folder: Path, vocab: int, kind: str, trim: bool, answer: Any) -> None:
    """Prepare the corpus in this process, and send the growth of each kind of memory in bytes per token."""
    warm = prepare(recipe_for(folder, "few", vocab, kind), folder)
    del warm  # what its tokenizers took is used again
    warm = prepare(recipe_for(folder, "few", vocab, kind), folder)
    before = memory(trim)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    del warm  # its tokenizers make room for those that are read next
    prepared = prepare(recipe_for(folder, "all", vocab, kind), folder)
    everything = memory(trim)
    pairs = prepared.examples
    batches, fields = prepared.batches, prepared.fields
    del prepared  # but not the tokenizers, which the baseline holds too
    alone = memory(trim)
    tokens = sum(
        len(ids)
        for side, field in zip(("src", "tgt"), fields.values())
        for ids in field.encode((folder / f"all.{side}").read_text().splitlines())
    )
    state = "in use" if trim else "as left"
    taken = {f"corpus and plan, {state}": alone, f"everything, {state}": everything}
    growth = {name: {key: (at[key] - before[key]) / tokens for key in KINDS_OF_MEMORY} for name, at in taken.items()}
    if not trim:  # the system keeps the peak of VmRSS alone
        growth["peak"] = {"VmRSS": (everything["VmHWM"] - before["VmRSS"]) / tokens}
    sizes = {
        "tokens": tokens,
        "pairs": pairs,
        "vocabulary": max(field.size for field in fields.values()),
        "batches": len(batches),
    }
    answer.send({**sizes, "bytes of text per token": _text_bytes(folder) / tokens, "bytes per token": growth})


def measure_encoding(folder: Path, vocab: int, kind: str, trim: bool, answer: Any) -> None:
    """The same with the examples already in memory: encoding them and the plan of the first epoch alone."""
    recipe = recipe_for(folder, "all", vocab, kind)
    fields = read_fields(folder, TASKS["translate"])
    examples = recipe.data.load().train
    Batches(encode(fields, examples[:WARM_UP]), TASKS["translate"], recipe.plan.batch_tokens, 1).batch(0)
    before = memory(trim)
    columns = encode(fields, examples)
    batches = Batches(columns, TASKS["translate"], recipe.plan.batch_tokens, 1)
    after = memory(trim)
    tokens = sum(len(column.values) for column in columns.values())
    assert len(batches)
    growth = {key: (after[key] - before[key]) / tokens for key in KINDS_OF_MEMORY}
    answer.send({"bytes per token": {"encoding and plan, as left": growth}})


def _text_bytes(folder: Path) -> int:
    return sum((folder / f"all.{side}").stat().st_size for side in ("src", "tgt"))


def in_a_process(target: Any, *arguments: Any) -> None:
    """Call a function in a fresh process, and fail if it does."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{target.__name__} failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2_000_000, help="of both sides together, as words")
    parser.add_argument("--words", type=int, default=30_000, help="different words that the text is made of")
    parser.add_argument("--vocab", type=int, default=32_000, help="the most tokens of a side, at most 65,536")
    parser.add_argument("--kind", choices=("word", "bpe"), default="word", help="what the text is cut into")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.vocab > 2**16:
        parser.error("--vocab: at most 65,536")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, given.tokens, given.words)
        in_a_process(train_tokenizers, folder, given.vocab, given.kind)
        receive, send = multiprocessing.Pipe(duplex=False)
        growth: dict[str, dict[str, float]] = {}
        for trim in (True, False):
            in_a_process(measure, folder, given.vocab, given.kind, trim, send)
            found = receive.recv()
            growth |= found["bytes per token"]
        in_a_process(measure_encoding, folder, given.vocab, given.kind, False, send)
        found["bytes per token"] = growth | receive.recv()["bytes per token"]
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{found['tokens']:,} tokens in {found['pairs']:,} pairs, vocabulary {found['vocabulary']:,}, "
        f"{found['batches']:,} batches an epoch, {found['bytes of text per token']:.1f} bytes of text per token"
    )
    print(f"{'bytes per token':26}" + "".join(f"{kind:>10}" for kind in KINDS_OF_MEMORY))
    for name, growth in found["bytes per token"].items():
        cells = (f"{growth[kind]:10.1f}" if kind in growth else f"{'':10}" for kind in KINDS_OF_MEMORY)
        print(f"{name:26}" + "".join(cells))


if __name__ == "__main__":
    main()
