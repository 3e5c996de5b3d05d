"""Running text: one long array of ids, and batches of windows of it.

A window has no bos and no eos, since the text continues before and after it. It has no padding, and all batches have
one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from regard.data.batches import FILLER, IGNORED, Batch, Collation, Corruption
from regard.data.download import CURE
from regard.data.example import Corpus, Text, Tokens
from regard.data.fields import MaskedText, SpanSource, TextField
from regard.data.files import find_data, opened, read_text
from regard.data.flat import Lengths, Rows, Values, digest
from regard.data.tables import NAMED, ending
from regard.data.text_files import Report, TextExamples, TextFile, passages
from regard.data.token_files import SMALL, encode_pieces, encode_text, token_file, token_key, token_path
from regard.data.tokenizers import PAD, Tokenizer
from regard.errors import UserError

HELD_OUT = 0.1  # the fraction at the end of the training text that is for validation if data.valid is not set
# About how many characters a token has; 4 for sub-words.
CHARACTERS = {"char": 1, "word": 6, "word-eos": 6, "word-lower": 6}
VALID_LANES, VALID_ROWS = 4, 4  # lanes, and rows of a lane, of a validation text that is read with a carried state
LEAST_WINDOWS = 32  # the fewest windows of a row of it; a shorter text has fewer lanes


@dataclass(frozen=True)
class Book:
    """Your own running text: one file, read as a whole with its line ends."""

    tasks: ClassVar[tuple[str, ...]] = (
        "running",
        "two-way running",
        "masked running",
        "replaced running",
        "infill running",
    )

    train: str = ""  # the training text
    valid: str = ""  # the validation text; empty: the last tenth of the training text
    test: str = ""  # the test text; may be empty
    tokens: Tokens = "char"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary
    tokenizer: str = ""  # a run, or a public checkpoint, whose tokenizer is used; empty: one is trained on the text
    window: int = 0  # tokens of a window; 0: the model's context
    order: Literal["random", "contiguous"] = "random"  # order of the windows; contiguous: each continues the one before
    spread: float = 0.0  # contiguous: about the standard deviation of the lengths of windows, as a part of data.window
    valid_tokens: int = 1_000_000  # about the largest number of tokens of the validation text; 0: no limit
    sample_mb: int = 64  # megabytes, spread over a larger text, that the tokenizer is trained on; 0: all

    def load(self, report: Report | None = None) -> Corpus:
        """The parts of the text: read into memory if the file is small, left on disk if it is large."""
        if not self.train:
            raise UserError("data.train is not set; give the training text with data.train=FILE")
        for name in ("train", "valid", "test"):
            if ending(path := getattr(self, name)) in NAMED:
                cure = "data=book reads running text; read the lines of a column with data=lines data.text=COLUMN"
                raise UserError(f"data.{name}={path}: this is a table; {cure}.")
        if not 0 <= self.spread < 1:
            raise UserError(f"data.spread={self.spread}: give 0 (none) or more, below 1, such as 0.07.")
        if self.spread and self.order == "random":
            why = "windows at random places all have one length"
            raise UserError(f"data.spread={self.spread}: {why}; set data.order=contiguous, or data.spread=0.")
        for name in ("valid_tokens", "sample_mb"):
            if getattr(self, name) < 0:
                raise UserError(f"data.{name}={getattr(self, name)}: give 1 or more, or 0 for no limit.")
        train, most = open_text(self.train, report), self.valid_tokens * CHARACTERS.get(self.tokens, 4)
        if self.valid:
            valid = open_text(self.valid, report)
            valid, _ = _split(valid, most) if 0 < most < len(valid) else (valid, "")
        else:
            cut = int(len(train) * (1 - HELD_OUT))
            train, valid = _split(train, max(cut, len(train) - most) if most else cut)
        return Corpus(
            examples_of(train), examples_of(valid), examples_of(open_text(self.test, report)) if self.test else []
        )


@dataclass(frozen=True)
class Shakespeare(Book):
    """A million characters of Shakespeare's plays (Karpathy 2015), in $REGARD_DATA/tinyshakespeare/input.txt."""

    train: str = ""  # another training text, instead of the plays

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.train else ("tinyshakespeare/input.txt",)

    def load(self, report: Report | None = None) -> Corpus:
        return Book.load(replace(self, train=self.train or str(find_data(self.files[0], CURE))), report)


