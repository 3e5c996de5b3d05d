"""The ids with a meaning of their own, and where they stand around a text.

Every tokenizer has its own: ours number them 0 to 3, BERT's frame is [CLS] … [SEP], a Marian decoder starts from the
padding and its sentences end with id 0. So what surrounds a text is data that travels with the tokenizer.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Marks:
    """The marks of a vocabulary; None where it has no such mark, and then none is put there."""

    pad: int
    begin: int | None  # what a decoder reads before its first token
    end: int | None  # what it says after its last
    unknown: int | None = None
    mask: int | None = None  # stands where a token was taken away
    # Around a text that is read whole: by a model that reads both ways, or as a source; before one to be gone on with.
    before: int | None = None
    after: int | None = None

    def framed(self, ids: list[int]) -> list[int]:
        """A text as it is read whole."""
        return [*_one(self.before), *ids, *_one(self.after)]

    def told(self, ids: list[int]) -> list[int]:
        """A text as it is said: a decoder reads all of this but the last, and says all of it but the first."""
        return [*_one(self.begin), *ids, *_one(self.end)]

    @property
    def known(self) -> tuple[int, ...]:
        """All that are no tokens of a text, but for the unknown one, which stands for some."""
        marks = {self.pad, self.begin, self.end, self.mask, self.before, self.after}
        return tuple(sorted(mark for mark in marks if mark is not None))

    @property
    def silent(self) -> tuple[int, ...]:
        """What spells no text, and a search must not say: all of them but the end."""
        marks = {self.pad, self.begin, self.mask, self.unknown} - {self.end, None}
        return tuple(sorted(mark for mark in marks if mark is not None))


def _one(mark: int | None) -> list[int]:
    return [] if mark is None else [mark]
