"""Look: the attention weights over one text as a picture, with the steps of decoding."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention import Memory, MultiHead
from regard.data.batches import Batch, collate
from regard.data.fields import MASK
from regard.decode.state import NEG_INF, HiddenState
from regard.errors import UserError, nearest
from regard.mask import Mask, default_positions
from regard.models.facts import ReadsText
from regard.models.parts import parts, path_of
from regard.objectives.objective import CausalModel
from regard.recording import Axes, Tape, attentions, name_pattern, observe, pause_recording, record, tape_name
from regard.render.page import Live
from regard.render.view import AttentionView
from regard.render.view_data import Floats, Frame, Layer, Origin
from regard.verbs.forced import axes, batch_of, fit_target, joined_axes, joined_rows, named_pieces
from regard.verbs.infilling import can_infill, with_sentinels
from regard.verbs.living import Still, live_model
from regard.verbs.loaded import IdPair, Loaded
from regard.verbs.predicted import predicted
from regard.verbs.search import translate

TOP = 5  # the likeliest tokens that a step shows


@dataclass(frozen=True, eq=False)
class Read:
    """The result of one read of an attention module, for the first item of the batch."""

    context: Floats  # (H, Tq, D)
    visible: NDArray[np.bool_]  # (Tq, Tk) False where no head of the query may look
    norms: Floats  # (H, Tk) of what each value adds to the output, if its weight is 1


def view(
    tape: Tape, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None, title: str = "", item: int = 0
) -> AttentionView:
    """A picture of one item of the batch that a tape recorded.

    `rows` and `columns` name the queries and the keys. By default they are the captions that the verb wrote on the tape
    for each part of the model, or numbers.
    """
    if not len(tape):
        raise UserError("the tape is empty; run a model that has attention inside `with record(model) as tape`.")
    reads = {name: tape[name] for name in tape}
    first = next(iter(reads.values()))
    if not 0 <= item < len(first):
        raise UserError(f"item={item}: the tape holds a batch of {len(first)}; choose 0 to {len(first) - 1}.")
    known = tape.captions[item] if item < len(tape.captions) else _numbered(reads)
    layers: list[Layer] = []
    for name, read in reads.items():
        weights = read[item] if read.dim() == 4 else read[item : item + 1]  # (H, Tq, Tk)
        own = replace(known[name], rows=rows or known[name].rows, columns=columns or known[name].columns)
        there = weights[:, : len(own.rows), : len(own.columns)]  # the rest is padding
        numbers = tape.layer_number(name), tape.heads.get(name)
        layers.append(Layer(name or "attention", there.numpy(), own.rows, own.columns, own.part, *numbers))
    main = next((layer for layer in layers if layer.part == "cross"), layers[0])
    seen = AttentionView(title, main.rows or (), main.columns or (), layers)
    whole = rows is columns is None and not tape.heads and len(tape) == len(tape.modules)
    return _with_origin(seen, *tape.origins[item]) if whole and item < len(tape.origins) else seen


def _with_origin(seen: AttentionView, model: Loaded, pair: IdPair) -> AttentionView:
    """The picture with the model that read these ids, if the text that they spell has the same ids."""
    tokenizers = [each for each in (model.source_tokenizer, model.target_tokenizer) if each]
    read = pair[2 - len(tokenizers) :]
    texts = [tokenizer.decode(ids) for tokenizer, ids in zip(tokenizers, read)]
    for tokenizer, text, ids in zip(tokenizers, texts, read):
        if tokenizer.special_tokens.unk in ids or tokenizer.encode(text) != ids:
            return seen
    return _of_model(model, seen, texts[0], texts[1] if texts[1:] else None)


def _numbered(reads: dict[str, Tensor]) -> dict[str, Axes]:
    """Numbered axes, for a tape without captions; modules whose names differ only in digits are one part."""
    shapes = {name: (read.shape[-2], read.shape[-1]) for name, read in reads.items()}
    groups = defaultdict[str, list[str]](list)
    for name in reads:
        groups[name_pattern(name)].append(name)

    def part(name: str) -> str:
        alike = groups[name_pattern(name)]
        if len({shapes[other] for other in alike}) > 1:  # the layers of a part have one shape
            return name
        return "" if len(groups) == 1 else name_pattern(name) if len(alike) > 1 else name

    return {
        name: Axes([str(at) for at in range(q)], [str(at) for at in range(k)], part(name))
        for name, (q, k) in shapes.items()
    }


def look(
    model: Loaded,
    text: str | tuple[str, ...],
    target: str | None = None,
    beam: int = 1,
    part: str | None = None,
    layer: int | None = None,
) -> AttentionView:
    """The attention weights of a model while it reads, predicts or translates a text.

    A row is the token that attends; of cross, the token that is predicted. A translator predicts its own best target,
    or the one given, and shows every step. A language model predicts the tokens of the text itself and attends to those
    before. A model that reads both ways attends to all of the text, a classifier in several rows. `part` (encoder,
    decoder or cross) and `layer` (from 0; by default of cross, if there is such a part) limit what is recorded. A tape
    of the caller records nothing. A model of pairs or choices reads a text of two parts, (first, second) or (context,
    choice), as one. A T5 that fills in spans reads each [MASK] as a gap.
    """
    if model.joined_text is not None:
        return _look_joined(model, text, part, layer)
    if not isinstance(text, str):
        raise UserError(f"{text!r:.60}: this is a {type(text).__name__}; look takes one text, such as '3 March 2021'.")
    if not text.strip():
        raise UserError('the text to look at is empty; give one, such as "3 March 2021".')
    if target is not None and model.source_tokenizer is None:
        raise UserError(
            f"--target (in Python: target): {model.path} is {model.kind}, which reads the text alone; leave it out."
        )
    model.expect("look at a text", not model.reads_images)
    if model.halves:
        return _both_directions(model, text, part, layer)
    if MASK in text and can_infill(model):
        text = with_sentinels(model, text, 1)
    # The attention of an extractor reads other tokens than the words of the model.
    paths = [] if model.module.config.reads_words else _paths(model, part, layer)
    (tokens,) = model.read([text])
    if not model.module.config.causal:
        seen = _reading(model, batch_of(model, [([], tokens)]), axes(model, ([], tokens), ("", text)), text, paths)
    elif model.source_tokenizer is None:
        seen = _predicting(model, ([], tokens), ("", text), paths)
    elif target is None:
        with pause_recording(model.module):
            (best, *_) = translate(model, [text], beam=beam, align=False)
        seen = _predicting(model, (tokens, best.tokens), (text, best.text), paths)
    else:
        forced = fit_target(model, model.target_tokenizer.encode(target.strip()), "--target")
        seen = _predicting(model, (tokens, forced), (text, target), paths)
    seen = _of_model(model, seen, text, target, beam if model.source_tokenizer and target is None else 1)
    return seen.only(part, layer) if seen.layers else seen


def _of_model(
    model: Loaded, seen: AttentionView, given: str | tuple[str, ...], target: str | None, beam: int = 1
) -> AttentionView:
    """The picture with what its page says of the model, and with the model, so that the page can compute."""
    origin = Origin(model.name, [given] if isinstance(given, str) else list(given), target, beam)
    live = OfPage(model, given)
    return replace(seen, about=model.about, answer=predicted(model, given), origin=origin, live=live)


@dataclass(frozen=True, eq=False)
class OfPage:
    """The model of a page: a call gives what the page needs to compute, or the reason why it is a picture."""

    model: Loaded
    given: str | tuple[str, ...]

    def __call__(self) -> Live | str:
        found = live_model(self.model, [self.given])
        return found.why if isinstance(found, Still) else Live(found.data, found.base64(), found.about)


def _look_joined(model: Loaded, text: str | tuple[str, ...], part: str | None, layer: int | None) -> AttentionView:
    """The attention of a model while it reads a text of several parts; of choices, a context and one choice."""
    given = tuple(one.strip() for one in ((text,) if isinstance(text, str) else text))
    expected = ["context", "choice"] if model.predicts("choice") else list(model.part_columns)
    if len(given) != len(expected) or not all(given):
        parts_of = f"{model.kind} that reads {' and '.join(expected)}"
        raise UserError(f"{text!r:.60}: this is {parts_of}; give as many texts, none of them empty.")
    value = (given,) if model.predicts("choice") else given
    (array,) = model.read_joined([value])
    (known,) = joined_axes(model, value, array)
    batch = collate(joined_rows(model, [array]), model.task)
    seen = _reading(model, batch, known, " · ".join(given), _paths(model, part, layer))
    seen = _of_model(model, seen, given, None)
    return seen.only(part, layer) if seen.layers else seen


def _both_directions(model: Loaded, text: str, part: str | None, layer: int | None) -> AttentionView:
    """The attention of the model that reads forward, and of the one that reads backward from the end of the text."""
    ahead, behind = (look(half, text, part=part, layer=layer) for half in model.halves)
    layers = [
        *(replace(each, name=f"onward.{each.name}") for each in ahead.layers),
        *(replace(each, name=f"returning.{each.name}", part=f"{each.part} backward") for each in behind.layers),
    ]
    return _of_model(model, replace(ahead, layers=layers), text, None)


def _paths(model: Loaded, part: str | None, layer: int | None) -> list[str]:
    """The paths of the modules to record. Where layers share a module, all modules of the part are recorded."""
    found = parts(model.module)
    there = list(dict.fromkeys(found.values()))
    if part is not None and part not in there:
        have = nearest(part, there) if there else " It has no attention."
        raise UserError(f"part={part}: no such part of {model.path}.{have}")
    if part is None and layer is not None:
        part = "cross" if "cross" in there else next(iter(there), None)
    paths = [path for path, each in found.items() if part in (None, each)]
    shared = any(attentions(model.module)[path].shared_by > 1 for path in paths)
    if layer is not None and paths and not shared and not 0 <= layer < len(paths):
        raise UserError(f"layer={layer}: {part} has layers 0 to {len(paths) - 1}.")
    return paths


@torch.no_grad()
def _reading(model: Loaded, batch: Batch, known: dict[str, Axes], title: str, paths: Sequence[str]) -> AttentionView:
    """The attention of a model that reads a text in both directions, given a batch of it and its axes."""
    with (
        pause_recording(model.module),
        record(model.module, paths) as tape,
        _reads(model.module, paths) as reads,
        model.autocast(),
    ):
        batch = batch.to(model.device)
        if model.module.config.one_per_text or "segments" in batch.fields:
            model.module(batch)
        else:
            cast(ReadsText, model.module).features(batch["tokens"])  # a checkpoint may have no readout
    return _seen(model, tape, reads, known, title)


@torch.no_grad()
def _predicting(model: Loaded, pair: IdPair, texts: tuple[str, str], paths: Sequence[str]) -> AttentionView:
    """Teacher forcing over one pair: all tokens at once if the model is parallel, else token by token."""
    module, ids = cast(CausalModel, model.module), model.target_tokenizer.special_tokens.wrap_target(pair[1])
    if len(ids) < 2:
        raise UserError(
            f"{texts[1]!r}: one token, and the model has no begin token to predict it from; give a longer text."
        )
    source = torch.tensor([model.source_tokenizer.wrap_input(pair[0]) if model.source_tokenizer else []])
    tokens = torch.tensor([ids[:-1]], device=model.device)
    stride = len(ids) if model.module.config.parallel else 1
    tokenizer = model.target_tokenizer
    targets = zip(ids[1:], named_pieces(tokenizer, ids, texts[1])[1:], tokenizer.parts(ids)[1:])
    frames = list[Frame]()
    with (
        pause_recording(model.module),
        record(model.module, paths) as tape,
        _reads(model.module, paths) as reads,
        model.autocast(),
    ):
        state = module.start(source.to(model.device), capacity=len(ids) - 1)
        for some in tokens.split(stride, dim=1):
            before = _hidden(state, module.config.width)
            features, state = module.advance(some, state)
            logits = module.readout(features)[0].float()  # (T, V)
            model.check_finite(logits.logsumexp(-1))
            after = _hidden(state, module.config.width)
            carried = features[0].float().cpu().numpy() if after is None else after[None]  # (T, W)
            for scores, carry in zip(logits, carried):
                token, piece, text = next(targets)
                frames.append(Frame(piece, _top(model, scores, token, piece), carry, before, text))
    seen = _seen(model, tape, reads, axes(model, pair, texts), " → ".join(text for text in texts if text))
    if {layer.part for layer in seen.layers} == {"encoder"}:
        return seen  # reading a source takes no steps
    return replace(seen, frames=frames)


def _hidden(state: object, width: int) -> Floats | None:
    """The top layer of the hidden state of a recurrent decoder, without the zeros after it if a lower layer is wider.

    None: the model has no such state.
    """
    if not isinstance(state, HiddenState):
        return None
    return state.hidden[0, -1, 0, :width].float().cpu().numpy()


def _seen(model: Loaded, tape: Tape, reads: dict[str, list[Read]], known: dict[str, Axes], title: str) -> AttentionView:
    """The picture of a tape of one text or pair with these axes, with its contexts and masks."""
    part_of = parts(model.module)
    if not len(tape):
        here = known.get("cross") or next(iter(known.values()))
        return AttentionView(title, here.rows, here.columns, [])
    tape.captions = [{name: known[part_of[path_of(name)]] for name in tape}]
    seen = view(tape, title=title)
    layers = []
    for layer, name in zip(seen.layers, tape):
        _, down, across = layer.weights.shape
        most = max(read.visible.shape[-1] for read in reads[name])
        visible = np.concatenate([np.pad(r.visible, ((0, 0), (0, most - r.visible.shape[-1]))) for r in reads[name]])
        contexts = model.check_finite(np.concatenate([read.context for read in reads[name]], axis=1))
        model.check_finite(layer.weights)
        layers.append(
            replace(
                layer,
                visible=visible[:down, :across],
                contexts=contexts[:, :down],
                query=model.module.config.query,
                norms=reads[name][-1].norms[:, :across],  # the last read of a decoder has all keys
            )
        )
    return replace(seen, layers=layers)


def _top(model: Loaded, logits: Tensor, target: int, piece: str) -> list[tuple[str, float, float]]:
    """The likeliest tokens that may be generated, and the target, which has this piece: piece, logit, probability."""
    spelt = logits[: model.target_tokenizer.size]  # a vocabulary may be padded to a round number
    offered = spelt.index_fill(0, torch.tensor(model.forbidden, dtype=torch.long, device=spelt.device), NEG_INF)
    best = offered.topk(min(TOP, len(spelt) - len(model.forbidden))).indices.tolist()
    tokens = best if target in best else [*best, target]
    names = [piece if token == target else name for token, name in zip(tokens, model.target_tokenizer.pieces(tokens))]
    return list(zip(names, spelt[tokens].tolist(), logits.softmax(0)[tokens].tolist()))


@contextmanager
def _reads(module: nn.Module, paths: Sequence[str]) -> Iterator[dict[str, list[Read]]]:
    """The reads of the attention modules at these paths while the block runs, by their names on a tape."""
    found = defaultdict[str, list[Read]](list)
    modules = {path: attention for path, attention in attentions(module).items() if path in paths}
    turns = {path: count() for path in modules}
    owners = {path: module.get_submodule(path.rpartition(".")[0]) for path in modules}

    def append(
        path: str, q: Tensor, memory: Memory, mask: Mask, q_at: Tensor | None, k_at: Tensor | None, context: Tensor
    ) -> None:
        keys = memory.keys
        table = mask.table(*default_positions(q, keys, q_at, k_at), q.dim())
        allowed = torch.ones((), dtype=torch.bool) if table is None else table
        allowed = allowed if allowed.dtype == torch.bool else allowed > NEG_INF
        visible = allowed.broadcast_to(*q.shape[:-1], keys.shape[-2])[0].reshape(-1, q.shape[-2], keys.shape[-2])
        read = context[0].reshape(-1, *context.shape[-2:]).float()  # (H, Tq, D); one head where there are none
        name = tape_name(path, modules[path].shared_by, next(turns[path]))
        found[name].append(Read(read.cpu().numpy(), visible.any(0).cpu().numpy(), _norms(owners[path], memory)))

    with observe(modules, append):
        yield found


def _norms(owner: nn.Module, memory: Memory) -> Floats:
    """The norms of the values after the output projections of their heads (Kobayashi et al. 2020). (H, Tk)"""
    values = memory.values[0].float()
    values = values.reshape(-1, *values.shape[-2:])  # (H, Tk, D); one head where there are none
    if isinstance(owner, MultiHead):
        values = torch.einsum("hkd,whd->hkw", values, owner.out.weight.float().unflatten(1, (owner.heads, -1)))
    return values.norm(dim=-1).cpu().numpy()
