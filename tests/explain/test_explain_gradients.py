"""Vanishing gradients: the recall task, gradient norms, and the experiment."""

import pytest
import torch

from regard.explain import gradients
from regard.explain.experiment import result_of
from regard.explain.gradients import NETWORKS, SYMBOLS, gradient_norms, sample_batch


def test_the_target_is_the_marked_symbol() -> None:
    inputs, targets = sample_batch(9, 20, torch.Generator().manual_seed(0))
    marked = inputs[..., SYMBOLS] == 1
    assert (marked.sum(dim=1) == 1).all()
    assert torch.equal(inputs[marked][:, :SYMBOLS].argmax(dim=1), targets[:, 0])


def test_gradients_vanish_in_recurrent_networks_but_not_with_attention() -> None:
    found = {}
    for name, build in NETWORKS.items():
        torch.manual_seed(0)
        found[name] = gradient_norms(build(40), 40, seed=0)
    assert found["RNN"][39] < 1e-5 * found["RNN"][0]
    assert found["LSTM"][39] < 1e-5 * found["LSTM"][0]
    for name in ("LSTM + attention", "Transformer"):
        assert found[name][39] > 100 * max(found["RNN"][39], found["LSTM"][39])
        assert found[name][39] == pytest.approx(found[name][20], rel=2.0)


def test_a_transformer_learns_faster_than_an_rnn() -> None:
    found = {one.name: one for one in result_of(gradients.run(length=5, steps=40))}
    assert list(found) == list(NETWORKS)
    assert all(one.steps == 40 and len(one.before) == len(one.after) == 5 for one in found.values())
    assert found["Transformer"].accuracy > 0.9 > found["RNN"].accuracy


def test_all_networks_train_for_the_same_steps_and_runs_are_deterministic() -> None:
    progress = list(gradients.run(length=4, steps=2))
    assert [(one.name, one.step, one.steps) for one in progress] == [
        (name, at, 2) for name in NETWORKS for at in (1, 2)
    ]
    assert (
        result_of(gradients.run(4, 2, seed=5))
        == result_of(gradients.run(4, 2, seed=5))
        != result_of(gradients.run(4, 2, seed=6))
    )
