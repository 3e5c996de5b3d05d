"""What ends a run (steps, epochs, minutes, patience), the schedule that follows it, and warnings about plans."""

import sys
from dataclasses import replace

import pytest

from regard.data.batches import Batches
from regard.errors import UserError
from regard.recipes import KINDS, Plan, change, find_recipe
from regard.training.events import Evaluated, Finished, Progress, Started
from regard.training.optim import place_in_schedule, rate_at
from regard.training.prepare import prepare
from regard.training.run import Run


def test_epochs_are_passes_over_the_examples(recipe, tmp_path):
    settings = ["plan.accumulate=2", "plan.batch_tokens=320", "plan.evaluate=100", "plan.samples=1"]
    base = recipe("plan.epochs=1.5", *settings)
    started, *_, finished = Run(base, tmp_path / "run")
    assert started.steps == -(-3 * started.epoch // 4)
    assert (finished.step, finished.reason) == (started.steps, "epochs")
    assert prepare(base, ranks=2).recipe.plan.steps == -(-3 * started.epoch // 8)  # the ranks share the batches
    again, *_ = Run(base, tmp_path / "run", "resume")  # the recipe as given, without the steps that followed from it
    assert (again.step, again.over) == (started.steps, "epochs")
    with pytest.raises(UserError, match=r"plan.epochs=2.0: .* was started with 1.5; the learning rate depends on it"):
        Run(recipe("plan.epochs=2", *settings), tmp_path / "run", "resume")


def test_an_evaluation_an_epoch(recipe, tmp_path):
    base = recipe("plan.epochs=2.5", "plan.evaluate=epoch", "plan.batch_tokens=160", "plan.samples=1")
    started, *events = Run(base, tmp_path / "run")
    an_epoch = started.epoch
    evaluated = [event.step for event in events if isinstance(event, Evaluated)]
    assert 1 < an_epoch < started.steps
    assert evaluated == [*range(an_epoch, started.steps, an_epoch), started.steps]
    again, *_ = Run(base, tmp_path / "run", "resume")
    assert again.step == started.steps
    with pytest.raises(UserError, match=r"plan.evaluate=0: give 1 or more"):
        recipe("plan.evaluate=0")


def test_a_run_has_one_length(recipe):
    with pytest.raises(UserError, match=r"plan.steps=4 and plan.epochs=2: .* give one"):
        change(recipe(), ["plan.steps=4", "plan.epochs=2"], KINDS)
    with pytest.raises(UserError, match=r"plan.epochs=0.0: give a number above 0"):
        recipe("plan.epochs=0")


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_ends_with_the_minutes(recipe, tmp_path, monkeypatch, schedule):
    """A clock that moves one second with every batch: 6 of 100 steps fit into a tenth of a minute."""
    home, now = sys.modules["regard.training.run"], [0.0]
    real = Batches.batch

    def batch(*given):
        now[0] += 1.0
        return real(*given)

    monkeypatch.setattr(home.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Batches, "batch", batch)
    settings = ["plan.steps=100", "plan.warmup=10", "plan.minutes=0.1", "plan.log=1", "plan.evaluate=50"]
    made = recipe(*settings, f"plan.schedule={schedule}")
    events = list(Run(made, tmp_path / "run"))
    rates = [event.rate for event in events if isinstance(event, Progress)]
    assert rates == pytest.approx([rate_at(made.plan, 100 * n / 6, width=1) for n in range(6)])
    assert max(rates) > 0.9 * made.plan.rate
    assert rates[-1] < 0.2 * made.plan.rate
    assert (events[-1].step, events[-1].reason, events[-1].rising) == (6, "minutes", False)


def test_a_schedule_in_steps_has_the_places_of_its_steps():
    plan = Plan(steps=100)
    assert [place_in_schedule(plan, n) for n in range(100)] == list(range(100))
    assert place_in_schedule(replace(plan, minutes=1), 50, passed=0.4) == 50  # the steps end the run
    assert place_in_schedule(replace(plan, minutes=1, schedule="noam"), 50, passed=0.9) == 50
    part = replace(plan, minutes=1, schedule="constant", warmup=0.1)  # a tenth of the run, also if the time ends it
    assert place_in_schedule(part, 3, passed=0.1) == pytest.approx(part.warmup_steps)


def test_a_warm_up_as_long_as_the_run_has_a_warning(recipe):
    for settings, reached, cure in (
        ("plan.steps=4 plan.warmup=3", "", ""),
        ("plan.steps=4 plan.warmup=4", "100%", "steps"),
        ("plan.steps=4 plan.warmup=5", "80%", "steps"),
        ("plan.epochs=1 plan.warmup=8", "50%", "epochs"),
    ):
        made = recipe(*settings.split())
        found = prepare(made).warnings
        assert len(found) == bool(reached)
        for warning in found:
            assert warning.startswith(f"plan.warmup={made.plan.warmup}: the run has 4 steps, so the learning rate")
            assert warning.endswith(f"reaches {reached} of its maximum; lower plan.warmup, or raise plan.{cure}.")


def test_the_size_of_a_validation_set_that_is_too_small_is_in_a_warning(recipe, tmp_path):
    path = tmp_path / "few.tsv"
    for count, found in ((1, "1 example,"), (2, "2 examples,"), (9, "9 examples,"), (10, "")):
        path.write_text("".join(f"{'a' * n}b\tb\n" for n in range(count)))
        warnings = prepare(recipe(f"data.valid={path}")).warnings
        assert [f"data.valid: the validation set has {found} too few" in warning for warning in warnings] == (
            [True] if found else []
        )


def test_many_examples_that_are_too_long_are_in_a_warning(recipe, tmp_path):
    path = tmp_path / "long.tsv"
    for long, budget, most in (
        (1, 48, None),
        (4, 48, "more than 16 tokens, the most that the model reads, and are left out; shorten their texts"),
        (4, 12, "more tokens than plan.batch_tokens=12, and are left out; raise it"),
    ):
        path.write_text("".join(f"{'ab' * (40 if n < long else 2)}\tb\n" for n in range(40)))
        warnings = prepare(recipe(f"data.train={path}", f"data.valid={path}", f"plan.batch_tokens={budget}")).warnings
        found = f"{long} of 40 training examples have {most}"
        assert [warning.startswith(found) for warning in warnings] == [True] * bool(most)


@pytest.mark.parametrize(("name", "parts", "fits"), [("classify", 1, 32), ("rate", 1, 32), ("pair", 2, 28)])
def test_texts_that_are_too_long_are_cut_and_counted(name, parts, fits, tmp_path):
    """A text of so many words fits in the context of 32 tokens, with its special tokens; a longer one is cut."""
    path, small = tmp_path / "texts.tsv", ("model.width=16", "model.heads=2", "model.layers=1", "model.inner=16")
    settings = ("model=bert", "model.context=32", "data.tokens=word", "plan.device=cpu", *small)
    for long in (1, 4):
        words = [40] * long + [fits] * (20 - long) + [2] * 20
        texts = ["\t".join(["rain " * (count // parts)] * parts) for count in words]
        path.write_text("".join(f"{n % 2}\t{text}\n" for n, text in enumerate(texts)))
        files = (f"data.train={path}", f"data.valid={path}")
        prepared = prepare(change(find_recipe(name), [*settings, *files], KINDS))
        found = [prepared.batches.batch(number) for number in range(len(prepared.batches))]
        lengths = [int(real.sum()) for batch in found for real in batch.real["tokens"]]
        assert (max(lengths), sum(length > 8 for length in lengths), prepared.batches.dropped) == (32, 20, 0)
        cut = f"{long} of 40 training examples have more than 32 tokens, the most that the model reads, and are cut;"
        assert [warning.startswith(cut) for warning in prepared.warnings] == [True] * (long > 2)


def test_plans_that_cannot_work_have_a_warning(recipe, tmp_path):
    started, *_, finished = Run(recipe("plan.steps=4", "plan.warmup=40", "plan.samples=1"), tmp_path / "long")
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert finished.rising
    (warning,) = started.warnings
    assert warning.startswith(
        "plan.warmup=40: the run has 4 steps, so the learning rate rises to the end and reaches 10%"
    )
    assert next(iter(Run(recipe(), tmp_path / "fine"))).warnings == ()
    (tmp_path / "one.tsv").write_text("ab\tba\n")
    started = next(iter(Run(recipe(f"data.valid={tmp_path / 'one.tsv'}"), tmp_path / "one")))
    assert started.warnings[0].startswith("data.valid: the validation set has 1 example, too few")
