"""Tagging schemes: the entities of tags, conversions, detection, what is legal; the scores are those of seqeval."""

import random
from itertools import pairwise, product

import pytest

from regard.entities import (
    Entity,
    complete,
    detect_scheme,
    entities,
    entity_scores,
    may_follow,
    names_entities,
    tags_of,
    to_iob2,
)

IOB1 = ["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-PER"]
IOB2 = ["B-PER", "I-PER", "B-PER", "O", "B-LOC", "B-PER"]
BIOES = ["B-PER", "E-PER", "S-PER", "O", "S-LOC", "S-PER"]
BILOU = ["B-PER", "L-PER", "U-PER", "O", "U-LOC", "U-PER"]
FOUND = [Entity("PER", 0, 2), Entity("PER", 2, 3), Entity("LOC", 4, 5), Entity("PER", 5, 6)]


@pytest.mark.parametrize("tags", [IOB1, IOB2, BIOES, BILOU])
def test_each_scheme_names_the_same_entities(tags: list[str]) -> None:
    assert entities(tags) == FOUND
    assert tags_of(entities(tags), 6, "iob2") == IOB2
    assert tags_of(entities(tags), 6, "bioes") == BIOES
    assert tags is IOB1 or [to_iob2(tag) for tag in tags] == IOB2


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([IOB1], "iob1"),
        ([IOB2], "iob2"),
        ([BIOES], "bioes"),
        ([BILOU], "bioes"),
        ([["O"], ["B-PER", "I-PER"]], "iob2"),
        ([["I-PER"], ["O", "I-LOC"]], "iob1"),
        ([["B", "I", "O"]], "iob2"),
        ([["NN", "VB", "O"]], "none"),
        ([["O", "O"]], "none"),
        ([], "none"),
    ],
)
def test_the_scheme_is_detected(sentences: list[list[str]], scheme: str) -> None:
    assert detect_scheme(sentences) == scheme


@pytest.mark.parametrize(
    ("scheme", "before", "tag", "legal"),
    [
        ("bioes", None, "I-A", False),
        ("bioes", None, "B-A", True),
        ("bioes", "B-A", None, False),
        ("bioes", "B-A", "O", False),
        ("bioes", "B-A", "E-A", True),
        ("bioes", "B-A", "E-B", False),
        ("bioes", "I-A", "B-A", False),
        ("bioes", "E-A", "I-A", False),
        ("bioes", "S-A", "B-A", True),
        ("bioes", "E-A", None, True),
        ("iob2", "O", "I-A", False),
        ("iob2", "B-B", "I-A", False),
        ("iob2", "I-A", "I-A", True),
        ("iob2", "B-A", "O", True),
        ("iob2", "B-A", None, True),
        ("iob1", "O", "B-A", False),
        ("iob1", "I-A", "B-A", True),
        ("iob1", "I-B", "B-A", False),
        ("iob1", "O", "I-A", True),
    ],
)
def test_what_may_follow(scheme: str, before: str | None, tag: str | None, legal: bool) -> None:
    assert may_follow(before, tag, scheme) == legal


def test_every_legal_sequence_is_that_of_its_entities() -> None:
    """The legal sequences of a scheme are those that `tags_of` writes: each is what it is converted to."""

    for scheme, names in (("bioes", complete(["S-A"])), ("iob2", complete(["B-A", "I-B"]))):
        for tags in product(names, repeat=3):
            around = [None, *tags, None]
            legal = all(may_follow(one, other, scheme) for one, other in pairwise(around))
            assert legal == (tags_of(entities(tags), 3, scheme) == list(tags)), tags  # type: ignore[arg-type]


def test_a_scheme_is_completed() -> None:
    assert complete(["O", "S-A", "B-B"]) == ["B-A", "B-B", "E-A", "E-B", "I-A", "I-B", "O", "S-A", "S-B"]
    assert complete(["B-A"]) == ["B-A", "I-A", "O"]
    assert names_entities(["O", "B-A"])
    assert not names_entities(["O", "NN"])


def test_scores_are_those_of_literal_cases() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC"]]
    scores = entity_scores(found, gold)
    assert scores[""] == pytest.approx((2 / 4, 2 / 3, 4 / 7, 3))
    assert scores["LOC"] == pytest.approx((1 / 2, 1 / 2, 1 / 2, 2))
    assert scores["PER"] == pytest.approx((1 / 2, 1.0, 2 / 3, 1))
    assert entity_scores([["O"]], [["O"]])[""] == (0.0, 0.0, 0.0, 0)


@pytest.mark.parametrize("letters", ["BI", "I", "BIES"])
def test_scores_are_those_of_seqeval(letters: str) -> None:
    """On random sequences, most of which are not legal in any scheme."""
    metrics = pytest.importorskip("seqeval.metrics")
    draw = random.Random(letters)
    names = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC", "ORG-X"))]
    for _ in range(20):
        lengths = [draw.randint(1, 12) for _ in range(6)]
        found, gold = ([[draw.choice(names) for _ in range(length)] for length in lengths] for _ in range(2))
        scores = entity_scores(found, gold)
        report = metrics.classification_report(gold, found, output_dict=True, zero_division=0)
        for kind, name in (("", "micro avg"), ("PER", "PER"), ("LOC", "LOC"), ("ORG-X", "ORG-X")):
            if name in report:
                expected = [report[name][key] for key in ("precision", "recall", "f1-score", "support")]
                assert scores[kind] == pytest.approx(expected)
        assert scores[""].f1 == pytest.approx(metrics.f1_score(gold, found, zero_division=0))
