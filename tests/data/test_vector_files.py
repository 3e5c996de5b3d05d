"""Files of word vectors: what is written is read again, and every way in which a file can be wrong is named."""

import struct
from pathlib import Path

import numpy as np
import pytest

from regard.data.vector_files import read_vectors, write_vectors
from regard.errors import UserError

WORDS = ["the", "Straße", "日本", "co-op", "…"]
VECTORS = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
NAMES = [("v.txt", "word2vec"), ("v.txt.gz", "word2vec"), ("v.bin", "word2vec"), ("v.bin.gz", "word2vec")]


@pytest.mark.parametrize(("name", "form"), [*NAMES, ("v.txt", "glove"), ("v.vec.gz", "glove")])
def test_what_is_written_is_read_exactly(name: str, form: str, tmp_path: Path) -> None:
    write_vectors(tmp_path / "new" / name, WORDS, VECTORS, form)
    words, vectors = read_vectors(tmp_path / "new" / name)
    assert words == WORDS
    assert np.array_equal(vectors, VECTORS)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


@pytest.mark.slow  # to import gensim takes seconds
@pytest.mark.parametrize(("name", "form"), NAMES[:3])
def test_gensim_opens_what_is_written(name: str, form: str, tmp_path: Path) -> None:
    vectors_of = pytest.importorskip("gensim.models").KeyedVectors
    write_vectors(tmp_path / name, WORDS, VECTORS, form)
    found = vectors_of.load_word2vec_format(str(tmp_path / name), binary=name.endswith(".bin"))
    assert found.index_to_key == WORDS
    assert np.array_equal(found.vectors, VECTORS)
    found.save_word2vec_format(str(tmp_path / f"again-{name}"), binary=name.endswith(".bin"))
    words, vectors = read_vectors(tmp_path / f"again-{name}")  # gensim writes no line end after a binary vector
    assert words == WORDS
    assert np.array_equal(vectors, VECTORS)


def binary(count: int, width: int, *rows: tuple[bytes, list[float]]) -> bytes:
    packed = b"".join(word + b" " + struct.pack(f"<{len(numbers)}f", *numbers) for word, numbers in rows)
    return f"{count} {width}\n".encode() + packed


ROW = (b"sea", [0.1, 0.2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"3 2\nsea 1 2\nsky 3 4\n", "says 3 words, but the file has 2", id="too few"),
        pytest.param(b"1 2\nsea 1 2\nsky 3 4\n", "says 1 words, but the file has 2", id="too many"),
        pytest.param(b"2 3\nsea 1 2\nsky 3 4\n", "line 2: expected a word and 3 numbers, found 2", id="header's width"),
        pytest.param(b"sea 1 2\nsky 3 4 5\n", "line 2: expected a word and 2 numbers, found 3", id="a longer line"),
        pytest.param(b"sea 1 2\nsky 3\n", "line 2: expected a word and 2 numbers, found 1", id="a shorter line"),
        pytest.param(b"sea 1 2\nsk\xff 3 4\n", "line 2: not UTF-8 text", id="bytes that are no UTF-8"),
        pytest.param(b"99999999999999999999 2\nsea 1 2\n", "99999999999999999999 words, but the file has 1", id="huge"),
        pytest.param(b"2 99999999999\nsea 1 2\n", "gives 99999999999 numbers a word", id="a huge width"),
        pytest.param(b"2 0\nsea\n", "gives 0 numbers a word", id="no width"),
        pytest.param(b"hello\n", "line 1: expected a word and 1 numbers, found 0", id="no vectors"),
        pytest.param(binary(2, 2, ROW), "says 2 words, but it ends in word 2", id="binary, too few"),
        pytest.param(binary(1, 2, ROW, (b"sky", [3, 4])), "more than the 1 words", id="binary, too many"),
        pytest.param(binary(2, 2, ROW, (b"sky", [3])), "ends in word 2", id="binary, cut in a vector"),
        pytest.param(binary(2**60, 2, ROW), "but it ends in word 2", id="binary, a huge count"),
        pytest.param(binary(2, 2, ROW, (b"sk\xff", [3, 4])), "word 2: not UTF-8 text", id="binary, no UTF-8"),
        pytest.param(binary(1, 2, (b"sea", [1, float("nan")])), "word 1: a number is not finite", id="binary, nan"),
        pytest.param(b"1 2\n" + b"a" * 3000 + b" \0\0\0", "longer than 2048 bytes", id="binary, no word"),
    ],
)
def test_a_file_that_is_wrong_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "vectors").write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_vectors(tmp_path / "vectors")
    assert "vectors" in str(error.value)
    assert "\n" not in str(error.value)


def test_of_a_word_that_occurs_twice_the_first_vector_counts(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"3 2\nsea 1 2\nsky 3 4\nsea 5 6\n")
    (tmp_path / "binary").write_bytes(binary(3, 2, ROW, (b"sky", [3, 4]), (b"sea", [5, 6])))
    for name, first in (("text", [1, 2]), ("binary", [0.1, 0.2])):
        words, vectors = read_vectors(tmp_path / name)
        assert words == ["sea", "sky"]
        np.testing.assert_allclose(vectors[0], first)


@pytest.mark.parametrize(
    ("first", "found"),
    [("new york 1 2", []), *((f"{word} {'é' * 5000} 1 2", []) for word in ("x", "xx")), ("sea 1 2", ["sea"])],
    ids=["a word with a space", "a long line", "a long line that is cut in a character", "words alone"],
)
def test_text_with_letters_beyond_ascii_is_text(first: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text(f"3 2\n{first}\né 1 2\nb 1 2\n", encoding="utf-8")
    assert read_vectors(tmp_path / "text")[0] == [*found, "é", "b"]


def test_what_no_format_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"v\.bin: GloVe's format is text"):
        write_vectors(tmp_path / "v.bin", WORDS, VECTORS, "glove")
    with pytest.raises(UserError, match="'new york' has a space"):
        write_vectors(tmp_path / "v.txt", ["new york"], VECTORS[:1], "glove")
    assert not list(tmp_path.iterdir())
