"""Made-up texts, in the formats of users and of public sets: drawn by a seed, with no file and no text of others."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence

from matlab import mat_file

ENGLISH = ("the", "a", "small", "old", "red", "dog", "man", "house", "bird", "sees", "likes", "finds")
GERMAN = ("der", "ein", "kleine", "alte", "rote", "Hund", "Mann", "Haus", "Vogel", "sieht", "mag", "findet")
GREEK = ("ὁ", "τις", "μικρὸς", "παλαιὸς", "ἐρυθρὸς", "κύων", "ἀνὴρ", "οἶκος", "ὄρνις", "ὁρᾷ", "φιλεῖ", "εὑρίσκει")
GRID = tuple((row, column) for row in range(4) for column in range(4))
LETTERS, SOUNDS = "abdeiklmnorst", ("AE1", "B", "D", "EH1", "IY0", "K", "L", "M", "N", "OW1", "R", "S", "T")


def in_language(language: Sequence[str], lines: Sequence[str]) -> tuple[str, ...]:
    """English sentences, word for word in another language."""
    words = dict(zip(ENGLISH, language))
    return tuple(" ".join(words.get(word, word) for word in line.split()) for line in lines)


def questions(count: int) -> str:
    """Questions about who sees what; each fourth has no answer."""
    words = ("dog", "man", "bird", "house", "boy")
    rows = []
    for number in range(count):
        one, other = words[number % 5], words[(number // 5 + 1) % 5]
        seen = f"a {other}" if number % 4 else ""
        rows.append({"question": f"what does the {one} see?", "passage": f"the {one} sees a {other}.", "answer": seen})
    return "".join(json.dumps(row) + "\n" for row in rows)


class Chance:
    """Choices that a seed repeats for good: `random()` is what Python promises not to change."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def below(self, count: int) -> int:
        return int(self._rng.random() * count)

    def of(self, choices: Sequence[str]) -> str:
        return choices[self.below(len(choices))]


def sentence(chance: Chance) -> str:
    """Someone does something to something, in English."""

    def thing() -> list[str]:
        middle = [chance.of(ENGLISH[2:5])] if chance.below(2) else []
        return [chance.of(ENGLISH[:2]), *middle, chance.of(ENGLISH[5:9])]

    return " ".join([*thing(), chance.of(ENGLISH[9:]), *thing(), "."])


def sentences(seed: int, count: int) -> list[str]:
    chance = Chance(seed)
    return [sentence(chance) for _ in range(count)]


def tabbed(columns: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in zip(*columns))


def opinions(seed: int, count: int) -> str:
    chance, rows = Chance(seed), []
    for _ in range(count):
        label = chance.of(("good", "bad", "neither"))
        words = {"good": ("good", "fine"), "bad": ("bad", "sad"), "neither": ("red", "old")}[label]
        rows.append((label, f"{chance.of(ENGLISH[:2])} {chance.of(ENGLISH[5:9])} is {chance.of(words)}"))
    return tabbed(list(zip(*rows)))


def compared(seed: int, count: int, labels: Sequence[str], choices: int = 1) -> str:
    """A label, a sentence, and one or more others."""
    chance, lines = Chance(seed), iter(sentences(seed, (1 + choices) * count))
    return tabbed(
        [
            [chance.of(labels) for _ in range(count)],
            *([next(lines) for _ in range(count)] for _ in range(1 + choices)),
        ]
    )


def tagged_columns(seed: int, count: int) -> str:
    """Sentences in which the things are entities, with their articles: animals, and others."""
    rows = []
    for line in sentences(seed, count):
        words, inside = line.split(), False
        for place, word in enumerate(words):
            things = [other for other in words[place:] if other in ENGLISH[5:9]]
            kind = "LIFE" if things and things[0] in ("dog", "man", "bird") else "THING"
            inside = inside or word in ENGLISH[:2]
            letter = "B" if word in ENGLISH[:2] else "I"
            rows.append(f"{word} {f'{letter}-{kind}' if inside else 'O'}")
            inside = inside and word not in ENGLISH[5:9]
        rows.append("")
    return "\n".join(rows)


def dictionary(seed: int, count: int) -> str:
    """Words and how they are spoken: a sound for every letter."""
    chance = Chance(seed)
    words = ["".join(chance.of(LETTERS) for _ in range(2 + chance.below(4))) for _ in range(count)]
    return "".join(f"{word} {' '.join(SOUNDS[LETTERS.index(c)] for c in word)}\n" for word in dict.fromkeys(words))


def verses(seed: int, count: int) -> str:
    english = sentences(seed, count)
    links = [" ".join(f"{at}-{at}" for at in range(len(line.split()))) for line in english]
    return tabbed([[f"{number:08d}" for number in range(count)], in_language(GREEK, english), english, links])


def digits(seed: int, count: int) -> tuple[bytes, bytes]:
    """Images of 4 × 4 pixels whose brightest row and column are their digit, and the digits, as idx files."""
    chance, images, labels = Chance(seed), [], []
    for _ in range(count):
        labels.append(chance.below(4))
        images += [200 + chance.below(50) if labels[-1] in (row, column) else chance.below(50) for row, column in GRID]
    shape = bytes((0, 0, 8, 3)) + struct.pack(">3I", count, 4, 4)
    return shape + bytes(images), bytes((0, 0, 8, 1)) + struct.pack(">I", count) + bytes(labels)


def music(seed: int, counts: Sequence[int]) -> bytes:
    """Pieces in which a chord of two keys rises and falls."""
    chance, parts = Chance(seed), {}
    for name, count in zip(("traindata", "validdata", "testdata"), counts):
        parts[name] = []
        for _ in range(count):
            key, steps = 20 + chance.below(40), []
            for _ in range(4 + chance.below(6)):
                key += chance.below(3) - 1
                steps.append([float(at in (key, key + 4)) for at in range(88)])
            parts[name].append(steps)
    return mat_file(parts)
