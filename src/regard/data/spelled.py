"""Texts as words with their characters, and, for a model with an extractor, as the tokens that the extractor reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from regard.data.characters import word_characters
from regard.data.fields import Field, InputText, unpack
from regard.data.flat import Values
from regard.data.tokenizers import WORDS, Tokenizer
from regard.data.word_pieces import PieceText
from regard.errors import UserError
from regard.file_io import RESTORE, read_json, write_text

CHARACTERS = 24  # ids of a word: its first 22 bytes, and the marks of its ends
SPELLED = (InputText, PieceText)  # the texts of a task that a model may also read as words with their characters
MOST_PIECES = 8  # tokens of an extractor that a word may have; the others are left out


@dataclass(frozen=True, eq=False)
class SpelledText(InputText):
    """A text as one row of numbers for each word, (T, 1 + CHARACTERS + pieces).

    The columns are the id of the word, the ids of its characters, and one more than the ids that an extractor reads;
    0 is no id. An extractor reads the tokens into which its tokenizer splits the word, or, as ELMo, the word's
    characters. Words are separated by spaces. The characters keep their case, also if the tokenizer has words in lower
    case.
    """

    extractor: Tokenizer | None = None  # the tokenizer of an extractor
    pieces: int = 0  # ids of a word that the extractor reads, at most
    known: float | None = None  # the fraction of the training words whose tokens the extractor all knows; not saved
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    @classmethod
    def fit(cls, values: Iterable[str], name: str, data: Any) -> Self:
        if data.tokens not in ("word", "word-lower"):
            raise UserError(f"data.tokens={data.tokens}: this model reads words; set data.tokens=word or word-lower.")
        return super().fit(values, name, data)

    def save(self, path: Path) -> None:
        parts = {"words": self.tokenizer, "extractor": self.extractor}
        content = {name: None if one is None else json.loads(one.serialize()) for name, one in parts.items()}
        write_text(path, json.dumps({**content, "pieces": self.pieces}, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        content = read_json(path)
        if not isinstance(content, dict) or not {"words", "extractor", "pieces"} <= content.keys():
            raise UserError(f"{path}: not the words of a run; {RESTORE}.")
        if type(content["pieces"]) is not int or content["pieces"] < 0:
            raise UserError(f"{path}: its number of pieces is {content['pieces']!r:.20}; {RESTORE}.")
        words, extractor = content["words"], content["extractor"]
        return cls(unpack(words, path), None if extractor is None else unpack(extractor, path), content["pieces"])

    def arrays(self, texts: Sequence[str], ids: Sequence[list[int]]) -> list[Values]:
        return self.encode(texts)

    def with_extractor(self, tokenizer: Tokenizer | None, characters: int, texts: Iterable[str]) -> Self:
        """The field of a model with an extractor, which reads so many characters of a word, or tokens if 0.

        A word has as many tokens as a word of these texts needs.
        """
        if tokenizer is None or characters:
            return replace(self, pieces=characters)
        words = {word for text in texts for word in text.split()}
        found, unknown = _pieces(tokenizer, words).values(), tokenizer.special_tokens.unk
        most, known = max(map(len, found), default=1), sum(bool(ids) and unknown not in ids for ids in found)
        return replace(
            self, extractor=tokenizer, pieces=max(1, min(most, MOST_PIECES)), known=known / max(len(words), 1)
        )

    def encode(self, values: Sequence[str]) -> list[Values]:  # type: ignore[override]
        texts = [value.split() for value in values]
        words = sorted(set(chain.from_iterable(texts)))
        ids = self.tokenizer.encode_batch(words)
        rows = np.zeros((len(words), 1 + CHARACTERS + self.pieces), self.dtype)
        rows[:, 0] = [_only(one, self.tokenizer) for one in ids]
        for row, word in zip(rows, words):
            row[1 : 1 + CHARACTERS] = word_characters(word, CHARACTERS)
            if self.extractor is None and self.pieces:
                row[1 + CHARACTERS :] = word_characters(word, self.pieces) + 1
        places = {word: place for place, word in enumerate(words)}
        found = [rows[[places[word] for word in text]] for text in texts]
        if self.extractor is not None:
            inner = _pieces(self.extractor, words)
            first = _pieces(self.extractor, {text[0] for text in texts if text}, inner=False)
            for text, row in zip(texts, found):
                for place, word in enumerate(text):
                    tokens = (inner if place else first)[word][: self.pieces]
                    row[place, 1 + CHARACTERS :][: len(tokens)] = np.array(tokens, self.dtype) + 1
        return found


def _pieces(tokenizer: Tokenizer, words: Iterable[str], inner: bool = True) -> dict[str, list[int]]:
    """The tokens of each word; `inner`: as a word that is not the first of its text.

    If the tokens are words, a word that is unknown has the token of its lower-case form.
    """
    words = list(words)
    encoded = tokenizer.encode_words(words, first=False) if inner else tokenizer.encode_batch(words)
    found = dict(zip(words, encoded))
    if tokenizer.kind in WORDS:
        unknown = [word for word in words if found[word] == [tokenizer.special_tokens.unk]]
        found |= zip(unknown, tokenizer.encode_batch([word.lower() for word in unknown]))
    return found


def _only(ids: list[int], tokenizer: Tokenizer) -> int:
    """The id of one word. The tokenizer may split it at a space that Python does not know, or find no word."""
    assert tokenizer.special_tokens.unk is not None
    return ids[0] if len(ids) == 1 else tokenizer.special_tokens.unk


def field_kinds(kinds: Mapping[str, type[Field]], reads_words: bool) -> dict[str, type[Field]]:
    """The fields of a task, for a model that reads words with their characters if `reads_words`."""
    return {name: SpelledText if reads_words and kind in SPELLED else kind for name, kind in kinds.items()}
