"""On a GPU: a captured step equals the plain step, resumes bit-equal, and never applies a gradient that is not finite.

Which batches get a graph of their own is tested without a GPU.
"""

import dataclasses
import gc

import numpy as np
import pytest
import torch
from torch import nn

from encoded import flat, pair_batch, pair_columns, rows_of, whole_columns
from regard.data.batches import Batch, Batches, Corruption, collate
from regard.data.corruption import MaskTokens
from regard.data.flat import Rows
from regard.data.streams import Streams
from regard.data.tokenizers import SpecialTokens
from regard.models import BertConfig, GptConfig, RecurrentLmConfig, Seq2SeqConfig
from regard.objectives import GuidedAlignment, LossModule, MaskedTokens, ProfessorForcing, TeacherForcing
from regard.recipes import Plan
from regard.tasks import TASKS
from regard.tensor_tree import tensors
from regard.training import Diverged, train
from regard.training.capture import WARMUPS, kind_of
from regard.training.optim import build_optimizer, optimizer_state, restore_optimizer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PAIRS = [([4 + n % 9] * (2 + n % 17), [4 + n % 9] * (1 + n % 11)) for n in range(96)]
COLUMNS = pair_columns(PAIRS)
TRANSLATE = TASKS["translate"]
SPECIAL = SpecialTokens(0, None, None, mask=3, prefix=1, suffix=2)
PLAN = Plan(steps=8, rate=1e-2, warmup=2, precision="float32", batch_tokens=256)


class InTurn:
    """A few batches, again and again."""

    def __init__(self, *batches):
        self.batches = batches

    def batch(self, step):
        return self.batches[step % len(self.batches)]


def _judged(objective, dropout: float = 0.0) -> LossModule:
    torch.manual_seed(1)
    config = Seq2SeqConfig(source_vocab=16, target_vocab=16, width=32, embed=16, dropout=dropout)
    return LossModule(config.build(), objective).cuda()


def _trained(objective, plan: Plan, dropout: float = 0.0) -> list[torch.Tensor]:
    loss_module = _judged(objective, dropout)
    for _ in train(loss_module, Batches(COLUMNS, TRANSLATE, plan.batch_tokens, plan.seed), plan):
        pass
    return [weight.detach() for weight in loss_module.parameters()]


def _texts(*lengths):
    rows = rows_of(whole_columns([[5] * length for length in lengths], SPECIAL))
    mask = MaskTokens(3, 16, SPECIAL.ids, 0.5, kept=0.0, random=0.0)
    return collate(mask(Rows.of(rows), np.random.default_rng(0)), TASKS["masked"])


def test_batches_with_and_without_padding_are_captured_apart():
    whole, ragged = _texts(6, 6), _texts(6, 5)
    assert whole["tokens"].shape == ragged["tokens"].shape
    assert kind_of(whole) == kind_of(_texts(6, 6)) != kind_of(ragged)
    pairs = [([4, 5], [6]), ([5, 4], [7, 8, 9])], [([4, 5], [6]), ([5], [7, 8, 9])]
    assert len({kind_of(pair_batch(each)) for each in pairs}) == 2


def _batch(seed: int, **more: torch.Tensor) -> Batch:
    """Two fields and two masks, one of which is of no field."""
    torch.manual_seed(seed)
    fields = {"tokens": torch.randint(9, (2, 3)), "image": torch.randn(2, 4)}
    real = {"tokens": torch.rand(2, 3) > 0.5, "image": torch.rand(2, 4) > 0.5}
    return Batch({**fields, **more}, real, {"targets": 6})


def test_the_kind_of_a_batch_has_the_shape_and_type_of_every_tensor():
    one = _batch(1)
    assert kind_of(one) == kind_of(_batch(2))
    others = [
        _batch(1, label=torch.zeros(2)),
        dataclasses.replace(one, fields={**one.fields, "image": one["image"].double()}),
        dataclasses.replace(one, fields={**one.fields, "image": one["image"][:, :3]}),
        dataclasses.replace(one, real={**one.real, "image": one.real["image"][:, :3]}),
        dataclasses.replace(one, real={"tokens": one.real["tokens"]}),
        dataclasses.replace(one, real={**one.real, "image": one.real["image"].float()}),
        dataclasses.replace(one, counts={"tokens": 6}),  # as many as there are places: no padding
        dataclasses.replace(one, counts={"image": 8}),
        dataclasses.replace(one, counts={"tokens": 6, "image": 8}),
        dataclasses.replace(one, segment=0),  # contiguous text, which has another first state
    ]
    assert kind_of(others[-1]) == kind_of(dataclasses.replace(one, segment=7))
    assert len({kind_of(one, state) for state in (None, torch.zeros(2), torch.zeros(3), [torch.zeros(2)] * 2)}) == 4
    assert len({kind_of(batch) for batch in (one, *others)}) == 1 + len(others)
    # A name may be in both maps, and each has its own tensor.
    swapped = dataclasses.replace(one, fields={**one.fields, "tokens": one.real["tokens"]}, real=one.fields)
    assert kind_of(swapped) != kind_of(one)


