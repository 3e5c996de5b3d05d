"""Sources: every way to give text is read, every way to get it wrong is answered, no text is in two parts."""

import gzip
import lzma
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.example import LabelledText, MultiLabelledText, Pair, Text
from regard.data.files import data_folder, read_lines
from regard.data.labelled import Labelled
from regard.data.sources import (
    FRENCH_PARTS,
    GreekEnglish,
    Lines,
    Multi30k,
    Pairs,
    Wmt14,
    hold_out,
    read_pairs,
)
from regard.errors import UserError

needs_data = pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA names no folder of corpora")


def write(path: Path, text: str | bytes) -> str:
    """A file, compressed where its name says so."""
    data = text.encode() if isinstance(text, str) else text
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(data))
    return str(path)


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.xz"])
def test_lines_of_plain_and_packed_files(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "eins\r\nzwei\n\n drei\u2028vier \n")
    assert read_lines(path) == ["eins", "zwei", "", " drei\u2028vier "]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "a.txt", b"\xef\xbb\xbfeins")) == ["eins"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.txt", b"", "is empty"),
        ("blank.txt", b" \n\n", "is empty"),
        ("binary.txt", b"ab\x00cd", "byte 2 is zero"),
        ("wide.txt", "zwei".encode("utf-16"), "UTF-16"),
        ("latin.txt", "eins\nfünf\n".encode("latin1"), r"line 2: not UTF-8 \(byte 0xfc\).*iconv"),
        ("latin.txt.gz", gzip.compress("f\xfcnf\n".encode("latin1"), mtime=0), "line 1: not UTF-8"),
        ("text.gz", b"not packed at all", "damaged, or not gz"),
        ("text.xz", b"not packed at all", "damaged, or not xz"),
        ("cut.gz", gzip.compress(random.Random(0).randbytes(999).hex().encode(), mtime=0)[:500], "damaged"),
        ("cut.xz", lzma.compress(random.Random(0).randbytes(999).hex().encode())[:500], "damaged"),
        ("bent.gz", gzip.compress(b"abc" * 99, mtime=0)[:-8] + bytes(8), "damaged"),
    ],
)
def test_bad_files_are_named_with_a_cure(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=says) as caught:
        read_lines(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.txt: no such file"):
        read_lines(tmp_path / "nowhere.txt")
    with pytest.raises(UserError, match="is a folder"):
        read_lines(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        read_lines(tmp_path / "a\0b")


def test_pairs_with_tabs(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", "eins\tone\n\n zwei \ttwo\tby hand\n\t\ndrei\t\n")
    assert read_pairs(path) == [Pair("eins", "one"), Pair("zwei", "two"), Pair("drei", "")]


def test_a_line_without_a_tab_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", "eins\tone\n\nzwei two\n")
    with pytest.raises(UserError, match=r"pairs\.tsv, line 3: expected source<TAB>target, found 'zwei two'"):
        read_pairs(path)


def test_parallel_files(tmp_path: Path) -> None:
    source = write(tmp_path / "a.de.gz", "eins\n\nzwei\n")
    target = write(tmp_path / "a.en", "one\nnothing\ntwo\n")
    assert read_pairs(f"{source},{target}") == [Pair("eins", "one"), Pair("", "nothing"), Pair("zwei", "two")]
    assert read_pairs(f"{source}, {target}") == read_pairs(f"{source},{target}")
    with pytest.raises(UserError, match="3 files"):
        read_pairs(f"{source},{target},{target}")
    short = write(tmp_path / "short.en", "one\n")
    with pytest.raises(UserError, match=r"a\.de\.gz has 3 lines, .*short\.en has 1"):
        read_pairs(f"{source},{short}")


def test_a_name_may_have_a_comma(tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path / "a,b.tsv", "eins\tone\n")) == [Pair("eins", "one")]


def test_names_that_cannot_be_files_are_refused() -> None:
    for path in ("~no such user/a.tsv", "a" * 300 + ",b.txt"):
        with pytest.raises(UserError):
            Pairs(train=path).load()


def test_pairs_load_their_three_files(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", "eins\tone\nzwei\t\n\tthree\nvier\tfour\n")
    valid = write(tmp_path / "valid.tsv", "acht\teight\n")
    corpus = Pairs(train=train, valid=valid).load()
    assert corpus.train == [Pair("eins", "one"), Pair("vier", "four")]
    assert corpus.valid == [Pair("acht", "eight")]
    assert corpus.test == []
    assert Pairs(train=train, valid=valid, test=valid).load().test == corpus.valid


def test_pairs_that_cannot_be_learnt_from(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.train=FILE"):
        Pairs().load()
    sides = write(tmp_path / "sides.tsv", "eins\t\n\tzwei\n")
    with pytest.raises(UserError, match=r"data\.train=.*sides\.tsv"):
        Pairs(train=sides).load()
    single = write(tmp_path / "single.tsv", "eins\tone\neins\ta\n")
    with pytest.raises(UserError, match=r"data\.valid=FILE"):
        Pairs(train=single).load()
    with pytest.raises(UserError, match=r"data\.valid=.*sides\.tsv"):
        Pairs(train=single, valid=sides).load()


@given(st.lists(st.integers(0, 400), min_size=2, max_size=400).filter(lambda texts: len(set(texts)) > 1))
def test_what_is_held_out_never_straddles(texts: list[int]) -> None:
    examples = [Pair(f"source {text}", f"target {place}") for place, text in enumerate(texts)]
    train, valid = hold_out(examples)
    assert train
    assert valid
    assert sorted(train + valid, key=lambda e: e.target) == sorted(examples, key=lambda e: e.target)
    assert not {e.source for e in train} & {e.source for e in valid}
    smallest = min(texts.count(text) for text in set(texts))
    assert len(valid) <= max(round(0.02 * len(texts)), smallest)
    # The choice hangs on the texts, not on their order.
    assert {e.source for e in hold_out(examples[::-1])[1]} == {e.source for e in valid}


def test_nothing_is_held_out_of_equal_examples(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a dog\tun chien\n" * 60, encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.tsv: too few different examples to hold some out; add some, or give"):
        Pairs(train=str(tmp_path / "pairs.tsv")).load()


def test_how_much_is_held_out() -> None:
    def count(size: int) -> int:
        return len(hold_out([Pair(f"{i}", "x") for i in range(size)])[1])

    assert [count(2), count(100), count(5_000), count(101_000)] == [1, 2, 100, 2000]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), min_size=1, max_size=300))
def test_each_class_stays_in_the_training_examples(drawn: list[tuple[int, int]]) -> None:
    examples = [LabelledText(f"text {text}", f"class {label}") for text, label in drawn]
    train, valid = hold_out(examples)
    assert {one.label for one in train} == {one.label for one in examples}
    assert not {one.text for one in train} & {one.text for one in valid}
    assert len(train) + len(valid) == len(examples)


@given(st.lists(st.tuples(st.integers(0, 60), st.sets(st.integers(0, 9), max_size=3)), min_size=1, max_size=300))
def test_each_of_several_labels_stays_in_the_training_examples(drawn: list[tuple[int, set[int]]]) -> None:
    examples = [MultiLabelledText(f"text {text}", tuple(map(str, labels))) for text, labels in drawn]
    train, valid = hold_out(examples)
    assert {label for one in train for label in one.labels} == {label for one in examples for label in one.labels}
    assert len(train) + len(valid) == len(examples)


def test_classes_with_one_text_each_cannot_be_held_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "good\tday\nbad\train\n")
    with pytest.raises(UserError, match=r"a\.tsv: each text .* class, such as 'good', .* give data\.valid=FILE$"):
        Labelled(train=path).load()
    many = write(tmp_path / "b.tsv", "good\tday\n" + "".join(f"bad\train {i}\n" for i in range(99)))
    assert {one.label for one in Labelled(train=many).load().train} == {"good", "bad"}


