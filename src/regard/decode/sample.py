"""One token after another: greedy decoding and sampling, as a stream."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decode.cuda_graph import step_runner
from regard.decode.state import NEVER, PAD, Advancing, Decoder, DelayedFlag, S
from regard.errors import UserError
from regard.kernels.ranking import likeliest

Pick = Callable[[Tensor], Tensor]  # logits (R, V) -> tokens (R,)


def greedy(logits: Tensor) -> Tensor:
    """The likeliest token of each row."""
    return likeliest(logits, 1)[1][:, 0] if logits.is_cuda else logits.argmax(dim=-1)


@dataclass(frozen=True)
class Sampler:
    """Draws a token of each row at random: first the temperature, then the `top_k` best, then the nucleus `top_p`.

    A temperature below 1 sharpens the distribution and one above flattens it. `top_k` keeps the k likeliest tokens
    (Fan et al. 2018, section 5.1), `top_p` the fewest likeliest ones that hold at least p of the probability (Holtzman
    et al. 2020, section 3.1). A seeded `generator`, on the device of the logits, repeats its draws; with one for each
    row, what a row draws does not depend on the others.
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
        logits = logits.float()
        logits = (logits - logits.amax(dim=-1, keepdim=True)) / self.temperature  # best at 0: no overflow when cold
        if self.top_k is None and self.top_p is None:
            return self._draw(logits.softmax(dim=-1))
        vocab = logits.shape[-1]
        kept, tokens = logits.topk(min(self.top_k or vocab, vocab), dim=-1)  # (R, K), best first
        chances = kept.softmax(dim=-1)
        if self.top_p is not None:
            better = F.pad(chances.cumsum(dim=-1)[:, :-1], (1, 0))  # what the tokens before this one hold: 0 at first
            chances = chances.masked_fill(better >= self.top_p, 0.0)
        return tokens.gather(1, self._draw(chances)[:, None])[:, 0]

    def _draw(self, chances: Tensor) -> Tensor:
        """A race: the clock of token i rings after Exponential(chances[i]), so it is first with chances[i] / sum.

        The same law as `torch.multinomial`, which would stop the GPU to check its argument.
        """
        waits = torch.empty_like(chances)
        if isinstance(self.generator, Sequence):
            for row, generator in zip(waits, self.generator, strict=True):
                row.exponential_(generator=generator)
        else:
            waits.exponential_(generator=self.generator)
        return (chances / waits.clamp_min(1e-30)).argmax(dim=-1)  # never 0 / 0: what has no chance never rings


@dataclass(frozen=True, eq=False)
class Noted:
    """Picks a token that is not `forbidden`, and notes how likely the model, which may say any, found it."""

    pick: Pick
    forbidden: Tensor  # (S,) ids
    logps: list[Tensor] = field(default_factory=list)  # by step, (R,)

    def __call__(self, logits: Tensor) -> Tensor:
        logits = logits.float()
        tokens = self.pick(logits.index_fill(1, self.forbidden, NEVER))
        self.logps.append(logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(dim=1))
        return tokens


@torch.no_grad()
def stream(decoder: Decoder[S], state: S, prompt: Tensor, pick: Pick, limit: int, stop: int) -> Iterator[Tensor]:
    """Say one token per row, (R,), at a time, until every row has said `stop` or `limit` tokens are out.

    The prompt is (R,) tokens, or (R, P) to be read first. A row that has said `stop` says `PAD` from then on.
    """
    if limit < 1:
        raise UserError(f"limit is {limit}: allow at least 1 token.")
    *before, tokens = prompt.unbind(dim=1) if prompt.dim() == 2 else (prompt,)
    if before and isinstance(decoder, Advancing):
        _, state = decoder.advance(prompt[:, :-1], state)
    else:
        for read in before:
            _, state = decoder.step(read, state)

    # Sampling draws from a generator, which a CUDA graph cannot follow: only the model's step is captured.
    steps, whole = step_runner(decoder), pick is greedy
    inner = steps.plain if whole else decoder

    def say(carry: tuple[Tensor, Tensor, S]) -> tuple[tuple[Tensor, Tensor, S], Tensor]:
        tokens, done, state = carry
        logits, state = inner.step(tokens, state)
        tokens = pick(logits).masked_fill(done, PAD)
        done = done | (tokens == stop)
        return (tokens, done, state), done.all()

    take = steps.captured(("stream", stop), say) if whole else say
    carry = tokens, torch.zeros_like(tokens, dtype=torch.bool), steps.preallocate(state, limit)
    late = DelayedFlag(tokens.device)
    for _ in range(limit):
        carry, ended = take(carry)
        over = late(ended)
        if over and late.behind:  # over since the step before: these tokens are all PAD
            return
        yield carry[0].clone()  # the next step may write where this one did
        if over:
            return


def collect(tokens: Iterable[Tensor]) -> Tensor:
    """What a stream has said, side by side: (R, T), `PAD` after each row's end."""
    return torch.stack(list(tokens), dim=1)
