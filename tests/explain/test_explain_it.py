"""What "it" means: the sentences, how heads are judged, and models that know by construction or know nothing."""

import math
from pathlib import Path

import pytest
import torch

from encoded import fields_for
from regard.cli.topics.resolving import It, resolved
from regard.data.fields import MaskedText
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.explain.pronouns import PRONOUN, pairs
from regard.explain.resolve import Share, lead, resolution
from regard.models import Bert, BertConfig, GptConfig, TransformerConfig
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
        assert one.words[: one.pronoun + 1] == other.words[: other.pronoun + 1]  # until then nobody can know
        assert one.words[-1] != other.words[-1]
        assert one.nouns == other.nouns
        assert one.nouns[0] < one.nouns[1] < one.pronoun < one.last
        assert (one.right, other.right) == (0, 1)
        assert all(word.isalpha() for word in (*one.words, *other.words))
        assert one.words[one.nouns[0]] != one.words[one.nouns[1]]


def test_the_pieces_of_a_noun_count_together() -> None:
    ladder, roof = pairs()[0]  # The ladder did not reach the roof because it was too …
    words = [-1, 0, 1, 1, *range(2, len(ladder.words))]  # a mark, then "ladder" in two pieces
    weights = torch.zeros(1, len(words), len(words))
    weights[0, 1 + 1 + ladder.pronoun, [2, 3]] = 0.3
    weights[0, 1 + 1 + ladder.pronoun, 1 + 1 + ladder.nouns[1]] = 0.4
    assert lead(weights, words, ladder, ladder.pronoun).item() == pytest.approx(0.2)
    assert lead(weights, words, roof, roof.pronoun).item() == pytest.approx(-0.2)


def test_the_best_head_is_chosen_on_one_half_and_judged_on_the_other() -> None:
    leads = torch.tensor([1.0, -1.0]).expand(20, 2)[:, :, None].repeat(1, 1, 4)  # the first noun, always
    leads[0::2, :, 1] = 1.0  # right where the choice is made, and nowhere else
    leads[1::2, :, 1] = -1.0
    leads[:, :, 2] = 0.0  # undecided
    leads[:, 1, 3] = -0.5  # the first noun, but less so when it is the second
    found = resolution(leads, [("a", 0), ("a", 1), ("b", 0), ("b", 1)])
    assert [one.right.rate for one in found.heads] == [0.5, 0.5, 0.5, 0.5]
    assert [one.moved.rate for one in found.heads] == [0.5, 0.5, 0.5, 1.0]
    assert (found.best.layer, found.best.head) == ("a", 1)
    assert (found.chosen.right.rate, found.best.right.rate) == (1.0, 0.0)
    assert (found.best.right.count, found.best.moved.count) == (20, 10)


def test_intervals() -> None:
    low, high = Share(24, 48).interval
    assert low == pytest.approx(1 - high)
    assert (low, high) == pytest.approx((0.3639, 0.6361), abs=1e-3)
    assert Share(48, 48).interval == pytest.approx((48 / (48 + 1.96**2), 1.0))
    assert Share(0, 0).interval == (0.0, 1.0)
    # In nine of ten worlds or more, it holds the truth.
    chance = [math.comb(48, hits) / 2**48 for hits in range(49)]
    inside = [low <= 0.5 <= high for low, high in (Share(hits, 48).interval for hits in range(49))]
    assert sum(p for p, holds in zip(chance, inside) if holds) > 0.93


def loss_module(config: BertConfig | GptConfig | TransformerConfig, tokenizer: Tokenizer, seed: int = 0) -> It:
    torch.manual_seed(seed)
    fields = fields_for(task_of(config), tokenizer, tokenizer)
    return resolved(Loaded(Path("tiny"), config.build().eval(), torch.device("cpu"), fields))