def window_of(data: Book, longest: int | None) -> int:
    """The tokens of a window: `data.window`, or the model's context."""
    if data.window < 0:
        raise UserError(f"data.window={data.window}: give 1 or more, or 0 for as many as the model reads.")
    if longest is not None and data.window > longest:
        raise UserError(f"data.window={data.window}: the model reads at most {longest} tokens; give that or less.")
    if not (data.window or longest):
        raise UserError("data.window=0: the model has no limit; give the tokens of a window, such as 256.")
    return data.window or longest or 0


def joined(examples: Iterable[Text]) -> str:
    """The text of a corpus: its examples joined."""
    return "".join(example.text for example in examples)


encode_cached = lru_cache(maxsize=2)(encode_text)  # so that a validation text is encoded once


def encode_running(tokenizer: Tokenizer, examples: Iterable[Text], report: Report | None = None) -> tuple[Values, str]:
    """The ids of a text and the key of its token file; the key is empty for a text in memory.

    A text is encoded from its beginning. The ids for a model that reads backward are a reversed view of the array.
    """
    origin, order = tokenizer.origin or tokenizer, slice(None, None, -1 if tokenizer.reads_backward else None)
    if isinstance(examples, TextExamples):
        return token_file(examples.text, origin, report)[order], token_key(examples.text, origin)
    return encode_cached(origin, joined(examples))[order], ""


def encode_sample(tokenizer: Tokenizer, examples: Iterable[Text]) -> tuple[Values, float] | None:
    """The ids of a sample of a text on disk, and its fraction of the text; None if the text has a token file."""
    if not isinstance(examples, TextExamples) or token_path(examples.text, tokenizer).is_file():
        return None
    pieces = list(examples.text.sample(SMALL))
    part = sum(len(piece.encode()) for piece in pieces) / len(examples.text)
    return np.concatenate(list(encode_pieces(tokenizer, pieces))), min(1.0, part)


def tokenizer_sample(data: Any, examples: TextExamples, report: Report | None = None) -> Iterator[Text]:
    """The texts that the tokenizer is trained on: `data.sample_mb` megabytes, spread over a text on disk."""
    text = examples.text
    size, done = min(data.sample_mb * 2**20 or len(text), len(text)), 0
    for piece in text.sample(size):
        yield from map(Text, passages(piece))
        done += len(piece.encode())
        if report:
            report("training the tokenizer", min(done, size), size)


@dataclass(frozen=True, eq=False)
class RunningText(TextField):
    """A running text, whose tokenizer adds no bos and no eos."""

    running: ClassVar[bool] = True

    def __post_init__(self) -> None:
        special_tokens = replace(self.tokenizer.special_tokens, bos=None, eos=None)
        object.__setattr__(self, "tokenizer", replace(self.tokenizer, special_tokens=special_tokens))


class MaskedRunningText(MaskedText):
    """A running text whose windows are read whole, between prefix and suffix, with a token that masks others."""

    running = True


class SpanRunningSource(SpanSource):
    """A running text whose windows are read with some spans hidden."""

    running = True


