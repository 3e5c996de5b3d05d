"""Links, their format, their merging and their error rate."""

import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.alignment import (
    AlignmentScore,
    Link,
    Links,
    aer,
    chance_accuracy,
    correct_targets,
    links_from,
    merge,
    parse_pharaoh,
    pharaoh,
)
from regard.errors import UserError

links = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)))


# -- Pharaoh ----------------------------------------------------------------------------------------------------------


@given(links)
def test_pharaoh_is_sorted_and_read_back(some: frozenset[Link]) -> None:
    line = pharaoh(some)
    assert parse_pharaoh(line) == Links(some, some)
    pairs = [tuple(map(int, item.split("-"))) for item in line.split()]
    assert pairs == sorted(some)


def test_possible_links_hold_the_sure_ones() -> None:
    assert parse_pharaoh("2-1 3p1 10p4\n", base=1) == Links(
        sure=frozenset({(1, 0)}), possible=frozenset({(1, 0), (2, 0), (9, 3)})
    )
    assert parse_pharaoh("  ") == Links(frozenset(), frozenset())


@pytest.mark.parametrize(("line", "base"), [("1:2", 0), ("1-2-3", 0), ("a-b", 0), ("-1-2", 0), ("1-0", 1), ("²-1", 0)])
def test_a_bad_link_is_named(line: str, base: int) -> None:
    with pytest.raises(UserError) as error:
        parse_pharaoh(f"5-5 {line}", base)
    assert f'"{line}"' in str(error.value)


# -- merging ----------------------------------------------------------------------------------------------------------


def test_pieces_are_summed_over_sources_and_averaged_over_targets() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0]])
    merged = merge(weights, [0, 0, 1], [0, 0, 1])
    np.testing.assert_allclose(merged, [[0.45, 0.55], [0.0, 1.0]])


def test_spaces_are_left_out() -> None:
    weights = np.array([[0.5, 0.2, 0.3], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(merge(weights, [0, -1, 1], [0, -1, 1]), [[0.5, 0.3], [0.1, 0.8]])


@st.composite
def pieces(draw: st.DrawFn) -> list[int]:
    """Word indices of pieces, in order, each word having at least one."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    return [word for word, size in enumerate(sizes) for _ in range(size)]


@given(pieces(), pieces(), st.integers(0, 3), st.integers(0, 2**32))
def test_merging_keeps_what_rows_sum_to(rows: list[int], columns: list[int], heads: int, seed: int) -> None:
    shape = (heads, len(rows), len(columns))
    weights = np.random.default_rng(seed).dirichlet(np.ones(shape[2]), shape[:2])
    merged = merge(weights, rows, columns)
    assert merged.shape == (heads, rows[-1] + 1, columns[-1] + 1)
    np.testing.assert_allclose(merged.sum(-1), 1.0)
    for word in range(rows[-1] + 1):  # the definition, word by word
        chosen = [at for at, owner in enumerate(rows) if owner == word]
        for other in range(columns[-1] + 1):
            read = [at for at, owner in enumerate(columns) if owner == other]
            expected = weights[:, chosen][:, :, read].sum(-1).mean(-1)
            np.testing.assert_allclose(merged[:, word, other], expected)


def test_no_pieces_are_no_words() -> None:
    assert merge(np.zeros((0, 2)), [], [0, 0]).shape == (0, 1)
    assert merge(np.zeros((1, 2)), [0], [-1, -1]).shape == (1, 0)


# -- links from weights -----------------------------------------------------------------------------------------------

LOOK = np.array([[0.6, 0.4, 0.0], [0.7, 0.3, 0.0], [0.0, 0.0, 0.0], [0.1, 0.1, 0.8]])


def test_each_target_is_linked_to_what_it_looks_at_most() -> None:
    assert links_from(LOOK) == {(0, 0), (0, 1), (2, 3)}  # a row of zeros has no link
    assert links_from(LOOK, "mutual") == {(0, 1), (2, 3)}
    assert links_from(np.zeros((0, 3))) == links_from(np.zeros((3, 0)), "mutual") == set()


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UserError, match=r'method=mutal: .*"mutual"'):
        links_from(LOOK, "mutal")


# -- judging ----------------------------------------------------------------------------------------------------------


def test_the_error_rate_of_a_worked_example() -> None:
    sure, possible = [{(0, 0), (1, 1)}, {(0, 0)}], [{(1, 2)}, set()]
    score = aer(sure, possible, [{(0, 0), (1, 2), (3, 3)}, {(0, 0)}])
    # A = 4 links, S = 3; A∩S = 2, A∩P = 3
    assert score == AlignmentScore(precision=3 / 4, recall=2 / 3, aer=1 - 5 / 7)


@given(st.lists(st.tuples(links, links), max_size=4))
def test_the_error_rate_keeps_its_bounds(lines: list[tuple[frozenset[Link], frozenset[Link]]]) -> None:
    gold, found = [a for a, _ in lines], [b for _, b in lines]
    score = aer(gold, gold, found)
    assert 0 <= score.aer <= 1
    assert aer(gold, gold, gold).aer == 0
    if score.precision + score.recall > 0 and any(gold) and any(found):  # where all links are sure it is 1 − F1
        harmonic = 2 * score.precision * score.recall / (score.precision + score.recall)
        assert math.isclose(score.aer, 1 - harmonic, abs_tol=1e-9)


def test_lines_that_do_not_match_are_refused() -> None:
    with pytest.raises(UserError, match="2 hand-aligned lines but 1 proposed"):
        aer([set(), set()], [set(), set()], [set()])


def test_accuracy_and_chance_where_gold_is_known() -> None:
    gold = {(0, 0), (1, 0), (1, 1), (2, 3), (0, 2)}
    assert correct_targets(LOOK, gold) == (2, 4)  # 0 and 3 hit, 1 looks elsewhere, 2 looks nowhere
    assert chance_accuracy(gold, source_length=3) == pytest.approx((2 / 3 + 1 / 3 + 1 / 3 + 1 / 3) / 4)
    assert correct_targets(LOOK, set()) == (0, 0)
    assert correct_targets(LOOK, {(0, 9)}) == (0, 1)  # a target that was never reached is not a hit
    assert chance_accuracy(set(), 3) == 0.0


def test_chance_is_what_random_looks_come_to() -> None:
    rng = np.random.default_rng(0)
    gold = {(0, 0), (1, 0), (2, 1), (5, 2), (4, 2), (3, 2)}
    hits = [correct_targets(rng.random((3, 6)), gold)[0] for _ in range(4000)]
    assert np.mean(hits) / 3 == pytest.approx(chance_accuracy(gold, 6), abs=0.02)


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA is not set: no hand-aligned corpora to read")
@pytest.mark.parametrize(("pair", "expected"), [("enfr", 4.07), ("roen", 20.75), ("jaen", 37.36), ("zhen", 13.31)])
def test_published_outputs_have_their_published_error_rate(pair: str, expected: float) -> None:
    folder = Path(os.environ["REGARD_DATA"]) / "align"

    def read(name: str, base: int) -> list[Links]:
        with gzip.open(folder / f"{pair}.{name}.gz", "rt") as file:
            return [parse_pharaoh(line, base) for line in file]

    gold, found = read("gold", 1), read("awesome-align.out", 0)
    score = aer([line.sure for line in gold], [line.possible for line in gold], [line.sure for line in found])
    assert round(100 * score.aer, 2) == expected
