"""A language with a grammar, and what a model without a mask makes of it."""

import math
import random

import pytest
import torch

from regard.explain.masking import masking
from regard.explain.sentences import BEGIN, END, IDS, PAD, VOCABULARY, Dice, allowed, batch, encoded, floor
from regard.explain.small import IGNORED, finished
from regard.explain.speaking import says, taught
from regard.mask import CAUSAL


def test_the_grammar_allows_what_it_says() -> None:
    dice = Dice(random.Random(0))
    said = [dice.sentence() for _ in range(300)]
    assert all(map(allowed, said))
    assert all(word in IDS for words in said for word in words)
    assert len(set(VOCABULARY)) == len(VOCABULARY)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "the",
        "the dog",
        "the dog sleep .",
        "some dog sleeps .",
        "the dogs behind a tree sleeps .",
        "the dog sees .",
        "the dog sleeps today today .",
        "the dog sleeps . .",
        "dog the sleeps .",
    ],
)
def test_and_nothing_else(line: str) -> None:
    assert not allowed(line.split())


def test_a_sentence_is_as_likely_as_the_dice_say() -> None:
    dice, ways = Dice(random.Random(1)), 0.0
    for _ in range(20_000):
        dice.sentence()
        ways += math.exp(-dice.logp) / 20_000
    phrases = 2 * 3 * 6 * 6  # number, determiner, adjective or none, noun
    sentences = phrases * (1 + 3 * phrases) * (4 * 4 + 3 * phrases)
    assert ways == pytest.approx(sentences, rel=0.2)  # the mean of 1 / p is how many there are


def test_the_floor_is_the_surprise_of_the_grammar() -> None:
    assert floor(200) == floor(200)
    assert floor(200, seed=1) == pytest.approx(floor(), rel=0.03)
    assert 1.4 < floor() < 1.8


def test_a_batch_asks_for_the_next_word() -> None:
    tokens, targets = batch(torch.Generator().manual_seed(0), rows=8)
    for row, wanted in zip(tokens.tolist(), targets.tolist()):
        words = [token for token in row if token not in (IDS[PAD], IDS[END])]
        assert words[0] == IDS[BEGIN]
        assert [token for token in wanted if token != IGNORED] == [*words[1:], IDS[END]]
    assert encoded(["dog", "."]) == [IDS["dog"], IDS["."]]


@pytest.mark.slow
def test_without_a_mask_the_loss_is_a_lie() -> None:
    found = finished(masking(steps=120, count=40))
    causal, free = found.told
    assert free.loss < 0.5 < found.floor < causal.loss  # less than is possible
    assert free.honest > 1.5 * causal.honest
    assert causal.honest == pytest.approx(causal.loss)
    assert causal.ahead == 0
    assert free.ahead > 0.3
    assert causal.right > free.right
    assert len(causal.weights) == len(found.sentence)


def test_an_experiment_tells_how_it_goes_and_repeats_itself() -> None:
    going = list(masking(steps=3, count=2))
    assert [(one.what, one.step, one.steps) for one in going] == [
        (name, step, 3) for name in ("causal mask", "no mask") for step in (1, 2, 3)
    ]
    assert finished(masking(3, 2, seed=5)) == finished(masking(3, 2, seed=5)) != finished(masking(3, 2, seed=6))


def test_marks_are_never_said() -> None:
    network, _ = finished(taught("first weights", CAUSAL, steps=0, seed=1))
    with torch.no_grad():
        network.readout.bias[[IDS[BEGIN], IDS[PAD]]] = 50.0  # though nothing seems likelier
    said = {word for words in says(network, 20, seed=1) for word in words}
    assert said
    assert not said & {BEGIN, PAD, END}
