"""Coreference: the pairs of sentences, how heads are scored, random models, and a model built to resolve "it"."""

import math
from pathlib import Path

import pytest
import torch

from encoded import fields_for
from regard.data.fields import MaskedText
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.explain.coreference import (
    PRONOUN,
    Coreference,
    Proportion,
    evaluate_coreference,
    pairs,
    preference,
    score_heads,
)
from regard.models import Bert, BertConfig, GptConfig, TransformerConfig
from regard.report.sections import Table
from regard.tasks import task_of
from regard.verbs.loaded import Loaded

TINY = {"width": 16, "heads": 2, "layers": 2, "inner": 24, "context": 64}
LINES = [version.text for pair in pairs() for version in pair]


def test_the_sentences() -> None:
    found = pairs()
    assert len(found) >= 40
    assert len({pair[0].text for pair in found}) == len(found)
    for one, other in found:
        assert one.words.count(PRONOUN) == other.words.count(PRONOUN) == 1
        assert one.words[: one.pronoun + 1] == other.words[: other.pronoun + 1]  # identical up to "it"
        assert one.words[-1] != other.words[-1]
        assert one.nouns == other.nouns
        assert one.nouns[0] < one.nouns[1] < one.pronoun < one.last
        assert (one.correct, other.correct) == (0, 1)
        assert all(word.isalpha() for word in (*one.words, *other.words))
        assert one.words[one.nouns[0]] != one.words[one.nouns[1]]


def test_the_tokens_of_a_noun_are_added_up() -> None:
    ladder, roof = pairs()[0]  # The ladder did not reach the roof because it was too …
    words = [-1, 0, 1, 1, *range(2, len(ladder.words))]  # a special token, then "ladder" in two pieces
    weights = torch.zeros(1, len(words), len(words))
    weights[0, 1 + 1 + ladder.pronoun, [2, 3]] = 0.3
    weights[0, 1 + 1 + ladder.pronoun, 1 + 1 + ladder.nouns[1]] = 0.4
    assert preference(weights, words, ladder, ladder.pronoun).item() == pytest.approx(0.2)
    assert preference(weights, words, roof, roof.pronoun).item() == pytest.approx(-0.2)


def test_the_best_head_is_selected_on_one_half_and_tested_on_the_other() -> None:
    preferences = torch.tensor([1.0, -1.0]).expand(20, 2)[:, :, None].repeat(1, 1, 4)  # always the first noun
    preferences[0::2, :, 1] = 1.0  # correct in the selection half only
    preferences[1::2, :, 1] = -1.0
    preferences[:, :, 2] = 0.0  # undecided
    preferences[:, 1, 3] = -0.5  # always the first noun, but less when the second is correct
    found = score_heads(preferences, [("a", 0), ("a", 1), ("b", 0), ("b", 1)])
    assert [one.correct.rate for one in found.heads] == [0.5, 0.5, 0.5, 0.5]
    assert [one.shifted.rate for one in found.heads] == [0.5, 0.5, 0.5, 1.0]
    assert (found.best_on_test.layer, found.best_on_test.head) == ("a", 1)
    assert (found.best_on_selection.correct.rate, found.best_on_test.correct.rate) == (1.0, 0.0)
    assert (found.best_on_test.correct.count, found.best_on_test.shifted.count) == (20, 10)


def test_intervals() -> None:
    low, high = Proportion(24, 48).interval
    assert low == pytest.approx(1 - high)
    assert (low, high) == pytest.approx((0.3639, 0.6361), abs=1e-3)
    assert Proportion(48, 48).interval == pytest.approx((48 / (48 + 1.96**2), 1.0))
    assert Proportion(0, 0).interval == (0.0, 1.0)
    # The interval contains the true rate with a probability of about 95 %.
    chance = [math.comb(48, hits) / 2**48 for hits in range(49)]
    inside = [low <= 0.5 <= high for low, high in (Proportion(hits, 48).interval for hits in range(49))]
    assert sum(p for p, holds in zip(chance, inside) if holds) > 0.93


def evaluate_random_model(
    config: BertConfig | GptConfig | TransformerConfig, tokenizer: Tokenizer, seed: int = 0
) -> Coreference:
    torch.manual_seed(seed)
    fields = fields_for(task_of(config), tokenizer, tokenizer)
    return evaluate_coreference(Loaded(Path("tiny"), config.build().eval(), torch.device("cpu"), fields))


