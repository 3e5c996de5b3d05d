"""Checks that the output of a text depends on nothing but what the text may see."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.checks.subject import PADDING, ROWS, CheckResult, Subject, Texts, difference, does_not_apply, measured
from regard.layers.adaptive import AdaptiveEmbedding


def future(subject: Subject) -> CheckResult:
    """Later tokens do not change earlier outputs.

    Replaces the tokens from each position on, and compares the outputs before that position.
    """
    if not subject.calls.causal:
        return does_not_apply("the module is not causal: a token may see later tokens")
    texts, other = subject.texts(), subject.texts(seed=1)
    with torch.no_grad():
        expected, worst = subject.logits(texts), (0.0, 0)
        for at in range(1, texts.tokens.shape[1]):
            changed = texts._replace(tokens=torch.cat([texts.tokens[:, :at], other.tokens[:, at:]], dim=1))
            worst = max(worst, (difference(subject.logits(changed)[:, :at], expected[:, :at]), at))
    where = f"the causal mask: outputs before position {worst[1]} change with the tokens from there on"
    return measured(worst[0], subject.bound, where)


def padding(subject: Subject) -> CheckResult:
    """Padding changes no output.

    Adds padding to texts of several lengths, changes the ids in it, and sets its embeddings to NaN and infinity
    (`padding_values`).
    """
    texts, filler = subject.texts(ragged=True), subject.filler
    expected = subject.real_logits(texts)
    cases = {
        "other ids in the padding": texts.fill(int(subject.ids(4)[0])),
        "more places of padding after the texts": texts.pad(0, PADDING, filler),
    }
    if subject.calls.left_padding:
        cases["places of padding before the texts"] = texts.pad(PADDING, 0, filler)
    errors = {name: difference(subject.real_logits(case), expected) for name, case in cases.items()}
    if subject.calls.numbers:
        for value in subject.calls.padding_values:
            errors[f"numbers of padding that are {value}"] = difference(
                subject.real_logits(texts.fill(value)), expected
            )
    tables = _token_tables(subject)
    for value in subject.calls.padding_values if tables else ():
        with _embedded(tables, filler, value):
            errors[f"embeddings of padding that are {value}"] = difference(subject.real_logits(texts), expected)
    failed = [name for name in errors if errors[name] > subject.bound]
    shown = failed[0] if failed else max(errors, key=lambda name: errors[name])
    cure = (
        "give every layer the mask of padding"
        if shown in cases
        else (
            "0 × NaN and 0 × infinity are NaN, so leave padding out of sums instead of giving it a weight of 0; "
            "padding_values=() leaves this part of the check out"
        )
    )
    result = measured(errors[shown], subject.bound, f"{shown} change the outputs: {cure}")
    unseen = "" if tables or subject.calls.numbers else "no nn.Embedding has `vocab` rows, so none was set to NaN"
    return result._replace(note="; ".join(each for each in (result.note, unseen) if each))


def _token_tables(subject: Subject) -> list[nn.Module]:
    """The modules that embed tokens."""
    sizes = {subject.calls.vocab, subject.calls.source_vocab}
    return [
        part
        for part in subject.module.modules()
        if isinstance(part, AdaptiveEmbedding) or (isinstance(part, nn.Embedding) and part.num_embeddings in sizes)
    ]


@contextmanager
def _embedded(tables: list[nn.Module], token: int, value: float) -> Iterator[None]:
    """Inside, every number of the embedding of a token is `value`."""

    def replace(part: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return output.masked_fill((args[0] == token)[..., None], value)

    with ExitStack() as hooks:
        for part in tables:
            hooks.enter_context(part.register_forward_hook(replace))
        yield


def batch(subject: Subject) -> CheckResult:
    """Other texts of a batch change no output.

    Replaces all texts of a batch but the first by others of the same length, and compares the output of the first.
    """
    texts, other = subject.texts(), subject.texts(seed=1)
    rows = [torch.cat([one[:1], two[1:]]) for one, two in zip(subject.arguments(texts), subject.arguments(other))]
    found, expected = (subject.real_logits(each).view(ROWS, -1)[0] for each in (Texts(*rows), texts))
    where = "operations across the first dimension: batch norm, a mean over the batch, a view with the axes exchanged"
    return measured(difference(found, expected), subject.bound, where)


def batched(subject: Subject) -> CheckResult:
    """A text alone has the outputs of a text in a batch.

    Compares a text alone with a batch of copies of it.
    """
    texts = subject.texts()
    alone, together = (subject.real_logits(texts.select([0] * rows)) for rows in (1, ROWS))
    error = difference(together, torch.cat([alone] * ROWS))
    return measured(error, subject.bound, "operations that use the size of the batch: squeeze(), expand(), a mean")


def empty(subject: Subject) -> CheckResult:
    """A text that is all padding is finite.

    Makes the last text of a batch all padding, which may see nothing. Its outputs and the gradients of all weights must
    be finite, and the other texts must not change.
    """
    texts = subject.texts()
    emptied = texts.mask((torch.arange(ROWS) < ROWS - 1)[:, None])
    outputs, expected = subject.logits(emptied), subject.logits(texts).detach()
    error = difference(outputs[:-1].detach(), expected[:-1])
    finite, where = outputs.isfinite(), "the other texts of the batch: a sum or count over the whole batch"
    if outputs.isnan().any() or (expected.isfinite().all() and not finite.all()):
        error, where = math.inf, "the softmax of a row that is masked everywhere, or a mean over 0 tokens"
    elif outputs.requires_grad:
        weights = [weight for weight in subject.module.parameters() if weight.requires_grad]
        gradients = torch.autograd.grad(outputs[finite].sum(), weights, allow_unused=True)
        if any(not each.isfinite().all() for each in gradients if each is not None):
            error, where = math.inf, "the gradient of a softmax or mean of a row that is masked everywhere"
    return measured(error, subject.bound, where)
