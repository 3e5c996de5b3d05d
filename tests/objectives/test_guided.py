"""Guided alignment: attention weights that follow gold links."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from encoded import pair_batch
from regard.config import override
from regard.data.batches import Batch
from regard.errors import UserError
from regard.models import Seq2SeqConfig, TransformerConfig
from regard.objectives import GuidedAlignment, TeacherForcing
from regard.recipes import KINDS, find_recipe, find_task
from regard.recording import record
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs.forced import aligning, aligning_heads

SEQ = Seq2SeqConfig(source_vocab=12, target_vocab=12, width=8, embed=6, dropout=0.0)
STACK = TransformerConfig(source_vocab=12, target_vocab=12, width=8, heads=2, layers=3, inner=8, dropout=0.0)
SMALL = (
    "data.train=200 data.valid=20 data.test=5 data.languages=en,de model.width=16 model.embed=8 plan.steps=3 "
    "plan.evaluate=3 plan.batch_tokens=256 plan.samples=4 plan.threads=1 plan.device=cpu plan.warmup=1"
)


needs_babel = pytest.mark.skipif(find_spec("babel") is None, reason="the dates corpus is made with Babel")


def recipe_of(settings: str = "") -> regard.Recipe:
    recipe: regard.Recipe = override(find_recipe("dates"), f"{SMALL} {settings}".split(), KINDS)
    return recipe


@pytest.fixture
def guided_batch() -> Batch:
    batch = pair_batch([([4, 5, 6], [7, 8]), ([5, 4], [9])])
    gold = torch.zeros(2, 3, 3, dtype=torch.float64)
    gold[0, 0, 1], gold[0, 1, [0, 2]], gold[1, 0, 0] = 1.0, 0.5, 1.0
    return replace(batch, fields={**batch.fields, "alignment": gold}, counts={**batch.counts, "alignment": 3})


@pytest.mark.parametrize(
    ("config", "objective", "name"),
    [
        (SEQ, GuidedAlignment(), "decoder.attention"),
        (replace(SEQ, decoder="luong"), GuidedAlignment(), "decoder.attention"),
        (replace(SEQ, decoder="luong-feeding", coverage=True), GuidedAlignment(), "decoder.attention"),
        (STACK, GuidedAlignment(), "decoder.blocks.1.cross.read"),
        (STACK, GuidedAlignment(align_layer=2, align_heads=(1,)), "decoder.blocks.2.cross.read"),
        (replace(STACK, groups=1), GuidedAlignment(align_layer=2), "decoder.blocks.0.cross.read[2]"),
    ],
    ids=str,
)
def test_the_term_is_the_cross_entropy_of_links_and_weights(
    config: Any, objective: GuidedAlignment, name: str, guided_batch: Batch
) -> None:
    torch.manual_seed(1)
    model = config.build().double()
    with torch.no_grad(), record(model) as tape:
        model(guided_batch)
    weights = tape[name]
    if weights.dim() == 4:
        weights = weights[:, list(objective.align_heads) or slice(None)].mean(1)
    expected = -(weights[0, 0, 1].log() + (weights[0, 1, 0] * weights[0, 1, 2]).log() / 2 + weights[1, 0, 0].log())
    assert objective.modules(model, {}) is None
    sums, _ = objective(model, guided_batch, 0)
    torch.testing.assert_close(sums["alignment"], expected, atol=1e-9, rtol=0.0)
    torch.testing.assert_close(sums["nll"], TeacherForcing()(model, guided_batch, 0)[0]["nll"], atol=1e-9, rtol=0.0)
    assert objective.count(guided_batch) == {"nll": 5, "alignment": 3}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = objective(model, guided_batch, 0)[0]["alignment"]
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.5 * float(expected)  # the least is log 2, the entropy of the target with two links


def test_a_weight_of_zero_is_finite(guided_batch: Batch) -> None:
    model = replace(SEQ, window="local-m", radius=1, score="location").build().double()
    gold = guided_batch["alignment"].clone()
    gold[0, 0] = torch.tensor([0.0, 0.0, 1.0])  # outside of the window of the first target
    sums, _ = GuidedAlignment()(model, replace(guided_batch, fields={**guided_batch.fields, "alignment": gold}), 0)
    sums["alignment"].backward()
    assert sums["alignment"].isfinite()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_the_objective_decides_between_the_tasks_of_dates() -> None:
    assert find_task(recipe_of(), KINDS).name == "translate"
    assert find_task(recipe_of("objective=guided"), KINDS).name == "aligned"
    message = "objective=guided: does not fit data=pairs; use objective=teacher or objective=professor"
    with pytest.raises(UserError, match=message):
        find_task(override(find_recipe("translate"), ["objective=guided"], KINDS), KINDS)


@needs_babel
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("objective.alignment=-1", r"objective.alignment=-1.0: give 0"),
        ("objective.align_layer=1", r"objective.align_layer=1: only layer 0 attends to the source"),
        ("objective.align_heads=1", r"objective.align_heads=1: decoder.attention has only head 0"),
        ("model.decoder=once", r"objective=guided: the model has no attention to a source; set model.decoder=bahdanau"),
        ("data.source_tokens=word", r"data.source_tokens=word: the links of the data join characters"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_name(settings: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        Run(recipe_of(f"objective=guided {settings}"), tmp_path / "run")


@needs_babel
def test_a_guided_run_is_evaluated_resumed_loaded_and_translates(tmp_path: Path) -> None:
    events = list(Run(recipe_of("objective=guided"), tmp_path / "run"))
    (evaluated,) = [event for event in events if type(event).__name__ == "Evaluated"]
    assert {"loss", "exact", "alignment", "chance"} <= evaluated.values.keys()
    list(Run(None, tmp_path / "run", "resume"))
    model = regard.load(tmp_path / "run", "cpu")
    assert set(model.fields) == {"source", "target", "alignment"}
    (one,) = regard.translate(model, ["3 May 2021"])
    assert one.alignment is not None
    regard.align(model, [("3 May 2021", "2021-05-03")])
    regard.score(model, [("3 May 2021", "2021-05-03")])


@needs_babel
def test_a_translator_may_be_guided_later(tmp_path: Path) -> None:
    list(Run(recipe_of(), tmp_path / "first"))
    settings = f"{SMALL} objective=guided".split()
    start = warm_start_from(tmp_path / "first")
    recipe, given = warm_started(find_recipe("dates"), settings, start, tmp_path / "first")
    list(Run(recipe, tmp_path / "second", init=given))
    assert find_task(recipe, KINDS).name == "aligned"


@needs_babel
def test_alignments_are_taken_from_the_weights_that_were_trained(tmp_path: Path) -> None:
    stack = "model=transformer model.width=16 model.heads=2 model.layers=3 model.inner=16 model.context=64"
    settings = SMALL.replace("model.width=16 model.embed=8", stack)
    trained = "objective=guided objective.align_layer=2 objective.align_heads=1"
    list(Run(override(find_recipe("dates"), f"{settings} {trained}".split(), KINDS), tmp_path / "run"))
    model = regard.load(tmp_path / "run", "cpu")
    assert aligning(model) == "decoder.blocks.2.cross.read"
    assert aligning_heads(model) == (1,)
    assert (aligning(model, 0), aligning_heads(model, 0)) == ("decoder.blocks.0.cross.read", None)
    pair = ("3 May 2021", "2021-05-03")
    with record(model.module) as tape:
        (one,) = regard.align(model, [pair])
    expected = tape["decoder.blocks.2.cross.read"][0, 1, : len(pair[1])]
    torch.testing.assert_close(torch.from_numpy(one.weights), expected, atol=1e-6, rtol=0.0)
