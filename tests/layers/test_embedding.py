"""Word vectors from files: both formats, compressed or not, and every way in which a file can be wrong."""

import gzip
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from regard.errors import UserError
from regard.layers.embedding import init_embedding, load_vectors

GLOVE = "sea 1 2 3\nriver 4 5e-1 -6\nlake 7 8 9\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "vectors.txt") -> Path:
        packed = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
        (tmp_path / name).write_bytes(packed(text.encode()))
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz", "vectors.txt.xz"])
@pytest.mark.parametrize("header", ["", "3 3\n"], ids=["glove", "word2vec"])
def test_words_find_their_vectors(write: Callable[..., Path], name: str, header: str) -> None:
    vectors, found = load_vectors(write(header + GLOVE, name), ["lake", "desert", "river", "lake"], 3)
    assert vectors.tolist() == [[7, 8, 9], [0, 0, 0], [4, 0.5, -6], [7, 8, 9]]
    assert found.tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("sea 1 2 3 \nlake 7 8 9 \n", id="a space behind each line, as word2vec writes"),
        pytest.param("sea 1 2 3\r\nlake 7 8 9\r\n", id="carriage returns"),
        pytest.param("\ufeffsea 1 2 3\nlake 7 8 9", id="byte order mark, no last newline"),
        pytest.param("\nsea 1 2 3\n\nlake 7 8 9\n\n", id="blank lines"),
        pytest.param("sea 1 2 3\nlake 7 8 9\nsea 0 0 0\n", id="the first of two counts"),
        pytest.param("sea 1 2 3\nsea . 0 0 0\nlake 7 8 9\n", id="a word with a space is another word"),
        pytest.param("sea 1 2 3\n\x85 0 0 0\n\u2028 0 0 0\n\xa0 0 0 0\nlake 7 8 9\n", id="words that are separators"),
    ],
)
def test_what_public_files_hold(write: Callable[..., Path], text: str) -> None:
    vectors, found = load_vectors(write(text), ["sea", "lake"], 3)
    assert found.all()
    assert vectors.tolist() == [[1, 2, 3], [7, 8, 9]]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), width=st.integers(2, 5))
def test_any_words_return_as_written(write: Callable[..., Path], data: st.DataObject, width: int) -> None:
    word = st.text(st.characters(exclude_characters=" \t\r\n\ufeff", exclude_categories=["Cs"]), min_size=1)
    table = data.draw(st.dictionaries(word, st.lists(st.floats(-9, 9, width=32), min_size=width, max_size=width)))
    lines = [f"{len(table) + 1} {width}", *(" ".join([word, *map(repr, vector)]) for word, vector in table.items())]
    vectors, found = load_vectors(write("\n".join([*lines, " ".join(["last", *["1"] * width])])), list(table), width)
    assert found.all()
    assert vectors.tolist() == list(table.values())


def test_a_large_file_is_never_held_whole(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for whole in ("read_text", "read_bytes"):
        monkeypatch.setattr(Path, whole, None)
    path = write("".join(f"word{i} {i} 1\n" for i in range(20_000)))
    vectors, found = load_vectors(path, ["word19999", "word7", "word20000"], 2)
    assert found.tolist() == [True, True, False]
    assert vectors[:2, 0].tolist() == [19999, 7]


@pytest.mark.parametrize("text", [GLOVE, "3 3\n" + GLOVE], ids=["first line", "header"])
def test_another_width_is_refused(write: Callable[..., Path], text: str) -> None:
    with pytest.raises(UserError, match=r"model\.embed=5: the vectors of .*vectors\.txt have 3 numbers"):
        load_vectors(write(text), ["sea"], 5)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("lake 7 8", "found 2;"), ("lake 7 x 9", "expected numbers.*'x'"), ("lake 7 nan 9", "not finite")],
)
def test_a_malformed_line_is_named(write: Callable[..., Path], line: str, reason: str) -> None:
    path = write(f"sea 1 2 3\n\n{line}\nriver 4 5 6\n")
    with pytest.raises(UserError, match=f"{re.escape(str(path))}, line 3: .*{reason}"):
        load_vectors(path, ["lake"], 3)


@pytest.mark.parametrize("text", ["", "\n\n", "2 3\n"])
def test_a_file_without_vectors_is_refused(write: Callable[..., Path], text: str) -> None:
    with pytest.raises(UserError, match="holds no vectors"):
        load_vectors(write(text), ["sea"], 3)


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.txt: no such file"):
        load_vectors(tmp_path / "nowhere.txt", ["sea"], 3)
    with pytest.raises(UserError, match="this is a folder"):
        load_vectors(tmp_path, ["sea"], 3)
    for name in ("damaged.gz", "damaged.xz"):
        (tmp_path / name).write_bytes(b"not compressed at all")
        with pytest.raises(UserError, match=f"{name}: damaged, or not"):
            load_vectors(tmp_path / name, ["sea"], 3)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(GLOVE.encode())[:-12])
    with pytest.raises(UserError, match=r"cut\.gz: damaged, or not"):
        load_vectors(tmp_path / "cut.gz", ["sea"], 3)
    (tmp_path / "vectors.bin").write_bytes(b"3 3\nsea \xff\xfe\x00")
    with pytest.raises(UserError, match="says 3 words, but it ends in word 1"):
        load_vectors(tmp_path / "vectors.bin", ["sea"], 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_embedding_starts_from_what_is_found(write: Callable[..., Path], dtype: torch.dtype) -> None:
    embedding = nn.Embedding(5, 3, padding_idx=0, dtype=dtype)
    before = embedding.weight.detach().clone()
    path = write("<pad> 9 9 9\n" + GLOVE)
    assert init_embedding(embedding, path, ["<pad>", "lake", "desert", "sea", "lake"]) == 3
    assert embedding.weight[[1, 3, 4]].tolist() == [[7, 8, 9], [1, 2, 3], [7, 8, 9]]
    assert torch.equal(embedding.weight[[0, 2]], before[[0, 2]])
    assert embedding.weight.requires_grad
    assert embedding.weight.grad_fn is None


def test_a_file_of_strangers_is_refused(write: Callable[..., Path]) -> None:
    embedding = nn.Embedding(2, 3, padding_idx=0)
    before = embedding.weight.detach().clone()
    with pytest.raises(UserError, match=r"vectors\.txt: has none of the 2 pieces"):
        init_embedding(embedding, write(GLOVE), ["sea", "desert"])  # the only one found is padding
    assert torch.equal(embedding.weight, before)
