"""Fields: fitted to a column, saved and loaded, and the same numbers afterwards."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from regard.data.example import LabelledText, Pair, Text
from regard.data.fields import (
    MASK,
    Field,
    InputText,
    LabelField,
    MaskedText,
    NumberField,
    NumbersField,
    TagsField,
    TargetText,
    encode,
    fit_fields,
)
from regard.data.labelled import Labelled
from regard.data.sources import Lines, Pairs
from regard.data.streams import RunningText
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.tasks import TASKS

TEXTS = ["the owl sat", "the mouse sat still", "a mouse"]


def fitted(kind: type[InputText | TargetText]) -> InputText | TargetText:
    return kind.fit(iter(TEXTS), "text", Lines(tokens="word"))


@pytest.mark.parametrize("kind", [InputText, TargetText, MaskedText, RunningText])
def test_a_text_field_is_fitted_saved_and_loaded(kind: type[InputText], tmp_path: Path) -> None:
    field = fitted(kind)
    assert isinstance(field, kind)
    assert field.tokenizer.kind == "word"
    assert field.size == field.tokenizer.size
    assert field.dtype == np.uint16
    field.save(tmp_path / "text.json")
    again = kind.load(tmp_path / "text.json")
    assert isinstance(again, kind)
    assert again.tokenizer.special_tokens == field.tokenizer.special_tokens
    texts = [*TEXTS, "", "an unseen word"]
    assert again.encode(texts) == field.encode(texts)
    for text, ids in zip(TEXTS, field.encode(TEXTS)):
        assert field.tokenizer.decode(ids) == text


def test_texts_have_the_special_tokens_of_their_role() -> None:
    ids = fitted(InputText).tokenizer.encode(TEXTS[0])
    special = fitted(TargetText).tokenizer.special_tokens
    assert fitted(InputText).encode(TEXTS[:1]) == [ids]
    assert fitted(RunningText).encode(TEXTS[:1]) == [ids]
    assert fitted(TargetText).encode(TEXTS[:1]) == [[special.bos, *ids, special.eos]]
    masked = fitted(MaskedText)
    special = masked.tokenizer.special_tokens
    assert special.mask is not None
    (found,) = masked.encode([f"the {MASK} sat"])
    assert (found[0], found[2], found[-1]) == (special.prefix, special.mask, special.suffix)
    assert all(fitted(kind).tokenizer.special_tokens.mask is None for kind in (InputText, TargetText))


def test_room_is_what_special_tokens_leave() -> None:
    """The last token of a text that a model generates is predicted and never read."""
    kinds = {InputText: 8, TargetText: 7, MaskedText: 6, RunningText: 8}
    for kind, room in kinds.items():
        field = fitted(kind)
        assert field.room(8) == room
        read = len(field.wrap([9] * field.room(8))) - (kind is TargetText)
        assert read == 8


def test_the_kind_of_tokens_is_a_setting_of_the_column_or_of_all() -> None:
    data = Pairs(source_tokens="word", target_tokens="char", vocab=30)
    assert InputText.fit(TEXTS, "source", data).tokenizer.kind == "word"
    target = TargetText.fit(TEXTS, "target", data)
    assert (target.tokenizer.kind, target.size <= 30) == ("char", True)
    assert InputText.fit(TEXTS, "text", Labelled(tokens="char")).tokenizer.kind == "char"


def test_labels_are_classes_and_nothing_else(tmp_path: Path) -> None:
    field = LabelField.fit(["good", " very bad ", "good", "bad"], "label", Labelled())
    assert field == LabelField(("bad", "good", "very bad"), counts=(1, 2, 1))
    assert field.size == 3
    assert field.encode(["good", "very bad", "bad "]) == [[1], [2], [0]]
    field.save(tmp_path / "label.json")
    assert LabelField.load(tmp_path / "label.json") == field
    (tmp_path / "greek.json").touch()
    greek = LabelField(("ναι", "όχι"))
    greek.save(tmp_path / "greek.json")
    assert "ναι" in (tmp_path / "greek.json").read_text(encoding="utf-8")
    assert LabelField.load(tmp_path / "greek.json") == greek


def test_a_label_that_was_not_trained_on_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"^label 'fine': not a class of the training examples; use one of bad, good\.$"
    ):
        LabelField(("bad", "good")).encode(["good", "fine"])
    many = LabelField(tuple(f"class {n:02d}" for n in range(20)))
    with pytest.raises(UserError, match=r"use one of class 00, .*class 07, …\.$"):
        many.encode(["class 20"])


def test_class_names_are_distinct_texts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^2 classes have the name 'good'; give each class its own name\.$"):
        LabelField(("good", "bad", "good"))
    (tmp_path / "label.json").write_text('{"labels": ["good", ""]}')
    with pytest.raises(UserError, match=r"label\.json: the class name '' is no text; give each class a name\.$"):
        LabelField.load(tmp_path / "label.json")


@pytest.mark.parametrize("content", ["[]", "{}", '{"labels": "good"}', '{"labels": [1]}'])
def test_a_file_that_has_no_labels_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "label.json").write_text(content)
    with pytest.raises(UserError, match=r"label\.json: not the labels of a run"):
        LabelField.load(tmp_path / "label.json")


def test_a_file_that_has_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text('{"labels": ["good"]}')
    with pytest.raises(UserError, match=r"text\.json: not a tokenizer"):
        InputText.load(tmp_path / "text.json")


# -- The fields of a task ----------------------------------------------------------------------------------------------

PAIRS = [Pair("das haus", "the house"), Pair("die maus", "the mouse")]


def tokenizers(fields: dict[str, Field]) -> list[Tokenizer]:
    return [field.tokenizer for field in fields.values()]  # type: ignore[attr-defined]


def test_every_column_has_a_field_of_its_own() -> None:
    fields = fit_fields(TASKS["translate"].fields, PAIRS, Pairs(source_tokens="word", target_tokens="char"))
    assert {name: type(field) for name, field in fields.items()} == {"source": InputText, "target": TargetText}
    source, target = tokenizers(fields)
    assert source.decode(source.encode("das maus")) == "das maus"
    assert source.special_tokens.unk in source.encode("the")
    assert (source.kind, target.kind) == ("word", "char")
    labelled = [LabelledText("fine day", "good"), LabelledText("rain", "bad")]
    fields = fit_fields(TASKS["classify"].fields, labelled, Labelled())
    assert fields["label"] == LabelField(("bad", "good"), counts=(1, 1))


def test_a_joint_vocabulary_is_one_tokenizer_of_all_texts() -> None:
    data = Pairs(source_tokens="word", target_tokens="word", joint=True)
    fields = fit_fields(TASKS["translate"].fields, PAIRS, data)
    source, target = tokenizers(fields)
    assert source is target
    for text in ("das haus", "the mouse"):
        assert source.special_tokens.unk not in source.encode(text)
    encoded = encode(fields, PAIRS)
    special = target.special_tokens
    assert encoded["source"][0].tolist() == source.encode("das haus")
    assert encoded["target"][0].tolist() == [special.bos, *source.encode("the house"), special.eos]
    other = Pairs(source_tokens="word", target_tokens="char", joint=True)
    message = "data.joint=true: one vocabulary needs one kind of tokens, but data.source_tokens=word and data.target_"
    with pytest.raises(UserError, match=message):
        fit_fields(TASKS["translate"].fields, PAIRS, other)


@dataclass(frozen=True)
class Captions:
    """A corpus of a user's own, with one setting for the tokens of all columns and no limit."""

    tokens: str = "word"
    joint: bool = True


