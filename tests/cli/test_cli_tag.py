"""Tagging, from columns to entities with their places in raw text."""

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.data.example import TaggedText
from regard.errors import UserError
from regard.layers.crf import LinearChain
from regard.report.samples import PICTURED, excerpts
from regard.verbs import load
from regard.verbs.tagging import split_words, tag, tag_words, word_tags

Regard = Callable[..., Any]
PEOPLE, PLACES, VERBS = ("Anna", "John Smith", "Lena Maria Berg"), ("Berlin", "New York"), ("visited", "left")
TINY = ["plan.threads=1", "plan.device=cpu", "plan.batch_tokens=256", "plan.warmup=2", "plan.epochs=none"]
SMALL = ["model.width=16", "model.embed=8", "model.filters=8", "model.character_embed=6", "model.dropout=0.1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of columns, a tagger that has learnt it, and a classifier of the same sentences."""
    folder = tmp_path_factory.mktemp("tag")
    lines, texts = list[str](), list[str]()
    for person, verb, place in product(PEOPLE, VERBS, PLACES):
        for words, kind in ((person, "PER"), (verb, ""), (place, "LOC"), (".", "")):
            letters = ("B", *["I"] * words.count(" "))
            lines += [
                f"{word} X {letter}-{kind}" if kind else f"{word} X O" for word, letter in zip(words.split(), letters)
            ]
        lines.append("")
        texts.append(f"{verb}\t{person} {verb} {place} .")
    (folder / "train.txt").write_text("\n".join(lines))
    (folder / "texts.tsv").write_text("\n".join(texts))
    files = [f"data.train={folder / 'train.txt'}", f"data.valid={folder / 'train.txt'}"]
    plan = ["plan.steps=30", "plan.evaluate=30", "plan.rate=0.05"]
    assert main(["train", "tag", *files, *TINY, *SMALL, *plan, "--out", str(folder / "run")]) == 0
    return folder


def test_entities_have_their_places_in_the_text(regard: Regard, folder: Path) -> None:
    text = "Lena Maria Berg left New York. \n\n  Anna visited Berlin."
    said = regard("tag", folder / "run", stdin=text)
    found = [line.split("\t") for line in said.out.splitlines()]
    assert [[*cells[:4], cells[5]] for cells in found] == [
        ["1", "0", "15", "PER", "Lena Maria Berg"],
        ["1", "21", "29", "LOC", "New York"],
        ["3", "2", "6", "PER", "Anna"],
        ["3", "15", "21", "LOC", "Berlin"],
    ]
    assert all(0 < float(cells[4]) <= 1 and len(cells[4]) == len("0.998") for cells in found)
    lines = text.split("\n")
    objects = [json.loads(line) for line in regard("tag", folder / "run", "--json", stdin=text).out.splitlines()]
    assert [one["line"] for one in objects] == [1, 2, 3]
    for one in (objects[0], objects[2]):
        assert all(lines[one["line"] - 1][e["start"] : e["end"]] == e["text"] for e in one["entities"])
    assert objects[0]["tags"] == ["B-PER", "I-PER", "E-PER", "O", "B-LOC", "E-LOC", "O"]
    assert objects[1] == {"line": 2}


def test_words_may_be_given(regard: Regard, folder: Path) -> None:
    by_line = regard("tag", folder / "run", "--tokens", "lines", stdin="Anna\nleft\nBerlin\n\n\nAnna\n")
    assert by_line.out == "Anna\tS-PER\nleft\tO\nBerlin\tS-LOC\n\nAnna\tS-PER\n\n"
    by_space = regard("tag", folder / "run", "--tokens", "spaces", stdin="Anna left Berlin\n\nAnna\n")
    assert by_space.out == by_line.out
    found = regard("tag", folder / "run", "--tokens", "lines", "--json", stdin="\nAnna\nleft\n\nAnna").out.splitlines()
    assert [json.loads(line)["line"] for line in found] == [2, 5]
    one, alone = tag_words(load(folder / "run"), [["Anna", "left"], []])
    assert (one.words, one.tags, alone.tags) == (("Anna", "left"), ("S-PER", "O"), ())


def test_a_long_text_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward algorithm runs once for all entities of a batch, and not at all where tags alone are wanted."""
    calls, sums = list[int](), LinearChain._forward_sums
    monkeypatch.setattr(LinearChain, "_forward_sums", lambda self, *given: calls.append(1) or sums(self, *given))
    model, texts = load(folder / "run"), ["Anna left Berlin . " * 20]
    assert len(word_tags(model, texts)[0]) == 80
    assert not calls
    (found,) = tag(model, texts)
    assert len(found.entities) == 40
    assert len(calls) == 1


def test_a_picture_of_a_long_sentence_has_its_beginning(folder: Path) -> None:
    text = "Anna left Berlin . " * 100
    (kept,) = excerpts(load(folder / "run"), [TaggedText(text, ("O",) * 400)], 1)
    assert len(kept) <= PICTURED
    assert text.startswith(f"{kept} ")


def test_words_that_are_not_one_word_are_refused(folder: Path) -> None:
    model = load(folder / "run")
    for word in ("New York", "", "Berlin "):
        with pytest.raises(UserError, match=rf"sentence 2: the word '{word}' is empty or has white space"):
            tag_words(model, [["Anna"], ["Anna", word]])
    (found,) = tag_words(model, [["Anna", "left", "New", "York"]])
    assert [(one.text, one.start, one.end) for one in found.entities] == [("Anna", 0, 4), ("New York", 10, 18)]


def test_words_of_raw_text() -> None:
    text = "Peter's U.S. visit cost $1,000.50 – “well-known” (don't ask)."
    words = [
        "Peter",
        "'s",
        "U.S.",
        "visit",
        "cost",
        "$",
        "1,000.50",
        "–",
        "“",
        "well-known",
        "”",
        "(",
        "don't",
        "ask",
        ")",
        ".",
    ]
    assert [text[start:end] for start, end in split_words(text)] == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Jo\u0301hn A\u030a.B\u0327. x", ["Jo\u0301hn", "A\u030a.B\u0327.", "x"]),  # letters and combining marks
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs
        ("co\u00adop می\u200cخواهم", ["co\u00adop", "می\u200cخواهم"]),  # a soft hyphen, a zero-width non-joiner
        ("👩\u200d💻❤\ufe0f!", ["👩\u200d💻", "❤\ufe0f", "!"]),  # one emoji of two, one with a variation selector
        ("\ufeffAnna\u200b Berg", ["Anna", "Berg"]),  # a byte order mark, a space without width
    ],
)
def test_a_letter_keeps_its_marks(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in split_words(text)] == words


def test_the_report_by_type(regard: Regard, folder: Path) -> None:
    found = json.loads(regard("eval", folder / "run", "--json").out)
    assert found["scores"]["entity_f1"] == found["entities"]["all"]["f1"] == 1.0
    assert set(found["entities"]["types"]) == {"LOC", "PER"}
    assert found["entities"]["types"]["PER"]["support"] == 12
    wrong = folder / "wrong.txt"
    wrong.write_text("Anna B-LOC X\nleft O X\nBerlin B-GOD X\n")
    said = regard("eval", folder / "run", "--data", wrong, "data.column=2")
    assert "The most confident mistakes" in said.out
    assert "PER Anna" in said.out
    assert "GOD Berlin" in said.out
    assert "1 of 3 words have tags that the model cannot predict (S-GOD); they count as mistakes" in said.err
    none = regard("eval", folder / "run", "--data", wrong, "data.column=3")
    assert none.code == 2
    assert "the model can predict none of its tags (X); give a file with tags such as" in none.err
    scores = json.loads(regard("eval", folder / "run", "--json", "--data", wrong, "data.column=2").out)
    assert scores["entities"]["all"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 2}
    assert scores["scores"]["accuracy"] == pytest.approx(1 / 3)
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "<h2>By type of entity" in page


def test_parts_of_speech_have_an_accuracy_and_no_entities(regard: Regard, folder: Path) -> None:
    """S is no letter of a scheme among tags of another kind."""
    file, out = folder / "pos.txt", folder / "pos"
    file.write_text("Anna S-PROP\nleft V\nBerlin S-PROP\n. .\n\nhe PRO\nleft V\n. .\n\n" * 5)
    settings = [f"data.train={file}", f"data.valid={file}", *TINY, *SMALL, "plan.evaluate=15", "plan.rate=0.05"]
    said = regard("train", "tag", *settings, "plan.steps=30", "--out", out)
    assert "entity_f1, entity_precision, entity_recall left out, and the best step selected by accuracy" in said.err
    assert "by accuracy" in (out / "report.html").read_text(encoding="utf-8")
    assert json.loads(regard("eval", out, "--json").out)["scores"].keys() == {"loss", "accuracy"}
    spoken = regard("tag", out, stdin="Anna left.\n\nhe left.\n").out
    assert spoken == "Anna\tS-PROP\nleft\tV\n.\t.\n\nhe\tPRO\nleft\tV\n.\t.\n\n"
    assert tag(load(out), ["Anna left."])[0].entities == ()
    assert regard("train", "tag", *settings, "plan.steps=30", "--resume", "--out", out).code == 0


def test_an_extractor_goes_with_the_run(regard: Regard, folder: Path) -> None:
    """The layers of a language model as features of a tagger and of a classifier, which need its directory no more."""
    text = folder / "text.txt"
    text.write_text("\n".join(f"{person} left {place} ." for person, place in product(PEOPLE, PLACES)))
    tiny = [*TINY[:-1], "plan.steps=2", "plan.evaluate=2"]
    inner = ["data=lines", f"data.train={text}", "data.tokens=bpe", "data.vocab=60", "model=lstm", "model.width=8"]
    assert regard("train", "text", *inner, "model.embed=8", *tiny, "--out", folder / "lm").code == 0
    recipes = {"tag": ["plan.epochs=none", f"data.train={folder / 'train.txt'}", f"data.valid={folder / 'train.txt'}"]}
    recipes["classify"] = ["model=bilstm", f"data.train={folder / 'texts.tsv'}", f"data.valid={folder / 'texts.tsv'}"]
    for recipe, settings in recipes.items():
        said = regard("train", recipe, f"from={folder / 'lm'}", *settings, *SMALL, *tiny, "--out", folder / recipe)
        assert said.code == 0, said.err
        assert f"from={folder / 'lm'}: features of 8 numbers for each word, a mix of 3 layers, frozen\n" in said.out
    shutil.move(folder / "lm", folder / "elsewhere")
    model: Any = load(folder / "tag").module
    given: Any = load(folder / "elsewhere").module
    for name, weight in model.body.extractor.body.state_dict().items():
        assert weight.equal(given.state_dict()[name])
    assert regard("tag", folder / "tag", stdin="Anna left Berlin .\n").code == 0
    assert regard("classify", folder / "classify", stdin="Anna left Berlin .\n").code == 0
    assert regard("train", "tag", "--resume", *recipes["tag"][1:], "--out", folder / "tag").code == 0
    more = regard("train", "tag", f"from={folder / 'tag'}", *recipes["tag"], *tiny, "--out", folder / "more")
    assert "all weights taken" in more.out


def test_the_share_of_words_with_vectors_is_told_and_none_is_refused(regard: Regard, folder: Path) -> None:
    tiny = [
        f"data.train={folder / 'train.txt'}",
        *TINY,
        *SMALL,
        "plan.steps=1",
        "--overwrite",
        "--out",
        folder / "vectors",
    ]
    (folder / "some.txt").write_text("anna 1 2\nleft 3 4\nBerlin 5 6\nxyz 7 8\n")
    said = regard("train", "tag", f"from={folder / 'some.txt'}", *tiny)
    assert "25.0% of the training words are known to the model of from=" in said.out  # 3 of 12; Anna in lower case
    (folder / "none.txt").write_text("ähnlich 1 2\nwörter 3 4\n")
    said = regard("train", "tag", f"from={folder / 'none.txt'}", *tiny)
    assert said.code == 2
    assert "none.txt: has no word of the training texts; check its language" in said.err


def test_mistakes_are_one_line(regard: Regard, folder: Path, kim: Path) -> None:
    for arguments, message in (
        (["tag", kim], "this is a classifier, which cannot tag; use: regard classify"),
        (["classify", folder / "run"], "this is a tagger, which cannot classify; use: regard tag"),
        (["tag", folder / "run", "--tokens", "commas"], "--tokens"),
        (["tag", folder / "run"], "standard input: has a word and its tag on each line, not a text; read its words"),
    ):
        said = regard(*arguments, stdin="Anna NN S-PER\nleft VB O\n\nAnna NN B-PER\n")
        assert said.code == 2
        assert message in said.err
        assert len(said.err.strip().splitlines()) == 1
    with pytest.raises(UserError, match="this is one text"):
        tag(load(folder / "run"), "Anna")


@pytest.mark.parametrize("scheme", ["iob2", "bioes"])
def test_the_tags_of_a_file_are_read_in_the_scheme_of_a_public_tagger(
    scheme: str, regard: Regard, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("Anna left Berlin .\n" * 40)
    small = ["model.width=8", "model.heads=2", "model.layers=1", "model.inner=8", *TINY, "plan.steps=1"]
    assert regard("train", "pretrain", "model=bert", "data.train=text.txt", *small, "--out", "bert").code == 0
    given = [f"data.train={folder / 'train.txt'}", f"data.scheme={scheme}", *TINY, "plan.steps=1"]
    assert regard("train", "tag", "from=bert", *given, "--out", "run").code == 0
    assert regard("export", "run", "public").code == 0
    said = regard("eval", "public", "--data", folder / "train.txt")
    assert (said.code, "cannot predict" in said.err) == (0, False), said.err
