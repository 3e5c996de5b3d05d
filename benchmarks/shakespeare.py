"""Shakespeare by characters on a CPU: our recipe and nanoGPT's, one after the other in this process.

Both have 4 layers, 4 heads, width 128, a context of 64, 12 windows a step, 2,000 steps, AdamW with the same rates, no
dropout and no biases; both are judged on all of the validation text. nanoGPT is one file, which this benchmark does not
contain: name yours.

    python benchmarks/shakespeare.py --nanogpt PATH/model.py
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regard.data.streams import encode_text, in_order, joined, window_of
from regard.objectives import LossModule
from regard.recipes import find_recipe
from regard.training.loop import train
from regard.training.optim import rate_at
from regard.training.prepare import Prepared, prepare


def validation(prepared: Prepared) -> list[Any]:
    """All of the validation text in windows."""
    text = encode_text(prepared.fields["text"].tokenizer, joined(prepared.corpus.valid))
    return list(in_order(text, window_of(prepared.recipe.data, prepared.config.longest), 4096))


@torch.no_grad()
def loss_of(model: nn.Module, batches: list[Any], logits: Any) -> float:
    total, count = 0.0, 0
    model.eval()
    for batch in batches:
        found = logits(model, batch)
        total += float(nn.functional.cross_entropy(found.flatten(0, 1), batch["targets"].flatten(), reduction="sum"))
        count += batch.counts["targets"]
    model.train()
    return total / count


def ours(prepared: Prepared) -> tuple[nn.Module, float]:
    loss_module: LossModule = prepared.build()
    began = time.perf_counter()
    for _ in train(loss_module, prepared.batches, prepared.recipe.plan):
        pass
    return loss_module.model, time.perf_counter() - began


def nanogpt(path: str, prepared: Prepared) -> tuple[nn.Module, float]:
    spec = importlib.util.spec_from_file_location("nanogpt", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config: Any = prepared.config
    plan = prepared.recipe.plan
    torch.manual_seed(plan.seed)
    model = module.GPT(
        module.GPTConfig(
            block_size=config.context, vocab_size=config.vocab, n_layer=config.layers, n_head=config.heads,
            n_embd=config.width, dropout=0.0, bias=False,
        )
    )  # fmt: skip
    optimizer = model.configure_optimizers(plan.decay, plan.rate, plan.betas, "cpu")
    began = time.perf_counter()
    for step in range(plan.steps):
        batch = prepared.batches.batch(step)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(plan, step, config.width)
        _, loss = model(batch["tokens"], batch["targets"])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", help="the model.py of nanoGPT")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    recipe = find_recipe("shakespeare-cpu")
    prepared = prepare(replace(recipe, plan=replace(recipe.plan, steps=given.steps, device="cpu")))
    judging = validation(prepared)
    model, seconds = ours(prepared)
    results = [{"side": "ours", "seconds": seconds, "loss": loss_of(model, judging, lambda it, batch: it(batch))}]
    if given.nanogpt:
        peer, seconds = nanogpt(given.nanogpt, prepared)
        found = loss_of(peer, judging, lambda it, batch: it(batch["tokens"], batch["tokens"])[0])
        results.append({"side": "nanogpt", "seconds": seconds, "loss": found})
    if given.json:
        print(json.dumps(results))
        return
    for result in results:
        print(f"{result['side']:8} {result['seconds']:8.1f} s   validation loss {result['loss']:.4f}")


if __name__ == "__main__":
    main()
