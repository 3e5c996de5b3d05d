"""Translate: search for the best target of each line, then look once at how the winners were said."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.ragged import Ragged
from regard.decode import beam as beam_search
from regard.decode import check_penalty, check_size, collect, greedy, stream
from regard.decode.sample import WithLogps
from regard.errors import UserError
from regard.recording import silenced
from regard.verbs.forced import BATCH_TOKENS, Floats, Forced, check_is_list, forced, grouped, rounded, target_limit
from regard.verbs.loaded import Loaded
from regard.verbs.record_forced import record_forced


@dataclass(frozen=True, eq=False)
class Translation:
    """One answer to one line. That to a blank line is blank."""

    line: int  # which of the lines it answers, from 0
    text: str
    score: float  # logp / length ** penalty; the end of the sentence, where it was said, counts in both
    logp: float
    ended: str  # why it goes no further: "end" or "limit"
    source_tokens: list[int]
    tokens: list[int]  # of the target, without the end
    source_pieces: list[str]
    target_pieces: list[str]
    logps: Floats | None = None  # (T,), or (T + 1,) where the end was said; where an alignment was asked for
    alignment: Floats | None = None  # (target pieces, source pieces); where asked for and the model has attention


@dataclass(frozen=True)
class Search:
    """How to look for a target: greedily where the beam is one, else by beam search."""

    beam: int = 1
    nbest: int = 1
    penalty: float = 1.0
    limit: int | None = None  # the most tokens of a target, its end included; None: 2 × source + some

    def __post_init__(self) -> None:
        check_size(self.beam)
        if not 1 <= self.nbest <= self.beam:
            cure = f"raise the beam to {self.nbest}" if self.nbest > self.beam else "ask for 1 or more"
            raise UserError(
                f"nbest={self.nbest} with beam={self.beam}: a beam of {self.beam} finds at most as many; {cure}."
            )
        check_penalty(self.penalty)
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit={self.limit}: allow at least 1 token.")


@dataclass(frozen=True)
class Found:
    """A target, as the search leaves it."""

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

    A target has at most `limit` tokens, its end included, and never more than the model has positions for; one that
    would be longer is cut short there, and ranked by the tokens that it has.

    With `align` each comes with the alignment of one forced pass. While the caller records the model, the tape gets one
    forced pass of all answers but those to blank lines, and nothing of the search.
    """
    check_is_list(lines)
    model.expect("translate", "translate")
    search = Search(beam, nbest, penalty, limit)
    sources = model.read(lines)
    there = [line for line, source in enumerate(sources) if source]
    found = [Found(line, []) for line, source in enumerate(sources) if not source]
    with silenced(model.module), torch.no_grad(), model.autocast():
        for rows in grouped([len(sources[line]) for line in there], batch_tokens // beam):
            found += _search(model, {there[row]: sources[there[row]] for row in rows}, search)
    found.sort(key=lambda one: one.line)  # stable: the best of a line stays first

    pairs = [(sources[one.line], one.tokens) for one in found if sources[one.line]]
    record_forced(model, pairs, batch_tokens)
    looks = iter(forced(model, pairs, batch_tokens) if align else [])
    return [_told(model, one, sources[one.line], next(looks, None) if sources[one.line] else None) for one in found]


def _told(model: Loaded, one: Found, source: list[int], look: Forced | None) -> Translation:
    """A target with its text, its pieces and what the forced pass saw; the look at its end is left out."""
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
    special_tokens, framed = (
        model.target_tokenizer.special_tokens,
        [model.source_tokenizer.wrap_input(ids) for ids in sources.values()],
    )
    assert special_tokens.bos is not None, "a translator says sentences"
    assert special_tokens.eos is not None
    padded = Ragged(framed).padded(np.arange(len(framed)), max(map(len, framed)))
    source, real = (torch.from_numpy(array).to(model.device) for array in (padded.ids, padded.real))
    prompt = torch.full((len(framed),), special_tokens.bos, device=model.device)
    limit = search.limit or 2 * rounded(max(map(len, sources.values()))) + 20
    most = target_limit(model)
    limit = limit if most is None else min(limit, max(1, most - 1))  # the forced pass puts an end to what is cut short
    module: Any = model.module  # any translator: `start` and `step` are the same for all
    uneven = min(map(len, framed)) < source.shape[1]  # else nothing is padding, and nothing need be masked
    state = module.start(source, real if uneven else None, len(framed), limit)
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
        tokens, logps, found = best.tokens, best.logps, best.lengths > 0  # few words make few sentences
    for line, rows, totals, there in zip(sources, tokens.tolist(), logps.tolist(), found.tolist()):
        for row, logp in compress(zip(rows, totals), there):
            ended = special_tokens.eos in row
            said = (
                row[: row.index(special_tokens.eos)] if ended else row
            )  # one that is cut short has as many tokens as any
            score = logp / (len(said) + ended) ** search.penalty
            yield Found(line, said, score, logp, "end" if ended else "limit")


def _greedy(model: Loaded, state: Any, prompt: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """The likeliest token at every step: tokens (B, T), their log-probability (B,)."""
    end = model.target_tokenizer.special_tokens.eos
    assert end is not None
    pick = WithLogps(greedy, torch.tensor(model.forbidden, dtype=torch.long, device=prompt.device))
    tokens = collect(stream(model.decoder, state, prompt, pick, limit, end))
    logps = torch.stack(pick.logps[: tokens.shape[1]], dim=1)
    ends = tokens == end
    over = ends.cumsum(dim=1) - ends.long() > 0  # behind the first end, whatever id a row that is done goes on saying
    return tokens, logps.masked_fill(over, 0.0).sum(dim=1)
