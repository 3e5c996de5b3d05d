"""Generate: the continuation of a prompt by a language model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regard.data.detokenize import UNKNOWN
from regard.decode import Penalty
from regard.decode import beam as beam_search
from regard.errors import UserError
from regard.recording import active_tape, pause_recording
from regard.verbs.continuation import Continuation, batches, continuations, prefill, steps
from regard.verbs.forced import BATCH_TOKENS, Floats, check_is_list
from regard.verbs.generation_options import LIMIT, GenerationOptions
from regard.verbs.loaded import Loaded
from regard.verbs.record_forced import record_forced


@dataclass(frozen=True, eq=False)
class Generated:
    """The text that a model generated after a prompt."""

    prompt: str  # as given, or the part that was read if it was too long
    text: str  # the continuation: prompt + text is the whole text
    tokens: list[int]  # of the continuation, without the end
    logps: Floats  # (T,) of each token, or (T + 1,) with the end
    ended: str  # why generation stopped: "end", "limit" or "context"


@dataclass(frozen=True)
class Piece:
    """The part of a continuation that one token adds. The texts of all pieces joined are the continuation; a text may
    be empty, since a token may be a part of a character. `ended` of the last piece is why generation stopped."""

    text: str
    token: int | None  # None for eos
    logp: float
    ended: str = ""


def generate(
    model: Loaded,
    prompts: Sequence[str],
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    limit: int = LIMIT,
    beam: int = 1,
    penalty: Penalty | float = 1.0,
) -> list[Generated]:
    """The continuation of each prompt by a language model, of at most `limit` tokens.

    Temperature 0 is greedy decoding, a higher one is sampling (top-k: Fan et al. 2018, section 5.1; nucleus: Holtzman
    et al. 2020, section 3.1); a beam above 1 is beam search, with the `penalty` of `translate`. A continuation does not
    depend on the other prompts. It stops at the end of the context, unless the model was loaded with `long="window"`:
    then it continues from the last half of the context.

    While the caller records the model, the tape records one pass of teacher forcing over all results, and nothing of
    the search.
    """
    ranking = penalty if isinstance(penalty, Penalty) else Penalty(penalty)
    options = GenerationOptions(temperature, top_k, top_p, seed, limit, beam, ranking)
    _check_tape(model, prompts, limit)
    found = dict(generate_unordered(model, prompts, options))
    answers = [found[index] for index in range(len(prompts))]
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
    seed: int = 0,
    limit: int = LIMIT,
) -> Iterator[Piece]:
    """Yield the continuation of one prompt in pieces, as they are generated; for the options see `generate`."""
    (one,) = continuations(model, [prompt])
    return stream_pieces(model, one, GenerationOptions(temperature, top_k, top_p, seed, limit))


def generate_unordered(
    model: Loaded, prompts: Sequence[str], options: GenerationOptions, batch_tokens: int = BATCH_TOKENS, first: int = 0
) -> Iterator[tuple[int, Generated]]:
    """Yield the number of each prompt, from `first`, and its result, in the order in which they are finished."""
    check_is_list(prompts)
    unfinished, turn = continuations(model, prompts, first), 0
    while unfinished:
        for batch, limit in batches(model, unfinished, options, turn, batch_tokens):
            (_search if options.beam > 1 else _decode)(model, batch, options, turn, limit)
            for one in batch:
                _end_turn(model, one)
                if one.ended:
                    yield one.index, _result(model, one)
        unfinished, turn = [one for one in unfinished if not one.ended], turn + 1


def stream_pieces(model: Loaded, one: Continuation, options: GenerationOptions) -> Iterator[Piece]:
    """Yield the continuation of one prompt in pieces of whole characters."""
    if options.beam > 1:
        raise UserError(f"beam={options.beam}: beam search has its result only at the end; stream with beam=1.")
    end, decode, turn = model.target_tokenizer.special_tokens.eos, model.target_tokenizer.decode, 0
    shown = len(decode(one.read))
    while True:
        ((_, limit),) = batches(model, [one], options, turn, budget=1)
        for step, (tokens, logps) in enumerate(steps(model, [one], options, turn, limit), start=1):
            one.append(tokens.tolist(), logps.tolist(), end, options.limit)
            if step == limit:
                _end_turn(model, one)
            whole = decode(one.read + one.generated)
            complete = whole if one.ended else whole.rstrip(UNKNOWN)  # the last bytes may be a part of a character
            yield Piece(complete[shown:], None if one.ended == "end" else one.generated[-1], one.logps[-1], one.ended)
            shown = max(shown, len(complete))
            if one.ended:
                return
        turn += 1


def _decode(model: Loaded, batch: Sequence[Continuation], options: GenerationOptions, turn: int, limit: int) -> None:
    """One turn of a batch by greedy decoding or sampling; the tokens are copied from the device once, at the end."""
    generated = list(steps(model, batch, options, turn, limit))
    tokens, logps = (torch.stack(column, dim=1).tolist() for column in zip(*generated))  # (R, T)
    for one, row, row_logps in zip(batch, tokens, logps):
        one.append(row, row_logps, model.target_tokenizer.special_tokens.eos, options.limit)


@torch.no_grad()
def _search(model: Loaded, batch: Sequence[Continuation], options: GenerationOptions, turn: int, limit: int) -> None:
    """One turn of a batch by beam search."""
    end = model.target_tokenizer.special_tokens.eos
    stop = -1 if end is None else end  # no token is -1: all rows run to the limit
    prompt, state = prefill(model, [one.text(turn, model.longest) for one in batch], limit)
    with pause_recording(model.module), model.autocast():
        best = beam_search(
            model.decoder, state, prompt, options.beam, limit, stop, options.penalty, nbest=1, forbid=model.forbidden
        )
    rows = zip(best.tokens[:, 0].tolist(), best.token_logps[:, 0].tolist(), best.lengths[:, 0].tolist())
    for one, (tokens, logps, length) in zip(batch, rows):
        one.append(tokens[:length], logps[:length], end, options.limit)


def _end_turn(model: Loaded, one: Continuation) -> None:
    """End a continuation that fills the context, unless the model continues with a window."""
    if not one.ended and model.long != "window":
        one.ended = "context"


def _result(model: Loaded, one: Continuation) -> Generated:
    decode = model.target_tokenizer.decode
    text = decode(one.read + one.generated)[len(decode(one.read)) :]
    return Generated(one.prompt, text, one.generated, np.array(one.logps, dtype=np.float32), one.ended)
