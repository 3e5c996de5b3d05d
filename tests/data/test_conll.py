"""Files of columns: what is read, the scheme that is learnt, mistakes with their line, tags that only dev has."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from regard.data.batches import IGNORED
from regard.data.characters import word_characters
from regard.data.conll import Conll, read_conll
from regard.data.example import TaggedText
from regard.data.fields import EntityTags
from regard.data.spelled import CHARACTERS, MOST_PIECES, SpelledText
from regard.data.tokenizers import UNK, train_tokenizer
from regard.errors import UserError

TEXT = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

-DOCSTART- -X- -X- O
Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER


New NNP B-NP B-LOC
York NNP I-NP I-LOC"""


def write(folder: Path, text: str, name: str = "train.txt") -> str:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_sentences_are_between_blank_lines(tmp_path: Path, name: str) -> None:
    sentences = list(read_conll(write(tmp_path, TEXT.replace("\n", "\r\n"), name)))
    assert [one.words for one in sentences] == [["EU", "rejects"], ["Peter", "Blackburn"], ["New", "York"]]
    assert [one.tags for one in sentences] == [["B-ORG", "O"], ["B-PER", "I-PER"], ["B-LOC", "I-LOC"]]
    assert [one.lines for one in sentences] == [[3, 4], [7, 8], [11, 12]]


def test_a_column_is_chosen_by_its_number(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    assert [one.tags for one in read_conll(path, 2)] == [["NNP", "VBZ"], ["NNP", "NNP"], ["NNP", "NNP"]]
    assert Conll(path, path, column=2).load().train[0] == TaggedText("EU rejects", ("NNP", "VBZ"))


def test_a_no_break_space_separates_no_columns(tmp_path: Path) -> None:
    (sentence,) = read_conll(write(tmp_path, "10\u00a0000\tO\n\u2003 O \nBerlin\t B-LOC\n\u00a0\n"))
    assert sentence.words == ["10_000", "_", "Berlin"]
    assert sentence.tags == ["O", "O", "B-LOC"]


@pytest.mark.parametrize("scheme", ["bioes", "iob2"])
@pytest.mark.parametrize(
    "tags",
    ["I-PER I-PER B-PER O I-LOC", "B-PER I-PER B-PER O B-LOC", "B-PER E-PER S-PER O S-LOC"],
    ids=["iob1", "iob2", "bioes"],
)
def test_each_scheme_becomes_the_one_that_is_learnt(tmp_path: Path, tags: str, scheme: str) -> None:
    path = write(tmp_path, "".join(f"w{place} {tag}\n" for place, tag in enumerate(tags.split())))
    corpus = Conll(path, path, scheme=scheme).load()  # type: ignore[arg-type]
    learnt = {"bioes": "B-PER E-PER S-PER O S-LOC", "iob2": "B-PER I-PER B-PER O B-LOC"}
    assert " ".join(corpus.train[0].tags) == learnt[scheme]
    assert corpus.warnings == ()


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("a B-PER\nb I-PER\n\nc O\nd I-PER\ne I-LOC\n", 'line 5: "I-PER" cannot be there in IOB2, and 1 other'),
        ("a B-PER\nb O\nc S-LOC\n", 'line 1: "B-PER" is not continued in BIOES; it is read as the last word'),
        ("a S-PER\n\nb B-LOC\n", 'line 3: "B-LOC" is not continued in BIOES;'),
        ("a S-PER\nb E-LOC\n", 'line 2: "E-LOC" cannot be there in BIOES; it is read as the first word'),
    ],
)
def test_an_illegal_tag_is_a_warning_with_its_line(tmp_path: Path, text: str, warning: str) -> None:
    path = write(tmp_path, text)
    assert f"{path}, {warning}" in Conll(path, path).load().warnings[0]


def test_a_tag_of_no_scheme_among_others_is_refused(tmp_path: Path) -> None:
    """Wherever it is: a file with one such tag is not read by another scheme than the others."""
    text = "a B-PER\nb I-PER\nc O\n"
    good, bad = write(tmp_path, text), write(tmp_path, text + "\nd 0\ne 0\n", "bad.txt")
    for files in ((good, bad), (bad, good), (good, good, bad), (bad, bad)):
        with pytest.raises(UserError, match=r'bad.txt, line 5: "0" is no tag of a scheme, as "B-PER" is; 2 words'):
            Conll(*files).load()


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a X O\nb O\n", {}, r"train.txt, line 2: 2 columns, 'b O'; expected 3 columns"),
        ("a O\nneg\ta dull film\n", {}, r"line 2: a column has several words, .*: each word is on a line of its own"),
        ("\n\nword\n", {}, r"train.txt, line 3: 1 columns, 'word'; expected a word and its tag"),
        ("a O\n", {"column": 3}, r"data.column=3: .*train.txt has 2 columns"),
        ("a O\n", {"column": 1}, r"data.column=1: the first column has the words"),
        ("a O\nb B-\n", {}, r'train.txt, line 2: "B-" has no type after the hyphen; write a tag such as B-PER'),
        ("\n", {}, r"train.txt: the file is empty"),
        ("a O\n", {"tokens": "char"}, r"data.tokens=char: each word has a tag"),
    ],
)
def test_mistakes_name_the_file_and_the_line(tmp_path: Path, text: str, settings: dict, message: str) -> None:  # type: ignore[type-arg]
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=message):
        Conll(path, path, **settings).load()


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"a O\n\xff O\n")
    with pytest.raises(UserError, match=r"bad.txt, line 2"):
        list(read_conll(tmp_path / "bad.txt"))


