"""Beam search: keep the `size` best prefixes of each sentence, extend each by every token, and keep the best again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decode.cuda_graph import step_runner
from regard.decode.state import NEG_INF, PAD, Decoder, DelayedFlag, S
from regard.errors import UserError
from regard.kernels.ranking import likeliest

MAX_SIZE = 1000  # hypotheses of a beam: the cost of a step grows with the square of the size
MAX_PENALTY = 10.0  # length penalty: with far larger ones length ** penalty overflows


@dataclass(frozen=True)
class Hypotheses:
    """The N best sentences found for each row of a batch, best first.

    A sentence that does not end with stop was cut short by the limit. Where fewer than N sentences exist (a small
    vocabulary and a low limit), the remaining entries have length 0 and score -inf.
    """

    tokens: Tensor  # (B, N, T) int64, the stop token included if there is one, then PAD
    lengths: Tensor  # (B, N) int64, the number of these tokens
    scores: Tensor  # (B, N) float32, logp / length ** penalty
    logps: Tensor  # (B, N) float32, the log-probability of these tokens


@dataclass(frozen=True)
class Candidates:
    """Prefixes of the beam extended by one token each, best first."""

    logps: Tensor  # (B, n) log-probability of the prefix and the token
    parents: Tensor  # (B, n) in 0 .. size - 1: which prefix of the beam was extended (the back-pointer)
    tokens: Tensor  # (B, n) the token that was added

    def clone(self) -> "Candidates":
        """A copy in new memory."""
        return Candidates(self.logps.clone(), self.parents.clone(), self.tokens.clone())

    def take(self, ranks: Tensor) -> "Candidates":
        """The candidates at the given ranks, (B, m)."""
        return Candidates(self.logps.gather(1, ranks), self.parents.gather(1, ranks), self.tokens.gather(1, ranks))


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

    A sentence ends with `stop`, which counts as one of its tokens, or is cut short by the limit. Its score is
    logp / length ** penalty: penalty 0 ranks by probability, which favours short sentences, 1 by the mean per token.
    Tokens in `forbid` are never produced. With `size` large enough this is exhaustive search; with `size` 1 and no
    penalty it is greedy decoding.
    """
    nbest = size if nbest is None else nbest
    _check(size, limit, stop, penalty, nbest, forbid)
    runner = step_runner(decoder)
    beam_step = BeamStep(runner.eager, size, limit, stop, penalty, forbid)
    run_step: Callable[[Carry[S]], tuple[Carry[S], StepOutput]] = runner.capture(beam_step, beam_step)
    sentence = torch.arange(len(prompt), device=prompt.device)
    # R = B * size rows; the rows of a sentence are neighbours.
    state = runner.preallocate(state.select(sentence.repeat_interleave(size)), limit)
    live = torch.full((len(prompt), size), NEG_INF, device=prompt.device)
    live[:, 0] = 0.0  # all beams of a sentence start equal: only one is live, or each sentence is found `size` times
    # The scores of the best finished sentences, best first.
    pool = live.new_full((len(prompt), nbest), NEG_INF)
    carry: Carry[S] = prompt.repeat_interleave(size), live, pool, torch.ones((), device=prompt.device), state
    kept: list[Candidates] = []  # by step, (B, size): the prefixes in the beam
    finished: list[Candidates] = []  # by step, (B, size): the finished sentences; logp -inf in the other places
    all_done = DelayedFlag(prompt.device)

    for _ in range(limit):
        carry, (going_on, ended, done) = run_step(carry)
        kept.append(going_on.clone())
        finished.append(ended.clone())
        if all_done(done):
            break
    return _backtrack(kept, finished, penalty, nbest)


# Tokens (R,), log-probabilities of the live prefixes (B, size), the pool (B, nbest), the length 0-d, and the state.
Carry = tuple[Tensor, Tensor, Tensor, Tensor, S]
StepOutput = tuple[Candidates, Candidates, Tensor]  # prefixes in the beam, finished sentences, whether all are done