def test_lines_are_texts_as_they_stand(tmp_path: Path) -> None:
    train = write(tmp_path / "train.txt", "".join(f" line {i}\n\n" for i in range(100)))
    corpus = Lines(train=train).load()
    assert len(corpus.train) == 98
    assert len(corpus.valid) == 2
    assert set(corpus.train + corpus.valid) == {Text(f" line {i}") for i in range(100)}


def test_labelled_texts(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", "good\ta fine day\nbad\train again\ngood\t\n")
    corpus = Labelled(train=train, valid=train).load()
    assert corpus.train == [LabelledText("a fine day", "good"), LabelledText("rain again", "bad")]
    with pytest.raises(UserError, match=r"line 1: expected label<TAB>text"):
        Labelled(train=write(tmp_path / "x.tsv", "no label here\n")).load()


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert data_folder() is None
    for source in (Multi30k(), GreekEnglish()):
        with pytest.raises(UserError, match="REGARD_DATA is not set"):
            source.load()
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    with pytest.raises(UserError, match=r"multi30k/train\.xx\.gz: not found; set REGARD_DATA"):
        Multi30k(source="xx").load()
    with pytest.raises(UserError, match=r"wmt14/train\.en: not found; .*, or add --download"):
        Wmt14().load()


def test_multi30k_reads_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("de", "en", "fr"):
            write(folder / f"{part}.{language}.gz", f"{part} {language}\n")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    corpus = Multi30k().load()
    assert corpus.train == [Pair("train de", "train en")]
    assert corpus.valid == [Pair("val de", "val en")]
    assert Multi30k(source="en", target="fr").load().test == [Pair("test_2016_flickr en", "test_2016_flickr fr")]


def test_wmt14_reads_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wmt14"
    folder.mkdir()
    for part in ("train", "newstest2013", "newstest2014"):
        for language in ("en", "de"):
            write(folder / f"{part}.{language}", f"{part} {language}\n")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    corpus = Wmt14().load()
    assert list(corpus.train) == [Pair("train en", "train de")]
    assert corpus.valid == [Pair("newstest2013 en", "newstest2013 de")]
    assert Wmt14(source="de", target="en").load().test == [Pair("newstest2014 de", "newstest2014 en")]
    write(folder / "train.en.gz", "packed\n")
    (folder / "train.en").unlink()
    assert list(Wmt14().load().train) == [Pair("packed", "train de")]


def test_wmt14_reads_the_public_files_of_french(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wmt14" / "fr-en"
    folder.mkdir(parents=True)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    for language in ("en", "fr"):
        for count, part in enumerate(FRENCH_PARTS, 1):
            write(folder / f"{part}.{language}", "".join(f"{part} {number} {language}\n" for number in range(count)))
        write(folder / f"newstest2013.{language}", f"valid {language}\n")
        for side in ("src", "ref"):
            lines = f'<seg id="1">one &amp; {language}</seg>\n<seg id="2"> two\n{language} </seg>\n'
            write(folder / f"newstest2014-fren-{side}.{language}.sgm", f'<refset trglang="x">\n<doc>{lines}</doc>')
    corpus = Wmt14(target="fr").load()
    assert len(corpus.train) == 1 + 2 + 3 + 4 + 5
    parts = list(FRENCH_PARTS)
    assert corpus.train[0] == Pair(f"{parts[0]} 0 en", f"{parts[0]} 0 fr")
    assert corpus.train[2] == Pair(f"{parts[1]} 1 en", f"{parts[1]} 1 fr")
    assert corpus.train[-1] == Pair(f"{parts[4]} 4 en", f"{parts[4]} 4 fr")
    assert corpus.train[13:20] == list(corpus.train)[13:]
    assert corpus.valid == [Pair("valid en", "valid fr")]
    assert corpus.test == [Pair("one & en", "one & fr"), Pair("two en", "two fr")]
    back = Wmt14(source="fr", target="en").load()
    assert (back.train[0].target, back.test[0]) == (corpus.train[0].source, Pair("one & fr", "one & en"))
    write(folder / "newstest2014-fren-ref.fr.sgm", '<seg id="1">one</seg>')
    with pytest.raises(UserError, match=r"has 2 segments, .*ref\.fr\.sgm has 1; give the two files of one test set"):
        Wmt14(target="fr").load()
    (folder / f"{parts[2]}.fr").unlink()
    with pytest.raises(UserError, match=r"undoc\.2000\.fr-en\.fr: not found; .*training-parallel-un\.tgz of statmt"):
        Wmt14(target="fr").load()
    with pytest.raises(UserError, match=r"data\.source=de data\.target=fr: WMT 14 has English with German or French"):
        Wmt14(source="de", target="fr").load()


def test_greek_english_reads_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "align_bible").mkdir()
    path = tmp_path / "align_bible" / "grc-eng.SBLGNT-BSB.manual.tsv.gz"
    write(path, "".join(f"{i}\talpha beta {i}\ta b {i}\t0-0 1-1 1-2\n" for i in range(1000)) + "x\tgamma\tc\t\n")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    corpus = GreekEnglish().load()
    parts = (corpus.train, corpus.valid, corpus.test)
    assert sum(map(len, parts)) == 1001
    assert 30 <= len(corpus.valid) <= 70
    assert 30 <= len(corpus.test) <= 70
    linked = {e.links for part in parts for e in part}
    assert linked == {frozenset({(0, 0), (1, 1), (1, 2)}), frozenset()}
    assert GreekEnglish().load() == corpus
    write(path, "1\talpha\ta\t0:0\n")
    with pytest.raises(UserError, match=r"line 1: links must read"):
        GreekEnglish().load()


@needs_data
def test_the_public_corpora_have_their_published_sizes() -> None:
    corpus = Multi30k().load()
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [29_000, 1_014, 1_000]
    aligned = GreekEnglish().load()
    everything = aligned.train + aligned.valid + aligned.test
    assert len(everything) == 7_919
    assert sum(len(e.links or ()) for e in everything) == 189_473
    for e in everything:
        assert all(i < len(e.source.split()) and j < len(e.target.split()) for i, j in e.links or ())
