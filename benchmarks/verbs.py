"""Decoding as a user calls it: ``translate`` and ``generate`` on real lines, beside other tools with the same weights.

    python benchmarks/verbs.py translate RUN LINES [--reference FILE] [--beams 1 5] [--sides present exact ct2 hf]
    python benchmarks/verbs.py generate DIR [--rows 1 64] [--length 128] [--sides greedy sampled hf hf-static]

RUN is a run of `regard train`, LINES a text file; DIR is a GPT-2 checkpoint. Every side gets the same lines and limits,
one warm-up, and the best of some times. `present` and `exact` are the two rules by which a beam stops. With a reference
(one line for each), BLEU is printed too. `--precisions float32 bf16` also counts the answers that differ.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import regard
from regard import Penalty


def best_time(run: Callable[[], Any], times: int) -> tuple[float, Any]:
    """The shortest of some times in seconds, and the last result; one warm-up is not counted."""
    found = run()
    seconds = []
    for _ in range(times):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        found = run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds), found


def ours(model: Any, lines: list[str], beam: int, stop: str, limit: int | None) -> Callable[[], tuple[list[str], Any]]:
    penalty = Penalty(1.0, stop=stop)

    def run() -> tuple[list[str], Any]:
        found = regard.translate(model, lines, beam, penalty=penalty, limit=limit, align=False)
        return [one.text for one in found], found

    return run


def ct2(model: Any, run: Path, lines: list[str], beam: int, limit: int | None, compute: str) -> Callable[[], Any]:
    import ctranslate2

    folder = Path(tempfile.mkdtemp()) / "ct2"
    regard.export(run, folder, to="ctranslate2")
    engine = ctranslate2.Translator(
        str(folder), device=model.device.type, compute_type=compute, intra_threads=torch.get_num_threads()
    )
    tokenizer = model.source_tokenizer
    shared = folder / "shared_vocabulary.json"
    files = [shared, shared] if shared.exists() else [folder / f"{one}_vocabulary.json" for one in ("source", "target")]
    source_names, names = (json.loads(file.read_text()) for file in files)
    id_of = {name: number for number, name in enumerate(names)}

    def translate() -> tuple[list[str], None]:
        read = [[source_names[number] for number in tokenizer.encode(line.strip())] for line in lines]
        found = engine.translate_batch(
            read, beam_size=beam, max_decoding_length=limit or 256, max_batch_size=8192, batch_type="tokens"
        )
        ids = [[id_of[name] for name in one.hypotheses[0]] for one in found]
        return [model.target_tokenizer.decode(one) for one in ids], None

    return translate


def hf(model: Any, run: Path, lines: list[str], beam: int, limit: int | None) -> Callable[[], Any]:
    import transformers

    folder = Path(tempfile.mkdtemp()) / "hf"
    regard.export(run, folder)
    dtype = next(model.module.parameters()).dtype
    peer: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).to(model.device).eval()
    pad, rows = peer.config.pad_token_id, 64

    def translate() -> tuple[list[str], None]:
        read = [model.source_tokenizer.wrap_input(model.source_tokenizer.encode(line.strip())) for line in lines]
        order = sorted(range(len(read)), key=lambda one: len(read[one]))
        texts = [""] * len(read)
        for at in range(0, len(order), rows):
            some = order[at : at + rows]
            width = max(len(read[one]) for one in some)
            ids = torch.tensor([read[one] + [pad] * (width - len(read[one])) for one in some], device=model.device)
            mask = torch.tensor([[1] * len(read[one]) + [0] * (width - len(read[one])) for one in some])
            with torch.no_grad():
                found = peer.generate(
                    ids, attention_mask=mask.to(model.device), num_beams=beam, max_new_tokens=limit or 2 * width + 20
                )
            for one, row in zip(some, found[:, 1:].tolist()):
                end = model.target_tokenizer.special_tokens.eos
                texts[one] = model.target_tokenizer.decode(row[: row.index(end)] if end in row else row)
        return texts, None

    return translate


def translating(given: argparse.Namespace) -> None:
    import sacrebleu

    lines = Path(given.lines).read_text().splitlines()[: given.count]
    references = Path(given.reference).read_text().splitlines()[: given.count] if given.reference else None
    answers: dict[tuple[str, str, int], list[str]] = {}
    for precision in given.precisions:
        model = regard.load(given.run, device=given.device, precision=precision)
        for beam in given.beams:
            made: dict[str, Callable[[], Any]] = {}
            for side in given.sides:
                if side in ("present", "exact"):
                    made[side] = ours(model, lines, beam, side, given.limit)
                elif side.startswith("ct2"):
                    compute = (
                        "int8" if side == "ct2-int8" else "float32" if model.precision == "float32" else "bfloat16"
                    )
                    made[side] = ct2(model, given.run, lines, beam, given.limit, compute)
                else:
                    made[side] = hf(model, given.run, lines, beam, given.limit)
            for side, run in made.items():
                if side == "exact" and beam == 1:
                    continue
                seconds, (texts, found) = best_time(run, given.times)
                answers[side, model.precision, beam] = texts
                row: dict[str, Any] = {"side": side, "precision": model.precision, "beam": beam, "seconds": seconds}
                if found is not None:
                    tokens = sum(len(one.tokens) + 1 for one in found)
                    row |= {
                        "tokens_per_second": tokens / seconds,
                        "score": sum(one.score for one in found) / len(found),
                    }
                    row["logp"] = sum(one.logp for one in found) / len(found)
                if references:
                    row["bleu"] = sacrebleu.corpus_bleu(texts, [references]).score
                base = answers.get((side, "float32", beam))
                if model.precision != "float32" and base:
                    row["differ"] = sum(a != b for a, b in zip(texts, base))
                print(json.dumps({key: round(one, 4) if isinstance(one, float) else one for key, one in row.items()}))


def generating(given: argparse.Namespace) -> None:
    for precision in given.precisions:
        model = regard.load(given.run, device=given.device, precision=precision, long="error")
        words = ["The history of the world is", "Once upon a time there was", "In the beginning", "A dog and a cat"]
        for rows in given.rows:
            prompts = [words[row % len(words)] for row in range(rows)]
            made: dict[str, Callable[[], int]] = {}
            for side in given.sides:
                if side in ("greedy", "sampled"):
                    options = {"temperature": 1.0, "top_k": 50} if side == "sampled" else {}

                    made[side] = partial(our_tokens, model, prompts, given.length, options)
                else:
                    made[side] = hf_generate(model, given.run, prompts, given.length, side == "hf-static")
            for side, one in made.items():
                seconds, tokens = best_time(one, given.times)
                speed = round(tokens / seconds)
                print(
                    json.dumps({"side": side, "precision": model.precision, "rows": rows, "tokens_per_second": speed})
                )


def our_tokens(model: Any, prompts: list[str], length: int, options: dict[str, Any]) -> int:
    return sum(len(one.logps) for one in regard.generate(model, prompts, limit=length, **options))


def hf_generate(model: Any, folder: Path, prompts: list[str], length: int, static: bool) -> Callable[[], int]:
    import transformers

    dtype = next(model.module.parameters()).dtype
    peer: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(model.device).eval()
    ids = [model.target_tokenizer.encode(prompt) for prompt in prompts]
    width = max(map(len, ids))
    tokens = torch.tensor([[0] * (width - len(one)) + one for one in ids], device=model.device)
    mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in ids], device=model.device)
    options: dict[str, Any] = {"cache_implementation": "static"} if static else {}

    def run() -> int:
        with torch.no_grad():
            found = peer.generate(
                tokens, attention_mask=mask, max_new_tokens=length, do_sample=False, pad_token_id=0, **options
            )
        return int(found[:, width:].numel())

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["translate", "generate"])
    parser.add_argument("run", type=Path)
    parser.add_argument("lines", nargs="?")
    parser.add_argument("--reference")
    parser.add_argument("--count", type=int, default=1000, help="the first lines only")
    parser.add_argument("--beams", type=int, nargs="*", default=[1, 5])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--sides", nargs="*")
    parser.add_argument("--precisions", nargs="*", default=["auto"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    given.sides = given.sides or (["present", "exact"] if given.verb == "translate" else ["greedy", "sampled"])
    (translating if given.verb == "translate" else generating)(given)


if __name__ == "__main__":
    main()
