"""The topics about pre-training: what is masked, the probe, the task of transfer, and what a file may not be."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batches import IGNORED
from regard.errors import UserError
from regard.explain import masking_rates, transfer
from regard.explain.grammar import IDS, PAD
from regard.explain.masking_rates import (
    RATES,
    REPLACEMENTS,
    WINDOW,
    RunningText,
    Setting,
    corrupt,
    load_text,
    probe_next,
    windows,
)
from regard.explain.options import MaskingRatesOptions, TransferOptions
from regard.report.sections import Table


@pytest.fixture(scope="module")
def text() -> RunningText:
    return load_text(MaskingRatesOptions())


@pytest.mark.parametrize("setting", [*RATES, *REPLACEMENTS], ids=lambda one: one.name)
def test_a_setting_chooses_and_shows_the_parts_that_it_names(text: RunningText, setting: Setting) -> None:
    generator = torch.Generator().manual_seed(0)
    original = torch.from_numpy(windows(text.train, 200, generator))
    shown, targets = corrupt(original.numpy(), text.corruption(setting), generator)
    chosen = targets != IGNORED
    assert chosen.sum(1).tolist() == [round(setting.part * WINDOW)] * 200
    assert torch.equal(targets[chosen], original[chosen])
    assert torch.equal(shown[~chosen], original[~chosen])
    mask = text.tokenizer.special_tokens.mask
    count = int(chosen.sum())
    for part, found in ((setting.mask, shown == mask), (setting.kept, shown == original)):
        seen = (found & chosen).sum().item() / count
        assert abs(seen - part) <= 4 * math.sqrt(part * (1 - part) / count) + 2 * setting.random / text.tokenizer.size


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_example_has_a_mask_a_random_word_and_a_kept_word(text: RunningText, seed: int) -> None:
    lines = masking_rates._example(text, MaskingRatesOptions(seed=seed)).splitlines()
    rows = zip(lines[::3], lines[1::3], lines[2::3])  # a window is printed in two lines
    shown = {name.rstrip(":"): [*first.split(), *second.split()] for name, first, second in rows}
    whole, read = shown["the text"], shown["15%, 80/10/10"]
    chosen = [(word, one) for word, one in zip(whole, read) if one.startswith("[")]
    assert len(chosen) == round(0.15 * WINDOW)
    kinds = {"mask" if one == "[<mask>]" else "kept" if one == f"[{word}]" else "random" for word, one in chosen}
    assert kinds == {"mask", "kept", "random"}
    assert len({*map(tuple, shown.values())}) == len(shown)  # no two settings show the same


def test_the_texts_of_the_test_are_not_those_of_training(text: RunningText) -> None:
    assert len(text.train) == 9 * (len(text.train) + len(text.test)) // 10
    assert not np.array_equal(text.train[: len(text.test)], text.test)


def test_the_probe_tells_the_next_word_if_the_state_has_it() -> None:
    generator = torch.Generator().manual_seed(0)
    known, new = (torch.randint(7, (30, 10), generator=generator) for _ in range(2))

    def with_next(words: torch.Tensor) -> torch.Tensor:
        return torch.eye(7)[words.roll(-1, dims=1)]

    assert probe_next(with_next(known), known, with_next(new), new) == 1.0
    assert probe_next(torch.eye(7)[known], known, torch.eye(7)[new], new) < 0.4  # the words are independent


def test_a_text_of_the_user_must_be_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a dog sees a cat .\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a text of 6 words is too short; give at least 800"):
        load_text(MaskingRatesOptions(file=str(path)))
    path.write_text("a dog sees a cat .\n\n" * 300, encoding="utf-8")
    result = masking_rates.run(MaskingRatesOptions(file=str(path), steps=0, seeds=1, count=3))
    assert str(path) in result.about
    assert [one.predictions for one in result.data["models"][:4]] == [2, 6, 12, 20]
    tables = [section for section in result.sections if isinstance(section, Table)]
    assert "one seed" in tables[1].note
    assert not any("±" in str(cell) for table in tables for row in table.rows for cell in row)  # one seed has no spread


def test_the_sentences_of_the_test_are_new_and_have_the_number_of_the_verb() -> None:
    known, new = transfer.sample_sentences(1, 300), transfer.sample_sentences(1, 300, new=True)
    assert not {*map(tuple, known)} & {*map(tuple, new)}
    some = [
        ["the", "dogs", "behind", "a", "tree", "sleep", "."],
        ["a", "dog", "near", "many", "boats", "sees", "the", "cats", "."],
    ]
    assert transfer.labels_of(some).tolist() == [[1], [0]]


def test_the_targets_of_the_masked_model_are_words() -> None:
    tokens, targets = transfer.masked_batch(torch.Generator().manual_seed(0))
    assert tokens.shape == targets.shape
    assert 0.1 < (targets != IGNORED).sum() / (tokens != IDS[PAD]).sum() < 0.25
    assert (tokens[:, 0] == tokens[0, 0]).all()
    assert (tokens[targets != IGNORED] == transfer.MASK).float().mean() > 0.6


def test_padding_does_not_change_a_classifier() -> None:
    torch.manual_seed(0)
    classifier = transfer.Classifier(transfer.Body(transfer.SHAPE, transfer.MASK + 1)).eval()
    short = transfer.padded([["a", "dog", "sleeps", "."]])
    both = transfer.padded(
        [["a", "dog", "sleeps", "."], ["the", "old", "dogs", "near", "a", "tree", "see", "the", "cats", "."]]
    )
    torch.testing.assert_close(classifier(short)[0], classifier(both)[0])


def test_frozen_states_do_not_change_and_fine_tuned_ones_do() -> None:
    sentences = transfer.sample_sentences(1, 4)
    for frozen in (True, False):
        torch.manual_seed(0)
        body = transfer.Body(transfer.SHAPE, transfer.MASK + 1)
        before = [weight.clone() for weight in body.stack.parameters()]
        classifier = transfer._fit("", body, frozen, sentences, 2, 1, 1e-2, lambda _: None)
        same = all(map(torch.equal, before, classifier.body.stack.parameters()))
        assert same == frozen


def test_one_half_of_the_labelled_sentences_is_of_each_class() -> None:
    for seed, count in ((2**41 + 2, 8), (1, 3), (2, 100)):
        assert (
            transfer.labels_of(transfer.labelled_sentences(seed, count)).flatten().tolist()[:4] == [0, 1, 0, 1][:count]
        )
        assert len(transfer.labelled_sentences(seed, count)) == count


@pytest.mark.slow
def test_pre_training_helps_with_few_labels() -> None:
    ways = transfer.run(TransferOptions(labels=(8,), seeds=2)).data["ways"]
    found = {one.name: sum(one.accuracy[8]) / 2 for one in ways}
    assert found["masked, frozen"] > found["not trained, frozen"]
    assert found["causal, fine-tuned"] > found["from scratch"]
