"""Examples to tensors: batches of few shapes under a budget of tokens, each a pure function of (seed, epoch, index)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.example import Example
from regard.data.shapes import FILLER, Ids, Planned, Shapes
from regard.data.tokenizers import BOS, EOS, PAD, Tokenizer
from regard.errors import UserError, nearest

Pair = tuple[list[int], list[int]]  # the ids of a source and of a target, without begin and end

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

    def to(self, device: torch.device | str) -> Batch:
        """The same batch elsewhere."""
        names = ("tokens", "targets", "real", "source", "source_real")
        tensors = {name: getattr(self, name) for name in names}
        return replace(self, **{k: v.to(device, non_blocking=True) for k, v in tensors.items() if v is not None})


@dataclass(frozen=True)
class Padded:
    """Rows of ids made equally long; a row of length -1 is a filler."""

    ids: Ids  # (B, T), PAD behind the end of each row
    lengths: Ids  # (B,)

    @property
    def real(self) -> NDArray[np.bool_]:
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]  # (B, T)


# Turns the padded sources, the padded targets (each with a free place behind it) and their row numbers into a batch.
Frame = Callable[[Padded, Padded, Ids], Batch]


def seq2seq_frame(source: Padded, target: Padded, rows: Ids) -> Batch:
    """Teacher forcing with a source: the decoder reads bos + target and should say target + eos."""
    spoken = language_frame(source, target, rows)
    return replace(spoken, source=torch.from_numpy(source.ids), source_real=torch.from_numpy(source.real))


def language_frame(source: Padded, target: Padded, rows: Ids) -> Batch:
    """Teacher forcing without a source: the language model of the targets."""
    whole = rows >= 0
    tokens = np.concatenate([np.where(whole, BOS, PAD)[:, None], target.ids[:, :-1]], axis=1)  # (B, Tt)
    targets = target.ids.copy()
    targets[whole, target.lengths[whole]] = EOS
    real = Padded(targets, target.lengths + 1).real
    return _batch(tokens, targets, real, rows, count=int(real.sum()))


def label_frame(source: Padded, target: Padded, rows: Ids) -> Batch:
    """One class per text: the text is read whole, and the target is the single id of its class."""
    return _batch(source.ids, target.ids[:, 0].copy(), source.real, rows, count=int((rows >= 0).sum()))


def _batch(tokens: Ids, targets: Ids, real: NDArray[np.bool_], rows: Ids, count: int) -> Batch:
    read, said, there = (torch.from_numpy(array) for array in (tokens, targets, real))
    return Batch(read, said, there, rows=rows.tolist(), target_count=count)


class Ragged:
    """Lists of ids of unequal length, held in one flat array so that any choice of them is padded at once."""

    def __init__(self, lists: Sequence[list[int]]) -> None:
        self.lengths: Ids = np.array([len(ids) for ids in lists], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self._flat = np.fromiter(chain(chain.from_iterable(lists), [PAD]), np.int64, self.lengths.sum() + 1)

    def padded(self, rows: Ids, width: int) -> Padded:
        """The chosen lists, `width` places each; row -1 is a filler."""
        padded = Padded(np.full((len(rows), width), PAD), np.where(rows >= 0, self.lengths[rows], -1))
        places = np.minimum(self._starts[rows][:, None] + np.arange(width), len(self._flat) - 1)  # (B, T)
        return replace(padded, ids=np.where(padded.real, self._flat[places], PAD))


def encode_examples(
    examples: Sequence[Example], source_tokenizer: Tokenizer | None, target_tokenizer: Tokenizer
) -> list[Pair]:
    """The ids of both sides of each example; without a source tokenizer the sources are empty."""
    targets = target_tokenizer.encode_batch([example.target for example in examples])
    if source_tokenizer is None:
        return [([], target) for target in targets]
    return list(zip(source_tokenizer.encode_batch([example.source for example in examples]), targets))


def collate(pairs: Sequence[Pair], frame: Frame = seq2seq_frame) -> Batch:
    """One batch of exactly these pairs, in their order and as short as can be."""
    source, target = (Ragged(side) for side in zip(*pairs))
    rows = np.arange(len(pairs))
    widths = (max(int(source.lengths.max()), 1), int(target.lengths.max()) + 1)
    return frame(source.padded(rows, widths[0]), target.padded(rows, widths[1]), rows)


# How the pairs of each task become a batch.
FRAMES: dict[str, Frame] = {"translate": seq2seq_frame, "language": language_frame, "classify": label_frame}


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
        frame: Frame = seq2seq_frame,
    ) -> None:
        if budget < 2:
            raise UserError(f"a budget of {budget} tokens cannot hold an example; give some thousands.")
        assert 0 <= rank < ranks
        most = budget - 1 if limit is None else min(limit, budget - 1)  # begin or end takes a place
        kept, pairs = _within(pairs, most, long)
        self.dropped = len(pairs) - len(kept)
        self._source, self._target = (Ragged(side) for side in zip(*pairs))
        self._numbers = np.append(kept, FILLER)  # of the examples that are left, so that FILLER stands for itself
        source_lengths, target_lengths = self._source.lengths[kept], self._target.lengths[kept] + 1
        # A corpus without sources has none; a single empty source still gets a place to be empty in.
        source_lengths = np.maximum(source_lengths, int(source_lengths.any()))
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
        return self._frame(source, self._target.padded(rows, planned.target_width), rows)

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
        raise UserError(f"every example has more than {most} tokens; raise the limit or choose long=truncate")
    return kept, pairs
