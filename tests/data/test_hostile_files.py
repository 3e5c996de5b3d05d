"""Files that would fill the memory, or never end, are refused in one line or read as a stream."""

import gzip
import json
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers as rust
from tokenizers import models

from regard import embed, load
from regard.cli import lines
from regard.data import files
from regard.data.files import iterate_lines, opened, read_text
from regard.data.public_tokenizers import read_tokenizers
from regard.data.public_vocab import names_by_id
from regard.data.streams import Book
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.errors import UserError
from regard.file_io import load_tensors, read_json
from tiny_public import bert


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can reach."""
    monkeypatch.setattr(files, "MOST_UNPACKED", 2**16)
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)


@pytest.mark.parametrize(("end", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_file_that_grows_without_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None, end: str, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / f"bomb.txt{end}"
    path.write_bytes(pack(b"a line of text\n" * 2**20))
    for read in (read_text, lambda path: Book(train=str(path)).load()):
        with pytest.raises(UserError, match=r"bomb.*: unpacks to more than [\d,]+ bytes, 50 times its size"):
            read(path)
    first = next(iter(lines.chunks(str(path))))  # a stream: nothing more is unpacked than is used
    assert first == (1, ["a line of text"] * lines.AHEAD)
    path.write_bytes(pack(b"a line of text\n" * 100))  # small, and packed well: no harm
    assert len(list(iterate_lines(path))) == 100


@pytest.mark.parametrize(("end", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_file_may_have_the_larger_of_two_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"text.txt{end}"
    text = b"a line of text.\n" * 1000  # 16,000 bytes
    path.write_bytes(pack(text))
    packed = path.stat().st_size
    for most, ratio, read in (
        (16_000, 0, True),
        (15_999, 0, False),
        (0, -(-16_000 // packed), True),
        (0, 16_000 // packed - 1, False),
        (16_000, 1, True),
        (1, -(-16_000 // packed), True),
    ):
        monkeypatch.setattr(files, "MOST_UNPACKED", most)
        monkeypatch.setattr(files, "MOST_RATIO", ratio)
        if read:
            assert read_text(path).encode() == text
        else:
            with pytest.raises(UserError, match=f"more than {max(most, ratio * packed):,} bytes, {ratio} times"):
                read_text(path)


def test_a_line_that_does_not_end(tmp_path: Path, small: None) -> None:
    (tmp_path / "text").write_bytes(b"short\n" + b"x" * 1001)
    with pytest.raises(UserError, match=r"text, line 2: longer than 1,000 bytes"):
        list(iterate_lines(tmp_path / "text"))


def test_a_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for read in (iterate_lines, lambda path: opened(path).__enter__()):
        with pytest.raises(UserError, match=r"pipe\.json: a pipe, not a file"):
            list(read(tmp_path / "pipe.json"))
    (tmp_path / "zeros.json").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.json", tmp_path / "zeros.json"):
        for load_file in (read_json, load_tensors):
            with pytest.raises(UserError, match="a pipe or a device, not a file"):
                load_file(path)


def test_a_pipe_of_lines_for_a_command(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"one\ntwo\n")
    os.close(write)
    assert list(lines.chunks(f"/dev/fd/{read}")) == [(1, ["one", "two"])]
    os.close(read)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000])
def test_json_that_is_nested_too_deep(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json: damaged or not JSON"):
        read_json(tmp_path / "config.json")


def test_a_tokenizer_at_which_its_library_panics(tmp_path: Path) -> None:
    """A panic of Rust code is no Exception."""
    path = tmp_path / "tokenizer.json"
    train_tokenizer("bpe", ["ab ba abc"], 20).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["continuing_subword_prefix"] = "../../x"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer of Regard, or damaged"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    "option", [{"dropout": 0.9}, {"ignore_merges": True}, {"end_of_word_suffix": "</w>"}, {"unk_token": None}]
)
def test_a_saved_vocabulary_with_options_that_change_ids(tmp_path: Path, option: dict[str, Any]) -> None:
    """With dropout, the same text has other ids each time; a page knows none of these options."""
    path = tmp_path / "tokenizer.json"
    train_tokenizer("bpe", ["ab ba abc"], 20).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"].update(option)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="it splits text in another way"):
        Tokenizer.load(path)


def test_a_saved_vocabulary_that_cuts_texts_reads_them_whole(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    given = train_tokenizer("word", ["ab ba abc"], 20)
    given.save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["truncation"] = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert Tokenizer.load(path).encode("ab abc") == given.encode("ab abc")


def test_a_saved_vocabulary_with_one_id_twice(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    train_tokenizer("word", ["ab ba abc"], 20).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["vocab"]["ab"] = content["model"]["vocab"]["ba"] = 4
    content["model"]["vocab"]["abc"] = 6
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="two of its tokens have the same id"):
        Tokenizer.load(path)


@pytest.mark.parametrize("vocab", [{"a": 0, "b": 10**12}, {"a": -1}])
def test_ids_far_beyond_a_vocabulary(vocab: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="the ids of its"):
        names_by_id(vocab)
    assert names_by_id({"a": 3}) == ["", "", "", "a"]


@pytest.mark.parametrize("number", [2_000_000, 2**31])
def test_an_id_far_beyond_a_saved_vocabulary(tmp_path: Path, number: int) -> None:
    """The library writes a place for every id up to the last one: at 2**31 it would end the process."""
    path = tmp_path / "tokenizer.json"
    train_tokenizer("word", ["ab ba abc"], 20).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["vocab"]["abc"] = number
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=f"tokenizer.json: .*it has 7 tokens, but ids up to {number:,}"):
        Tokenizer.load(path)
    with pytest.raises(UserError, match=f"it has 7 tokens, but ids up to {number:,}"):
        read_tokenizers(tmp_path, {"model_type": "gpt2"})  # such a file in a public directory is an exported tokenizer


@pytest.mark.parametrize("number", [2_000_000, 2**31])
@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
def test_an_id_far_beyond_a_public_vocabulary(tmp_path: Path, name: str, number: int) -> None:
    content = json.loads(rust.Tokenizer(models.BPE({"a": 0, "b": 1}, [])).to_str())
    vocab = content["model"]["vocab"]
    vocab["b"] = number
    (tmp_path / name).write_text(json.dumps(content if name == "tokenizer.json" else vocab))
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(UserError, match=rf"{name}: damaged.*the ids of its 2 tokens reach from 0 to {number}"):
        read_tokenizers(tmp_path, {"model_type": "gpt2"})


def test_ids_of_added_tokens_take_no_memory(tmp_path: Path) -> None:
    """Added tokens get the next free ids; those in the files only order them."""
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"x": 2**40, "y": 10**30}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {2**31: {"content": "q"}}}))
    assert read_tokenizers(tmp_path, {"model_type": "bert"})[1].encode("a q x y") == [5, 6, 7, 8]


def test_a_million_sentinels(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(b"\n\3\n\1a" * 3)  # three pieces
    (tmp_path / "tokenizer_config.json").write_text('{"extra_ids": 1000000}')
    with pytest.raises(UserError, match=r"spiece\.model: damaged.*extra_ids is 1,000,000"):
        read_tokenizers(tmp_path, {"model_type": "t5"})


@pytest.mark.parametrize("model", [models.Unigram([("a", -1.0)], None), models.WordLevel({"a": 0}, unk_token="?")])
def test_a_vocabulary_without_an_unknown_token(tmp_path: Path, model: models.Model) -> None:
    (tmp_path / "tokenizer.json").write_text(rust.Tokenizer(model).to_str())
    tokenizer = read_tokenizers(tmp_path, {"model_type": "gpt2"})[1]
    assert tokenizer.encode("a") == [0]
    refused = "'b': the tokenizer cannot encode this text .*; remove what its vocabulary does not have"
    for read in (tokenizer.encode, tokenizer.unknown, lambda text: tokenizer.offsets(["a", text, "c"])):
        with pytest.raises(UserError, match=refused):
            read("b")


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of sentence-transformers."""
    folder = tmp_path_factory.mktemp("sentences")
    bert(folder)
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "pool", "type": "x.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "pool").mkdir()
    (folder / "pool" / "config.json").write_text('{"pooling_mode": "mean"}')
    return folder


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"hidden_act": []}),
        ("config.json", {"hidden_act": {"a": 1}}),
        ("config.json", []),
        ("tokenizer_config.json", None),
        ("tokenizer_config.json", [[]]),
        ("special_tokens_map.json", 5),
        ("sentence_bert_config.json", {"max_seq_length": -1}),
        ("sentence_bert_config.json", {"max_seq_length": True}),
        ("config_sentence_transformers.json", {"prompts": True, "default_prompt_name": "a"}),
        ("config_sentence_transformers.json", {"prompts": {"a": 5}, "default_prompt_name": "a"}),
        ("config_sentence_transformers.json", {"prompts": {"a": "b"}, "default_prompt_name": []}),
        ("config_sentence_transformers.json", "text"),
    ],
)
def test_odd_types_in_the_files_of_a_checkpoint(sentences: Path, file: str, change: Any) -> None:
    path = sentences / file
    before = path.read_text() if path.is_file() else None
    path.write_text(json.dumps(json.loads(before or "{}") | change if isinstance(change, dict) else change))
    with pytest.raises(UserError, match=re.escape(str(sentences))):
        embed(load(sentences), ["the heron"])
    path.write_text(before) if before is not None else path.unlink()
