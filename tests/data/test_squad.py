"""Questions about passages: files of SQuAD, tables, their mistakes, and windows of long passages."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data.answers import FIRST, IN_PASSAGE, LAST, AnsweredField, AnswerText, windows
from regard.data.example import Asked, Question
from regard.data.public_tokenizers import read_tokenizers
from regard.data.squad import Questions, read_squad
from regard.errors import UserError

PASSAGE = "Ada wrote the notes in 1843. Charles built the engine."


def squad(qas: list[Any], passage: Any = PASSAGE, version: str = "v2.0") -> dict[str, Any]:
    return {"version": version, "data": [{"title": "Ada", "paragraphs": [{"context": passage, "qas": qas}]}]}


def asked(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": "Who wrote the notes?", "answers": listed, **more}


def written(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_both_versions_are_read_with_all_answers(tmp_path: Path) -> None:
    qas = [
        asked("1", ("Ada", 0), ("Ada wrote", 0)),
        asked("2", is_impossible=True, plausible_answers=[]),
        asked("3", ("1843", 23)),
    ]
    path = written(tmp_path / "train.json", squad(qas))
    first, second, third = read_squad(path)
    assert first.answers == (("Ada", 0), ("Ada wrote", 0))
    assert first.text == Asked("Who wrote the notes?", PASSAGE, (0, 3))
    assert second.answers == ()
    assert second.text.span is None
    assert not second.answered
    assert third.id == "3"
    packed = tmp_path / "train.json.gz"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    corpus = Questions(train=str(packed), valid=path).load()
    assert corpus.train == [first, second, third] == corpus.valid


def test_held_out_questions_are_about_other_passages(tmp_path: Path) -> None:
    content = squad([])
    content["data"][0]["paragraphs"] = [
        {"context": f"Ada {n} wrote.", "qas": [asked(f"{n}-{k}", ("Ada", 0)) for k in range(2)]} for n in range(20)
    ]
    corpus = Questions(train=written(tmp_path / "a.json", content)).load()
    assert len(corpus.train) + len(corpus.valid) == 40
    assert len(corpus.valid) == 2
    assert not {one.passage for one in corpus.train} & {one.passage for one in corpus.valid}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.json: the file is empty"),
        ('{"data": [', "line 1, character 11: invalid JSON"),
        ([1], 'is not an object with "data"'),
        ({"version": "1.1"}, 'has no "data"'),
        ({"data": [{"title": "Ada"}]}, 'article 1: has no "paragraphs"'),
        ({"data": [{"title": "Ada", "paragraphs": [{"qas": []}]}]}, "title 'Ada', paragraph 1: has no \"context\""),
        (squad([], passage=3), '"context" is not a text'),
        (squad([{"id": "7"}]), "title 'Ada', paragraph 1, question id '7': has no \"question\""),
        (squad([{"question": "Who?", "answers": "Ada"}]), 'question 1: "answers" is not a list'),
        (squad([asked("7", ("Ada", "0"))]), "question id '7': \"answer_start\" is not a number"),  # type: ignore[arg-type]
        (squad([asked("7", ("Ada", True))]), '"answer_start" is not a number'),
        (squad([asked("7", ("Ada", 0), is_impossible=True)]), "it has answers and is_impossible is true"),
        (
            squad([asked("7", ("Ada", 0), is_impossible="true")]),
            "id '7': is_impossible='true' is neither true nor false",
        ),
        (squad([asked("7", is_impossible=False)]), "it has no answers and is_impossible is false"),
        (squad([], passage="half \ud83d"), 'paragraph 1: "context" has \\u0000 or half of a surrogate pair'),
        (squad([{"question": "\0", "id": "7"}]), "id '7': \"question\" has \\u0000 or half of a surrogate pair"),
        (squad([asked("7", ("the", 0))]), "is not at character 0, where 'Ada' is, but it occurs at character 10, 43"),
        (squad([asked("7", ("Grace", 4))]), "where 'wrote' is, and it occurs nowhere in the passage"),
        (squad([asked("7", ("Ada", -54))]), "'Ada' is not at character -54"),
    ],
)
def test_a_malformed_file_names_the_place(content: object, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "train.json", content)
    with pytest.raises(UserError) as error:
        Questions(train=path).load()
    assert message in str(error.value)
    assert str(error.value).count(path) == 1
    assert path in str(error.value)


def test_a_question_about_an_empty_passage_is_left_out_with_a_warning(tmp_path: Path) -> None:
    content = squad([asked("1", ("Ada", 0))])
    content["data"][0]["paragraphs"].append({"context": " \n", "qas": [asked("2", ("Ada", 0))]})
    path = written(tmp_path / "train.json", content)
    corpus = Questions(train=path, valid=path).load()
    assert [one.id for one in corpus.train] == ["1"]
    assert "1 of 2 examples have no question or no passage and are left out" in corpus.warnings[0]
    with pytest.raises(UserError, match="no complete example"):
        Questions(train=written(tmp_path / "b.json", squad([asked("1")], passage=""))).load()


def test_an_answer_without_letters_is_no_answer(tmp_path: Path) -> None:
    questions = [asked("1", ("", -1)), asked("2", (" ", 3), is_impossible=True), asked("3", ("Ada", 0), ("", 0))]
    path = written(tmp_path / "train.json", squad(questions))
    assert [one.answers for one in Questions(train=path, valid=path).load().train] == [(), (), (("Ada", 0),)]
    path = written(tmp_path / "wrong.json", squad([asked("4", ("", -1), is_impossible=False)]))
    with pytest.raises(UserError, match="id '4': it has no answers and is_impossible is false"):
        Questions(train=path, valid=path).load()


def test_tables_have_named_columns_and_an_empty_answer_is_no_answer(tmp_path: Path) -> None:
    rows = [
        {"question": "Who?", "passage": PASSAGE, "answer": "Ada"},
        {"question": "Why?", "passage": PASSAGE, "answer": ""},
    ]
    path = written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    corpus = Questions(train=path, valid=path).load()
    assert corpus.train == [Question("Who?", PASSAGE, (("Ada", 0),)), Question("Why?", PASSAGE)]
    table = written(tmp_path / "b.csv", f'q,p,a,s\nWhat?,"{PASSAGE}",the,43\n')
    (one,) = Questions(train=table, valid=table, question="q", passage="p", answer="a", start="s").load().train
    assert one.answers == (("the", 43),)
    (one,) = (found := Questions(train=table, valid=table, question="q", passage="p", answer="a").load()).train
    assert one.answers == (("the", 10),)
    assert any("occur more than once" in warning and "data.start=COLUMN" in warning for warning in found.warnings)
    wrong = written(tmp_path / "c.csv", f'q,p,a,s\nWhat?,"{PASSAGE}",the,3\n')
    with pytest.raises(UserError, match=r"line 2: the answer 'the' is not at character 3"):
        Questions(train=wrong, question="q", passage="p", answer="a", start="s").load()
    wrong = written(tmp_path / "d.csv", f'q,p,a,s\nWhat?,"{PASSAGE}",the,x\n')
    with pytest.raises(UserError, match=r"line 2: the start 'x' is not a whole number"):
        Questions(train=wrong, question="q", passage="p", answer="a", start="s").load()
    with pytest.raises(UserError, match=r'no column "passage"'):
        Questions(train=written(tmp_path / "e.tsv", "question\tanswer\nWho?\tAda\n")).load()


def test_settings_of_windows_are_checked() -> None:
    with pytest.raises(UserError, match=r"data.stride=384"):
        Questions(stride=384)
    with pytest.raises(UserError, match=r"data.window=4"):
        Questions(window=4)


# -- rows ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["bpe", "char", "word", "byte-bpe"])
def field(request: pytest.FixtureRequest) -> AnswerText:
    data = Questions(tokens=request.param, vocab=400)
    texts = [Asked("Who wrote the notes?", PASSAGE), Asked("What did Charles build?", "É 👩‍👧 the engine, in Paris.")]
    return AnswerText.fit(texts, "text", data)


def marked(field: AnswerText, asked: Asked) -> str:
    """The text of the passage between the marks of the answer."""
    (row,) = field.encode([asked])
    assert row.shape[1] == 3
    passage = np.flatnonzero(row[:, 2] & IN_PASSAGE)
    assert row[passage, 0].tolist() == field.tokenizer.encode(asked.passage)
    assert set(row[passage, 1].tolist()) == {1}
    first, last = (int(np.flatnonzero(row[:, 2] & mark)[0]) for mark in (FIRST, LAST))
    ((*places,),) = [field.tokenizer.offsets([asked.passage])[0]]
    return asked.passage[places[first - passage[0]][0] : places[last - passage[0]][1]].strip()


@pytest.mark.parametrize("answer", ["Ada", "1843.", "built the engine.", "the notes in"])
def test_the_marks_of_a_row_are_those_of_the_answer(field: AnswerText, answer: str) -> None:
    start = PASSAGE.index(answer)
    assert marked(field, Asked("Who wrote the notes?", PASSAGE, (start, start + len(answer)))) == answer


@pytest.mark.parametrize("answer", ["Jose\u0301", "Cafe\u0301 in", "שָׁלוֹם"])
def test_an_answer_keeps_the_marks_of_its_letters(field: AnswerText, answer: str) -> None:
    passage = "Jose\u0301 has a Cafe\u0301 in Köln, שָׁלוֹם."
    start = passage.index(answer)
    found = marked(field, Asked("Who?", passage, (start, start + len(answer))))
    assert found.startswith(answer)  # a whole word may have the full stop
    assert found.strip(".,") == answer


def test_an_answer_may_end_with_what_no_token_has(tmp_path: Path) -> None:
    """BERT's tokenizer leaves out spaces, marks and characters without a width."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "i", "love", "you"]
    (tmp_path / "vocab.txt").write_text("\n".join(names) + "\n")
    _, tokenizer = read_tokenizers(tmp_path, {"model_type": "bert"})
    field, passage = AnswerText(tokenizer), "i lo\u0301ve\u0301\u200b \u2764\ufe0f you"
    assert marked(field, Asked("who", passage, (2, 9))) == "lo\u0301ve\u0301"
    assert marked(field, Asked("who", passage, (10, 12))) == "\u2764\ufe0f"
    content = squad([asked("1", (" notes ", 13))])
    (one,) = read_squad(written(tmp_path / "a.json", content))
    assert one.answers == (("notes", 14),)


