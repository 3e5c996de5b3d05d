"""Word2vec: the fast route follows the gradient of the definition; runs are the same when they are resumed."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.data.tokenizers import train_tokenizer
from regard.data.words import Sentences, first_word, vocabulary
from regard.errors import UserError
from regard.models import CbowConfig, SkipgramConfig
from regard.objectives.word_pairs import (
    HierarchicalSoftmax,
    HuffmanTree,
    NegativeSampling,
    Noise,
    damped_rate,
    definition,
    input_rates,
    kept_fraction,
    make_blocks,
    total_loss,
    update,
)
from regard.recipes import KINDS, Recipe, change, find_recipe
from regard.stored import load_model
from regard.training.run import Run
from regard.verbs.loaded import load

COUNTS = np.array([0, 0, 0, 0, 0, 9, 7, 5, 4, 2, 1])
MODELS = {"skipgram": SkipgramConfig(vocab=11, width=4), "cbow": CbowConfig(vocab=11, width=4)}
OBJECTIVES = {"negative": NegativeSampling(negatives=3), "hierarchical": HierarchicalSoftmax()}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("model", MODELS)
def test_an_update_is_a_step_along_the_gradient_of_the_definition(model: str, objective: str) -> None:
    """Two lines in blocks of four words: the loss and the changes are those of one prediction at a time."""
    built, random = MODELS[model].build().double(), np.random.default_rng(2)
    torch.nn.init.normal_(built.embedding.weight)
    torch.nn.init.normal_(built.output)
    lines = [[5, 6, 5, 7, 8, 6, 9], [10, 5]]
    reach = random.integers(1, 3, size=9, endpoint=True)
    table = OBJECTIVES[objective].table(COUNTS)
    words, of_line = np.concatenate(lines), np.repeat([0, 1], [7, 2])
    blocks = make_blocks(words, of_line, reach, 9, 3)  # one block, so that all predictions share its noise
    blocks = blocks._replace(near=blocks.near.double())
    pairs, mean = built.pairs(blocks.near)
    targets = table.targets(blocks.centres, pairs, random)
    noise = targets.outputs[0, 9:].tolist() if objective == "negative" else []
    losses = [definition(built, table, line, reach[at : at + len(line)], noise) for line, at in zip(lines, (0, 7))]
    expected = torch.autograd.grad(sum(losses), (built.embedding.weight, built.output))
    before = built.embedding.weight.detach().clone(), built.output.detach().clone()
    logits = update(built, blocks, targets, mean, rate=0.1)
    torch.testing.assert_close(total_loss(logits, targets), sum(losses).detach(), atol=1e-9, rtol=0)
    for was, now, slope in zip(before, (built.embedding.weight, built.output), expected):
        torch.testing.assert_close(now.detach(), was - 0.1 * slope, atol=1e-9, rtol=0)


def test_words_that_are_read_often_have_a_lower_rate() -> None:
    """The word 5 is read twice, with the weights 6 and 10; 6 once, with 1; 0 has no prediction."""
    inputs, total = torch.tensor([[5, 6], [0, 5]]), torch.tensor([[[2.0, 4.0], [1.0, 0.0]], [[0.0, 0.0], [9.0, 1.0]]])
    assert input_rates(inputs, total, 7, torch.tensor(0.5))[..., 0].tolist() == [[0.25, 0.5], [0.5, 0.25]]


def test_very_large_logits_lower_the_rate() -> None:
    assert damped_rate(0.1, torch.tensor([3.0, -19.0])) == torch.tensor(0.1)
    assert damped_rate(0.1, torch.tensor([3.0, -40.0])) == torch.tensor(0.1) / 4
    assert damped_rate(0.1, torch.zeros(2)) == torch.tensor(0.1)


def test_the_loss_of_one_prediction_is_the_formula() -> None:
    output, h = torch.randn(11, 4).double(), torch.randn(4).double()
    found = Noise(COUNTS, 8).loss(
        h, 6, [7, 6, 8], output
    )  # 8 of 16 draws: weight 1/2; a negative that is the word: none
    pushed = (-(output[7] @ h)).sigmoid().log() + (-(output[8] @ h)).sigmoid().log()
    torch.testing.assert_close(found, -(output[6] @ h).sigmoid().log() - 0.5 * pushed)


def test_blocks_of_a_text_have_each_pair_once() -> None:
    words, lines = np.arange(5, 55), np.repeat([0, 1, 2], [20, 1, 29])
    reach = np.random.default_rng(1).integers(1, 5, size=50, endpoint=True)
    blocks = make_blocks(words, lines, reach, 8, 5)
    where = blocks.near.nonzero()
    found = sorted((int(blocks.inputs[b, i]), int(blocks.centres[b, t])) for b, i, t in where.tolist())
    inside = [
        (i, t) for t in range(50) for i in range(50) if i != t and abs(i - t) <= reach[t] and lines[i] == lines[t]
    ]
    assert found == sorted((i + 5, t + 5) for i, t in inside)


def test_the_probabilities_of_the_tree_sum_to_one_and_its_paths_are_shortest() -> None:
    tree, output, h = HuffmanTree(COUNTS), torch.randn(11, 4).double(), torch.randn(4).double()
    total = sum((-tree.loss(h, word, [], output)).exp() for word in range(5, 11))
    torch.testing.assert_close(total, torch.ones((), dtype=torch.double))
    lengths = [len(path) for path in tree.paths]
    assert lengths[:5] == [0] * 5  # special tokens are not in the tree
    assert sum(COUNTS * lengths) == 3 + 7 + 12 + 16 + 28  # the counts of the inner nodes, joined by hand
    assert HuffmanTree(np.array([0, 0, 8])).paths == [[], [], []]


def test_the_noise_is_the_counts_to_the_power_of_three_quarters() -> None:
    drawn = Noise(COUNTS, 5).draw((200_000,), np.random.default_rng(0))
    expected = COUNTS**0.75 / (COUNTS**0.75).sum()
    np.testing.assert_allclose(np.bincount(drawn, minlength=11) / 200_000, expected, atol=0.004)


def test_frequent_words_stay_with_the_published_probability() -> None:
    counts = np.array([0, 900_000, 99_900, 100])
    kept = kept_fraction(counts, 1e-3)
    for place in (1, 2):
        ratio = 1e-3 / (counts[place] / counts.sum())
        assert kept[place] == pytest.approx(ratio**0.5 + ratio)
    assert kept[3] == 1
    assert kept_fraction(counts, 0).tolist() == [1, 1, 1, 1]


# Runs


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups of words that occur in lines of their own."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("text") / "text.txt"
    groups = [[f"{name}{number}" for number in range(12)] for name in ("sea", "sky")]
    path.write_text("".join(" ".join(random.choice(groups[n % 2], 12)) + "\n" for n in range(150)))
    return path


def word2vec(text: Path, *settings: str, name: str = "word2vec") -> Recipe:
    own = [f"data.train={text}", "model.width=32", "plan.batch_tokens=500", "plan.rate=0.1"]
    own += [] if any(one.startswith("plan.steps") for one in settings) else ["plan.epochs=2"]
    stated = (
        [*settings[:1], *own, *settings[1:]] if settings and settings[0].startswith("model=") else [*own, *settings]
    )
    return change(find_recipe(name), stated, KINDS)


def weights(run: Path) -> dict[str, torch.Tensor]:
    found = dict(load_model(run / "steps" / f"{load(run).step:06d}").state_dict())
    return found


@pytest.mark.parametrize("settings", [("model=skipgram",), ("model=cbow",), ("objective=hierarchical",)], ids="".join)
def test_words_of_one_topic_become_near(text: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    list(Run(word2vec(text, *settings, "objective.sample=0", "plan.epochs=4"), tmp_path / "run"))
    table = load(tmp_path / "run")
    vectors = F.normalize(table.module.vectors[5:].detach(), dim=1)
    topic = torch.tensor([name.startswith("sea") for name in table.tokenizer.pieces(range(5, 29))])
    same = topic[:, None] == topic
    cosines = vectors @ vectors.mT
    assert cosines[same].mean() > cosines[~same].mean() + 0.3
    assert not table.module.vectors[:5].any()


@pytest.mark.parametrize(
    "settings",
    [
        ("objective.window=10", "objective.negatives=15", "plan.rate=0.025"),
        ("objective.window=10", "objective.negatives=15", "plan.rate=0.05"),
        ("objective=hierarchical", "plan.rate=0.05"),
        ("plan.rate=0.1",),
    ],
    ids=["negatives", "both", "tree", "rate"],
)
def test_passages_that_repeat_their_words_are_trained(settings: tuple[str, ...], tmp_path: Path) -> None:
    """Each line repeats twenty words of 2,000, so that one update changes the same rows many times."""
    random = np.random.default_rng(0)
    lines = (random.choice(random.integers(2000, size=20), 200) for _ in range(300))
    (tmp_path / "text.txt").write_text("".join(" ".join(f"w{word}" for word in line) + "\n" for line in lines))
    recipe = word2vec(tmp_path / "text.txt", "model.width=100", *settings, "plan.epochs=2", "plan.batch_tokens=10000")
    run = Run(recipe, tmp_path / "run")
    losses = [float(step.total) for step in run.trainer.steps(0)]
    assert losses[-1] < losses[0] < 20
    assert run.model.vectors.norm(dim=1).max() < 20


def test_a_resumed_run_has_equal_bits(text: Path, tmp_path: Path) -> None:
    recipe = word2vec(text, "plan.evaluate=3")
    list(Run(recipe, tmp_path / "whole"))
    assert len(list(islice(Run(recipe, tmp_path / "parts"), 4))) == 4  # closed after a few events
    before = load(tmp_path / "parts").step
    list(Run(None, tmp_path / "parts", existing="resume"))
    assert 0 < before < load(tmp_path / "whole").step
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("word\n", (), "data.min_count=5: no word of the text occurs so often; give data.min_count=1"),
        ("word", ("data.min_count=1",), "no line has two words that have vectors"),
        ("a\nb\n" * 9, (), "no line has two words that have vectors"),
        ("a b", ("objective.window=0",), "objective.window=0: give a number from 1 to 100"),
        ("a b", ("objective.negatives=0",), "objective.negatives=0: give a number from 1"),
        ("a b", ("objective.sample=2",), "objective.sample=2.0: give a number from 0"),
        ("a b\n" * 9, ("objective.sample=1e-9",), "objective.sample=1e-09: leaves less than 0.1% of the text"),
        ("a b\n" * 9, ("objective.sample=1e-320",), "objective.sample=.*: leaves less than 0.1% of the text"),
        ("a b", ("objective.workers=0",), "objective.workers=0: give a number from 1"),
        ("a b", ("model.width=0",), "model.width=0: give 1 or more"),
        ("a b", ("objective=teacher",), "objective=teacher: does not fit"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    content: str, settings: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(content)
    with pytest.raises(UserError, match=message):
        Run(word2vec(tmp_path / "text.txt", *settings), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "model", "other"),
    [("word2vec", "glove", "glove"), ("glove", "skipgram", "word2vec"), ("glove", "cbow", "word2vec")],
)
def test_a_model_of_another_recipe_is_refused(name: str, model: str, other: str) -> None:
    """Each recipe has the rate of its own trainer."""
    with pytest.raises(UserError, match=f"model={model}: the plan of {name} .* regard train {other} model={model}"):
        change(find_recipe(name), [f"model={model}"], KINDS)


@pytest.mark.parametrize("kind", ["objective=negative", "objective=hierarchical", "model=glove"])
@pytest.mark.parametrize("content", ["the same line of six words", "word " * 40, "word another " * 500], ids=len)
def test_tiny_texts_are_trained(content: str, kind: str, tmp_path: Path) -> None:
    """One line; one word that is repeated, whose only noise is itself; two words: nothing diverges."""
    (tmp_path / "text.txt").write_text(content)
    name = "glove" if kind == "model=glove" else "word2vec"
    list(Run(word2vec(tmp_path / "text.txt", kind, "data.min_count=1", name=name), tmp_path / "run"))
    assert load(tmp_path / "run").module.vectors.abs().max() < 100


def test_a_line_of_a_megabyte_is_one_context(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(1000)]
    (tmp_path / "text.txt").write_text(" ".join(words * 150) + "\n" + "x" * 2**20 + "\n")
    run = Run(word2vec(tmp_path / "text.txt", "plan.batch_tokens=10000", "plan.steps=2"), tmp_path / "run")
    assert [step.tokens for step in run.trainer.steps(0)] == [10_000, 10_000]


@pytest.mark.parametrize(
    "lines", [["a b a b\n"] * 9, ["a a a b b b b b b\n"] * 2, ["b b b b b"]], ids=["often", "rare", "none"]
)
def test_the_end_of_a_line_is_no_word(lines: list[str]) -> None:
    """However often it occurs, its id is the one before the first word."""
    tokenizer = train_tokenizer("word-eos", lines, 80, least=5)
    assert vocabulary(tokenizer)[4] == "<eos>"
    assert first_word(tokenizer) == 5
    assert vocabulary(tokenizer)[5:] == sorted("ab" if "a" in lines[0] else "b", key="".join(lines).count, reverse=True)


def test_the_words_of_a_part_leave_out_rare_words_and_know_their_lines() -> None:
    ids = np.array([5, 3, 6, 4, 7, 7, 4, 4, 8], np.uint16)  # 3: rare, 4: the end of a line
    sentences = Sentences(ids, 5, 4, seed=1)
    words, lines = sentences.words(0, 9)
    assert words.tolist() == [5, 6, 7, 7, 8]
    assert lines.tolist() == [0, 0, 1, 1, 3]
    assert len(sentences) == 3
    assert sentences.span(2) == sentences.span(5) == (8, 9)
    assert sentences.counts(10).tolist() == [0, 0, 0, 0, 0, 1, 1, 2, 1, 0]
