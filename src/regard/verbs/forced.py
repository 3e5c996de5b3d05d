"""One pass over sentences that are already there: how likely each token was, and where the model looked to say it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import FRAMES, Pair, collate
from regard.errors import UserError
from regard.record import Tape, record
from regard.verbs.loaded import Loaded

Floats = NDArray[np.floating[Any]]

BATCH_TOKENS = 8192  # padded tokens of a batch, on the longer side
ROUND = 16  # lengths that round up to the same multiple of this may share a batch


@dataclass(frozen=True, eq=False)
class Forced:
    """What a model makes of one pair of source and target."""

    logps: Floats  # (T + 1,) of each target token and of the end
    weights: Floats | None  # (T + 1, Ts) where it looked before each of them; None without attention to a source


def listed(texts: Sequence[object]) -> None:
    """Refuse one text where a list of them belongs: Python would take its letters for the texts."""
    if isinstance(texts, str):
        raise UserError(f"{texts!r:.60}: this is one text; pass a list of them, such as [{texts!r:.60}].")


def forced(model: Loaded, pairs: Sequence[Pair], batch_tokens: int = BATCH_TOKENS) -> list[Forced]:
    """Teacher forcing over the pairs, in any number of batches; the answers in the order of the pairs."""
    answers: dict[int, Forced] = {}
    for rows in grouped([max(len(source), len(target) + 1) for source, target in pairs], batch_tokens):
        answers |= zip(rows, _force(model, [pairs[row] for row in rows]))
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
def _force(model: Loaded, pairs: Sequence[Pair]) -> Iterator[Forced]:
    """One batch. Weights are recorded on a tape of our own; one of the caller's is not written to."""
    batch = collate(pairs, FRAMES[model.module.task]).to(model.device)
    with record(model.module) as tape, model.autocast():
        logits = model.module(batch)  # (B, T, V)
    logps = F.log_softmax(logits.float(), dim=-1).gather(2, batch.targets[..., None])[..., 0].cpu().numpy()
    looked = source_weights(tape, batch.source)
    for row, (source, target) in enumerate(pairs):
        length = len(target) + 1
        weights = None if looked is None else looked[row, :length, : len(source)]
        yield Forced(logps[row, :length], weights)


def source_weights(tape: Tape, source: Tensor | None) -> Floats | None:
    """The mean over all heads of all modules that read the source: (B, Tq, Ts)."""
    if source is None:
        return None
    reads = [tape[name] for name in tape if tape[name].shape[-1] == source.shape[1]]
    tables = [read.mean(dim=1) if read.dim() == 4 else read for read in reads]  # (B, [H,] Tq, Ts) → (B, Tq, Ts)
    return torch.stack(tables).mean(dim=0).numpy() if tables else None
