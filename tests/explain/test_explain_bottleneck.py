"""The bottleneck of one vector: the task, and the effect of the length with and without attention."""

import pytest
import torch

from regard.explain.bottleneck import evaluate, lengths_around
from regard.explain.copying import BOS, Copier, copy_batch, train_copier


def test_the_target_is_the_source_and_the_input_is_shifted() -> None:
    pairs, targets = copy_batch(5, 3, torch.Generator().manual_seed(0))
    assert torch.equal(pairs[:, 0], targets)
    assert torch.equal(pairs[:, 1, 1:], targets[:, :-1])
    assert (pairs[:, 1, 0] == BOS).all()


def test_a_copy_is_read_from_the_letters_of_the_network_itself() -> None:
    torch.manual_seed(0)
    network = Copier("luong", "general", 8)
    pairs, _ = copy_batch(6, 4, torch.Generator().manual_seed(0))
    copies = network.copies(pairs)
    own = torch.stack([pairs[:, 0], torch.cat([pairs[:, 1, :1], copies[:, :-1]], dim=1)], dim=1)
    assert torch.equal(network(own).argmax(dim=-1), copies)


def test_lengths_go_beyond_those_of_training() -> None:
    assert lengths_around(20) == [2, 4, 6, 8, 10, 12, 16, 20, 24, 30]
    assert lengths_around(2) == [2, 3]


@pytest.mark.slow
def test_without_attention_long_texts_are_copied_worse() -> None:
    found = {
        decoder: evaluate(decoder, decoder, train_copier(decoder, decoder, "general", 32, 8, 120, seed=1), [2, 8], 1)
        for decoder in ("once", "luong")
    }
    assert found["luong"].letters[1] > found["once"].letters[1] + 0.2
    assert found["once"].letters[0] > found["once"].letters[1] + 0.2
    assert all(text <= letter for one in found.values() for letter, text in zip(one.letters, one.texts))