def test_a_corpus_of_ones_own_needs_few_settings() -> None:
    source, target = tokenizers(fit_fields(TASKS["translate"].fields, PAIRS, Captions()))
    assert source is target
    source, target = tokenizers(fit_fields(TASKS["translate"].fields, PAIRS, Captions(joint=False)))
    assert source is not target
    assert source.kind == target.kind == "word"


def test_columns_are_encoded_in_the_type_of_their_field() -> None:
    class Wide(TargetText):
        @property
        def dtype(self) -> np.dtype[np.uint32]:
            return np.dtype(np.uint32)

    field = fitted(TargetText)
    columns = encode({"text": Wide(field.tokenizer)}, [Text(text) for text in TEXTS])
    assert columns["text"].values.dtype == np.uint32
    assert [ids.tolist() for ids in columns["text"]] == field.encode(TEXTS)
    assert len(encode({"text": field}, [])["text"]) == 0


def test_classes_are_two_or_more_and_not_one_for_each_text() -> None:
    with pytest.raises(UserError, match=r"data.label: all texts have the class 'good'; give two or more"):
        LabelField.fit(["good", "good "], "label", None)
    with pytest.raises(UserError, match=r"data.label: 40 texts have 40 classes, such as 'text 0'; name the columns"):
        LabelField.fit([f"text {n}" for n in range(40)], "label", None)


def test_numbers_are_vectors_of_one_size(tmp_path: Path) -> None:
    field = NumbersField.fit([[[1, 2], [3, 4]], [[5, 6]]], "values", None)
    field.save(tmp_path / "values.json")
    assert NumbersField.load(tmp_path / "values.json") == field == NumbersField(2)
    (found,) = field.encode([[[1.5, 2], [3, 4]]])
    assert (found.tolist(), found.dtype) == ([[1.5, 2.0], [3.0, 4.0]], np.float32)
    assert NumbersField.fit([[1, 2, 3]], "values", None).encode([[7, 8]])[0].tolist() == [[7.0], [8.0]]
    with pytest.raises(UserError, match="the steps of values have 1 and 2 numbers"):
        NumbersField.fit([[[1, 2]], [1, 2]], "values", None)
    with pytest.raises(UserError, match="a step has 1 numbers, but in training 2"):
        field.encode([[1.0]])
    for wrong in (np.nan, np.inf):
        with pytest.raises(UserError, match="NaN or infinite"):
            field.encode([[[1.0, wrong]]])
        with pytest.raises(UserError, match="NaN or infinite"):
            NumberField(1).encode([0.0, wrong])
    assert [one.tolist() for one in NumberField.fit([1.0], "number", None).encode([2, -0.5])] == [[2.0], [-0.5]]
    for content in ("[]", '{"numbers": 0}', '{"numbers": true}', '{"numbers": 2.0}'):
        (tmp_path / "wrong.json").write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match="not the numbers of a run"):
            NumbersField.load(tmp_path / "wrong.json")


def test_tags_are_a_class_for_each_place(tmp_path: Path) -> None:
    field = TagsField.fit([("b", "a"), ("a",)], "tags", None)
    field.save(tmp_path / "tags.json")
    assert TagsField.load(tmp_path / "tags.json") == field
    assert (field.names, field.encode([("a", "b", "b"), ()])) == (("a", "b"), [[0, 1, 1], []])
    with pytest.raises(UserError, match="'c': not a class of the training examples"):
        field.encode([("a", "c")])
    with pytest.raises(UserError, match=r"data\.tags: all places have the class 'a'"):
        TagsField.fit([("a", "a")], "tags", None)
