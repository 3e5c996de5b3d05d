"""The LSTM that reads its own past, against the paper's equations."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from encoded import text_batch
from regard.errors import UserError
from regard.models import Lstmn, LstmnConfig
from regard.recording import record

CONFIG = LstmnConfig(vocab=9, width=6, embed=4, context=12, dropout=0.0)
TEXTS = [[4, 5, 6, 7], [8, 8], [5]]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def by_hand(model: Lstmn, tokens: list[int]) -> list[Tensor]:
    """Cheng et al. 2016, eq. 5-10. W_x and W_h̃ of eq. 5 are the query's matrix times the score's."""
    score, summary = model.attention.score, torch.zeros(6, dtype=torch.float64)
    past: list[tuple[Tensor, Tensor]] = []  # (h_i, c_i)
    logits = []
    for token in tokens:
        x = model.embedding.weight[token]
        query = score.query(model.query(torch.cat([x, summary])))
        powers = [(score.v @ torch.tanh(query + score.key(h))).exp() for h, _ in past]
        summary = sum((p / sum(powers) * h for p, (h, _) in zip(powers, past)), torch.zeros_like(summary))
        c = sum((p / sum(powers) * c for p, (_, c) in zip(powers, past)), torch.zeros_like(summary))
        i, f, o, new = model.gates(torch.cat([x, summary])).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * new.tanh()
        h = o.sigmoid() * c.tanh()
        past.append((h, c))
        logits.append(model.readout_(h))
    return logits


def test_it_is_its_paper() -> None:
    model = CONFIG.build().double()
    batch = text_batch(TEXTS)
    expected = torch.stack([logits for text in TEXTS for logits in by_hand(model, [1, *text])])
    found = model(batch)[batch.real["tokens"]]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0.0)
    parameters = list(model.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        atol=1e-12,
        rtol=0.0,
    )


def test_a_token_sees_its_past_and_nothing_else() -> None:
    model = CONFIG.build()
    with record(model) as tape:
        model(text_batch(TEXTS))
    weights = tape["attention"]  # (B, Tq, Tk)
    assert weights.shape == (3, 5, 5)
    assert (weights.triu() == 0).all()
    assert (weights[:, 1:].tril(0)[:, :, :4].sum(-1) > 0.999).all()


def test_a_row_that_moves_takes_its_past_along() -> None:
    model = CONFIG.build().double()
    with torch.no_grad():
        state = model.start(rows=2, capacity=6)
        _, state = model.advance(torch.tensor([[4, 5], [6, 7]]), state)
        logits, _ = model.step(torch.tensor([8, 4, 8]), state.select(torch.tensor([1, 1, 0])))
        expected = [torch.stack(by_hand(model, text))[-1] for text in ([6, 7, 8], [6, 7, 4], [4, 5, 8])]
    torch.testing.assert_close(logits, torch.stack(expected), atol=1e-12, rtol=0.0)


@pytest.mark.parametrize("pieces", [[5], [2, 3], [1, 1, 1, 1, 1]], ids=str)
def test_a_tape_is_the_same_however_a_text_is_read(pieces: list[int]) -> None:
    model = CONFIG.build()
    tokens = torch.tensor([[1, 4, 5, 6, 7], [1, 8, 8, 4, 4]])
    with record(model) as tape:
        state = model.start(rows=2, capacity=8)
        for some in tokens.split(pieces, 1):
            _, state = model.advance(some, state)
    with record(model) as whole:
        model.advance(tokens, model.start(rows=2, capacity=5))
    torch.testing.assert_close(tape["attention"][..., :5], whole["attention"])
    assert (tape["attention"][..., 5:] == 0).all()


@pytest.mark.parametrize("before", [0, 1, 2])
def test_more_tokens_than_there_is_room_for_are_refused(before: int) -> None:
    model = CONFIG.build()
    state, tokens = model.start(rows=1, capacity=2), torch.tensor([[4, 5, 6]])
    with torch.no_grad():
        if before:
            _, state = model.advance(tokens[:, :before], state)
        with pytest.raises(UserError, match=r"capacity=2: the memory is full"):
            model.advance(tokens[:, before:], state)


def test_a_step_reads_the_slots_in_use_and_not_the_whole_capacity() -> None:
    model = CONFIG.build().eval()
    state = model.start(rows=1, capacity=12)
    with torch.no_grad(), record(model) as tape:
        for token in (4, 5, 6):
            _, state = model.step(torch.tensor([token]), state)
    assert [read.shape[-1] for read in tape.reads["attention"]] == [1, 2, 3]


def test_a_text_is_learned_from_in_one_cache() -> None:
    """What backward keeps of a past of T tokens does not hold T copies of it."""
    model, kept = replace(CONFIG, score="dot", context=64).build(), dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def cost(length: int) -> int:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            features, state = model.advance(torch.full((4, length), 5), model.start(rows=4, capacity=length))
        assert features.requires_grad
        assert state.memory.values.requires_grad
        return sum(kept.values())

    cache = 4 * 64 * 3 * 6 * 4  # of keys and values, in float32
    assert cost(64) - 2 * cost(32) < 4 * cache


@pytest.mark.parametrize("score", ["additive", "general", "dot", "scaled_dot", "cosine"])
@pytest.mark.parametrize("grad", [True, False])
def test_the_past_keeps_its_precision_under_autocast(score: str, grad: bool) -> None:
    model = replace(CONFIG, score=score).build()
    batch = text_batch(TEXTS)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16):
        rough = model(batch)
    torch.testing.assert_close(rough.float(), model(batch), atol=0.05, rtol=0.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"score": "adative"}, r'model\.score=adative: no such score\. Did you mean "additive"\?'),
        ({"score": "location"}, r"model\.score=location: works only for attention to a source"),
        ({"width": 0}, r"model\.width=0: must be at least 1"),
        ({"context": 0}, r"model\.context=0: must be at least 1"),
        ({"dropout": 1.5}, r"model\.dropout=1\.5: .*below 1"),
    ],
)
def test_a_wrong_setting_is_named_with_its_cure(setting: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **setting)


@torch.no_grad()
def test_padding_anywhere_changes_neither_the_features_of_a_text_nor_its_state() -> None:
    model = LstmnConfig(vocab=9, width=6, embed=4).build().double().eval()
    text, real = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[0, 1, 0, 0, 1, 1, 0, 1, 0]]).bool()
    tokens = torch.full((1, 9), 8).masked_scatter(real, text)
    expected, alone = model.advance(text, model.start(rows=1))
    for pieces in ([9], [3, 6], [1] * 9):
        features, state = [], model.start(rows=1)
        for some, there in zip(tokens.split(pieces, 1), real.split(pieces, 1)):
            found, state = model.advance(some, state, there)
            features.append(found)
        torch.testing.assert_close(torch.cat(features, 1)[real], expected[0])
        torch.testing.assert_close(state.summary, alone.summary)
