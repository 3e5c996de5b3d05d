"""Questions about passages: files in the format of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from regard.data.example import Asked, Corpus, Question, Tokens
from regard.data.files import read_text
from regard.data.sources import OwnFiles, load_files
from regard.data.tables import SQUAD, check_text, ending, read_table
from regard.errors import UserError

LISTED = 3  # places of an answer that an error lists
KINDS = {"an object": dict, "a list": list, "a text": str, "a number": int}  # of JSON values


@dataclass(frozen=True)
class Questions(OwnFiles):
    """Your own questions about passages: a .json file of SQuAD 1.1 or 2.0, or a table (.jsonl, .csv, .tsv).

    A table has a header and the columns of questions, passages and answers. A question with an empty answer is one
    that its passage does not answer.
    """

    tasks: ClassVar[tuple[str, ...]] = ("answer",)

    valid: str = ""  # the file of the validation questions; if empty, the questions of 2 % of the passages are held out
    question: str = ""  # the column of the questions, for a table; if empty, "question"
    passage: str = ""  # the column of the passages, for a table; if empty, "passage" or a usual name of it
    answer: str = ""  # the column of the answers, for a table; if empty, "answer"
    start: str = ""  # the column of the answers' first characters, from 0; if empty, an answer is where it occurs first
    window: int = 384  # the most tokens of question and passage together; a longer passage is read in several windows
    stride: int = 128  # number of tokens between the beginnings of two windows of a long passage
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    def __post_init__(self) -> None:
        check_windows(self.window, self.stride)

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of the texts that a model reads: the key of each, and its name."""
        return {"question": self.question, "passage": self.passage}

    def value(self, parts: Sequence[str]) -> Asked:
        """The value of the field of the text, given its parts."""
        question, passage = parts
        return Asked(question, passage)

    @property
    def columns(self) -> dict[str, str]:
        return {key: name or key for key, name in self.part_columns.items()}

    def load(self) -> Corpus:
        repeated: list[str] = []  # answers of tables that occur more than once in their passages

        def read(path: str) -> list[Any]:
            if is_squad(path):
                return list(read_squad(path))
            found = list(self._table(path))
            placed = ((one.passage, *answer) for one in found for answer in one.answers)
            repeated.extend(text for passage, text, start in placed if passage.find(text, start + 1) >= 0)
            return found

        corpus = load_files(self.train, self.valid, self.test, read, self.columns)
        if not repeated or self.start:
            return corpus
        found = f"{len(repeated)} answers, such as {repeated[0]!r:.40}, occur more than once in their passages"
        doubt = f"{found}, and the first place is taken; give the places: data.start=COLUMN"
        return replace(corpus, warnings=(*corpus.warnings, doubt))

    def _table(self, path: str) -> Iterator[Question]:
        """The questions of a table."""
        columns = {**self.part_columns, "answer": self.answer}
        for line, row in read_table(path, columns | ({"start": self.start} if self.start else {}), header=True):
            where, answer, passage = f"{path}, line {line}", row["answer"], row["passage"]
            if not answer.strip() or not passage.strip():
                yield Question(row["question"].strip(), passage.strip())
                continue
            if self.start:
                try:
                    start = int(row["start"])
                except ValueError:
                    found = f"the start {row['start']!r:.20} is not a whole number"
                    raise UserError(f"{where}: {found}; give the answer's first character, from 0.") from None
            else:
                answer = answer.strip()
                start = max(passage.find(answer), 0)
            check_place(where, passage, answer, start)
            yield Question(row["question"].strip(), passage, (_stripped(answer, start),))


def check_windows(window: int, stride: int) -> None:
    """Refuse windows without room, or with gaps between them."""
    if window < 8:
        raise UserError(f"data.window={window}: give 8 or more tokens.")
    if not 1 <= stride < window:
        raise UserError(f"data.stride={stride}: give 1 or more, and less than data.window={window}.")