def stateless(step):
    """The step of an objective that carries no state."""
    return lambda batch, factors, state: (step(batch, factors), None)


def test_no_garbage_is_collected_during_a_capture(graphs):
    """A CUDA graph of an earlier run that is freed during a capture breaks it."""
    collects = []

    def step(batch, factors):
        collects.append(gc.isenabled())
        return torch.zeros(1)

    captured, made = graphs(stateless(step), [])
    captured.of(Batch({}), torch.ones(1))
    assert collects == [True] * WARMUPS + [False]
    assert gc.isenabled()
    assert len(made) == 1


def test_every_tensor_of_both_maps_is_copied_before_a_replay(graphs):
    """A tensor that is not copied has the values of the batch that was captured."""
    weight = nn.Parameter(torch.ones(3))

    def step(batch, factors):
        read = [each.double().sum() for tensors in (batch.fields, batch.real) for each in tensors.values()]
        sums = (torch.stack(read) * torch.arange(1, 1 + len(read)) * weight.sum()).sum()[None] * factors
        sums.sum().backward()
        return sums.detach()

    captured, made = graphs(stateless(step), [weight])
    batches = [_batch(seed, label=torch.full((2,), float(seed))) for seed in range(5)]
    for number, batch in enumerate(batches):
        factors = torch.tensor([1.0 + number], dtype=torch.float64)
        weight.grad = torch.full_like(weight, 7.0)  # gradients of the batches before it add up
        expected = step(batch, factors)
        gradient, weight.grad = weight.grad, torch.full_like(weight, 7.0)
        found, _ = captured.of(batch, factors)(batch, number, factors, None)
        assert torch.equal(found, expected)
        assert torch.equal(weight.grad, gradient)
    assert [graph.replays for graph in made] == [5]
    # Only one of the tensors changes: each is read anew.
    for kind in ("fields", "real"):
        for name, tensor in getattr(batches[0], kind).items():
            changed = {**getattr(batches[0], kind), name: ~tensor if tensor.dtype == torch.bool else tensor + 1}
            other = dataclasses.replace(batches[0], **{kind: changed})
            found, _ = captured.of(other, factors)(other, 0, factors, None)
            assert torch.equal(found, step(other, factors)), (kind, name)
    assert len(made) == 1
    captured.of(_batch(1), factors)(_batch(1), 0, factors, None)
    assert len(made) == 2


def test_a_replay_leaves_the_batch_and_the_sums_of_others_alone(graphs):
    captured, _ = graphs(stateless(lambda batch, factors: batch["image"].sum()[None] * factors), [])
    one, two, factors = _batch(1), _batch(2), torch.ones(1)
    before = one["image"].clone()
    first, _ = captured.of(one, factors)(one, 0, factors, None)
    kept = first.clone()
    second, _ = captured.of(two, factors)(two, 0, factors, None)
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)
    assert torch.equal(one["image"], before)


def _segment(number: int) -> Batch:
    torch.manual_seed(number)
    return Batch({"tokens": torch.randint(4, 12, (2, 5)), "targets": torch.randint(4, 12, (2, 5))}, segment=number)


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (RecurrentLmConfig(vocab=12, width=8, embed=6, cell="lstm", dropout=0.0), 2),  # without and with a state
        # The memory of Transformer-XL has 0, 5 and then 8 tokens.
        (GptConfig(vocab=12, width=8, heads=2, layers=2, inner=8, positions="xl", memory=8, dropout=0.0), 3),
    ],
    ids=["lstm", "xl"],
)
def test_the_carried_state_is_an_input_and_an_output_of_a_graph(config, kinds, graphs):
    """Two lanes take turns. Each reads its own state, and no replay changes a state that was returned before."""
    torch.manual_seed(1)
    loss_module = LossModule(config.build(), TeacherForcing())
    weights = list(loss_module.parameters())
    factors = torch.ones(1)

    def step(batch, factors, state):
        sums, after = loss_module(batch, 0, state)
        (sums * factors).sum().backward()
        return sums.detach(), after

    captured, made = graphs(step, weights)
    plain, replayed = [None, None], [None, None]
    for number in range(8):
        segment, lane = divmod(number, 2)
        batch = dataclasses.replace(_segment(number), segment=segment)
        found = []
        for states, run in ((plain, step), (replayed, None)):
            loss_module.zero_grad(set_to_none=False)
            if run is None:
                replay = captured.of(batch, factors, states[lane])
                sums, states[lane] = replay(batch, 0, factors, states[lane])
            else:
                sums, states[lane] = run(batch, factors, states[lane])
            found.append([sums, *(weight.grad.clone() for weight in weights if weight.grad is not None)])
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
        torch.testing.assert_close(list(tensors(plain)), list(tensors(replayed)), rtol=0, atol=0)
        assert not any(tensor.requires_grad for tensor in tensors(replayed))
    assert len(made) == kinds
    assert sum(graph.replays for graph in made) == 8


