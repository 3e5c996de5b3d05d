"""AttentionView: its checks, its averages and the files that it writes."""

import html
import math
import os
import re

import numpy as np
import pytest

from regard.errors import UserError
from regard.file_io import write_file
from regard.render import AttentionView, Frame, Layer
from regard.render.view_data import Matrix, strongest_lines


def soft(heads: int, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Random rows that sum to one. (H, Tq, Tk)"""
    scores = np.random.default_rng(seed).normal(0, 2, (heads, rows, columns))
    weights = np.exp(scores)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def two_layers() -> AttentionView:
    return AttentionView(
        "deux", ["a", "b"], ["x", "y", "z"], [Layer("low", soft(2, 2, 3)), Layer("high", soft(3, 2, 3, 1))]
    )


def test_wrong_shapes_raise_errors_with_the_name():
    with pytest.raises(ValueError, match=r'layer "low": weights must be \(heads, rows, columns\)'):
        Layer("low", np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r'layer "low".*\(1, 2, 4\).*2 rows and 3 columns'):
        AttentionView("t", ["a", "b"], ["x", "y", "z"], [Layer("low", np.zeros((1, 2, 4)))])
    with pytest.raises(ValueError, match="frames: 1 of them do not fit 2 rows"):
        AttentionView("t", ["a", "b"], ["x"], [], [Frame("a", [], np.zeros(4))])
    with pytest.raises(ValueError, match=r'frame "a": before'):
        Frame("a", [], np.zeros(4), np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r'layer "low": contexts'):
        Layer("low", np.zeros((2, 3, 3)), contexts=np.zeros((1, 3, 8)))
    with pytest.raises(ValueError, match=r'layer "low": visible'):
        Layer("low", np.zeros((2, 3, 3)), visible=np.ones((2, 3), dtype=bool))
    with pytest.raises(ValueError, match='layer "low": the name is taken'):
        AttentionView("t", ["a"], ["x"], [Layer("low", np.zeros((1, 1, 1)))] * 2)


def test_weights_can_be_lists():
    layer = Layer("low", [[[0.25, 0.75]]])  # type: ignore[arg-type]
    assert layer.weights.dtype == np.float32
    assert layer.weights.shape == (1, 1, 2)


def test_the_mean_is_the_default_and_one_head_can_be_chosen():
    view = two_layers()
    low, high = (layer.weights for layer in view.layers)
    np.testing.assert_allclose(view.matrix().weights, (low.mean(0) + high.mean(0)) / 2, rtol=1e-6)
    np.testing.assert_allclose(view.matrix("high").weights, high.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(view.matrix(1, 2).weights, high[2])
    assert view.matrix("high").label == "high · mean of 3 heads"
    assert view.matrix("high", 2).label == "high · head 2"


@pytest.mark.parametrize(
    ("layer", "head", "message"),
    [
        ("hihg", None, 'Did you mean "high"'),
        (2, None, "layers 0 to 1"),
        ("low", 2, "heads 0 to 1"),
        (None, 0, "choose a layer"),
    ],
)
def test_a_wrong_choice_lists_what_is_available(layer, head, message):
    with pytest.raises(UserError, match=message):
        two_layers().matrix(layer, head)


def three_parts() -> AttentionView:
    """A translator with two target and three source tokens: cross-attention, decoder and encoder."""
    target, source = ["a", "b"], ["x", "y", "z"]
    axes = {"encoder": (source, source), "decoder": (target, ["<bos>", "a"]), "cross": (target, source)}
    layers = [
        Layer(f"{part}.{at}", soft(4, len(q), len(k), 3 * at), q, k, part, at)
        for part, (q, k) in axes.items()
        for at in range(3)
    ]
    return AttentionView("t", target, source, layers, [Frame(token, [], np.zeros(2)) for token in target])


def test_each_part_has_its_own_axes():
    view = three_parts()
    assert list(view.parts) == ["cross", "encoder", "decoder"]
    encoder, decoder = view.matrix(part="encoder"), view.matrix(1, 2, "decoder")
    assert (list(encoder.rows), list(encoder.columns)) == (["x", "y", "z"], ["x", "y", "z"])
    assert encoder.label == "encoder · mean of 3 layers, all heads"
    assert (list(decoder.columns), decoder.label) == (["<bos>", "a"], "decoder · layer 1 · head 2")
    np.testing.assert_array_equal(decoder.weights, view.layers[4].weights[2])
    cross = view.matrix()  # the default: the layer that aligns best
    assert (cross.label, list(cross.columns)) == ("cross · layer 1 · mean of 4 heads", ["x", "y", "z"])
    np.testing.assert_allclose(cross.weights, view.layers[7].weights.mean(0), rtol=1e-6)
    with pytest.raises(UserError, match=r'part=crss.*Did you mean "cross"'):
        view.matrix(part="crss")
    with pytest.raises(UserError, match=r"layer=3: there are layers 0 to 2"):
        view.matrix(3, part="encoder")
    with pytest.raises(ValueError, match=r'layer "m": shape differs'):
        AttentionView(
            "t", ["a"], ["x"], [Layer("l", np.ones((1, 1, 1))), Layer("m", np.ones((1, 1, 2)), ["a"], ["x"] * 2)]
        )


def test_a_view_of_one_part_layer_or_head(tmp_path):
    view = three_parts()
    head = view.only("decoder", 2, 3)
    assert [(layer.name, layer.head_numbers) for layer in head.layers] == [("decoder.2", [3])]
    assert head.matrix().label == "decoder · layer 2 · head 3"
    assert head.frames is not None
    assert view.only("encoder").frames is None  # an encoder has no decoding steps
    assert len(view.only("encoder").layers) == 3
    square = AttentionView("t", ["a"], ["x"], [Layer("e", np.ones((1, 1, 1)), part="encoder")], [Frame("a", [], [0.0])])
    assert square.only("encoder").frames is None  # as many rows as there are steps
    assert view.only(layer="encoder.1").layers[0].number == 1
    assert view.only() is view
    with pytest.raises(UserError, match="has head 3"):
        head.only(head=0)
    with np.load(view.save(tmp_path / "view.npz"), allow_pickle=False) as found:
        assert found["encoder.rows"].tolist() == ["x", "y", "z"]
        assert found["decoder.columns"].tolist() == ["<bos>", "a"]
        assert found["columns"].tolist() == ["x", "y", "z"]
        assert "cross.rows" not in found.files


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (0.0, 1.0),
        (1.0, 1.0),
        (0.51, 1.0),
        (0.5, 0.5),
        (0.3, 0.5),
        (0.2, 0.2),
        (0.1, 0.1),
        (0.011, 0.02),
        (math.nan, 1.0),
    ],
)
def test_the_scale_ends_at_a_round_number(top, expected):
    weights = np.array([[top] + [min(top, 1e-5)] * 999], dtype=np.float32)
    matrix = Matrix("", "", ["a"], ["x"] * 1000, weights)
    assert matrix.scale_max == expected
    assert 0 <= matrix.intensities[0, 0] <= 1


def test_first_rows_do_not_set_the_scale_and_uniform_weights_are_pale():
    uniform = np.tril(np.ones((40, 40))) / np.arange(1, 41)[:, None]  # a causal head with uniform weights
    matrix = Matrix("", "", ["a"] * 40, ["x"] * 40, uniform.astype(np.float32))
    assert matrix.scale_max == pytest.approx(0.05)
    assert matrix.intensities[-1].max() == pytest.approx(0.5)
    assert matrix.intensities[0, 0] == 1
    assert Matrix("", "", ["a"], ["x", "y"], np.full((1, 2), 0.5, dtype=np.float32)).scale_max == 1


def test_a_cell_is_masked_if_no_layer_may_look_there():
    causal, window = np.tril(np.ones((3, 3), dtype=bool)), np.tri(3, k=1, dtype=bool)
    layers = [Layer(name, soft(2, 3, 3), visible=mask) for name, mask in (("low", causal), ("high", window))]
    view = AttentionView("t", list("abc"), list("abc"), layers)
    assert view.matrix("low").masked(0, 1)
    assert [view.matrix().masked(0, at) for at in range(3)] == [False, False, True]
    assert view.only(layer="low", head=1).matrix().masked(1, 2)
    assert not AttentionView("t", list("abc"), list("abc"), [Layer("l", soft(1, 3, 3))]).matrix().masked(0, 2)


def test_every_row_keeps_its_strongest_lines():
    weights = np.full((2, 100, 100), 0.5, dtype=np.float32)
    weights[0, 3] = 0.05
    weights[0, 3, 7] = 0.06
    kept, total = strongest_lines(weights)
    heads, rows, columns = np.unravel_index(kept, weights.shape)
    assert (len(kept), total) == (4000, 20000)
    assert {(0, row) for row in range(100)} <= set(zip(heads, rows))
    assert (0, 3, 7) in set(zip(heads, rows, columns))
    assert np.all(np.diff(weights.flat[kept]) >= 0)
    few, total = strongest_lines(np.array([[[0.9, 0.03]]], dtype=np.float32))
    assert (list(few), total) == ([0], 1)


def test_the_repr_of_a_view():
    view = AttentionView("t", ["a"], ["x"], [Layer("cross", np.ones((4, 1, 1)))])
    assert repr(view) == "<AttentionView 't': 1 rows, 1 columns; attention: 1 × 4 heads>"


def test_npz_needs_no_pickle_and_keeps_every_name(tmp_path):
    names = ["file", "allow_pickle", "decoder.layers.0/cross", "été"]
    layers = [Layer(name, soft(2, 2, 3, seed)) for seed, name in enumerate(names)]
    view = AttentionView("t", ["é", "日"], ["x", "", " "], layers)
    path = view.save(tmp_path / "deep" / "view.npz")
    with np.load(path, allow_pickle=False) as found:
        assert sorted(found.files) == sorted([*names, "rows", "columns"])
        for layer in layers:
            np.testing.assert_array_equal(found[layer.name], layer.weights)
        assert found["rows"].tolist() == ["é", "日"]
        assert found["columns"].tolist() == ["x", "", " "]
    assert path.read_bytes() == view.save(tmp_path / "again.npz").read_bytes()


def test_the_suffix_chooses_the_format_and_an_unknown_one_raises_an_error(tmp_path):
    view = two_layers()
    assert view.save(tmp_path / "a.svg").read_text(encoding="utf-8") == view.svg()
    assert view.save(str(tmp_path / "a.HTML")).read_text(encoding="utf-8") == view.html()
    with pytest.raises(UserError, match=r"a\.png.*\.html, \.svg or \.npz"):
        view.save(tmp_path / "a.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.HTML", "a.svg"]
    cell = view._repr_html_()
    assert view.svg() in cell
    (page,) = re.findall('<iframe srcdoc="([^"]*)" title=', cell)
    assert html.unescape(page) == view.html()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = write_file(tmp_path / "a.txt", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"a\.txt.*No space left on device"):
        write_file(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_path_below_a_file_raises_an_error_with_its_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"a\.txt: cannot be written"):
        write_file(tmp_path / "file" / "a.txt", "text")
