"""Tests of static word vectors: similarity judgements of people, and analogies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.files import PACKED, data_folder, iterate_lines
from regard.errors import UserError
from regard.metrics import spearman
from regard.verbs.neighbours import WordTable

ANALOGIES = "questions-words.txt"  # the name of the file of analogies in the data folder
AT_ONCE = 256  # questions that are answered together


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
