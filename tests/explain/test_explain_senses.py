"""The sentences and the corpus of senses, the mix of layers, the networks that read both sides, and n-grams."""

import random
from pathlib import Path

import pytest
import torch

from regard.data.batches import IGNORED
from regard.explain import both_sides, mix, ngrams, senses
from regard.explain.options import MixOptions, NgramsOptions, SensesOptions
from regard.explain.sense_corpus import TOPICS, SenseTexts, sense_sentences
from regard.explain.topic import no_report


def test_each_sense_has_sentences_with_its_word() -> None:
    found = sense_sentences()
    for word, least in (("bank", 20), ("bucket", 8), ("gift", 6)):
        senses = [one.sense for one in found[word]]
        assert len(set(senses)) == 2
        assert all(senses.count(sense) >= least for sense in senses)
        assert all(sense in TOPICS for sense in senses)
        assert all(one.occurrence.word.lower() == word for one in found[word])
        assert len({one.occurrence.text for one in found[word]}) == len(senses)


def test_no_sentence_of_the_file_is_in_the_corpus() -> None:
    corpus = SenseTexts(train=2000).load()
    texts = {example.text.replace(" .", ".") for example in corpus.train}
    assert not texts & {one.occurrence.text.lower() for some in sense_sentences().values() for one in some}
    assert {example.label for example in corpus.train} == set(TOPICS)


def test_the_sum_is_the_mix_of_the_layers() -> None:
    result = mix.run(MixOptions(steps=1, fit=3))
    word = result.data["word"]
    for task in result.data["tasks"]:
        assert sum(task.weights) == pytest.approx(1.0)
        expected = task.scale * (torch.tensor(task.weights)[:, None] * word).sum(0)
        torch.testing.assert_close(torch.tensor(task.vector), expected)
    first, second = word[0].chunk(2)
    assert torch.equal(first, second)  # the embedding of both directions


def test_the_classes_of_tagged_sentences() -> None:
    rng = random.Random(0)
    for _ in range(50):
        one = mix.sample_tagged(rng)
        stick = [name for word, name in zip(one.words, one.classes, strict=True) if word == "stick"]
        assert set(stick) <= {"verb" if one.topic == "plan" else "noun"}


def test_the_sentences_of_the_test_are_in_no_training_data_of_the_mix() -> None:
    rng = random.Random(0)
    new = {mix.sample_tagged(rng, new=True).words for _ in range(300)}
    assert len(new) > 100
    assert not new & {mix.sample_tagged(rng).words for _ in range(2000)}
    assert not new & {tuple(one.text.split()) for one in mix.TaggedTexts().load().train}


def test_a_bidirectional_lstm_copies_the_word_and_separate_directions_do_not() -> None:
    """The gradient of the logits at a place with respect to its own word."""
    tokens, targets = both_sides.words_of(torch.Generator().manual_seed(1), rows=2)
    place = int((targets[0] != IGNORED).nonzero()[2])
    for build, seen in ((both_sides.bidirectional, True), (both_sides.separate, False)):
        network = build().eval()
        changed = tokens.clone()
        changed[0, place] = both_sides.MASK
        differs = (network(tokens)[0, place] - network(changed)[0, place]).abs().max() > 1e-6
        assert bool(differs) == seen


def test_masked_words_are_the_targets() -> None:
    tokens, targets = both_sides.one_masked_of(torch.Generator().manual_seed(2), 8)
    assert (targets != IGNORED).sum(1).tolist() == [1] * 8
    assert ((tokens == both_sides.MASK) == (targets != IGNORED)).all()


def test_ngrams_of_a_file(tmp_path: Path) -> None:
    """The counts are those of the training lines; a text of the user has no grammar."""
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"the dog sees the cat {n}\nthe the dog {n}\n" for n in range(50)), encoding="utf-8")
    result = ngrams.run(NgramsOptions(file=str(text), steps=1, words=2))
    the = next(one for one in result.data["pairs"] if one["word"] == "the")
    following = {word: count for word, count, _ in the["next"]}
    assert following["dog"] > following["the"] > 0
    assert result.data["lowest_perplexity"] is None
    assert all(one.plural is None for one in result.data["models"])


def test_the_accuracy_of_the_nearer_mean() -> None:
    first = torch.tensor([True] * 4 + [False] * 4)
    apart = torch.tensor([[0.0], [1.0], [2.0], [3.0], [10.0], [11.0], [12.0], [13.0]])
    assert senses._accuracy(apart, first) == 1.0
    assert senses._accuracy(torch.ones(8, 4) * 0.3, first) == 0.5
    mixed = apart.clone()
    mixed[0] = 13.0  # wrong whenever it is not in a mean
    assert senses._accuracy(mixed, first) < 0.95


def test_vectors_that_do_not_depend_on_the_sense_have_accuracies_within_chance() -> None:
    """To leave one vector out of the means makes every answer wrong if the senses have equal means."""
    noise = torch.randn(20, 16, generator=torch.Generator().manual_seed(1))
    first = torch.tensor([True] * 20 + [False] * 20)
    twins = torch.cat([noise, noise])  # both senses are in the same frames
    assert senses._accuracy(twins, first) > 0.3
    random = torch.randn(60, 40, 16, generator=torch.Generator().manual_seed(2))
    accuracies = [senses._accuracy(one, first) for one in random]
    assert sum(accuracies) / 60 == pytest.approx(0.5, abs=0.03)
    low, high = senses._chance(random[0], first)
    assert 0.8 <= sum(low <= one <= high for one in accuracies) / 60 < 1.0


def test_the_static_vectors_of_a_transformer_do_not_depend_on_the_place_of_a_word() -> None:
    results = {one.name: one for one in senses.run(SensesOptions(steps=1)).data["models"]}
    assert set(results[senses.STATIC].accuracy.values()) == {0.5}
    gpt = senses._train(SensesOptions(steps=1), no_report)[3]
    sentences = {word: [senses._spaced(one, True) for one in some] for word, some in sense_sentences().items()}
    assert set(senses._static(gpt, sentences).accuracy.values()) == {0.5}


def test_vectors_without_context_do_not_differ_by_sense(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\nbank 1 0\nbucket 0 1\ngift 1 1\n", encoding="utf-8")
    shown = str(senses.run(SensesOptions(models=(str(path),))).data)
    assert "nan" not in shown
    assert str(path) in shown
