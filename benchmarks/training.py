"""Training speed of the Transformers against their peers, side by side: tokens a second, and memory.

Every side runs in this one process on the same random batch: forward, loss, backward, clipping, AdamW, bf16 where the
machine has it. Ours is the library's own loop (`regard.training.loop.train`) with `plan.compile`; the peers get
`torch.compile` and the fused optimiser as well.

    python benchmarks/training.py                          # small sizes on a CPU, the published ones on a GPU
    python benchmarks/training.py --work gpt2 --nanogpt PATH/model.py

nanoGPT is one file, which this benchmark does not contain: name yours. The other peers are in `transformers`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import Batch, collate
from regard.data.corruption import MaskTokens
from regard.data.flat import Row, Rows
from regard.device import autocast
from regard.models import SIZES, ModelConfig
from regard.objectives import MaskedTokens, TeacherForcing
from regard.objectives.objective import LossModule, Objective
from regard.recipes import Plan
from regard.tasks import TASKS
from regard.training.loop import train

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
PREFIX, SUFFIX, MASK = 101, 102, 103  # BERT's


@dataclass(frozen=True)
class Work:
    """One line of the table: a model, what it is trained for, and a batch."""

    config: ModelConfig
    objective: Objective
    batch: Batch


def works() -> dict[str, Work]:
    gpt2 = replace(SIZES["gpt2"], vocab=50304, dropout=0.0)
    bert = replace(SIZES["bert-base"], outputs=("masked",), dropout=0.0, attention_dropout=0.0, vocab=30528)
    base = replace(SIZES["transformer-base"], source_vocab=37000, target_vocab=37000, dropout=0.0)
    small = {"width": 128, "heads": 4, "layers": 2, "inner": 512}
    if not CUDA:
        gpt2, bert = replace(gpt2, **small, vocab=1024), replace(bert, **small, vocab=1024)
        base = replace(base, **small, source_vocab=1024, target_vocab=1024)
    rows = (
        {"gpt2": (64, 1024), "bert": (256, 128), "base": (400, 64)}
        if CUDA
        else dict.fromkeys(("gpt2", "bert", "base"), (8, 64))
    )
    return {
        "gpt2": Work(gpt2, TeacherForcing(), batch("language", *rows["gpt2"], gpt2.vocab)),
        "bert": Work(bert, MaskedTokens(), batch("masked", *rows["bert"], bert.vocab)),
        "base": Work(base, TeacherForcing(smoothing=0.1), batch("translate", *rows["base"], base.target_vocab)),
    }


def batch(task: str, rows: int, length: int, vocab: int) -> Batch:
    """Random tokens, made into a batch of a task as training does; every side has `length` places, all real."""
    random = np.random.default_rng(1)
    texts = list(random.integers(104, vocab, (rows, length + 1)))  # one more than is read: the last target
    made: Sequence[Row] = [{"text": text} for text in texts]
    if task == "translate":
        made = [{"source": text[1:], "target": text} for text in texts]
    if task == "masked":
        whole: list[Row] = [{"text": np.array([PREFIX, *text[3:], SUFFIX])} for text in texts]
        made = MaskTokens(MASK, vocab, (PREFIX, SUFFIX, MASK))(Rows.of(whole), random)
    return collate(made, TASKS[task])


class Same:
    """The same batch at every step."""

    def __init__(self, batch: Batch) -> None:
        self.only = batch

    def batch(self, step: int) -> Batch:
        return self.only


def ours(work: Work, compile: bool, capture: bool) -> Iterator[float]:
    """One update each time it is asked; yields the loss now and then only, since reading it waits."""
    torch.manual_seed(1)
    loss_module = LossModule(work.config.build(), work.objective).to(DEVICE)
    plan = Plan(steps=10**9, rate=1e-4, warmup=0, schedule="constant", compile=compile, capture=capture)
    for step in train(loss_module, Same(work.batch.to(DEVICE)), plan):
        yield step.n


def theirs(model: nn.Module, loss: Callable[[nn.Module, Batch], Tensor], work: Work, compile: bool) -> Iterator[float]:
    model = model.to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if compile else model
    given = work.batch.to(DEVICE)
    while True:
        with autocast("bf16" if CUDA else "float32", DEVICE):
            total = loss(run, given)
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield 0.0


def nanogpt(path: str, work: Work, compile: bool) -> Iterator[float]:
    spec = importlib.util.spec_from_file_location("nanogpt", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config: Any = work.config
    model = module.GPT(
        module.GPTConfig(
            block_size=config.context,
            vocab_size=config.vocab,
            n_layer=config.layers,
            n_head=config.heads,
            n_embd=config.width,
            dropout=0.0,
            bias=True,
        )
    )
    return theirs(model, lambda run, given: run(given["tokens"], given["targets"])[1], work, compile)


def hf(work: Work, name: str, compile: bool) -> Iterator[float]:
    """The model of `transformers` with the same settings; masked ones judge 15 % of the places, projecting all."""
    import transformers as peer

    config: Any = work.config
    if name == "gpt2":
        settings = peer.GPT2Config(
            vocab_size=config.vocab, n_embd=config.width, n_layer=config.layers, n_head=config.heads,
            n_positions=config.context, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        )  # fmt: skip
        model: nn.Module = peer.GPT2LMHeadModel(settings)
        return theirs(model, lambda run, given: run(given["tokens"], labels=given["tokens"]).loss, work, compile)
    if name == "bert":
        settings = peer.BertConfig(
            vocab_size=config.vocab, hidden_size=config.width, num_hidden_layers=config.layers,
            num_attention_heads=config.heads, intermediate_size=config.inner, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        model = peer.BertForMaskedLM(settings)
        return theirs(model, lambda run, given: run(given["tokens"], labels=given["targets"]).loss, work, compile)
    settings = peer.MarianConfig(
        vocab_size=config.target_vocab, d_model=config.width, encoder_layers=config.layers,
        decoder_layers=config.layers, encoder_attention_heads=config.heads, decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.inner, decoder_ffn_dim=config.inner, activation_function="relu", dropout=0.0,
        max_position_embeddings=512, scale_embedding=True, pad_token_id=0, decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    model = peer.MarianMTModel(settings)

    def smoothed(run: nn.Module, given: Batch) -> Tensor:
        logits = run(input_ids=given["source"], decoder_input_ids=given["tokens"]).logits
        return nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), given["targets"].flatten(), label_smoothing=0.1
        )

    return theirs(model, smoothed, work, compile)


def measured(side: Iterator[float], work: Work, warmup: int, times: int) -> dict[str, float]:
    """Tokens a second over the median step, and the most memory."""
    for _ in range(warmup):
        next(side)
    if CUDA:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        next(side)
        if CUDA:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    step = statistics.median(seconds)
    found = {"tokens_per_second": work.batch.counts["tokens"] / step, "milliseconds": 1000 * step}
    if CUDA:
        found["GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="*", default=["gpt2", "bert", "base"], choices=["gpt2", "bert", "base"])
    parser.add_argument("--sides", nargs="*", help="only these, such as ours or hf-compiled")
    parser.add_argument("--nanogpt", help="the model.py of nanoGPT")
    parser.add_argument("--times", type=int, default=20 if CUDA else 3)
    parser.add_argument("--warmup", type=int, default=6 if CUDA else 1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    results = []
    for name in given.work:
        work = works()[name]
        sides: dict[str, Callable[[], Iterator[float]]] = {
            "ours": lambda work=work: ours(work, compile=CUDA, capture=False),
            "ours-eager": lambda work=work: ours(work, compile=False, capture=False),
            "ours-captured": lambda work=work: ours(work, compile=CUDA, capture=True),
            "hf": lambda work=work, name=name: hf(work, name, compile=False),
            "hf-compiled": lambda work=work, name=name: hf(work, name, compile=CUDA),
        }
        if given.nanogpt and name == "gpt2":
            sides["nanogpt-compiled"] = lambda work=work: nanogpt(given.nanogpt, work, compile=CUDA)
        for side, make in sides.items():
            if given.sides and side not in given.sides:
                continue
            torch._dynamo.reset()
            running = make()
            found = {"work": name, "side": side, **measured(running, work, given.warmup, given.times)}
            running.close()
            del running
            if CUDA:
                torch.cuda.empty_cache()
            results.append(found)
            if not given.json:
                memory = f"{found['GiB']:7.1f} GiB" if CUDA else ""
                print(f"{name:6} {side:18} {found['tokens_per_second']:12,.0f} tokens/s {memory}", flush=True)
    if given.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
