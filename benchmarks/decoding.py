"""Decoding speed of GPT-2 and of the Transformer against their peers, side by side: tokens a second.

Every side has random weights and says a fixed number of tokens (nobody may stop early). On a CPU each has a process of
its own, and they take turns: threads of one library that still wait for work would otherwise slow down the next.

    python benchmarks/decoding.py                       # a GPU: bf16, GPT-2 124M and Transformer-base
    python benchmarks/decoding.py --work translate      # a CPU: float32, vocabulary 8k, against HF and CTranslate2
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.decode import CapturedDecoder, Penalty, beam, collect, greedy, stream, with_onednn
from regard.models import SIZES
from regard.pretrained import write_model
from regard.training.loop import compile_blocks

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPE = torch.bfloat16 if CUDA else torch.float32
THREADS = torch.get_num_threads()
NEVER = -1  # a token that nobody says


Make = Callable[[], Callable[[], int]]  # makes a side: a call that says tokens, and returns how many


def timed(sides: dict[str, Make], times: int) -> dict[str, float]:
    """Tokens a second of each side: the best of some rounds, in which they take turns, after one that warms up."""
    ready = {side: speed_of(make()) if CUDA else Apart(make) for side, make in sides.items()}
    rounds = [{side: run() for side, run in ready.items()} for _ in range(times + 1)]
    return {side: max(found[side] for found in rounds[1:]) for side in sides}


def speed_of(run: Callable[[], int]) -> Callable[[], float]:
    def speed() -> float:
        if CUDA:
            torch.cuda.synchronize()
        began = time.perf_counter()
        tokens = run()
        if CUDA:
            torch.cuda.synchronize()
        return tokens / (time.perf_counter() - began)

    return speed


class Apart:
    """A side in a process of its own, which sleeps until it is asked for its speed."""

    def __init__(self, make: Make) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        context.Process(target=serve, args=(make, theirs), daemon=True).start()

    def __call__(self) -> float:
        self._ours.send(None)
        return float(self._ours.recv())


def serve(make: Make, asked: Any) -> None:
    speed = speed_of(make())
    with suppress(EOFError):  # until nobody asks any more
        while True:
            asked.recv()
            asked.send(speed())


@torch.no_grad()
def language(rows: int, length: int, compile: bool) -> Callable[[], int]:
    """GPT-2, greedy, after a prompt of 8 tokens."""
    model = SIZES["gpt2"].build().to(DEVICE, DTYPE).eval()
    if compile:
        compile_blocks(model)
    decoder: Any = CapturedDecoder(model) if CUDA else model if compile else with_onednn(model)
    prompt = torch.randint(0, 50000, (rows, 8), device=DEVICE)

    def run() -> int:
        with torch.no_grad():
            state = model.start(rows=rows, capacity=8 + length)
            said, _ = collect(stream(decoder, state, prompt, greedy, length, NEVER))
        return said.numel()

    return run


def hf_language(rows: int, length: int, cache: str | None) -> Callable[[], int]:
    import transformers as peer

    model = peer.GPT2LMHeadModel(peer.GPT2Config(bos_token_id=0, eos_token_id=0)).to(DEVICE, DTYPE).eval()
    prompt = torch.randint(0, 50000, (rows, 8), device=DEVICE)
    given: dict[str, Any] = {"do_sample": False, "min_new_tokens": length, "max_new_tokens": length, "pad_token_id": 0}
    if cache:
        given["cache_implementation"] = cache

    def run() -> int:
        with torch.no_grad():
            return model.generate(prompt, attention_mask=torch.ones_like(prompt), **given)[:, 8:].numel()

    return run


def translator(vocab: int) -> Any:
    config = replace(SIZES["marian-base"], source_vocab=vocab, target_vocab=vocab)
    torch.manual_seed(1)
    return config.build().to(DEVICE, DTYPE).eval()


def translation(vocab: int, rows: int, source: int, length: int, size: int, compile: bool) -> Callable[[], int]:
    model = translator(vocab)
    if compile:
        compile_blocks(model)
    decoder: Any = CapturedDecoder(model) if CUDA else model if compile else with_onednn(model)
    read = torch.randint(5, 7000, (rows, source), device=DEVICE)
    first = torch.ones(rows, dtype=torch.long, device=DEVICE)

    def run() -> int:
        with torch.no_grad():
            state = model.start(read, None, rows, length)
            if size == 1:
                return collect(stream(decoder, state, first, greedy, length, NEVER))[0].numel()
            found = beam(decoder, state, first, size, length, 2, Penalty(1.0, stop="exact"), nbest=1)
            return rows * length if found.tokens.numel() else 0

    return run


def hf_translation(folder: Path, rows: int, source: int, length: int, size: int) -> Callable[[], int]:
    import transformers as peer

    model = peer.MarianMTModel.from_pretrained(folder).to(DEVICE, DTYPE).eval()
    read = torch.randint(5, 7000, (rows, source), device=DEVICE)
    given = {"do_sample": False, "num_beams": size, "min_new_tokens": length, "max_new_tokens": length}

    def run() -> int:
        with torch.no_grad():
            model.generate(read, attention_mask=torch.ones_like(read), **given)
        return rows * length

    return run


def ct2_translation(vocab: int, folder: Path, rows: int, source: int, length: int, size: int) -> Callable[[], int]:
    import ctranslate2

    from regard.data.tokenizers import train_tokenizer
    from regard.pretrained.ct2 import write_ct2

    words = [f"w{number}" for number in range(vocab - 4)]
    tokenizer = train_tokenizer("word", [" ".join(words)], vocab)
    folder.mkdir(exist_ok=True)
    write_ct2(translator(vocab).float(), folder, tokenizer, tokenizer)
    engine = ctranslate2.Translator(str(folder), device=DEVICE.type, compute_type="float32", intra_threads=THREADS)
    read = [[words[token] for token in row] for row in torch.randint(5, 7000, (rows, source)).tolist()]

    def run() -> int:
        found = engine.translate_batch(
            read, beam_size=size, min_decoding_length=length, max_decoding_length=length, max_batch_size=rows
        )
        return sum(len(one.hypotheses[0]) for one in found)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="*", default=["gpt2", "translate"] if CUDA else ["translate"])
    parser.add_argument(
        "--sides", nargs="*", default=["ours", "ours-compiled", "hf", "hf-static"] if CUDA else ["ours", "hf"]
    )
    parser.add_argument("--rows", type=int, nargs="*", help="batch sizes")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    results = []

    def report(work: str, made: dict[str, Make]) -> None:
        found = timed({side: make for side, make in made.items() if side in given.sides}, given.times)
        for side, speed in found.items():
            results.append({"work": work, "side": side, "tokens_per_second": speed})
            ratio = f"{speed / found['hf']:6.2f} × hf" if "hf" in found else ""
            if not given.json:
                print(f"{work:36} {side:16} {speed:12,.0f} tokens/s {ratio}", flush=True)

    if "gpt2" in given.work:
        for rows in given.rows or (1, 64):
            made = {
                "ours": partial(language, rows, 128, compile=False),
                "ours-compiled": partial(language, rows, 128, compile=True),
                "hf": partial(hf_language, rows, 128, None),
                "hf-static": partial(hf_language, rows, 128, "static"),
            }
            report(f"gpt2 greedy, batch {rows}", made)
    if "translate" in given.work:
        rows, source, length, vocab, sizes = (64, 32, 64, 37000, (1, 4)) if CUDA else (32, 32, 32, 8000, (1, 5))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
            write_model(translator(vocab).float(), folder, ids)
            for size in sizes:
                sizes_ = rows, source, length, size
                made = {
                    "ours": partial(translation, vocab, *sizes_, compile=False),
                    "ours-compiled": partial(translation, vocab, *sizes_, compile=True),
                    "hf": partial(hf_translation, folder, *sizes_),
                    "ctranslate2": partial(ct2_translation, vocab, folder / "ct2", *sizes_),
                }
                report(f"translate, batch {rows}, beam {size}", made)
    if given.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
