"""One pass over sentences that are already there: how likely each token was, and where the model looked to say it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import Batch, Row, collate
from regard.data.fields import TextField
from regard.errors import UserError
from regard.objectives.objective import CausalModel
from regard.objectives.sequence import forced as features_of
from regard.recording import pause_recording, record
from regard.verbs.loaded import IdPair, Loaded
from regard.verbs.parts import aligning, path_of

Floats = NDArray[np.floating[Any]]

BATCH_TOKENS = 8192  # padded tokens of a batch, on the longer side
ROUND = 16  # lengths that round up to the same multiple of this may share a batch


@dataclass(frozen=True, eq=False)
class Forced:
    """What a model makes of one pair of source and target."""

    logps: Floats  # (T + 1,) of each target token and of the end; fewer where the vocabulary has no begin or no end
    weights: Floats | None  # (T + 1, Ts) where it looked before each of them; None without attention to a source


def row_of(model: Loaded, pair: IdPair) -> Row:
    """The ids of a source (if the model reads one) and a target or text, with the special tokens around them."""
    texts = [name for name, each in model.fields.items() if isinstance(each, TextField)]
    row = {name: np.empty(0, np.int64) for name in model.fields}
    for name, ids in zip(reversed(texts), reversed(pair)):
        each = model.fields[name]
        assert isinstance(each, TextField)
        row[name] = np.asarray(each.wrap(ids), np.int64)
    return row


def batch_of(model: Loaded, pairs: Sequence[IdPair]) -> Batch:
    """One batch of exactly these pairs, as narrow as possible."""
    return collate([row_of(model, pair) for pair in pairs], model.task)


def check_is_list(texts: Sequence[object]) -> None:
    """Refuse one text where a list of them belongs: Python would take its letters for the texts."""
    if isinstance(texts, str):
        raise UserError(f"{texts!r:.60}: this is one text; pass a list of them, such as [{texts!r:.60}].")


def forced(
    model: Loaded, pairs: Sequence[IdPair], batch_tokens: int = BATCH_TOKENS, layer: int | None = None
) -> list[Forced]:
    """Teacher forcing over the pairs, in any number of batches; the answers in the order of the pairs.

    Weights are the mean of a layer's heads: of the one that aligns best, unless one is named (`parts.aligning`).
    """
    return _in_batches(model, pairs, batch_tokens, aligning(model, layer))


def token_logps(model: Loaded, pairs: Sequence[IdPair], batch_tokens: int = BATCH_TOKENS) -> list[Floats]:
    """The same without a look at anything: the log-probabilities alone."""
    return [one.logps for one in _in_batches(model, pairs, batch_tokens, None)]


def fit_target(model: Loaded, tokens: list[int], place: str) -> list[int]:
    """The tokens of a target that is to be said, cut as `model.long` says where the model's positions end."""
    most = target_limit(model)
    if most is None or len(tokens) < most:  # its end is said, too
        return tokens
    if model.long == "error":
        raise UserError(
            f"{place}: a target of {len(tokens)} tokens, but the model says at most {most - 1}; "
            "shorten it, or say --long truncate"
        )
    return tokens[: most - 1]


def target_limit(model: Loaded) -> int | None:
    """The most tokens of a target, its end included; None: any number."""
    return model.module.config.longest_target


def _in_batches(model: Loaded, pairs: Sequence[IdPair], batch_tokens: int, name: str | None) -> list[Forced]:
    answers: dict[int, Forced] = {}
    for rows in grouped([max(len(source), len(target) + 1) for source, target in pairs], batch_tokens):
        answers |= zip(rows, _force(model, [pairs[row] for row in rows], name))
    return [answers[row] for row in range(len(pairs))]


def grouped(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows of about the same length, together at most `budget` tokens when padded (one long row may have more).

    Whatever follows from the rounded length, such as the limit of a search, is the same for a row in any company.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for length, same in groupby(order, key=lambda row: rounded(lengths[row])):
        rows, size = list(same), max(1, budget // length)
        yield from (rows[at : at + size] for at in range(0, len(rows), size))


def rounded(length: int) -> int:
    """The next multiple of ROUND, at least one."""
    return max(1, -(-length // ROUND)) * ROUND


@torch.no_grad()
def _force(model: Loaded, pairs: Sequence[IdPair], name: str | None) -> Iterator[Forced]:
    """One batch. The read of that name is recorded on a tape of our own; one of the caller's is not written to."""
    batch = batch_of(model, pairs).to(model.device)
    path = () if name is None else (path_of(name),)
    with pause_recording(model.module), record(model.module, path) as tape, model.autocast():
        logps = _logps(cast(CausalModel, model.module), batch)
    looked = None if name is None else _mean(tape[name])
    first = 0 if model.source_tokenizer is None else model.source_tokenizer.special_tokens.prefix is not None
    last = list(model.fields)[-1]  # the target, or the text
    for row, pair in enumerate(pairs):
        length = len(row_of(model, pair)[last]) - 1
        # Of the source only the text: looks at the marks around it are of no use to an alignment.
        weights = None if looked is None else looked[row, :length, first : first + len(pair[0])]
        yield Forced(logps[row, :length], weights)


def _logps(module: CausalModel, batch: Batch) -> Floats:
    """Of every target (B, T). The logits of one row at a time: those of all would be the largest thing in memory."""
    features = features_of(module, batch)  # (B, T, W)
    rows = [
        F.log_softmax(module.readout(row).float(), dim=-1).gather(1, targets[:, None])[:, 0]
        for row, targets in zip(features, batch["targets"].clamp_min(0))
    ]
    return torch.stack(rows).cpu().numpy()


def _mean(read: Tensor) -> Floats:
    """Of all heads: (B, [H,] Tq, Ts) → (B, Tq, Ts)"""
    return (read.mean(dim=1) if read.dim() == 4 else read).numpy()
