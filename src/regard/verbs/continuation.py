"""A prompt while a language model continues it, and the loop that generates the tokens.

Prompts of several lengths are padded on the left and read at once; then each step generates one token per row. All rows
of a batch have the same limit, so no row waits for another. The tokens of a row depend on its own prompt only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from regard.decode import PAD, greedy, stream
from regard.errors import UserError
from regard.models import reads_whole
from regard.recording import pause_recording
from regard.verbs.forced import rounded
from regard.verbs.generation_options import GenerationOptions
from regard.verbs.loaded import Loaded


@dataclass(eq=False)
class Continuation:
    """One prompt, and the tokens generated after it so far."""

    index: int  # the number of the prompt, from 0: its random draws depend on it
    prompt: str  # the text that was read
    read: list[int]  # its tokens, with the begin token where the model has one
    generated: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)  # of each generated token, and of the end
    ended: str = ""  # why: "end" (the end token was generated), "limit" or "context"

    def append(self, tokens: Sequence[int], logps: Sequence[float], end: int | None, limit: int) -> None:
        """Append tokens, up to the end token or the limit."""
        for token, logp in zip(tokens, logps):
            if self.ended:
                return
            self.logps.append(logp)
            if token == end:
                self.ended = "end"
                return
            self.generated.append(token)
            if len(self.generated) == limit:
                self.ended = "limit"

    def text(self, turn: int, longest: int | None) -> list[int]:
        """The tokens read at the start of a turn: the prompt, or, in later turns, the last half of a context."""
        whole = self.read + self.generated
        return whole if turn == 0 or longest is None else whole[-max(1, longest // 2) :]


def continuations(model: Loaded, prompts: Sequence[str], first: int = 0) -> list[Continuation]:
    """The prompts, numbered from `first`; a prompt that the model cannot read is refused by its number."""
    model.expect("generate", not reads_whole(model.module.config))
    tokenizer = model.target_tokenizer
    begin, found = tokenizer.special_tokens.bos, []
    for index, (prompt, tokens) in enumerate(zip(prompts, tokenizer.encode_batch(list(prompts))), first):
        kept = model.fit_context(tokens, f"prompt {index + 1}")
        if not kept and begin is None:
            raise UserError(
                f"prompt {index + 1}: empty, but this model has no bos token to start from; give some text."
            )
        before = model.opening if kept or begin is None else [begin]
        found.append(Continuation(index, prompt if kept == tokens else tokenizer.decode(kept), before + kept))
    return found


def batches(
    model: Loaded, going: Sequence[Continuation], options: GenerationOptions, turn: int, budget: int
) -> Iterator[tuple[list[Continuation], int]]:
    """Batches of prompts, and the number of tokens that each row may generate before its limit or the context.

    Where a model takes no padding (Transformer-XL), only prompts of equal length share a batch.
    """
    exact = not model.module.config.takes_padding

    def shape(one: Continuation) -> tuple[int, int]:
        length, left = len(one.text(turn, model.longest)), options.limit - len(one.generated)
        room = left if model.longest is None else model.longest - length + 1  # the last generated token is not read
        return (length if exact else rounded(length)), min(left, room)

    for (length, limit), same in groupby(sorted(going, key=shape), key=shape):
        rows, size = list(same), max(1, budget // (options.beam * (length + limit)))
        yield from ((rows[at : at + size], limit) for at in range(0, len(rows), size))


@torch.no_grad()
def prefill(model: Loaded, texts: Sequence[list[int]], limit: int) -> tuple[Tensor, Any]:
    """Reads texts up to their last tokens; returns the last tokens (R,) and a state with room for `limit` more."""
    width = max(map(len, texts))
    rows = [[PAD] * (width - len(text)) + text for text in texts]
    tokens = torch.tensor(rows, device=model.device)  # (R, P)
    lengths = torch.tensor([len(text) for text in texts], device=model.device)
    real = torch.arange(width, device=model.device) >= width - lengths[:, None]
    decoder = model.decoder
    with pause_recording(model.module), model.autocast():
        state = decoder.start(None, None, len(texts), width + limit - 1)
        if width > 1:
            padding = (real[:, :-1],) if min(map(len, texts)) < width else ()
            _, state = decoder.advance(tokens[:, :-1], state, *padding)
    return tokens[:, -1], state


def steps(
    model: Loaded, batch: Sequence[Continuation], options: GenerationOptions, turn: int, limit: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """One turn of a batch: at each step a token of every row and its log-probability, both (R,).

    Between the steps, gradients, precision and tapes are as the caller set them.
    """
    end = model.target_tokenizer.special_tokens.eos
    prompt, state = prefill(model, [one.text(turn, model.longest) for one in batch], limit)
    choose = options.sampler([one.index for one in batch], turn, model.device) if options.temperature else greedy
    stop = -1 if end is None else end  # no token is -1
    generated = stream(model.decoder, state, prompt, choose, limit, stop, model.forbidden)
    while True:
        with pause_recording(model.module), model.autocast():
            step = next(generated, None)
        if step is None:
            return
        yield step
