"""How a run judges a step: what it measures, on which examples, and what counts as a gain."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from torch import nn

from regard.data.example import Corpus, Example
from regard.errors import UserError
from regard.recipes import MEASURES, Recipe
from regard.training.compiled import uncompiled
from regard.training.evaluate import LIKELIHOODS, Scores, evaluate
from regard.training.saved import RunState
from regard.verbs.loaded import Loaded


def check_evaluation(recipe: Recipe, corpus: Corpus) -> None:
    """Refuse what would leave no way to judge a step, before anything is trained."""
    plan = recipe.plan
    if not corpus.valid:
        raise UserError("data: there are no validation examples to judge a step by; set data.valid.")
    if plan.select not in LIKELIHOODS and not plan.samples:
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


def evaluate_step(model: Loaded, valid: Sequence[Example], recipe: Recipe) -> Scores:
    """The likelihood of all validation examples, and what takes decoding of `plan.samples` of them."""
    plan = recipe.plan
    cheap = {"loss", *recipe.metrics} & LIKELIHOODS
    dear = set(recipe.metrics) - cheap
    apart = max(1, len(valid) // max(1, plan.samples))  # from all over the file: it may be sorted
    some = valid[::apart][: plan.samples]
    scores = evaluate(model, valid, cheap, batch_tokens=plan.batch_tokens)
    return scores | evaluate(model, some, dear, batch_tokens=plan.batch_tokens) if dear and some else scores


def select_best(state: RunState, measure: str, scores: Scores) -> RunState:
    """The mark of a run whose step was judged: `best_step` is that step if it is the best so far."""
    value, loss = scores.values.get(measure), scores.values["loss"]
    if value is None or not _better(measure, (value, loss), (state.best, state.best_loss)):
        return replace(state, evaluated=state.step, waited=state.waited + 1)
    return replace(state, evaluated=state.step, best=value, best_loss=loss, best_step=state.step, waited=0)


def _better(measure: str, now: tuple[float, float], before: tuple[float | None, float | None]) -> bool:
    """Whether (measure, loss) is a gain. Few samples often measure the same: then the lower loss decides."""
    (value, loss), (best, lowest) = now, before
    if not math.isfinite(value):
        return False
    if best is None or lowest is None:
        return True
    if value == best:
        return loss < lowest
    return value < best if MEASURES[measure] else value > best
