"""Token files: the ids of the whole text whatever the pieces, written once, whole or absent, never of another text."""

import json
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers as rust
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from regard.data import files, token_files
from regard.data.public_tokenizers import read_tokenizers
from regard.data.text_files import TextFile
from regard.data.token_files import encode_pieces, encode_text, token_file, token_key, token_path
from regard.data.tokenizers import Tokenizer, rust_encode_function, train_tokenizer
from regard.errors import UserError

KINDS = ("char", "word", "bpe", "byte-bpe")
LEARNT = ["the fox's den, and it'll snow.\n\n  The  fox naps!\t\u00e9\u4f60\u597d \u2581 don't\r\n" * 3, "aa ab ba"]
TOKENIZERS = {kind: train_tokenizer(kind, LEARNT, 300 if kind == "byte-bpe" else 60) for kind in KINDS}
# Letters, digits, punctuation; every space there is, and what only one of two libraries takes for a space; marks that
# join the letter before them.
ALPHABET = "abt's.,!1 \n\r\t\x0b\x0c\x1c\x1f\x85\xa0\u1680\u180e\u2003\u200b\u2028\u3000\u2581\u4f60\u0301\u0308e"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text counts as large, and is read and encoded in tiny pieces."""
    monkeypatch.setattr(token_files, "SMALL", -1)
    monkeypatch.setattr(token_files, "PIECE", 64)


@pytest.fixture
def text(tmp_path: Path) -> TextFile:
    path = tmp_path / "text.txt"
    path.write_text("The fox naps,\n\n  it's  late.\n" * 200, encoding="utf-8")
    return TextFile(path)


@st.composite
def pieces(draw: st.DrawFn) -> list[str]:
    """A text with runs of spaces in it, cut anywhere."""
    runs = st.tuples(st.sampled_from(ALPHABET), st.integers(1, 3)).map(lambda pair: pair[0] * pair[1])
    text = "".join(draw(st.lists(runs | st.sampled_from(["the fox", "it'll", "  ", "\n\n"]), max_size=40)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150)
@given(given_pieces=pieces())
def test_pieces_have_the_ids_of_the_whole(kind: str, given_pieces: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    found = [id for ids in encode_pieces(tokenizer, given_pieces) for id in ids.tolist()]
    assert found == tokenizer.encode("".join(given_pieces))


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_kept_for_a_while_only(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "MAX_CACHED", 3)
    tokenizer, text = TOKENIZERS[kind], "".join(LEARNT) * 3
    found = np.concatenate(list(encode_pieces(tokenizer, (text[at : at + 7] for at in range(0, len(text), 7)))))
    assert found.tolist() == tokenizer.encode(text) == encode_text(tokenizer, text).tolist()


@pytest.mark.parametrize("make", ["gpt2", "bert", "unigram"])
def test_pieces_have_the_ids_of_the_whole_with_public_tokenizers(make: str, tmp_path: Path) -> None:
    tiny_public = pytest.importorskip("tiny_public")
    if make == "unigram":  # with a space before every text
        inner = rust.Tokenizer(models.Unigram())
        inner.pre_tokenizer = pre_tokenizers.Metaspace()
        inner.train_from_iterator(tiny_public.LINES, trainers.UnigramTrainer(vocab_size=80, unk_token="<unk>"))
        tokenizer = replace(TOKENIZERS["bpe"], kind="sentencepiece", encode_function=rust_encode_function(inner))
    else:
        getattr(tiny_public, make)(tmp_path)
        _, tokenizer = read_tokenizers(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    text = "\n\n".join(tiny_public.LINES) + ".\n  The oven's  warm, at 7 o'clock \n in  the night.\n"
    for size in (1, 5, 40, 1000):
        found = encode_pieces(tokenizer, (text[at : at + size] for at in range(0, len(text), size)))
        assert np.concatenate(list(found)).tolist() == tokenizer.encode(text)


def test_a_text_without_a_space_is_cut_where_it_must_be() -> None:
    tokenizer, text = TOKENIZERS["byte-bpe"], "ab" * 500
    found = np.concatenate(list(encode_pieces(tokenizer, [text, text], longest=100)))
    assert tokenizer.decode(found.tolist()) == text * 2
    found = np.concatenate(list(encode_pieces(tokenizer, [text, text], longest=None)))
    assert found.tolist() == tokenizer.encode(text * 2)


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_file_is_written_once_and_mapped(kind: str, text: TextFile, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, reports = TOKENIZERS[kind], []
    ids = token_file(text, tokenizer, lambda *done: reports.append(done))
    assert ids.tolist() == tokenizer.encode(text.read())
    assert ids.dtype == np.uint16
    assert isinstance(ids.base, np.memmap)
    assert not ids.flags.writeable
    assert reports[0][0] == "checking"
    assert reports[-1] == ("encoding", len(text), len(text))
    path = token_path(text, tokenizer)
    assert path.stat().st_size == ids.nbytes
    about = json.loads(path.with_suffix(".json").read_text())
    assert (about["tokens"], about["bytes"], about["dtype"]) == (len(ids), len(text), "uint16")
    assert not list(path.parent.glob(".*.half"))
    monkeypatch.setattr(token_files, "_write", None)  # would fail if it were called
    assert token_file(text, tokenizer).tolist() == ids.tolist()


@pytest.mark.usefixtures("on_disk")
def test_what_is_not_as_noted_is_written_again(text: TextFile) -> None:
    tokenizer = TOKENIZERS["byte-bpe"]
    ids = token_file(text, tokenizer).tolist()
    path = token_path(text, tokenizer)
    for spoil in (
        lambda: path.write_bytes(path.read_bytes()[:-2]),
        lambda: path.write_bytes(b""),
        lambda: path.unlink(),
        lambda: path.with_suffix(".json").write_text("{"),
        lambda: path.with_suffix(".json").write_text("[]"),
        lambda: path.with_suffix(".json").unlink(),
    ):
        spoil()
        assert token_file(text, tokenizer).tolist() == ids


@pytest.mark.usefixtures("on_disk")
def test_a_link_in_the_cache_is_not_followed(text: TextFile, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS["byte-bpe"]
    path, other = token_path(text, tokenizer), tmp_path / "other"
    other.write_bytes(b"mine")
    token_file(text, tokenizer)
    path.unlink()
    path.symlink_to(other)
    assert token_file(text, tokenizer).tolist() == tokenizer.encode(text.read())
    assert other.read_bytes() == b"mine"
    assert not path.is_symlink()


def test_the_key_names_text_range_and_tokenizer(text: TextFile, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS["bpe"]
    again = Tokenizer.load(_saved(tokenizer, tmp_path / "target.json"))
    key = token_key(text, tokenizer)
    assert token_key(TextFile(text.path), again) == key
    (tmp_path / "same.txt").write_bytes(text.path.read_bytes())
    assert token_key(TextFile(tmp_path / "same.txt"), tokenizer) == key
    (tmp_path / "other.txt").write_bytes(text.path.read_bytes()[:-1] + b"!")
    others = [
        token_key(text.part(1), tokenizer),
        token_key(text.part(0, 20), tokenizer),
        token_key(TextFile(tmp_path / "other.txt"), tokenizer),
        token_key(text, TOKENIZERS["word"]),
    ]
    assert len({key, *others}) == 5


@pytest.mark.usefixtures("on_disk")
def test_a_full_disk_is_refused_before_anything_is_written(
    text: TextFile, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage(100, 90, 10))
    with pytest.raises(UserError, match=r"needs about [\d,]+ bytes, but 10 are free there; .*REGARD_CACHE=FOLDER"):
        token_file(text, TOKENIZERS["char"])
    assert not [path for path in (cache / "tokens").iterdir() if path.suffix in (".bin", ".half")]


@pytest.mark.usefixtures("on_disk")
def test_an_interrupt_leaves_nothing_half_done(text: TextFile, cache: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if what == "encoding" and done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        token_file(text, TOKENIZERS["bpe"], stop)
    assert [path.suffix for path in (cache / "tokens").iterdir()] == [".lock"]


SCRIPT = """
import sys, time
from regard.data import token_files
from regard.data.text_files import TextFile
from regard.data.tokenizers import Tokenizer
token_files.SMALL, token_files.PIECE = -1, 64
ids = token_files.token_file(
    TextFile(sys.argv[1]), Tokenizer.load(sys.argv[2]), lambda *done: time.sleep(float(sys.argv[3]))
)
print(len(ids), int(ids.sum()))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("on_disk")
def test_two_processes_and_one_that_was_killed(text: TextFile, tmp_path: Path, cache: Path) -> None:
    tokenizer = TOKENIZERS["byte-bpe"]
    saved = _saved(tokenizer, tmp_path / "target.json")

    def started(pause: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SCRIPT, str(text.path), str(saved), str(pause)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    killed = started(0.5)
    _wait(lambda: list(cache.glob("tokens/.*.half")))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    both = [started(0.005), started(0.005)]
    answers = {process.communicate(timeout=600)[0] for process in both}
    ids = tokenizer.encode(text.read())
    assert answers == {f"{len(ids)} {sum(ids)}\n"}
    assert [process.returncode for process in both] == [0, 0]
    assert not list(cache.glob("tokens/.*.half"))


def _saved(tokenizer: Tokenizer, path: Path) -> Path:
    tokenizer.save(path)
    return path


def _wait(ready: object, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)
