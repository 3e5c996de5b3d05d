"""Masked language modelling: which tokens are hidden, what is shown in their place, and who is judged by what."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.errors import UserError
from regard.layers.product import Product
from regard.objectives import LossModule, MaskedTokens

PAD, BEGIN, END, MASK, VOCAB = 0, 1, 2, 3, 40
SPECIALS = (PAD, BEGIN, END, MASK)


@dataclass(frozen=True)
class Settings:
    vocab: int = VOCAB
    mask: int = MASK
    specials: tuple[int, ...] = SPECIALS


class Reader(nn.Module):
    """Sees each token and the mean of all real ones; remembers what it was shown."""

    config = Settings()

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.mix = nn.Linear(16, 16)
        self.projected: list[torch.Size] = []

    def features(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        self.shown, x = tokens, self.embedding(tokens)
        real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
        mean = (x * real[:, :, None]).sum(1, keepdim=True) / real.sum(1)[:, None, None].clamp_min(1)
        return torch.tanh(self.mix(x + mean))

    def product(self, features: Tensor) -> Product:
        self.projected.append(features.shape)
        return Product(features, self.embedding.weight, None)

    def readout(self, features: Tensor) -> Tensor:
        return F.linear(*self.product(features))


def made(lengths: list[int], width: int) -> Batch:
    """Rows of begin, so many tokens less two, end, and padding; a length of 0 is a filler row."""
    torch.manual_seed(sum(lengths))
    real = torch.arange(width) < torch.tensor(lengths)[:, None]
    tokens = torch.randint(len(SPECIALS), VOCAB, (len(lengths), width)).masked_fill(~real, PAD)
    for row, length in enumerate(lengths):
        if length:
            tokens[row, 0], tokens[row, length - 1] = BEGIN, END
    rows = [row if length else -1 for row, length in enumerate(lengths)]
    return Batch(tokens, tokens.clone(), real, rows, target_count=sum(lengths))


LENGTHS = [20, 3, 0, 32, 7, 21]


@pytest.mark.parametrize(
    ("part", "counts"), [(0.15, [3, 1, 0, 5, 2, 4]), (0.5, [10, 1, 0, 16, 4, 11]), (1.0, [18, 1, 0, 30, 5, 19])]
)
def test_every_row_has_its_part_chosen_among_its_own_tokens(part, counts):
    batch, objective = made(LENGTHS, 32), MaskedTokens(part)
    torch.manual_seed(1)
    at, chosen = objective.choose(batch.tokens, batch.real, SPECIALS)
    assert at.shape == chosen.shape == (6, max(counts))  # as for a row without padding, here the fourth
    found = [places[real].tolist() for places, real in zip(at, chosen)]
    assert [len(places) for places in found] == counts
    for row, places in enumerate(found):
        assert len(set(places)) == len(places)
        assert all(int(batch.tokens[row, place]) not in SPECIALS for place in places)
    assert objective.count(batch) == {"nll": sum(counts)}


def test_the_count_is_a_matter_of_lengths_alone():
    batch, objective = made(LENGTHS, 32), MaskedTokens()
    wider = made(LENGTHS, 48)
    assert objective.count(batch) == objective.count(wider) == {"nll": 15}
    assert objective.count(replace(batch, tokens=torch.full_like(batch.tokens, 9))) == {"nll": 15}
    assert MaskedTokens(0.1).count(made([30], 30)) == {"nll": 3}  # 30 · 0.1 rounds to more than 3 in no precision


def test_all_places_are_equally_likely():
    batch = made([22] * 2000, 22)
    torch.manual_seed(2)
    at, chosen = MaskedTokens(0.2).choose(batch.tokens, batch.real, SPECIALS)
    often = torch.bincount(at[chosen], minlength=22)
    assert int(often[0]) == int(often[21]) == 0
    assert int(often.sum()) == 2000 * 5
    assert int((often[1:21] - 500).abs().max()) < 110  # five standard deviations


def test_hidden_places_show_mask_chance_or_truth_in_their_parts():
    batch, objective = made([42] * 1500, 42), MaskedTokens(0.5, kept=0.1, random=0.2)
    torch.manual_seed(3)
    hidden = objective.choose(batch.tokens, batch.real, SPECIALS)
    shown = objective.hide(batch.tokens, hidden, MASK, VOCAB)
    places = torch.zeros_like(batch.real).scatter(1, hidden.at, hidden.chosen)
    assert torch.equal(shown[~places], batch.tokens[~places])
    there, truth = shown[places], batch.tokens[places]
    masked, same = (there == MASK).double().mean(), (there == truth).double().mean()
    assert abs(float(masked) - 0.7 - 0.2 / VOCAB) < 0.013  # five standard deviations
    assert abs(float(same) - 0.1 - 0.2 / VOCAB) < 0.009


def test_places_past_a_rows_own_number_show_the_truth():
    batch, objective = made([3, 32], 32), MaskedTokens(0.5, kept=0.0, random=0.0)
    hidden = objective.choose(batch.tokens, batch.real, SPECIALS)
    shown = objective.hide(batch.tokens, hidden, MASK, VOCAB)
    assert int((shown[0] == MASK).sum()) == 1
    assert int((shown[1] == MASK).sum()) == 16


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_chosen_places_and_only_they_are_projected(smoothing):
    model, batch = Reader().double(), made(LENGTHS, 32)
    objective = MaskedTokens(smoothing=smoothing)
    torch.manual_seed(4)
    found = objective(model, batch, 0)["nll"]
    assert model.projected == [torch.Size([6, 5, 16])]
    torch.manual_seed(4)
    hidden = objective.choose(batch.tokens, batch.real, SPECIALS)
    logits = model.readout(model.features(model.shown, batch.real))
    losses = F.cross_entropy(logits.mT, batch.targets, reduction="none", label_smoothing=smoothing)  # (B, T)
    places = torch.zeros_like(batch.real).scatter(1, hidden.at, hidden.chosen)
    assert int(places.sum()) == objective.count(batch)["nll"]
    torch.testing.assert_close(found, losses[places].sum(), rtol=0, atol=1e-10)


def test_a_seed_decides_and_shapes_do_not_depend_on_contents():
    objective, model = MaskedTokens(), Reader()
    first, second = made(LENGTHS, 32), made([5, 32, 11, 2, 0, 9], 32)
    losses = []
    for batch in (first, first, second):
        torch.manual_seed(6)
        losses.append(objective(model, batch, 0)["nll"].detach())
    assert torch.equal(losses[0], losses[1])
    assert len(set(model.projected)) == 1


def test_a_small_reader_learns_to_fill_in():
    """Texts of one token repeated: whoever looks at the others knows what is hidden."""
    torch.manual_seed(7)
    model, objective = Reader(), MaskedTokens(0.3)
    batch = made([12] * 36, 12)
    repeated = torch.where(batch.tokens > MASK, torch.arange(len(SPECIALS), VOCAB)[:, None], batch.tokens)
    batch = replace(batch, tokens=repeated, targets=repeated)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for step in range(150):
        loss = objective(model, batch, step)["nll"] / objective.count(batch)["nll"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.9  # 3.7 at first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"part": 0.0}, r"objective\.part=0\.0"),
        ({"part": 1.5}, r"objective\.part=1\.5"),
        ({"kept": -0.1}, r"objective\.kept=-0\.1"),
        ({"kept": 0.6, "random": 0.5}, r"objective\.kept=0\.6 and objective\.random=0\.5"),
        ({"smoothing": 1.0}, r"objective\.smoothing=1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        MaskedTokens(**settings)


def test_a_model_without_a_mask_is_refused_before_it_trains():
    model = Reader()
    model.config = replace(Settings(), mask=-1)
    for ask in (lambda: LossModule(model, MaskedTokens()), lambda: MaskedTokens()(model, made(LENGTHS, 32), 0)):
        with pytest.raises(UserError, match=r"model\.mask=-1: .* give the id of a mask, or start from a model"):
            ask()
