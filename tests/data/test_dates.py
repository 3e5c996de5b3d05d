"""Dates: strings as Babel writes them, disjoint parts, one day for each string, and links between the fields."""

import builtins
import unicodedata
from datetime import date, timedelta

import pytest

pytest.importorskip("babel", reason="the dates corpus is made with Babel (the demo extra)")

from babel.dates import format_date
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.dates import LANGUAGES, STYLES, DateFormat, Dates, date_formats, tag_ambiguous
from regard.data.example import Corpus, Pair
from regard.errors import UserError

YEARS = range(1950, 2050)
FORMATS = tag_ambiguous(date_formats(LANGUAGES, YEARS))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Dates().load()


def find_format(language: str, style: str, formats: list[DateFormat] = FORMATS) -> DateFormat:
    return next(fmt for fmt in formats if (fmt.language, fmt.style) == (language, style))


def linked(example: Pair, targets: range) -> str:
    """The source characters linked to these target characters; each of them must have the same ones."""
    assert example.links is not None
    sources = [{i for i, j in example.links if j == target} for target in targets]
    assert all(each == sources[0] for each in sources)
    return "".join(example.source[i] for i in sorted(sources[0]))


def fields(example: Pair) -> tuple[str, str, str]:
    return linked(example, range(0, 4)), linked(example, range(5, 7)), linked(example, range(8, 10))


def test_every_language_has_all_four_formats() -> None:
    assert len(LANGUAGES) == len(set(LANGUAGES)) == 24
    assert {(fmt.language, fmt.style) for fmt in FORMATS} == {(name, style) for name in LANGUAGES for style in STYLES}


@settings(max_examples=200)
@given(st.sampled_from(FORMATS), st.dates(date(1950, 1, 1), date(2049, 12, 31)))
def test_a_date_is_written_as_babel_writes_it(fmt: DateFormat, day: date) -> None:
    expected = unicodedata.normalize("NFC", format_date(day, fmt.style, locale=fmt.language))
    assert fmt.example(day).source == fmt.tag + expected.replace("\u202f", " ").replace("\xa0", " ")


@settings(max_examples=200)
@given(st.sampled_from(FORMATS), st.dates(date(1950, 1, 1), date(2049, 12, 31)), st.booleans())
def test_links_cover_the_fields_and_nothing_else(fmt: DateFormat, day: date, lower: bool) -> None:
    example = (fmt.lowercased() if lower else fmt).example(day)
    assert example.target == day.isoformat()
    assert example.links is not None
    assert {j for _, j in example.links} == {0, 1, 2, 3, 5, 6, 8, 9}, "every digit has a link, no hyphen has one"
    year, month, number = fields(example)
    assert year in (f"{day.year}", f"{day.year % 100:02}")
    assert int(number) == day.day
    if month.isdigit():
        assert int(month) == day.month
    assert all(i >= len(fmt.tag) for i, _ in example.links), "a tag is not a field"


@pytest.mark.parametrize(
    ("language", "style", "source", "expected"),
    [
        ("de", "short", "de: 03.02.21", ("21", "02", "03")),
        ("de", "medium", "de: 03.02.2021", ("2021", "02", "03")),
        ("en", "short", "en: 2/3/21", ("21", "2", "3")),
        ("fr", "full", "mercredi 3 février 2021", ("2021", "février", "3")),
        ("ja", "long", "2021年2月3日", ("2021", "2", "3")),
        ("vi", "long", "3 tháng 2, 2021", ("2021", "tháng 2", "3")),
    ],
)
def test_known_dates(language: str, style: str, source: str, expected: tuple[str, str, str]) -> None:
    example = find_format(language, style).example(date(2021, 2, 3))
    assert example.source == source
    assert fields(example) == expected


def test_exactly_the_formats_without_letters_are_tagged() -> None:
    for fmt in FORMATS:
        has_letters = any(c.isalpha() for _, text in fmt.fields_of(date(2021, 2, 3)) for c in text)
        assert fmt.tag == ("" if has_letters else f"{fmt.language}: "), (
            fmt.language,
            fmt.style,
        )


