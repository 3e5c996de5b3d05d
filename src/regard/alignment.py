"""Word alignment: links from attention weights, Pharaoh format, alignment error rate.

A link is (i, j): source unit i, target unit j, counted from 0. Weights are arrays (Tq, Tk), one row per target unit.
"""

import re
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError, nearest

Link = tuple[int, int]
Weights = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Links:
    """A manual alignment: sure links (all annotators agree), and possible links, which include the sure ones."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScore:
    """The agreement of proposed links with a manual alignment, over a corpus."""

    precision: float  # the fraction of proposed links that are possible
    recall: float  # the fraction of sure links that were proposed
    aer: float  # alignment error rate: 0 is perfect


# -- Pharaoh format ---------------------------------------------------------------------------------------------------


def pharaoh(links: Iterable[Link]) -> str:
    """Links as one line `i-j i-j …`, in order."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def parse_pharaoh(line: str, base: int = 0) -> Links:
    """The links of one line: `i-j` is sure, `ipj` is possible; numbers are counted from `base`."""
    sure, possible = set(), set()
    for item in line.split():
        match = re.fullmatch(r"(\d+)([-p])(\d+)", item, re.ASCII)
        if match is None or min(int(match[1]), int(match[3])) < base:
            raise UserError(f'"{item}" is not a link; write i-j (sure) or ipj (possible), counting from {base}.')
        link = int(match[1]) - base, int(match[3]) - base
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Links(frozenset(sure), frozenset(possible))


# -- from weights to links --------------------------------------------------------------------------------------------


def merge(weights: Weights, row_words: Sequence[int], column_words: Sequence[int]) -> Weights:
    """Weights between pieces (sub-words) → weights between words, with any leading dimensions (heads).

    The weight on a word is the sum over its pieces; the row of a word is the mean over its pieces. So the sum of a row
    does not change. `row_words[t]` is the word of piece t; pieces of word -1 (spaces) are left out.
    """
    rows, columns = _membership(row_words), _membership(column_words)
    rows /= np.maximum(rows.sum(axis=1, keepdims=True), 1)
    return rows @ weights @ columns.T  # (words_q, Tq) (..., Tq, Tk) (Tk, words_k)


def _membership(words: Sequence[int]) -> NDArray[np.float64]:
    """(words, pieces): 1 where the piece belongs to the word, else 0."""
    index = np.asarray(words, dtype=np.int64)
    return (np.arange(index.max(initial=-1) + 1)[:, None] == index).astype(np.float64)


def links_from(weights: Weights, method: str = "argmax") -> set[Link]:
    """The links of weights (Tq, Tk) by a method; a row of zeros has none."""
    if method not in METHODS:
        raise UserError(f"method={method}: no such method.{nearest(method, METHODS)}")
    return {(i, j) for i, j in METHODS[method](weights) if weights[j, i] > 0}


def _argmax(weights: Weights) -> set[Link]:
    """For each target, the source with the greatest weight."""
    return {(int(i), j) for j, i in enumerate(weights.argmax(axis=1))} if weights.size else set()


def _mutual(weights: Weights) -> set[Link]:
    """Pairs with the greatest weight of their row and of their column."""
    return _argmax(weights) & {(i, j) for j, i in _argmax(weights.T)}


METHODS = {"argmax": _argmax, "mutual": _mutual}


# -- evaluation -------------------------------------------------------------------------------------------------------


def aer(sure: Sequence[Set[Link]], possible: Sequence[Set[Link]], hypotheses: Sequence[Set[Link]]) -> AlignmentScore:
    """Alignment error rate, 1 − (|A∩S| + |A∩P|) / (|A| + |S|), counted over the corpus (Och & Ney 2003)."""
    if not len(sure) == len(possible) == len(hypotheses):
        raise UserError(f"{len(sure)} hand-aligned lines but {len(hypotheses)} proposed; give as many of each.")
    proposed = sum(map(len, hypotheses))
    certain = sum(map(len, sure))
    right = sum(len(a & (p | s)) for a, p, s in zip(hypotheses, possible, sure))
    found = sum(len(a & s) for a, s in zip(hypotheses, sure))
    return AlignmentScore(
        precision=right / proposed if proposed else 1.0,
        recall=found / certain if certain else 1.0,
        aer=1 - (found + right) / (proposed + certain) if proposed + certain else 0.0,
    )


def correct_targets(weights: Weights, links: Collection[Link]) -> tuple[int, int]:
    """How many targets with gold links have their greatest weight on a linked source, and how many there are."""
    best = {j: i for i, j in links_from(weights)}
    targets = {j for _, j in links}
    return sum((best.get(j, -1), j) in links for j in targets), len(targets)


def chance_accuracy(links: Collection[Link], source_length: int) -> float:
    """The expected fraction of `correct_targets` if every target chose a random source."""
    targets = {j for _, j in links}
    return len(set(links)) / (source_length * len(targets)) if targets else 0.0


def alignment_layer(count: int) -> int:
    """The index of the cross-attention layer that aligns best, out of ``count``: the penultimate; of two, the last.

    Garg et al. (2019, §4.1) find that the penultimate layer aligns best.
    """
    return count - 2 if count > 2 else count - 1
