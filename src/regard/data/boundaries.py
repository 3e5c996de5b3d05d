"""Where words and sentences begin and end in a text, from the ids of its tokens: tables by id, computed once."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.flat import Values
from regard.data.tokenizers import Tokenizer

Flags = NDArray[np.bool_]
# The end of a sentence: a full stop or the like, quotes and brackets that close after it; or the end of a line.
SENTENCE_END = re.compile(r"""[.!?…。！？]["'”’»)\]]*\s*$|\n""")
UNDECODED = "\N{REPLACEMENT CHARACTER}"  # of a byte that is a part of a character


@dataclass(frozen=True, eq=False)
class WordBounds:
    """Which tokens belong to one word, by id. Punctuation marks are words of their own, as in BERT's vocabulary."""

    spaced: Flags  # there is a space before the token, if the token before it ends its word
    ends: Flags  # the token ends its word: a token of a new word after it has a space
    letter_first: Flags  # the text of the token begins with a letter or a digit
    letter_last: Flags  # it ends with one

    def begins(self, text: Values, starts: Values) -> Flags:
        """Which of the tokens begin a word; `starts`: where in `text` its rows begin."""
        before = np.roll(text, 1)
        apart = self.spaced[text] & self.ends[before]
        begins = apart | ~(self.letter_first[text] & self.letter_last[before])
        begins[starts] = True
        return begins


def word_bounds(tokenizer: Tokenizer) -> WordBounds:
    """The tables of a tokenizer. What a token adds to a text is looked up next to a whole word."""
    detokenize, size = tokenizer.in_direction("forward").detokenizer, tokenizer.size
    alone = [_text(detokenize([token])[0]).strip() for token in range(size)]
    letters = [token for token in range(size) if alone[token].isalnum() and token not in tokenizer.special_tokens.ids]
    whole = next((token for token in letters if detokenize([token, token])[1][:1] == b" "), None)
    if whole is None:  # characters and bytes: a space is a token of its own
        whole = letters[0] if letters else 0
    after = [_text(detokenize([whole, token])[1]) for token in range(size)]
    if (unk := tokenizer.special_tokens.unk) is not None:
        after[unk] = after[unk].replace(UNDECODED, " ")  # an unknown token is a word of its own
    next_word = [_text(detokenize([token, whole])[1]) for token in range(size)]
    return WordBounds(
        spaced=np.array([text[:1].isspace() for text in after]),
        ends=np.array([text[:1].isspace() for text in next_word]),
        letter_first=np.array([_is_letter(text.lstrip()[:1]) for text in after]),
        letter_last=np.array([_is_letter(text[-1:]) for text in after]),
    )


def sentence_ends(tokenizer: Tokenizer) -> Flags:
    """Which tokens, by id, end a sentence. An abbreviation such as "Dr." counts as an end, too."""
    detokenize = tokenizer.in_direction("forward").detokenizer
    return np.array([bool(SENTENCE_END.search(_text(detokenize([token])[0]))) for token in range(tokenizer.size)])


def _text(surface: bytes) -> str:
    return surface.decode("utf-8", errors="replace")


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == UNDECODED
