"""Running text: windows hold the text and nothing else, any step comes without those before, judging misses nothing."""

import gzip
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from growth import is_linear
from regard.config import from_json, override, to_json
from regard.data.batches import IGNORED
from regard.data.flat import id_type
from regard.data.streams import (
    Book,
    RunningText,
    Shakespeare,
    Streams,
    Windows,
    contiguous,
    encode_text,
    in_order,
    joined,
    passages,
    window_of,
)
from regard.data.tokenizers import UNK, train_tokenizer
from regard.errors import UserError
from regard.recipes import KINDS, find_recipe

TEXT = (np.arange(1000) % 97 + 4).astype(np.uint16)  # neighbours tell where in the text a window stands

needs_data = pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA names no folder of corpora")


def test_windows_are_the_text_and_targets_its_next_token() -> None:
    windows = Windows(TEXT, window=16, budget=70, seed=3)
    assert windows.shapes == [(4, 16)]
    assert len(windows) == 16  # × 4 × 16 tokens is about the text
    for step in (0, 1, 5, 10**9):
        batch = windows.batch(step)
        tokens, targets = batch["tokens"], batch["targets"]
        assert tokens.shape == targets.shape == (4, 16)
        assert tokens.dtype == targets.dtype == torch.int64
        assert batch.real["tokens"].all()
        assert batch.visible("tokens") is None
        assert (batch.counts, batch.rows) == ({"tokens": 64, "targets": 64}, [0, 1, 2, 3])
        assert torch.equal(tokens[:, 1:], targets[:, :-1])
        assert torch.equal((targets - 4) % 97, (tokens - 4 + 1) % 97)


def test_a_step_is_a_function_of_seed_and_step() -> None:
    def tokens(step: int, seed: int = 3) -> torch.Tensor:
        return Windows(TEXT, 16, 64, seed).batch(step)["tokens"]

    windows = Windows(TEXT, 16, 64, seed=3)
    later = windows.batch(9)["tokens"]
    assert torch.equal(later, tokens(9))
    assert torch.equal(later, windows.batch(9)["tokens"])
    assert not torch.equal(later, tokens(8))
    assert not torch.equal(later, tokens(9, seed=4))


def test_every_place_can_be_the_first_and_the_last() -> None:
    text = np.arange(4, 14, dtype=np.uint16)
    seen = torch.cat([Windows(text, 8, 64, seed=1).batch(step)["tokens"][:, 0] for step in range(20)])
    assert set(seen.tolist()) == {4, 5}
    assert Windows(text, 9, 9, seed=1).batch(0)["targets"][0, -1] == 13


@given(size=st.integers(2, 300), window=st.integers(1, 40), budget=st.integers(1, 200))
def test_judging_has_every_target_once_and_in_order(size: int, window: int, budget: int) -> None:
    text = (np.arange(size) + 4).astype(np.uint16)
    batches = list(in_order(text, window, budget))
    assert len({tuple(batch["tokens"].shape) for batch in batches}) == 1
    assert sum(batch.counts["targets"] for batch in batches) == size - 1
    read = torch.cat([batch["tokens"][batch.real["tokens"]] for batch in batches])
    predicted = torch.cat([batch["targets"][batch["targets"] != IGNORED] for batch in batches])
    assert read.tolist() == text[:-1].tolist()
    assert predicted.tolist() == text[1:].tolist()
    for batch in batches:
        assert [row >= 0 for row in batch.rows] == batch.real["tokens"].any(dim=1).tolist()
        assert not batch["tokens"][~batch.real["tokens"]].any()
        assert torch.equal(batch["targets"] != IGNORED, batch.real["tokens"])


