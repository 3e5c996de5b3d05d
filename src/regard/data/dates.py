"""Dates as people write them in many languages, and their ISO format: a generated corpus whose alignment is known.

Every string is made from the locale data of Babel (the CLDR's short, medium, long and full formats), field by field. So
we know which characters are the year, the month and the day: the gold alignment for the attention weights.

Two rules make every string unambiguous:

- The years span at most a century, so that two digits name one year.
- A format that is ambiguous gets its language as a tag (`en: 3/4/21`). The *shape* of a date is the string with every
  number replaced by 0, without case, spaces and closing punctuation (beside a word, a number of four digits can only
  be a year and is replaced by 00). Its *reading* is the field of each number, and the month of a name. A format is
  ambiguous if one of its shapes has two readings among all formats of the corpus. With the default languages these are
  exactly the formats without letters.

The tag is enough, because no locale of Babel (2.18, all 1,082) gives one of its own shapes two readings.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from itertools import chain, product
from typing import ClassVar, Literal

from regard.data.example import Corpus, Pair, Tokens
from regard.errors import UserError

Style = Literal["short", "medium", "long", "full"]  # the four formats that the CLDR has for a date
STYLES: tuple[Style, ...] = ("short", "medium", "long", "full")
LANGUAGES = (
    *("en", "fr", "de", "es", "it", "pt", "nl", "sv", "da", "nb", "fi", "pl"),
    *("cs", "hu", "ro", "tr", "el", "ru", "uk", "vi", "id", "ja", "zh", "ko"),
)
LOWERCASE_SHARE = 0.25  # the share of dates that are written in lower case

# The letters of CLDR patterns that are fields here. A letter that is not listed (the era, G) is plain text.
YEAR, MONTH, DAY, WEEKDAY, TEXT = "y", "M", "d", "E", ""
FIELDS = {"y": YEAR, "M": MONTH, "L": MONTH, "d": DAY, "E": WEEKDAY, "c": WEEKDAY}

# The characters of each field in YYYY-MM-DD; the hyphens are aligned to nothing.
TARGET = {YEAR: range(0, 4), MONTH: range(5, 7), DAY: range(8, 10)}


@dataclass(frozen=True)
class Dates:
    """The corpus of dates: its languages, years and sizes."""

    tasks: ClassVar[tuple[str, ...]] = ("translate", "aligned")

    languages: tuple[str, ...] = LANGUAGES  # Babel's names of locales
    first_year: int = 1950  # the first year of the dates
    last_year: int = 2049  # the last year; at most 100 years in all, so that two digits name one year
    train: int = 40_000  # number of training examples; all strings differ, and no day of one part occurs in another
    valid: int = 2_000  # number of validation examples
    test: int = 2_000  # number of test examples
    seed: int = 7  # decides which days go to which part, and how each is written
    source_tokens: Tokens = "char"  # the kind of tokens of the sources
    target_tokens: Tokens = "char"  # the kind of tokens of the targets

    def load(self) -> Corpus:
        """Generate the three parts: the same settings and the same version of Babel give the same parts."""
        self._check()
        formats = tag_ambiguous(date_formats(self.languages, range(self.first_year, self.last_year + 1)))
        rng = random.Random(self.seed)
        first, last = date(self.first_year, 1, 1), date(self.last_year, 12, 31)
        days = [first + timedelta(n) for n in range((last - first).days + 1)]
        rng.shuffle(days)
        held = len(days) // 20  # days held out for each of test and valid
        return Corpus(
            test=_draw("test", self.test, days[:held], formats, rng),
            valid=_draw("valid", self.valid, days[held : 2 * held], formats, rng),
            train=_draw("train", self.train, days[2 * held :], formats, rng),
        )

    def _check(self) -> None:
        if not self.languages:
            raise UserError("data.languages is empty; name at least one, such as en")
        if not 1000 <= self.first_year <= self.last_year <= 9999:
            raise UserError(
                f"data.first_year={self.first_year}, data.last_year={self.last_year}: "
                "both need four digits, and the first may not come after the last"
            )
        if self.last_year - self.first_year >= 100:
            raise UserError(
                f"data.last_year={self.last_year} is {self.last_year - self.first_year} years after data.first_year: "
                f"two digits no longer name one year; use at most {self.first_year + 99}"
            )
        for part in ("train", "valid", "test"):
            if getattr(self, part) < 0:
                raise UserError(f"data.{part}={getattr(self, part)}: the number of examples cannot be negative")


@dataclass(frozen=True)
class DateFormat:
    """A date format of one language: an ordered list of fields, each with the text of every value."""

    language: str
    style: Style
    parts: tuple[tuple[str, dict[int, str]], ...]  # (field, text of each value); plain text has the one value 0
    tag: str = ""

    def fields_of(self, day: date) -> list[tuple[str, str]]:
        """The date as (field, text) pairs; joined, they are the string that Babel writes (after `_tidy`)."""
        values = {YEAR: day.year, MONTH: day.month, DAY: day.day, WEEKDAY: day.weekday(), TEXT: 0}
        return [(field, texts[values[field]]) for field, texts in self.parts]

    def lowercased(self) -> DateFormat:
        """The same format in lower case."""
        return replace(
            self, parts=tuple((field, {n: text.lower() for n, text in texts.items()}) for field, texts in self.parts)
        )

    def example(self, day: date) -> Pair:
        """The date with its tag, its ISO format, and the links between their characters."""
        source, spans = self.tag, {}
        for field, text in self.fields_of(day):
            spans[field] = (len(source), len(source) + len(text))
            source += text
        return Pair(source, day.isoformat(), links=_links(spans[YEAR], spans[MONTH], spans[DAY]), unit="char")


@cache
def _links(year: tuple[int, int], month: tuple[int, int], day: tuple[int, int]) -> frozenset[tuple[int, int]]:
    """Links from every character of a field to every digit of it; examples of the same layout share one set."""
    spans = ((YEAR, year), (MONTH, month), (DAY, day))
    return frozenset(pair for field, span in spans for pair in product(range(*span), TARGET[field]))


def date_formats(languages: tuple[str, ...], years: range) -> list[DateFormat]:
    """The four formats of every language, from Babel's patterns."""
    try:
        from babel import localedata
        from babel.dates import DateTimeFormat, get_date_format, tokenize_pattern
    except ImportError as error:
        raise UserError('the dates corpus needs Babel, which is not installed: pip install "regard[demo]"') from error

    # One day for each value of each field: from these Babel makes every text that the field can have.
    samples = {
        YEAR: {year: date(year, 1, 1) for year in years},
        MONTH: {month: date(2000, month, 1) for month in range(1, 13)},
        DAY: {day: date(2000, 1, day) for day in range(1, 32)},
        WEEKDAY: {n: date(2001, 1, 1 + n) for n in range(7)},  # a Monday and the days after it
        TEXT: {0: date(years[0], 1, 1)},
    }

    def part(language: str, token: str | tuple[str, int]) -> tuple[str, dict[int, str]]:
        if isinstance(token, str):
            return TEXT, {0: _tidy(token)}
        letter, width = token
        field = FIELDS.get(letter, TEXT)
        days = samples[field].items()
        return field, {value: _tidy(DateTimeFormat(day, language)[letter * width]) for value, day in days}

    formats = []
    for language in languages:
        if not localedata.exists(language):
            raise UserError(
                f"data.languages={language}: Babel has no such locale; give codes such as {', '.join(LANGUAGES[:6])}."
            )
        for style in STYLES:
            tokens = tokenize_pattern(get_date_format(style, locale=language).pattern)
            formats.append(DateFormat(language, style, tuple(part(language, token) for _, token in tokens)))
    return formats


