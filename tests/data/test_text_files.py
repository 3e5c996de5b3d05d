"""Text files in pieces: nothing is lost, what is no text is refused as ever, packed files are unpacked once."""

import gzip
import hashlib
import json
import lzma
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import override
from regard.data import streams, text_files, token_files
from regard.data.files import read_text
from regard.data.streams import Book, encode_running, encode_sample, joined, tokenizer_sample
from regard.data.text_files import TextExamples, TextFile
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.recipes import KINDS, find_recipe
from regard.training.estimate import estimate
from regard.training.run import Run

LINES = "".join(f"Line {n}: the fox \u00e9\u4f60 naps.\n" + "\n" * (n % 3 == 0) for n in range(4000))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("REGARD_CACHE", str(folder))
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that has not changed for a while."""
    return _old(tmp_path / "text.txt", LINES.encode())


def _old(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    then = time.time_ns() - 10**11
    os.utime(path, ns=(then, then))
    return path


@settings(max_examples=60)
@given(text=st.text(alphabet="ab \n\r\t\u00e9\u4f60\U0001f98a", min_size=1, max_size=200), size=st.integers(1, 50))
def test_pieces_make_up_the_text(tmp_path_factory: pytest.TempPathFactory, text: str, size: int) -> None:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_bytes(text.encode())
    file = TextFile(path)
    pieces = list(file.pieces(size))
    assert "".join(pieces) == text
    assert len(file) == len(text.encode())
    if size > 8:
        assert all(piece.endswith("\n") or "\n" not in piece for piece in pieces[:-1])
    assert joined(TextExamples(file)) == text


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = _old(tmp_path / "bom.txt", b"\xef\xbb\xbfOne.\nTwo.\n")
    assert TextFile(path).read() == "One.\nTwo.\n" == read_text(path)
    assert TextFile(path).part(0, 8).read() == "One.\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n\n",
        b"good\nb\xffd\n",
        b"good\n" * 3000 + b"\xe4\xf6\n",
        b"a\0b",
        b"good\n" * 9000 + b"\xc3",
        b"\xed\xa0\x80",
    ],
)
def test_what_is_no_text_is_refused_in_the_same_words(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "PIECE", 1000)
    path = _old(tmp_path / "bad.txt", data)
    with pytest.raises(UserError) as expected:
        read_text(path)
    with pytest.raises(UserError) as found:
        TextFile(path).check()
    assert str(found.value) == str(expected.value)
    if b"\xe4" in data:  # in a piece of it too, the line is counted from the start of the file
        with pytest.raises(UserError) as found:
            list(TextFile(path).part(len(data) - 8).pieces())
        assert str(found.value) == str(expected.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("none.txt", "none.txt.gz"):
        with pytest.raises(UserError, match="no such file"):
            TextFile(tmp_path / name)
    with pytest.raises(UserError, match="this is a folder"):
        TextFile(tmp_path)


def test_lines_start_where_they_should(path: Path) -> None:
    text, data = TextFile(path), LINES.encode()
    for byte in (0, 1, 17, 1000, len(data) - 3, len(data)):
        at = text.line_start(byte)
        assert at >= byte
        assert at in (0, len(data)) or data[at - 1 : at] == b"\n"
        assert at == byte or b"\n" not in data[byte : at - 1]
    long = TextFile(_old(path.with_name("long.txt"), "\u4f60".encode() * 1000))
    assert [long.line_start(byte, within=100) for byte in (3, 4, 5, 6)] == [3, 6, 6, 6]


def test_a_sample_is_spread_over_the_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "SAMPLE_PIECE", 500)
    text = TextFile(path)
    pieces = list(text.sample(5000))
    assert len(pieces) == 10
    assert all(piece in LINES and piece.endswith("\n") for piece in pieces)
    places = [LINES.index(piece) / len(LINES) for piece in pieces]
    assert all(abs(place - number / 10) < 0.02 for number, place in enumerate(places))
    assert 4000 < sum(map(len, pieces)) < 6000
    assert "".join(text.sample(10**6)) == LINES


def test_a_file_is_hashed_once_until_it_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[str, int, int]] = []
    sha256 = hashlib.sha256(LINES.encode()).hexdigest()
    assert TextFile(path).check(lambda *done: reports.append(done)) == sha256
    assert reports[-1] == ("checking", path.stat().st_size, path.stat().st_size)
    with monkeypatch.context() as patch:
        patch.setattr(TextFile, "_scan", lambda self, report: pytest.fail("read again"))
        assert TextFile(path).sha256 == TextFile(path).part(10).sha256 == sha256
    path.write_bytes(LINES.replace("fox", "cat").encode())  # of the same size, a moment ago
    changed = TextFile(path).sha256
    assert changed != sha256
    path.write_bytes(LINES.encode())
    assert TextFile(path).sha256 == sha256


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_file_is_unpacked_once(
    suffix: str, pack: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = _old(tmp_path / f"text.txt{suffix}", pack(LINES.encode()))  # type: ignore[operator]
    text = TextFile(packed)
    assert text.read() == LINES
    assert text.sha256 == hashlib.sha256(LINES.encode()).hexdigest()
    cut = text.line_start(2000)
    assert text.part(0, cut).read() + text.part(cut).read() == LINES
    with monkeypatch.context() as patch:
        patch.setattr(text_files, "atomic_write", None)  # would fail if it were called
        assert TextFile(packed).path == text.path
    _old(packed, pack(b"Another.\n"))  # type: ignore[operator]
    assert TextFile(packed).read() == "Another.\n"
    whole = packed.read_bytes()
    for damaged in (whole[:-8], bytes([*whole[:-6], whole[-6] ^ 1, *whole[-5:]])):
        _old(packed, damaged)
        with pytest.raises(UserError, match=rf"text\.txt{suffix}: damaged, or not"):
            TextFile(packed)
    assert not list(Path(os.environ["REGARD_CACHE"]).glob("texts/.*.half"))


def test_the_cache_has_no_entry_for_a_file_that_changed_a_moment_ago(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file could change again within the resolution of its time, with the same size."""
    now = time.time_ns()
    monkeypatch.setattr(text_files.time, "time_ns", lambda: now)
    for name, pack in (("text.txt", bytes), ("text.txt.gz", gzip.compress)):
        path = tmp_path / name
        for seconds, entries in ((0, 0), (2, 0), (3, 1)):
            path.write_bytes(pack(LINES.encode()))
            then = now - seconds * 10**9
            os.utime(path, ns=(then, then))
            text = TextFile(path)
            assert text.path.stat().st_mtime_ns == then
            text.check()
            found = [json.loads(entry.read_text()) for entry in sorted(cache.glob("texts/*.json"))]
            assert len(found) == entries * (2 if name.endswith(".gz") else 1)  # of the packed and the unpacked file
        status = path.stat()
        signature = [status.st_size, status.st_mtime_ns, status.st_ino]
        expected = {"signature": signature} | (
            {"text": text.path.name, "bytes": len(LINES.encode())}
            if name.endswith(".gz")
            else {"sha256": hashlib.sha256(LINES.encode()).hexdigest()}
        )
        assert expected in found
        for entry in cache.glob("texts/*.json"):
            entry.unlink()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a few kilobytes count as large."""
    monkeypatch.setattr(streams, "SMALL", 5000)
    monkeypatch.setattr(token_files, "SMALL", 5000)
    monkeypatch.setattr(text_files, "SAMPLE_PIECE", 512)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("packed", [False, True])
def test_a_large_book_stays_on_the_disk(path: Path, packed: bool) -> None:
    if packed:
        path = _old(path.with_name("text.txt.gz"), gzip.compress(LINES.encode()))
    data = Book(train=str(path), tokens="char")
    corpus = data.load()
    assert isinstance(corpus.train, TextExamples)
    assert len(corpus.train) > 10
    assert joined(corpus.train) + joined(corpus.valid) == LINES
    assert joined(corpus.train).endswith("\n")
    assert 0.08 < len(joined(corpus.valid)) / len(LINES) < 0.12
    assert corpus.train[0].text == corpus.train[:2][0].text == corpus.train[-len(corpus.train)].text
    sampled = [one.text for one in tokenizer_sample(data, corpus.train)]
    tokenizer = train_tokenizer("char", sampled, 60)
    sample = encode_sample(tokenizer, corpus.train)
    assert sample is not None
    assert 0 < sample[1] < 1
    ids, key = encode_running(tokenizer, corpus.train)
    assert ids.tolist() == tokenizer.encode(joined(corpus.train))
    assert encode_running(tokenizer, Book(train=str(path), tokens="char").load().train)[1] == key
    assert encode_sample(tokenizer, corpus.train) is None  # the token file has it all


@pytest.mark.usefixtures("large")
def test_an_estimate_encodes_a_sample_only(path: Path, cache: Path, tmp_path: Path) -> None:
    shape = "model=gpt model.width=16 model.heads=2 model.layers=1 model.context=32 plan.threads=1 data.tokens=char"
    settings = [*shape.split(), "plan.batch_tokens=256", "plan.steps=2", f"data.train={path}", "plan.device=cpu"]
    recipe = override(find_recipe("text"), ["data=book", *settings], KINDS)
    found = estimate(recipe)
    text = Book(train=str(path)).load().train
    assert isinstance(text, TextExamples)
    assert not (cache / "tokens").exists()
    assert found.text_bytes == len(text.text)
    assert found.token_bytes == pytest.approx(2 * len(joined(text)), rel=0.05)
    assert found.epoch == pytest.approx(len(joined(text)) / 256, rel=0.05)
    assert found.host_bytes > 10**8
    list(Run(recipe, tmp_path / "run"))
    again = estimate(recipe)  # from the token file
    assert (again.token_bytes, again.epoch) == (2 * len(joined(text)), round(len(joined(text)) / 256))


@pytest.mark.usefixtures("large")
def test_no_more_than_so_many_tokens_are_held_out(path: Path) -> None:
    corpus = Book(train=str(path), valid_tokens=500).load()
    assert 400 <= len(joined(corpus.valid)) <= 500
    assert joined(corpus.train) + joined(corpus.valid) == LINES
    corpus = Book(train=str(path), valid=str(path), valid_tokens=500).load()
    assert len(joined(corpus.train)) == len(LINES)
    assert LINES.startswith(joined(corpus.valid))
    assert 400 <= len(joined(corpus.valid)) <= 560
    assert len(joined(Book(train=str(path), valid=str(path), valid_tokens=0).load().valid)) == len(LINES)
    with pytest.raises(UserError, match=r"data\.valid_tokens=-1: give 1 or more, or 0"):
        Book(train=str(path), valid_tokens=-1).load()


def test_a_small_book_is_cut_at_the_same_character(path: Path) -> None:
    corpus = Book(train=str(path)).load()
    assert joined(corpus.train) == LINES[: int(len(LINES) * 0.9)]
    assert joined(Book(train=str(path), valid_tokens=100).load().valid) == LINES[-100:]


SCRIPT = """
import sys
from pathlib import Path
from regard.config import override
from regard.recipes import KINDS, find_recipe
from regard.training.prepare import prepare
from regard.training.run import Run

