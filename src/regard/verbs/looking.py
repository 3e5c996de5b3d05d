"""Look: the attention of one text as a picture, with the decoding steps that did the looking."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from regard.data.batches import Pair, collate
from regard.decode.state import NEVER
from regard.errors import UserError, nearest
from regard.models import Bert, Gpt, Structured, Transformer
from regard.models.seq2seq import RecurrentState
from regard.objectives.objective import CausalModel
from regard.recording import Axes, Tape, attentions, record, silenced
from regard.render.view import AttentionView
from regard.render.view_data import Floats, Frame, Layer
from regard.verbs.forced import fit_target, frame_of
from regard.verbs.loaded import KINDS_OF, Loaded
from regard.verbs.parts import axes, parts, path_of
from regard.verbs.search import translate

TOP = 5  # how many of the likeliest pieces a step shows


def view(
    tape: Tape, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None, title: str = "", item: int = 0
) -> AttentionView:
    """One item of the batch that a tape recorded, ready to be looked at or saved.

    `rows` and `columns` name the queries and the keys. By default they are what the verb that ran wrote on the tape
    about this item, for each part of the model its own, or else numbers.
    """
    if not len(tape):
        raise UserError("the tape is empty; run a model that has attention inside `with record(model) as tape`.")
    reads = {name: tape[name] for name in tape}
    first = next(iter(reads.values()))
    if not 0 <= item < len(first):
        raise UserError(f"item={item}: the tape holds a batch of {len(first)}; choose 0 to {len(first) - 1}.")
    known = tape.captions[item] if item < len(tape.captions) else _numbered(reads)
    several = Counter(axes.part for axes in known.values())
    layers: list[Layer] = []
    for name, read in reads.items():
        weights = read[item] if read.dim() == 4 else read[item : item + 1]  # (H, Tq, Tk)
        own = replace(known[name], rows=rows or known[name].rows, columns=columns or known[name].columns)
        there = weights[:, : len(own.rows), own.first : own.first + len(own.columns)]  # the rest is padding
        number = sum(layer.part == own.part for layer in layers) if several[own.part] > 1 else None
        layers.append(Layer(name or "attention", there.numpy(), own.rows, own.columns, own.part, number))
    main = next((layer for layer in layers if layer.part == "cross"), layers[0])
    return AttentionView(title, main.rows or (), main.columns or (), layers)


def _numbered(reads: dict[str, Tensor]) -> dict[str, Axes]:
    """Axes of reads that nobody has named; those of one shape are taken for one part of the model."""
    shapes = {name: (read.shape[-2], read.shape[-1]) for name, read in reads.items()}
    alike = Counter(shapes.values())

    def part(name: str, shape: tuple[int, int]) -> str:
        several = "{} × {}".format(*shape) if alike[shape] > 1 else name
        return several if len(alike) > 1 else ""

    return {
        name: Axes([str(at) for at in range(q)], [str(at) for at in range(k)], part(name, (q, k)))
        for name, (q, k) in shapes.items()
    }


def look(
    model: Loaded,
    text: str,
    target: str | None = None,
    beam: int = 1,
    part: str | None = None,
    layer: int | None = None,
) -> AttentionView:
    """Where a model looks while it reads, says or translates a text.

    A row is the piece that looks; where a target looks at its source, the piece that is being said. A translator says
    its own best target, or the one given, and shows every step; so does a language model, which reads the text after
    its begin mark, where it has one, and looks at its own past. A model that reads both ways looks at all of the text,
    a classifier several times at once. `part` (encoder, decoder or cross) and `layer` (from 0; of cross, where nothing
    is said of parts) limit what is recorded. Nothing goes to a tape of the caller's: the answer holds all.
    """
    if not text.strip():
        raise UserError('the text to look at is empty; give one, such as "3 March 2021".')
    if target is not None and model.source_tokenizer is None:
        raise UserError(
            f"--target: {model.path} is {KINDS_OF[model.module.task]}, which reads the text alone; leave it out."
        )
    paths = _paths(model, part, layer)
    (tokens,) = model.read([text])
    if isinstance(model.module, Structured):
        seen = _reading(model, (tokens, [0]), text, paths)  # a label stands there, whichever
    elif isinstance(model.module, Bert):
        seen = _reading(model, ([], tokens), text, paths)
    elif model.source_tokenizer is None:
        seen = _saying(model, ([], tokens), text, paths)
    elif target is None:
        with silenced(model.module):
            (best, *_) = translate(model, [text], beam=beam, align=False)
        seen = _saying(model, (tokens, best.tokens), f"{text} → {best.text}", paths)
    else:
        said = fit_target(model, model.target_tokenizer.encode(target.strip()), "--target")
        seen = _saying(model, (tokens, said), f"{text} → {target}", paths)
    return seen.only(part, layer) if seen.layers else seen


def _paths(model: Loaded, part: str | None, layer: int | None) -> list[str]:
    """The modules to record for what is asked. Where layers share a module, all of its part are."""
    found = parts(model.module)
    there = list(dict.fromkeys(found.values()))
    if part is not None and part not in there:
        have = nearest(part, there) if there else " It has no attention."
        raise UserError(f"part={part}: no such part of {model.path}.{have}")
    if part is None and layer is not None:
        part = "cross" if "cross" in there else next(iter(there), None)
    paths = [path for path, each in found.items() if part in (None, each)]
    shared = any(attentions(model.module)[path].turns > 1 for path in paths)
    if layer is not None and paths and not shared and not 0 <= layer < len(paths):
        raise UserError(f"layer={layer}: {part} has layers 0 to {len(paths) - 1}.")
    return paths


@torch.no_grad()
def _reading(model: Loaded, pair: Pair, title: str, paths: Sequence[str]) -> AttentionView:
    """A text that is read whole, at once."""
    with silenced(model.module), record(model.module, paths) as tape, model.autocast():
        batch = collate([pair], frame_of(model)).to(model.device)
        if isinstance(model.module, Bert):
            model.module.features(batch.tokens)  # a checkpoint may have no readout
        else:
            model.module(batch)
    return _seen(model, tape, pair, title)


@torch.no_grad()
def _saying(model: Loaded, pair: Pair, title: str, paths: Sequence[str]) -> AttentionView:
    """The model is made to say the target of a pair: a Transformer at once, others token by token."""
    module, told = cast(CausalModel, model.module), model.target_tokenizer.special_tokens.wrap_target(pair[1])
    if len(told) < 2:
        raise UserError(f"{title!r}: one token, and the model knows no begin to say it after; give a longer text.")
    source = torch.tensor([model.source_tokenizer.wrap_input(pair[0]) if model.source_tokenizer else []])
    tokens = torch.tensor([told[:-1]], device=model.device)
    stride = len(told) if isinstance(model.module, Gpt | Transformer) else 1
    says, frames = iter(told[1:]), list[Frame]()
    with (
        silenced(model.module),
        record(model.module, paths) as tape,
        _listening(model.module) as contexts,
        model.autocast(),
    ):
        state = module.start(source.to(model.device), capacity=len(told) - 1)
        for some in tokens.split(stride, dim=1):
            contexts.clear()
            features, state = module.advance(some, state)
            logits = module.readout(features)[0].float()  # (T, V)
            carried = state.hidden[0, -1] if isinstance(state, RecurrentState) else features[0]  # (T, W)
            for at, (scores, carry) in enumerate(zip(logits, carried.float().cpu())):
                context = contexts[-1][at] if contexts else None
                (piece,) = model.target_tokenizer.pieces([said := next(says)])
                frames.append(Frame(piece, _top(model, scores, said), carry.numpy(), context))
    seen = _seen(model, tape, pair, title)
    if {layer.part for layer in seen.layers} == {"encoder"}:
        return seen  # a source is read, not said: it takes no steps
    return replace(seen, frames=frames)


def _seen(model: Loaded, tape: Tape, pair: Pair, title: str) -> AttentionView:
    """What a tape of one pair holds, under its captions."""
    known, part_of = axes(model, pair), parts(model.module)
    if not len(tape):
        here = known.get("cross") or next(iter(known.values()))
        return AttentionView(title, here.rows, here.columns, [])
    tape.captions = [{name: known[part_of[path_of(name)]] for name in tape}]
    return view(tape, title=title)


def _top(model: Loaded, logits: Tensor, said: int) -> list[tuple[str, float, float]]:
    """The likeliest next pieces of those that may be said, and the one that is: piece, logit, probability."""
    spelt = logits[: model.target_tokenizer.size]  # a vocabulary may be padded to a round number
    offered = spelt.index_fill(0, torch.tensor(model.forbidden, dtype=torch.long, device=spelt.device), NEVER)
    best = offered.topk(min(TOP, len(spelt) - len(model.forbidden))).indices.tolist()
    tokens = best if said in best else [*best, said]
    return list(zip(model.target_tokenizer.pieces(tokens), spelt[tokens].tolist(), logits.softmax(0)[tokens].tolist()))


@contextmanager
def _listening(module: nn.Module) -> Iterator[list[Floats]]:
    """What the attention modules read while the block runs: (Tq, width) each, heads side by side."""
    heard: list[Floats] = []

    def append(_module: nn.Module, _inputs: object, context: Tensor) -> None:
        read = context[0].transpose(0, 1).flatten(1) if context.dim() == 4 else context[0]  # (H, Tq, D) → (Tq, H·D)
        heard.append(read.float().cpu().numpy())

    hooks = [attention.register_forward_hook(append) for attention in attentions(module).values()]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()
