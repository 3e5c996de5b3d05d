"""Replaced token detection: what the generator samples, what counts as replaced, and the losses of both networks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch, collate
from regard.data.corruption import MaskAndDraw, MaskTokens
from regard.data.fields import InputText
from regard.data.flat import Rows
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.layers.product import Product
from regard.models import Bert, BertConfig
from regard.objectives import LossModule, ReplacedTokens
from regard.objectives.replaced import Generator, sample
from regard.tasks import TASKS

PAD, BEGIN, END, MASK, VOCAB = 0, 1, 2, 3, 30
SPECIALS = (PAD, BEGIN, END, MASK)
CONFIG = BertConfig(vocab=VOCAB, width=16, heads=4, layers=2, inner=24, context=40, embed=6, outputs=("replaced",))
LENGTHS = [20, 3, 0, 32, 7, 21]


def made(lengths: list[int] = LENGTHS, seed: int = 0, token: int | None = None, part: float = 0.15) -> Batch:
    """A batch of texts; a length of 0 is a filler row. All tokens are `token`, if it is given."""
    random = np.random.default_rng(seed)
    texts = [random.integers(len(SPECIALS), VOCAB, max(length - 2, 0)) for length in lengths]
    texts = texts if token is None else [np.full_like(text, token) for text in texts]
    rows = [{"text": np.array([BEGIN, *text, END] if n else [], np.int64)} for n, text in zip(lengths, texts)]
    corruption = MaskAndDraw(MaskTokens(MASK, VOCAB, SPECIALS, part, 0.0, 0.0))
    return collate(corruption(Rows.of(rows), np.random.default_rng(seed)), TASKS["replaced"])


def module(objective: ReplacedTokens, config: BertConfig = CONFIG, seed: int = 1) -> tuple[Bert, Generator]:
    torch.manual_seed(seed)
    found = LossModule(config.build(), objective).double().eval()
    for weight in found.parameters():  # larger than at first, so that the predictions differ
        torch.nn.init.normal_(weight, std=0.4)
    assert isinstance(found.model, Bert)
    assert isinstance(found.own, Generator)
    return found.model, found.own


def sums(objective: ReplacedTokens, batch: Batch, seed: int = 1) -> dict[str, Tensor]:
    model, own = module(objective, seed=seed)
    return objective(model, batch, 0, own)[0]


def replaced_text(model: Bert, own: Generator, batch: Batch) -> Tensor:
    """The text that the model reads, by the definition: one masked place after the other."""
    tokens, everywhere = batch["tokens"].clone(), torch.arange(batch["tokens"].shape[1])
    chances = own(model, tokens, everywhere.expand(tokens.shape), batch.real["tokens"]).logits().softmax(-1)
    for row, place in (batch["targets"] != IGNORED).nonzero().tolist():
        assert int(batch["tokens"][row, place]) == MASK
        so_far, draw = 0.0, float(batch["draws"][row, place])
        for token, chance in enumerate(chances[row, place].tolist()):
            so_far += chance
            if so_far > draw:
                tokens[row, place] = token
                break
    return tokens


@pytest.mark.parametrize("places", ["all", "masked"])
def test_the_losses_are_those_of_the_definition(places: Any) -> None:
    objective, batch = ReplacedTokens(places=places), made()
    model, own = module(objective)
    found = objective(model, batch, 0, own)[0]
    tokens, targets, real = batch["tokens"], batch["targets"], batch.real["tokens"]
    masked, text = targets != IGNORED, replaced_text(model, own, batch)
    original = torch.where(masked, targets, tokens)
    answers = (text != original).double()
    assert 0 < answers.sum() <= masked.sum() == 15
    assert float(found["replaced"]) == float(answers.sum())
    logits = model.readout(model.features(text, real))
    judged = real if places == "all" else masked
    losses = F.binary_cross_entropy_with_logits(logits, answers, reduction="none")[judged]
    torch.testing.assert_close(found["nll"], losses.sum(), atol=1e-9, rtol=0)
    everywhere = torch.arange(tokens.shape[1]).expand(tokens.shape)
    predicted = own(model, tokens, everywhere, real).logits().log_softmax(-1)[masked]
    expected = -predicted.gather(1, targets[masked][:, None]).sum()
    torch.testing.assert_close(found["generator"], expected, atol=1e-9, rtol=0)
    flagged = (logits > 0) & judged
    assert float(found["right"]) == float((flagged == answers.bool())[judged].sum())
    assert float(found["flagged"]) == float(flagged.sum())
    assert float(found["detected"]) == float((flagged & answers.bool()).sum())
    assert objective.count(batch) == {"nll": 83 if places == "all" else 15, "generator": 15}
    assert objective.weights == {"nll": 50.0, "generator": 1.0}


def test_generator_and_model_read_the_same_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = ReplacedTokens()
    model, own = module(objective, replace(CONFIG, first_position=3))
    seen, vectors = list[Tensor](), model.embedding.vectors

    def watched(tokens: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        seen.append(positions)
        return vectors(tokens, positions, segments)

    monkeypatch.setattr(model.embedding, "vectors", watched)
    objective(model, made(), 0, own)
    of_generator, of_model = seen
    assert torch.equal(of_generator, of_model)
    assert int(of_generator.min()) == 3


def test_a_sampled_token_that_is_the_original_counts_as_original() -> None:
    objective = ReplacedTokens()
    model, own = module(objective)
    with torch.no_grad():
        own.masked.bias[9] = 1000.0  # the generator is sure of this token
    assert float(objective(model, made(token=9), 0, own)[0]["replaced"]) == 0
    assert float(objective(model, made(token=8), 0, own)[0]["replaced"]) == 15


def test_a_batch_has_the_same_tokens_whatever_other_random_numbers_are_drawn() -> None:
    one = sums(ReplacedTokens(), made())
    torch.manual_seed(12345)
    other = sums(ReplacedTokens(), made())
    assert all(torch.equal(one[name], other[name]) for name in one)
    changed = sums(ReplacedTokens(), replace(made(), fields={**made().fields, "draws": made(seed=7)["draws"]}))
    assert not torch.equal(one["nll"], changed["nll"])


def test_tokens_are_sampled_with_their_probabilities() -> None:
    chances = torch.tensor([0.5, 0.0, 0.2, 0.3])
    product = Product(torch.ones(1, 20_000, 1), chances.log()[:, None])  # logits are the logarithms
    draws = torch.rand(1, 20_000, generator=torch.Generator().manual_seed(4))
    counts = sample(product, draws).flatten().bincount(minlength=4)
    assert counts[1] == 0
    assert (counts / 20_000 - chances).abs().max() < 0.015  # four standard deviations
    ends = sample(Product(torch.ones(1, 3, 1), chances.log()[:, None]), torch.tensor([[0.0, 1 - 1e-7, 1.0]]))
    assert ends.tolist() == [[0, 3, 3]]
    impossible = torch.tensor([[-torch.inf], [0.0]])  # the first token
    assert sample(Product(torch.ones(1, 1, 1), impossible), torch.zeros(1, 1)).tolist() == [[1]]


def test_the_embeddings_are_those_of_the_model_and_are_saved_once() -> None:
    objective = ReplacedTokens()
    model, own = module(objective)
    found = LossModule(model, objective)
    assert not any("embedding" in name for name in own.state_dict())
    batch = made()
    for name, weight in (("nll", 0.0), ("generator", 1.0)):
        found.zero_grad()
        (objective(model, batch, 0, own)[0]["generator" if weight else name]).backward()
        trained = own.project.weight.grad
        assert (trained is not None and bool(trained.any())) == bool(weight)  # no gradient through sampled tokens
        tied = model.embedding.tokens.weight.grad
        assert tied is not None
        assert tied.any()


@pytest.mark.parametrize(
    ("settings", "width", "heads", "inner", "layers"),
    [({}, 4, 1, 6, 2), ({"width": 0.5, "layers": 3}, 8, 2, 12, 3), ({"width": 1.0, "layers": 1}, 16, 4, 24, 1)],
)
def test_the_generator_is_narrower(settings: Any, width: int, heads: int, inner: int, layers: int) -> None:
    config = ReplacedTokens(**settings).generator(CONFIG)
    assert (config.width, config.heads, config.inner, config.layers) == (width, heads, inner, layers)
    own = ReplacedTokens(**settings).modules(CONFIG.build(), {})
    assert isinstance(own, Generator)
    assert own.project.weight.shape == (width, 6)
    own = ReplacedTokens(**settings).modules(replace(CONFIG, embed=0).build(), {})
    assert own.project.weight.shape == (width, 16)  # type: ignore[union-attr]


def test_only_masked_places_are_projected_and_shapes_do_not_depend_on_contents(monkeypatch: Any) -> None:
    seen = []
    monkeypatch.setattr(
        "regard.objectives.replaced.product_loss", lambda product, targets: seen.append(product.x.shape)
    )
    for batch in (made(), made([5, 32, 11, 2, 0, 9])):
        sums(ReplacedTokens(), batch)
    assert seen == [torch.Size([6, 5, 6])] * 2


def test_a_batch_of_filler_rows_has_no_loss() -> None:
    found, batch = sums(ReplacedTokens(), made([0, 0])), made([0, 0])
    assert ReplacedTokens().count(batch) == {"nll": 0, "generator": 0}
    assert all(float(value.detach()) == 0 for value in found.values())


def test_a_small_model_learns_to_detect() -> None:
    """Texts have few of the tokens; a generator that has not learnt samples all of them."""
    torch.manual_seed(7)
    objective, both = ReplacedTokens(), LossModule(replace(CONFIG, dropout=0.0, layers=1).build(), ReplacedTokens())
    optimizer = torch.optim.Adam(both.model.parameters(), 0.02)
    for step in range(40):
        batch = made([24] * 16, seed=step, token=7 + step % 2)
        found, _ = objective(both.model, batch, step, both.own)  # type: ignore[arg-type]
        optimizer.zero_grad()
        (found["nll"] / batch.counts["tokens"]).backward()
        optimizer.step()
    assert found["detected"] / found["replaced"] > 0.8
    assert found["right"] / batch.counts["tokens"] > 0.95


def test_without_a_generator_there_is_nothing_to_judge() -> None:
    with pytest.raises(UserError, match="no generator"):
        ReplacedTokens()(CONFIG.build(), made(), 0)


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    text = InputText(train_tokenizer("char", ["abc"], 40))
    with pytest.raises(UserError, match="no mask token, which objective=replaced needs; start from a model"):
        ReplacedTokens().corruption({"text": text})


@pytest.mark.parametrize(
    "settings", [{"part": 0.0}, {"weight": 0.0}, {"width": 0.0}, {"width": 1.5}, {"layers": -1}, {"part": 2.0}]
)
def test_settings_without_sense_are_refused(settings: Any) -> None:
    (name,) = settings
    with pytest.raises(UserError, match=f"objective.{name}="):
        ReplacedTokens(**settings)
