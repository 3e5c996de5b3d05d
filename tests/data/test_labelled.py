"""Texts with a class, labels or a number: what is read, and what is refused with its line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.data.dates import Dates
from regard.data.example import LabelledText, MultiLabelledText, RatedText
from regard.data.fields import LabelField, LabelsField, TagsField
from regard.data.labelled import Labelled, MultiLabelled, Rated, TextsOf
from regard.data.made_texts import MadeAnswers
from regard.errors import UserError

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_bytes(text.encode())
        return str(tmp_path / name)

    return write


def test_the_bad_files_of_spreadsheets(write: Write) -> None:
    """A BOM, line ends of Windows, quotes and line ends inside of cells: all are read."""
    path = write("a.csv", '\ufefftext,label\r\n"a ""fine"",\r\nsunny day",good\r\nrain,bad\r\n')
    corpus = Labelled(train=path, valid=path, label="label").load()
    assert corpus.train == [LabelledText('a "fine",\nsunny day', "good"), LabelledText("rain", "bad")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,topic\na,b\n", r'line 1 \(the header\): no column "label"; name one with data\.label=COLUMN'),
        ("text,label\na,b\nc\n", r"line 3: expected 2 cells, found 1; give the row a cell for every column"),
        ("text,label\na,b,c\n", r"line 2: expected 2 cells, found 3; put a cell that contains a delimiter in double"),
        ('text,label\n"a,b\nc,d\n', r"line 2: a quoted cell has no end; put the whole cell in double quotes"),
    ],
)
def test_a_table_that_cannot_be_read(write: Write, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Labelled(train=write("a.csv", text)).load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_label_that_is_not_in_the_training_file_is_named_with_its_line(write: Write, part: str) -> None:
    train = write("train.csv", "text,label\na,good\nb,bad\nc,good\nd,bad\n")
    other = write("dev.csv", 'text,label\n"a\nb",good\n,new\nc,ugly\n')
    message = r"dev\.csv, line 5: the label 'ugly' is not a class of the training examples \(bad, good\); correct it"
    with pytest.raises(UserError, match=message):  # the row without a text is left out
        Labelled(train=train, **{"valid": train, part: other}).load()
    several = write("several.csv", "text,labels\na,x|y\nb,\n")
    late = write("late.csv", "text,labels\na,y\nb,x | z\n")
    with pytest.raises(UserError, match=r"late\.csv, line 3: the label 'z' is not a class"):
        MultiLabelled(train=several, valid=late).load()


def test_a_list_of_labels_is_refused_with_the_cure(write: Write) -> None:
    path = write("lists.jsonl", '{"text": "a", "labels": ["sport", "politics"]}\n')
    with pytest.raises(UserError, match=r'line 1: "labels" is a list; give one text such as "sport\|politics"'):
        MultiLabelled(train=path, valid=path).load()


def test_several_labels(write: Write) -> None:
    path = write("a.csv", "text,topics\na, sport |politics|sport\nb,\nc,art\n")
    corpus = MultiLabelled(train=path, valid=path, labels="topics").load()
    assert [one.labels for one in corpus.train] == [("sport", "politics"), (), ("art",)]
    field = LabelsField.fit([one.labels for one in corpus.train], "labels", None)
    assert field == LabelsField(("art", "politics", "sport"), (1, 1, 1))
    assert np.array(field.encode([("sport", "art"), ()])).tolist() == [[[1, 0, 1]], [[0, 0, 0]]]
    assert field.counted([("art",), ("art", "sport")]).counts == (2, 0, 1)
    with pytest.raises(UserError, match="label 'x': not a class"):
        field.encode([("x",)])
    with pytest.raises(UserError, match=r"data\.labels: no text has a label"):
        LabelsField.fit([(), ()], "labels", None)
    assert MultiLabelled(train=write("b.tsv", "x|y\ta day\n"), valid=path).train
    assert MultiLabelled(train=write("c.tsv", "x|y\ta\nx\tb\n"), valid=write("d.tsv", "y\tc\n")).load().train[0] == (
        MultiLabelledText("a", ("x", "y"))
    )


def test_numbers(write: Write) -> None:
    path = write("a.csv", "text,stars\na,0\nb, -2.5e1\nc,\n")
    corpus = Rated(train=path, valid=path, number="stars").load()
    assert corpus.train == [RatedText("a", 0.0), RatedText("b", -25.0)]
    assert any("1 of 3 examples have no number or no text" in warning for warning in corpus.warnings)


@pytest.mark.parametrize("cell", ["five", "nan", "inf", "1,5", "3 stars"])
def test_a_cell_that_is_no_number(write: Write, cell: str) -> None:
    path = write("a.jsonl", f'{{"text": "a", "number": 1}}\n{{"text": "b", "number": "{cell}"}}\n')
    with pytest.raises(UserError, match=rf"a\.jsonl, line 2: '{cell}' is not a finite number; write a number such as"):
        Rated(train=path, valid=path).load()


@pytest.mark.parametrize(("kind", "column"), [(Labelled, "label"), (MultiLabelled, "labels"), (Rated, "number")])
def test_one_column_cannot_be_both(kind: type, column: str) -> None:
    with pytest.raises(UserError, match=rf"data\.{column}=a: two columns have this name"):
        kind(train="x.csv", text="a", **{column: "a"}).load()


def test_joined_labels_of_a_classifier_are_a_warning(write: Write) -> None:
    path = write("a.tsv", "x|y\ta\nx\tb\nx\tc\nx|y\td\n")
    found = [one for one in Labelled(train=path, valid=path).load().warnings if "regard train multilabel" in one]
    assert len(found) == 1
    assert "'x|y'" in found[0]


def test_the_counts_of_classes_are_kept(tmp_path: Path) -> None:
    field = LabelField.fit(["good", "bad ", "good"], "label", None)
    assert field == LabelField(("bad", "good"), (1, 2))
    field.save(tmp_path / "label.json")
    assert LabelField.load(tmp_path / "label.json") == field
    assert TagsField.fit([["a", "b"], ["b"]], "tags", None).counts == (1, 2)
    assert field.counted(["bad", "bad"]).counts == (2, 0)
    for counts in ("[1]", '["1", 2]', "[-1, 2]", "7"):
        (tmp_path / "label.json").write_text(f'{{"labels": ["bad", "good"], "counts": {counts}}}')
        with pytest.raises(UserError, match="the counts are not those of the labels"):
            LabelField.load(tmp_path / "label.json")


def test_the_texts_of_other_data() -> None:
    corpus = TextsOf(of=MadeAnswers(train=3, valid=1, test=0)).load()
    assert [one.text for one in corpus.train[:2]] == [*MadeAnswers(train=3, valid=1, test=0).load().train[0].text[:2]]
    with pytest.raises(UserError, match=r"data\.of: the examples of Dates have no text.*data\.of=labelled"):
        TextsOf(of=Dates(train=2, valid=1, test=1)).load()
