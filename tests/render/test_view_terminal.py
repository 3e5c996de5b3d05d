"""The matrix in the terminal: it fits the width, is readable without colour, and long inputs become lines."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from regard.render import AttentionView, Layer
from regard.render.view_data import Unknown


def printed(view: AttentionView, width: int, layer: str | None = None, head: int | None = None) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(view.text(layer, head))
    return out.getvalue().splitlines()


def diagonal(rows: list[str], columns: list[str], peak: float = 0.9) -> AttentionView:
    weights = np.full((1, len(rows), len(columns)), (1 - peak) / max(1, len(columns) - 1))
    for at in range(len(rows)):
        weights[0, at, at % len(columns)] = peak
    return AttentionView("t", rows, columns, [Layer("cross", weights)])


def test_the_strongest_cell_stands_under_its_column():
    lines = printed(diagonal(list("2021"), list("3 fé")), 80)
    assert lines[1].split() == ["3", "␣", "f", "é"]
    for at, line in enumerate(lines[2:6]):
        assert line.index("█") == lines[1].index("3␣fé"[at])
        assert f"{'3␣fé'[at]} (0.90)" in line
    assert lines[6] == "each row attends to the columns"
    assert "█ ≤1" in lines[7]


def test_masked_weights_are_blank_and_small_ones_are_dots():
    weights = np.tril(np.ones((30, 30))) / np.arange(1, 31)[:, None]
    weights[20:, 0] += 0.4
    view = AttentionView("t", ["w"] * 30, ["w"] * 30, [Layer("decoder", weights[None])])
    lines = printed(view, 100)
    assert lines[2].rstrip() == "w ██                                                            w (1.00)"
    assert lines[31][2:62:2] == "█" + "░" * 29
    assert lines[22][2:44:2] == "█" + "░" * 20
    assert not lines[22][44:62].strip()
    assert lines[32] == "each row attends to the columns"
    assert lines[33].startswith("blank 0  ·")
    assert lines[33].endswith("█ ≥0.38")


def test_masked_cells_are_blank_and_zeros_are_not():
    layer = Layer("l", [[[1.0, 0.0], [1.0, 0.0]]], visible=np.tril(np.ones((2, 2), dtype=bool)))
    lines = printed(AttentionView("t", ["a", Unknown("b")], ["x", Unknown("y")], [layer]), 80)
    assert lines[1].split() == ["x", "(y)"]
    assert [line.removesuffix("x (1.00)").rstrip() for line in lines[2:4]] == ["  a ███", "(b) ███ ·"]
    assert lines[-1].startswith("blank: may not look")


def test_a_long_row_label_leaves_room_for_the_weight():
    lines = printed(diagonal(["Donaudampfschiff"], ["Morgendämmerung" + str(at) for at in range(60)]), 30)
    assert lines[1] == "Donaudampfschiff ← Mor… (0.90)"
    assert "█ ≤1" in " ".join(lines[2:])


def test_special_tokens_are_shortened():
    lines = printed(diagonal(["a"], ["<|endoftext|>", *"bcdefghijklmnopqrstuvwxyz" * 2]), 80)
    assert "".join(line[2] for line in lines[1:6]) == "<|e…>"


def test_the_caption_of_cross_attention():
    view = AttentionView("t", ["a"], ["x", "y"], [Layer("cross", np.full((1, 1, 2), 0.5), part="cross")])
    assert printed(view, 80)[-2] == "to generate each row, the model attends to the columns"


def test_thirty_five_characters_fit_every_width():
    view = diagonal(list("2021-02-03"), list("mercoledì tre febbraio duemilaventu"))
    for width, block in ((90, "██"), (80, "█"), (40, "█")):  # 80: narrow cells, so that the strongest column is named
        lines = printed(view, width)
        assert len(lines) == 1 + 1 + 10 + 2
        assert all(cell_len(line) <= width for line in lines)
        assert all(line.count("█") == len(block) for line in lines[2:12])
        assert all("(0.90)" in line for line in lines[2:12]) == (width > 40)


def test_headings_are_horizontal_if_they_fit_and_vertical_otherwise():
    view = diagonal(["the", "ferry"], ["die", "Fähre", "wartet"])
    assert "die    Fähre  wartet" in printed(view, 80)[1]
    vertical = printed(view, 14)
    assert [line.strip() for line in vertical[1:7]] == ["w", "F a", "ä r", "d h t", "i r e", "e e t"]


def test_too_many_columns_become_lines_that_name_the_strongest():
    lines = printed(diagonal(["a", "b"], [f"w{at}" for at in range(300)]), 80)
    assert lines[1].startswith("a ← w0 (0.90)  █·")
    assert lines[2].startswith("b ← w1 (0.90)  █·")  # pooled by the maximum
    assert all(cell_len(line) <= 80 for line in lines)


def test_wide_characters_keep_the_columns_straight():
    lines = printed(diagonal(list("202"), list("２月日")), 80)
    assert lines[1] == "  ２月日"
    assert [cell_len(line[: line.index("█")]) for line in lines[2:5]] == [2, 4, 6]


def test_small_weights_have_a_smaller_scale_in_the_key():
    lines = printed(diagonal(["a"], list("uvwxyz"), peak=0.4), 80)
    assert "█ ≤0.5" in lines[-1]
    assert "mean" not in lines[0]


def test_the_label_names_what_was_averaged():
    view = AttentionView("t", ["a"], ["x"], [Layer("cross", np.ones((4, 1, 1)))])
    assert "mean of 4 heads" in printed(view, 80)[0]
    assert "head 3" in printed(view, 80, "cross", 3)[0]


@pytest.mark.parametrize(("rows", "columns"), [([], ["x"]), (["a"], []), ([], [])])
def test_an_empty_matrix_is_reported(rows, columns):
    view = AttentionView("t", rows, columns, [Layer("cross", np.zeros((1, len(rows), len(columns))))])
    assert f"{len(rows)} rows, {len(columns)} columns" in printed(view, 80)[1]


def test_a_model_without_attention_is_reported():
    lines = [line for line in printed(AttentionView("t", ["a"], ["x", "y"], []), 80) if line.strip()]
    assert len(lines) == 2
    assert "no attention weights" in lines[1]
    assert not any("·" in line for line in lines)


pieces = st.lists(st.text(max_size=8), min_size=1, max_size=30)


@settings(max_examples=60)
@given(pieces, pieces, st.integers(40, 120))
def test_any_text_fits_any_width(rows, columns, width):
    lines = printed(diagonal(rows, columns), width)
    assert all(cell_len(line) <= width for line in lines)
    assert sum("█" in line or "(0.90)" in line for line in lines[:-1]) >= len(rows)