def test_tags_that_only_dev_has(tmp_path: Path) -> None:
    """A letter of a known type is a class; a type that is unknown is no class, counts for nothing, and is warned of."""
    train = write(tmp_path, "a B-PER\nb I-PER\nc O\n")
    valid = write(tmp_path, "a B-PER\n\nd B-GOD\ne O\n", "valid.txt")
    corpus = Conll(train, valid).load()
    tags = EntityTags.fit((one.tags for one in corpus.train), "tags", None)
    assert tags.names == ("B-PER", "E-PER", "I-PER", "O", "S-PER")
    assert tags.counts == (1, 1, 0, 1, 0)
    assert tags.encode([one.tags for one in corpus.valid]) == [[4], [IGNORED, 3]]
    assert any("data.valid: 1 words have tags that no training sentence has (S-GOD)" in one for one in corpus.warnings)
    tags.save(tmp_path / "tags.json")
    assert EntityTags.load(tmp_path / "tags.json") == tags


def test_classes_without_a_scheme_are_not_completed() -> None:
    assert EntityTags.fit([["NN", "VB"], ["NN"]], "tags", None).names == ("NN", "VB")


# Words with their characters


def test_a_word_has_its_id_and_its_characters() -> None:
    field = SpelledText(train_tokenizer("word-lower", ["the old man"], 100))
    (rows, none) = field.encode(["The  xyz", ""])
    assert rows.shape == (2, 1 + CHARACTERS)
    assert rows[:, 0].tolist() == [field.tokenizer.encode("the")[0], UNK]
    assert np.array_equal(rows[0, 1:], word_characters("The", CHARACTERS))
    assert np.array_equal(rows[1, 1:], word_characters("xyz", CHARACTERS))
    assert none.shape == (0, 1 + CHARACTERS)


@pytest.mark.parametrize("kind", ["word", "bpe", "byte-bpe", "char"])
def test_a_word_has_the_tokens_of_an_extractor(tmp_path: Path, kind: str) -> None:
    """Those of the whole text, divided among its words; they survive saving."""
    text = "the old man saw the sea"
    tokenizer = train_tokenizer(kind, [text], 300)
    made = SpelledText(train_tokenizer("word", [text], 100)).with_extractor(tokenizer, 0, [text])
    made.save(tmp_path / "text.json")
    field = SpelledText.load(tmp_path / "text.json")
    (rows,) = field.encode([text])
    pieces = rows[:, 1 + CHARACTERS :]
    assert pieces.shape[1] == field.pieces <= MOST_PIECES
    assert (pieces[pieces > 0] - 1).tolist() == tokenizer.encode(text)


def test_a_word_is_known_if_all_its_tokens_are() -> None:
    tokenizer = train_tokenizer("bpe", ["the old man saw the sea"], 300)
    field = SpelledText(train_tokenizer("word", ["the"], 100)).with_extractor(tokenizer, 0, ["the theλ βήτα old"])
    assert field.known == 0.5


@pytest.mark.parametrize("changed", [{"pieces": "x"}, {"pieces": -1}, {"pieces": None}, {"words": None}])
def test_damaged_words_are_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    path = tmp_path / "text.json"
    SpelledText(train_tokenizer("word", ["a b"], 100)).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(UserError, match=r"text\.json"):
        SpelledText.load(path)


def test_an_unknown_word_of_word_vectors_is_read_in_lower_case() -> None:
    tokenizer = train_tokenizer("word", ["berlin Paris"], 100)
    field = SpelledText(tokenizer).with_extractor(tokenizer, 0, ["Berlin"])
    (rows,) = field.encode(["Berlin PARIS Paris"])
    unknown, known = UNK + 1, [tokenizer.encode(word)[0] + 1 for word in ("berlin", "Paris")]
    assert rows[:, 1 + CHARACTERS].tolist() == [known[0], unknown, known[1]]


def test_an_extractor_may_read_characters() -> None:
    field = SpelledText(train_tokenizer("word", ["a b"], 100)).with_extractor(None, 6, [])
    assert field.encode(["ab"])[0][0, 1 + CHARACTERS :].tolist() == (word_characters("ab", 6) + 1).tolist()
