"""Dates as people write them in many languages, and the day they mean: a made corpus whose alignment is known.

Every string is written with the locale data of Babel (the CLDR's short, medium, long and full formats), field by field,
so that we know which characters stand for the year, the month and the day: the gold that an attention can be held to.

Two rules make the meaning of a string a function of the string:

- The years span at most a century, so that two digits name one year.
- A form that can be misread carries its language as a tag (`en: 3/4/21`). The *shape* of a date is what is left when
  every number is written 0 and case, spaces and closing punctuation are ignored (beside a word, a number of four digits
  is plainly a year and is written 00); its *reading* says which field each number is, and which month a name means.
  A form is ambiguous when one of its shapes has two readings among all the forms of the corpus. With the default
  languages these are exactly the forms without letters.

A tag settles the matter because no locale of Babel (2.18, all 1,082) gives one of its own shapes two readings.
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
LOWER = 0.25  # the share of dates written without capitals, as people in a hurry do

# The letters of CLDR patterns that we tell apart. A field that is not here (the era, G) is text like any other.
YEAR, MONTH, DAY, WEEKDAY, TEXT = "y", "M", "d", "E", ""
FIELDS = {"y": YEAR, "M": MONTH, "L": MONTH, "d": DAY, "E": WEEKDAY, "c": WEEKDAY}

# Where each field stands in YYYY-MM-DD; the hyphens come from nowhere.
TARGET = {YEAR: range(0, 4), MONTH: range(5, 7), DAY: range(8, 10)}


@dataclass(frozen=True)
class Dates:
    """Which dates to write, and how many."""

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    languages: tuple[str, ...] = LANGUAGES  # Babel's names of locales
    first_year: int = 1950  # the years are at most a hundred, so that '50 to '49 are one year each
    last_year: int = 2049
    train: int = 40_000  # examples; all strings differ, and no day of one part occurs in another
    valid: int = 2_000
    test: int = 2_000
    seed: int = 7  # decides which days go to which part, and how each is written
    source_tokens: Tokens = "char"  # what a source is cut into
    target_tokens: Tokens = "char"  # the same for targets

    def load(self) -> Corpus:
        """Write the three parts: the same ones for the same settings and the same Babel."""
        self._check()
        forms = tag_ambiguous(all_forms(self.languages, range(self.first_year, self.last_year + 1)))
        rng = random.Random(self.seed)
        first, last = date(self.first_year, 1, 1), date(self.last_year, 12, 31)
        days = [first + timedelta(n) for n in range((last - first).days + 1)]
        rng.shuffle(days)
        held = len(days) // 20  # days held out for each of test and valid
        return Corpus(
            test=_draw("test", self.test, days[:held], forms, rng),
            valid=_draw("valid", self.valid, days[held : 2 * held], forms, rng),
            train=_draw("train", self.train, days[2 * held :], forms, rng),
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
class Form:
    """One way in which one language writes dates: an ordered list of fields, each with the text of its every value."""

    language: str
    style: Style
    parts: tuple[tuple[str, dict[int, str]], ...]  # (field, text of each value); plain text has the one value 0
    tag: str = ""

    def write(self, day: date) -> list[tuple[str, str]]:
        """The date as (field, text) pairs; joined, they are what Babel writes (tidied)."""
        values = {YEAR: day.year, MONTH: day.month, DAY: day.day, WEEKDAY: day.weekday(), TEXT: 0}
        return [(field, texts[values[field]]) for field, texts in self.parts]

    def lower(self) -> Form:
        """The same form without capitals."""
        return replace(
            self, parts=tuple((field, {n: text.lower() for n, text in texts.items()}) for field, texts in self.parts)
        )

    def example(self, day: date) -> Pair:
        """The date, tag included, the ISO date it means, and the links between their characters."""
        source, spans = self.tag, {}
        for field, text in self.write(day):
            spans[field] = (len(source), len(source) + len(text))
            source += text
        return Pair(source, day.isoformat(), links=_links(spans[YEAR], spans[MONTH], spans[DAY]), unit="char")


@cache
def _links(year: tuple[int, int], month: tuple[int, int], day: tuple[int, int]) -> frozenset[tuple[int, int]]:
    """Every character of a field with every digit it gives rise to; examples of the same layout share one set."""
    spans = ((YEAR, year), (MONTH, month), (DAY, day))
    return frozenset(pair for field, span in spans for pair in product(range(*span), TARGET[field]))


def all_forms(languages: tuple[str, ...], years: range) -> list[Form]:
    """The four formats of every language, from Babel's patterns."""
    try:
        from babel import localedata
        from babel.dates import DateTimeFormat, get_date_format, tokenize_pattern
    except ImportError as error:
        raise UserError('the dates corpus needs Babel, which is not installed: pip install "regard[demo]"') from error

    # One day for each value of each field: enough to ask Babel for every text that the field can have.
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

    forms = []
    for language in languages:
        if not localedata.exists(language):
            raise UserError(
                f"data.languages={language}: Babel has no such locale; give codes such as {', '.join(LANGUAGES[:6])}."
            )
        for style in STYLES:
            tokens = tokenize_pattern(get_date_format(style, locale=language).pattern)
            forms.append(Form(language, style, tuple(part(language, token) for _, token in tokens)))
    return forms


def _tidy(text: str) -> str:
    """Composed characters, plain spaces for the narrow and unbreakable ones, and nothing invisible."""
    text = unicodedata.normalize("NFC", text)
    return "".join(" " if c.isspace() else c for c in text if unicodedata.category(c) != "Cf")


def tag_ambiguous(forms: list[Form]) -> list[Form]:
    """Tag each form that can be mistaken for another one; see the top of this file."""
    found = [_readings(form) for form in forms]
    readings: dict[str, set[str]] = defaultdict(set)  # of each shape
    for shape, reading in chain(*found):
        readings[shape].add(reading)
    ambiguous = [any(len(readings[shape]) > 1 for shape, _ in pairs) for pairs in found]
    return [replace(form, tag=f"{form.language}: ") if doubt else form for form, doubt in zip(forms, ambiguous)]


def _readings(form: Form) -> set[tuple[str, str]]:
    """Every (shape, reading) of a form."""
    year = next(min(texts) for field, texts in form.parts if field == YEAR)
    found = set()
    for month, n in product(range(1, 13), range(1, 8)):  # the first week of a month has all the days of the week
        parts = form.write(date(year, month, n))
        text = "\0".join(text for _, text in parts)  # fields that touch stay two numbers
        number = r"\d\d?" if any(c.isalpha() for c in text) else r"\d+"
        shape = re.sub(r"[\s\0]|\W+$", "", re.sub(number, "0", text.casefold()))
        reading = "".join(field for field, text in parts for _ in re.findall(r"\d+", text))
        found.add((shape, reading if MONTH in reading else f"{reading} {month}"))
    return found


def _draw(part: str, count: int, days: list[date], forms: list[Form], rng: random.Random) -> list[Pair]:
    """So many different strings, each a random day in a random form."""
    small = [form.lower() for form in forms]
    drawn: dict[str, Pair] = {}  # by string; parts cannot share one, because a string means one day
    for _ in range(100 * count):
        if len(drawn) == count:
            break
        example = rng.choice(small if rng.random() < LOWER else forms).example(rng.choice(days))
        drawn.setdefault(example.source, example)
    if len(drawn) < count:
        raise UserError(
            f"data.{part}={count}: only {len(drawn)} different dates were found; "
            f"ask for fewer, or widen data.languages or the years"
        )
    return list(drawn.values())
