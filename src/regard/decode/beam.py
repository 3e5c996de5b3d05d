"""Beam search: keep the few best beginnings of a sentence, extend each by every token, and keep the best again."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decode.replay import plain, readied, replayed
from regard.decode.state import PAD, Decoder, Late, S
from regard.errors import UserError

CHUNK = 256  # tokens of a vocabulary that are searched together on a GPU
NEVER = float("-inf")  # the log-probability of what cannot be
STEEPEST = 10.0  # length penalty: there length is all that counts, and far above it length ** penalty overflows


@dataclass(frozen=True)
class Hypotheses:
    """The N best sentences found for each row of a batch, best first.

    A sentence that was not found (the vocabulary had too few to offer) has length 0 and score -inf.
    """

    tokens: Tensor  # (B, N, T) int64, stop included, PAD after it
    lengths: Tensor  # (B, N) int64, stop included
    scores: Tensor  # (B, N) float32, logp / length ** penalty
    logps: Tensor  # (B, N) float32, the log-probability of the tokens, stop included


@dataclass(frozen=True)
class Ranked:
    """Extensions of the beginnings in the beam, best first: beginning number `parents` and one token more."""

    logps: Tensor  # (B, n) of the whole beginning
    parents: Tensor  # (B, n) in 0 .. size - 1: the back-pointers
    tokens: Tensor  # (B, n)

    def clone(self) -> "Ranked":
        """The same in a place of its own."""
        return Ranked(self.logps.clone(), self.parents.clone(), self.tokens.clone())

    def take(self, ranks: Tensor) -> "Ranked":
        """Those at the given ranks, (B, m)."""
        return Ranked(self.logps.gather(1, ranks), self.parents.gather(1, ranks), self.tokens.gather(1, ranks))


@torch.no_grad()
def beam(
    decoder: Decoder[S],
    state: S,
    prompt: Tensor,
    size: int,
    limit: int,
    stop: int,
    penalty: float = 0.0,
    nbest: int | None = None,
    forbid: tuple[int, ...] = (),
) -> Hypotheses:
    """The `nbest` (if None, `size`) best sentences of at most `limit` tokens that follow each token of `prompt`, (B,).

    Every sentence ends with `stop` and scores logp / length ** penalty: 0 ranks by probability, which favours short
    ones, 1 by the mean per token. Tokens in `forbid` are never said. With `size` large enough this is exhaustive
    search; with `size` 1 and no penalty it is greedy decoding.
    """
    nbest = size if nbest is None else nbest
    _check(size, limit, stop, penalty, nbest, forbid)
    turn = Turn(plain(decoder), size, limit, stop, penalty, forbid)
    take = replayed(decoder, turn, turn)
    sentence = torch.arange(len(prompt), device=prompt.device)
    # R = B * size rows, those of a sentence side by side.
    state = readied(decoder, state.select(sentence.repeat_interleave(size)))
    live = torch.full((len(prompt), size), NEVER, device=prompt.device)
    live[:, 0] = 0.0  # the beams of a sentence start alike: one is enough, or each sentence would be found `size` times
    # The scores of the best sentences that have ended, best first.
    pool = live.new_full((len(prompt), nbest), NEVER)
    carry: Carried[S] = prompt.repeat_interleave(size), live, pool, torch.ones((), device=prompt.device), state
    going: list[Ranked] = []  # by step, (B, size): the beginnings in the beam
    ended: list[Ranked] = []  # by step, (B, size): the sentences that ended, NEVER in the other places
    late = Late(prompt.device)

    for _ in range(limit):
        carry, (onward, done, over) = take(carry)
        going.append(onward.clone())
        ended.append(done.clone())
        if late(over):
            break
    return _follow(going, ended, penalty, nbest)


# Tokens (R,), log-probabilities of the live beginnings (B, size), the pool (B, nbest), the length 0-d, and the state.
Carried = tuple[Tensor, Tensor, Tensor, Tensor, S]


@dataclass(frozen=True)
class Turn:
    """One step of the search, a function of what it carries alone: on a GPU it is recorded and replayed whole."""

    decoder: Any
    size: int
    limit: int
    stop: int
    penalty: float
    forbid: tuple[int, ...]

    def __call__(self, carry: Carried[S]) -> tuple[Carried[S], tuple[Ranked, Ranked, Tensor]]:
        tokens, live, _, length, state = carry
        logits, state = self.decoder.step(tokens, state)
        logits = logits.to(torch.float32, copy=True)  # ours to write to
        norm = logits.logsumexp(dim=-1, keepdim=True)
        # One beginning can fill the beam, which takes `size` tokens, and end: its best size + 1 tokens are enough, and
        # as many more as may turn out to be forbidden.
        best, tokens = _best(logits, min(self.size + 1 + len(self.forbid), logits.shape[1]))  # (R, K)
        for token in self.forbid:
            best = best.masked_fill(tokens == token, NEVER)
        # At the limit every sentence must stop, with the log-probability that stopping has.
        final, alone = length >= self.limit, torch.full_like(best, NEVER)
        alone[:, 0] = logits[:, self.stop]
        best, tokens = torch.where(final, alone, best), tokens.masked_fill(final, self.stop)
        return self._ranked(carry, _extend(live, best - norm, tokens), state)

    def _ranked(self, carry: Carried[S], ranked: Ranked, state: S) -> tuple[Carried[S], tuple[Ranked, Ranked, Tensor]]:
        """Which beginnings go on, which sentences have ended, and whether that is all."""
        _, _, pool, length, _ = carry
        # Stop competes with every other token: a sentence ends by taking one of the first `size` ranks. The beam is
        # then filled with the best that go on (False sorts before True, and a stable sort keeps the ranks in order).
        stops = ranked.tokens == self.stop
        finals = ranked.logps.masked_fill(~stops, NEVER)
        ended = Ranked(finals[:, : self.size], ranked.parents[:, : self.size], ranked.tokens[:, : self.size])
        going = ranked.take(stops.sort(dim=1, stable=True).indices[:, : self.size])
        scores = ended.logps / length**self.penalty
        pool = torch.cat([pool, scores], dim=1).topk(pool.shape[1], dim=1).values

        # A beginning can only lose: each token adds a logp <= 0, so whatever it grows into has logp <= live, and, that
        # being negative, the greatest length flatters it most: score <= live / limit ** penalty. Where the best live
        # one does not beat the worst of the pool, no later step can change the pool: a sentence may idle while the rest
        # of the batch goes on, and its answer is the one it would get alone.
        over = (going.logps[:, 0] / self.limit**self.penalty <= pool[:, -1]).all()
        sentence = torch.arange(len(pool), device=pool.device)
        state = state.select((sentence[:, None] * self.size + going.parents).flatten())
        return (going.tokens.flatten(), going.logps, pool, length + 1, state), (going, ended, over)


def check_penalty(penalty: float) -> None:
    """Refuse a length penalty that no search can use."""
    if not 0 <= penalty <= STEEPEST:  # false of NaN too
        raise UserError(f"the length penalty is {penalty}: give a number from 0 (none) to {STEEPEST:g}.")


def _best(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best of each row (R, V), with their places: topk. A GPU is slow to search a long row; it takes two parts.

    The best `count` are among the `count` chunks with the best maxima.
    """
    chunks = logits.shape[1] // CHUNK
    if not logits.is_cuda or chunks < 4 * count:
        best, at = logits.topk(count, dim=1)
        return best, at
    whole, rest = logits[:, : chunks * CHUNK].unflatten(1, (chunks, CHUNK)), logits[:, chunks * CHUNK :]
    chosen = whole.amax(2).topk(count, dim=1).indices  # (R, count)
    some = whole.gather(1, chosen[..., None].expand(-1, -1, CHUNK)).flatten(1)
    places = (chosen[..., None] * CHUNK + torch.arange(CHUNK, device=logits.device)).flatten(1)
    tail = torch.arange(chunks * CHUNK, logits.shape[1], device=logits.device).expand(len(logits), -1)
    best, at = torch.cat([some, rest], 1).topk(count, dim=1)
    return best, torch.cat([places, tail], 1).gather(1, at)


