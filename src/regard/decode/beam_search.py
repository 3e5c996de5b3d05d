"""Beam search: keep the few best beginnings of a sentence, extend each by every token, and keep the best again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decode.cuda_graph import step_runner
from regard.decode.state import NEVER, PAD, Decoder, DelayedFlag, S
from regard.errors import UserError
from regard.kernels.ranking import likeliest

WIDEST = 1000  # hypotheses of a beam: its steps cost the square of them, and some dozens find all there is to find
STEEPEST = 10.0  # length penalty: there length is all that counts, and far above it length ** penalty overflows


@dataclass(frozen=True)
class Hypotheses:
    """The N best sentences found for each row of a batch, best first.

    One that does not end with stop was cut short by the limit. One that was not found (the vocabulary had too few to
    offer) has length 0 and score -inf.
    """

    tokens: Tensor  # (B, N, T) int64, stop included where it was said, PAD after that
    lengths: Tensor  # (B, N) int64, of these tokens
    scores: Tensor  # (B, N) float32, logp / length ** penalty
    logps: Tensor  # (B, N) float32, the log-probability of these tokens


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

    A sentence ends with `stop`, which is one of its tokens, or is cut short by the limit. Either scores the tokens that
    it has, logp / length ** penalty: 0 ranks by probability, which favours short ones, 1 by the mean per token. Tokens
    in `forbid` are never said. With `size` large enough this is exhaustive search; with `size` 1 and no penalty it is
    greedy decoding.
    """
    nbest = size if nbest is None else nbest
    _check(size, limit, stop, penalty, nbest, forbid)
    steps = step_runner(decoder)
    turn = Turn(steps.plain, size, limit, stop, penalty, forbid)
    take: Callable[[Carried[S]], tuple[Carried[S], Outcome]] = steps.captured(turn, turn)
    sentence = torch.arange(len(prompt), device=prompt.device)
    # R = B * size rows, those of a sentence side by side.
    state = steps.preallocate(state.select(sentence.repeat_interleave(size)), limit)
    live = torch.full((len(prompt), size), NEVER, device=prompt.device)
    live[:, 0] = 0.0  # the beams of a sentence start alike: one is enough, or each sentence would be found `size` times
    # The scores of the best sentences that are over, best first.
    pool = live.new_full((len(prompt), nbest), NEVER)
    carry: Carried[S] = prompt.repeat_interleave(size), live, pool, torch.ones((), device=prompt.device), state
    going: list[Ranked] = []  # by step, (B, size): the beginnings in the beam
    ended: list[Ranked] = []  # by step, (B, size): the sentences that are over, NEVER in the other places
    late = DelayedFlag(prompt.device)

    for _ in range(limit):
        carry, (onward, done, over) = take(carry)
        going.append(onward.clone())
        ended.append(done.clone())
        if late(over):
            break
    return _follow(going, ended, penalty, nbest)


# Tokens (R,), log-probabilities of the live beginnings (B, size), the pool (B, nbest), the length 0-d, and the state.
Carried = tuple[Tensor, Tensor, Tensor, Tensor, S]
Outcome = tuple[Ranked, Ranked, Tensor]  # the beginnings in the beam, the sentences that are over, whether that is all


@dataclass(frozen=True)
class Turn:
    """One step of the search, a function of what it carries alone: on a GPU it is captured whole."""

    decoder: Any
    size: int
    limit: int
    stop: int
    penalty: float
    forbid: tuple[int, ...]

    def __call__(self, carry: Carried[S]) -> tuple[Carried[S], Outcome]:
        tokens, live, _, _, state = carry
        logits, state = self.decoder.step(tokens, state)
        # One beginning can fill the beam, which takes `size` tokens, and end: its best size + 1 tokens are enough, and
        # as many more as may turn out to be forbidden.
        best, tokens = likeliest(logits, min(self.size + 1 + len(self.forbid), logits.shape[1]))  # (R, K)
        for token in self.forbid:
            best = best.masked_fill(tokens == token, NEVER)
        return self._ranked(carry, _extend(live, best, tokens), state)

    def _ranked(self, carry: Carried[S], ranked: Ranked, state: S) -> tuple[Carried[S], Outcome]:
        """Which beginnings go on, which sentences are over, and whether that is all."""
        _, _, pool, length, _ = carry
        # Stop competes with every other token: a sentence ends by taking one of the first `size` ranks, and at the
        # limit they all are over, whichever token they end with. The beam is then filled with the best that go on
        # (False sorts before True, and a stable sort keeps the ranks in order).
        stops = ranked.tokens == self.stop
        finals = ranked.logps.masked_fill(~(stops | (length >= self.limit)), NEVER)
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


def check_size(size: int) -> None:
    """Refuse a beam that holds nothing, or that would never be done."""
    if not 1 <= size <= WIDEST:
        raise UserError(f"beam={size}: give 1 (greedy) to {WIDEST:,}; more than some dozens rarely find better.")


def check_penalty(penalty: float) -> None:
    """Refuse a length penalty that no search can use."""
    if not 0 <= penalty <= STEEPEST:  # false of NaN too
        raise UserError(f"the length penalty is {penalty}: give a number from 0 (none) to {STEEPEST:g}.")


def _extend(live: Tensor, best: Tensor, tokens: Tensor) -> Ranked:
    """All extensions of the live beginnings, (B, size), that can matter, ranked; of equals the earlier beam leads.

    The best tokens (R, K) of each beginning and their log-probabilities are given.
    """
    batch, _ = live.shape
    totals = (live.view(-1, 1) + best).view(batch, -1)  # (B, size * K)
    totals, at = totals.sort(dim=1, descending=True, stable=True)
    return Ranked(totals, at // best.shape[1], tokens.reshape(batch, -1).gather(1, at))


def _follow(going: list[Ranked], ended: list[Ranked], penalty: float, nbest: int) -> Hypotheses:
    """The best of all sentences that are over, read backwards from their ends along the back-pointers."""
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
    check_size(size)
    if not 1 <= nbest <= size:
        raise UserError(f"nbest is {nbest} with a beam of size {size}: give 1 to {size}, or a larger beam.")
    if limit < 1:
        raise UserError(f"limit is {limit}: allow at least 1 token.")
    check_penalty(penalty)
    assert stop not in forbid, "no sentence could end"