class Windows:
    """Batches of a text for training: windows at random places. `batch(step)` depends only on the seed and the step.

    Each batch has `budget // window` rows.
    """

    dropped = 0  # every token is in some window
    unit = "tokens"  # what is counted for the speed of training

    def __init__(self, text: Values, window: int, budget: int, seed: int, key: str = "") -> None:
        if budget < window:
            raise UserError(f"plan.batch_tokens={budget}: less than one window of {window} tokens; give that or more.")
        if len(text) <= window:
            shorter = f", or data.window={len(text) - 1} or less" if len(text) > 1 else ""
            cure = f"give a longer data.train{shorter}"
            raise UserError(f"data: the text has {len(text)} tokens, not more than one window of {window}; {cure}.")
        self._text, self._window, self._rows = text, window, budget // window
        self._seed, self._key = seed, key

    @property
    def digest(self) -> str:
        """The identity of the text: the key of its token file, or the SHA-256 of its ids."""
        return self._key or digest(self._text)

    def __len__(self) -> int:
        """The batches of an epoch, which together have about as many tokens as the text."""
        return max(1, round(len(self._text) / (self._rows * self._window)))

    @property
    def nbytes(self) -> int:
        """The bytes of the ids."""
        return self._text.nbytes

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of batches, (rows, width): only one."""
        return [(self._rows, self._window)]

    def batch(self, step: int) -> Batch:
        """The windows of any step."""
        rng = np.random.default_rng((self._seed, step))
        starts = rng.integers(len(self._text) - self._window, size=self._rows)
        return _window_batch(self._text, starts, np.full(self._rows, self._window), self._window)

    def part(self, number: int, parts: int) -> Iterator[Batch]:
        """The windows of one of so many parts of the text, in order: all parts together have every target once."""
        targets = len(self._text) - 1
        first, last = (-(-n * targets // parts) for n in (number, number + 1))  # rounded up: the first part has targets
        return in_order(self._text[first : last + 1], self._window, self._rows * self._window)


class Streams(Windows):
    """Batches of a text for training: contiguous windows, so that a model can carry its state from batch to batch.

    The text is cut into lanes × rows streams of equal length. The lane of a batch is its number modulo `lanes`; in a
    lane, row r of each batch continues row r of the batch before. After the last windows the next epoch starts again at
    the beginning of the streams, which are cut at an offset drawn from the seed and the epoch.

    With `spread`, the windows of an epoch have different lengths, so that training is not cut at the same tokens in
    every epoch (Merity et al. 2018, §4.1): each end moves by a normal number of tenths of a window. Every token is a
    target once, as without it, and there are few shapes. The learning rate of a step is in proportion to the length of
    its windows (`Batch.scale`), so that a token of a short window has no more weight than others.
    """

    def __init__(
        self, text: Values, window: int, budget: int, seed: int, lanes: int = 1, key: str = "", spread: float = 0.0
    ) -> None:
        super().__init__(text, window, budget, seed, key=key)
        self._lanes, self._spread = lanes, spread
        self._segments = (len(text) - 1) // (lanes * self._rows * window)  # windows of a stream
        if not self._segments:
            streams = f"{lanes} batches a step of {self._rows} rows"
            cure = "lower plan.batch_tokens, plan.accumulate or data.window, or give a longer data.train"
            raise UserError(f"data.order=contiguous: the text has {len(text)} tokens, too few for {streams}; {cure}.")

    def __len__(self) -> int:
        return self._lanes * self._segments

    def batch(self, step: int) -> Batch:
        """The windows of any batch, by its number."""
        turn, lane = divmod(step, self._lanes)
        epoch, segment = divmod(turn, self._segments)
        length = self._segments * self._window  # of a stream
        offset, ends = self._cut(epoch)
        starts = offset + (lane * self._rows + np.arange(self._rows)) * length + ends[segment]
        window = int(ends[segment + 1] - ends[segment])
        batch = _window_batch(self._text, starts, np.full(self._rows, window), window)
        return replace(batch, segment=segment, scale=window / self._window)

    def _cut(self, epoch: int) -> tuple[int, Lengths]:
        """Where the first stream of an epoch begins, and where in a stream each window ends, after a 0."""
        random = np.random.default_rng((self._seed, epoch))
        offset = int(random.integers(len(self._text) - self._lanes * self._rows * self._segments * self._window))
        ends = np.arange(self._segments + 1) * self._window
        if self._spread:
            tenth = max(self._window // 10, 1)
            deviation = self._spread / 2**0.5 * self._window / tenth  # of an end: both ends change the length
            moved = np.rint(random.normal(0, deviation, self._segments - 1)).astype(np.int64)
            most = (self._window - 1) // (2 * tenth)  # no window is empty
            ends[1:-1] += moved.clip(-most, most) * tenth
        return offset, ends

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the batches of the first epoch."""
        return [(self._rows, int(length)) for length in np.unique(np.diff(self._cut(0)[1]))]


