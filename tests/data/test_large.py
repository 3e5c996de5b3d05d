"""Corpora on the disk: the same pairs and ids as in memory, read when they are asked for."""

import gzip
from pathlib import Path

import pytest

from regard.data import fields
from regard.data.example import Pair
from regard.data.fields import InputText, TargetText, encode
from regard.data.files import LinesOnDisk, ParallelOnDisk, open_parallel, read_parallel
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
    assert (pairs[-1], pairs[1:3], pairs[::2]) == (Pair("zehn", "ten"), whole[1:3], whole[::2])
    with pytest.raises(IndexError):
        pairs[4]


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_with_and_without_a_last_end(tmp_path: Path, end: str) -> None:
    (tmp_path / "a").write_text(f"x\n\ny{end}")
    lines = LinesOnDisk(tmp_path / "a")
    assert [lines[i] for i in range(len(lines))] == ["x", "", "y"]
    assert lines.blank.tolist() == [False, True, False]


def test_blank_lines_are_the_same_in_plain_and_packed_files(tmp_path: Path) -> None:
    sides = {"a": ["\ufeff", "x", " ", "y", "\r", "z", "\u3000", "w w", "é\u00a0", " v"], "b": list("0123456789")}
    for side, lines in sides.items():
        text = "\n".join(lines).encode()
        (tmp_path / side).write_bytes(text)
        (tmp_path / f"{side}.gz").write_bytes(gzip.compress(text))
    plain, packed = (open_parallel(tmp_path / f"a{end}", tmp_path / f"b{end}") for end in ("", ".gz"))
    assert list(plain) == list(packed)
    assert [pair.source for pair in plain] == ["x", "y", "z", "w w", "é", "v"]


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


def test_ids_in_one_array_are_the_ids_of_each(monkeypatch: pytest.MonkeyPatch, files: tuple[Path, Path]) -> None:
    source, target = (train_tokenizer("word", path.read_text(encoding="utf-8").split("\n"), 60) for path in files)
    columns = {"source": InputText(source), "target": TargetText(target)}
    for examples in (open_parallel(*files), [Pair("eins " * (n % 5), "one " * (n % 3)) for n in range(20)]):
        for at_once in (3, 500):  # neither all texts nor all lists of ids are in memory together
            monkeypatch.setattr(fields, "AT_ONCE", at_once)
            encoded = encode(columns, examples)
            assert len(encoded["source"]) == len(encoded["target"]) == len(examples)
            for number, example in enumerate(examples):
                assert encoded["source"][number].tolist() == source.encode(example.source)
                expected = target.special_tokens.wrap_target(target.encode(example.target))
                assert encoded["target"][number].tolist() == expected
