"""Examples to tensors: batches of few shapes under a budget of tokens, each a pure function of (seed, epoch, index)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.example import Example
from regard.data.ragged import PAD, Padded, Ragged
from regard.data.shapes import FILLER, Ids, Planned, Shapes
from regard.data.special_tokens import SpecialTokens
from regard.data.tokenizers import OUR_SPECIAL_TOKENS, Tokenizer
from regard.errors import UserError, nearest

Pair = tuple[list[int], list[int]]  # the ids of a source and of a target, without their special tokens

LONG = ("drop", "error", "truncate")  # what may become of an example past the limit


@dataclass(frozen=True)
class Batch:
    """What a model is given and judged by. True in `real` means "not padding"."""

    tokens: Tensor  # (B, Tt) what the model reads of the target, or of the only text there is
    targets: Tensor  # (B, Tt) what it should say at each place; (B,) for classes
    real: Tensor  # (B, Tt)
    rows: list[int]  # which example each row is; -1 is a filler row, where real is False throughout
    target_count: int  # how many targets are real, known without asking the device
    source: Tensor | None = None  # (B, Ts)
    source_real: Tensor | None = None  # (B, Ts)
    source_count: int = 0  # how many places of the source are real, known likewise; 0: nobody has counted

    @property
    def visible(self) -> Tensor | None:
        """Where a model may look in its text: `real`, or None where the count says that nothing is padding.

        A mask that forbids nothing would keep a GPU from its fastest kernels.
        """
        counted = self.targets.shape == self.real.shape  # of classes there is one a text, however long
        return None if counted and self.target_count == self.real.numel() else self.real

    @property
    def source_visible(self) -> Tensor | None:
        """The same of the source."""
        whole = self.source is not None and self.source_count == self.source.numel()
        return None if whole else self.source_real

    def to(self, device: torch.device | str) -> Batch:
        """The same batch elsewhere."""
        names = ("tokens", "targets", "real", "source", "source_real")
        tensors = {name: getattr(self, name) for name in names}
        return replace(self, **{k: v.to(device, non_blocking=True) for k, v in tensors.items() if v is not None})


class Frame(Protocol):
    """How the pairs of a task become a batch: special tokens around each side, then inputs and targets."""

    @property
    def shift(self) -> int:
        """How many places fewer than its framed target a row of the batch has: 1 where each token says the next."""
        ...

    def sides(self, pair: Pair) -> Pair:
        """The ids of both sides with their special tokens."""
        ...

    def __call__(self, source: Padded, target: Padded, rows: Ids) -> Batch:
        """The batch of framed and padded sides, the targets `shift` places wider than it will be."""
        ...


@dataclass(frozen=True)
class LanguageFrame:
    """Teacher forcing without a source: the model reads begin + text and should say text + end."""

    target: SpecialTokens = OUR_SPECIAL_TOKENS
    shift: ClassVar[int] = 1

    def sides(self, pair: Pair) -> Pair:
        return [], self.target.wrap_target(pair[1])

    def __call__(self, source: Padded, target: Padded, rows: Ids) -> Batch:
        said = Padded(target.ids[:, 1:], np.maximum(target.lengths, 1) - 1)  # (B, Tt)
        read = np.where(said.real, target.ids[:, :-1], PAD)  # a text's last token is said, never read
        return _batch(read, said.ids, said.real, rows, count=int(said.real.sum()))


@dataclass(frozen=True)
class TranslationFrame:
    """Teacher forcing with a source, which is read whole."""

    source: SpecialTokens = OUR_SPECIAL_TOKENS
    target: SpecialTokens = OUR_SPECIAL_TOKENS
    shift: ClassVar[int] = 1

    def sides(self, pair: Pair) -> Pair:
        return self.source.wrap_input(pair[0]), self.target.wrap_target(pair[1])

    def __call__(self, source: Padded, target: Padded, rows: Ids) -> Batch:
        spoken = LanguageFrame(self.target)(source, target, rows)
        real = torch.from_numpy(source.real)
        return replace(spoken, source=torch.from_numpy(source.ids), source_real=real, source_count=int(real.sum()))


@dataclass(frozen=True)
class LabelFrame:
    """One class per text: the text is read whole, and the target is the single id of its class."""

    source: SpecialTokens = OUR_SPECIAL_TOKENS
    shift: ClassVar[int] = 0

    def sides(self, pair: Pair) -> Pair:
        return self.source.wrap_input(pair[0]), pair[1]

    def __call__(self, source: Padded, target: Padded, rows: Ids) -> Batch:
        return _batch(source.ids, target.ids[:, 0].copy(), source.real, rows, count=int((rows >= 0).sum()))


@dataclass(frozen=True)
class FillFrame:
    """A text that is read both ways, to be said as it stands: what is hidden of it is for the objective to choose."""

    target: SpecialTokens
    shift: ClassVar[int] = 0

    def sides(self, pair: Pair) -> Pair:
        return [], self.target.wrap_input(pair[1])

    def __call__(self, source: Padded, target: Padded, rows: Ids) -> Batch:
        return _batch(target.ids, target.ids.copy(), target.real, rows, count=int(target.real.sum()))


PLAIN = TranslationFrame()  # that of our own tokenizers


def extra(frame: Frame) -> int:
    """How many special tokens a text has, on the side with more: what to take off a model's limit."""
    source, target = frame.sides(([], []))
    return max(len(source), len(target) - frame.shift)


