"""Beam search: keep the `size` best prefixes of each sentence, extend each by every token, and keep the best again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decode.cuda_graph import step_runner
from regard.decode.state import NEG_INF, PAD, Decoder, DelayedFlag, S, SumsWeights, drop_finished, place
from regard.errors import UserError, nearest
from regard.kernels.ranking import likeliest

MAX_SIZE = 1000  # hypotheses of a beam: the cost of a step grows with the square of the size
NAMES = {"alpha": "penalty", "coverage": "coverage", "patience": "patience"}  # the options of a command
FORMULAS = ("power", "gnmt")
STOPS = ("present", "exact")


@dataclass(frozen=True)
class Penalty:
    """How a search ranks sentences of different lengths, and when it stops.

    The score of a sentence is log p / lp(length) + coverage · Σⱼ ln min(Σₜ wₜⱼ, 1), where wₜⱼ is the attention weight
    of source position j at step t (Wu et al. 2016, eq. 14). Prefixes of one length are ranked by their probability.

    `stop="present"` ends the search of a sentence when `patience` · size hypotheses have ended and no prefix in the
    beam has a better score at its present length than the worst of them. With patience 1 this is the default rule of
    `transformers`; in Kasai et al. 2022, who named patience, the count alone ends the search. `stop="exact"` ends it
    when no prefix can lead to a better hypothesis, whatever follows. With a length penalty this takes nearly as many
    steps as the limit allows.
    """

    alpha: float = 0.0  # the exponent of the length: 0 ranks by probability, which favours short sentences
    formula: str = "power"  # lp(length): power, lengthᵅ; or gnmt, ((5 + length) / 6)ᵅ
    coverage: float = 0.0  # β: how much a sentence loses that leaves parts of its source without attention
    stop: str = "present"  # present or exact
    patience: float = 1.0  # present: how many hypotheses must have ended, in multiples of the beam size

    def __post_init__(self) -> None:
        for name, least, most in (("alpha", 0, 10.0), ("coverage", 0, 1000.0), ("patience", 0.01, 1000.0)):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and least <= value <= most):  # also catches NaN
                raise UserError(f"{NAMES[name]}={value!r}: give a number from {least:g} to {most:g}.")
        for name, known in (("formula", FORMULAS), ("stop", STOPS)):
            if (value := getattr(self, name)) not in known:
                raise UserError(f"{name}={value}: no such {name}.{nearest(value, known)}")

    def check_greedy(self) -> None:
        """Raise a UserError if greedy decoding cannot use these settings; it has no use for the stopping rule."""
        if self.coverage:
            raise UserError(f"coverage={self.coverage} with beam=1: greedy decoding ranks nothing; give a beam.")

    def scores(self, logps: Tensor, length: Tensor | int, log_coverage: Tensor | None = None) -> Tensor:
        """The scores of sentences of one length, given their log-probabilities and, for coverage, Σⱼ ln min(…, 1)."""
        scores = logps / (length if self.formula == "power" else (length + 5) / 6) ** self.alpha
        return scores if log_coverage is None else scores + self.coverage * log_coverage

    def needed(self, size: int, nbest: int) -> int:
        """How many hypotheses must have ended before the search may stop."""
        return nbest if self.stop == "exact" else max(nbest, round(self.patience * size))

    def is_done(self, live: Tensor, length: Tensor, limit: int, worst: Tensor) -> Tensor:
        """Whether sentences are done, (B,), given the prefixes `live` (B, size) and the worst score that counts.

        Each token adds a logp <= 0, so every sentence that grows from a prefix has logp <= live. As logp is negative,
        its score is highest at the greatest length, and the term of coverage is at most 0. Hence the exact bound.
        """
        return self.scores(live, limit if self.stop == "exact" else length).amax(1) <= worst


@dataclass(frozen=True)
class Hypotheses:
    """The N best sentences found for each row of a batch, best first.

    A sentence that does not end with stop was cut short by the limit. Where fewer than N sentences exist (a small
    vocabulary and a low limit), the remaining entries have length 0 and score -inf.
    """

    tokens: Tensor  # (B, N, T) int64, the stop token included if there is one, then PAD
    lengths: Tensor  # (B, N) int64, the number of these tokens
    scores: Tensor  # (B, N) float32, see `Penalty`
    logps: Tensor  # (B, N) float32, the log-probability of these tokens
    token_logps: Tensor  # (B, N, T) float32, the log-probability of each token; 0 after the end


@dataclass(frozen=True)
class Candidates:
    """Prefixes of the beam extended by one token each, best first."""

    logps: Tensor  # (B, n) log-probability of the prefix and the token
    parents: Tensor  # (B, n) in 0 .. size - 1: which prefix of the beam was extended (the back-pointer)
    tokens: Tensor  # (B, n) the token that was added

    def take(self, ranks: Tensor) -> "Candidates":
        """The candidates at the given ranks, (B, m)."""
        return Candidates(self.logps.gather(1, ranks), self.parents.gather(1, ranks), self.tokens.gather(1, ranks))

    def placed(self, sentences: Tensor, batch: int) -> "Candidates":
        """These candidates of some sentences in new tensors of the whole batch."""
        return Candidates(*(place(one, sentences, batch, 0) for one in (self.logps, self.parents, self.tokens)))


@torch.no_grad()
def beam(
    decoder: Decoder[S],
    state: S,
    prompt: Tensor,
    size: int,
    limit: int,
    stop: int,
    penalty: Penalty | float = 0.0,
    nbest: int | None = None,
    forbid: Sequence[int] = (),
) -> Hypotheses:
    """The `nbest` (if None, `size`) best sentences of at most `limit` tokens that follow each token of `prompt`, (B,).

    A sentence ends with the token `stop`, which counts as one of its tokens, or is cut short by the limit. `penalty`
    ranks the sentences and stops the search; a number is `Penalty(alpha=number)`. Tokens in `forbid` are never
    produced. With `size` large enough and `Penalty(stop="exact")` this is exhaustive search; with `size` 1 and no
    penalty it is greedy decoding.
    """
    nbest = size if nbest is None else nbest
    penalty = penalty if isinstance(penalty, Penalty) else Penalty(penalty)
    _check(prompt, size, limit, stop, nbest, forbid)
    if penalty.coverage:
        if not isinstance(state, SumsWeights):
            cure = "only recurrent decoders with attention do; leave the coverage penalty out"
            raise UserError(f"coverage={penalty.coverage}: this model does not sum its attention weights; {cure}.")
        state = state.with_coverage()
    runner = step_runner(decoder)
    beam_step = BeamStep(runner.eager, size, limit, stop, penalty, tuple(forbid))
    run_step: Callable[[Carry[S]], tuple[Carry[S], StepOutput]] = runner.capture(beam_step, beam_step)
    sentence = torch.arange(len(prompt), device=prompt.device)
    # R = B * size rows; the rows of a sentence are neighbours.
    state = runner.preallocate(state.select(sentence.repeat_interleave(size)), limit)
    live = torch.full((len(prompt), size), NEG_INF, device=prompt.device)
    live[:, 0] = 0.0  # all beams of a sentence start equal: only one is live, or each sentence is found `size` times
    # The scores of the best finished sentences, best first.
    pool = live.new_full((len(prompt), penalty.needed(size, nbest)), NEG_INF)
    length, done = torch.ones((), device=prompt.device), torch.zeros_like(sentence, dtype=torch.bool)
    carry: Carry[S] = prompt.repeat_interleave(size), live, pool, length, done, state
    kept: list[Candidates] = []  # by step, (B, size): the prefixes in the beam
    finished: list[tuple[Candidates, Tensor]] = []  # by step, (B, size): the sentences that ended, and their scores
    all_done = DelayedFlag(prompt.device)

    for _ in range(limit):
        carry, (going_on, ended, scores, flag) = run_step(carry)
        kept.append(going_on.placed(sentence, len(prompt)))
        finished.append((ended.placed(sentence, len(prompt)), place(scores, sentence, len(prompt), NEG_INF)))
        if all_done(flag):
            break
        tokens, live, pool, length, done, state = carry
        if (left := drop_finished(done, state, size)) is not None:
            going, rows, state = left
            carry = tokens[rows], live[going], pool[going], length, done[going], state
            sentence = sentence[going]
    return _backtrack(kept, finished, nbest)


# Tokens (R,), log-probabilities of the live prefixes (B, size), the pool (B, n), the length 0-d, which sentences are
# done (B,), and the state.
Carry = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, S]
# Prefixes in the beam, finished sentences and their scores (-inf in the other places), whether all sentences are done.
StepOutput = tuple[Candidates, Candidates, Tensor, Tensor]


@dataclass(frozen=True)
class BeamStep:
    """One step of the search. It depends only on what it carries, so that a GPU can capture all of it."""

    decoder: Any
    size: int
    limit: int
    stop: int
    penalty: Penalty
    forbid: tuple[int, ...]

    def __call__(self, carry: Carry[S]) -> tuple[Carry[S], StepOutput]:
        tokens, live, pool, length, done, state = carry
        logits, state = self.decoder.step(tokens, state)
        # One prefix can fill the whole beam (`size` tokens) and also end (1 token), so its best size + 1 tokens are
        # enough, plus one for each forbidden token that may be among them.
        best, tokens = likeliest(logits, min(self.size + 1 + len(self.forbid), logits.shape[1]))  # (R, K)
        for token in self.forbid:
            best = best.masked_fill(tokens == token, NEG_INF)
        candidates = _expand(live, best, tokens)

        # Stop competes with every other token: a sentence ends where stop is among the first `size` ranks. At the limit
        # every sentence ends, whatever its last token. The beam is then filled with the best candidates that go on
        # (False sorts before True, and a stable sort keeps the order of the ranks).
        stops = candidates.tokens == self.stop
        first = Candidates(*(x[:, : self.size] for x in (candidates.logps, candidates.parents, candidates.tokens)))
        going_on = candidates.take(stops.sort(dim=1, stable=True).indices[:, : self.size])
        ends, coverage = stops[:, : self.size] | (length >= self.limit), None
        if self.penalty.coverage:
            assert isinstance(state, SumsWeights)
            coverage = state.log_coverage().view_as(live).gather(1, first.parents)
        # A sentence that is done may run idle until the rest of the batch is done: nothing is added to its results, so
        # they are the same as without the batch.
        scores = self.penalty.scores(first.logps, length, coverage).masked_fill(~ends | done[:, None], NEG_INF)
        pool = torch.cat([pool, scores], dim=1).topk(pool.shape[1], dim=1).values
        done = done | self.penalty.is_done(going_on.logps, length, self.limit, pool[:, -1])
        sentence = torch.arange(len(pool), device=pool.device)
        state = state.select((sentence[:, None] * self.size + going_on.parents).flatten())
        carry = going_on.tokens.flatten(), going_on.logps, pool, length + 1, done, state
        return carry, (going_on, first, scores, done.all())


def check_size(size: int, nbest: int = 1) -> None:
    """Raise a UserError unless the beam size is between 1 and MAX_SIZE, and `nbest` between 1 and the size."""
    if not (isinstance(size, int) and 1 <= size <= MAX_SIZE):
        raise UserError(f"beam={size}: give 1 (greedy) to {MAX_SIZE:,}; more than some dozens rarely find better.")
    if not 1 <= nbest <= size:
        cure = f"raise the beam to {nbest}" if nbest > size else "give 1 or more"
        raise UserError(f"nbest={nbest} with beam={size}: a beam gives at most as many answers; {cure}.")


def _expand(live: Tensor, best: Tensor, tokens: Tensor) -> Candidates:
    """Extend each live prefix, (B, size), by its best tokens (R, K), of log-probabilities `best`; rank the results.

    Of equal candidates, that of the earlier prefix comes first.
    """
    batch, _ = live.shape
    totals = (live.view(-1, 1) + best).view(batch, -1)  # (B, size * K)
    totals, at = totals.sort(dim=1, descending=True, stable=True)
    return Candidates(totals, at // best.shape[1], tokens.reshape(batch, -1).gather(1, at))


def _backtrack(kept: list[Candidates], finished: list[tuple[Candidates, Tensor]], nbest: int) -> Hypotheses:
    """The best of all finished sentences, read from their last token to their first along the back-pointers."""
    size = kept[0].logps.shape[1]
    scores = torch.cat([scores for _, scores in finished], dim=1)  # (B, steps * size)
    # Of equal scores the shorter sentence comes first.
    scores, at = (best[:, :nbest] for best in scores.sort(dim=1, descending=True, stable=True))
    ends = Candidates(
        torch.cat([ended.logps for ended, _ in finished], dim=1),
        torch.cat([ended.parents for ended, _ in finished], dim=1),
        torch.cat([ended.tokens for ended, _ in finished], dim=1),
    ).take(at)  # (B, nbest)
    found = scores != NEG_INF  # NaN counts as found, so that a caller sees it
    lengths = (at // size + 1).masked_fill(~found, 0)

    tokens, totals = [], []  # the totals are the log-probabilities of the sentence up to each token
    beam_index = ends.parents  # which prefix of a step's beam belongs to the sentence
    for step in reversed(range(max(1, int(lengths.max())))):
        before_end = step < lengths - 1
        token = kept[step].tokens.gather(1, beam_index).where(before_end, ends.tokens)
        tokens.append(token.where(step < lengths, PAD))
        totals.append(kept[step].logps.gather(1, beam_index).where(before_end, ends.logps))
        beam_index = kept[step].parents.gather(1, beam_index).where(before_end, beam_index)
    total = torch.stack(totals[::-1], dim=2).masked_fill(~found[..., None], 0.0)
    token_logps = total.diff(dim=2, prepend=torch.zeros_like(total[..., :1]))
    logps = ends.logps.masked_fill(~found, NEG_INF)
    return Hypotheses(torch.stack(tokens[::-1], dim=2), lengths, scores, logps, token_logps)


def _check(prompt: Tensor, size: int, limit: int, stop: int, nbest: int, forbid: Sequence[int]) -> None:
    if prompt.dim() != 1:
        cure = "read the tokens before the last one with model.advance, and give the last one"
        raise UserError(f"prompt: has shape {tuple(prompt.shape)}, but a beam starts from one token per row; {cure}.")
    if not isinstance(stop, int):
        raise UserError(f"stop={stop!r}: give the id of the token that ends a sentence; a rule is Penalty(stop=…).")
    check_size(size, nbest)
    if limit < 1:
        raise UserError(f"limit is {limit}: allow at least 1 token.")
    if stop in forbid:
        raise UserError(f"stop={stop}: this token is forbidden too, so that no sentence could end.")