class WindowRows(Windows):
    """Batches of a text for training: windows that become rows, as lines do, which a task corrupts and collates.

    The text is cut into windows of equal length, each between the special tokens of its field, that fill `window`
    places of the model after the corruption. Every epoch has each window once, in random order; the first ones of the
    order come again to fill the last batch. `batch(step)` depends only on the seed and the step.
    """

    def __init__(
        self,
        text: Values,
        field: TextField,
        task: Collation,
        window: int,
        budget: int,
        seed: int,
        key: str = "",
        corruption: Corruption | None = None,
        name: str = "text",
    ) -> None:
        if budget < window:
            raise UserError(f"plan.batch_tokens={budget}: less than one window of {window} tokens; give that or more.")
        if not len(text):
            raise UserError("data: the text has no tokens; give a longer data.train.")
        self._text, self._seed, self._key = text, seed, key
        self._field, self._task, self._corruption, self._name = field, task, corruption, name
        self._length = min(window_length(field, task, corruption, window, name), len(text))
        self._count = -(-len(text) // self._length)
        widths = _widths(field, task, corruption, [self._length], name)
        self._widths = {axis: int(lengths[0]) for axis, lengths in widths.items()}
        self._rows = min(budget // max(self._widths.values()), self._count)
        self._latest = (0, self._order(0))

    def __len__(self) -> int:
        return -(-self._count // self._rows)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(self._rows, *self._widths.values())]

    def batch(self, step: int) -> Batch:
        epoch, place = divmod(step, len(self))
        if epoch != self._latest[0]:
            self._latest = (epoch, self._order(epoch))
        numbers = self._latest[1][(place * self._rows + np.arange(self._rows)) % self._count]
        starts = np.minimum(numbers * self._length, len(self._text) - self._length)
        rows = window_rows(self._text, self._field, starts, np.full(self._rows, self._length), self._name)
        random = np.random.default_rng((self._seed, step, 1))
        if self._corruption is not None:
            rows = self._corruption(rows, random)
        return replace(self._task.collate(rows, self._widths, random), rows=numbers.tolist())

    def part(self, number: int, parts: int) -> Iterator[Batch]:
        first, end = (-(-n * len(self) // parts) for n in (number, number + 1))  # rounded up
        return map(self.batch, range(first, end))

    def _order(self, epoch: int) -> Lengths:
        """The numbers of the windows in the order of an epoch."""
        return np.random.default_rng((self._seed, epoch)).permutation(self._count)


def _widths(
    field: TextField, task: Collation, corruption: Corruption | None, lengths: Sequence[int], name: str
) -> Mapping[str, Lengths]:
    """The axes of a batch of windows that have so many tokens of the text."""
    read: Mapping[str, Lengths] = {name: np.asarray(lengths) + len(field.wrap([]))}
    if corruption is not None:
        corruption.check(read)
        read = corruption.lengths(read)
    return task.widths(read)


def window_length(
    field: TextField, task: Collation, corruption: Corruption | None, window: int, name: str = "text"
) -> int:
    """The most tokens of a text that fill no more than `window` places of a batch, special tokens included."""
    lengths = range(1, 2 * window + 2)  # a corruption may shorten a row, but not to less than half
    widths = np.max([*_widths(field, task, corruption, lengths, name).values()], axis=0)
    if not (fitting := np.flatnonzero(widths <= window)).size:
        least = f"give {widths[0]} or more"
        raise UserError(f"data.window={window}: special tokens leave no room for a token of the text; {least}.")
    return lengths[fitting[-1]]


def window_rows(text: Values, field: TextField, starts: Lengths, lengths: Lengths, name: str = "text") -> Rows:
    """Rows of windows of a text, each between the special tokens of the field; `name` is that of the field."""
    around = field.wrap([-1])
    at = around.index(-1)  # where the window stands
    before, after = np.array(around[:at], np.int64), np.array(around[at + 1 :], np.int64)
    parts = [
        part
        for start, length in zip(starts.tolist(), lengths.tolist())
        for part in (before, text[start : start + length], after)
    ]
    whole = lengths + len(before) + len(after)
    return Rows({name: (np.concatenate(parts).astype(np.int64), np.cumsum(whole) - whole, whole)})


def rows_in_order(
    text: Values,
    field: TextField,
    task: Collation,
    corruption: Corruption | None,
    window: int,
    count: int,
    name: str = "text",
) -> Iterator[Rows]:
    """Rows of a text for evaluation, so many at a time: windows in order, so that every token is in one window.

    The last window may be short.
    """
    length = window_length(field, task, corruption, window, name)
    starts = np.arange(0, len(text), length)
    for first in range(0, len(starts), count):
        some = starts[first : first + count]
        yield window_rows(text, field, some, np.minimum(len(text) - some, length), name)


def in_order(text: Values, window: int, budget: int, stride: int | None = None) -> Iterator[Batch]:
    """Batches of a text for evaluation: windows in order, so that every token but the first is a target once.

    A window starts `stride` tokens after the one before it, else where that ends; the targets of earlier windows are
    only context. The last window is padded, and the last batch has empty rows, so that all batches have one shape.
    """
    stride, rows, targets = stride or window, max(1, budget // window), len(text) - 1
    starts = np.arange(max(-(-(targets - window) // stride) + 1, int(targets > 0))) * stride
    starts = np.append(starts, np.full(-len(starts) % rows, targets))  # empty rows
    for chunk in starts.reshape(-1, rows):
        earlier = np.where(chunk > 0, window - stride, 0)
        yield _window_batch(text, chunk, np.minimum(targets - chunk, window), window, earlier)


def contiguous(text: Values, window: int) -> list[Iterator[Batch]]:
    """Lanes of a text for evaluation with a carried state: every token but the first is a target once.

    The text is cut into a few long streams, VALID_ROWS of them in each lane; only the beginnings of streams have no
    context. The last windows of streams are padded.
    """
    targets = len(text) - 1
    lanes = min(max(targets // (VALID_ROWS * window * LEAST_WINDOWS), 1), VALID_LANES)
    length = -(-targets // (lanes * VALID_ROWS))  # of a stream; the last one may be shorter

    def lane(number: int) -> Iterator[Batch]:
        first = (number * VALID_ROWS + np.arange(VALID_ROWS)) * length
        for segment, place in enumerate(range(0, length, window)):
            starts = first + place
            ends = np.minimum(first + length, targets)
            lengths = np.clip(ends - starts, 0, window)
            yield replace(_window_batch(text, starts, lengths, window), segment=segment)

    return [lane(number) for number in range(lanes)]


def _window_batch(
    text: Values, starts: Lengths, lengths: Lengths, window: int, earlier: Lengths | None = None
) -> Batch:
    """A batch of windows of a text; the targets are the tokens shifted by one, without the first `earlier` ones."""
    places = starts[:, None] + np.arange(window + 1)  # (B, T + 1)
    real = np.arange(window) < lengths[:, None]  # (B, T)
    predicted = real if earlier is None else real & (np.arange(window) >= earlier[:, None])
    ids = text[np.minimum(places, len(text) - 1)].astype(np.int64)
    rows = np.where(lengths > 0, np.arange(len(starts)), FILLER)
    return Batch(
        fields={
            "tokens": torch.from_numpy(np.where(real, ids[:, :-1], PAD)),
            "targets": torch.from_numpy(np.where(predicted, ids[:, 1:], IGNORED)),
        },
        real={"tokens": torch.from_numpy(real)},
        counts={"tokens": int(lengths.sum()), "targets": int(predicted.sum())},
        rows=rows.tolist(),
    )


def open_text(path: str, report: Report | None) -> str | TextFile:
    """A text: a string if its file is small, else a TextFile, which stays on disk."""
    with opened(path) as file:
        small = len(file.read(SMALL + 1)) <= SMALL
    if small:
        return read_text(path)
    text = TextFile(path, report)
    text.check(report)
    return text


def _split(text: str | TextFile, cut: int) -> tuple[str | TextFile, str | TextFile]:
    """The text before and after the character `cut`, or after the first line end from the byte `cut` on."""
    if isinstance(text, str):
        return text[:cut], text[cut:]
    cut = text.line_start(text.start + cut)
    return text.part(text.start, cut), text.part(cut)


def examples_of(text: str | TextFile) -> Sequence[Text]:
    """The text as examples: passages of some hundred characters."""
    if isinstance(text, TextFile) and len(text) > SMALL:
        return TextExamples(text)
    whole = text if isinstance(text, str) else text.read()
    return [Text(passage) for passage in passages(whole)]
