"""How far back networks learn from."""

import pytest
import torch

from regard.explain.gradients import NETWORKS, SYMBOLS, examples, gradients, reach
from regard.explain.small import finished


def test_the_marked_symbol_is_the_answer() -> None:
    inputs, answers = examples(9, 20, torch.Generator().manual_seed(0))
    read_pointer = inputs[..., SYMBOLS] == 1
    assert (read_pointer.sum(dim=1) == 1).all()
    assert torch.equal(inputs[read_pointer][:, :SYMBOLS].argmax(dim=1), answers[:, 0])


def test_attention_is_a_path_of_length_one() -> None:
    found = {}
    for name, build in NETWORKS.items():
        torch.manual_seed(0)
        found[name] = reach(build(40), 40, seed=0)
    assert found["RNN"][39] < 1e-5 * found["RNN"][0]
    assert found["LSTM"][39] < 1e-5 * found["LSTM"][0]
    for name in ("LSTM + attention", "Transformer"):
        assert found[name][39] > 100 * max(found["RNN"][39], found["LSTM"][39])
        assert found[name][39] == pytest.approx(found[name][20], rel=2.0)


def test_a_transformer_learns_in_a_moment_what_a_plain_network_cannot() -> None:
    found = {one.name: one for one in finished(gradients(length=5, steps=40))}
    assert list(found) == list(NETWORKS)
    assert all(one.steps == 40 and len(one.before) == len(one.after) == 5 for one in found.values())
    assert found["Transformer"].accuracy > 0.9 > found["RNN"].accuracy


def test_all_learn_for_as_many_steps_and_the_clock_has_no_say() -> None:
    going = list(gradients(length=4, steps=2))
    assert [(one.what, one.step, one.steps) for one in going] == [(name, at, 2) for name in NETWORKS for at in (1, 2)]
    assert finished(gradients(4, 2, seed=5)) == finished(gradients(4, 2, seed=5)) != finished(gradients(4, 2, seed=6))
