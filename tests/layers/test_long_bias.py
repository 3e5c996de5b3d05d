"""The bias of a long text is computed for some queries at a time, and the outputs are those of all at once."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard import record
from regard.layers.positions import Buckets
from regard.mask import EVERYTHING
from regard.models import FAMILIES, BertConfig, GptConfig, TransformerConfig
from regard.scores import PART, Relative

LENGTH, HEADS = 40, 2
SMALL = {"width": 16, "heads": HEADS, "layers": 2, "inner": 16, "dropout": 0.0}
CONFIGS = {
    "t5": replace(FAMILIES["t5"], **SMALL, source_vocab=20, target_vocab=20),  # type: ignore[arg-type]
    "relative": BertConfig(**SMALL, vocab=20, positions="relative", furthest=4),  # type: ignore[arg-type]
    "xl": GptConfig(**SMALL, vocab=20, positions="xl", memory=8),  # type: ignore[arg-type]
}


@torch.no_grad()
def outputs(name: str) -> tuple[Tensor, dict[str, Tensor]]:
    """The states of texts with padding, and the recorded weights."""
    torch.manual_seed(1)
    config = CONFIGS[name]
    model = config.build().eval().double()
    tokens, real = torch.randint(20, (3, LENGTH)), torch.arange(LENGTH) < torch.tensor([[40], [31], [7]])
    with record(model) as tape:
        if isinstance(config, TransformerConfig):
            found = model.encode(tokens, real)
        elif isinstance(config, BertConfig):
            found = model.features(tokens, real)
        else:
            found, _ = model.advance(tokens, model.start(rows=3))
            real = torch.ones_like(real)
    return found[real], {path: tape[path] for path in tape}


@pytest.mark.parametrize("name", CONFIGS)
def test_some_queries_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, weights = outputs(name)
    sizes, forward = [], Buckets.forward
    monkeypatch.setattr(Buckets, "forward", lambda *given: (sizes.append((one := forward(*given)).numel()), one)[1])
    limit = 3 * HEADS * LENGTH * 4  # four queries of all rows
    for constant in ("scores.AT_ONCE", "scores.PART", "layers.transformer.AT_ONCE", "recording.CHUNK"):
        monkeypatch.setattr(f"regard.{constant}", limit)
    monkeypatch.setattr("regard.scores.FEWEST_ROWS", 1)
    some, recorded = outputs(name)
    torch.testing.assert_close(some, whole)
    for path, one in weights.items():
        torch.testing.assert_close(recorded[path], one)
    if name == "t5":
        assert max(sizes) <= limit
        assert len(sizes) > 2 * (LENGTH // 4)  # every layer computes its own


def test_the_bias_of_a_long_text_is_made_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed at once fits in a few dozen MiB, however long the text is. Here 2,000 tokens count as long."""
    for constant in ("scores.AT_ONCE", "layers.transformer.AT_ONCE"):
        monkeypatch.setattr(f"regard.{constant}", HEADS * 2000**2 - 1)
    sizes, forward = [], Buckets.forward
    monkeypatch.setattr(Buckets, "forward", lambda *given: (sizes.append((one := forward(*given)).numel()), one)[1])
    model = replace(CONFIGS["t5"], layers=1).build().eval()
    with torch.no_grad():
        model.encode(torch.randint(20, (1, 2000)))
    assert sum(sizes) == HEADS * 2000**2
    assert max(sizes) <= PART


def test_the_bias_of_many_queries_is_that_of_one() -> None:
    """Of many queries it is looked up by the distance, of one (a step of decoding) by the bucket."""
    for both_ways, buckets, furthest in ((True, 32, 128), (False, 32, 128), (True, 4, 3), (False, 16, 40)):
        bias, places = Buckets(HEADS, buckets, furthest, both_ways), torch.arange(300)
        whole = bias(places, places)
        for query in (0, 1, 120, 299):
            assert torch.equal(bias(places[query : query + 1], places)[:, :, 0], whole[:, :, query])


def test_a_furthest_distance_of_any_size_takes_no_memory() -> None:
    places = torch.arange(8)
    bias = Buckets(HEADS, 32, 10**12)(places, places)
    assert bias.shape == (1, HEADS, 8, 8)


def test_parts_of_many_texts_are_not_cut_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has a least number of rows, which may be more than is computed at once."""
    score, places = Relative(4, 3), torch.arange(12)
    q = torch.randn(5, 2, 12, 4)
    with torch.no_grad():
        whole = score.attend(q, q, q, EVERYTHING, 0.0, places, places)
        for constant, value in (("AT_ONCE", 100), ("PART", 100), ("FEWEST_ROWS", 5)):
            monkeypatch.setattr(f"regard.scores.{constant}", value)
        torch.testing.assert_close(score.attend(q, q, q, EVERYTHING, 0.0, places, places), whole)
