"""The bigram model: its counts and probabilities are those of the text, whatever the steps they were counted in."""

import math
from collections import Counter
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch

from regard import load, score
from regard.config import override
from regard.data.batches import IGNORED
from regard.data.streams import Windows
from regard.errors import UserError
from regard.models import BigramConfig
from regard.recipes import KINDS, Recipe, find_recipe
from regard.training.events import Evaluated, Progress
from regard.training.run import Run

LINES = ["the dog sees the cat", "the cat sees a dog", "a dog barks", "the the dog"] * 5


def recipe(folder: Path, *settings: str) -> Recipe:
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n")
    data = [f"data.train={folder}/lines.txt", f"data.valid={folder}/lines.txt"]
    return override(find_recipe("bigram"), [*data, *settings], KINDS)


def test_probabilities_are_those_of_hand_made_counts(tmp_path: Path) -> None:
    list(Run(recipe(tmp_path), tmp_path / "run"))
    pairs = Counter(pair for line in LINES for pair in pairwise(["<bos>", *line.split(), "<eos>"]))
    model = load(tmp_path / "run", "cpu")
    size = model.target_tokenizer.size
    (found,) = score(model, ["the dog the the"])
    asked = list(pairwise(["<bos>", "the", "dog", "the", "the", "<eos>"]))
    firsts = Counter(u for u, _ in pairs.elements())
    for (u, v), logp in zip(asked, found.logps, strict=True):
        assert math.exp(logp) == pytest.approx((pairs[u, v] + 1) / (firsts[u] + size))
    assert found.formulas[1] == f"P(dog | the) = ({pairs['the', 'dog']} + 1) / ({firsts['the']} + 1 · {size})"
    assert found.formulas[3].startswith(f"P(the | the) = ({pairs['the', 'the']} + 1)")


@pytest.mark.parametrize("smoothing", ["add-k", "interpolated"])
@pytest.mark.parametrize("k", [0.0, 0.3])
def test_probabilities_sum_to_one(smoothing: str, k: float) -> None:
    model = BigramConfig(vocab=9, smoothing=smoothing, k=k, weight=0.6).build()
    before = torch.arange(9)[:, None]
    for _ in range(3):
        torch.testing.assert_close(model.readout(before).exp().sum(1), torch.ones(9).double(), atol=1e-12, rtol=0)
        model.add(torch.randint(5, (2, 30)), torch.randint(9, (2, 30)))


def test_the_formula_of_a_probability_has_its_value() -> None:
    pairs = torch.tensor([[0, 1, 1, 2]]), torch.tensor([[1, 2, 2, 0]])
    for smoothing, k, counted in product(("add-k", "interpolated"), (0.0, 0.5, 1.0), (False, True)):
        model = BigramConfig(vocab=4, smoothing=smoothing, k=k).build()
        if counted:
            model.add(*pairs)
        for u, v in product(range(4), range(4)):
            value = float(model.probability(torch.tensor(u), torch.tensor(v)))
            assert eval(model.formula(u, v).replace("·", "*")) == pytest.approx(value), (smoothing, k, u, v)
    assert BigramConfig(vocab=4).build().formula(0, 1) == "(0 + 1) / (0 + 1 · 4)"


def test_interpolation_mixes_the_bigram_and_the_single_token() -> None:
    model = BigramConfig(vocab=4, smoothing="interpolated", k=0.5, weight=0.8).build()
    model.add(torch.tensor([[1, 2, 1, 2]]), torch.tensor([[2, 1, 3, IGNORED]]))
    expected = 0.8 * 1 / 2 + 0.2 * (1 + 0.5) / (3 + 0.5 * 4)
    assert float(model.probability(torch.tensor(1), torch.tensor(3))) == pytest.approx(expected)
    unseen = (1 + 0.5) / (3 + 0.5 * 4)  # after a token without a count, only the single tokens are left
    assert float(model.probability(torch.tensor(3), torch.tensor(3))) == pytest.approx(unseen)
    assert model.formula(1, 3) == "0.8 · 1 / 2 + 0.2 · (1 + 0.5) / (3 + 0.5 · 4)"


