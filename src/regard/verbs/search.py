"""Translate: search for the best target of each line, then align the targets with one pass of teacher forcing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.flat import pad_ids
from regard.decode import Penalty, check_size, collect, greedy, stream
from regard.decode import beam as beam_search
from regard.errors import UserError
from regard.models.parts import path_of
from regard.recording import pause_recording, record
from regard.tensor_tree import copied
from regard.verbs.forced import (
    Floats,
    aligning,
    aligning_heads,
    grouped,
    record_forced,
    rounded,
    search_tokens,
)
from regard.verbs.given import text_list
from regard.verbs.loaded import Loaded


@dataclass(frozen=True, eq=False)
class Translation:
    """One target of one line. The target of a blank line is blank."""

    line: int  # the number of the line, from 0
    text: str
    score: float  # see `Penalty`; the end of the sentence, if generated, counts in the length and in logp
    logp: float
    ended: str  # why the search stopped: "end" or "limit"
    source_tokens: list[int]
    tokens: list[int]  # of the target, without the end
    source_pieces: list[str]
    target_pieces: list[str]
    logps: Floats  # (T,), or (T + 1,) with the end
    alignment: Floats | None = None  # (target pieces, source pieces); None without `align` or attention


@dataclass(frozen=True)
class Search:
    """Options of the search: greedy if the beam is 1, else beam search."""

    beam: int
    nbest: int
    penalty: Penalty
    limit: int | None  # the most tokens of a target, its end included; None: 2 × source + some

    def __post_init__(self) -> None:
        check_size(self.beam, self.nbest)
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit={self.limit}: allow at least 1 token.")
        if self.beam == 1:
            self.penalty.check_greedy()


def translate(
    model: Loaded,
    lines: Iterable[str],
    beam: int = 1,
    nbest: int = 1,
    penalty: Penalty | float = 1.0,
    limit: int | None = None,
    align: bool = True,
    batch_tokens: int | None = None,
) -> list[Translation]:
    """The `nbest` best targets of every line, best first; the lines in their order.

    A target has at most `limit` tokens, its end included, and at most as many as the model has positions; a longer one
    is truncated, and ranked by its remaining tokens. `penalty` ranks targets of different lengths and stops the search;
    a number is `Penalty(alpha=number)`.

    With `align` each target has an alignment, from one pass of teacher forcing after the same encoding of the source.
    While the caller records the model, the tape records one pass of teacher forcing over all targets that are not
    blank, and nothing of the search.
    """
    lines = text_list(lines, "lines")
    model.expect("translate", model.module.config.source_vocab > 0)
    search = Search(beam, nbest, penalty if isinstance(penalty, Penalty) else Penalty(penalty), limit)
    sources, batch_tokens = model.read(lines), search_tokens(model, batch_tokens)
    nonempty = [line for line, source in enumerate(sources) if source]
    blank = np.empty(0, np.float32)
    found = [
        Translation(line, "", 0.0, 0.0, "end", [], [], [], [], blank)
        for line, source in enumerate(sources)
        if not source
    ]
    with pause_recording(model.module), torch.no_grad(), model.autocast():
        for rows in grouped([len(sources[line]) for line in nonempty], batch_tokens // beam):
            found += _translations(model, {nonempty[row]: sources[nonempty[row]] for row in rows}, search, align)
    found.sort(key=lambda one: one.line)  # stable: the best of a line stays first
    record_forced(model, [(one.source_tokens, one.tokens) for one in found if one.source_tokens], batch_tokens)
    return found


def _translations(model: Loaded, sources: dict[int, list[int]], search: Search, align: bool) -> Iterator[Translation]:
    """The best targets of one batch of lines."""
    assert model.source_tokenizer is not None
    wrapped = [model.source_tokenizer.wrap_input(ids) for ids in sources.values()]
    source, real = (torch.from_numpy(array).to(model.device) for array in pad_ids(wrapped))
    limit = search.limit or 2 * rounded(max(map(len, sources.values()))) + 20
    uneven = min(map(len, wrapped)) < source.shape[1]  # else there is no padding to mask
    first = int(model.source_tokenizer.special_tokens.prefix is not None)  # the column of the source's first token
    best = best_targets(model, source, real if uneven else None, search, limit, align)
    for (line, read), targets in zip(sources.items(), best):
        for one in targets:
            yield Translation(
                line=line,
                text=model.target_tokenizer.decode(one.tokens),
                score=one.score,
                logp=one.logp,
                ended=one.ended,
                source_tokens=read,
                tokens=one.tokens,
                source_pieces=model.source_tokenizer.pieces(read),
                target_pieces=model.target_tokenizer.pieces(one.tokens),
                logps=one.logps,
                alignment=None if one.weights is None else one.weights[:, first : first + len(read)],
            )


@dataclass(frozen=True, eq=False)
class Target:
    """A target that a search found for a source."""

    tokens: list[int]  # without the end
    score: float
    logp: float
    ended: str  # "end" or "limit"
    logps: Floats  # (T,), or (T + 1,) with the end
    weights: Floats | None  # (T, Ts) attention to the source; None without `align` or attention


def best_targets(
    model: Loaded, source: Tensor, real: Tensor | None, search: Search, limit: int, align: bool
) -> list[list[Target]]:
    """The best targets of each source of a batch, best first."""
    special_tokens = model.target_tokenizer.special_tokens
    bos, eos = special_tokens.bos, special_tokens.eos
    assert bos is not None, "the model generates sentences"
    assert eos is not None
    most = model.module.config.longest_target
    limit = limit if most is None else min(limit, max(1, most - 1))  # one more for the end of a target that was cut
    decoder, prompt = model.decoder, torch.full((len(source),), bos, device=model.device)
    state = decoder.start(source, real, len(source), limit)
    start = copied(state) if align else None  # a search may write into the tensors of its state
    if search.beam == 1:
        steps = stream(decoder, state, prompt, greedy, limit, eos, model.forbidden)
        tokens, logps = (one[:, None] for one in collect(steps))  # (B, 1, T)
        # PAD may be a token of its own before the end, but not after it.
        lengths = ((tokens == eos).cumsum(2) == 0).sum(2).add(1).clamp(max=tokens.shape[2])
        totals = logps.sum(2)
        scores = search.penalty.scores(totals, lengths)
    else:
        best = beam_search(
            decoder, state, prompt, search.beam, limit, eos, search.penalty, search.nbest, model.forbidden
        )
        tokens, logps, lengths, totals, scores = best.tokens, best.token_logps, best.lengths, best.logps, best.scores
    model.check_finite(logps)
    model.check_finite(scores[:, 0])  # −∞: a beam found nothing
    weights = [_alignments(model, start, prompt, tokens[:, rank]) if align else None for rank in range(tokens.shape[1])]
    answers = zip(tokens.tolist(), logps.cpu().numpy(), lengths.tolist(), totals.tolist(), scores.tolist())
    found: list[list[Target]] = []
    for row, (ids, row_logps, row_lengths, row_totals, row_scores) in enumerate(answers):
        found.append([])
        for rank, length in enumerate(row_lengths):
            if not length:  # a small vocabulary may have fewer sentences than the beam
                continue
            ended = ids[rank][length - 1] == eos
            target, table = ids[rank][: length - 1] if ended else ids[rank][:length], weights[rank]
            kept = None if table is None else table[row, : len(target)]
            why = "end" if ended else "limit"
            found[-1].append(Target(target, row_scores[rank], row_totals[rank], why, row_logps[rank, :length], kept))
    return found


def _alignments(model: Loaded, start: Any, prompt: Tensor, tokens: Tensor) -> Floats | None:
    """The attention weights (B, T, Ts) to the source at each of the tokens (B, T), by teacher forcing from a state.

    They are the mean over the heads of the aligning layer (`aligning`). None for a model without attention.
    """
    if (name := aligning(model)) is None:
        return None
    module: Any = model.module
    with record(module, (path_of(name),), aligning_heads(model)) as tape:
        module.advance(torch.cat([prompt[:, None], tokens[:, :-1]], dim=1), copied(start))
    weights = tape[name]
    return (weights.mean(dim=1) if weights.dim() == 4 else weights).numpy()
