"""Gates: a step by hand, the means at the marked symbol and elsewhere, gates that are set, and the experiment."""

import math

import pytest
import torch

from regard.explain import gates
from regard.explain.gates import GATES, NETWORKS, GatedNetwork, GatesOptions, example, measure, step_by_hand, trace
from regard.explain.gradients import SYMBOLS, RecurrentRecall, sample_batch
from regard.report.sections import Heatmap, Heatmaps, Table


def network(cell: str) -> RecurrentRecall:
    torch.manual_seed(3)
    return RecurrentRecall(cell, attention=False, width=gates.WIDTH)


def sigmoid(number: float) -> float:
    return 1 / (1 + math.exp(-number))


def numbers(table: Table) -> dict[str, tuple[list[float], list[float]]]:
    """By the name of a line: its first numbers, and the other numbers that it has (other, bias, result)."""
    found = {}
    for name, shown, *rest in table.rows:
        assert isinstance(name, str)
        first = [float(each) for each in str(shown).replace("…", "").split()]
        found.setdefault(name.partition(",")[0], (first, [float(str(each)) for each in rest if each is not None]))
    return found


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_every_line_follows_from_the_lines_above_it(cell: str) -> None:
    shown, at = example(8, seed=1)
    lines = numbers(step_by_hand(network(cell), shown, at, "one step"))
    sums = {}
    for gate in "ifgo" if cell == "lstm" else "rzn":
        for name, vector in ((f"x · W of {gate}", "x"), (f"h · U of {gate}", "h before")):
            column, (other, bias, result) = lines[name]
            assert sum(a * b for a, b in zip(lines[vector][0], column)) + other + bias == pytest.approx(
                result, abs=1e-3
            )
            sums[name[0], gate] = result
    first = {name: line[0][0] for name, line in lines.items()}
    close = {"abs": 1e-3}
    if cell == "lstm":
        for gate in "ifo":
            assert first[gate] == pytest.approx(sigmoid(sums["x", gate] + sums["h", gate]), **close)
        assert first["g"] == pytest.approx(math.tanh(sums["x", "g"] + sums["h", "g"]), **close)
        assert first["c after"] == pytest.approx(first["f"] * first["c before"] + first["i"] * first["g"], **close)
        assert first["h after"] == pytest.approx(first["o"] * math.tanh(first["c after"]), **close)
    else:
        for gate in "rz":
            assert first[gate] == pytest.approx(sigmoid(sums["x", gate] + sums["h", gate]), **close)
        assert first["n"] == pytest.approx(math.tanh(sums["x", "n"] + first["r"] * sums["h", "n"]), **close)
        assert first["h after"] == pytest.approx(
            (1 - first["z"]) * first["n"] + first["z"] * first["h before"], **close
        )


def test_the_step_by_hand_is_that_of_the_marked_symbol_and_of_the_fast_route() -> None:
    shown, at = example(8, seed=1)
    assert shown[0, :, SYMBOLS].tolist() == [float(place == at) for place in range(8)]
    one = network("gru")
    table = step_by_hand(one, shown, at, "one step")
    state = one.rnn(one.embedding(shown))[0][0, at].tolist()
    for name in ("h after", "h after, by the fast route"):
        (row,) = [str(row[1]) for row in table.rows if row[0] == name]
        assert [float(each) for each in row.split()[:-1]] == pytest.approx(state[:3], abs=1e-4)
    assert one.readout.weight.dtype == torch.float32  # the network is as before


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_means_are_those_of_the_steps_before_at_and_after_the_mark(cell: str) -> None:
    one = network(cell)
    inputs, targets = sample_batch(5, gates.TESTED, gates._generator(7))
    start = trace(one, inputs)
    found = measure("one", one, start, example(5, 7)[0], 7)
    marks = inputs[..., SYMBOLS].argmax(dim=1).tolist()
    for gate in found.gates:
        values = start[gate.gate].mean(dim=2).tolist()
        places = [(row, at, mark) for row, mark in enumerate(marks) for at in range(5)]
        for mean, kind in ((gate.before, -1), (gate.marked, 0), (gate.after, 1)):
            chosen = [values[row][at] for row, at, mark in places if (at > mark) - (at < mark) == kind]
            assert mean == pytest.approx(sum(chosen) / len(chosen), abs=1e-5)
        assert gate.start == pytest.approx(start[gate.gate].mean().item(), abs=1e-6)
    keep = start["f" if cell == "lstm" else "z"]
    assert found.kept == pytest.approx((keep[:, 1] * keep[:, 2] * keep[:, 3] * keep[:, 4]).mean().item(), rel=1e-5)
    assert found.along.keys() == set(GATES[cell])
    assert all(len(units) == gates.WIDTH and len(units[0]) == 5 for units in found.along.values())
    # An input gate of 0, or an update gate of 1, writes nothing: the answer is that of the biases.
    guess = (targets == one.readout.bias.argmax()).float().mean().item()
    nothing = next(each.zero if each.gate == "i" else each.one for each in found.gates if each.gate in "iz")
    assert nothing == pytest.approx(guess)


def results(**settings: int) -> dict[str, GatedNetwork]:
    return {one.name: one for one in gates.run(GatesOptions(**settings)).data["networks"]}


def test_gates_learn_to_write_the_marked_symbol_and_to_keep_it() -> None:
    found = results(length=8, steps=300)
    assert list(found) == list(NETWORKS.values())
    i, f, _ = found["LSTM"].gates
    _, z = found["GRU"].gates
    assert i.marked > 0.7 > i.after
    assert f.marked < 0.5 < 0.75 < f.after
    assert z.marked < 0.25 < 0.6 < z.after
    for one in found.values():
        assert one.accuracy > 0.95
    assert f.zero < 0.5
    assert f.one < 0.9
    assert z.zero < 0.5
    assert z.one < 0.25  # nothing is written


def test_chrono_keeps_the_state_from_the_start() -> None:
    found = results(length=40, steps=0)
    for cell in ("LSTM", "GRU"):
        plain, chrono = found[cell], found[f"{cell}, chrono"]
        assert plain.kept < 1e-6
        assert chrono.kept > 0.05
        assert plain.gates[1].start == pytest.approx(0.5, abs=0.1)
        assert chrono.gates[1].start > 0.85
    assert found["LSTM, chrono"].gates[0].start < 0.2 < found["LSTM"].gates[0].start


def test_the_pictures_have_a_column_for_each_symbol_and_the_mark_is_a_capital() -> None:
    result = gates.run(GatesOptions(length=9, steps=1))
    maps: list[Heatmap] = [one for part in result.sections if isinstance(part, Heatmaps) for one in part.heatmaps]
    assert [one.title for one in maps] == [
        *("i, the input gate", "f, the forget gate", "o, the output gate"),
        *("r, the reset gate", "z, the update gate"),
    ]
    for one in maps:
        assert len(one.columns) == 9
        assert [at for at, letter in enumerate(one.columns) if letter.isupper()] == [2]