def test_a_run_counts_the_text_once_in_any_number_of_steps_and_resumes(tmp_path: Path) -> None:
    small = ("plan.batch_tokens=24", "plan.evaluate=3", "plan.log=1")
    events = list(Run(recipe(tmp_path, *small), tmp_path / "whole"))
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert losses[0] == pytest.approx(math.log(load(tmp_path / "whole").target_tokenizer.size))  # before any count
    assert losses[-1] < losses[0]
    *_, last = (event for event in events if isinstance(event, Evaluated))
    list(Run(recipe(tmp_path, *small, "plan.steps=1"), tmp_path / "once"))
    run = iter(Run(recipe(tmp_path, *small), tmp_path / "stopped"))
    while not (isinstance(event := next(run), Progress) and event.step == 5):
        pass
    run.close()
    list(Run(recipe(tmp_path, *small), tmp_path / "stopped", "resume"))
    states = [load(tmp_path / name, "cpu").module.state_dict() for name in ("whole", "once", "stopped")]
    for other in states[1:]:
        assert all(torch.equal(states[0][name], other[name]) for name in states[0] | other)
    assert last.values["loss"] < losses[-1]


def test_a_step_without_a_batch_has_the_loss_of_the_step_before_also_after_a_resume(tmp_path: Path) -> None:
    made = recipe(tmp_path, "plan.steps=8", "plan.evaluate=4", "plan.log=1")  # all lines are one batch
    run = iter(Run(made, tmp_path / "run"))
    while not (isinstance(event := next(run), Progress) and event.step == 5):
        pass
    run.close()
    *before, loss = (event.loss for event in Run(made, tmp_path / "run", "resume") if isinstance(event, Progress))
    assert loss == event.loss == pytest.approx(math.log(load(tmp_path / "run").target_tokenizer.size))
    assert before == [loss] * 2


def test_counts_that_exclude_a_validation_token_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text("barks the\n")
    settings = (f"data.valid={tmp_path}/valid.txt", "plan.steps=4", "plan.evaluate=2")
    cure = r"the loss of step 4 is inf, .* the probability 0; give more smoothing, such as model\.k=1\."
    with pytest.raises(UserError, match=cure):
        list(Run(recipe(tmp_path, *settings, "model.k=0"), tmp_path / "none"))
    list(Run(recipe(tmp_path, *settings), tmp_path / "smooth"))


def test_counts_without_smoothing_may_exclude_a_token(tmp_path: Path) -> None:
    settings = ("plan.batch_tokens=24", "model.k=0", "plan.steps=4")
    *_, evaluated, _, _ = Run(recipe(tmp_path, *settings), tmp_path / "run")
    assert isinstance(evaluated, Evaluated)
    assert 0 < evaluated.values["loss"] < 3
    (found,) = score(load(tmp_path / "run"), ["barks the"])
    assert found.total == -math.inf


def test_the_parts_of_a_text_depend_on_the_steps(tmp_path: Path) -> None:
    list(Run(recipe(tmp_path, "plan.schedule=constant"), tmp_path / "run"))
    with pytest.raises(UserError, match=r"plan.steps=20: .* started with 10; resume with plan.steps=10, or"):
        Run(recipe(tmp_path, "plan.schedule=constant", "plan.steps=20"), tmp_path / "run", "resume")


def test_windows_of_a_running_text_have_every_target_once() -> None:
    text = torch.randperm(83).numpy()
    windows = Windows(text, window=8, budget=24, seed=1)
    for parts in (1, 4, 7, 100):
        batches = [batch for part in range(parts) for batch in windows.part(part, parts)]
        pairs = [
            pair
            for batch in batches
            for pair in zip(batch["tokens"].flatten().tolist(), batch["targets"].flatten().tolist())
            if pair[1] != IGNORED
        ]
        assert list(windows.part(0, parts))  # the loss of the first step is that of a batch
        assert sorted(pairs) == sorted(pairwise(text.tolist()))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.pairs=-3", "model.pairs=-3: training sets it"),
        ("model.pairs=3", "model.pairs=3: training sets it; leave it at 0."),
        ("model.k=-1", "model.k=-1.0: give 0 (no smoothing) to 1,000,000, such as 1."),
        ("model.k=1e300", "model.k=1e+300: give 0"),
        ("plan.threads=2000000", "plan.threads=2000000: give at most 1024, or 0"),
        ("model.weight=2", "model.weight=2.0: give a number from 0 to 1"),
        ("model.smoothing=none", "model.smoothing=none: no such smoothing"),
        ("objective=teacher", "objective=teacher: does not fit model=bigram; use objective=counts"),
        (
            "model=gpt",
            "objective=counts: does not fit model=gpt; use objective=teacher or objective=regularised or ",
        ),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        Run(recipe(tmp_path, setting), tmp_path / "run")
    assert message in str(error.value)
