"""A prompt while a language model goes on with it, and the one loop in which it does.

Prompts of several lengths are padded on the left, read at once, and then gone on with a token at a time; nothing is
computed twice. All rows of a batch may say equally many tokens, so none has to wait for another, and what a row says
follows from its own prompt alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from regard.decode import PAD, greedy, stream
from regard.decode.sample import WithLogps
from regard.errors import UserError
from regard.models import Gpt
from regard.recording import silenced
from regard.verbs.forced import rounded
from regard.verbs.generation_options import GenerationOptions
from regard.verbs.loaded import Loaded


@dataclass(eq=False)
class Continuation:
    """One prompt, and what has been said after it so far."""

    index: int  # which prompt it is, from 0: its draws depend on it
    prompt: str  # what was read of it
    read: list[int]  # its tokens, the begin included where the model wants one
    said: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)  # of each token said, and of the end
    ended: str = ""  # why: "end" (the model said so), "limit" or "context"

    def append(self, tokens: Sequence[int], logps: Sequence[float], end: int | None, limit: int) -> None:
        """Some tokens more, up to the end or the limit."""
        for token, logp in zip(tokens, logps):
            if self.ended:
                return
            self.logps.append(logp)
            if token == end:
                self.ended = "end"
                return
            self.said.append(token)
            if len(self.said) == limit:
                self.ended = "limit"

    def text(self, turn: int, longest: int | None) -> list[int]:
        """What is read at the beginning of a turn: the prompt, or, on sliding, the last half of a context."""
        whole = self.read + self.said
        return whole if turn == 0 or longest is None else whole[-max(1, longest // 2) :]


def continuations(model: Loaded, prompts: Sequence[str], first: int = 0) -> list[Continuation]:
    """The prompts, numbered from `first`, as the model reads them; one that it cannot read is refused by its number."""
    model.expect("generate", "language")
    tokenizer = model.target_tokenizer
    begin, found = tokenizer.special_tokens.bos, []
    for index, (prompt, tokens) in enumerate(zip(prompts, tokenizer.encode_batch(list(prompts))), first):
        kept = model.fitted(tokens, f"prompt {index + 1}")
        if not kept and begin is None:
            raise UserError(
                f"prompt {index + 1}: empty, and this model has no mark to begin with; give it some text to go on from."
            )
        before = model.opening if kept or begin is None else [begin]
        found.append(Continuation(index, prompt if kept == tokens else tokenizer.decode(kept), before + kept))
    return found


def batches(
    model: Loaded, going: Sequence[Continuation], options: GenerationOptions, turn: int, budget: int
) -> Iterator[tuple[list[Continuation], int]]:
    """Prompts to be gone on with together, and how many tokens each may say before it meets its limit or the context.

    Transformer-XL knows no padding: there only prompts of one length share a batch.
    """
    exact = isinstance(model.module, Gpt) and model.module.config.positions == "xl"

    def shape(one: Continuation) -> tuple[int, int]:
        length, left = len(one.text(turn, model.longest)), options.limit - len(one.said)
        room = left if model.longest is None else model.longest - length + 1  # the last token said is not read
        return (length if exact else rounded(length)), min(left, room)

    for (length, limit), same in groupby(sorted(going, key=shape), key=shape):
        rows, size = list(same), max(1, budget // (options.beam * (length + limit)))
        yield from ((rows[at : at + size], limit) for at in range(0, len(rows), size))


@torch.no_grad()
def prefill(model: Loaded, texts: Sequence[list[int]], limit: int) -> tuple[Tensor, Any]:
    """Reads texts up to their last tokens: those, (R,), and the state before them, with room for what is to be said."""
    width = max(map(len, texts))
    rows = [[PAD] * (width - len(text)) + text for text in texts]
    tokens = torch.tensor(rows, device=model.device)  # (R, P)
    lengths = torch.tensor([len(text) for text in texts], device=model.device)
    real = torch.arange(width, device=model.device) >= width - lengths[:, None]
    module: Any = model.module  # any language model: `start`, `advance` and `step` are the same for all
    with silenced(module), model.autocast():
        state = module.start(rows=len(texts), capacity=width + limit - 1)
        if width > 1:
            padded = min(map(len, texts)) < width
            _, state = module.advance(tokens[:, :-1], state, real[:, :-1] if padded else None)
    return tokens[:, -1], state


def steps(
    model: Loaded, batch: Sequence[Continuation], options: GenerationOptions, turn: int, limit: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """One turn of a batch: at each step a token of every row and its log-probability, both (R,).

    Between the steps the caller is left alone: gradients, precision and tapes are as they were.
    """
    end = model.target_tokenizer.special_tokens.eos
    prompt, state = prefill(model, [one.text(turn, model.longest) for one in batch], limit)
    choose = options.sampler([one.index for one in batch], turn, model.device) if options.temperature else greedy
    pick = WithLogps(choose, torch.tensor(model.forbidden, dtype=torch.long, device=model.device))
    stop = -1 if end is None else end  # no token is -1
    said = stream(model.decoder, state, prompt, pick, limit, stop)
    while True:
        with silenced(model.module), model.autocast():
            tokens = next(said, None)
        if tokens is None:
            return
        yield tokens, pick.logps[-1]
