"""Fields of texts with several parts: two texts joined as one input, and choices side by side."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from regard.data.joined import PADDING, ChoiceText, JoinedText, cut_longest
from regard.data.tokenizers import BOS, EOS, SpecialTokens, check_vocab, train_tokenizer
from regard.errors import UserError

PAIRS = [("a grey heron", "a heron stood there"), ("rain", "the rain fell")]


@dataclass(frozen=True)
class Words:
    tokens: str = "word"
    vocab: int = 100


def test_two_texts_are_one_input_with_segments() -> None:
    field = JoinedText.fit(PAIRS, "text", Words())
    one, other = field.tokenizer.encode_batch(list(PAIRS[0]))
    ids, segments = field.encode(PAIRS[:1])[0].T.tolist()
    assert ids == [BOS, *one, EOS, *other, EOS]
    assert segments == [0] * 5 + [1] * 5


def test_the_tokenizer_learns_from_all_parts() -> None:
    field = JoinedText.fit(PAIRS, "text", Words())
    assert field.tokenizer.unknown("heron fell") == []
    choices = ChoiceText.fit([(("a", "b"), ("a", "c"))], "text", Words())
    assert choices.tokenizer.unknown("a b c") == []


def test_a_separator_of_its_own_comes_between_parts() -> None:
    special = SpecialTokens(pad=0, bos=None, eos=None, prefix=5, suffix=6, separator=(6, 6), second_segment=0)
    assert special.join_input([[10], [11, 12]]) == ([5, 10, 6, 6, 11, 12, 6], [0] * 7)
    assert replace(special, separator=()).join_input([[10], [11]]) == ([5, 10, 6, 11, 6], [0] * 5)
    assert 6 in replace(special, suffix=None).ids


def test_empty_parts_keep_the_special_tokens() -> None:
    field = JoinedText.fit(PAIRS, "text", Words())
    assert field.encode([("", "")])[0].tolist() == [[BOS, 0], [EOS, 0], [EOS, 1]]


def test_a_tokenizer_without_special_tokens_is_refused() -> None:
    special = SpecialTokens(pad=0, bos=None, eos=None)
    with pytest.raises(UserError, match="no special token to separate two texts"):
        special.join_input([[10], [11]])
    assert special.join_input([[10]]) == ([10], [0])


def test_the_field_is_saved_and_loaded(tmp_path: Path) -> None:
    field = JoinedText.fit(PAIRS, "text", Words())
    field.save(tmp_path / "text.json")
    loaded = JoinedText.load(tmp_path / "text.json")
    assert loaded.longest is None
    for ours, theirs in zip(field.encode(PAIRS), loaded.encode(PAIRS)):
        assert np.array_equal(ours, theirs)


def test_long_parts_are_cut_longest_first() -> None:
    assert cut_longest([[1, 2, 3, 4, 5], [6]], 4) == [[1, 2, 3], [6]]
    assert cut_longest([[1, 2, 3, 4], [5, 6, 7]], 5) == [[1, 2, 3], [5, 6]]
    assert cut_longest([[1, 2, 3], [4, 5, 6]], 5) == [[1, 2], [4, 5, 6]]
    assert cut_longest([[1], [2, 2, 2], [3, 3, 3, 3]], 5) == [[1], [2, 2], [3, 3]]
    assert cut_longest([[1, 2], [3]], 3) == [[1, 2], [3]]
    assert cut_longest([[1, 2], [3]], None) == [[1, 2], [3]]
    field = replace(JoinedText.fit(PAIRS, "text", Words()), longest=7)
    assert [len(one) for one in field.encode(PAIRS)] == [7, 7]


def test_choices_are_side_by_side_with_padding() -> None:
    field = ChoiceText(JoinedText.fit(PAIRS, "", Words()).tokenizer)
    (found,) = field.encode([(PAIRS[1], PAIRS[0])])
    assert found.shape == (10, 2, 2)
    shorter, longer = JoinedText(field.tokenizer).encode([PAIRS[1], PAIRS[0]])
    assert np.array_equal(found[: len(shorter), 0], shorter)
    assert np.array_equal(found[:, 1], longer)
    assert found[len(shorter) :, 0].tolist() == [[0, PADDING]] * (10 - len(shorter))


def test_other_numbers_of_choices_are_refused() -> None:
    field = ChoiceText(JoinedText.fit(PAIRS, "", Words()).tokenizer)
    with pytest.raises(UserError, match="some examples have 2 choices and some 3"):
        field.encode([(PAIRS[0], PAIRS[1]), (PAIRS[0], PAIRS[1], PAIRS[0])])


def test_a_separator_outside_the_vocabulary_is_refused() -> None:
    tokenizer = train_tokenizer("word", ["a b"], 10)
    broken = replace(tokenizer, special_tokens=replace(tokenizer.special_tokens, separator=(99,)))
    with pytest.raises(UserError, match="special token `separator` has the id 99"):
        check_vocab(broken, 6, Path("x"))
