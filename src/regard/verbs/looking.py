"""Look: the attention of one sentence as a picture, with the decoding steps that did the looking."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from regard.data.batches import collate, label_frame
from regard.data.tokenizers import BOS, PAD
from regard.errors import UserError
from regard.models import Structured
from regard.models.seq2seq import Carry
from regard.objectives.judged import Speaker
from regard.record import Tape, attentions, record, silenced
from regard.verbs.loaded import Loaded
from regard.verbs.replay import captions
from regard.verbs.search import translate
from regard.view.parts import Floats, Frame, Layer
from regard.view.view import AttentionView

TOP = 5  # how many of the likeliest pieces a step shows


def view(
    tape: Tape, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None, title: str = "", item: int = 0
) -> AttentionView:
    """One item of the batch that a tape recorded, ready to be looked at or saved.

    `rows` and `columns` name the queries and the keys. By default they are what the verb that ran wrote on the tape
    about this item, or else numbers.
    """
    if not len(tape):
        raise UserError("the tape is empty; run a model that has attention inside `with record(model) as tape`.")
    reads = {name: tape[name] for name in tape}
    first = next(iter(reads.values()))
    if not 0 <= item < len(first):
        raise UserError(f"item={item}: the tape holds a batch of {len(first)}; choose 0 to {len(first) - 1}.")
    queries, keys = tape.captions[item] if item < len(tape.captions) else (None, None)
    rows = rows or queries or [str(number) for number in range(first.shape[-2])]
    columns = columns or keys or [str(number) for number in range(first.shape[-1])]
    layers = []
    for name, read in reads.items():
        weights = read[item] if read.dim() == 4 else read[item : item + 1]  # (H, Tq, Tk)
        layers.append(Layer(name or "attention", weights[:, : len(rows), : len(columns)].numpy()))
    return AttentionView(title, rows, columns, layers)


def look(model: Loaded, text: str, target: str | None = None, beam: int = 1) -> AttentionView:
    """Where a model looks while it reads or translates a text.

    A translator says its own best target, or the one given, and shows every step. A language model says the text and
    looks at its own past. A classifier takes several looks at the text at once. Nothing goes to a tape of the caller's:
    the answer holds all that was seen.
    """
    if not text.strip():
        raise UserError('the text to look at is empty; give one, such as "3 March 2021".')
    (tokens,) = model.read([text])
    if isinstance(model.module, Structured):
        return _hops(model, tokens, text)
    if model.source_tokenizer is None:
        return _steps(model, [], tokens, text)
    if target is None:
        with silenced(model.module):
            (best, *_) = translate(model, [text], beam=beam, align=False)
        return _steps(model, tokens, best.tokens, f"{text} → {best.text}")
    return _steps(model, tokens, model.target_tokenizer.encode(target.strip()), f"{text} → {target}")


@torch.no_grad()
def _steps(model: Loaded, source: list[int], target: list[int], title: str) -> AttentionView:
    """The model is made to say the target, token by token."""
    module = cast(Speaker, model.module)
    frames = []
    rows, columns = captions(model, (source, target))
    with record(model.module) as tape, _listening(model.module) as contexts, model.autocast():
        state = module.start(torch.tensor([source], device=model.device), capacity=len(target) + 1)
        for token, piece in zip([BOS, *target], rows):
            contexts.clear()
            features, state = module.advance(torch.tensor([[token]], device=model.device), state)
            carried = state.hidden[0, -1, 0] if isinstance(state, Carry) else features[0, 0]
            logits = module.readout(features)[0, 0].float()
            context = contexts[-1] if contexts else None
            frames.append(Frame(piece, _top(model, logits), carried.float().cpu().numpy(), context))
    if not len(tape):
        return AttentionView(title, rows, columns, [], frames)
    return replace(view(tape, rows, columns, title), frames=frames)


def _top(model: Loaded, logits: Tensor) -> list[tuple[str, float, float]]:
    """The likeliest next pieces: piece, logit, probability."""
    best, tokens = logits.topk(min(TOP, len(logits)))
    chances = logits.softmax(0)[tokens]
    return list(zip(model.target_tokenizer.pieces(tokens.tolist()), best.tolist(), chances.tolist()))


@contextmanager
def _listening(module: nn.Module) -> Iterator[list[Floats]]:
    """What the attention modules read while the block runs, the last position of each read."""
    heard: list[Floats] = []

    def hear(_module: nn.Module, _inputs: object, context: Tensor) -> None:
        heard.append(context[0].flatten(0, -2)[-1].float().cpu().numpy())

    hooks = [attention.register_forward_hook(hear) for attention in attentions(module).values()]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _hops(model: Loaded, tokens: list[int], title: str) -> AttentionView:
    """The looks of structured self-attention, one row each."""
    pair = tokens, [PAD]  # a label stands there, whichever
    with record(model.module) as tape, model.autocast():
        model.module(collate([pair], label_frame).to(model.device))
    return view(tape, *captions(model, pair), title)