def frame_for(task: str, source: Tokenizer | None, target: Tokenizer) -> Frame:
    """How pairs become batches of a task, with the special tokens of the tokenizers."""
    read = OUR_SPECIAL_TOKENS if source is None else source.special_tokens
    match task:
        case "translate":
            return TranslationFrame(read, target.special_tokens)
        case "language":
            return LanguageFrame(target.special_tokens)
        case "classify":
            return LabelFrame(read)
        case "fill":
            return FillFrame(target.special_tokens)
    raise AssertionError(f"no such task: {task}")


def _batch(tokens: Ids, targets: Ids, real: NDArray[np.bool_], rows: Ids, count: int) -> Batch:
    read, said, there = (torch.from_numpy(np.ascontiguousarray(array)) for array in (tokens, targets, real))
    return Batch(read, said, there, rows=rows.tolist(), target_count=count)


def encode_examples(
    examples: Sequence[Example], source_tokenizer: Tokenizer | None, target_tokenizer: Tokenizer
) -> list[Pair]:
    """The ids of both sides of each example; without a source tokenizer the sources are empty."""
    targets = target_tokenizer.encode_batch([example.target for example in examples])
    if source_tokenizer is None:
        return [([], target) for target in targets]
    return list(zip(source_tokenizer.encode_batch([example.source for example in examples]), targets))


def collate(pairs: Sequence[Pair], frame: Frame = PLAIN) -> Batch:
    """One batch of exactly these pairs, in their order and as short as can be."""
    source, target = _framed(pairs, frame)
    rows = np.arange(len(pairs))
    widths = (max(int(side.lengths.max()), least) for side, least in ((source, 1), (target, 1 + frame.shift)))
    return frame(source.padded(rows, next(widths)), target.padded(rows, next(widths)), rows)


def _framed(pairs: Sequence[Pair], frame: Frame) -> tuple[Ragged, Ragged]:
    """Both sides of the pairs, each text with its special tokens."""
    sources, targets = zip(*map(frame.sides, pairs))
    return Ragged(sources), Ragged(targets)


