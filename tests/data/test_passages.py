"""Pairs of running text: turns of a play, paragraphs and their headings."""

from pathlib import Path

import pytest

from growth import is_linear
from regard.data.passages import Play, Titles
from regard.errors import UserError

PLAY = """The First Scene

ANN:
Good morrow,  friend,
and well met.

BEN:
And you.

NOBODY:

ANN:
What news?

BEN:
None: none at all.
"""
ARTICLES = """
 = Grey heron =

 The grey heron is a long @-@ legged bird that stands 1 @.@ 5 feet or more .

 = = Range = =

 It lives in most of Europe and of Asia , and in some parts of Africa .
 Short one .
 = = = In winter = = =

 In winter some of the birds fly to the south , and come back early in spring .

 = Tin roof =

 A roof of tin keeps the rain out for many years if somebody looks after it .
"""


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_turn_is_answered_by_the_next(tmp_path: Path) -> None:
    path = written(tmp_path / "play.txt", PLAY)
    found = Play(train=path, valid=path).load().train
    assert [(one.source, one.target) for one in found] == [
        ("Good morrow, friend, and well met.", "And you."),
        ("And you.", "What news?"),
        ("What news?", "None: none at all."),
    ]
    named = Play(train=path, valid=path, names=True, words=3).load().train[0]
    assert (named.source, named.target) == ("and well met.", "BEN: And you.")
    split = Play(train=path).load()
    assert (split.train, split.valid) == (found[:2], found[2:])  # the end is held out


def test_a_paragraph_has_the_heading_above_it(tmp_path: Path) -> None:
    path = written(tmp_path / "wiki.txt", ARTICLES)
    found = Titles(train=path, valid=path, least=8).load().train
    assert [one.target for one in found] == ["Grey heron", "Range", "In winter", "Tin roof"]
    assert found[0].source == "The grey heron is a long-legged bird that stands 1.5 feet or more ."
    titles = Titles(train=path, valid=path, least=8, level=1, words=3).load().train
    assert [one.target for one in titles] == ["Grey heron", "Grey heron", "Grey heron", "Tin roof"]
    assert titles[1].source == "It lives in"
    sections = Titles(train=path, valid=path, least=8, level=2).load().train
    assert [one.target for one in sections] == ["Range", "Range"]  # not those below another title


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ANN:\nGood morrow.\n", "1 turns of a play, but at least two"),
        ("just prose\n\nmore of it\n", "0 turns"),
        ("", "empty"),
    ],
)
def test_a_file_that_is_no_play_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Play(train=written(tmp_path / "play.txt", text)).load()


def test_a_file_without_headings_is_refused(tmp_path: Path) -> None:
    prose = written(tmp_path / "prose.txt", "a b c d e f g h i j k\n = half a heading\n")
    with pytest.raises(UserError, match="no paragraph of 5 words below a heading"):
        Titles(train=prose, least=5).load()
    one = written(tmp_path / "one.txt", " = A = \n b c d e f g\n")
    with pytest.raises(UserError, match="1 example, too few to hold some out"):
        Titles(train=one, least=2).load()
    for wrong in (Titles(level=-1), Titles(least=0), Titles(words=0), Play(words=0)):
        with pytest.raises(UserError, match="or more"):
            wrong.load()


def test_a_long_line_that_is_no_heading_takes_little_time(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"

    def read(words: int) -> None:
        path.write_text(" = Heading = \n= " + "= a " * words + "x\n")
        assert [pair.target for pair in Titles(train=str(path), valid=str(path)).load().train] == ["Heading"]

    assert is_linear(read, 100_000)