@dataclass(frozen=True)
class BeamStep:
    """One step of the search. It depends only on what it carries, so that a GPU can capture all of it."""

    decoder: Any
    size: int
    limit: int
    stop: int
    penalty: float
    forbid: tuple[int, ...]

    def __call__(self, carry: Carry[S]) -> tuple[Carry[S], StepOutput]:
        tokens, live, _, _, state = carry
        logits, state = self.decoder.step(tokens, state)
        # One prefix can fill the whole beam (`size` tokens) and also end (1 token), so its best size + 1 tokens are
        # enough, plus one for each forbidden token that may be among them.
        best, tokens = likeliest(logits, min(self.size + 1 + len(self.forbid), logits.shape[1]))  # (R, K)
        for token in self.forbid:
            best = best.masked_fill(tokens == token, NEG_INF)
        return self._select(carry, _expand(live, best, tokens), state)

    def _select(self, carry: Carry[S], candidates: Candidates, state: S) -> tuple[Carry[S], StepOutput]:
        """Choose the prefixes that go on and the sentences that end here, and test whether the search is done."""
        _, _, pool, length, _ = carry
        # Stop competes with every other token: a sentence ends where stop is among the first `size` ranks. At the limit
        # every sentence ends, whatever its last token. The beam is then filled with the best candidates that go on
        # (False sorts before True, and a stable sort keeps the order of the ranks).
        stops = candidates.tokens == self.stop
        final = candidates.logps.masked_fill(~(stops | (length >= self.limit)), NEG_INF)
        ended = Candidates(final[:, : self.size], candidates.parents[:, : self.size], candidates.tokens[:, : self.size])
        going_on = candidates.take(stops.sort(dim=1, stable=True).indices[:, : self.size])
        scores = ended.logps / length**self.penalty
        pool = torch.cat([pool, scores], dim=1).topk(pool.shape[1], dim=1).values

        # Each token adds a logp <= 0, so every sentence that grows from a prefix has logp <= live. As logp is negative,
        # its score is highest at the greatest length: score <= live / limit ** penalty. Where this bound of the best
        # live prefix does not exceed the worst score of the pool, no later step can change the pool. The sentence may
        # then run idle until the rest of the batch is done, and its result is the same as without the batch.
        done = (going_on.logps[:, 0] / self.limit**self.penalty <= pool[:, -1]).all()
        sentence = torch.arange(len(pool), device=pool.device)
        state = state.select((sentence[:, None] * self.size + going_on.parents).flatten())
        return (going_on.tokens.flatten(), going_on.logps, pool, length + 1, state), (going_on, ended, done)


def check_size(size: int) -> None:
    """Raise a UserError unless the beam size is between 1 and MAX_SIZE."""
    if not 1 <= size <= MAX_SIZE:
        raise UserError(f"beam={size}: give 1 (greedy) to {MAX_SIZE:,}; more than some dozens rarely find better.")


def check_penalty(penalty: float) -> None:
    """Raise a UserError unless the length penalty is between 0 and MAX_PENALTY."""
    if not 0 <= penalty <= MAX_PENALTY:  # also catches NaN
        raise UserError(f"the length penalty is {penalty}: give a number from 0 (none) to {MAX_PENALTY:g}.")


def _expand(live: Tensor, best: Tensor, tokens: Tensor) -> Candidates:
    """Extend each live prefix, (B, size), by its best tokens (R, K), of log-probabilities `best`; rank the results.

    Of equal candidates, that of the earlier prefix comes first.
    """
    batch, _ = live.shape
    totals = (live.view(-1, 1) + best).view(batch, -1)  # (B, size * K)
    totals, at = totals.sort(dim=1, descending=True, stable=True)
    return Candidates(totals, at // best.shape[1], tokens.reshape(batch, -1).gather(1, at))


def _backtrack(kept: list[Candidates], finished: list[Candidates], penalty: float, nbest: int) -> Hypotheses:
    """The best of all finished sentences, read from their last token to their first along the back-pointers."""
    size = finished[0].logps.shape[1]
    scores = torch.cat([ended.logps / length**penalty for length, ended in enumerate(finished, start=1)], dim=1)
    # Of equal scores the shorter sentence comes first.
    scores, at = (best[:, :nbest] for best in scores.sort(dim=1, descending=True, stable=True))
    ends = Candidates(
        torch.cat([ended.logps for ended in finished], dim=1),  # (B, steps * size)
        torch.cat([ended.parents for ended in finished], dim=1),
        torch.cat([ended.tokens for ended in finished], dim=1),
    ).take(at)  # (B, nbest)
    lengths = (at // size + 1).masked_fill(scores == NEG_INF, 0)

    tokens, beam_index = [], ends.parents  # beam_index: which prefix of that step's beam belongs to the sentence
    for step in reversed(range(max(1, int(lengths.max())))):
        before_end = step < lengths - 1
        token = kept[step].tokens.gather(1, beam_index).where(before_end, ends.tokens)
        tokens.append(token.where(step < lengths, PAD))
        beam_index = kept[step].parents.gather(1, beam_index).where(before_end, beam_index)
    return Hypotheses(torch.stack(tokens[::-1], dim=2), lengths, scores, ends.logps)


def _check(size: int, limit: int, stop: int, penalty: float, nbest: int, forbid: tuple[int, ...]) -> None:
    check_size(size)
    if not 1 <= nbest <= size:
        raise UserError(f"nbest is {nbest} with a beam of size {size}: give 1 to {size}, or a larger beam.")
    if limit < 1:
        raise UserError(f"limit is {limit}: allow at least 1 token.")
    check_penalty(penalty)
    assert stop not in forbid, "stop is forbidden, so that no sentence can end"
