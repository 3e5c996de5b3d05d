"""Beam search: keep the few best beginnings of a sentence, extend each by every token, and keep the best again."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decode.state import PAD, Decoder, Late, S
from regard.errors import UserError

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
    sentence = torch.arange(len(prompt), device=prompt.device)
    state = state.select(sentence.repeat_interleave(size))  # R = B * size rows, those of a sentence side by side
    tokens = prompt.repeat_interleave(size)
    live = torch.full((len(prompt), size), NEVER, device=prompt.device)
    live[:, 0] = 0.0  # the beams of a sentence start alike: one is enough, or each sentence would be found `size` times
    pool = live.new_full((len(prompt), nbest), NEVER)  # the scores of the best sentences that have ended, best first
    forbidden = torch.tensor(forbid, dtype=torch.long, device=prompt.device)
    going: list[Ranked] = []  # by step, (B, size): the beginnings in the beam
    ended: list[Ranked] = []  # by step, (B, size): the sentences that ended, NEVER in the other places
    late = Late(prompt.device)

    for length in range(1, limit + 1):
        logits, state = decoder.step(tokens, state)
        logps = F.log_softmax(logits.float(), dim=-1).index_fill(1, forbidden, NEVER)  # (R, V)
        ranked = _extend(live, logps if length < limit else _only(stop, logps))

        # Stop competes with every other token: a sentence ends by taking one of the first `size` ranks. The beam is
        # then filled with the best that go on (False sorts before True, and a stable sort keeps the ranks in order).
        stops = ranked.tokens == stop
        finals = ranked.logps.masked_fill(~stops, NEVER)
        ended.append(Ranked(finals[:, :size], ranked.parents[:, :size], ranked.tokens[:, :size]))
        going.append(ranked.take(stops.sort(dim=1, stable=True).indices[:, :size]))
        live, tokens = going[-1].logps, going[-1].tokens.flatten()
        pool = torch.cat([pool, ended[-1].logps / length**penalty], dim=1).topk(nbest, dim=1).values

        # A beginning can only lose: each token adds a logp <= 0, so whatever it grows into has logp <= live, and, that
        # being negative, the greatest length flatters it most: score <= live / limit ** penalty. Where the best live
        # one does not beat the worst of the pool, no later step can change the pool: a sentence may idle while the rest
        # of the batch goes on, and its answer is the one it would get alone.
        if late((live[:, 0] / limit**penalty <= pool[:, -1]).all()):
            break
        state = state.select((sentence[:, None] * size + going[-1].parents).flatten())

    return _follow(going, ended, penalty, nbest)


def check_penalty(penalty: float) -> None:
    """Refuse a length penalty that no search can use."""
    if not 0 <= penalty <= STEEPEST:  # false of NaN too
        raise UserError(f"the length penalty is {penalty}: give a number from 0 (none) to {STEEPEST:g}.")


def _only(token: int, logps: Tensor) -> Tensor:
    """The same log-probabilities (R, V), not made to sum to one again, with no other token left to choose."""
    return logps.where(torch.arange(logps.shape[1], device=logps.device) == token, NEVER)


def _extend(live: Tensor, logps: Tensor) -> Ranked:
    """All extensions of the live beginnings, (B, size), that can matter, ranked; of equals the earlier beam leads.

    One beginning can fill the beam, which takes `size` tokens, and end: its best size + 1 tokens are enough.
    """
    batch, size = live.shape
    best, tokens = logps.topk(min(size + 1, logps.shape[1]), dim=1)  # (R, K)
    totals = (live.view(-1, 1) + best).view(batch, -1)  # (B, size * K)
    totals, at = totals.sort(dim=1, descending=True, stable=True)
    return Ranked(totals, at // best.shape[1], tokens.view(batch, -1).gather(1, at))


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