def check_place(where: str, passage: str, answer: str, start: int) -> None:
    """Refuse an answer that is not at its place in the passage, and say where else it is."""
    if start >= 0 and passage.startswith(answer, start):
        return
    there = passage[start : start + len(answer)] if start >= 0 else ""
    places = [found.start() for found in re.finditer(f"(?={re.escape(answer)})", passage)]
    listed = ", ".join(map(str, places[:LISTED])) + (", …" if len(places) > LISTED else "")
    elsewhere = f"but it occurs at character {listed}" if places else "and it occurs nowhere in the passage"
    cure = "correct the place, counted in characters from 0" if places else "copy the answer from the passage"
    found = f"the answer {answer!r:.40} is not at character {start}, where {there!r:.40} is, {elsewhere}"
    raise UserError(f"{where}: {found}; {cure}.")


def _stripped(answer: str, start: int) -> tuple[str, int]:
    """An answer without the spaces around it, which may be in no token, and its first character."""
    return answer.strip(), start + len(answer) - len(answer.lstrip())


def is_squad(path: str | Path) -> bool:
    """Whether the ending of a file is that of SQuAD's format: .json, also compressed."""
    return ending(path) == SQUAD


def read_squad(path: str | Path) -> Iterator[Question]:
    """The questions of a file of SQuAD 1.1 or 2.0. Errors name the title, the paragraph and the question's id."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, character {error.colno}"
        raise UserError(f"{where}: invalid JSON ({error.msg}); fetch the file again, or correct it.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: invalid JSON ({error}); fetch the file again, or correct it.") from error
    articles = _part(str(path), content, "data", "a list")
    for number, article in enumerate(articles, 1):
        there = f"{path}, article {number}"
        paragraphs = _part(there, article, "paragraphs", "a list")
        title = article.get("title")
        there = f"{path}, title {title!r:.60}" if isinstance(title, str) else there
        for place, paragraph in enumerate(paragraphs, 1):
            within = f"{there}, paragraph {place}"
            passage = _part(within, paragraph, "context", "a text")
            for order, asked in enumerate(_part(within, paragraph, "qas", "a list"), 1):
                yield _question(f"{within}, question", order, asked, passage)


def _question(within: str, order: int, asked: Any, passage: str) -> Question:
    """One question of a paragraph; `within` names the paragraph, and `order` is the question's number in it."""
    name = asked.get("id") if isinstance(asked, dict) else None
    where = f"{within} id {name!r:.40}" if isinstance(name, str | int) else f"{within} {order}"
    question = _part(where, asked, "question", "a text")
    answers = []
    for answer in _part(where, asked, "answers", "a list") if "answers" in asked else ():
        text, start = _part(where, answer, "text", "a text"), _part(where, answer, "answer_start", "a number")
        if not text.strip():  # no answer, as in a table; some files have it at character -1
            continue
        if passage.strip():
            check_place(where, passage, text, start)
        answers.append(_stripped(text, start))
    impossible = asked.get("is_impossible")
    if not isinstance(impossible, bool | None):
        raise UserError(f"{where}: is_impossible={impossible!r:.20} is neither true nor false; correct it.")
    if impossible is True and answers:
        raise UserError(f"{where}: it has answers and is_impossible is true; remove one of them.")
    if not answers and impossible is False:
        raise UserError(f"{where}: it has no answers and is_impossible is false; add an answer, or set it to true.")
    return Question(question.strip(), passage if passage.strip() else "", tuple(answers), str(name or ""))


def _part(where: str, holder: Any, name: str, kind: str) -> Any:
    """A part of a JSON object, which must be there and be of this kind."""
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, KINDS[kind]) or isinstance(value, bool):
        if isinstance(holder, dict) and name in holder:
            wrong = f'"{name}" is not {kind}'
        else:
            wrong = f'has no "{name}"' if isinstance(holder, dict) else f'is not an object with "{name}"'
        layout = "data → paragraphs → context and qas → id, question and answers → text and answer_start"
        raise UserError(f"{where}: {wrong}; a file of SQuAD has the layout: {layout}.")
    if isinstance(value, str):
        check_text(where, name, value)
    return value
