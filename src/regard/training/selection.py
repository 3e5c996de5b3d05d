"""How a run evaluates a step and selects the best one."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from regard.data.example import Corpus
from regard.errors import UserError
from regard.metrics import Metric
from regard.recipes import Recipe
from regard.training.compiled import uncompiled
from regard.training.evaluate import Scores, evaluate
from regard.training.parallel import Share, share_alone
from regard.training.saved import RunState
from regard.verbs.loaded import Loaded


def check_evaluation(recipe: Recipe, corpus: Corpus, metrics: Mapping[str, Metric]) -> None:
    """Refuse a recipe whose steps cannot be evaluated, before anything is trained."""
    plan = recipe.plan
    if not corpus.valid:
        raise UserError("data: there are no validation examples to evaluate a step with; set data.valid.")
    if metrics[plan.select].needs != "sums" and not plan.samples:
        raise UserError(f"plan.samples=0: plan.select={plan.select} is measured on samples; give 1 or more.")


@contextmanager
def evaluation_mode(module: nn.Module, compiled: bool) -> Iterator[None]:
    """Inside the block, the module is in evaluation mode and runs uncompiled; then it returns to training mode."""
    module.eval()
    with ExitStack() as stack:
        stack.callback(module.train)
        if compiled:
            stack.enter_context(uncompiled())
        yield


def evaluate_step(model: Loaded, valid: Sequence[Any], recipe: Recipe, share: Share = share_alone) -> Scores:
    """The loss on all validation examples, and metrics that need decoding on `plan.samples` of them."""
    plan = recipe.plan
    cheap = {name for name in ("loss", *recipe.metrics) if model.metrics[name].needs == "sums"}
    slow = set(recipe.metrics) - cheap
    stride = max(1, len(valid) // max(1, plan.samples))  # the samples are spread over the file, which may be sorted
    some = valid[::stride][: plan.samples]
    scores = evaluate(model, valid, cheap, batch_tokens=plan.batch_tokens, share=share)
    if slow and some:
        scores |= evaluate(model, some, slow, batch_tokens=plan.batch_tokens, share=share)
    return scores


def select_best(state: RunState, name: str, metric: Metric, scores: Scores) -> RunState:
    """The state after an evaluation: `best_step` becomes the present step if that is the best so far."""
    value, loss = scores.values.get(name), scores.values["loss"]
    if value is None or not _better(metric, (value, loss), (state.best, state.best_loss)):
        return replace(state, evaluated=state.step, waited=state.waited + 1)
    return replace(state, evaluated=state.step, best=value, best_loss=loss, best_step=state.step, waited=0)


def _better(metric: Metric, now: tuple[float, float], before: tuple[float | None, float | None]) -> bool:
    """Whether `now`, (value, loss), is better than `before`. If the values are equal, the lower loss is better."""
    (value, loss), (best, lowest) = now, before
    if not math.isfinite(value):
        return False
    if best is None or lowest is None:
        return True
    if value == best:
        return loss < lowest
    return value < best if metric.lower_is_better else value > best
