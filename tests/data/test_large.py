"""Corpora on the disk: the same pairs and ids as in memory, read when they are asked for."""

from pathlib import Path

import numpy as np
import pytest

from regard.data import large
from regard.data.batches import Batches, encode_examples
from regard.data.example import Example
from regard.data.files import read_parallel
from regard.data.large import Encoded, LinesOnDisk, ParallelOnDisk, open_parallel
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError

SOURCE = "\N{ZERO WIDTH NO-BREAK SPACE}eins zwei\r\nfünf\n\nacht\u2028neun \n\nzehn"
TARGET = "one two\nfive\nnothing\n eight nine\n\nten"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "a.de").write_text(SOURCE, encoding="utf-8", newline="")
    (tmp_path / "a.en").write_text(TARGET, encoding="utf-8", newline="")
    return tmp_path / "a.de", tmp_path / "a.en"


def test_pairs_on_the_disk_are_those_that_are_read(files: tuple[Path, Path]) -> None:
    pairs = open_parallel(*files)
    assert isinstance(pairs, ParallelOnDisk)
    whole = [example for example in read_parallel(*files) if example.source and example.target]
    assert list(pairs) == whole
    assert len(pairs) == len(whole) == 4
    assert (pairs[-1], pairs[1:3], pairs[::2]) == (Example("zehn", "ten"), whole[1:3], whole[::2])
    with pytest.raises(IndexError):
        pairs[4]


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_with_and_without_a_last_end(tmp_path: Path, end: str) -> None:
    (tmp_path / "a").write_text(f"x\n\ny{end}")
    lines = LinesOnDisk(tmp_path / "a")
    assert [lines[i] for i in range(len(lines))] == ["x", "", "y"]
    assert lines.lengths.tolist() == [1, 0, 1]


def test_bad_files_are_named_with_a_cure(tmp_path: Path, files: tuple[Path, Path]) -> None:
    (tmp_path / "short").write_text("one\n")
    with pytest.raises(UserError, match=r"a\.de has 6 lines, .*short has 1"):
        open_parallel(files[0], tmp_path / "short")
    (tmp_path / "empty").touch()
    with pytest.raises(UserError, match="empty: the file is empty"):
        open_parallel(files[0], tmp_path / "empty")
    with pytest.raises(UserError, match="no such file"):
        open_parallel(files[0], tmp_path / "nowhere")
    (tmp_path / "latin").write_bytes("eins\nfünf\n".encode("latin1"))
    with pytest.raises(UserError, match=r"line 2: not UTF-8 \(byte 0xfc\).*iconv"):
        LinesOnDisk(tmp_path / "latin")[1]


def test_ids_in_one_array_are_the_ids_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "AT_ONCE", 7)
    examples = [Example("ab" * (n % 5), "ba" * (n % 3)) for n in range(20)]
    source, target = train_tokenizer("char", ["ab"], 60), train_tokenizer("char", ["ba"], 60)
    for read in (source, None):
        encoded, whole = Encoded(examples, read, target), encode_examples(examples, read, target)
        assert [tuple(map(list, pair)) for pair in encoded] == whole
        assert tuple(map(list, encoded[-1])) == whole[-1]
        with pytest.raises(IndexError):
            encoded[20]
    assert Encoded(examples, source, target).digest == Encoded(list(examples), source, target).digest
    assert Encoded(examples[::-1], source, target).digest != Encoded(examples, source, target).digest
    # Where one text ends and the next begins is part of what they are.
    ends = [[Example("", "ab"), Example("", "a")], [Example("", "a"), Example("", "ba")]]
    assert len({Encoded(pairs, None, target).digest for pairs in ends}) == 2


def test_batches_of_them_are_the_same() -> None:
    examples = [Example("ab" * (n % 9), "ba" * (n % 7)) for n in range(1, 60)]
    source, target = train_tokenizer("char", ["ab"], 60), train_tokenizer("char", ["ba"], 60)
    ours = Batches(Encoded(examples, source, target), 128, seed=1)
    theirs = Batches(encode_examples(examples, source, target), 128, seed=1)
    assert len(ours) == len(theirs)
    for step in range(len(ours)):
        a, b = ours.batch(step), theirs.batch(step)
        assert a.rows == b.rows
        assert all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("tokens", "targets", "source", "real"))