def _extend(live: Tensor, best: Tensor, tokens: Tensor) -> Ranked:
    """All extensions of the live beginnings, (B, size), that can matter, ranked; of equals the earlier beam leads.

    The best tokens (R, K) of each beginning and their log-probabilities are given.
    """
    batch, _ = live.shape
    totals = (live.view(-1, 1) + best).view(batch, -1)  # (B, size * K)
    totals, at = totals.sort(dim=1, descending=True, stable=True)
    return Ranked(totals, at // best.shape[1], tokens.reshape(batch, -1).gather(1, at))


def _follow(going: list[Ranked], ended: list[Ranked], penalty: float, nbest: int) -> Hypotheses:
    """The best of all sentences that ended, read backwards from their ends along the back-pointers."""
    size = ended[0].logps.shape[1]
    scores = torch.cat([end.logps / length**penalty for length, end in enumerate(ended, start=1)], dim=1)
    scores, at = (best[:, :nbest] for best in scores.sort(dim=1, descending=True, stable=True))  # of equals the shorter
    ends = Ranked(
        torch.cat([end.logps for end in ended], dim=1),  # (B, steps * size)
        torch.cat([end.parents for end in ended], dim=1),
        torch.cat([end.tokens for end in ended], dim=1),
    ).take(at)  # (B, nbest)
    lengths = (at // size + 1).masked_fill(scores == NEVER, 0)

    words, place = [], ends.parents  # place: where in the beam of that step the sentence stood
    for step in reversed(range(max(1, int(lengths.max())))):
        inside = step < lengths - 1
        word = going[step].tokens.gather(1, place).where(inside, ends.tokens)
        words.append(word.where(step < lengths, PAD))
        place = going[step].parents.gather(1, place).where(inside, place)
    return Hypotheses(torch.stack(words[::-1], dim=2), lengths, scores, ends.logps)


def _check(size: int, limit: int, stop: int, penalty: float, nbest: int, forbid: tuple[int, ...]) -> None:
    if size < 1:
        raise UserError(f"the beam's size is {size}: give 1 or more.")
    if not 1 <= nbest <= size:
        raise UserError(f"nbest is {nbest} with a beam of size {size}: give 1 to {size}, or a larger beam.")
    if limit < 1:
        raise UserError(f"limit is {limit}: allow at least 1 token.")
    check_penalty(penalty)
    assert stop not in forbid, "no sentence could end"
