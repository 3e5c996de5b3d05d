"""Texts that are made from templates: their parts share no name and no template, and their answers are right."""

import re
from collections import Counter
from typing import Any

import pytest

from regard.data.made_texts import (
    ASKED,
    DENIED,
    ENDINGS,
    FACTS,
    FOLDS,
    NEGATED,
    OPENINGS,
    ORDERS,
    PARTS,
    STATED,
    WORDS,
    MadeAnswers,
    MadeChoices,
    MadeEntailment,
    part_of,
    templates,
)
from regard.errors import UserError

KINDS = (MadeAnswers, MadeEntailment, MadeChoices)
NAME = re.compile(rf"\b(?i:{'|'.join(WORDS)}) (?i:{'|'.join(WORDS)})\b")


def texts(example: Any) -> list[str]:
    value = example.text
    return [*value[:2]] if isinstance(value[0], str) else [text for pair in value for text in pair]


def names(examples: list[Any]) -> set[str]:
    return {name.lower() for one in examples for text in texts(one) for name in NAME.findall(text)}


def forms(examples: list[Any]) -> set[str]:
    """The sentences with gaps in place of names."""
    found = {NAME.sub("_", sentence) for one in examples for text in texts(one) for sentence in text.split(". ")}
    return {sentence.rstrip(".") for sentence in found}


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_share_no_name_and_no_template_and_are_drawn_from_the_seed(kind: Any) -> None:
    corpus = kind(train=400, valid=100, test=100).load()
    for part, other in ((corpus.train, corpus.valid), (corpus.train, corpus.test), (corpus.valid, corpus.test)):
        assert not names(part) & names(other)
        assert not forms(part) & forms(other)
    words = [
        {word for one in part for text in texts(one) for word in re.findall(r"\w+", NAME.sub("_", text))}
        for part in (corpus.train, corpus.test)
    ]
    assert words[1] <= words[0]  # a model from nothing has seen each word, also with a capital letter
    assert kind(train=400, valid=100, test=100).load().test == corpus.test
    assert kind(train=400, valid=100, test=100, seed=2).load().test != corpus.test


def test_each_form_has_a_template_in_every_part_whatever_its_opening() -> None:
    every = [*FACTS.values(), *NEGATED.values(), *(form for pair in ASKED.values() for form in pair), *ORDERS]
    for form, opening in (
        (form, opening) for forms in every for form in forms for opening in (*OPENINGS, *STATED, *DENIED)
    ):
        parts = [templates(part, (form,), (opening,)) for part in PARTS]
        assert [len(part) for part in parts] == [FOLDS - 2, 1, 1]
        assert len({*parts[0], *parts[1], *parts[2]}) == len(ENDINGS)


def test_words_of_names_are_no_words_of_templates() -> None:
    every = [*FACTS.values(), *NEGATED.values(), *(form for pair in ASKED.values() for form in pair), *ORDERS]
    used = " ".join([*(form for forms in every for form in forms), *OPENINGS, *ENDINGS, *STATED, *DENIED])
    assert not {*WORDS} & {*used.split()}
    assert len({*WORDS}) == len(WORDS) == 300


def test_answers_are_where_they_should_be() -> None:
    corpus = MadeAnswers(train=300, unanswered=0.3).load()
    for one in corpus.train:
        asked = NAME.findall(one.question)[0]
        for text, start in one.answers:
            assert one.passage.startswith(text, start)
            (sentence,) = (each for each in one.passage.split(". ") if asked in each and text in each)
            assert f"not in {text}" not in sentence
            assert f"not the {text}" not in sentence
    assert {one.passage.count(".") for one in corpus.train} == {
        3
    }  # the length does not tell whether there is an answer
    share = sum(not one.answers for one in corpus.train) / 300
    assert 0.2 < share < 0.4
    assert all(one.answers for one in MadeAnswers(train=50, unanswered=0.0).load().train)


def relation_label(first: str, second: str) -> str:
    """Whether the relations that a text tells entail a statement, contradict it, or neither."""
    inverse = {}
    for form, other in ORDERS:
        words = [re.sub(r"\{.\} | \{.\}", "", each) for each in (form, other)]
        inverse |= {words[0]: (words[0], False), words[1]: (words[0], True)}

    def facts(text: str) -> set[tuple[str, str, str]]:
        """Who has which relation to whom, each in one direction."""
        found = set()
        for relation, (name, swapped) in inverse.items():
            for one, two in re.findall(rf"({NAME.pattern}) {relation} ({NAME.pattern})", text):
                found.add((name, two, one) if swapped else (name, one, two))
        return found

    told, ((relation, one, two),) = facts(first), facts(second)
    denied = second.lower().startswith(tuple(DENIED))
    if (relation, one, two) in told:
        return "contradiction" if denied else "entailment"
    if (relation, two, one) in told:
        return "entailment" if denied else "contradiction"
    return "neutral"


def test_classes_are_balanced_and_labels_follow_from_relation_order_and_negation() -> None:
    corpus = MadeEntailment(train=900).load()
    counts = Counter(one.label for one in corpus.train)
    assert max(counts.values()) < 1.3 * min(counts.values())
    assert all(relation_label(*one.text) == one.label for one in corpus.train)


@pytest.mark.parametrize("openings", [OPENINGS, STATED, DENIED])
def test_every_part_has_each_opening_and_training_each_ending_of_a_statement(openings: tuple[str, ...]) -> None:
    """Their combinations are new in the test; were a word new there, it alone would decide how a model does."""
    for form in (form for pair in ORDERS for form in pair):
        for part in PARTS:
            found = templates(part, (form,), openings)
            assert {text.partition(form)[0] for text in found} == {*openings}
            assert part != "train" or {text.partition(form)[2] for text in found} == {*ENDINGS}


def test_validation_and_test_are_alike_in_kind() -> None:
    """A sentence with the same word at both ends would be in one part only, and the other would be easier."""
    for openings in (OPENINGS, STATED, DENIED):
        assert not {opening.strip() for opening in openings if opening} & {ending.strip() for ending in ENDINGS}
    shares = Counter(part_of(f"{one} {two}") for one in WORDS for two in WORDS)
    assert shares["train"] / 90_000 == pytest.approx(1 - 2 / FOLDS, abs=0.01)
    assert shares["valid"] / 90_000 == pytest.approx(1 / FOLDS, abs=0.01)
    assert shares["test"] / 90_000 == pytest.approx(1 / FOLDS, abs=0.01)


def test_one_choice_follows_from_its_text() -> None:
    corpus = MadeChoices(train=200).load()
    assert {one.label for one in corpus.train} == {0, 1, 2, 3}
    for one in corpus.train:
        assert len({choice for _, choice in one.text}) == 4
        assert len({context for context, _ in one.text}) == 1
        labels = [relation_label(*pair) for pair in one.text]
        assert labels[one.label] == "entailment"
        assert Counter(labels) == {"entailment": 1, "contradiction": 1, "neutral": 2}
    assert all(len(one.text) == 2 for one in MadeChoices(train=5, choices=2).load().train)
    with pytest.raises(UserError, match=r"data.choices=5"):
        MadeChoices(choices=5)


@pytest.mark.parametrize(
    "setting", [{"sentences": 2}, {"sentences": 10}, {"unanswered": 1.0}, {"window": 7}, {"stride": 0}]
)
def test_questions_that_cannot_be_made_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"data.{next(iter(setting))}="):
        MadeAnswers(**setting)
