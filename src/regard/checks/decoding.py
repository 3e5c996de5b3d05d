"""Checks of decoding: a state that is carried from token to token, and the search with it."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from regard.checks.subject import CheckResult, Subject, Texts, difference, does_not_apply, measured
from regard.decode import Penalty, beam

LETTERS, LIMIT = 2, 3  # of the exhaustive search: tokens beside the stop token, and the most tokens of a sentence
ALPHA = 0.6  # the length penalty
BEAM_BOUND = 1e-4  # scores of a beam are float32
NO_STEP = "the module decodes nothing, or its `start` and `step` were not given"


def cached(subject: Subject) -> CheckResult:
    """Decoding with a cache has the outputs without it.

    Reads random texts one token at a time with `start` and `step`, and compares with one call of `logits`.
    """
    if subject.calls.start is None or subject.calls.step is None:
        return does_not_apply(NO_STEP)
    texts, steps = subject.texts(), list[float]()
    with torch.no_grad():
        expected, state = subject.logits(texts), _start(subject, texts, texts.tokens.shape[1])
        for tokens in texts.tokens.unbind(1):
            logits, state = subject.calls.step(subject.module, tokens, state)
            steps.append(difference(logits, expected[:, len(steps)]))
    first = next((at for at, error in enumerate(steps) if error > subject.bound), 0)
    where = f"the cache and the positions of `step`: outputs differ from step {first} on"
    return measured(max(steps), subject.bound, where)


def _start(subject: Subject, texts: Texts, capacity: int) -> Any:
    assert subject.calls.start is not None
    return subject.calls.start(subject.module, len(texts.tokens), capacity, *subject.arguments(texts)[2:])


@dataclass(frozen=True)
class TinyDecoder:
    """The decoder of a module in a vocabulary of a few of its ids; tokens are their numbers."""

    subject: Subject
    ids: Tensor

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        assert self.subject.calls.step is not None
        logits, state = self.subject.calls.step(self.subject.module, self.ids[tokens], state)
        return logits[:, self.ids], state

    @torch.no_grad()
    def logps(self, texts: Texts, sentences: Tensor) -> Tensor:
        """The log-probability of each token of sentences (N, T) after the first token of the texts, (B, N, T)."""
        rows, (count, length) = len(texts.tokens), sentences.shape
        state = _start(self.subject, texts.select([row for row in range(rows) for _ in range(count)]), length)
        read, found = torch.full((rows * count,), len(self.ids) - 1), []
        for tokens in sentences.repeat(rows, 1).unbind(1):
            logits, state = self.step(read, state)
            found.append(logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0])
            read = tokens
        return torch.stack(found, dim=1).view(rows, count, length)


def beam_search(subject: Subject) -> CheckResult:
    """A wide beam finds what exhaustive search finds.

    Scores every sentence of at most 3 tokens over 3 ids, and compares with the n best of `regard.beam`.
    """
    if subject.calls.start is None or subject.calls.step is None:
        return does_not_apply(NO_STEP)
    texts, stop = subject.texts(), 0
    if not hasattr(_start(subject, texts, LIMIT), "select"):
        return does_not_apply("the state of `start` has no method `select(rows)`, which moves hypotheses")
    decoder = TinyDecoder(subject, subject.ids(2 + LETTERS))  # stop, the letters, and the token before a sentence
    first = len(decoder.ids) - 1
    letters = range(1, 1 + LETTERS)
    ended = [[*word, stop] for n in range(LIMIT) for word in product(letters, repeat=n)]
    every = [*ended, *map(list, product(letters, repeat=LIMIT))]
    padded = torch.tensor([[*sentence, *[stop] * (LIMIT - len(sentence))] for sentence in every])
    lengths = torch.tensor([len(sentence) for sentence in every])
    logps = decoder.logps(texts, padded).masked_fill(torch.arange(LIMIT) >= lengths[:, None], 0.0).sum(-1)
    scores = logps / lengths**ALPHA  # (B, N)
    penalty, prompt = Penalty(ALPHA, stop="exact"), torch.full((len(texts.tokens),), first)
    state = _start(subject, texts, LIMIT)
    found = beam(decoder, state, prompt, len(every), LIMIT, stop, penalty, forbid=(first,))
    expected = torch.stack(
        [
            torch.stack([of_row[every.index(one[:length])] for one, length in zip(sentences, ends)])
            for of_row, sentences, ends in zip(scores, found.tokens.tolist(), found.lengths.tolist())
        ]
    )
    best = scores.sort(dim=1, descending=True).values
    error = max(difference(found.scores.to(best.dtype), best), difference(found.scores.to(best.dtype), expected))
    return measured(error, BEAM_BOUND, "`select` of the state: every tensor of a hypothesis must move with it")
