"""Static word vectors: the neighbours of a word or of a sum of words, similarity judgements, and analogies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.data.files import PACKED, data_folder, iterate_lines
from regard.data.words import first_word, vocabulary
from regard.errors import UserError
from regard.metrics import spearman
from regard.verbs.given import text_list
from regard.verbs.loaded import Loaded

SPELLINGS = 3  # words that are offered for a word that is not in the vocabulary
SHORTEST = 1e-6  # of the vector of a question; the words of a shorter one cancel out
ANALOGIES = "questions-words.txt"  # the name of the file of analogies in the data folder
AT_ONCE = 256  # questions that are answered together
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


def neighbours(model: Loaded | WordTable, question: str | Iterable[str], top: int = 10) -> list[Neighbour]:
    """The words nearest to a word, or to words with + and - between them: "king - man + woman".

    The vectors of the words have length one before they are added. The words of the question are no answers. A word
    that is not in the vocabulary is looked up in lower case.
    """
    table = model if isinstance(model, WordTable) else word_table(model)
    asked = " ".join([question] if isinstance(question, str) else text_list(question, "question"))
    terms = parse_question(asked)
    places = [_known_place(table, word) for word, _ in terms]
    query = np.sum([sign * table.vectors[place] for place, (_, sign) in zip(places, terms)], 0)
    if float(np.linalg.norm(query)) < SHORTEST:
        raise UserError(f"{asked!r:.80}: its vector is zero, which no word is near to; ask for other words.")
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
    found: Floats = vectors.detach().float().cpu().clone().numpy()
    lengths = np.sqrt(np.einsum("nd,nd->n", found, found, dtype=np.float64))[:, None]  # 1e30² is finite there
    found /= np.where(lengths > 0, lengths, 1)
    return found


def parse_question(question: str) -> list[tuple[str, float]]:
    """The words of a question, each with +1 or −1."""
    pieces = question.split()
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
        word = f"{word:.80}"
        spellings = dict[str, list[str]]()  # a word in lower case → the words that are equal to it but for case
        for known in table.words:
            spellings.setdefault(known.lower(), []).append(known)
        close = get_close_matches(word.lower(), spellings, SPELLINGS, 0.6)  # an equal one first
        near = [known for one in close for known in spellings[one]][:SPELLINGS]
        cure = f"nearest spellings: {', '.join(near)}" if near else "no word is spelt like it"
        spaced = "".join(f" {sign} " if sign in SIGNS else sign for sign in word)
        if " " in spaced.strip() and all(one in SIGNS or table.place(one) is not None for one in spaced.split()):
            cure = f"put spaces around + and -: {spaced.strip()}"
        raise UserError(f"{word}: not one of the {len(table.words):,} words that have vectors; {cure}.")
    return place


@dataclass(frozen=True)
class WordSimilarity:
    """How well cosines of vectors agree with judgements of people."""

    name: str
    spearman: float | None  # rank correlation over the covered pairs; None: fewer than two different values
    covered: int  # pairs of which both words have vectors
    pairs: int

    @property
    def coverage(self) -> float:
        return self.covered / self.pairs


@dataclass(frozen=True)
class Analogies:
    """How many questions "a is to b as c is to ?" are answered by the word nearest to b − a + c."""

    section: str
    right: int
    covered: int  # questions of which all four words have vectors
    questions: int

    @property
    def accuracy(self) -> float | None:
        return self.right / self.covered if self.covered else None


def test_files(data: str | None, analogies: bool) -> list[Path]:
    """The files of tests: `data`, or those of the folder REGARD_DATA/wordsim."""
    if data is not None:
        return [Path(data)]
    option, folder = "--analogies" if analogies else "--wordsim", data_folder()
    if folder is None:
        raise UserError(f"{option}: give a file with --data FILE, or set REGARD_DATA to a folder with wordsim/.")
    names = [path for path in sorted((folder / "wordsim").glob("*")) if path.is_file()]
    found = [path for path in names if path.name.startswith(ANALOGIES) == analogies]
    if not found:
        raise UserError(f"{option}: {folder / 'wordsim'} has no such files; give a file with --data FILE.")
    return found


def word_similarity(table: WordTable, path: str | Path) -> WordSimilarity:
    """The rank correlation of cosines with the judgements of a file: lines of two words and a number, with tabs.

    The first line may have the names of the columns.
    """
    cosines, judged, pairs = list[float](), list[float](), 0
    for number, line in enumerate(iterate_lines(path), 1):
        fields = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or line.startswith("#"):
            continue
        try:
            first, second, judgement = fields[0].strip(), fields[1].strip(), float(fields[2])
            if not math.isfinite(judgement):
                raise ValueError
        except (IndexError, ValueError):
            if number == 1 and len(fields) > 2:  # the names of the columns
                continue
            cure = "give lines of two words and a number, with tabs between them"
            raise UserError(f"{path}, line {number}: no pair of words with a number; {cure}.") from None
        places = table.place(first), table.place(second)
        pairs += 1
        if places[0] is not None and places[1] is not None:
            cosines.append(float(table.vectors[places[0]] @ table.vectors[places[1]]))
            judged.append(judgement)
    if not pairs:
        raise UserError(f"{path}: has no pairs; give lines of two words and a number, with tabs between them.")
    correlation = spearman(np.array(cosines), np.array(judged)) if len(cosines) > 1 else None
    return WordSimilarity(_name(path), correlation, len(cosines), pairs)


def word_analogies(table: WordTable, path: str | Path, most: int) -> list[Analogies]:
    """The answers to the questions of a file, by section; only the first `most` words of the vocabulary take part.

    A line is four words, "a b c d", or ": section". The answer is the word x with the largest cos(x, b − a + c), but
    not a, b or c (Mikolov et al. 2013).
    """
    sections: dict[str, list[list[str]]] = {}
    section = _name(path)
    for number, line in enumerate(iterate_lines(path), 1):
        if line.startswith(":"):
            section = line[1:].strip()
        elif line.strip():
            if len(words := line.split()) != 4:
                raise UserError(f"{path}, line {number}: {len(words)} words; a question has four.")
            sections.setdefault(section, []).append(words)
    if not sections:
        raise UserError(f"{path}: has no questions; give lines of four words.")
    return [_answered(table, name, questions, most) for name, questions in sections.items()]


def _answered(table: WordTable, name: str, questions: Sequence[Sequence[str]], most: int) -> Analogies:
    """The answers to the questions of a section."""
    found = [[table.place(word) for word in question] for question in questions]
    known = np.array([row for row in found if all(place is not None and place < most for place in row)], np.int64)
    right, vectors = 0, table.vectors[:most]
    for at in range(0, len(known), AT_ONCE):
        a, b, c, d = known[at : at + AT_ONCE].T
        cosines = (vectors[b] - vectors[a] + vectors[c]) @ vectors.T  # the length of the sum changes no order
        for excluded in (a, b, c):
            cosines[np.arange(len(a)), excluded] = -np.inf
        right += int((cosines.argmax(1) == d).sum())
    return Analogies(name, right, len(known), len(questions))


def _name(path: str | Path) -> str:
    name = Path(path).name
    return Path(name.removesuffix(Path(name).suffix) if Path(name).suffix in PACKED else name).stem
