"""Pairs of sentences in which the last words decide which of two nouns the pronoun "it" means.

They follow the Winograd schemas (Levesque et al. 2012). The part up to "it" is the same in both, so it does not reveal
the answer; and always choosing the first noun, or always the nearer one, is correct in one version of each pair.
"""

from dataclasses import dataclass
from importlib.resources import files

PRONOUN = "it"


@dataclass(frozen=True)
class Version:
    """A sentence with one of its two endings."""

    words: tuple[str, ...]
    nouns: tuple[int, int]  # indices of both nouns in ``words``
    correct: int  # the noun that "it" means: 0 or 1

    @property
    def text(self) -> str:
        return " ".join(self.words) + "."

    @property
    def pronoun(self) -> int:
        """The index of "it"."""
        return self.words.index(PRONOUN)

    @property
    def last(self) -> int:
        """The index of the last word: the first position at which a causal model has seen the whole sentence."""
        return len(self.words) - 1


Pair = tuple[Version, Version]


def pairs() -> list[Pair]:
    """All pairs. "It" means the first noun in the first version, and the second noun in the second version.

    In each line of the file, the two nouns are in asterisks, and a bar precedes each of the two endings.
    """
    lines = files("regard.explain").joinpath("pronouns.txt").read_text(encoding="utf-8").splitlines()
    return [_parse_pair(line) for line in lines]


def _parse_pair(line: str) -> Pair:
    beginning, *endings = line.split(" | ")
    marked = beginning.split()
    first, second = (at for at, word in enumerate(marked) if word.startswith("*"))
    words = [word.strip("*") for word in marked]
    versions = [Version((*words, *end.split()), (first, second), correct) for correct, end in enumerate(endings)]
    return versions[0], versions[1]