def anonymous():
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) // 1024

small, large, out, tokens = sys.argv[1:]
settings = "data=book model=gpt model.width=16 model.heads=2 model.layers=1 model.context=32 plan.threads=1 "
settings += f"data.tokens={tokens} data.vocab=400 plan.steps=4 plan.evaluate=4 plan.batch_tokens=256 "
settings += "data.valid_tokens=1000 plan.device=cpu data.sample_mb=4"
recipe = lambda path: override(find_recipe("text"), [*settings.split(), f"data.train={path}"], KINDS)
list(Run(recipe(small), Path(out) / "small"))
before, most = anonymous(), 0
def report(*done):
    global most
    most = max(most, anonymous())
events = list(Run(recipe(large), Path(out) / "large", report=report))
again = []
Run(recipe(large), Path(out) / "large", "resume", report=lambda *done: again.append(done))
assert not again, again
print(max(most, anonymous()) - before, type(events[-1]).__name__)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="no /proc")
@pytest.mark.parametrize(("megabytes", "tokens"), [(18, "char"), (50, "byte-bpe")])
@pytest.mark.slow
def test_training_on_a_large_text_takes_little_memory(megabytes: int, tokens: str, tmp_path: Path) -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(20_000)]
    block = " ".join(rng.choices(words, k=200_000)).replace("tt", "t\n")
    _old(tmp_path / "small.txt", block[:20_000].encode())
    _old(tmp_path / "large.txt", (block * (1 + megabytes * 10**6 // len(block))).encode())
    command = [sys.executable, "-c", SCRIPT, *map(str, (tmp_path / "small.txt", tmp_path / "large.txt", tmp_path))]
    done = subprocess.run([*command, tokens], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    growth, last = done.stdout.split()[-2:]
    assert last == "Finished"
    assert int(growth) < 400
