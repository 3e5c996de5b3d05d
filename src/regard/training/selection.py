"""How a run selects its best step: what it measures, on which examples, and what counts as better."""

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
from regard.training.saved import RunState
from regard.verbs.loaded import Loaded


def check_evaluation(recipe: Recipe, corpus: Corpus, metrics: Mapping[str, Metric]) -> None:
    """Refuse a recipe whose steps cannot be evaluated, before anything is trained."""
    plan = recipe.plan
    if not corpus.valid:
        raise UserError("data: there are no validation examples to evaluate a step on; set data.valid.")
    if metrics[plan.select].needs != "sums" and not plan.samples:
        raise UserError(f"plan.samples=0: plan.select={plan.select} takes samples to measure; give 1 or more.")


@contextmanager
def evaluation_mode(module: nn.Module, compiled: bool) -> Iterator[None]:
    """Inside, the module has no dropout and runs as ordinary code; afterwards it trains on."""
    module.eval()
    with ExitStack() as stack:
        stack.callback(module.train)
        if compiled:
            stack.enter_context(uncompiled())
        yield


def evaluate_step(model: Loaded, valid: Sequence[Any], recipe: Recipe) -> Scores:
    """The likelihood of all validation examples, and what takes decoding of `plan.samples` of them."""
    plan = recipe.plan
    cheap = {name for name in ("loss", *recipe.metrics) if model.metrics[name].needs == "sums"}
    slow = set(recipe.metrics) - cheap
    apart = max(1, len(valid) // max(1, plan.samples))  # from all over the file: it may be sorted
    some = valid[::apart][: plan.samples]
    scores = evaluate(model, valid, cheap, batch_tokens=plan.batch_tokens)
    return scores | evaluate(model, some, slow, batch_tokens=plan.batch_tokens) if slow and some else scores


def select_best(state: RunState, name: str, metric: Metric, scores: Scores) -> RunState:
    """The state of a run after an evaluation: `best_step` is the present step if it is the best so far."""
    value, loss = scores.values.get(name), scores.values["loss"]
    if value is None or not _better(metric, (value, loss), (state.best, state.best_loss)):
        return replace(state, evaluated=state.step, waited=state.waited + 1)
    return replace(state, evaluated=state.step, best=value, best_loss=loss, best_step=state.step, waited=0)


def _better(metric: Metric, now: tuple[float, float], before: tuple[float | None, float | None]) -> bool:
    """Whether (value, loss) is better. Values of few samples are often equal: then the lower loss decides."""
    (value, loss), (best, lowest) = now, before
    if not math.isfinite(value):
        return False
    if best is None or lowest is None:
        return True
    if value == best:
        return loss < lowest
    return value < best if metric.lower_is_better else value > best
