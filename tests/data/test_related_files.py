"""Files of pairs of texts that belong together: columns, numbers, negatives, and what is refused."""

import math
from pathlib import Path

import numpy as np
import pytest

from growth import is_linear
from regard import UserError
from regard.data.example import RelatedTexts
from regard.data.related import PADDING, RelatedPairs, SeparateTexts, SimilarityField
from regard.data.tables import first_cells
from regard.data.tokenizers import train_tokenizer

PAIRS = [("a cat sleeps", "the cat is asleep"), ("it rains", "rain falls"), ("he eats", "he has a meal")]


def table(path: Path, rows: list[tuple[object, ...]], *header: str) -> str:
    lines = [header, *rows] if header else rows
    delimiter = "," if path.suffix == ".csv" else "\t"
    path.write_text("".join(delimiter.join(map(str, row)) + "\n" for row in lines), encoding="utf-8")
    return str(path)


def test_pairs_of_all_kinds_of_files(tmp_path: Path) -> None:
    expected = [RelatedTexts(*pair) for pair in PAIRS]
    plain = table(tmp_path / "a.tsv", PAIRS)
    named = table(tmp_path / "b.csv", PAIRS, "one", "two")
    objects = tmp_path / "c.jsonl"
    objects.write_text("".join(f'{{"first": "{a}", "second": "{b}"}}\n' for a, b in PAIRS), encoding="utf-8")
    assert RelatedPairs(train=plain, valid=plain).load().train == expected
    assert RelatedPairs(train=named, valid=named, first="one", second="two").load().train == expected
    assert RelatedPairs(train=str(objects), valid=plain).load().train == expected
    assert expected[0].text == PAIRS[0]


def test_training_has_the_pairs_with_large_numbers_and_validation_all(tmp_path: Path) -> None:
    rows = [(*pair, number) for pair, number in zip(PAIRS, (5, 1.5, 4))]
    file = table(tmp_path / "scored.csv", rows, "first", "second", "score")
    data = RelatedPairs(train=file, valid=file, number="score", least=4.0)
    corpus = data.load()
    assert [one.number for one in corpus.train] == [5.0, 4.0]
    assert [one.number for one in corpus.valid] == [5.0, 1.5, 4.0]
    plain = table(tmp_path / "plain.csv", PAIRS, "first", "second")
    corpus = RelatedPairs(train=plain, valid=file, number="score", least=4.0).load()  # training pairs without numbers
    assert [one.number for one in corpus.train] == [None] * 3
    assert [one.number for one in corpus.valid] == [5.0, 1.5, 4.0]


def test_negatives_are_a_column_whose_cells_may_be_empty(tmp_path: Path) -> None:
    rows = [(*pair, other) for pair, other in zip(PAIRS, ("a dog runs", "", "he drinks"))]
    file = table(tmp_path / "triples.tsv", rows, "first", "second", "not")
    plain = table(tmp_path / "plain.tsv", PAIRS, "first", "second")
    data = RelatedPairs(train=file, valid=plain, first="first", second="second", negative="not")
    corpus = data.load()
    assert [one.text for one in corpus.train] == rows
    assert [one.text for one in corpus.valid] == PAIRS


def test_so_many_pairs_are_held_out_that_they_have_negatives(tmp_path: Path) -> None:
    corpus = RelatedPairs(train=table(tmp_path / "a.tsv", [(f"first {n}", f"second {n}") for n in range(9)])).load()
    assert (len(corpus.train), len(corpus.valid)) == (7, 2)
    with pytest.raises(UserError, match=r"one pair.*and data\.valid=FILE"):
        RelatedPairs(train=table(tmp_path / "b.tsv", PAIRS[:2])).load()


def test_pairs_with_the_same_first_text_are_held_out_together(tmp_path: Path) -> None:
    rows = [(f"text {n % 4}", f"other {n}") for n in range(12)]
    corpus = RelatedPairs(train=table(tmp_path / "a.tsv", rows)).load()
    parts = [{one.first for one in part} for part in (corpus.train, corpus.valid)]
    assert parts[0] | parts[1] == {f"text {n}" for n in range(4)}
    assert not parts[0] & parts[1]


def test_empty_cells_are_left_out_with_a_warning(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [*PAIRS, ("alone", ""), ("", "alone")], "first", "second")
    corpus = RelatedPairs(train=file, valid=file).load()
    assert len(corpus.train) == 3
    assert any("2 of 5 examples have no first or no second" in one for one in corpus.warnings)
    with pytest.raises(UserError, match="no complete example"):
        RelatedPairs(train=table(tmp_path / "b.csv", [("", "x")], "first", "second")).load()


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        (PAIRS[:1], "one pair,"),
        ([("a", "b")] * 5, "5 pairs that all share a text"),
        ([("a", f"b{n}") for n in range(6)], "6 pairs that all share a text"),
        ([("a", "b"), ("b", "c"), ("c", "a")], "3 pairs that all share a text"),
    ],
)
def test_pairs_without_negatives_are_refused(tmp_path: Path, pairs: list[tuple[str, str]], found: str) -> None:
    file, valid = table(tmp_path / "a.tsv", pairs), table(tmp_path / "valid.tsv", PAIRS)
    with pytest.raises(UserError, match=rf"data\.train=.*{found}.*give pairs with different texts\."):
        RelatedPairs(train=file, valid=valid).load()
    with pytest.raises(UserError, match=rf"data\.valid=.*{found}.*give pairs with different texts\."):
        RelatedPairs(train=valid, valid=file).load()
    more = table(tmp_path / "b.tsv", [*pairs, ("x", "y")])
    assert len(RelatedPairs(train=more, valid=valid).load().train) == len(pairs) + 1


