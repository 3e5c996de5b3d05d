"""Words as sub-words: which piece begins a word, the windows of long texts, and where the tags stand."""

from pathlib import Path

import numpy as np
import pytest
import torch

from encoded import flat
from growth import is_linear
from regard.data.batches import IGNORED, collate
from regard.data.example import TaggedText
from regard.data.flat import Values
from regard.data.tokenizers import train_tokenizer
from regard.data.word_pieces import PieceText, sentence_parts, word_windows
from regard.tasks import TASKS
from regard.verbs import load
from tiny_public import albert, bert, roberta

LINES = ["the old harbour door", "the baker's oven was warm", "Peter Blackburn left the harbour"]
TEXT = "the harbour Blackburn's the door the"  # "the" as the first word, and inside


@pytest.fixture(params=["bpe", "byte-bpe", "word", "wordpiece", "bytes", "sentencepiece"])
def field(request: pytest.FixtureRequest, tmp_path: Path) -> PieceText:
    if request.param in ("bpe", "byte-bpe", "word"):
        size = {"bpe": 40, "byte-bpe": 275, "word": 30}[request.param]
        return PieceText(train_tokenizer(request.param, LINES, size, mask="[MASK]"))
    make = {"wordpiece": bert, "bytes": roberta, "sentencepiece": albert}[request.param]
    make(tmp_path)
    tokenizer = load(tmp_path, "cpu").tokenizer
    assert tokenizer.kind == request.param
    return PieceText(tokenizer)


def ids_of(row: Values) -> list[int]:
    return np.where(row < 0, ~row, row).tolist()


def test_the_pieces_are_those_of_the_text(field: PieceText) -> None:
    """Words are split one by one, but have the pieces, spaces included, that they have in the text."""
    (row,) = field.encode([TEXT])
    assert ids_of(row) == field.wrap(field.tokenizer.encode(TEXT))
    assert (row >= 0).sum() == 6


def test_every_word_has_a_piece_that_begins_it(field: PieceText) -> None:
    """Also a word of which the tokenizer keeps nothing, such as a control character."""
    texts = ["\x00 the \u200b door", "", "\ufffd"]
    for text, row in zip(texts, field.encode(texts)):
        assert (row >= 0).sum() == len(text.split())


def test_tags_stand_at_first_pieces(field: PieceText) -> None:
    rows = [
        {"text": row, "tags": np.array(tags, np.int32)}
        for row, tags in zip(field.encode([TEXT, "door"]), ([5, 6, IGNORED, 8, 3, 4], [9]))
    ]
    batch = collate(rows, TASKS["tag"])
    first = batch["words"]
    assert batch["targets"][first].tolist() == [5, 6, IGNORED, 8, 3, 4, 9]
    assert (batch["targets"][~first] == IGNORED).all()
    assert batch["tokens"][0][batch.real["tokens"][0]].tolist() == field.wrap(field.tokenizer.encode(TEXT))
    assert batch.counts["targets"] == 7


def test_words_with_characters_are_read_as_before() -> None:
    columns = {"text": flat([[[4, 1], [5, 1]], [[6, 0]]]), "tags": flat([[0, 1], [2]])}
    rows = [{name: column[place] for name, column in columns.items()} for place in range(2)]
    batch = collate(rows, TASKS["tag"])
    assert batch["tokens"].tolist() == [[[4, 1], [5, 1]], [[6, 0], [0, 0]]]
    assert batch["targets"].tolist() == [[0, 1], [2, IGNORED]]
    assert torch.equal(batch["words"], batch.real["tokens"])


def test_windows_of_words() -> None:
    assert word_windows([1] * 10, 4, 1) == [(0, 4), (3, 7), (6, 10)]
    assert word_windows([1, 9, 1, 1], 4, 1) == [(0, 1), (1, 2), (2, 4)]  # a word that is longer than a window
    assert word_windows([3, 3, 3], 4, 2) == [(0, 1), (1, 2), (2, 3)]  # nothing fits into what is shared
    assert word_windows([2, 2], 8, 2) == [(0, 2)]
    assert word_windows([], 4, 1) == [(0, 0)]


def test_windows_of_a_row_have_each_word_once(field: PieceText) -> None:
    text = " ".join([TEXT] * 6)
    (row,) = field.encode([text])
    assert field.windows(row, None) == [(row, slice(None))]
    longest = len(row) // 3
    windows = field.windows(row, longest)
    assert len(windows) > 3
    kept = []
    for part, words in windows:
        assert len(part) <= longest
        assert field.wrap([-5])[0] in (-5, ~part[0])  # the special tokens are around every window
        kept += part[part >= 0][words].tolist()
    assert kept == row[row >= 0].tolist()


def test_a_shared_word_is_far_from_the_ends_of_its_window() -> None:
    field = PieceText(train_tokenizer("word", ["a b"], 30, mask="[MASK]"))
    (row,) = field.encode(["a " * 30])
    windows = field.windows(row, 18)  # 16 words, of which 4 are shared
    assert [(len(part) - 2, words.start, words.stop) for part, words in windows] == [
        (16, 0, 14),
        (16, 2, 14),
        (6, 2, 6),
    ]


def test_a_word_that_is_longer_than_a_window_keeps_its_first_piece() -> None:
    field = PieceText(train_tokenizer("bpe", ["a b c"], 30, mask="[MASK]"))
    (row,) = field.encode(["ab " + "abc" * 9 + " a"])
    windows = field.windows(row, 8)
    assert all(len(part) <= 8 for part, _ in windows)
    assert sum(len(part[part >= 0][words]) for part, words in windows) == 3


def test_long_sentences_are_trained_in_parts() -> None:
    field = PieceText(train_tokenizer("bpe", LINES, 40, mask="[MASK]"))
    long = TaggedText(" ".join(LINES), tuple("abcdefghijklmn"[: len(" ".join(LINES).split())]))
    short = TaggedText("the door", ("x", "y"))
    (parts, same) = sentence_parts({"text": field}, [long, short], None, 16)
    assert same == [short]
    assert len(parts) > 2
    assert " ".join(one.text for one in parts) == long.text
    assert tuple(tag for one in parts for tag in one.tags) == long.tags
    assert all(len(row) <= 16 for row in field.encode([one.text for one in parts]))
    assert [one for some in sentence_parts({"text": field}, [long], None, None) for one in some] == [long]
    assert [len(row) for row in field.shortened([long.text, "the"], 16)] == [16, len(field.encode(["the"])[0])]


def test_the_windows_of_a_very_long_text_take_time_in_proportion_to_it() -> None:
    assert is_linear(lambda words: word_windows([1] * words, 30, 7), 50_000)
    spans = word_windows([1] * 500_000, 30, 7)
    assert (len(spans), spans[-1]) == (21739, (499_974, 500_000))
