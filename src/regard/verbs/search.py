"""Translate: search for the best target of each line, then align the targets with one pass of teacher forcing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from regard.data.flat import pad_ids
from regard.decode import beam as beam_search
from regard.decode import check_penalty, check_size, collect, greedy, stream
from regard.decode.sample import WithLogps
from regard.errors import UserError
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, Floats, Forced, check_is_list, forced, grouped, rounded, target_limit
from regard.verbs.loaded import Loaded
from regard.verbs.record_forced import record_forced


@dataclass(frozen=True, eq=False)
class Translation:
    """One target of one line. The target of a blank line is blank."""

    line: int  # the number of the line, from 0
    text: str
    score: float  # logp / length ** penalty; the end of the sentence, if generated, counts in both
    logp: float
    ended: str  # why the search stopped: "end" or "limit"
    source_tokens: list[int]
    tokens: list[int]  # of the target, without the end
    source_pieces: list[str]
    target_pieces: list[str]
    logps: Floats | None = None  # (T,), or (T + 1,) with the end; None without `align`
    alignment: Floats | None = None  # (target pieces, source pieces); None without `align` or attention


@dataclass(frozen=True)
class Search:
    """Options of the search: greedy if the beam is 1, else beam search."""

    beam: int = 1
    nbest: int = 1
    penalty: float = 1.0
    limit: int | None = None  # the most tokens of a target, its end included; None: 2 × source + some

    def __post_init__(self) -> None:
        check_size(self.beam)
        if not 1 <= self.nbest <= self.beam:
            cure = f"raise the beam to {self.nbest}" if self.nbest > self.beam else "give 1 or more"
            raise UserError(f"nbest={self.nbest} with beam={self.beam}: a beam gives at most as many targets; {cure}.")
        check_penalty(self.penalty)
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit={self.limit}: allow at least 1 token.")


@dataclass(frozen=True)
class Found:
    """A target that the search found."""

    line: int
    tokens: list[int]  # without the end
    score: float = 0.0
    logp: float = 0.0
    ended: str = "end"


def translate(
    model: Loaded,
    lines: Sequence[str],
    beam: int = 1,
    nbest: int = 1,
    penalty: float = 1.0,
    limit: int | None = None,
    align: bool = True,
    batch_tokens: int = BATCH_TOKENS,
) -> list[Translation]:
    """The `nbest` best targets of every line, best first; the lines in their order.

    A target has at most `limit` tokens, its end included, and at most as many as the model has positions; a longer one
    is truncated, and ranked by its remaining tokens.

    With `align` each target has an alignment, from one pass of teacher forcing. While the caller records the model, the
    tape records one pass of teacher forcing over all targets that are not blank, and nothing of the search.
    """
    check_is_list(lines)
    model.expect("translate", model.module.config.reads_source)
    search = Search(beam, nbest, penalty, limit)
    sources = model.read(lines)
    nonempty = [line for line, source in enumerate(sources) if source]
    found = [Found(line, []) for line, source in enumerate(sources) if not source]
    with pause_recording(model.module), torch.no_grad(), model.autocast():
        for rows in grouped([len(sources[line]) for line in nonempty], batch_tokens // beam):
            found += _search(model, {nonempty[row]: sources[nonempty[row]] for row in rows}, search)
    found.sort(key=lambda one: one.line)  # stable: the best of a line stays first

    pairs = [(sources[one.line], one.tokens) for one in found if sources[one.line]]
    record_forced(model, pairs, batch_tokens)
    looks = iter(forced(model, pairs, batch_tokens) if align else [])
    return [
        _translation(model, one, sources[one.line], next(looks, None) if sources[one.line] else None) for one in found
    ]


def _translation(model: Loaded, one: Found, source: list[int], look: Forced | None) -> Translation:
    """A target with its text, its pieces and its alignment; the row of the end is left out."""
    alignment = None if look is None or look.weights is None else look.weights[:-1]
    columns, rows = model.captions(source, one.tokens)
    return Translation(
        line=one.line,
        text=model.target_tokenizer.decode(one.tokens),
        score=one.score,
        logp=one.logp,
        ended=one.ended,
        source_tokens=source,
        tokens=one.tokens,
        source_pieces=columns,
        target_pieces=rows[:-1],
        logps=None if look is None else look.logps[: None if one.ended == "end" else -1],
        alignment=alignment,
    )


def _search(model: Loaded, sources: dict[int, list[int]], search: Search) -> Iterator[Found]:
    """The best targets of one batch of lines."""
    assert model.source_tokenizer is not None
    special_tokens = model.target_tokenizer.special_tokens
    wrapped = [model.source_tokenizer.wrap_input(ids) for ids in sources.values()]
    assert special_tokens.bos is not None, "a translator generates sentences"
    assert special_tokens.eos is not None
    source, real = (torch.from_numpy(array).to(model.device) for array in pad_ids(wrapped))
    prompt = torch.full((len(wrapped),), special_tokens.bos, device=model.device)
    limit = search.limit or 2 * rounded(max(map(len, sources.values()))) + 20
    most = target_limit(model)
    limit = limit if most is None else min(limit, max(1, most - 1))  # one more for the end of a target that was cut
    module: Any = model.module
    uneven = min(map(len, wrapped)) < source.shape[1]  # else there is no padding to mask
    state = module.start(source, real if uneven else None, len(wrapped), limit)
    if search.beam == 1:
        tokens, logps = _greedy(model, state, prompt, limit)
        tokens, logps = tokens[:, None], logps[:, None]  # (B, 1, T), (B, 1)
        found = torch.ones_like(logps, dtype=torch.bool)
    else:
        best = beam_search(
            model.decoder,
            state,
            prompt,
            search.beam,
            limit,
            special_tokens.eos,
            search.penalty,
            search.nbest,
            forbid=model.forbidden,
        )
        tokens, logps, found = (
            best.tokens,
            best.logps,
            best.lengths > 0,
        )  # a small vocabulary may have fewer sentences than the beam
    for line, rows, totals, there in zip(sources, tokens.tolist(), logps.tolist(), found.tolist()):
        for row, logp in compress(zip(rows, totals), there):
            ended = special_tokens.eos in row
            ids = row[: row.index(special_tokens.eos)] if ended else row
            score = logp / (len(ids) + ended) ** search.penalty
            yield Found(line, ids, score, logp, "end" if ended else "limit")


def _greedy(model: Loaded, state: Any, prompt: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """The likeliest token at every step: tokens (B, T), their log-probability (B,)."""
    end = model.target_tokenizer.special_tokens.eos
    assert end is not None
    pick = WithLogps(greedy, torch.tensor(model.forbidden, dtype=torch.long, device=prompt.device))
    tokens = collect(stream(model.decoder, state, prompt, pick, limit, end))
    logps = torch.stack(pick.logps[: tokens.shape[1]], dim=1)
    ends = tokens == end
    finished = ends.cumsum(dim=1) - ends.long() > 0  # after the first end: the tokens of a finished row have no meaning
    return tokens, logps.masked_fill(finished, 0.0).sum(dim=1)