def test_no_answer_has_no_marks_and_a_passage_may_be_shorter_than_its_question(field: AnswerText) -> None:
    (row,) = field.encode([Asked("Who wrote the notes about the engine of Charles?", "Ada")])
    assert not (row[:, 2] & (FIRST | LAST)).any()
    assert (row[:, 2] & IN_PASSAGE).any()
    assert not row[0, 2]
    (row,) = field.encode([Asked("Who wrote the notes about the engine of Charles?", "Ada", (0, 3))])
    assert (row[:, 2] & FIRST).any()
    assert (row[:, 2] & LAST).any()


def test_an_answer_that_is_cut_has_no_marks(field: AnswerText) -> None:
    whole = len(field.encode([Asked("Who?", PASSAGE)])[0])
    asked = Asked("Who?", PASSAGE, (len(PASSAGE) - len("built the engine."), len(PASSAGE)))
    for less in (0, 1, 2):
        (row,) = AnswerText(field.tokenizer, longest=whole - less).encode([asked])
        assert (row[:, 2] & FIRST).any() == (row[:, 2] & LAST).any() == (less == 0)


def test_windows_cover_a_long_passage_and_have_the_answer_where_it_is(field: AnswerText) -> None:
    passage = " ".join(f"{PASSAGE} Ada {n}" for n in range(30))
    start = passage.index("Ada 17")
    one = Question("Who wrote the notes?", passage, (("Ada 17", start),))
    data = Questions(window=60, stride=20)
    (parts,) = windows({"text": field}, [one], data, None)
    assert len(parts) > 3
    covered = np.zeros(len(passage), bool)
    for part in parts:
        assert passage.startswith(part.passage, part.begin)
        covered[part.begin : part.begin + len(part.passage)] = True
        assert len(field.encode([part.text])[0]) <= 60
        before, after = passage[: part.begin], passage[part.begin + len(part.passage) :]
        assert not before or before[-1].isspace() or part.passage[0].isspace()  # no word is cut
        assert not after or after[0].isspace()
        if part.answers:
            ((text, at),) = part.answers
            assert part.passage[at:].startswith(text)
            assert part.begin + at == start
    assert all(covered[place] or passage[place].isspace() for place in range(len(passage)))
    assert any(part.answers for part in parts)
    assert not all(part.answers for part in parts)
    (short,) = windows({"text": field}, [one], data, 40)  # the model reads less than the window
    assert len(short) > len(parts)
    (whole,) = windows({"text": field}, [Question("Who?", PASSAGE)], Questions(), None)
    assert len(whole) == 1


