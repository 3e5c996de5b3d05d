"""Corruptions of pre-training: whole words, static masks, pairs of sentences. The rates are those of the papers."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from regard.data.batches import IGNORED
from regard.data.boundaries import SENTENCE_END, sentence_ends, word_bounds
from regard.data.corruption import Composed, MaskTokens, SentencePairs
from regard.data.flat import Rows
from regard.data.public_tokenizers import read_tokenizers
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.file_io import read_object
from tiny_public import bert, gpt2

WORDS = ["the", "heron", "stood", "unmoving", "beside", "a", "river", "grey", "fish", "it", "watched", "2024"]
TEXT = " ".join(WORDS) + ". it's gone! where? \n" + " ".join(WORDS[::-1]) + "."


def trained(kind: str, vocab: int = 90) -> Tokenizer:
    return train_tokenizer(kind, [TEXT], vocab, mask="[MASK]")


def texts(rows: int, sentences: int, seed: int = 0) -> list[str]:
    """Texts of sentences of three to eight words."""
    draw = Random(seed)
    made = (" ".join(draw.choices(WORDS, k=draw.randint(3, 8))) + "." for _ in range(rows * sentences))
    return [" ".join(next(made) for _ in range(sentences)) for _ in range(rows)]


def rows_of(tokenizer: Tokenizer, lines: list[str], length: int = 0) -> Rows:
    """Rows of lines between the special tokens, cut to a length."""
    ids = tokenizer.encode_batch(lines)
    return Rows.of([{"text": np.array(tokenizer.wrap_input(one[: length or None]))} for one in ids])


# -- words ------------------------------------------------------------------------------------------------------------


def words_by_id(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The text of each word, as the tables of ids find them."""
    begins = word_bounds(tokenizer).begins(np.array(ids), np.array([0]))
    starts = [*np.flatnonzero(begins).tolist(), len(ids)]
    return [text for a, b in pairwise(starts) if (text := tokenizer.decode(ids[a:b]).strip())]


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "byte-bpe"])
def test_words_are_found_from_ids_alone(kind: str) -> None:
    tokenizer = trained(kind, 300)
    found = words_by_id(tokenizer, tokenizer.encode("the heron stood. unmoving, 2024"))
    expected = ["the", "heron", "stood.", "unmoving,", "2024"] if kind == "word" else []
    if kind == "word":
        assert len(found) == len(expected)  # punctuation is a part of a word between spaces; some are unknown
    else:
        assert [one for one in found if one.isalnum()] == ["the", "heron", "stood", "unmoving", "2024"]


@pytest.mark.parametrize("make", [bert, gpt2])
def test_words_of_public_vocabularies(make: Any, tmp_path: Path) -> None:
    make(tmp_path)
    tokenizer = read_tokenizers(tmp_path, read_object(tmp_path / "config.json"))[1]
    text = "the grey heronstoods thegrey"
    ids = tokenizer.encode(text)
    assert len(ids) > 4  # some words are several tokens
    assert words_by_id(tokenizer, ids) == text.split()


def test_whole_words_are_hidden_at_the_rate_of_single_tokens() -> None:
    tokenizer = trained("bpe", 55)
    rows, bounds = rows_of(tokenizer, texts(300, 20), 62), word_bounds(tokenizer)
    special = tokenizer.special_tokens
    found = MaskTokens(special.mask, tokenizer.size, special.ids, words=bounds)(rows, np.random.default_rng(1))
    hidden, split = 0, 0
    for before, after in zip(rows, found):
        chosen = after["targets"] != IGNORED
        assert chosen.sum() <= 10  # 15 % of 64, rounded up
        hidden += int(chosen.sum())
        word = np.cumsum(bounds.begins(before["text"], np.array([0])))
        for number in np.unique(word[chosen]):
            assert chosen[word == number].all()  # all tokens of a word, or none
            split += int((word == number).sum() > 1)
    assert 0.14 < hidden / (300 * 64) < 0.157
    assert split > 300
    shown = np.concatenate([row["text"] for row in found])[np.concatenate([row["targets"] for row in found]) != IGNORED]
    assert abs((shown == special.mask).mean() - 0.8) < 0.04  # five standard deviations


