"""Lexical substitution (McCarthy & Navigli 2007): rank the candidates that could replace a word in its sentence.

The sentences are our own. A candidate's score is the cosine of its vector and the vector of the context of the word
(Melamud et al. 2016, §4.3, without the vector of the word itself).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from math import comb
from typing import Any

import torch
from torch.nn import functional as F

from regard.errors import UserError
from regard.verbs.filling import context_vectors
from regard.verbs.loaded import Loaded

FILE = "substitutes.txt"


@dataclass(frozen=True)
class Sentence:
    """A sentence with a word to replace, words that can replace it, and words that cannot replace it here."""

    before: str
    word: str
    after: str
    good: tuple[str, ...]
    bad: tuple[str, ...]


@dataclass(frozen=True)
class Ranked:
    """The candidates of one sentence, the best first, and the rank from 1 of the first good one."""

    sentence: Sentence
    candidates: tuple[str, ...]
    rank: int


@dataclass(frozen=True)
class Substitution:
    """The mean reciprocal rank of the first good candidate, and how often it has rank 1; both also of a random order.

    A candidate that is not in the vocabulary is left out. A sentence is skipped if no good one or no other is left.
    """

    ranked: tuple[Ranked, ...]
    skipped: int
    unknown: int  # candidates that are not in the vocabulary
    mrr: float
    precision: float
    chance_mrr: float
    chance_precision: float


def sentences() -> list[Sentence]:
    """The sentences. A line of the file has the word in asterisks, then the good and the bad candidates after bars."""
    found = []
    for line in files("regard.verbs").joinpath(FILE).read_text(encoding="utf-8").splitlines():
        text, good, bad = line.split(" | ")
        before, word, after = text.split("*")
        found.append(Sentence(before.strip(), word, after.strip(), tuple(good.split()), tuple(bad.split())))
    return found


@torch.no_grad()
def substitution(model: Loaded, given: Iterable[Sentence] | None = None) -> Substitution:
    """Ranks the candidates of our sentences, or of given ones, by a model that has vectors of contexts and words."""
    model.expect("eval --substitution", model.predicts("context"))
    read = sentences() if given is None else list(given)
    module: Any = model.module
    contexts = context_vectors(model, [(one.before, one.after) for one in read])
    ranked, unknown = [], 0
    for one, context in zip(read, contexts):
        tokens = {word: _token(model, word) for word in (*one.good, *one.bad)}
        known = [word for word, token in tokens.items() if token is not None]
        unknown += len(tokens) - len(known)
        if not set(known) & set(one.good) or not set(known) & set(one.bad):
            continue
        ids = torch.tensor([tokens[word] for word in known], device=model.device)
        scores = F.cosine_similarity(module.target.weight[ids].float(), context.float(), dim=-1)
        best = tuple(known[at] for at in scores.argsort(descending=True).tolist())
        ranked.append(Ranked(one, best, 1 + min(best.index(word) for word in one.good if word in best)))
    if not ranked:
        raise UserError(f"{model.path}: its vocabulary has too few of the candidates; train it on a larger text.")
    chances = [_chance(len(one.candidates), len(set(one.candidates) & set(one.sentence.good))) for one in ranked]
    count = len(ranked)
    return Substitution(
        tuple(ranked),
        len(read) - count,
        unknown,
        mrr=sum(1 / one.rank for one in ranked) / count,
        precision=sum(one.rank == 1 for one in ranked) / count,
        chance_mrr=sum(mrr for mrr, _ in chances) / count,
        chance_precision=sum(first for _, first in chances) / count,
    )


def _token(model: Loaded, word: str) -> int | None:
    """The token of a word; None if it is not one token of the vocabulary."""
    ids = model.tokenizer.encode(word)
    return ids[0] if len(ids) == 1 and model.tokenizer.decode(ids).strip() == word else None


def _chance(count: int, good: int) -> tuple[float, float]:
    """The expected reciprocal rank of the first good candidate in a random order, and the chance that it is first."""
    orders = comb(count, good)
    return sum(comb(count - rank, good - 1) / orders / rank for rank in range(1, count - good + 2)), good / count