@pytest.mark.parametrize("family", ["bert", "albert", "gpt", "xl", "transformer"])
def test_random_heads_are_right_by_chance(family: str) -> None:
    tokenizer = train_tokenizer("bpe", LINES, 150, "[MASK]" if "bert" in family else None)
    vocab = {"vocab": tokenizer.size}
    config = {
        "bert": lambda: BertConfig(**TINY, **vocab),
        "albert": lambda: BertConfig(**TINY, **vocab, groups=1),
        "gpt": lambda: GptConfig(**TINY, **vocab),
        "xl": lambda: GptConfig(**TINY, **vocab, positions="xl", norm_place="post", memory=4, memory_zeros=True),
        "transformer": lambda: TransformerConfig(**TINY, source_vocab=tokenizer.size, target_vocab=tokenizer.size),
    }[family]()
    it = loss_module(config, tokenizer)
    assert (it.pairs, it.left_out) == (len(pairs()), 0)
    assert it.found is not None
    assert len(it.found.heads) == 4
    low, high = it.found.best.right.interval
    assert low < 0.5 < high
    assert ("last word" in it.asked) == (family in ("gpt", "xl"))
    assert "Chance is 50%" in it.verdict()


def test_a_head_that_is_right_by_construction_is_found() -> None:
    tokenizer = train_tokenizer("word", LINES, 1000, "[MASK]")
    module = knowing(tokenizer)
    it = resolved(Loaded(Path("knows"), module, torch.device("cpu"), {"text": MaskedText(tokenizer)}))
    assert it.found is not None
    best = it.found.best
    assert (best.layer, best.head) == ("stack.blocks.1.attention.read", 0)
    assert best.right.rate == best.moved.rate == it.found.chosen.right.rate == 1.0
    assert best.right.interval[0] > 0.9
    others = [one.right.rate for one in it.found.heads if (one.layer, one.head) != (best.layer, best.head)]
    assert others == [0.5, 0.5, 0.5]
    assert it.rows()[0] == ["1", "0", "100%", "100%"]


@torch.no_grad()
def knowing(tokenizer: Tokenizer) -> Bert:
    """A BERT in which one head knows: "it" first reads the last word, which calls for certain nouns, then finds them.

    Every token is an axis of its own; a last word hands over the axes of the nouns that it can be said of.
    """
    width = tokenizer.size
    config = BertConfig(width=width, heads=2, head_width=width, layers=2, inner=1, context=64, segments=0, vocab=width)
    module = config.build().eval()
    for name, weight in module.named_parameters():
        if not name.endswith("norm.weight"):
            weight.zero_()
    module.embedding.tokens.weight.copy_(torch.eye(width))
    first, second = (block.attention for block in module.stack.blocks)
    q0, k0, v0 = first.qkv.weight.view(3, 2, width, width)[:, 0]  # of head 0; the other one asks nothing
    q1, k1, _ = second.qkv.weight.view(3, 2, width, width)[:, 0]
    (it,) = tokenizer.encode(PRONOUN)
    q0[0, it] = 30.0
    for version in (version for pair in pairs() for version in pair):
        tokens = tokenizer.encode(version.text)
        noun, last = tokens[version.nouns[version.right]], tokens[-1]
        k0[0, last] = v0[noun, last] = q1[noun, noun] = k1[noun, noun] = 1.0
    first.out.weight[:, :width] = torch.eye(width)
    return module


def test_what_cannot_be_read_is_left_out_and_said() -> None:
    known = train_tokenizer("word", LINES[:60], 1000)
    it = loss_module(GptConfig(**TINY, vocab=known.size), known)
    assert it.found is not None
    assert it.left_out > 0 < it.pairs == len(pairs()) - it.left_out
    assert f"{it.left_out} pairs have words that it cannot read" in it.verdict()
    short = loss_module(GptConfig(**{**TINY, "context": 8}, vocab=known.size), known)
    assert short.found is None
    assert short.pairs == 0
    assert "cannot be judged" in short.verdict()
    assert short.rows() == []
