"""The toy grammar, and language models with and without a causal mask."""

import math
import random

import pytest
import torch

from regard.data.batches import IGNORED
from regard.explain import masking
from regard.explain.experiment import SampledBatches
from regard.explain.grammar import (
    BOS,
    EOS,
    IDS,
    PAD,
    VOCABULARY,
    SentenceSampler,
    encode,
    entropy_per_token,
    generate_sentences,
    is_grammatical,
    sample_batch,
    train_language_model,
)
from regard.explain.masking import MaskingOptions
from regard.mask import CAUSAL


def test_sampled_sentences_are_grammatical() -> None:
    sampler = SentenceSampler(random.Random(0))
    sentences = [sampler.sentence() for _ in range(300)]
    assert all(map(is_grammatical, sentences))
    assert all(word in IDS for words in sentences for word in words)
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
def test_other_sentences_are_not_grammatical(line: str) -> None:
    assert not is_grammatical(line.split())


def test_the_probability_of_a_sentence() -> None:
    sampler, ways = SentenceSampler(random.Random(1)), 0.0
    for _ in range(20_000):
        sampler.sentence()
        ways += math.exp(-sampler.logp) / 20_000
    phrases = 2 * 3 * 6 * 6  # number, determiner, adjective or none, noun
    sentences = phrases * (1 + 3 * phrases) * (4 * 4 + 3 * phrases)
    assert ways == pytest.approx(sentences, rel=0.2)  # the mean of 1 / p is the number of sentences


def test_the_entropy_of_the_grammar() -> None:
    assert entropy_per_token(200) == entropy_per_token(200)
    assert entropy_per_token(200, seed=1) == pytest.approx(entropy_per_token(), rel=0.03)
    assert 1.4 < entropy_per_token() < 1.8


def test_the_targets_of_a_batch_are_the_next_words() -> None:
    tokens, targets = sample_batch(torch.Generator().manual_seed(0), rows=8)
    for row, wanted in zip(tokens.tolist(), targets.tolist()):
        words = [token for token in row if token not in (IDS[PAD], IDS[EOS])]
        assert words[0] == IDS[BOS]
        assert [token for token in wanted if token != IGNORED] == [*words[1:], IDS[EOS]]
    assert encode(["dog", "."]) == [IDS["dog"], IDS["."]]


@pytest.mark.slow
def test_without_a_mask_the_loss_is_too_low() -> None:
    found = masking.run(MaskingOptions(steps=120, count=40)).data
    causal, free = found["networks"]
    assert free.loss < 0.5 < found["entropy"] < causal.loss  # below the entropy, which a causal model cannot reach
    assert free.causal_loss > 1.5 * causal.causal_loss
    assert causal.causal_loss == pytest.approx(causal.loss)
    assert causal.future_attention == 0
    assert free.future_attention > 0.3
    assert causal.grammatical > free.grammatical
    assert len(causal.weights) == len(found["sentence"])


def test_a_batch_depends_on_the_seed_and_the_step_alone() -> None:
    batches = SampledBatches(sample_batch, seed=1)
    first, other, again = (batches.batch(step)["tokens"] for step in (3, 4, 3))
    assert first.equal(again)
    assert not first.equal(other)
    assert not first.equal(SampledBatches(sample_batch, seed=2).batch(3)["tokens"])


def test_an_experiment_is_deterministic() -> None:
    first, same, other = (
        masking.run(MaskingOptions(steps=3, count=2, seed=seed)).data["networks"] for seed in (5, 5, 6)
    )
    assert first == same != other


def test_special_tokens_are_never_generated() -> None:
    network, _ = train_language_model("first weights", CAUSAL, steps=0, seed=1)
    with torch.no_grad():
        network.readout.bias[[IDS[BOS], IDS[PAD]]] = 50.0  # although they are the most probable tokens
    sentences = {word for words in generate_sentences(network, 20, seed=1) for word in words}
    assert sentences
    assert not sentences & {BOS, PAD, EOS}
