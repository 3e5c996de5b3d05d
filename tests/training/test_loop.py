"""The loop: exact averages, the same run from the same seed, and good weights kept from bad gradients."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from encoded import pair_columns
from regard.data.batches import Batch, Batches
from regard.errors import UserError
from regard.models import Seq2SeqConfig
from regard.objectives import LossModule, ProfessorForcing, TeacherForcing
from regard.objectives.objective import Step
from regard.recipes import Plan
from regard.tasks import TASKS
from regard.training import Diverged, train
from regard.training.loop import GradientTrainer, require_finite
from regard.training.optim import build_optimizer, empty_state, optimizer_state, rate_at, restore_optimizer

COLUMNS = pair_columns([([4 + n % 5, 4 + n % 3, 5], [5, 4 + n % 3, 4 + n % 5][: 1 + n % 3]) for n in range(24)])
PLAN = Plan(steps=3, batch_tokens=64, rate=0.05, warmup=0, schedule="constant", optimizer="sgd", clip=0.0)


def _loss_module(dropout=0.0, objective=None) -> LossModule:
    torch.manual_seed(1)
    config = Seq2SeqConfig(source_vocab=10, target_vocab=10, width=8, embed=4, dropout=dropout)
    return LossModule(config.build(), objective or TeacherForcing(smoothing=0.1))


def _weights(loss_module: LossModule) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in loss_module.named_parameters()}


def _same(a: LossModule, b: LossModule) -> bool:
    return all(torch.equal(one, other) for one, other in zip(a.parameters(), b.parameters(), strict=True))


class Pieces:
    """Each batch of another source cut into pieces of unequal numbers of targets, one after another."""

    def __init__(self, batches, cuts):
        self.batches, self.cuts = batches, cuts

    def batch(self, step):
        n, piece = divmod(step, len(self.cuts))
        whole = self.batches.batch(n)
        rows = range(*self.cuts[piece])
        fields, real = (
            {name: each[rows.start : rows.stop] for name, each in tensors.items()}
            for tensors in (whole.fields, whole.real)
        )
        counts = {"targets": int(real["tokens"].sum())}
        return Batch(fields, real, counts, rows=[whole.rows[row] for row in rows])


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_accumulated_pieces_are_the_whole_batch(clip):
    batches = Batches(COLUMNS, TASKS["translate"], budget=64, seed=1)
    assert batches.shapes[0][0] == 8
    whole, parts = _loss_module().double(), _loss_module().double()
    plan = dataclasses.replace(PLAN, clip=clip)
    ours = list(train(whole, batches, plan))
    pieces = Pieces(batches, [(0, 1), (1, 5), (5, 8)])
    theirs = list(train(parts, pieces, dataclasses.replace(plan, accumulate=3)))
    for one, other in zip(ours, theirs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-12)
        assert one.norm == pytest.approx(other.norm, abs=1e-12)
        assert one.tokens == other.tokens
    for name, weight in _weights(whole).items():
        torch.testing.assert_close(weight, _weights(parts)[name], rtol=0, atol=1e-12)


class Scaled:
    """The batches of another source, with half the learning rate."""

    def __init__(self, batches):
        self.batches = batches

    def batch(self, step):
        return dataclasses.replace(self.batches.batch(step), scale=0.5)


def test_the_rate_of_a_step_is_scaled_by_its_batches():
    batches = Batches(COLUMNS, TASKS["translate"], budget=64, seed=1)
    start, whole, half = (_loss_module().double() for _ in range(3))
    plan = dataclasses.replace(PLAN, steps=1, decay=0.0)
    assert [step.rate for step in train(whole, batches, plan)] == [0.05]
    assert [step.rate for step in train(half, Scaled(batches), plan)] == [0.025]
    before, far, near = map(_weights, (start, whole, half))
    for name in before:
        torch.testing.assert_close(near[name] - before[name], (far[name] - before[name]) / 2)


@pytest.mark.parametrize(
    ("optimizer", "objective"),
    [
        ("adam", ProfessorForcing(width=8)),
        ("adamw", TeacherForcing(ratio=0.5)),
        ("sgd", TeacherForcing(ratio=0.5)),
        pytest.param("adam", TeacherForcing(ratio=0.5), marks=pytest.mark.slow),
        pytest.param("adamw", ProfessorForcing(width=8), marks=pytest.mark.slow),
        pytest.param("sgd", ProfessorForcing(width=8), marks=pytest.mark.slow),
    ],
)
def test_going_on_from_a_step_is_never_having_stopped(optimizer, objective):
    """Weights and optimiser are all that is needed: the noise, dropout and coins, follows from the step."""
    plan = dataclasses.replace(PLAN, steps=6, optimizer=optimizer, schedule="cosine", clip=1.0)
    batches = Batches(COLUMNS, TASKS["translate"], budget=64, seed=1)
    straight, first, second = (_loss_module(dropout=0.3, objective=objective) for _ in range(3))
    for _ in train(straight, batches, plan):
        pass
    early = build_optimizer(first, plan)
    steps = train(first, batches, plan, early)
    for _ in range(3):
        next(steps)
    second.load_state_dict(first.state_dict())
    late = build_optimizer(second, plan)
    restore_optimizer(late, second, {name: one.clone() for name, one in optimizer_state(early, first).items()})
    torch.rand(5)  # whatever happened in between
    numbers = [step.n for step in train(second, batches, plan, late, start=3)]
    assert numbers == [4, 5, 6]
    assert _same(straight, second)
    assert not _same(straight, first)


def test_the_objectives_own_modules_are_restored():
    batches = Batches(COLUMNS, TASKS["translate"], budget=64, seed=1)
    first, second = (
        GradientTrainer(_loss_module(objective=ProfessorForcing(width=8)), batches, PLAN) for _ in range(2)
    )
    before = {name: one.clone() for name, one in second.loss_module.own.state_dict().items()}
    with torch.no_grad():
        for weight in first.loss_module.own.parameters():
            weight.add_(1.0)
    second.restore(first.state(), step=0)
    for name, tensor in second.loss_module.own.state_dict().items():
        assert torch.equal(tensor, before[name] + 1.0), name


def test_each_micro_batch_of_a_step_has_noise_of_its_own():
    drawn = []

    class Drawing(Burst):
        def __call__(self, model, batch, step, own=None, state=None):
            drawn.append(float(torch.rand(())))
            return super().__call__(model, batch, step)

    plan = dataclasses.replace(PLAN, steps=2, accumulate=3)
    list(train(LossModule(Bursting(1.0), Drawing()), Batches(COLUMNS, TASKS["translate"], budget=64, seed=1), plan))
    assert len(drawn) == len(set(drawn)) == 6


def test_another_seed_is_another_run():
    batches = Batches(COLUMNS, TASKS["translate"], budget=64, seed=1)
    runs = [_loss_module(dropout=0.3) for _ in range(3)]
    for loss_module, seed in zip(runs, (1, 1, 2), strict=True):
        list(train(loss_module, batches, dataclasses.replace(PLAN, seed=seed)))
    assert _same(runs[0], runs[1])
    assert not _same(runs[0], runs[2])


class Bursting(nn.Module):
    """A model whose loss is no number from the third batch on."""

    def __init__(self, bad: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))
        self.seen, self.bad = 0, bad


@dataclasses.dataclass(frozen=True)
class Burst:
    weights = {"nll": 1.0}  # noqa: RUF012
    capturable = False

    def modules(self, model, fields):
        return None

    def count(self, batch):
        return {"nll": 1}

    def __call__(self, model, batch, step, own=None, state=None):
        model.seen += 1
        loss = (model.weight**2).sum()
        return {"nll": loss * model.bad if model.seen == 3 else loss}, None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_before_the_update(bad):
    model = Bursting(bad)
    loss_module = LossModule(model, Burst())
    plan = dataclasses.replace(PLAN, steps=10, rate=0.125, clip=1.0)
    steps = train(loss_module, Batches(COLUMNS, TASKS["translate"], budget=64, seed=1), plan)
    next(steps), next(steps)
    good = model.weight.detach().clone()
    with pytest.raises(Diverged, match=r"step 3: .*plan.rate \(0.125\)"):
        next(steps)
    assert torch.equal(model.weight, good)


def test_a_gradient_of_the_objectives_own_modules_that_is_no_number_stops_too():
    class Rooted(Burst):
        def modules(self, model, fields):
            own = nn.Linear(1, 1, bias=False)
            nn.init.zeros_(own.weight)
            return own

        def __call__(self, model, batch, step, own=None, state=None):
            sums, _ = super().__call__(model, batch, step)
            return {"nll": sums["nll"] + own.weight.square().sum().sqrt()}, None  # 0, with a gradient of 0 · ∞

    loss_module = LossModule(Bursting(1.0), Rooted())
    steps = train(loss_module, Batches(COLUMNS, TASKS["translate"], budget=64, seed=1), PLAN)
    with pytest.raises(Diverged, match=r"step 1: .* the norm of the gradient nan"):
        next(steps)
    assert not loss_module.own.weight.any()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_the_flag_calls_an_update_off(optimizer):
    """What keeps the weights good on a GPU, where the CPU learns of a bad gradient one step late."""
    weight = nn.Parameter(torch.ones(3, 3))
    module = nn.Module()
    module.weight = weight
    made = build_optimizer(module, dataclasses.replace(PLAN, optimizer=optimizer))
    for flag, moves in ((0.0, True), (1.0, False)):
        before = weight.detach().clone()
        weight.grad = torch.full_like(weight, float("nan") if flag else 1.0)
        made.found_inf = torch.tensor(flag)
        made.step()
        assert torch.equal(weight, before) != moves


def test_clipping_bounds_the_update_and_reports_the_length_before_it():
    loss_module = _loss_module()
    before = _weights(loss_module)
    plan = dataclasses.replace(PLAN, steps=1, clip=1e-3, rate=1.0, decay=0.0)
    (step,) = train(loss_module, Batches(COLUMNS, TASKS["translate"], budget=64, seed=1), plan)
    moved = torch.cat([(_weights(loss_module)[name] - weight).flatten() for name, weight in before.items()])
    assert step.norm > 0.1
    assert float(moved.norm()) == pytest.approx(1e-3, rel=1e-2)


def test_a_step_is_refused_if_its_loss_or_its_gradient_is_not_finite():
    plan = Plan(rate=0.5, clip=2.0, warmup=3)
    for loss, norm, message in (
        (1.0, 2.0, None),
        (math.inf, None, None),  # of a model that counts
        (math.nan, None, None),
        (math.inf, 2.0, "the loss is inf, the norm of the gradient 2;"),
        (math.nan, 2.0, "the loss is nan, the norm of the gradient 2;"),
        (1.0, math.inf, "the loss is 1, the norm of the gradient inf;"),
        (1.0, math.nan, "the loss is 1, the norm of the gradient nan;"),
    ):
        total, length = torch.tensor(loss), None if norm is None else torch.tensor(norm)
        step = Step(7, 1, total[None], total, ("nll",), None if norm is None else 0.5, length=length)
        if message is None:
            require_finite(step, plan)
        else:
            cure = r".*lower plan.rate \(0.5\) or plan.clip \(2\), or raise plan.warmup \(3\)"
            with pytest.raises(Diverged, match=f"^step 7: training diverged: {message}{cure}"):
                require_finite(step, plan)
    with pytest.raises(Diverged, match=r"step 7: training diverged: the loss is nan; lower plan.rate \(0.5\)\.$"):
        require_finite(
            Step(7, 1, torch.tensor([math.nan]), torch.tensor(math.nan), ("nll",), 0.5), plan
        )  # word vectors
    grown = Step(7, 1, torch.tensor([31.0]), torch.tensor(31.0), ("nll",), 0.5)
    require_finite(grown, plan, 31.0)
    with pytest.raises(Diverged, match=r"step 7: training diverged: the loss is 31; lower plan.rate \(0.5\)\.$"):
        require_finite(grown, plan, 30.0)


def test_an_optimiser_has_the_settings_of_the_plan_and_only_matrices_decay():
    plan = dataclasses.replace(PLAN, rate=0.3, decay=0.5, betas=(0.6, 0.7), epsilon=1e-3)
    adam = {"lr": 0.3, "betas": (0.6, 0.7), "eps": 1e-3}
    for name, kind, decay, options in (
        ("adamw", torch.optim.AdamW, 0.5, adam),
        ("adam", torch.optim.Adam, 0.0, adam),
        ("sgd", torch.optim.SGD, 0.5, {"lr": 0.3, "momentum": 0.9, "nesterov": False}),
    ):
        loss_module = _loss_module()
        optimizer = build_optimizer(loss_module, dataclasses.replace(plan, optimizer=name))
        assert type(optimizer) is kind
        matrices, vectors = optimizer.param_groups
        assert (matrices["weight_decay"], vectors["weight_decay"]) == (decay, 0.0)
        for group, dims in ((matrices, {2}), (vectors, {1})):
            assert {key: group[key] for key in options} == options
            assert (group["factor"], group["start"], group["fused"]) == (1.0, 0, True)
            assert {weight.dim() for weight in group["params"]} == dims
        assert len(matrices["params"]) + len(vectors["params"]) == len(list(loss_module.parameters()))


def test_the_rate_rises_and_falls_as_the_schedule_says():
    plan = Plan(steps=100, warmup=10, rate=1.0)

    def rates(schedule):
        return [rate_at(dataclasses.replace(plan, schedule=schedule), n, width=1) for n in range(100)]

    for schedule in ("constant", "linear", "cosine", "inverse-sqrt"):
        assert rates(schedule)[:10] == pytest.approx([(n + 1) / 10 for n in range(10)])
        assert max(rates(schedule)) <= 1.0
    assert set(rates("constant")[10:]) == {1.0}
    assert rates("linear")[55] == pytest.approx(0.5)
    assert rates("cosine")[55] == pytest.approx(0.5)
    assert rates("cosine")[-1] < 0.001
    assert rates("inverse-sqrt")[39] == pytest.approx(0.5)


def test_the_rate_of_each_step_follows_from_its_definition():
    for warmup in (0, 1, 10, 99, 100, 150):
        plan = Plan(steps=100, warmup=warmup, rate=2.0)
        for n in (0, 1, 9, 10, 11, 50, 98, 99, 100, 130):
            done = min((n - warmup) / max(100 - warmup, 1), 1)
            after = {
                "constant": 2.0,
                "linear": 2 * (1 - done),
                "cosine": 2 * math.cos(math.pi * done / 2) ** 2,
                "inverse-sqrt": 2 * math.sqrt(max(warmup, 1) / (n + 1)),
            }
            for schedule, rate in after.items():
                expected = 2 * (n + 1) / warmup if n < warmup else rate
                found = rate_at(dataclasses.replace(plan, schedule=schedule), n, width=64)
                assert found == pytest.approx(expected, abs=1e-12)


def test_a_warm_up_below_one_is_a_part_of_the_steps():
    for schedule in ("constant", "linear", "cosine", "inverse-sqrt", "noam"):
        plans = [Plan(steps=200, warmup=warmup, schedule=schedule) for warmup in (0.1, 20)]
        for step in (0, 5, 19, 20, 21, 150, 199):
            assert len({rate_at(plan, step, width=64) for plan in plans}) == 1
    assert [Plan(steps=30, warmup=warmup).warmup_steps for warmup in (0, 0.1, 0.5, 1, 40)] == [0, 3, 15, 1, 40]


def test_noam_is_the_papers_equation():
    """Vaswani et al. 2017, eq. 3; its highest rate is that of the last step of the warm-up."""
    plan = Plan(steps=10_000, warmup=4000, rate=2.0, schedule="noam")
    for n in (1, 7, 3999, 4000, 4001, 10_000):
        assert rate_at(plan, n - 1, width=512) == pytest.approx(2 * 512**-0.5 * min(n**-0.5, n * 4000**-1.5))
    rates = [rate_at(plan, n, width=512) for n in range(10_000)]
    assert rates.index(max(rates)) == 3999
    assert rate_at(dataclasses.replace(plan, warmup=0), 3, width=4) == pytest.approx(2 * 0.5 * 0.5)
    steps = train(
        _loss_module(), Batches(COLUMNS, TASKS["translate"], budget=64, seed=1), dataclasses.replace(plan, steps=2)
    )
    assert [step.rate for step in steps] == [rate_at(plan, n, width=8) for n in range(2)]
    with pytest.raises(UserError, match=r"plan.schedule=noam: .* use inverse-sqrt"):
        next(train(LossModule(Bursting(1.0), Burst()), Batches(COLUMNS, TASKS["translate"], budget=64, seed=1), plan))


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_betas_and_epsilon_reach_the_optimiser(optimizer):
    plan = dataclasses.replace(PLAN, optimizer=optimizer, betas=(0.9, 0.98), epsilon=1e-9)
    for group in build_optimizer(_loss_module(), plan).param_groups:
        assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)


def test_sgd_has_momentum():
    assert [group["momentum"] for group in build_optimizer(_loss_module(), PLAN).param_groups] == [0.9, 0.9]


def test_the_steps_tell_what_was_set():
    plan = dataclasses.replace(PLAN, schedule="linear", warmup=1)
    steps = list(train(_loss_module(), Batches(COLUMNS, TASKS["translate"], budget=64, seed=1), plan))
    assert [step.rate for step in steps] == [rate_at(plan, n, width=8) for n in range(3)]
    assert all(step.terms == {"nll": pytest.approx(step.loss)} for step in steps)
    assert all(step.seconds > 0 for step in steps)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 0),
        ("rate", 0.0),
        ("minutes", 0.0),
        ("accumulate", 0),
        ("clip", -1.0),
        ("keep", 0),
        ("batch_tokens", 1),
        ("epsilon", 0.0),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(setting, value):
    with pytest.raises(UserError, match=f"plan.{setting}={value}"):
        Plan(**{setting: value})


def test_betas_that_cannot_be_are_refused_as_they_were_written():
    with pytest.raises(UserError, match=r"plan.betas=0.9,1.0: give two numbers"):
        Plan(betas=(0.9, 1.0))


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_the_state_of_an_optimiser_has_every_weight_that_it_could_have_changed(name):
    def made():
        module = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(2, 2)})
        return module, build_optimizer(module, plan)

    plan = Plan(optimizer=name)
    module, optimizer = made()
    assert optimizer_state(optimizer, module) == empty_state(optimizer, module, plan, 0, ()) == {}
    module["used"](torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = optimizer_state(optimizer, module)
    assert {"unused.weight/unused", "unused.bias/unused"} < state.keys()
    empty = empty_state(optimizer, module, plan, 1, state)
    kinds, expected = ({name: (one.shape, one.dtype) for name, one in each.items()} for each in (state, empty))
    assert kinds == expected
    other, again = made()
    restore_optimizer(again, other, state)
    assert optimizer_state(again, other).keys() == state.keys()
