"""Generate: the continuation of a prompt by a language model.

Prompts of several lengths are padded on the left and read at once; then each step generates one token per row. All rows
of a batch have the same limit, so no row waits for another. The tokens of a row depend on its own prompt only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.detokenize import UNKNOWN
from regard.decode import PAD, Penalty, Sampler, check_size, collect, greedy, stream
from regard.decode import beam as beam_search
from regard.device import check_seed, derive_seed, draw_seed
from regard.errors import UserError
from regard.models import reads_whole
from regard.recording import active_tape, intercepted, pause_recording
from regard.taps import INTERCEPTING
from regard.verbs.forced import BATCH_TOKENS, Floats, record_forced, rounded, search_tokens
from regard.verbs.given import as_text, text_list
from regard.verbs.loaded import Loaded

LIMIT = 128  # tokens of a continuation, by default


@dataclass(frozen=True)
class GenerationOptions:
    """Greedy decoding if the temperature is 0, sampling if it is above 0, beam search if the beam is above 1."""

    temperature: float = 0.0
    top_k: int | None = None  # sample from the k likeliest tokens only
    top_p: float | None = None  # sample from the fewest likeliest tokens whose probabilities sum to p
    seed: int | None = 0  # of the random draws; None: drawn at random
    limit: int = LIMIT  # the most tokens of a continuation
    beam: int = 1
    penalty: Penalty = Penalty(1.0)  # noqa: RUF009  beam search ranks by the mean log-probability of the tokens
    nbest: int = 1  # continuations of each prompt

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"temperature={self.temperature}: give 0 (greedy), or a number above it.")
        Sampler(self.temperature or 1.0, self.top_k, self.top_p)  # refuses values that cannot be used
        for name in ("top_k", "top_p"):
            if self.temperature == 0 and (value := getattr(self, name)) is not None:
                cure = "give a temperature too, such as 1"
                raise UserError(f"{name}={value} with temperature=0: greedy decoding does not sample; {cure}.")
        object.__setattr__(self, "seed", draw_seed() if self.seed is None else check_seed(self.seed))
        if self.limit < 1:
            raise UserError(f"limit={self.limit}: allow at least 1 token.")
        check_size(self.beam, self.nbest)
        if self.beam == 1:
            self.penalty.check_greedy()
        if self.beam > 1 and self.temperature:
            raise UserError(
                f"beam={self.beam} with temperature={self.temperature}: beam search does not sample; give one of them."
            )

    @property
    def drawn(self) -> int | None:
        """The seed of the random draws; None if nothing is drawn."""
        return self.seed if self.temperature else None

    def sampler(self, prompts: Sequence[int], turn: int, device: torch.device) -> Sampler:
        """The sampler of these prompts: the draws of a prompt depend on the seed, its number and the turn only."""
        assert self.seed is not None  # `__post_init__` draws one
        generators = [torch.Generator(device).manual_seed(derive_seed(self.seed, index, turn)) for index in prompts]
        return Sampler(self.temperature, self.top_k, self.top_p, generators)


@dataclass(frozen=True, eq=False)
class Generated:
    """The text that a model generated after a prompt."""

    prompt: str  # as given, or the part that was read if it was too long
    text: str  # the continuation: prompt + text is the whole text; of a model that reads backward, text + prompt
    tokens: list[int]  # of the continuation, without the end, in the order in which they were generated
    logps: Floats  # (T,) of each token, or (T + 1,) with the end
    ended: str  # why generation stopped: "end", "limit" or "context"
    score: float  # see `Penalty`: by default the mean of `logps`
    seed: int | None = None  # of its random draws; None: nothing was drawn


@dataclass(frozen=True)
class Piece:
    """The part of a continuation that one token adds. The texts of all pieces joined are the continuation."""

    text: str  # may be empty: a token may be a part of a character
    token: int | None  # None for eos
    logp: float
    ended: str = ""  # of the last piece: why generation stopped
    seed: int | None = None  # of the random draws


def generate(
    model: Loaded,
    prompts: Iterable[str],
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = 0,
    limit: int = LIMIT,
    beam: int = 1,
    penalty: Penalty | float = 1.0,
    nbest: int = 1,
) -> list[Generated]:
    """The `nbest` best continuations of each prompt by a language model, of at most `limit` tokens, best first.

    A model that reads backward (`model.direction=backward`) writes what comes before a prompt, which is the end of the
    text; its texts are in reading order.

    Temperature 0 is greedy decoding, a higher one is sampling (top-k: Fan et al. 2018, section 5.1; nucleus: Holtzman
    et al. 2020, section 3.1); a beam above 1 is beam search, with the `penalty` of `translate`. A continuation does not
    depend on the other prompts. With `seed=None` a seed is drawn, and the results have it. A continuation stops at the
    end of the context, unless the model was loaded with `long="window"`: then it continues from the last half of the
    context.

    While the caller records the model, the tape records one pass of teacher forcing over all results, and nothing of
    the search.
    """
    ranking = penalty if isinstance(penalty, Penalty) else Penalty(penalty)
    options = GenerationOptions(temperature, top_k, top_p, seed, limit, beam, ranking, nbest)
    prompts = text_list(prompts, "prompts")
    _check_tape(model, prompts, limit)
    found = dict(generate_unordered(model, dict(enumerate(prompts)), options))
    answers = [one for index in range(len(prompts)) for one in found[index]]
    if active_tape(model.module) is not None:
        pairs = [(list[int](), model.target_tokenizer.encode(one.prompt) + one.tokens) for one in answers]
        record_forced(model, pairs, BATCH_TOKENS)
    return answers


def _check_tape(model: Loaded, prompts: Sequence[str], limit: int) -> None:
    """While a tape records, refuse results that may be longer than the context: one pass cannot record them."""
    if model.longest is None or model.long != "window" or active_tape(model.module) is None:
        return
    longest = max((len(model.target_tokenizer.encode(prompt)) for prompt in prompts), default=0)
    if longest + limit + len(model.opening) > model.longest:
        room = max(model.longest - longest - len(model.opening), 0)
        raise UserError(
            f"limit={limit}: a tape holds one context of {model.longest} tokens; record at most {room} more."
        )


def generate_stream(
    model: Loaded,
    prompt: str,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = 0,
    limit: int = LIMIT,
) -> Iterator[Piece]:
    """Yield the continuation of one prompt in pieces, as they are generated; for the options see `generate`."""
    (one,) = continuations(model, {0: as_text(prompt, "prompt")})
    return stream_pieces(model, one, GenerationOptions(temperature, top_k, top_p, seed, limit))


def generate_unordered(
    model: Loaded, prompts: Mapping[int, str], options: GenerationOptions, batch_tokens: int | None = None
) -> Iterator[tuple[int, list[Generated]]]:
    """Yield the number of each prompt and its results, best first, in the order in which prompts are finished."""
    if options.nbest > 1 and model.long == "window":
        raise UserError(f"nbest={options.nbest}: long=window continues one text past the context; leave out one.")
    unfinished, turn = continuations(model, prompts), 0
    while unfinished:
        for batch, limit in batches(model, unfinished, options, turn, search_tokens(model, batch_tokens)):
            (_search if options.beam > 1 else _decode)(model, batch, options, turn, limit)
            for one in batch:
                for each in (found := [one, *one.others]):
                    _end_turn(model, each)
                if one.ended:
                    yield one.index, [_result(model, each, options) for each in found]
        unfinished, turn = [one for one in unfinished if not one.ended], turn + 1


def stream_pieces(model: Loaded, one: Continuation, options: GenerationOptions) -> Iterator[Piece]:
    """Yield the continuation of one prompt in pieces of whole characters.

    The edits of a piece are those that are open when it is taken from the stream. One that is opened in the middle of a
    stream is refused, because the layers that the stream uses by then have no weights to edit.
    """
    if model.reads_backward:
        raise UserError(f"{model.path}: reads backward, so the text begins with its last piece; generate it at once.")
    if options.beam > 1:
        raise UserError(f"beam={options.beam}: beam search has its result only at the end; stream with beam=1.")
    end, decode, turn = model.target_tokenizer.special_tokens.eos, model.target_tokenizer.decode, 0
    shown = len(decode(one.read))
    while True:
        ((_, limit),) = batches(model, [one], options, turn, budget=1)
        steps, fast = start_stream(model, [one], options, turn, limit), model.decoder is not model.module
        for step in range(1, limit + 1):
            if fast and INTERCEPTING.open and intercepted(model.module):
                raise UserError("edit: opened in the middle of a stream; open it before the first piece is taken.")
            with pause_recording(model.module), model.autocast():  # between the steps they are as the caller set them
                tokens, logps = next(steps)
            one.append(tokens.tolist(), model.check_finite(logps.tolist()), end, options.limit)
            if step == limit:
                _end_turn(model, one)
            whole = decode(one.read + one.generated)
            complete = whole if one.ended else whole.rstrip(UNKNOWN)  # the last bytes may be a part of a character
            token = None if one.ended == "end" else one.generated[-1]
            yield Piece(complete[shown:], token, one.logps[-1], one.ended, options.drawn)
            shown = max(shown, len(complete))
            if one.ended:
                return
        turn += 1


def _decode(model: Loaded, batch: Sequence[Continuation], options: GenerationOptions, turn: int, limit: int) -> None:
    """One turn of a batch by greedy decoding or sampling; the tokens are copied from the device once, at the end."""
    with pause_recording(model.module), model.autocast():
        tokens, logps = collect(start_stream(model, batch, options, turn, limit))  # (R, T)
    rows = zip(batch, tokens.tolist(), model.check_finite(logps.cpu()).tolist())
    for one, row, row_logps in rows:
        one.append(row, row_logps, model.target_tokenizer.special_tokens.eos, options.limit)


@torch.no_grad()
def _search(model: Loaded, batch: Sequence[Continuation], options: GenerationOptions, turn: int, limit: int) -> None:
    """One turn of a batch by beam search."""
    end = model.target_tokenizer.special_tokens.eos
    stop = -1 if end is None else end  # no token is -1: all rows run to the limit
    prompt, state = prefill(model, [one.text(turn, model.longest) for one in batch], limit)
    with pause_recording(model.module), model.autocast():
        best = beam_search(
            model.decoder, state, prompt, options.beam, limit, stop, options.penalty, options.nbest, model.forbidden
        )
    logps = model.check_finite(best.token_logps.cpu())
    model.check_finite(best.scores[:, 0])  # −∞: the beam found nothing
    rows = zip(best.tokens.tolist(), logps.tolist(), best.lengths.tolist())
    for one, (tokens, logps, lengths) in zip(batch, rows):
        one.others = [Continuation(one.index, one.prompt, one.read) for length in lengths[1:] if length]
        for each, row, row_logps, length in zip([one, *one.others], tokens, logps, lengths):
            each.append(row[:length], row_logps[:length], end, options.limit)


def _end_turn(model: Loaded, one: Continuation) -> None:
    """End a continuation that fills the context, unless the model continues with a window."""
    if not one.ended and model.long != "window":
        one.ended = "context"


def _result(model: Loaded, one: Continuation, options: GenerationOptions) -> Generated:
    decode = model.target_tokenizer.decode
    whole, read = decode(one.read + one.generated), decode(one.read)
    text = whole[: len(whole) - len(read)] if model.reads_backward else whole[len(read) :]
    logps = np.array(one.logps, dtype=np.float32)
    score = float(options.penalty.scores(torch.tensor(one.logps).sum(), len(logps)))
    return Generated(one.prompt, text, one.generated, logps, one.ended, score, options.drawn)


@dataclass(eq=False)
class Continuation:
    """One prompt, and the tokens generated after it so far."""

    index: int  # the number of the prompt, from 0: its random draws depend on it
    prompt: str  # the text that was read
    read: list[int]  # its tokens, with the begin token where the model has one
    generated: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)  # of each generated token, and of the end
    ended: str = ""  # why: "end" (the end token was generated), "limit" or "context"
    others: list[Continuation] = field(default_factory=list)  # of a beam: the next best ones, without others

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


def continuations(model: Loaded, prompts: Mapping[int, str]) -> list[Continuation]:
    """The prompts by their numbers from 0; a prompt that the model cannot read is refused by its number."""
    model.expect("generate", not reads_whole(model.module.config))
    tokenizer = model.target_tokenizer
    begin, found = tokenizer.special_tokens.bos, []
    encoded = tokenizer.encode_batch(list(prompts.values()))
    for (index, prompt), tokens in zip(prompts.items(), encoded):
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


def start_stream(
    model: Loaded, batch: Sequence[Continuation], options: GenerationOptions, turn: int, limit: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """One turn of a batch: at each step a token of every row and its log-probability, both (R,)."""
    end = model.target_tokenizer.special_tokens.eos
    prompt, state = prefill(model, [one.text(turn, model.longest) for one in batch], limit)
    choose = options.sampler([one.index for one in batch], turn, model.device) if options.temperature else greedy
    stop = -1 if end is None else end  # no token is -1
    return stream(model.decoder, state, prompt, choose, limit, stop, model.forbidden)
