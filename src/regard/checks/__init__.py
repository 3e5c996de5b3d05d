"""Checks of a module: what may not leak, what must be equal, what must be finite. One function for each check."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc

import torch
from torch import nn

from regard.checks.adapters import loaded_calls, model_calls
from regard.checks.decoding import beam_search, cached
from regard.checks.files import saved, tokenizer, weights
from regard.checks.leaks import batch, batched, empty, future, padding
from regard.checks.learning import accumulated, counted, resumed
from regard.checks.subject import DOES_NOT_APPLY, FAILED, PASSED, Calls, CheckResult, Subject, does_not_apply
from regard.errors import UserError
from regard.report.sections import Table
from regard.verbs.loaded import Loaded

Check = Callable[[Subject], CheckResult]  # the first line of its docstring is what must be true, the rest what it does

WITHOUT_OUTPUTS: dict[str, Check] = {"weights": weights, "tokenizer": tokenizer}
CHECKS: dict[str, Check] = {
    **WITHOUT_OUTPUTS,
    "future": future,
    "padding": padding,
    "batch": batch,
    "batched": batched,
    "empty": empty,
    "cached": cached,
    "beam": beam_search,
    "counted": counted,
    "accumulated": accumulated,
    "saved": saved,
    "resumed": resumed,
}


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    check: str  # the name of the check
    claim: str  # what must be true
    did: str  # what the check did
    status: str  # passed, failed, or does not apply
    error: float | None  # the size of the error; infinite: an output is not finite, or the module raised an error
    bound: float | None  # the largest error that passes
    note: str  # failed: where to look; does not apply: why


def doctor(module: nn.Module | Loaded, calls: Calls | None = None, data: str | None = None) -> list[Finding]:
    """Examine a model: run every check on a copy of it, and return the findings.

    `module` is a loaded model (`regard.load`), or a module of your own, whose `calls` describe how it is called. For a
    loaded model, `data` is a file that replaces the recipe's examples. The module itself, its gradients and torch's
    random numbers stay as they are.
    """
    if isinstance(module, Loaded):
        if calls is not None:
            raise UserError("calls: a loaded model has its own; leave them out, or give model.module.")
        calls, module = loaded_calls(module, data), module.module
    elif data is not None:
        raise UserError(f"data={data}: is for a loaded model; leave it out.")
    if calls is None:
        cure = "give Calls(logits=…, vocab=…), or a model that regard.load returns"
        raise UserError(f"calls: missing, so the checks cannot call the module; {cure}.")
    with torch.random.fork_rng(devices=[]):
        finite = weights(Subject(module, module, calls)).status == PASSED
        subject = Subject.copy_of(module, calls) if finite else Subject(module, module, calls)
        if finite:
            subject.check_usable()
        return [_examine(name, subject, finite) for name in CHECKS]


def refused(error: UserError) -> list[Finding]:
    """The findings of a directory that cannot be loaded."""
    first = Finding("loaded", "The directory can be loaded", "Loads the model.", FAILED, None, None, str(error))
    return [first, *(_finding(name, does_not_apply("the model cannot be loaded")) for name in CHECKS)]


def _examine(name: str, subject: Subject, finite: bool) -> Finding:
    if not finite and name not in WITHOUT_OUTPUTS:
        return _finding(name, does_not_apply("the weights are not finite"))
    try:
        torch.manual_seed(0)
        return _finding(name, CHECKS[name](subject))
    except Exception as error:  # a module of the user's may raise anything
        return _finding(name, CheckResult(FAILED, math.inf, None, f"raised {type(error).__name__}: {error}"))


def _finding(name: str, result: CheckResult) -> Finding:
    claim, _, did = cleandoc(CHECKS[name].__doc__ or "").partition("\n\n")
    return Finding(name, claim.removesuffix("."), " ".join(did.split()), *result)


def findings_table(title: str, findings: Sequence[Finding]) -> Table:
    """The findings as a table."""

    def number(value: float | None) -> str:
        return "" if value is None else "not finite" if value == math.inf else f"{value:.1g}"

    rows = [
        [each.claim, each.status, number(each.error), number(each.bound), each.note or each.did] for each in findings
    ]
    return Table(title, ["", "", "error", "bound", "what was done; or where to look, or why it does not apply"], rows)


# fmt: off
__all__ = [
    "CHECKS", "DOES_NOT_APPLY", "FAILED", "PASSED", "Calls", "Finding", "doctor", "findings_table", "model_calls",
    "refused",
]
# fmt: on