def test_tags_follow_from_the_languages_chosen() -> None:
    alone = tag_ambiguous(date_formats(("en",), YEARS))
    assert all(fmt.tag == "" for fmt in alone), "2/3/21 is not ambiguous in one language"
    both = tag_ambiguous(date_formats(("en", "es"), YEARS))
    assert [find_format("en", "short", both).tag, find_format("es", "short", both).tag] == ["en: ", "es: "]


def test_a_month_name_with_two_meanings_is_tagged() -> None:
    """`lut` is February in Polish and September in Luba-Katanga; their full names differ."""
    formats = tag_ambiguous(date_formats(("pl", "lu"), YEARS))
    assert find_format("pl", "medium", formats).example(date(2021, 2, 3)).source == "pl: 3 lut 2021"
    assert find_format("lu", "medium", formats).tag == "lu: "
    assert find_format("pl", "full", formats).tag == ""


def test_a_string_means_one_day() -> None:
    """Over every format, with and without capitals, of days in all years, months, weekdays and days of the month."""
    meaning: dict[str, str] = {}
    formats = FORMATS + [fmt.lowercased() for fmt in FORMATS]
    for n in range(0, 36525, 73):
        for fmt in formats:
            example = fmt.example(date(1950, 1, 1) + timedelta(n))
            assert meaning.setdefault(example.source, example.target) == example.target, example.source
    assert len(meaning) > 40_000


def test_every_day_of_a_year_has_its_own_strings() -> None:
    """Over every format and every day of one leap year: a confusion of day and month would show."""
    meaning: dict[str, str] = {}
    for n in range(366):
        for fmt in FORMATS:
            example = fmt.example(date(2008, 1, 1) + timedelta(n))
            assert meaning.setdefault(example.source, example.target) == example.target, example.source


def test_sizes_and_disjointness(corpus: Corpus) -> None:
    parts = (corpus.train, corpus.valid, corpus.test)
    assert [len(part) for part in parts] == [40_000, 2_000, 2_000]
    days = [{example.target for example in part} for part in parts]
    strings = [{example.source for example in part} for part in parts]
    assert [len(each) for each in strings] == [40_000, 2_000, 2_000], "no string occurs twice"
    for sets in (days, strings):
        assert sets[0].isdisjoint(sets[1])
        assert sets[0].isdisjoint(sets[2])
        assert sets[1].isdisjoint(sets[2])


def test_strings_are_plain(corpus: Corpus) -> None:
    for example in corpus.train:
        assert unicodedata.is_normalized("NFC", example.source)
        assert example.source == example.source.strip()
    characters = {c for example in corpus.train for c in example.source}
    assert all(c == " " or not c.isspace() for c in characters)
    assert not {c for c in characters if unicodedata.category(c) in ("Cf", "Cc")}
    assert characters >= {c for example in corpus.valid + corpus.test for c in example.source}


def test_some_dates_have_no_capitals(corpus: Corpus) -> None:
    german = [e.source for e in corpus.train if e.source.lower().startswith("montag, ")]
    small = sum(source == source.lower() for source in german)
    assert 0 < small < len(german) / 2


def test_the_seed_determines_the_corpus() -> None:
    small = {"train": 200, "valid": 20, "test": 20}
    assert Dates(**small).load() == Dates(**small).load()
    assert Dates(**small, seed=8).load() != Dates(**small).load()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"languages": ("en", "xq")}, "data.languages=xq: Babel has no such locale"),
        ({"languages": ()}, "data.languages is empty"),
        ({"last_year": 2050}, "use at most 2049"),
        ({"first_year": 2049, "last_year": 1950}, "data.first_year=2049"),
        ({"valid": -1}, "data.valid=-1"),
        ({"languages": ("en",), "first_year": 2021, "last_year": 2021}, "data.test=2000"),
    ],
)
def test_invalid_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Dates(**{"languages": ("en",), **settings}).load()  # type: ignore[arg-type]


def test_without_babel_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_babel(name: str, *rest: object) -> object:
        if name.split(".")[0] == "babel":
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", no_babel)
    with pytest.raises(UserError, match=r'pip install "regard\[demo\]"'):
        Dates().load()
