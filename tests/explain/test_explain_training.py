"""Training of the small networks, and tokenized texts."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.device import single_thread
from regard.errors import UserError
from regard.explain.experiment import Prefix, TinyTransformer, sizes_of, train, training_of
from regard.explain.options import AttentionOptions, PositionsOptions, ScalingOptions, ScoresOptions
from regard.explain.tokenized import TokenizedText, load_transformer, tokenize
from regard.explain.topic import Progress, reading
from regard.layers.transformer import Shape


class Table(nn.Module):
    """Logits for each token, without a context."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Embedding(4, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits(tokens)


def sample(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(4, (2, 3), generator=generator)
    return tokens, tokens.roll(1, 1)


@pytest.mark.parametrize(("steps", "last"), [(1, 1), (39, 1), (40, 2), (60, 3)])
def test_the_final_loss_is_the_mean_of_the_last_twentieth_of_the_steps(steps: int, last: int) -> None:
    found: list[Progress] = []
    loss = train("table", Table(), sample, steps, 1, 0.01, found.append)
    losses = [one.loss for one in found if one.loss is not None]
    assert [(one.name, one.step, one.steps) for one in found] == [("table", at, steps) for at in range(1, steps + 1)]
    assert loss == pytest.approx(sum(losses[-last:]) / last)


def test_without_steps_nothing_is_trained() -> None:
    network = Table()
    before = network.logits.weight.clone()
    assert math.isnan(train("table", network, sample, 0, 1))
    assert torch.equal(before, network.logits.weight)
    assert training_of(0, 3) == "not trained (steps=0), seed 3"
    assert training_of(5, 3) == "trained now for 5 steps with seed 3"
    assert sizes_of(Shape(width=8, heads=2, layers=1, inner=8)) == "1 layer, 2 heads, width 8"


def test_the_rate_rises_for_a_tenth_of_the_steps_and_then_falls_to_zero() -> None:
    network, seen = Table(), []
    train("table", network, sample, 20, 1, 0.1, lambda _: seen.append(network.logits.weight.detach().clone()))
    moves = [float((two - one).abs().max()) for one, two in pairwise(seen)]
    assert moves[0] > 0.01  # after two steps of 20 the rate is the largest
    assert moves[-1] < 0.3 * max(moves)


def test_torch_has_its_threads_again_after_a_measurement() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    with single_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    torch.set_num_threads(threads)


def test_a_step_reads_what_was_read_before() -> None:
    network = TinyTransformer(Shape(width=8, heads=2, layers=1, inner=8, context=8, dropout=0.0), 5)
    tokens, state = torch.tensor([[1, 2, 3], [4, 0, 1]]), Prefix(torch.zeros(2, 0, dtype=torch.long))
    for at in range(3):
        logits, state = network.step(tokens[:, at], state)
        torch.testing.assert_close(logits, network(tokens[:, : at + 1])[:, -1])
    assert state.select(torch.tensor([1])).tokens.tolist() == [[4, 0, 1]]


def test_separators_are_special_tokens_and_punctuation(translator: Any, classifier: Path) -> None:
    model = regard.load(translator())
    tokenizer = model.tokenizer
    special = list(tokenizer.special_tokens.ids)
    text = TokenizedText(model, [*special, *tokenizer.encode("a b")])
    assert text.separators == [True] * len(special) + [False, True, False]
    with pytest.raises(UserError, match="TEXT is empty"):
        tokenize(model, "  ")
    with pytest.raises(UserError, match="has no Transformer blocks; give another model, or none"):
        load_transformer(str(classifier))


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        (ScoresOptions, {"keys": 1}, "keys=1: give 2 to 8"),
        (ScoresOptions, {"keys": 9}, "keys=9: give 2 to 8"),
        (ScoresOptions, {"seed": -1}, "seed=-1: give 0 to 2,147,483,648"),
        (AttentionOptions, {"steps": 1_000_001}, "steps=1000001: give 0 to 1,000,000"),
        (ScalingOptions, {"widths": ()}, "widths=: give at least one"),
        (ScalingOptions, {"widths": (8, 0)}, r"widths=\(8, 0\): give 1 to 65,536"),
        (PositionsOptions, {"length": 5}, "length=5: give 6 to 256"),
    ],
)
def test_the_limits_of_options(options: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        options(**given)


def test_the_ends_of_a_range_are_allowed() -> None:
    for keys in (2, 8):
        ScoresOptions(keys=keys, seed=0)
    AttentionOptions(steps=0)
    AttentionOptions(steps=1_000_000, seed=2**31)


def test_a_reading_is_that_of_the_default_options() -> None:
    titles = [reading("", given).title for given in (ScoresOptions(), ScoresOptions(seed=2))]
    assert titles == ["How to read the results", "How to read the results of the default options"]
