"""Neighbours: the words whose vectors have the largest cosine with that of a word, or of a sum of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.words import first_word, vocabulary
from regard.errors import UserError
from regard.verbs.loaded import Loaded

SPELLINGS = 3  # words that are offered for a word that is not in the vocabulary
SIGNS = {"+": 1.0, "-": -1.0, "−": -1.0}

Floats = NDArray[np.float32]


class Neighbour(NamedTuple):
    """A word, and the cosine of its vector with the question's."""

    word: str
    cosine: float


@dataclass(frozen=True, eq=False)
class WordTable:
    """The words of a model with static vectors, and their vectors of length one."""

    words: Sequence[str]
    places: Mapping[str, int]  # the place of each word in `words`
    vectors: Floats  # (N, width); a word without a vector has zeros

    def place(self, word: str) -> int | None:
        """The place of a word, or of its lower-case form; None if the vocabulary has neither."""
        found = self.places.get(word)
        return self.places.get(word.lower()) if found is None else found


def word_table(model: Loaded) -> WordTable:
    """The words and vectors of a model with static vectors."""
    model.expect("find neighbours", model.task.head == "words")
    words = vocabulary(model.tokenizer)[(first := first_word(model.tokenizer)) :]
    vectors: Tensor = model.module.vectors[first : first + len(words)]  # type: ignore[index]
    places = {word: place for place, word in enumerate(words)}
    return WordTable(words, places, unit_vectors(vectors))


def neighbours(model: Loaded | WordTable, question: str | Sequence[str], top: int = 10) -> list[Neighbour]:
    """The words nearest to a word, or to words with + and - between them: "king - man + woman".

    The vectors of the words have length one before they are added. The words of the question are no answers. A word
    that is not in the vocabulary is looked up in lower case.
    """
    table = model if isinstance(model, WordTable) else word_table(model)
    terms = parse_question(question)
    places = [_known_place(table, word) for word, _ in terms]
    query = np.sum([sign * table.vectors[place] for place, (_, sign) in zip(places, terms)], 0)
    return [Neighbour(table.words[place], cosine) for place, cosine in nearest_rows(table.vectors, query, top, places)]


def nearest_rows(vectors: Floats, query: Floats, top: int, excluded: Sequence[int] = ()) -> list[tuple[int, float]]:
    """The rows of vectors (N, D) of length one that have the largest cosine with a query (D,), with their cosines."""
    cosines = vectors @ (query / max(float(np.linalg.norm(query)), 1e-12))
    cosines[list(excluded)] = -np.inf
    top = min(top, len(cosines) - len(set(excluded)))
    best = np.argpartition(-cosines, max(top - 1, 0))[:top]
    return [(int(row), float(cosines[row])) for row in best[np.argsort(-cosines[best])]]


def unit_vectors(vectors: Tensor) -> Floats:
    """Vectors (N, D) divided by their lengths; zeros stay zeros."""
    found: Floats = F.normalize(vectors.detach().float(), dim=-1).cpu().numpy()
    return found


def parse_question(question: str | Sequence[str]) -> list[tuple[str, float]]:
    """The words of a question, each with +1 or −1."""
    pieces = question.split() if isinstance(question, str) else [piece for one in question for piece in one.split()]
    terms, sign = list[tuple[str, float]](), 1.0 if pieces[:1] not in (["-"], ["−"]) else None
    for piece in pieces:
        if piece in SIGNS and sign is None:
            sign = SIGNS[piece]
        elif sign is not None and piece not in SIGNS:
            terms, sign = [*terms, (piece, sign)], None
        else:
            raise UserError(f"{' '.join(pieces)!r:.80}: give words with + or - between them: king - man + woman")
    if sign is not None or not terms:
        raise UserError(f"{' '.join(pieces)!r:.80}: a word is missing at the end; give one word, or king - man + woman")
    return terms


def _known_place(table: WordTable, word: str) -> int:
    place = table.place(word)
    if place is None:
        near = get_close_matches(word, table.words, SPELLINGS, 0.6) or get_close_matches(word.lower(), table.words)
        cure = f"nearest spellings: {', '.join(near)}" if near else "no word is spelt like it"
        raise UserError(f"{word}: not one of the {len(table.words):,} words that have vectors; {cure}.")
    return place