@settings(max_examples=40)
@given(
    size=st.integers(200, 800),
    window=st.integers(1, 20),
    rows=st.integers(1, 4),
    lanes=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_a_window_of_a_stream_continues_the_one_before(
    size: int, window: int, rows: int, lanes: int, seed: int
) -> None:
    """Within an epoch each row of a lane is one piece of the text, and no two rows read the same tokens."""
    text = (np.arange(size) + 4).astype(np.uint16)
    if (size - 1) // (lanes * rows * window) == 0:
        with pytest.raises(UserError, match=r"data\.order=contiguous: the text has \d+ tokens, too few for"):
            Streams(text, window, rows * window, seed, lanes)
        return
    streams = Streams(text, window, rows * window, seed, lanes)
    for epoch in range(2):
        batches = [streams.batch(epoch * len(streams) + place) for place in range(len(streams))]
        assert [batch.segment for batch in batches] == [place // lanes for place in range(len(streams))]
        read = [torch.cat([batch["tokens"] for batch in batches[lane::lanes]], dim=1) for lane in range(lanes)]
        targets = [torch.cat([batch["targets"] for batch in batches[lane::lanes]], dim=1) for lane in range(lanes)]
        tokens = torch.cat(read)  # (lanes × rows, tokens of a stream)
        assert (tokens.diff(dim=1) == 1).all()
        assert torch.equal(torch.cat(targets), tokens + 1)
        assert len(tokens.unique()) == tokens.numel() > size - 1 - lanes * rows * window
    assert torch.equal(streams.batch(1)["tokens"], Streams(text, window, rows * window, seed, lanes).batch(1)["tokens"])


def test_streams_are_cut_elsewhere_in_each_epoch() -> None:
    streams = Streams(TEXT, 16, 64, seed=3, lanes=2)
    starts = {int(streams.batch(epoch * len(streams))["tokens"][0, 0]) for epoch in range(20)}
    assert len(starts) > 5


def test_windows_of_several_lengths_have_every_target_once_and_continue_one_another() -> None:
    """With `spread`, only the cuts differ: every row of a lane is still a stretch of the text."""
    plain, varied = (Streams(TEXT, 20, 60, seed=3, lanes=2, spread=spread) for spread in (0.0, 0.14))
    assert len(varied) == len(plain)
    cuts = []
    for epoch in (0, 1):
        rows: dict[tuple[int, int], list[int]] = {}
        whole: dict[tuple[int, int], list[int]] = {}
        for number in range(epoch * len(plain), (epoch + 1) * len(plain)):
            for streams, found in ((varied, rows), (plain, whole)):
                batch = streams.batch(number)
                for row, (tokens, targets) in enumerate(zip(batch["tokens"].tolist(), batch["targets"].tolist())):
                    lane = found.setdefault((number % 2, row), tokens[:1])
                    assert lane[-1] == tokens[0]
                    lane += targets
        assert rows == whole
        cuts.append([varied.batch(number)["tokens"].shape[1] for number in range(epoch * len(plain), len(plain) * 2)])
    lengths = {length for cut in cuts for length in cut}
    assert cuts[0][: len(cuts[1])] != cuts[1]
    assert len(lengths) > 3
    assert all(length % 2 == 0 and 0 < length < 40 for length in lengths)
    assert set(varied.shapes) == {(3, length) for length in cuts[0][: len(plain)]}
    assert plain.shapes == [(3, 20)]


def test_the_lengths_of_windows_have_the_deviation_of_the_paper_and_the_rate_follows_them() -> None:
    """Merity et al. 2018, §4.1: a deviation of 5 tokens at a window of 70, and a rate in proportion to the length.

    The ends are rounded to a tenth of a window, which adds a little.
    """
    streams = Streams(np.arange(1_000_000, dtype=np.uint32), 70, 140, seed=1, spread=0.07)
    lengths = []
    for number in range(2000):
        batch = streams.batch(number)
        lengths.append(batch["tokens"].shape[1])
        assert batch.scale == lengths[-1] / 70
    assert np.std(lengths) == pytest.approx(5.4, abs=0.5)
    assert Windows(TEXT, 16, 64, 1).batch(0).scale == Streams(TEXT, 16, 64, 1).batch(0).scale == 1.0


def test_windows_at_random_places_have_one_length(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.spread=0\.1: .* data\.order=contiguous, or data\.spread=0\."):
        Book(train=str(tmp_path / "text.txt"), spread=0.1).load()


@settings(max_examples=20)
@given(size=st.integers(2, 9_000), window=st.integers(1, 40))
def test_lanes_of_a_validation_text_have_every_target_once(size: int, window: int) -> None:
    text = (np.arange(size) % 60_000 + 4).astype(np.uint16)
    found: list[int] = []
    for lane in contiguous(text, window):
        batches = list(lane)
        assert [batch.segment for batch in batches] == list(range(len(batches)))
        for row in range(4):
            ids = torch.cat([batch["targets"][row][batch["targets"][row] != IGNORED] for batch in batches])
            read = torch.cat([batch["tokens"][row][batch.real["tokens"][row]] for batch in batches])
            assert torch.equal(ids, read + 1)
            assert (ids.diff() == 1).all()
            found += ids.tolist()
    assert found == text[1:].tolist()


def test_a_validation_text_has_one_lane_for_32_windows_of_its_four_rows_up_to_four_lanes() -> None:
    for window in (1, 5):
        full = 4 * 32 * window  # targets of a lane whose rows have 32 windows each
        for targets, lanes in (
            (1, 1),
            (full, 1),
            (2 * full - 1, 1),
            (2 * full, 2),
            (4 * full - 1, 3),
            (4 * full, 4),
            (9 * full, 4),
        ):
            assert len(contiguous(np.zeros(targets + 1, np.uint16), window)) == lanes


def test_what_is_too_short_is_refused_with_a_cure() -> None:
    with pytest.raises(UserError, match=r"plan\.batch_tokens=15: less than one window of 16"):
        Windows(TEXT, 16, 15, seed=1)
    with pytest.raises(UserError, match=r"the text has 1000 tokens.*data\.window=999 or less"):
        Windows(TEXT, 1000, 4096, seed=1)


def test_how_much_is_read_at_a_time() -> None:
    assert window_of(Book(), 256) == 256
    assert window_of(Book(window=32), 256) == window_of(Book(window=32), None) == 32
    with pytest.raises(UserError, match=r"data\.window=257: the model reads at most 256"):
        window_of(Book(window=257), 256)
    with pytest.raises(UserError, match=r"data\.window=-1: give 1 or more"):
        window_of(Book(window=-1), None)
    with pytest.raises(UserError, match=r"data\.window=0: the model has no limit"):
        window_of(Book(), None)


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_a_text_is_encoded_whole(kind: str) -> None:
    text = "The fox naps.\n\n  The fox \N{FOX FACE} wakes,\tlate.\n" * 3
    tokenizer = train_tokenizer(kind, [text], 60)
    ids = encode_text(tokenizer, text)
    assert ids.dtype == np.uint16
    assert ids.tolist() == tokenizer.encode(text)
    if kind != "word":
        assert tokenizer.decode(ids.tolist()) == text


def test_a_character_that_was_never_seen_is_unknown() -> None:
    assert encode_text(train_tokenizer("char", ["ab"], 60), "axb").tolist()[1] == UNK


def test_large_vocabularies_take_larger_numbers() -> None:
    assert id_type(65536) == np.uint16
    assert id_type(65537) == np.uint32


def test_the_tokenizer_of_running_text_puts_no_marks() -> None:
    tokenizer = train_tokenizer("char", ["ab"], 60)
    field = RunningText(tokenizer)
    assert field.tokenizer.special_tokens.wrap_target([7, 8]) == [7, 8]
    assert field.encode(["ab"]) == [tokenizer.encode("ab")]


@given(st.text(alphabet="ab \n\r\u2028", max_size=900) | st.integers(0, 9000).map(lambda size: "x" * size))
def test_passages_make_up_the_text(text: str) -> None:
    found = list(passages(text))
    assert "".join(found) == text
    assert all(map(len, found))
    assert all(len(passage) <= 2000 for passage in found)


def test_passages_of_one_long_line_take_time_in_proportion_to_it() -> None:
    def read(words: int) -> None:
        assert sum(map(len, passages("seven a " * words))) == 8 * words

    assert is_linear(read, 2**20)


def test_a_book_is_read_as_it_stands(tmp_path: Path) -> None:
    text = "One.\n\nTwo,\nthree.\n" * 500
    (tmp_path / "book.txt.gz").write_bytes(gzip.compress(text.encode()))
    corpus = Book(train=str(tmp_path / "book.txt.gz")).load()
    assert joined(corpus.train) + joined(corpus.valid) == text
    assert len(joined(corpus.valid)) == len(text) // 10
    assert corpus.test == []
    assert len(corpus.train) > 3
    assert all(a.text.endswith("\n") for a, _ in pairwise(corpus.train))
    (tmp_path / "other.txt").write_text("Four.\n")
    given_ = Book(train=str(tmp_path / "book.txt.gz"), valid=str(tmp_path / "other.txt")).load()
    assert (joined(given_.train), joined(given_.valid)) == (text, "Four.\n")
    with pytest.raises(UserError, match=r"data\.train=FILE"):
        Book().load()


def test_shakespeare_is_found_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"tinyshakespeare/input\.txt: not found; .* or add --download"):
        Shakespeare().load()
    (tmp_path / "tinyshakespeare").mkdir()
    for name, pack in (("input.txt.gz", gzip.compress), ("input.txt", bytes)):
        (tmp_path / "tinyshakespeare" / name).write_bytes(pack(f"{name}\n".encode() * 10))
        corpus = Shakespeare().load()
        assert joined(corpus.train) + joined(corpus.valid) == f"{name}\n" * 10


def test_the_plays_recipes_read_another_text(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("so it goes. " * 20, encoding="utf-8")
    (tmp_path / "other.txt").write_text("so it went.", encoding="utf-8")
    settings = [f"data.train={tmp_path / 'mine.txt'}", f"data.valid={tmp_path / 'other.txt'}"]
    recipe = override(find_recipe("shakespeare-cpu"), settings, KINDS)
    corpus = recipe.data.load()
    assert joined(corpus.train) == "so it goes. " * 20
    assert joined(corpus.valid) == "so it went."
    assert (getattr(recipe.data, "files", None), Shakespeare().files) == ((), ("tinyshakespeare/input.txt",))
    assert from_json(to_json(recipe, KINDS), KINDS) == recipe


@needs_data
def test_shakespeare_has_its_published_size() -> None:
    corpus = Shakespeare().load()
    text = joined(corpus.train) + joined(corpus.valid)
    assert (len(text), len(set(text)), len(joined(corpus.train))) == (1_115_394, 65, 1_003_854)


@pytest.mark.parametrize("end", ["jsonl", "csv.xz"])
@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_a_table_is_no_running_text(name: str, end: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text " * 20)
    files = {"train": str(tmp_path / "text.txt"), name: str(tmp_path / f"rows.{end}")}
    with pytest.raises(
        UserError, match=rf"data\.{name}=.*rows\.{end}: this is a table; .* data=lines data\.text=COLUMN"
    ):
        Book(**files).load()
