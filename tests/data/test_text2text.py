"""Text to text: templates of columns, prefixes, words of labels, and several tasks in one corpus."""

from pathlib import Path

import pytest

from regard.data.sources import Pairs
from regard.data.text2text import Mixture, TaskFiles, TextToText, verbalisers
from regard.errors import UserError


def table(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def ratings(tmp_path: Path) -> str:
    rows = [f"a man {n},a dog {n},{n / 4}" for n in range(10)]
    return table(tmp_path / "ratings.csv", "first,second,score", *rows, ",empty,1.0")


def test_without_templates_the_pairs_are_those_of_pairs(tmp_path: Path) -> None:
    path = table(tmp_path / "pairs.tsv", *(f"s {n}\tt {n}" for n in range(5)))
    plain, ours = (kind(train=path, valid=path).load() for kind in (Pairs, TextToText))
    assert ours.train == plain.train
    prefixed = TextToText(train=path, valid=path, prefix="copy:").load().train[0]
    assert (prefixed.source, prefixed.target, prefixed.task) == ("copy: s 0", "t 0", "copy")


def test_a_template_puts_columns_together(ratings: str) -> None:
    files = TaskFiles(ratings, ratings, source="one: {first} two: {second}", target="score", prefix="stsb", round=0.2)
    corpus = files.load()
    assert corpus.train[3].source == "stsb one: a man 3 two: a dog 3"
    assert [one.target for one in corpus.train] == ["0", "0.2", "0.4", "0.8", "1", "1.2", "1.6", "1.8", "2", "2.2"]
    assert len(corpus.train) == 10  # a row with an empty cell is left out
    assert any("1 of 11 examples have no source or no target" in warning for warning in corpus.warnings)
    text = TaskFiles(ratings, ratings, source="{first}", target="{second} ({score})").load().train[0]
    assert (text.source, text.target) == ("a man 0", "a dog 0 (0.0)")


def test_a_column_may_be_the_prefix(tmp_path: Path) -> None:
    path = table(
        tmp_path / "all.tsv", "task\tin\tout", "sum up\ta b c\ta", "translate\tone\teins", "translate\ttwo\tzwei"
    )
    found = TextToText(train=path, valid=path, prefix="{task}:", source="in", target="out").load().train
    assert [one.source for one in found] == ["sum up: a b c", "translate: one", "translate: two"]
    assert [one.task for one in found] == ["sum up", "translate", "translate"]


def test_labels_become_words(tmp_path: Path) -> None:
    path = table(tmp_path / "moods.tsv", "text\tlabel", "fine\t1", "dull\t0")
    files = TaskFiles(path, path, source="text", target="label", words=("very bad=0", "good=1"))
    assert [one.target for one in files.load().train] == ["good", "very bad"]
    assert verbalisers(["yes", "no=0"], "x") == {"yes": "yes", "0": "no"}
    with pytest.raises(UserError, match=r"data.words has no words for the target '1'; add WORDS=1"):
        TaskFiles(path, path, source="text", target="label", words=("bad=0",)).load()


def test_a_mixture_has_the_examples_of_all_tasks(tmp_path: Path, ratings: str) -> None:
    pairs = table(tmp_path / "pairs.tsv", *(f"s {n}\tt {n}" for n in range(100)))
    one, two = TaskFiles(pairs, prefix="copy:"), TaskFiles(ratings, source="{first}", target="score", prefix="rate")
    corpus = Mixture(one=one, two=two, most=20).load()
    assert [one.task for one in corpus.valid] == ["copy", "rate", "copy"]  # in turn; 2 % and at least one are held out
    counts = {task: sum(one.task == task for one in corpus.train) for task in ("copy", "rate")}
    assert counts == {"copy": 20, "rate": 9}
    assert corpus.train == Mixture(one=one, two=two, most=20).load().train
    assert len(Mixture(one=one, two=two).load().train) == 98 + 9


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        (Mixture(), "data.one.train is not set"),
        (Mixture(one=TaskFiles("a.tsv", prefix="a"), three=TaskFiles(prefix="b")), "data.three.train is not set"),
        (Mixture(one=TaskFiles("a.tsv"), two=TaskFiles("a.tsv", prefix="a")), "data.one.prefix=: not set"),
        (Mixture(most=-1), "data.most=-1"),
    ],
)
def test_wrong_mixtures_are_refused(mixture: Mixture, message: str) -> None:
    with pytest.raises(UserError, match=message):
        mixture.load()


def test_two_tasks_with_one_prefix_are_refused(ratings: str) -> None:
    files = TaskFiles(ratings, source="{first}", target="score", prefix="a:")
    with pytest.raises(UserError, match=r"data.two.prefix=a:: the same as data.one.prefix"):
        Mixture(one=files, two=files).load()


def test_wrong_files_are_refused(tmp_path: Path, ratings: str) -> None:
    empty = table(tmp_path / "empty.tsv")
    with pytest.raises(UserError, match="the file is empty"):
        TextToText(train=empty).load()
    with pytest.raises(UserError, match='no column "third"; correct the template'):
        TextToText(train=ratings, source="{third}", target="score").load()
    with pytest.raises(UserError, match=r"'a dog 0' is no number, but data.round=0.2"):
        TextToText(train=ratings, source="{first}", target="second", round=0.2).load()
    with pytest.raises(UserError, match=r"data.round=-1"):
        TextToText(train=ratings, round=-1.0).load()
