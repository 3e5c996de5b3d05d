"""Learning rates by layer, frozen layers, and layers that start to train one after the other."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from encoded import labelled_columns
from regard.config import override
from regard.data.batches import Batches
from regard.errors import UserError
from regard.heads import ClassHeadConfig
from regard.models import BertConfig, HeadedConfig, RecurrentLmConfig
from regard.objectives import Classification, LossModule, TeacherForcing
from regard.recipes import KINDS, Plan, find_recipe
from regard.tasks import TASKS
from regard.training import loop
from regard.training.loop import train
from regard.training.optim import build_optimizer, layers_of, optimizer_state, restore_optimizer
from regard.training.run import Run

BODY = BertConfig(vocab=13, width=8, heads=2, layers=2, inner=12, context=32, dropout=0.1)
CONFIG = HeadedConfig(BODY, ClassHeadConfig(3).for_body(BODY))
EXAMPLES = [([4 + n % 9, *range(4, 5 + n % 7)], n % 3) for n in range(40)]
NAMES = ["body.embedding", "body.stack.blocks.0", "body.stack.blocks.1", "head"]
PLAN = Plan(steps=7, rate=1e-2, warmup=2, batch_tokens=64, decay=0.1, precision="float32")


def built() -> LossModule:
    torch.manual_seed(1)
    return LossModule(CONFIG.build(), Classification())


def batches() -> Batches:
    return Batches(labelled_columns(EXAMPLES), TASKS["classify"], PLAN.batch_tokens, PLAN.seed)


def weights(module: LossModule) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}


def trained(plan: Plan) -> dict[str, torch.Tensor]:
    module = built()
    for _ in train(module, batches(), plan):
        pass
    return weights(module)


def test_the_layers_of_a_model_have_every_weight_once() -> None:
    module, plan = built(), replace(PLAN, layer_decay=0.5, unfreeze=2)
    layers = layers_of(module, plan)
    assert [layer.name for layer in layers] == NAMES
    assert [layer.factor for layer in layers] == [0.125, 0.25, 0.5, 1.0]
    assert [layer.start for layer in layers] == [6, 4, 2, 0]
    found = [id(weight) for layer in layers for weight in layer.weights]
    assert sorted(found) == sorted(id(weight) for weight in module.parameters())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("direction", ["forward", "both"])
def test_the_embedding_of_a_tied_language_model_has_the_rate_of_its_output_layer(tied: bool, direction: str) -> None:
    """Under a head the embedding is the first layer again, with the lowest rate."""
    body = RecurrentLmConfig(vocab=9, width=4, embed=4, layers=2, tied=tied, direction=direction).directed()  # type: ignore[arg-type]
    headed = HeadedConfig(body, ClassHeadConfig(3).for_body(body))
    for config, embedding in ((body, 1.0 if tied else 0.125), (headed, 0.125)):
        module = LossModule(config.build(), TeacherForcing())
        layers = layers_of(module, replace(PLAN, layer_decay=0.5))
        factors = {id(weight): layer.factor for layer in layers for weight in layer.weights}
        found = {name: factors[id(weight)] for name, weight in module.named_parameters()}
        assert {factor for name, factor in found.items() if "embedding" in name} == {embedding}
        assert {factor for name, factor in found.items() if "rnn.onward.0." in name} == {0.25}


def test_the_rate_of_a_layer_is_that_of_the_layer_above_times_the_decay() -> None:
    """With plain gradient descent, the first change is proportional to the rate."""
    start = weights(built())
    plain, decayed = (
        trained(replace(PLAN, steps=1, warmup=0, optimizer="sgd", decay=0.0, clip=0.0, layer_decay=factor))
        for factor in (1.0, 0.5)
    )
    for name, factor in (("embedding.tokens.weight", 0.125), ("stack.blocks.1.feed.up.weight", 0.5)):
        change, whole = (each[f"model.body.{name}"] - start[f"model.body.{name}"] for each in (decayed, plain))
        torch.testing.assert_close(change, factor * whole)
    assert torch.equal(decayed["model.head.out.weight"], plain["model.head.out.weight"])


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("freeze", [2, ("body.embedding", "body.stack.blocks.0")])
def test_frozen_weights_do_not_change(optimizer: str, freeze: int | tuple[str, ...]) -> None:
    start, end = weights(built()), trained(replace(PLAN, optimizer=optimizer, freeze=freeze, accumulate=2))
    for name in start:
        frozen = name.startswith(("model.body.embedding", "model.body.stack.blocks.0"))
        unused = name == "model.body.embedding.segments.weight"
        assert torch.equal(start[name], end[name]) == frozen or unused, name


def test_layers_start_to_train_one_after_the_other() -> None:
    module, seen = built(), weights(built())
    changed: dict[str, int] = {}
    for step in train(module, batches(), replace(PLAN, unfreeze=2)):
        for name, weight in module.named_parameters():
            if name not in changed and not torch.equal(seen[name], weight):
                changed[name] = step.n
    for name, first in (("embedding", 7), ("stack.blocks.0", 5), ("stack.blocks.1", 3)):
        assert {at for each, at in changed.items() if each.startswith(f"model.body.{name}.")} == {first}
    assert changed["model.head.out.weight"] == 1


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_is_bit_equal(optimizer: str, stop: int) -> None:
    plan = replace(PLAN, optimizer=optimizer, unfreeze=2, freeze=1, layer_decay=0.8, accumulate=2)
    first, second = built(), built()
    early, late = build_optimizer(first, plan), build_optimizer(second, plan)
    steps = train(first, batches(), plan, early)
    for _ in range(stop):
        next(steps)
    second.load_state_dict(first.state_dict())
    restore_optimizer(late, second, {name: one.clone() for name, one in optimizer_state(early, first).items()})
    for _ in train(second, batches(), plan, late, start=stop):
        pass
    straight = trained(plan)
    for name, weight in second.named_parameters():
        assert torch.equal(weight, straight[name]), name


@pytest.mark.parametrize("model", ["bert", "gpt"])
def test_a_classifier_that_is_stopped_and_resumed_is_bit_equal(model: str, tmp_path: Path) -> None:
    lines = "".join(f"{('good', 'bad', 'odd')[n % 3]}\tword{n % 3} and {n % 7}\n" for n in range(60))
    (tmp_path / "labelled.tsv").write_text(lines, encoding="utf-8")
    settings = [
        *(f"model={model}", "model.width=8", "model.heads=2", "model.layers=2", "model.inner=12", "model.context=32"),
        *("plan.steps=6", "plan.evaluate=2", "plan.unfreeze=2", "plan.freeze=1", "plan.layer_decay=0.7"),
        *("plan.batch_tokens=64", "plan.threads=1", "plan.patience=0", f"data.train={tmp_path / 'labelled.tsv'}"),
    ]
    recipe = override(find_recipe("classify"), settings, KINDS)
    list(Run(recipe, tmp_path / "whole"))
    first = iter(Run(recipe, tmp_path / "cut"))
    while next(first).step < 3:
        pass
    first.close()
    list(Run(None, tmp_path / "cut", "resume"))
    for file in ("weights.safetensors", "training/trainer.safetensors"):
        whole, cut = (tmp_path / run / "steps/000006" / file for run in ("whole", "cut"))
        assert whole.read_bytes() == cut.read_bytes()


def test_captured_steps_follow_an_unfreezing(graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(PLAN, unfreeze=2, freeze=1, optimizer="sgd")
    module = HeadedConfig(replace(BODY, dropout=0.0), replace(CONFIG.head, dropout=0.0))
    monkeypatch.setattr(f"{__name__}.CONFIG", module)
    plain, sets = trained(plan), []

    def captured(run, weights):
        sets.append(len([weight for weight in weights if weight.requires_grad]))
        return graphs(lambda batch, factors, state: run(batch, 0, factors, state), weights)[0]

    monkeypatch.setattr(loop, "_can_capture", lambda loss_module, plan: True)
    monkeypatch.setattr(loop, "Graphs", captured)
    found = trained(plan)
    assert len(sets) == 3
    assert sets == sorted(set(sets))
    for name, weight in plain.items():
        torch.testing.assert_close(found[name], weight, msg=name)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("plan.freeze=4", "plan.freeze=4: all 4 layers are frozen; give fewer"),
        ("plan.freeze=body.embeding", 'no layer body.embeding. Did you mean "body.embedding"'),
        ("plan.freeze=-1", "plan.freeze=-1: give 0 or more"),
        ("plan.layer_decay=1.5", "plan.layer_decay=1.5: give a number above 0, at most 1"),
        ("plan.unfreeze=-2", "plan.unfreeze=-2: give 0 or more"),
    ],
)
def test_impossible_settings_are_refused_by_name(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_optimizer(built(), override(find_recipe("classify"), [setting], KINDS).plan)
