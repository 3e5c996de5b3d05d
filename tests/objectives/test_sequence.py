"""Teacher forcing, scheduled sampling, and what they are meant to cure."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import Batch
from regard.errors import UserError
from regard.models import GptConfig
from regard.objectives import TeacherForcing, exposure
from regard.objectives.sequence import mixed


def test_ratio_one_is_one_call_over_all_tokens(model, batch, monkeypatch):
    calls = []
    advance = model.advance
    monkeypatch.setattr(model, "advance", lambda tokens, state: calls.append(tokens.shape) or advance(tokens, state))
    TeacherForcing()(model, batch, 0)
    assert calls == [batch["tokens"].shape]


def test_reading_the_truth_token_by_token_is_teacher_forcing(model, batch):
    whole = TeacherForcing()(model, batch, 0)[0]["nll"]
    features, _ = mixed(model, batch, ratio=1.0)
    from regard.objectives.loss import token_loss

    torch.testing.assert_close(token_loss(model, features, batch["targets"]), whole, rtol=0, atol=1e-9)


def test_ratio_zero_reads_what_the_model_said(model, batch, monkeypatch):
    """The tokens read after the first are the argmax of the logits before."""
    read, predicted = [], []
    advance, readout = model.advance, model.readout

    def spy(tokens, state):
        read.append(tokens)
        features, state = advance(tokens, state)
        predicted.append(readout(features).argmax(-1))
        return features, state

    monkeypatch.setattr(model, "advance", spy)
    TeacherForcing(ratio=0.0)(model, batch, 0)
    assert torch.equal(read[0], batch["tokens"][:, :1])
    for t in range(1, batch["tokens"].shape[1]):
        assert torch.equal(read[t], predicted[t - 1])


def test_ratio_between_mixes_by_the_seeded_coin(model, batch, monkeypatch):
    read = []
    advance = model.advance
    monkeypatch.setattr(model, "advance", lambda tokens, state: read.append(tokens) or advance(tokens, state))

    def tokens(seed, ratio):
        read.clear()
        torch.manual_seed(seed)
        loss = TeacherForcing(ratio=ratio)(model, batch, 0)[0]["nll"]
        return torch.cat(read, dim=1), loss

    first, again, other = tokens(1, 0.5), tokens(1, 0.5), tokens(2, 0.5)
    assert torch.equal(first[0], again[0])
    assert first[1] == again[1]
    assert not torch.equal(first[0], other[0])
    always, never = tokens(1, 1 - 1e-9)[0], tokens(1, 0.0)[0]
    differs = always != never
    assert differs.any()
    mixed_rows = first[0][differs]
    assert (mixed_rows == always[differs]).any()
    assert (mixed_rows != always[differs]).any()


@pytest.mark.parametrize("schedule", ["linear", "inverse-sigmoid"])
@given(over=st.integers(1, 100_000), ratio=st.floats(0.1, 1), part=st.floats(0, 1))
@settings(max_examples=60)
def test_schedules_fall_from_ratio_to_floor(schedule, over, ratio, part):
    objective = TeacherForcing(ratio=ratio, floor=part * ratio, over=over, schedule=schedule)
    values = [objective.ratio_at(step) for step in sorted({0, over // 4, over // 2, over, 3 * over, 10**7})]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))
    assert all(objective.floor - 1e-12 <= value <= ratio + 1e-12 for value in values)
    assert values[-1] == pytest.approx(objective.floor, abs=1e-6)


def test_inverse_sigmoid_is_half_way_down_at_half_time():
    objective = TeacherForcing(ratio=1.0, schedule="inverse-sigmoid", over=1000)
    assert objective.ratio_at(0) > 0.98
    assert objective.ratio_at(500) == pytest.approx(0.5, abs=1e-6)
    assert objective.ratio_at(1000) < 0.02
    assert not objective.capturable
    assert TeacherForcing(ratio=0.5).capturable


@pytest.mark.parametrize(
    ("setting", "value"), [("ratio", 1.5), ("ratio", -0.1), ("floor", 2.0), ("over", 0), ("smoothing", 1.0)]
)
def test_a_setting_out_of_range_is_refused_by_name(setting, value):
    with pytest.raises(UserError, match=f"objective.{setting}={value}"):
        TeacherForcing(**{setting: value})


def test_the_floor_is_at_most_the_ratio():
    for ratio, floor in ((1.0, 1.0), (0.5, 0.5), (0.5, 0.0), (0.0, 0.0)):
        assert TeacherForcing(ratio=ratio, floor=floor).floor == floor
    for ratio, floor in ((0.5, 0.6), (0.0, 0.1), (1.0, -0.1)):
        with pytest.raises(UserError, match=rf"objective.floor={floor}: give 0 to objective.ratio \({ratio}\)"):
            TeacherForcing(ratio=ratio, floor=floor)


def test_exposure_separates_forced_from_free():
    """A model that counts is right when teacher-forced, and wrong after its first mistake when free-running."""

    class Counter:
        """Predicts token + 1, but makes one mistake after token 5, from which it never recovers."""

        config = None

        def start(self, source=None, source_real=None, rows=None, capacity=None):
            return None

        def advance(self, tokens, state):
            predicted = torch.where(tokens == 5, 8, tokens + 1)
            return torch.nn.functional.one_hot(predicted, 20).double() * 30, state

        def readout(self, features):
            return features

    tokens = torch.tensor([[3, 4, 5, 6, 7]])
    batch = Batch({"tokens": tokens, "targets": tokens + 1}, {"tokens": torch.ones_like(tokens, dtype=torch.bool)})
    found = exposure(Counter(), [batch, batch])
    assert found.forced_error == [0, 0, 1, 0, 0]
    assert found.free_error == [0, 0, 1, 1, 1]
    assert found.count == [2] * 5
    assert found.free_loss[3] > 20 > 1 > found.forced_loss[3]


def saved_bytes(model, length):
    """The memory that the gradient of scheduled sampling over a text of this length needs; views count once."""
    batch = Batch({"tokens": torch.full((1, length), 4), "targets": torch.full((1, length), 4)}, {})
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()  # held: no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        mixed(model, batch, ratio=0.5)
    return sum(each.nbytes() for each in storages.values())


def test_the_memory_of_scheduled_sampling_is_linear_in_the_length():
    """A KV cache is written in place. With a copy at every step, twice the text would take four times the memory."""
    gpt = GptConfig(vocab=9, width=64, heads=1, layers=2, inner=64, context=128, dropout=0.0).build()
    weights = saved_bytes(gpt, 1)
    assert saved_bytes(gpt, 128) - weights < 2.5 * (saved_bytes(gpt, 64) - weights)
