"""Teacher forcing over given texts: the log-probability of each token, and the attention weights with their captions.

The parts of a model: encoder (a text or source that attends to itself), decoder (a target that attends to its past),
cross (a target that attends to its source).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.alignment import alignment_layer
from regard.data.batches import Batch, collate
from regard.data.fields import TextField
from regard.data.flat import Row, Values, pad_ids
from regard.data.joined import PADDING, inputs_of
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.models import Facts
from regard.models.parts import parts, path_of, source_reads
from regard.objectives.guided import TrainsAlignment
from regard.objectives.objective import CausalModel
from regard.objectives.sequence import forced as features_of
from regard.recording import Axes, active_tape, pause_recording, record, recorded
from regard.render.view_data import Special, Unknown
from regard.verbs.loaded import LONG_CURE, IdPair, Loaded

Floats = NDArray[np.floating[Any]]
T = TypeVar("T")

BATCH_TOKENS = 8192  # tokens of a batch, padding included, on the longer side
GPU_SEARCH_TOKENS = 32768  # tokens of a batch that is decoded on a GPU: a step has only one of them per row
ROUND = 16  # texts share a batch only if their lengths round up to the same multiple of this


@dataclass(frozen=True, eq=False)
class Forced:
    """The result of teacher forcing for one pair of source and target."""

    logps: Floats  # (T + 1,) of each target token and of eos; fewer without bos or eos
    weights: Floats | None  # (T + 1, Ts) attention to the source at each of them; None without attention


def row_of(model: Loaded, pair: IdPair) -> Row:
    """The row of a pair: the ids of the source (if the model has one) and the target or text, with special tokens."""
    texts = [name for name, each in model.fields.items() if isinstance(each, TextField)]
    row = {name: np.empty(0, np.int64) for name in model.fields}
    for name, ids in zip(reversed(texts), reversed(pair)):
        each = model.fields[name]
        assert isinstance(each, TextField)
        row[name] = np.asarray(each.wrap(ids), np.int64)
    return row


def joined_rows(model: Loaded, arrays: Sequence[Values]) -> list[Row]:
    """The rows of texts of several parts, given their arrays."""
    return input_rows(model, next(name for name, each in model.fields.items() if each is model.joined_text), arrays)


def joined_axes(model: Loaded, value: Any, array: Values) -> list[dict[str, Axes]]:
    """The axes of the texts of a value, of which an example may have several, given its array."""
    arrays = [array] if array.ndim == 2 else list(array.swapaxes(0, 1))
    return [
        reading_axes(model, one[one[:, 1] > PADDING, 0].tolist(), *texts)
        for texts, one in zip(inputs_of(value), arrays)
    ]


def text_rows(model: Loaded, texts: Sequence[str], ids: Sequence[list[int]]) -> list[Row]:
    """The rows of texts that a model reads whole, given their ids."""
    name, field = next((name, each) for name, each in model.fields.items() if isinstance(each, TextField))
    return input_rows(model, name, field.arrays([text.strip() for text in texts], ids))


def input_rows(model: Loaded, name: str, arrays: Sequence[ArrayLike]) -> list[Row]:
    """The rows of the inputs of a field, given their arrays; the fields that the model predicts are empty."""
    empty = {other: np.empty(0, np.int64) for other in model.fields}
    return [{**empty, name: np.asarray(array, np.int64)} for array in arrays]


def batch_of(model: Loaded, pairs: Sequence[IdPair]) -> Batch:
    """One batch of these pairs, with as little padding as possible."""
    return collate([row_of(model, pair) for pair in pairs], model.task)


def search_tokens(model: Loaded, given: int | None) -> int:
    """The tokens of a batch that is decoded: those given, or as many as suit the device."""
    return given or (GPU_SEARCH_TOKENS if model.device.type == "cuda" else BATCH_TOKENS)


def forced(
    model: Loaded, pairs: Sequence[IdPair], batch_tokens: int = BATCH_TOKENS, layer: int | None = None
) -> list[Forced]:
    """Teacher forcing over the pairs, in batches; the results are in the order of the pairs.

    The weights are the mean over the heads of a layer: `layer`, or the one of `aligning`.
    """
    return _force_all(model, pairs, batch_tokens, aligning(model, layer), aligning_heads(model, layer))


def token_logps(model: Loaded, pairs: Sequence[IdPair], batch_tokens: int = BATCH_TOKENS) -> list[Floats]:
    """The log-probabilities of `forced`, without recording attention."""
    return [one.logps for one in _force_all(model, pairs, batch_tokens)]


def fit_target(model: Loaded, tokens: list[int], place: str) -> list[int]:
    """The tokens of a target that fit the model's positions; longer ones are refused or truncated, see `model.long`."""
    most = model.module.config.longest_target
    if most is None or len(tokens) < most:  # eos is a token of the target, too
        return tokens
    if model.long == "error":
        raise UserError(
            f"{place}: a target of {len(tokens)} tokens, but the model generates at most {most - 1}; {LONG_CURE}"
        )
    return tokens[: most - 1]


