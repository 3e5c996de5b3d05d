"""Greedy decoding and sampling, one token at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decode.cuda_graph import step_runner
from regard.decode.state import NEG_INF, PAD, Advancing, Decoder, DelayedFlag, S, drop_finished, place
from regard.errors import UserError
from regard.kernels.ranking import likeliest

Pick = Callable[[Tensor], Tensor]  # logits (R, V) -> tokens (R,)


def greedy(logits: Tensor) -> Tensor:
    """The most probable token of each row."""
    return likeliest(logits, 1)[1][:, 0] if logits.is_cuda else logits.argmax(dim=-1)


@dataclass(frozen=True)
class Sampler:
    """Draws a token of each row at random: applies the temperature first, then `top_k`, then `top_p`.

    A temperature below 1 sharpens the distribution and one above 1 flattens it. `top_k` keeps the k most probable
    tokens (Fan et al. 2018, section 5.1). `top_p` keeps the smallest set of most probable tokens whose probability is
    at least p (nucleus sampling, Holtzman et al. 2020, section 3.1). A seeded `generator`, on the device of the logits,
    makes the draws repeatable. With one generator for each row, the draws of a row do not depend on the other rows.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    generator: torch.Generator | Sequence[torch.Generator] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise UserError(f"temperature is {self.temperature}: give a number above 0, or decode greedily instead.")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k is {self.top_k}: give 1 or more, or leave it out to keep every token.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}: give a number above 0 and at most 1.")

    def __call__(self, logits: Tensor) -> Tensor:
        # The best logit becomes 0, so that a low temperature cannot overflow; the lowest temperature is still above 0.
        logits = logits.float()
        logits = (logits - logits.amax(dim=-1, keepdim=True)) / max(self.temperature, 1e-30)
        if self.top_k is None and self.top_p is None:
            return self._draw(logits.softmax(dim=-1))
        vocab = logits.shape[-1]
        kept, tokens = logits.topk(min(self.top_k or vocab, vocab), dim=-1)  # (R, K), best first
        probs = kept.softmax(dim=-1)
        if self.top_p is not None:
            before = F.pad(probs.cumsum(dim=-1)[:, :-1], (1, 0))  # the probability of all tokens before this one
            probs = probs.masked_fill(before >= self.top_p, 0.0)
        return tokens.gather(1, self._draw(probs)[:, None])[:, 0]

    def _draw(self, probs: Tensor) -> Tensor:
        """Draw index i with probability probs[i] / sum: of waiting times t[i] ~ Exponential(probs[i]), take the least.

        This has the same distribution as `torch.multinomial`, which makes the CPU wait for the GPU to check its input.
        """
        waits = torch.empty_like(probs)
        if isinstance(self.generator, Sequence):
            for row, generator in zip(waits, self.generator, strict=True):
                row.exponential_(generator=generator)
        else:
            waits.exponential_(generator=self.generator)
        return (probs / waits.clamp_min(1e-30)).argmax(dim=-1)  # clamped, so that a probability of 0 never gives 0 / 0


@torch.no_grad()
def stream(
    decoder: Decoder[S], state: S, prompt: Tensor, pick: Pick, limit: int, stop: int, forbid: Sequence[int] = ()
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield one token per row and its log-probability, (R,) each, until all rows have produced `stop` or at the limit.

    The prompt is one token per row, (R,), or many, (R, P). Tokens in `forbid` are never produced. The log-probabilities
    are those of the model's own distribution, in which forbidden tokens count too. A row that has produced `stop`
    yields `PAD` and 0 from then on.
    """
    if limit < 1:
        raise UserError(f"limit is {limit}: allow at least 1 token.")
    *context, tokens = prompt.unbind(dim=1) if prompt.dim() == 2 else (prompt,)
    if context and isinstance(decoder, Advancing):
        _, state = decoder.advance(prompt[:, :-1], state)
    else:
        for column in context:
            _, state = decoder.step(column, state)
    forbidden = torch.tensor(tuple(forbid), dtype=torch.long, device=prompt.device)

    def choose(logits: Tensor) -> tuple[Tensor, Tensor]:
        if pick is greedy and logits.is_cuda:  # one kernel finds the best tokens and their log-probabilities
            logps, best = likeliest(logits, min(1 + len(forbid), logits.shape[1]))
            for token in forbid:
                logps = logps.masked_fill(best == token, NEG_INF)
            allowed = logps.argmax(dim=1, keepdim=True)
            return best.gather(1, allowed)[:, 0], logps.gather(1, allowed)[:, 0]
        logits = logits.float()
        chosen = pick(logits.index_fill(1, forbidden, NEG_INF))
        return chosen, logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(dim=1)

    # A sampler draws from a generator, which a CUDA graph cannot capture: then only the model's step is captured.
    runner, capture_pick = step_runner(decoder), pick is greedy
    inner = runner.eager if capture_pick else decoder

    def step_and_choose(carry: tuple[Tensor, Tensor, S]) -> tuple[tuple[Tensor, Tensor, S], tuple[Tensor, Tensor]]:
        tokens, done, state = carry
        logits, state = inner.step(tokens, state)
        tokens, logps = choose(logits)
        tokens, logps = tokens.masked_fill(done, PAD), logps.masked_fill(done, 0.0)
        done = done | (tokens == stop)
        return (tokens, done, state), (logps, done.all())

    key = ("stream", stop, tuple(forbid))
    run_step = runner.capture(key, step_and_choose) if capture_pick else step_and_choose
    carry = tokens, torch.zeros_like(tokens, dtype=torch.bool), runner.preallocate(state, limit)
    all_done, row, rows = DelayedFlag(tokens.device), torch.arange(len(tokens), device=tokens.device), len(tokens)
    for _ in range(limit):
        carry, (logps, flag) = run_step(carry)
        finished = all_done(flag)
        if finished and all_done.behind:  # all rows ended at the step before: these tokens are all PAD
            return
        tokens, done, state = carry
        yield place(tokens, row, rows, PAD), place(logps, row, rows, 0.0)
        if finished:
            return
        if pick is greedy and (left := drop_finished(done, state)):  # a sampler may have a generator for each row
            going, _, state = left
            carry, row = (tokens[going], done[going], state), row[going]


def collect(steps: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """All tokens of a stream and their log-probabilities, (R, T) each, with `PAD` and 0 after each row's end."""
    tokens, logps = zip(*steps)
    return torch.stack(tokens, dim=1), torch.stack(logps, dim=1)
