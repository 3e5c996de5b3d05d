"""Vanishing gradients: the recall task, gradient norms, and the experiment."""

from dataclasses import replace

import pytest
import torch

from regard.explain import gradients
from regard.explain.gradients import NETWORKS, SYMBOLS, GradientsOptions, TcnRecall, gradient_norms, sample_batch
from regard.explain.topic import Progress


def test_the_target_is_the_marked_symbol() -> None:
    inputs, targets = sample_batch(9, 20, torch.Generator().manual_seed(0))
    marked = inputs[..., SYMBOLS] == 1
    assert (marked.sum(dim=1) == 1).all()
    assert torch.equal(inputs[marked][:, :SYMBOLS].argmax(dim=1), targets[:, 0])


def test_gradients_vanish_in_recurrent_networks_but_not_with_attention() -> None:
    found = {}
    for name, (build, _) in NETWORKS.items():
        torch.manual_seed(0)
        found[name] = gradient_norms(build(40), 40, seed=0)
    assert found["RNN"][39] < 1e-5 * found["RNN"][0]
    assert found["LSTM"][39] < 1e-5 * found["LSTM"][0]
    for name in ("LSTM + attention", "Transformer", "TCN"):
        assert found[name][39] > 100 * max(found["RNN"][39], found["LSTM"][39])
        assert found[name][39] == pytest.approx(found[name][20], rel=2.0)


def test_a_transformer_learns_faster_than_an_rnn() -> None:
    found = {one.name: one for one in gradients.run(GradientsOptions(length=5, steps=40)).data["networks"]}
    assert list(found) == list(NETWORKS)
    assert all(one.steps == 40 and len(one.before) == len(one.after) == 5 for one in found.values())
    assert found["Transformer"].accuracy > 0.9 > found["RNN"].accuracy


def test_all_networks_train_for_the_same_steps_and_runs_are_deterministic() -> None:
    progress: list[Progress] = []
    first, same, other = (
        gradients.run(GradientsOptions(length=4, steps=2, seed=seed), progress.append).data["networks"]
        for seed in (5, 5, 6)
    )
    assert first == same != other
    assert [(one.name, one.step, one.steps) for one in progress[: 2 * len(NETWORKS)]] == [
        (name, at, 2) for name in NETWORKS for at in (1, 2)
    ]


@pytest.mark.parametrize("length", [2, 5, 6, 13, 14, 40])
def test_the_receptive_field_of_the_tcn_is_just_large_enough(length: int) -> None:
    config = TcnRecall(length).body.config
    assert config.receptive_field >= length
    assert config.layers == 1 or replace(config, layers=config.layers - 1).receptive_field < length