def test_every_word_is_as_likely_as_another() -> None:
    """A word of one token and one of three; places at the ends of a row have no less chance."""
    tokenizer = train_tokenizer("char", ["abc d"], 40, mask="[MASK]")
    rows, special = rows_of(tokenizer, ["abc d " * 10] * 2000), tokenizer.special_tokens
    masks = MaskTokens(special.mask, tokenizer.size, special.ids, words=word_bounds(tokenizer))
    chosen = np.stack([row["targets"] for row in masks(rows, np.random.default_rng(5))]) != IGNORED
    rate = chosen[:, 1:-1].reshape(2000, 10, 6).mean(0)  # a b c space d space, ten times
    assert np.allclose(rate[:, 0], rate[:, 1])
    assert np.allclose(rate[:, 0], rate[:, 2])
    assert rate[:, 0].std() < 0.012
    assert abs(chosen.sum(1).mean() - 10) < 0.6


def test_a_word_that_is_longer_than_the_fraction_is_left_alone() -> None:
    tokenizer = trained("char")
    special = tokenizer.special_tokens
    masks = MaskTokens(special.mask, tokenizer.size, special.ids, words=word_bounds(tokenizer))
    (row,) = masks(rows_of(tokenizer, ["unmoving"]), np.random.default_rng(0))
    assert (row["targets"] == IGNORED).all()


# -- static masks -----------------------------------------------------------------------------------------------------


def test_a_static_mask_depends_on_the_text_alone() -> None:
    tokenizer = trained("bpe")
    lines, special = texts(40, 6), tokenizer.special_tokens
    static = MaskTokens(special.mask, tokenizer.size, special.ids, static=1)

    def masked(some: list[str], seed: int) -> dict[str, list[int]]:
        found = static(rows_of(tokenizer, some, 40), np.random.default_rng(seed))
        return {line: [*row["text"].tolist(), *row["targets"].tolist()] for line, row in zip(some, found)}

    assert masked(lines, 1) == masked(lines, 2)
    assert masked(lines[::-1], 3) == masked(lines, 1)  # whatever else is in the batch
    assert len({tuple(one) for one in masked(lines, 1).values()}) == 40
    dynamic = MaskTokens(special.mask, tokenizer.size, special.ids)
    a, b = (dynamic(rows_of(tokenizer, lines, 40), np.random.default_rng(seed)) for seed in (1, 2))
    assert any((x["targets"] != y["targets"]).any() for x, y in zip(a, b))


def test_several_static_masks_are_drawn_and_have_the_usual_rates() -> None:
    tokenizer = trained("char")
    special, line = tokenizer.special_tokens, texts(1, 12)
    masks = MaskTokens(special.mask, tokenizer.size, special.ids, static=10)
    rows = rows_of(tokenizer, line * 500, 98)
    found = masks(rows, np.random.default_rng(1))
    assert len({tuple(row["targets"].tolist()) for row in found}) == 10
    many = MaskTokens(special.mask, tokenizer.size, special.ids, static=10**6)(rows, np.random.default_rng(1))
    chosen = np.stack([row["targets"] for row in many]) != IGNORED
    shown = np.stack([row["text"] for row in many])
    assert (chosen.sum(1) == 15).all()
    often = chosen[:, 1:-1].sum(0)
    assert np.abs(often - 500 * 15 / 98).max() < 45  # five standard deviations
    assert abs((shown[chosen] == special.mask).mean() - 0.8) < 0.025


# -- pairs of sentences -----------------------------------------------------------------------------------------------


def pairs(tokenizer: Tokenizer, question: Any) -> SentencePairs:
    return SentencePairs(tokenizer.special_tokens, sentence_ends(tokenizer), question)


def parts(tokenizer: Tokenizer, row: Any) -> tuple[list[int], list[int]]:
    """The two parts of a row, whose special tokens and segments are checked."""
    special, ids, segments = tokenizer.special_tokens, row["text"].tolist(), row["segments"].tolist()
    assert ids[0] == special.prefix
    assert ids[-1] == special.suffix
    (between,) = [place for place, token in enumerate(ids[1:-1], 1) if token == special.suffix]
    assert segments == [0] * (between + 1) + [1] * (len(ids) - between - 1)
    return ids[1:between], ids[between + 1 : -1]


