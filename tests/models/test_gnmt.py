"""GNMT against the equations of Wu et al. 2016, one sentence and one token at a time; its penalties in a search."""

import pytest
import torch
from torch import Tensor, nn

from encoded import pair_batch
from regard.decode import Penalty, beam
from regard.errors import UserError
from regard.models import Gnmt, GnmtConfig
from regard.recording import record

CONFIG = GnmtConfig(source_vocab=11, target_vocab=9, width=4, embed=3, layers=4, capacity=12, dropout=0.0)
PAIRS = [([4, 5, 6, 7, 10], [8, 7]), ([10, 4], [5, 4, 6, 8]), ([9], [4])]


@pytest.fixture
def model() -> Gnmt:
    torch.manual_seed(1)
    return CONFIG.build().double()


def lstm(layer: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of one LSTM over a sequence, by its equations."""
    h = c = inputs[0].new_zeros(4)
    outputs = []
    for x in inputs:
        h, c = lstm_step(layer, x, h, c)
        outputs.append(h)
    return outputs


def lstm_step(layer: nn.Module, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    gates = layer.weight_ih_l0 @ x + layer.bias_ih_l0 + layer.weight_hh_l0 @ h + layer.bias_hh_l0  # type: ignore[operator]
    i, f, g, o = gates.chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def by_hand(model: Gnmt, source: list[int], tokens: list[int]) -> list[Tensor]:
    """Sections 3.1 to 3.3: layer 1 in both directions, residual sums from layer 3 on, attention by decoder layer 1."""
    first, *others = model.encoder.layers
    x = [model.encoder.embedding.weight[token] for token in source]
    back = lstm(first.returning[0], x[::-1])[::-1]  # type: ignore[index]
    states = [torch.cat(pair) for pair in zip(lstm(first.onward[0], x), back)]  # type: ignore[index]
    for number, layer in enumerate(others, start=2):
        above = lstm(layer.onward[0], states)  # type: ignore[index]
        states = above if number < 3 else [one + other for one, other in zip(above, states)]
    score, logits = model.decoder.attention.score, []
    h, c = ([states[0].new_zeros(4)] * 4 for _ in range(2))
    for token in tokens:
        energies = [score.v @ torch.tanh(score.query(h[0]) + score.key(state)) for state in states]  # type: ignore[operator]
        weights = torch.stack(energies).softmax(0)
        context = sum(weight * state for weight, state in zip(weights, states))
        x_k, h, c = model.target_embedding.weight[token], [*h], [*c]
        for number, layer in enumerate(model.decoder.layers):
            h[number], c[number] = lstm_step(layer.onward[0], torch.cat([x_k, context]), h[number], c[number])  # type: ignore[index, list-item]
            x_k = h[number] + x_k if number >= 2 else h[number]
        logits.append(model.readout_(x_k))
    return logits


def test_the_model_is_its_paper(model: Gnmt) -> None:
    """Logits and the gradient of every parameter."""
    batch = pair_batch(PAIRS)
    rows = [by_hand(model, source, [1, *target]) for source, target in PAIRS]
    expected, found = torch.stack([logits for row in rows for logits in row]), model(batch)[batch.real["tokens"]]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0.0)
    weighing = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).view_as(found)
    parameters = list(model.parameters())
    for one, other in zip(
        torch.autograd.grad((found * weighing).sum(), parameters),
        torch.autograd.grad((expected * weighing).sum(), parameters),
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0.0)


def test_only_the_first_decoder_layer_is_a_loop(model: Gnmt) -> None:
    batch, calls = pair_batch(PAIRS), []
    for layer in model.decoder.layers:
        layer.onward[0].register_forward_hook(lambda module, args, output: calls.append(args[0].shape[1]))  # type: ignore[index]
    model(batch)
    assert calls == [batch["tokens"].shape[1]] * 3


def test_a_search_with_length_and_coverage_penalties(model: Gnmt) -> None:
    """The score of each sentence is eq. 14, with the weights that are recorded when it is read again."""
    penalty = Penalty(alpha=0.6, formula="gnmt", coverage=0.4)
    with torch.no_grad():
        model.readout_.weight.mul_(5)
        for source, _ in PAIRS:
            state = model.start(torch.tensor([source]))
            found = beam(model, state, torch.tensor([1]), size=3, limit=5, stop=2, penalty=penalty)
            for tokens, length, score, logp in zip(found.tokens[0], found.lengths[0], found.scores[0], found.logps[0]):
                said = torch.cat([torch.tensor([1]), tokens[: length - 1]])[None]
                with record(model) as tape:
                    model.advance(said, model.start(torch.tensor([source])))
                covered = tape["decoder.attention"][0].sum(0).clamp(max=1).log().sum()
                expected = logp / ((5 + length) / 6) ** 0.6 + 0.4 * covered
                torch.testing.assert_close(score.double(), expected.double(), atol=1e-5, rtol=0)


def test_too_few_layers() -> None:
    with pytest.raises(UserError, match=r"model\.layers=1: must be at least 2"):
        GnmtConfig(layers=1)