@pytest.mark.parametrize("family", ["bert", "albert", "gpt", "xl", "transformer"])
def test_random_heads_are_at_chance(family: str) -> None:
    tokenizer = train_tokenizer("bpe", LINES, 150, "[MASK]" if "bert" in family else None)
    vocab = {"vocab": tokenizer.size}
    config = {
        "bert": lambda: BertConfig(**TINY, **vocab),
        "albert": lambda: BertConfig(**TINY, **vocab, groups=1),
        "gpt": lambda: GptConfig(**TINY, **vocab),
        "xl": lambda: GptConfig(**TINY, **vocab, positions="xl", norm_place="post", memory=4),
        "transformer": lambda: TransformerConfig(**TINY, source_vocab=tokenizer.size, target_vocab=tokenizer.size),
    }[family]()
    it = evaluate_random_model(config, tokenizer)
    assert (it.pairs, it.skipped) == (len(pairs()), 0)
    assert it.scores is not None
    assert len(it.scores.heads) == 4
    low, high = it.scores.best_on_test.correct.interval
    assert low < 0.5 < high
    assert ("last word" in it.query) == (family in ("gpt", "xl"))
    assert "Chance is 50%" in it.summary()


def test_a_head_built_to_resolve_it_is_found() -> None:
    tokenizer = train_tokenizer("word", LINES, 1000, "[MASK]")
    module = bert_that_resolves_it(tokenizer)
    it = evaluate_coreference(Loaded(Path("built"), module, torch.device("cpu"), {"text": MaskedText(tokenizer)}))
    assert it.scores is not None
    best = it.scores.best_on_test
    assert (best.layer, best.head) == ("stack.blocks.1.attention.read", 0)
    assert best.correct.rate == best.shifted.rate == it.scores.best_on_selection.correct.rate == 1.0
    assert best.correct.interval[0] > 0.9
    others = [one.correct.rate for one in it.scores.heads if (one.layer, one.head) != (best.layer, best.head)]
    assert others == [0.5, 0.5, 0.5]
    assert not it.animal  # the tokenizer of these sentences does not know "animal"
    table = it.sections()[1]
    assert isinstance(table, Table)
    assert table.rows[0] == ("1", 0, "100%", "100%")


@torch.no_grad()
def bert_that_resolves_it(tokenizer: Tokenizer) -> Bert:
    """A BERT with a head that resolves "it": layer 0 copies the nouns that fit the last word, layer 1 attends to them.

    Every token has its own dimension. The value of a last word is the sum of the dimensions of the nouns that fit it.
    """
    width = tokenizer.size
    config = BertConfig(width=width, heads=2, head_width=width, layers=2, inner=1, context=64, segments=0, vocab=width)
    module = config.build().eval()
    for name, weight in module.named_parameters():
        if not name.endswith("norm.weight"):
            weight.zero_()
    module.embedding.tokens.weight.copy_(torch.eye(width))
    first, second = (block.attention for block in module.stack.blocks)
    q0, k0, v0 = first.qkv.weight.view(3, 2, width, width)[:, 0]  # of head 0; head 1 stays zero
    q1, k1, _ = second.qkv.weight.view(3, 2, width, width)[:, 0]
    (it,) = tokenizer.encode(PRONOUN)
    q0[0, it] = 30.0
    for version in (version for pair in pairs() for version in pair):
        tokens = tokenizer.encode(version.text)
        noun, last = tokens[version.nouns[version.correct]], tokens[-1]
        k0[0, last] = v0[noun, last] = q1[noun, noun] = k1[noun, noun] = 1.0
    first.out.weight[:, :width] = torch.eye(width)
    return module


def test_pairs_that_the_model_cannot_read_are_skipped_and_reported() -> None:
    known = train_tokenizer("word", LINES[:60], 1000)
    it = evaluate_random_model(GptConfig(**TINY, vocab=known.size), known)
    assert it.scores is not None
    assert it.skipped > 0 < it.pairs == len(pairs()) - it.skipped
    assert f"{it.skipped} pairs were skipped" in it.summary()
    short = evaluate_random_model(GptConfig(**{**TINY, "context": 8}, vocab=known.size), known)
    assert short.scores is None
    assert short.pairs == 0
    assert "cannot be evaluated" in short.summary()
    assert len(short.sections()) == 1