def _tidy(text: str) -> str:
    """The text in NFC, with plain spaces and without invisible characters."""
    text = unicodedata.normalize("NFC", text)
    return "".join(" " if c.isspace() else c for c in text if unicodedata.category(c) != "Cf")


def tag_ambiguous(formats: list[DateFormat]) -> list[DateFormat]:
    """Add the tag to each ambiguous format; see the top of this file."""
    found = [_readings(date_format) for date_format in formats]
    readings: dict[str, set[str]] = defaultdict(set)  # of each shape
    for shape, reading in chain(*found):
        readings[shape].add(reading)
    ambiguous = [any(len(readings[shape]) > 1 for shape, _ in pairs) for pairs in found]
    return [
        replace(date_format, tag=f"{date_format.language}: ") if is_ambiguous else date_format
        for date_format, is_ambiguous in zip(formats, ambiguous)
    ]


def _readings(date_format: DateFormat) -> set[tuple[str, str]]:
    """All (shape, reading) pairs of a format."""
    year = next(min(texts) for field, texts in date_format.parts if field == YEAR)
    found = set()
    for month, n in product(range(1, 13), range(1, 8)):  # the first week of a month has all the days of the week
        parts = date_format.fields_of(date(year, month, n))
        text = "\0".join(text for _, text in parts)  # so that adjacent fields stay two numbers
        number = r"\d\d?" if any(c.isalpha() for c in text) else r"\d+"
        shape = re.sub(r"[\s\0]|\W+$", "", re.sub(number, "0", text.casefold()))
        reading = "".join(field for field, text in parts for _ in re.findall(r"\d+", text))
        found.add((shape, reading if MONTH in reading else f"{reading} {month}"))
    return found


def _draw(part: str, count: int, days: list[date], formats: list[DateFormat], rng: random.Random) -> list[Pair]:
    """`count` different strings, each a random day in a random format."""
    lowercase = [date_format.lowercased() for date_format in formats]
    drawn: dict[str, Pair] = {}  # by string; two parts never share a string, because a string means one day
    for _ in range(100 * count):
        if len(drawn) == count:
            break
        example = rng.choice(lowercase if rng.random() < LOWERCASE_SHARE else formats).example(rng.choice(days))
        drawn.setdefault(example.source, example)
    if len(drawn) < count:
        raise UserError(
            f"data.{part}={count}: only {len(drawn)} different dates were found; "
            f"give fewer, or widen data.languages or the years"
        )
    return list(drawn.values())