def test_next_sentences_follow_in_half_of_the_rows() -> None:
    tokenizer = trained("bpe", 200)
    rows = rows_of(tokenizer, texts(800, 14), 60)
    found = pairs(tokenizer, "next")(rows, np.random.default_rng(3))
    answers = np.array([row["next"][0] for row in found])
    assert abs(answers.mean() - 0.5) < 0.09  # five standard deviations
    ends, others, starts_a_sentence = sentence_ends(tokenizer), [row["text"][1:-1].tolist() for row in rows], []
    for place, (before, after, answer) in enumerate(zip(others, found, answers)):
        first, second = parts(tokenizer, after)
        assert len(first) + len(second) == len(before) == 60
        assert first == before[: len(first)]
        assert ends[first[-1]]
        assert (second == before[len(first) :]) == (not answer) or len(second) < 5  # few tokens may be equal by chance
        if answer and place < 100:  # the text of another row, in one piece
            size = len(second)
            source = [
                (other, at)
                for other in others
                for at in range(len(other) - size + 1)
                if other[at] == second[0] and other[at : at + size] == second
            ]
            assert source
            starts_a_sentence.append(any(at and ends[other[at - 1]] for other, at in source))
    assert np.mean(starts_a_sentence) > 0.9


def test_the_parts_change_places_in_half_of_the_rows() -> None:
    tokenizer = trained("bpe", 200)
    rows = rows_of(tokenizer, texts(800, 14), 60)
    found = pairs(tokenizer, "order")(rows, np.random.default_rng(4))
    answers = np.array([row["next"][0] for row in found])
    assert abs(answers.mean() - 0.5) < 0.09
    ends = sentence_ends(tokenizer)
    for before, after, answer in zip(rows, found, answers):
        first, second = parts(tokenizer, after)
        assert before["text"][1:-1].tolist() == (second + first if answer else first + second)
        assert ends[(second if answer else first)[-1]]


@pytest.mark.parametrize("question", ["next", "order"])
def test_lengths_follow_from_lengths_and_odd_rows_survive(question: Any) -> None:
    """Rows of one token, of no sentence, of several lengths, and a filler row."""
    tokenizer = trained("char")
    lines = ["a", "", "it", "the heron stood", "where? a. it!", "a.", "..."]
    made = [{"text": np.array(tokenizer.wrap_input(tokenizer.encode(line)), np.int64)} for line in lines]
    rows = Rows.of([*made, {"text": np.zeros(0, np.int64)}])
    corruption = pairs(tokenizer, question)
    expected = corruption.lengths({"text": rows.lengths("text")})
    for seed in range(20):
        found = corruption(rows, np.random.default_rng(seed))
        for name in ("text", "segments", "next"):
            assert found.lengths(name).tolist() == expected[name].tolist()
        assert [row["next"].tolist() for row in found[:2]] == [[IGNORED], [IGNORED]]
        assert parts(tokenizer, found[0]) == (tokenizer.encode("a"), [])
        first, second = parts(tokenizer, found[3])
        if not found[3]["next"][0]:
            assert (len(first), len(second)) == (8, 7)  # cut in the middle


def test_one_row_has_no_other_row() -> None:
    tokenizer = trained("char")
    rows = rows_of(tokenizer, ["it watched. a fish."])
    answers = {int(pairs(tokenizer, "next")(rows, np.random.default_rng(seed))[0]["next"][0]) for seed in range(20)}
    assert answers == {0}


def test_masks_and_pairs_are_composed() -> None:
    tokenizer = trained("bpe", 200)
    special = tokenizer.special_tokens
    both = Composed((pairs(tokenizer, "next"), MaskTokens(special.mask, tokenizer.size, special.ids)))
    rows = rows_of(tokenizer, texts(50, 20), 60)
    assert set(both.lengths({"text": rows.lengths("text")})["text"].tolist()) == {63}
    for row in both(rows, np.random.default_rng(0)):
        assert (row["targets"] != IGNORED).sum() == 10
        assert not np.isin(row["targets"], special.ids).any()
        assert len(row["segments"]) == len(row["text"]) == 63


def test_the_end_of_a_sentence_is_seen_in_a_token() -> None:
    tokenizer = trained("bpe", 200)
    ends = sentence_ends(tokenizer)
    ids = tokenizer.encode("the river. it's grey! where? \na fish")
    assert "".join("|" if ends[token] else "·" for token in ids).count("|") >= 3
    assert not ends[tokenizer.encode("river")].any()
    assert all(map(SENTENCE_END.search, ["no.”", 'no."', "why?)", "stop! ", "…", "。", "a\nb"]))
    assert not any(map(SENTENCE_END.search, ["no", "3.5", "x.y", ",”", ")"]))