def test_training_pairs_that_share_a_text_after_some_are_held_out_are_refused(tmp_path: Path) -> None:
    """All pairs of a first text are in one part, so that each part has one first text here."""
    file = table(tmp_path / "a.tsv", [(str(n % 2), f"text {n}") for n in range(60)])
    with pytest.raises(UserError, match=r"data\.train=.*: 30 pairs that all share a text.*, and data\.valid=FILE"):
        RelatedPairs(train=file).load()


def test_many_pairs_that_share_a_text_are_refused_at_once(tmp_path: Path) -> None:
    def read(rows: int) -> None:
        file = table(tmp_path / "a.tsv", [(f"text {n}", "same") for n in range(rows)])
        with pytest.raises(UserError, match=r"data\.train=.* pairs that all share a text"):
            RelatedPairs(train=file).load()

    assert is_linear(read, 10_000)


def test_settings_and_numbers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    rows = [(*pair, number) for pair, number in zip(PAIRS, (5, "much", 4))]
    file = table(tmp_path / "a.csv", rows, "first", "second", "score")
    with pytest.raises(UserError, match=r"data\.number=score: give data\.number=COLUMN and data\.least=N together"):
        RelatedPairs(train=file, number="score").load()
    with pytest.raises(UserError, match=r"data\.least=4: give data\.number"):
        RelatedPairs(train=file, least=4.0).load()
    with pytest.raises(UserError, match=r"data\.least=nan: give a number"):
        RelatedPairs(train=file, least=math.nan)
    with pytest.raises(UserError, match=r"a\.csv, line 3: 'much' is not a finite number"):
        RelatedPairs(train=file, number="score", least=4.0).load()
    with pytest.raises(UserError, match='no column "points"'):
        RelatedPairs(train=file, number="points", least=4.0).load()
    with pytest.raises(UserError, match='no column "wrong"'):
        RelatedPairs(train=file, negative="wrong").load()
    good = table(tmp_path / "b.csv", [(*pair, 1) for pair in PAIRS], "first", "second", "score")
    with pytest.raises(
        UserError, match=r"data\.train=.*b\.csv: no pair has a number of data\.least=4 or more; lower it"
    ):
        RelatedPairs(train=good, valid=good, number="score", least=4.0).load()
    assert "score" in first_cells(good)
    assert "points" not in first_cells(good)


def test_texts_are_encoded_one_by_one_and_cut(tmp_path: Path) -> None:
    data = RelatedPairs(tokens="word")
    field = SeparateTexts.fit(PAIRS, "text", data)
    assert field.size == train_tokenizer("word", [text for pair in PAIRS for text in pair], 8000).size
    (array,) = field.encode([("a cat sleeps", " he ", "")])
    alone = [field.tokenizer.encode(text) for text in ("a cat sleeps", "he")]
    assert array.shape == (3, 3)
    assert array.T.tolist() == [alone[0], [*alone[1], PADDING, PADDING], [PADDING] * 3]
    assert field.within(2).encode([("a cat sleeps", "he")])[0][:, 0].tolist() == alone[0][:2]
    assert np.array_equal(field.shortened([("a cat sleeps",)], 2)[0][:, 0], alone[0][:2])
    assert field.within(2).within(None).longest == 2
    field.save(tmp_path / "text.json")
    assert (
        SeparateTexts.load(tmp_path / "text.json").encode([PAIRS[0]])[0].tolist()
        == field.encode([PAIRS[0]])[0].tolist()
    )


def test_a_similarity_is_a_number_and_whether_texts_belong_together(tmp_path: Path) -> None:
    field = SimilarityField.fit([], "number", RelatedPairs(number="score", least=4.0))
    assert field.encode([4.0, 3.9])[0].tolist() == [4.0, 1.0]
    assert field.encode([4.0, 3.9])[1][1] == 0.0
    (unknown,) = field.encode([None])
    assert math.isnan(unknown[0])
    assert unknown[1] == 1.0
    field.save(tmp_path / "number.json")
    assert SimilarityField.load(tmp_path / "number.json") == field
    for content in ('{"least": "four"}', "[]", '{"least": true}', "{}"):
        (tmp_path / "number.json").write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match="not the similarities of a run"):
            SimilarityField.load(tmp_path / "number.json")