class Batches:
    """The batches of a corpus, epoch after epoch: `batch(step)` is a function of the seed and the step alone.

    Every epoch has each example once, in batches of at most `budget` padded tokens on either side: shuffled, or from
    short to long. An example with a side of more than `limit` tokens is treated as `long` says. Of several ranks, rank
    r takes batches r, r + ranks, … of the one order; where that does not come out even, batches of nothing but filler
    rows make it so.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        budget: int,
        seed: int,
        shuffle: bool = True,
        limit: int | None = None,
        long: str = "drop",
        rank: int = 0,
        ranks: int = 1,
        frame: Frame = PLAIN,
    ) -> None:
        if budget < 2:
            raise UserError(f"a budget of {budget} tokens cannot hold an example; give some thousands.")
        assert 0 <= rank < ranks
        room = budget - extra(frame)
        most = room if limit is None else min(limit, room)
        kept, pairs = _within(pairs, most, long)
        self.dropped = len(pairs) - len(kept)
        self._source, self._target = _framed(pairs, frame)
        self._numbers = np.append(kept, FILLER)  # of the examples that are left, so that FILLER stands for itself
        source_lengths, target_lengths = self._source.lengths[kept], self._target.lengths[kept] - frame.shift
        # A corpus without sources has none; a single empty source still gets a place to be empty in.
        source_lengths = np.maximum(source_lengths, int(source_lengths.any()))
        target_lengths = np.maximum(target_lengths, 1)
        self._shapes = Shapes(source_lengths, target_lengths, budget)
        self._seed, self._shuffle, self._frame = seed, shuffle, frame
        self._rank, self._ranks = rank, ranks
        self._latest = (0, self._plan(0))

    def __len__(self) -> int:
        """Batches per epoch (of this rank, and of every other); the same in every epoch."""
        return len(self._latest[1]) // self._ranks

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """The few (rows, Ts, Tt) that occur, on any rank."""
        return sorted({planned.shape for planned in self._latest[1]})

    def batch(self, step: int) -> Batch:
        """The batch of a step of training, which may be any: epoch step // len, place step % len."""
        epoch, place = divmod(step, len(self))
        if self._shuffle and epoch != self._latest[0]:
            self._latest = (epoch, self._plan(epoch))
        planned = self._latest[1][place * self._ranks + self._rank]
        rows = self._numbers[planned.rows]
        source = self._source.padded(rows, planned.source_width)
        target = self._target.padded(rows, planned.target_width + self._frame.shift)
        return self._frame(source, target, rows)

    def _plan(self, epoch: int) -> list[Planned]:
        """The batches of all ranks in an epoch, in order."""
        rng = np.random.default_rng((self._seed, epoch))
        planned = self._shapes.plan(rng.permutation if self._shuffle else lambda rows: rows)
        empty = replace(planned[0], rows=np.full_like(planned[0].rows, FILLER))
        planned += [empty] * (-len(planned) % self._ranks)
        return [planned[i] for i in rng.permutation(len(planned))] if self._shuffle else planned


def _within(pairs: Sequence[Pair], most: int, long: str) -> tuple[Ids, Sequence[Pair]]:
    """The numbers of the examples whose sides have at most so many tokens, and all examples, cut where `long` says."""
    if long not in LONG:
        raise UserError(f'long="{long}" is no way to treat long examples.{nearest(long, LONG)}')
    if not pairs:
        raise UserError("there are no examples to make batches of; give at least one.")
    lengths = np.array([max(map(len, pair)) for pair in pairs])
    if long == "truncate":
        return np.arange(len(pairs)), [(source[:most], target[:most]) for source, target in pairs]
    if long == "error" and (lengths > most).any():
        first = int(np.argmax(lengths > most))
        cure = "shorten it, raise the limit, or choose long=truncate or long=drop"
        raise UserError(f"example {first} has {lengths[first]} tokens, past the limit of {most}; {cure}")
    kept = np.flatnonzero(lengths <= most)
    if not len(kept):
        room = "all that plan.batch_tokens, or the model's longest text, leaves room for; raise that one"
        raise UserError(f"every example has more than {most} tokens, {room}.")
    return kept, pairs
