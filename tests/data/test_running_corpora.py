"""Public corpora of running text, on small files of the same format; and the last words of LAMBADA."""

import gzip
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import UserError, load
from regard.data.running_corpora import Hello, Ptb, PtbChar, Text8, WikiText2, WikiText103, lambada
from regard.data.streams import encode_running, joined
from regard.data.text_files import LONGEST, passages
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.verbs.scoring import last_words
from tiny_public import gpt2

PTB = {"train": " the <unk> is N \n a dog \n", "valid": " the dog \n", "test": " a <unk> \n \n"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def fitted(corpus: Ptb) -> tuple[Tokenizer, list[list[str]]]:
    """The tokenizer of a corpus, and the pieces of its parts."""
    parts = corpus.load()
    tokenizer = train_tokenizer(corpus.tokens, (one.text for one in parts.train), corpus.vocab)
    ids = (encode_running(tokenizer, part)[0] for part in (parts.train, parts.valid, parts.test))
    return tokenizer, [tokenizer.pieces(part.tolist()) for part in ids]


def test_ptb_has_an_eos_for_each_line(data: Path) -> None:
    for part, text in PTB.items():
        write(data / f"ptb/ptb.{part}.txt.gz", text)
    tokenizer, (train, valid, test) = fitted(Ptb())
    assert train == ["the", "<unk>", "is", "N", "<eos>", "a", "dog", "<eos>"]
    assert valid == ["the", "dog", "<eos>"]
    assert test == ["a", "<unk>", "<eos>", "<eos>"]
    assert tokenizer.size == 4 + 7
    assert tokenizer.decode(tokenizer.encode("the dog\n a dog")) == "the dog\n a dog"
    assert tokenizer.kind == "word-eos"


def test_ptb_by_characters_drops_the_space_before_a_line(data: Path) -> None:
    for part, text in PTB.items():
        write(data / f"ptb/ptb.{part}.txt.gz", text)
    corpus = PtbChar().load()
    assert [joined(part) for part in (corpus.train, corpus.valid, corpus.test)] == [
        "the <unk> is N \na dog \n",
        "the dog \n",
        "a <unk> \n\n",
    ]


def test_ptb_by_characters_reads_a_file_of_ones_own_as_a_book(tmp_path: Path) -> None:
    write(tmp_path / "own.txt", " a dog\n" * 40)
    corpus = PtbChar(train=str(tmp_path / "own.txt")).load()
    assert "".join(map(joined, (corpus.train, corpus.valid, corpus.test))).count("a dog") >= 39


@pytest.mark.parametrize(("corpus", "folder"), [(WikiText2(), "wikitext2"), (WikiText103(), "wikitext-103")])
def test_wikitext_reads_the_files_of_its_archive(data: Path, corpus: Ptb, folder: str) -> None:
    for part in ("train", "valid", "test"):
        write(data / f"{folder}/wiki.{part}.tokens", f" \n = {part} = \n \n A <unk> @-@ word . \n")
    _, (train, valid, _) = fitted(corpus)
    assert train == ["<eos>", "=", "train", "=", "<eos>", "<eos>", "A", "<unk>", "@-@", "word", ".", "<eos>"]
    assert len(valid) == len(train)


def test_text8_is_split_by_characters(data: Path) -> None:
    text = "".join(f"{chr(97 + n % 26)} " for n in range(1000))
    write(data / "text8/text8", text)
    corpus = Text8().load()
    parts = [joined(part) for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in parts] == [1800, 100, 100]
    assert "".join(parts) == text


def test_a_large_text8_is_split_on_disk(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.streams.SMALL", 512)
    monkeypatch.setattr("regard.data.token_files.SMALL", 512)
    text = "".join(f"{chr(97 + n % 26)} " for n in range(1000))
    write(data / "text8/text8", text)
    corpus = Text8().load()
    tokenizer = train_tokenizer("char", [text], 60)
    found = [encode_running(tokenizer, part)[0] for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in found] == [1800, 100, 100]
    np.testing.assert_array_equal(np.concatenate(found), tokenizer.encode(text))
    backward = encode_running(tokenizer.in_direction("backward"), corpus.train)[0]
    np.testing.assert_array_equal(backward, found[0][::-1])


def test_a_missing_corpus_is_named(data: Path) -> None:
    with pytest.raises(UserError, match=r"ptb/ptb\.train\.txt\.gz: not found; set REGARD_DATA"):
        Ptb().load()


def test_hello_is_one_word() -> None:
    assert joined(Hello().load().train) == "hello"


def test_no_word_is_cut_between_passages() -> None:
    text = "word " * LONGEST
    found = list(passages(text))
    assert "".join(found) == text
    assert {word for passage in found for word in passage.split()} == {"word"}


def test_the_last_word_is_that_of_the_reference(tmp_path: Path) -> None:
    """Each token of the word, given the text before it: by the logits of `transformers`."""
    reference = gpt2(tmp_path)
    model = load(tmp_path, device="cpu")
    texts = ["the grey heron stood by the water", "a lamp swung", "rain fell on the roof all night"]
    table = tmp_path / "lambada.jsonl"
    table.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{one.text}\n" for one in lambada(str(table))), encoding="utf-8")
    assert lambada(str(lines)) == lambada(str(table))
    found = last_words(model, [one.text for one in lambada(str(table))])
    nats, right = 0.0, 0
    for text in texts:
        before, ids = model.tokenizer.encode(text.rpartition(" ")[0]), model.tokenizer.encode(text)
        with torch.no_grad():
            logps = reference(torch.tensor([ids])).logits[0].log_softmax(-1)  # type: ignore[operator]
        word = range(len(before), len(ids))
        nats -= sum(float(logps[at - 1, ids[at]]) for at in word)
        right += all(int(logps[at - 1].argmax()) == ids[at] for at in word)
    assert (found.texts, found.right) == (3, right)
    assert found.perplexity == pytest.approx(math.exp(nats / 3), rel=1e-4)
    with pytest.raises(UserError, match="line 2: 'alone' has no text before its last word"):
        last_words(model, ["a lamp", "alone"])


@pytest.mark.slow
@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA is not set")
@pytest.mark.parametrize(
    ("corpus", "sizes", "vocab"),
    [(Ptb(), [929_589, 73_760, 82_430], 10_000), (PtbChar(), [5_059_550, 396_412, 446_184], 50)],
)
def test_the_penn_treebank_has_its_published_size(corpus: Ptb, sizes: list[int], vocab: int) -> None:
    tokenizer, parts = fitted(corpus)
    assert [len(part) for part in parts] == sizes
    assert tokenizer.size - 4 == vocab
