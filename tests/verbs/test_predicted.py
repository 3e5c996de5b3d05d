"""What a model predicts, beside its attention: the same numbers as those of the verb of its task."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from regard import classify, load, look, record
from regard.render.view_data import Answer
from regard.report.sections import Table
from regard.verbs.filters import SHOWN, look_filters
from regard.verbs.labelling import label_sets, rate
from regard.verbs.loaded import Loaded
from regard.verbs.predicted import NEXT, _next, predicted
from regard.verbs.tagging import tag_words
from untrained import save_untrained


def expected(name: str, model: Loaded, text: Any) -> tuple[Any, str]:
    """The answer of the verb of a task, and the beginning of its sentence."""
    match name:
        case "multilabel":
            (labels,) = label_sets(model, [text])
            return labels, "Predicted labels, with their probabilities: "
        case "rate" | "similarity":
            (number,) = rate(model, [text])
            return number, f"Predicted number: {number.number:.6g}."
        case "tag":
            (tagged,) = tag_words(model, [text.split()])
            return tagged, f"Predicted tags: a: {tagged.tags[0]} · c: {tagged.tags[1]}."
        case _:
            (found,) = classify(model, [text])
            (_, other) = found.labels.items()
            beginning = f"Predicted class: {found.label}, probability {found.probability:.3f}"
            return found, f"{beginning}; the next: {other[0]} {other[1]:.3f}."


@pytest.mark.parametrize("name", ["classify", "pair", "multilabel", "rate", "similarity", "tag"])
def test_the_answer_is_that_of_the_verb(name: str, tmp_path: Path) -> None:
    model, text = load(save_untrained(name, tmp_path)), ("a b", "c") if name in ("pair", "similarity") else "a c"
    found = predicted(model, text)
    answer, beginning = expected(name, model, text)
    assert found is not None
    assert found.numbers == asdict(answer)
    assert found.sentence.startswith(beginning)
    json.dumps(found.numbers)
    seen = look_filters(model, text) if model.module.config.filter_sizes else look(model, text)
    assert seen.answer == found


def test_a_tape_of_the_caller_records_nothing(classifier: Path) -> None:
    model = load(classifier)
    with record(model.module) as tape:
        assert look(model, "ab ba").answer == predicted(model, "ab ba") is not None
    assert not len(tape)


def test_a_model_that_predicts_tokens_has_no_answer(language: Path) -> None:
    model = load(language)
    assert predicted(model, "ab ba") is None
    assert look(model, "ab ba").answer is None


def test_the_next_answers_are_a_few() -> None:
    names = [f"n{at}" for at in range(NEXT + 2)]
    probabilities = {name: 0.5 / (at + 1) for at, name in enumerate(names)}
    assert _next(names, probabilities) == "; the next: n0 0.500, n1 0.250, n2 0.167, n3 0.125 and 2 more"
    assert _next([], {}) == ""


def test_the_page_of_filters_begins_with_the_answer_and_folds_the_filters_with_small_effects(tmp_path: Path) -> None:
    model = load(save_untrained("rate", tmp_path))
    view = look_filters(model, "a b c")
    filters = len(model.module.config.filter_sizes)
    assert filters > SHOWN
    table = view.table(None)
    assert isinstance(table, Table)
    assert ([row[0] for row in table.rows], table.first) == ([f"#{number}" for number in view.ranked], SHOWN)
    view.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown, _, folded = page.partition(f"<details><summary>{filters - SHOWN} more rows</summary>")
    assert isinstance(view.answer, Answer)
    assert f"<p>{view.answer.sentence}</p>" in shown
    assert shown.count("<tr><td") == SHOWN
    assert folded.count("<tr><td") == filters - SHOWN
    assert view.to_json()["answer"] == view.answer.numbers
