"""Words as the ids of their characters, for models that read the spelling of a word (Peters et al. 2018).

The characters of a word are the bytes of its UTF-8 form. The ids follow the public ELMo models, so that their weights
can be used: a byte b has the id b + 1, and 0 is the padding of a sentence. A word begins with BEGIN_WORD and ends with
END_WORD; PAD_WORD fills the rest. A sentence begins and ends with a word of its own, as the models were trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD_WORD = range(257, 262)
COUNT = 262  # ids of characters: 256 bytes, the five above, and 0
LONGEST = 50  # ids of a word in the public models, the marks of its ends included
BEGIN, END = "<S>", "</S>"  # the words at the ends of a sentence, as the public vocabularies write them
SENTENCE_ENDS = {BEGIN: BEGIN_SENTENCE, END: END_SENTENCE}

Ids = NDArray[np.int64]


def word_characters(word: str, longest: int = LONGEST) -> Ids:
    """The ids (longest,) of the characters of a word; bytes that do not fit are left out."""
    inside = [byte + 1 for byte in word.encode("utf-8", "ignore")[: longest - 2]]
    inside = [SENTENCE_ENDS[word]] if word in SENTENCE_ENDS else inside
    row = np.full(longest, PAD_WORD, np.int64)
    row[: len(inside) + 2] = [BEGIN_WORD, *inside, END_WORD]
    return row


def words_characters(words: Iterable[str], longest: int = LONGEST) -> Ids:
    """The ids (T, longest) of the characters of T words."""
    return np.array([word_characters(word, longest) for word in words], np.int64).reshape(-1, longest)


def sentence_characters(words: Sequence[str], longest: int = LONGEST) -> Ids:
    """The ids (T + 2, longest) of the characters of a sentence of T words, between its two ends."""
    return words_characters([BEGIN, *words, END], longest)