def _force_all(
    model: Loaded,
    pairs: Sequence[IdPair],
    batch_tokens: int,
    name: str | None = None,
    heads: tuple[int, ...] | None = None,
) -> list[Forced]:
    lengths = [max(len(source), len(target) + 1) for source, target in pairs]
    return in_batches(lengths, batch_tokens, lambda rows: _force(model, [pairs[row] for row in rows], name, heads))


def grouped(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Groups of rows of about the same length, each of at most `budget` tokens with padding (or of one long row).

    All rows of a group have the same rounded length, so that a limit computed from it does not depend on the group.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for length, same in groupby(order, key=lambda row: rounded(lengths[row])):
        rows, size = list(same), max(1, budget // length)
        yield from (rows[at : at + size] for at in range(0, len(rows), size))


def in_batches(lengths: Sequence[int], budget: int, read: Callable[[list[int]], Iterable[T]]) -> list[T]:
    """What `read` gives for the rows of each group of about the same length (`grouped`), in the order of the rows."""
    found: dict[int, T] = {}
    for rows in grouped(lengths, budget):
        found |= zip(rows, read(rows))
    return [found[row] for row in range(len(lengths))]


def padded(model: Loaded, lines: Sequence[ArrayLike]) -> tuple[Tensor, Tensor, Tensor | None]:
    """The ids of lines in one tensor (B, T), which places are real, and the same if there is padding, else None.

    Lines without any id have one place of padding.
    """
    ids, real = (torch.from_numpy(array).to(model.device) for array in pad_ids(lines, least=1))
    return ids, real, None if bool(real.all()) else real


def rounded(length: int) -> int:
    """The next multiple of ROUND, at least one."""
    return max(1, -(-length // ROUND)) * ROUND


@torch.no_grad()
def _force(model: Loaded, pairs: Sequence[IdPair], name: str | None, heads: tuple[int, ...] | None) -> Iterator[Forced]:
    """Teacher forcing of one batch. Only the named attention is recorded, and not on the caller's tape."""
    batch = batch_of(model, pairs).to(model.device)
    path = () if name is None else (path_of(name),)
    with pause_recording(model.module), record(model.module, path, heads) as tape, model.autocast():
        logps = _logps(cast(CausalModel, model.module), batch)
    attention = None if name is None else tape[name]  # (B, [H,] Tq, Ts)
    if attention is not None:
        attention = attention.mean(dim=1) if attention.dim() == 4 else attention
    first = 0 if model.source_tokenizer is None else model.source_tokenizer.special_tokens.prefix is not None
    last = [name for name, each in model.fields.items() if isinstance(each, TextField)][-1]  # the target, or the text
    for row, pair in enumerate(pairs):
        length = len(row_of(model, pair)[last]) - 1
        # Without the columns of the source's special tokens.
        weights = None if attention is None else attention[row, :length, first : first + len(pair[0])].numpy()
        yield Forced(model.check_finite(logps[row, :length]), weights)


def _logps(module: CausalModel, batch: Batch) -> Floats:
    """The log-probability of every target, (B, T). Logits are computed one row at a time, to save memory."""
    features, _ = features_of(module, batch)  # (B, T, W)
    rows = [
        F.log_softmax(module.readout(row).float(), dim=-1).gather(1, targets[:, None])[:, 0]
        for row, targets in zip(features, batch["targets"].clamp_min(0))
    ]
    return torch.stack(rows).cpu().numpy()


@torch.no_grad()
def record_forced(model: Loaded, pairs: Sequence[IdPair], batch_tokens: int) -> None:
    """Record one batch of all pairs in their order, with captions, if the caller records the model.

    The verb's own batches, in another order, are not recorded, so item i of the tape is pair i. A tape holds one batch:
    pairs that do not fit in one are refused, and so is a second pass.
    """
    if (tape := active_tape(model.module)) is not None:
        encoded = [row_of(model, pair) for pair in pairs]
        record_rows(model, encoded, [axes(model, pair) for pair in pairs], batch_tokens)
        tape.origins = [(model, pair) for pair in pairs]


@torch.no_grad()
def record_rows(model: Loaded, encoded: Sequence[Row], items: Sequence[dict[str, Axes]], batch_tokens: float) -> None:
    """Record one batch of these rows, with the axes of each of their texts, if the caller records the model."""
    if active_tape(model.module) is None or not encoded:
        return
    lengths = {name: np.array([len(row[name]) for row in encoded]) for name in model.fields}
    widest = max(int(axis.max()) for axis in model.task.widths(lengths).values())

    def read() -> None:
        with model.autocast():
            model.module(collate(encoded, model.task).to(model.device))

    record_pass(model, items, widest, batch_tokens if len(encoded) > 1 else np.inf, read)


def record_pass(
    model: Loaded, items: Sequence[dict[str, Axes]], widest: int, batch_tokens: float, read: Callable[[], object]
) -> None:
    """Record one pass, a call of `read`, over texts with these axes, padded to `widest` tokens; the caller records."""
    recorder = next(iter(recorded(model.module).values()))
    tape, rows = recorder.tape, recorder.rows
    if len(tape):
        raise UserError("record: the tape already holds a pass; open another `with record(model)` for each call.")
    if (size := len(items) * widest) > batch_tokens:
        raise UserError(
            f"record: {len(items)} texts come to {size:,} padded tokens, and a tape holds one batch of at most "
            f"batch_tokens={batch_tokens:,}; pass fewer lines at a time, or raise it."
        )
    read()
    most = {part: max(len(item[part].rows) for item in items) for part in items[0]}
    part_of = parts(model.module)
    named = {name: part_of[path_of(name)] for name in tape}
    tape.captions = [{name: kept(item[part], rows, most[part]) for name, part in named.items()} for item in items]


def aligning(model: Loaded, layer: int | None = None) -> str | None:
    """The name of the attention that alignments are taken from; None: the model has no attention to a source.

    By default it is the one whose weights were trained to align, or else the one that aligns best (`alignment_layer`).
    """
    names = source_reads(model.module)
    if layer is None and (trained := _trained(model)):
        layer = trained.align_layer
    if layer is None:
        return names[alignment_layer(len(names))] if names else None
    if not 0 <= layer < len(names):
        there = f"layers 0 to {len(names) - 1} look at the source" if names else "no layer looks at a source"
        raise UserError(f"layer={layer}: in {model.path} {there}.")
    return names[layer]


def aligning_heads(model: Loaded, layer: int | None = None) -> tuple[int, ...] | None:
    """The heads whose mean alignments are taken from: those that were trained to align; None: all heads."""
    trained = _trained(model)
    return trained.align_heads or None if layer is None and trained else None


def _trained(model: Loaded) -> TrainsAlignment | None:
    """The objective of the model if it trained attention weights to align."""
    objective = None if model.recipe is None else model.recipe.objective
    return objective if isinstance(objective, TrainsAlignment) else None


def axes(model: Loaded, pair: IdPair, texts: tuple[str, str] = ("", "")) -> dict[str, Axes]:
    """The rows and columns of every part of a model that reads this pair.

    A row is the token that attends, which is the last one read; of cross, the token that is predicted. An unknown token
    is named by its part of the text that the ids encode, where `texts` has it.
    """
    config: Facts = model.module.config
    source, target = pair
    if not config.causal:
        return reading_axes(model, model.tokenizer.wrap_input(target), texts[1])
    tokenizer = model.target_tokenizer
    pieces = named_pieces(tokenizer, tokenizer.special_tokens.wrap_target(target), texts[1])
    past, predicted = pieces[:-1], pieces[1:]
    found = {"decoder": Axes(past, past, "decoder")}
    if model.source_tokenizer:
        read = named_pieces(model.source_tokenizer, model.source_tokenizer.wrap_input(source), texts[0])
        found |= {"encoder": Axes(read, read, "encoder"), "cross": Axes(predicted, read, "cross")}
    return found


def reading_axes(model: Loaded, tokens: list[int], *texts: str) -> dict[str, Axes]:
    """The axes of a model that reads a text whole, given its tokens with the special ones.

    A translator that reads a text whole is the body under a head, or its encoder alone. Under a head both of its sides
    read the text, and its decoder is one token behind and starts with token 0 (`Transformer.features`).
    """
    config: Facts = model.module.config
    pieces = named_pieces(model.tokenizer, tokens, *texts)
    found = {"encoder": Axes(config.attention_rows or pieces, pieces, "encoder")}
    if not config.causal_attention or config.reads_source or config.reads_encoder:
        return found
    if not config.split()[0].reads_source:
        return {"decoder": Axes(config.attention_rows or pieces, pieces, "decoder")}
    before = [*named_pieces(model.tokenizer, [0]), *pieces[:-1]]
    return found | {"decoder": Axes(before, before, "decoder"), "cross": Axes(pieces, pieces, "cross")}


def named_pieces(tokenizer: Tokenizer, tokens: list[int], *texts: str) -> list[str]:
    """The piece of each token; of an unknown token, the part of the texts that it stands for."""
    special = tokenizer.special_tokens
    unknown = iter([part for text in texts if text for part in tokenizer.unknown(text.strip())])  # as `read` encodes it
    added = {special.pad, special.bos, special.eos, special.prefix, special.suffix, *special.separator}

    def named(token: int, piece: str) -> str:
        if token == special.unk and (found := next(unknown, "")):
            return Unknown(found)
        return Special(piece) if token in added else piece

    return [named(token, piece) for token, piece in zip(tokens, tokenizer.pieces(tokens))]


def kept(axes: Axes, rows: Sequence[int] | None, most: int) -> Axes:
    """The axes with only these rows, in a batch whose longest text has `most` of them."""
    if rows is None:
        return axes
    there = [row for row in rows if 0 <= row < most]
    return replace(axes, rows=[axes.rows[row] if row < len(axes.rows) else "" for row in there])