@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_captured_step_carries_the_state_of_the_plain_step(precision):
    text = (np.arange(4000) * 7 % 11 + 4).astype(np.uint16)
    results = []
    for capture in (True, False):
        torch.manual_seed(1)
        config = GptConfig(vocab=16, width=32, heads=2, layers=2, inner=32, positions="xl", memory=24, dropout=0.0)
        loss_module = LossModule(config.build(), TeacherForcing()).cuda()
        plan = dataclasses.replace(PLAN, capture=capture, optimizer="sgd", accumulate=2, precision=precision)
        carried = {}
        for _ in train(loss_module, Streams(text, 16, 64, 1, lanes=2), plan, carried=carried):
            pass
        results.append([*loss_module.parameters(), *tensors([carried[0], carried[1]])])
    torch.testing.assert_close(*results, rtol=1e-2 if precision == "bf16" else 1e-3, atol=1e-2)


@needs_gpu
def test_a_recorded_mask_is_that_of_the_batch():
    """Texts without padding and, of the same shape, with: each has its own recording."""
    weights = []
    for capture in (True, False):
        torch.manual_seed(1)
        config = BertConfig(width=32, heads=2, layers=2, inner=32, vocab=16, context=16, dropout=0.0)
        loss_module = LossModule(config.build(), MaskedTokens(0.5)).cuda()
        plan = dataclasses.replace(PLAN, capture=capture, optimizer="sgd")
        for _ in train(loss_module, InTurn(_texts(12, 12), _texts(12, 4)), plan):
            pass
        weights.append([weight.detach() for weight in loss_module.parameters()])
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("objective", [TeacherForcing(smoothing=0.1), TeacherForcing(ratio=0.0)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_recorded_step_is_the_step(objective, accumulate):
    assert len(Batches(COLUMNS, TRANSLATE, PLAN.batch_tokens, 1).shapes) > 1
    plan = dataclasses.replace(PLAN, accumulate=accumulate, optimizer="sgd")
    recorded, plain = (_trained(objective, dataclasses.replace(plan, capture=flag)) for flag in (True, False))
    for one, other in zip(recorded, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


class Diagonal(Corruption):
    """Links the token t of a target to the token t of its source."""

    def __call__(self, rows, random):
        shorter = [min(len(row["source"]), max(len(row["target"]) - 2, 0)) for row in rows]
        return rows.with_field("token_links", [np.repeat(np.arange(length), 2) for length in shorter])


@needs_gpu
@pytest.mark.parametrize("decoder", ["bahdanau", "luong"])
def test_weights_are_watched_in_a_captured_step(decoder):
    columns = {**COLUMNS, "alignment": flat([[]] * len(PAIRS))}
    trained = []
    for capture in (True, False):
        torch.manual_seed(1)
        config = Seq2SeqConfig(source_vocab=16, target_vocab=16, width=32, embed=16, dropout=0.0, decoder=decoder)
        loss_module = LossModule(config.build(), GuidedAlignment(alignment=2.0)).cuda()
        plan = dataclasses.replace(PLAN, capture=capture, optimizer="sgd")
        batches = Batches(columns, TASKS["aligned"], plan.batch_tokens, plan.seed, corruption=Diagonal())
        for step in train(loss_module, batches, plan):
            assert step.means[1] > 0
        trained.append([weight.detach() for weight in loss_module.parameters()])
    for one, other in zip(*trained, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("objective", [TeacherForcing(ratio=0.5), ProfessorForcing(width=16)])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_going_on_is_never_having_stopped(objective, precision):
    plan = dataclasses.replace(PLAN, precision=precision)
    batches = Batches(COLUMNS, TRANSLATE, plan.batch_tokens, plan.seed)
    straight = _trained(objective, plan, dropout=0.3)
    first, second = _judged(objective, 0.3), _judged(objective, 0.3)
    early = build_optimizer(first, plan)
    steps = train(first, batches, plan, early)
    for _ in range(3):
        next(steps)
    second.load_state_dict(first.state_dict())
    late = build_optimizer(second, plan)
    restore_optimizer(late, second, {name: one.cpu() for name, one in optimizer_state(early, first).items()})
    for _ in train(second, batches, plan, late, start=3):
        pass
    for one, other in zip(second.parameters(), straight, strict=True):
        assert torch.equal(one, other)


@needs_gpu
@pytest.mark.parametrize("capture", [True, False])
def test_a_bad_gradient_is_never_taken(capture):
    loss_module = _judged(TeacherForcing())
    plan = dataclasses.replace(PLAN, capture=capture)
    steps = train(loss_module, Batches(COLUMNS, TRANSLATE, plan.batch_tokens, plan.seed), plan)
    for _ in range(3):
        next(steps)
    bias = loss_module.model.readout_.bias
    with torch.no_grad():
        bias[4] = float("nan")
    good = [weight.detach().clone() for weight in loss_module.parameters()]
    with pytest.raises(Diverged, match="step 4"):
        list(steps)
    for before, after in zip(good, loss_module.parameters(), strict=True):
        assert torch.equal(before.nan_to_num(), after.nan_to_num())