def test_a_question_longer_than_a_window_leaves_half_of_it_to_the_passage(field: AnswerText) -> None:
    one = Question("Who wrote the notes? " * 40, PASSAGE * 3)
    (parts,) = windows({"text": field}, [one], Questions(window=30, stride=9), None)
    for part in parts:
        (row,) = field.encode([part.text])
        assert len(row) <= 30
        assert (row[:, 2] & IN_PASSAGE).sum() >= min(10, len(field.tokenizer.encode(part.passage)))


def test_a_question_is_cut_between_words(field: AnswerText) -> None:
    """The part of a word, such as one of several bytes, may have more tokens than it has in the whole word."""
    one = Question("Whose notes are unforeseeable " * 20, PASSAGE * 3)
    for window in range(80, 90):
        (parts,) = windows({"text": field}, [one], Questions(window=window, stride=9), None)
        (asked,) = {part.question for part in parts}
        assert one.question.startswith(f"{asked} ")


def test_the_share_of_unanswered_questions_is_kept(tmp_path: Path) -> None:
    field = AnsweredField.fit([True, True, False, True], "answered", None)
    field.save(tmp_path / "answered.json")
    assert AnsweredField.load(tmp_path / "answered.json") == AnsweredField(0.25)
    assert field.encode([True, False]) == [[1], [0]]
    with pytest.raises(UserError, match="no training question has an answer"):
        AnsweredField.fit([False], "answered", None)
    (tmp_path / "answered.json").write_text("{}")
    with pytest.raises(UserError, match="not the share of unanswered questions"):
        AnsweredField.load(tmp_path / "answered.json")
