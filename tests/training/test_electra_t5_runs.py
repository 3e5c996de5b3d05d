"""Runs of ELECTRA and T5: resumed, evaluated from disk, used by the verbs, and fine-tuned."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import UserError, classify, embed, export, fill, load, look, record, score, translate
from regard.cli.score import ORIGINAL, _chain
from regard.data.example import Text
from regard.file_io import load_tensors
from regard.objectives import ReplacedTokens
from regard.recipes import KINDS, change, find_recipe
from regard.report.example import example_picture
from regard.report.run import Outcome
from regard.training.chance import describe_chance
from regard.training.evaluate import Scores, evaluate
from regard.training.events import Finished
from regard.training.ladder.cells import Cell
from regard.training.ladder.pretraining import Entry, Job, Probe, fine_tuning
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from tiny_public import transformers

TEXT = "the old dog sees a red bird . a small man likes the house .\n" * 12
TINY = (
    *("plan.steps=6", "plan.evaluate=3", "plan.log=1", "plan.batch_tokens=96", "plan.warmup=0", "plan.device=cpu"),
    *("model.width=16", "model.heads=2", "model.layers=2", "model.inner=24", "plan.threads=1", "plan.rate=0.01"),
)
SETTINGS = {
    "electra": ("model=electra", "model.embed=8", "model.context=24", "data.vocab=80"),
    "t5": ("model=t5", "data.vocab=180"),
}


def recipe(family: str, folder: Path, *settings: str, name: str = "pretrain") -> Any:
    (folder / "text.txt").write_text(TEXT)
    window = ["data.window=24"] if family == "t5" and "data=lines" not in settings else []
    given = [*SETTINGS[family], f"data.train={folder / 'text.txt'}", *TINY, *window, *settings]
    return change(find_recipe(name), given, KINDS)


def train(made: Any, out: Path, stop: int | None = None, **more: Any) -> Run:
    run = Run(made, out, **more)
    for event in (events := iter(run)):
        if stop is not None and type(event).__name__ == "Progress" and event.step == stop:
            events.close()  # type: ignore[attr-defined]
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each family."""
    folder = tmp_path_factory.mktemp("runs")
    for family in SETTINGS:
        train(recipe(family, folder), folder / family)
    return {family: folder / family for family in SETTINGS}


def test_a_context_that_needs_more_sentinels_than_there_are_is_no_error_of_shorter_texts(tmp_path: Path) -> None:
    long = ("data=lines", "model.positions=learned", "model.context=4096", "plan.steps=3")
    events = list(Run(recipe("t5", tmp_path, *long, f"data.valid={tmp_path / 'text.txt'}"), tmp_path / "run"))
    assert [event.step for event in events if type(event).__name__ == "Evaluated"] == [3]


def test_settings_of_the_first_weights_bind_no_later_run(tmp_path: Path) -> None:
    other = ("model.neighbours=false", "model.initial=0.02")
    list(Run(recipe("electra", tmp_path, *other, "plan.steps=3"), tmp_path / "old"))
    run = Run(recipe("electra", tmp_path, "plan.steps=3"), tmp_path / "old", "resume")  # as before they existed
    assert (run.recipe.model.neighbours, run.recipe.model.initial) == (False, 0.02)  # the generator has one head
    for first, settings in ((tmp_path / "old", ["model.neighbours=true"]), (tmp_path / "new", list(other))):
        if not first.exists():
            list(Run(recipe("electra", tmp_path, "plan.steps=3"), first))
        given = [f"data.train={tmp_path / 'text.txt'}", *TINY, *settings]
        chosen, init = warm_started(find_recipe("pretrain"), given, warm_start_from(first), first)
        continued = Run(chosen, tmp_path / f"after {first.name}", init=init)
        assert chosen.model.neighbours == (first.name == "old")
        for name, weight in load(first).module.state_dict().items():
            torch.testing.assert_close(continued.model.state_dict()[name], weight)


def test_a_copy_start_binds_no_later_run(tmp_path: Path) -> None:
    plain, copies = (recipe("t5", tmp_path, "plan.steps=3", f"model.copies={value}") for value in ("false", "true"))
    list(Run(plain, tmp_path / "old"))
    assert not Run(copies, tmp_path / "old", "resume").recipe.model.copies
    given = [f"data.train={tmp_path / 'text.txt'}", "data.window=24", *TINY, "model.copies=true"]
    chosen, init = warm_started(find_recipe("pretrain"), given, warm_start_from(tmp_path / "old"), tmp_path / "old")
    continued = Run(chosen, tmp_path / "new", init=init).model.state_dict()
    for name, weight in load(tmp_path / "old").module.state_dict().items():
        torch.testing.assert_close(continued[name], weight)


def test_the_generator_of_a_run_is_found_whatever_the_name_of_its_folder(runs: dict[str, Path], tmp_path: Path) -> None:
    year = tmp_path / "2024"
    shutil.copytree(runs["electra"], year)
    best = Path("steps") / (year / "best").read_text().strip()
    scores = [
        evaluate(load(path, "cpu", long="truncate"), [Text("the old dog sees a bird .")], ["loss"]).values["loss"]
        for path in (runs["electra"] / best, year, year / best)
    ]
    assert scores[1:] == scores[:1] * 2


@pytest.mark.parametrize("family", [*SETTINGS])
def test_a_run_that_is_stopped_and_resumed_is_bit_equal(family: str, runs: dict[str, Path], tmp_path: Path) -> None:
    train(recipe(family, runs[family].parent), tmp_path / "run", stop=2)
    train(None, tmp_path / "run", existing="resume")
    for file in ("weights.safetensors", "training/trainer.safetensors"):
        one, other = (load_tensors(folder / "steps/000006" / file) for folder in (runs[family], tmp_path / "run"))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    if family == "electra":  # the generator, without the embeddings of the model
        own = [name for name in one if name.startswith("objective/")]
        assert own
        assert not any("embedding" in name for name in own)


def test_a_captured_step_samples_by_the_numbers_of_each_batch(graphs: Any, tmp_path: Path) -> None:
    prepared = prepare(recipe("electra", tmp_path, "model.dropout=0"))
    module, factors = prepared.build(), torch.ones(2)

    def step(batch: Any, factors: Any, state: Any) -> Any:
        module.zero_grad(set_to_none=False)
        sums, _ = module(batch, 0)
        (sums * factors).sum().backward()
        return sums.detach(), None

    captured, made = graphs(step, list(module.parameters()))
    for number in range(3):
        batch = prepared.batches.batch(number)
        found, _ = captured.of(batch, factors)(batch, 0, factors, None)
        assert torch.equal(found, step(batch, factors, None)[0])
    assert len(made) == 1


@pytest.mark.parametrize("places", ["all", "masked"])
def test_a_run_from_disk_is_evaluated_with_its_generator(places: str, tmp_path: Path) -> None:
    run = train(recipe("electra", tmp_path, f"objective.places={places}", "plan.steps=3"), tmp_path / "run")
    model, plan = load(tmp_path / "run", device="cpu"), run.recipe.plan
    assert run.state.step == model.step
    inside = run.evaluate().values
    names = ("loss", "accuracy", "replaced_recall")
    found = evaluate(model, run.prepared.corpus.valid, names, batch_tokens=plan.batch_tokens).values
    assert found.keys() >= {*names}
    assert found == {name: inside[name] for name in found}


def test_the_settings_of_electra_follow_from_the_model(tmp_path: Path) -> None:
    made = recipe("electra", tmp_path)
    assert made.objective == ReplacedTokens()
    assert made.metrics == ("accuracy", "replaced_precision", "replaced_recall")
    lines = recipe("t5", tmp_path, "data=lines", "data.tokens=word")
    assert type(lines.objective).__name__ == "SpanCorruption"
    with pytest.raises(UserError, match=r"objective=teacher: does not fit model=transformer; use objective=spans"):
        Run(recipe("t5", tmp_path, "objective=teacher"), tmp_path / "run")
    with pytest.raises(UserError, match=r"objective=masked: does not fit model=\w+; use objective=replaced"):
        Run(recipe("electra", tmp_path, "objective=masked"), tmp_path / "run")


def test_electra_tells_how_likely_each_token_is_the_original(runs: dict[str, Path]) -> None:
    model = load(runs["electra"], device="cpu")
    texts = ["the old dog sees", "", "a bird"]
    with record(model.module) as tape:
        found = score(model, texts[::2])
    assert len(tape) == 2
    for text, one in zip(texts[::2], found):
        ids = model.tokenizer.encode(text)
        tokens = torch.tensor([model.tokenizer.wrap_input(ids)])
        expected = torch.sigmoid(-model.logits(tokens)[0, 1:-1]).log()
        torch.testing.assert_close(torch.tensor(one.logps), expected, atol=1e-5, rtol=0)
        assert one.pieces == model.tokenizer.pieces(ids)
        assert one.total == pytest.approx(float(expected.sum()), abs=1e-4)
        *_, last, _ = _chain(one, ORIGINAL)
        assert last.startswith("sum of ln p(original) = ")  # which is no probability of the text
    assert score(model, [""])[0].pieces == []
    assert embed(model, texts[:1]).vectors.shape == (1, 16)
    assert look(model, texts[0]).layers
    with pytest.raises(UserError, match=r"a detector of replaced tokens, which cannot fill; use: regard score"):
        fill(model, ["the [MASK] dog"])


def test_a_classifier_starts_from_electra(runs: dict[str, Path], tmp_path: Path) -> None:
    table = tmp_path / "labels.tsv"
    table.write_text("".join(f"{label}\tthe dog {word}\n" for word, label in [("sees", "x"), ("likes", "y")] * 8))
    settings = [f"data.train={table}", f"data.valid={table}", *[one for one in TINY if not one.startswith("model")]]
    settings += ["plan.epochs=none", "plan.steps=1"]
    made, init = warm_started(
        find_recipe("classify"), settings, warm_start_from(runs["electra"]), runs["electra"], KINDS
    )
    run = train(made, tmp_path / "run", init=init)
    assert run.transfer is not None
    assert "replaced.dense" in run.transfer.unused
    before, after = (load(path, device="cpu").module.state_dict() for path in (runs["electra"], tmp_path / "run"))
    shared = [name for name in before if f"body.{name}" in after]
    assert {name.partition(".")[0] for name in shared} == {"embedding", "stack"}
    model = load(tmp_path / "run", device="cpu")
    assert classify(model, ["the dog sees"])[0].label in ("x", "y")
    export(model, tmp_path / "public")
    theirs = transformers.ElectraForSequenceClassification.from_pretrained(tmp_path / "public").eval()
    tokens = torch.tensor([model.tokenizer.wrap_input(model.tokenizer.encode("the dog sees"))])
    torch.testing.assert_close(theirs(tokens).logits, model.logits(tokens), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("family", "trained"), [("electra", "classify"), ("t5", "translate")])
def test_the_probe_of_a_ladder(family: str, trained: str, runs: dict[str, Path], tmp_path: Path) -> None:
    """T5 writes the label as a text, although it could have a head."""
    table = tmp_path / "labels.csv"
    table.write_text("text,label\nthe dog sees,x\nthe dog likes,y\n")
    cell = Cell(family, 1, recipe(family, tmp_path), runs[family])
    job = Job(Entry(family), cell, Probe(train=str(table), valid=str(table)), seeds=(1,))
    assert fine_tuning(job, warm_start_from(runs[family]), seed=1)[0].name == trained


def test_a_translator_starts_from_t5(runs: dict[str, Path], tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("the dog\tdog the\nthe bird\tbird the\n" * 4)
    settings = [f"data.train={table}", f"data.valid={table}", *[one for one in TINY if not one.startswith("model")]]
    made, init = warm_started(
        find_recipe("translate"), [*settings, "plan.steps=1"], warm_start_from(runs["t5"]), runs["t5"], KINDS
    )
    train(made, tmp_path / "run", init=init)
    model = load(tmp_path / "run", device="cpu")
    assert model.kind == "a translator"
    assert translate(model, ["the dog"], limit=3)[0].source_pieces == model.tokenizer.pieces(
        model.tokenizer.encode("the dog")
    )


def test_t5_fills_each_gap_with_a_span(runs: dict[str, Path]) -> None:
    model = load(runs["t5"], device="cpu")
    assert model.kind == "a model of hidden spans"
    one, other, blank = fill(model, ["the [MASK] sees [MASK] .", "the <extra_id_0> sees <extra_id_1> .", " "], top=2)
    assert one.text == other.text
    assert len(one.masks) == 2
    assert (blank.text, blank.masks) == ("", [])
    for mask in one.masks:
        assert all(0 <= guess.probability <= 1 for guess in mask)
    assert embed(model, ["the dog"]).vectors.shape == (1, 16)
    seen, same = (look(model, text) for text in ("the <extra_id_0> dog", "the [MASK] dog"))
    assert {layer.part for layer in seen.layers} == {"encoder", "decoder", "cross"}
    assert same.title == seen.title


def test_the_pictures_of_t5_have_a_gap(runs: dict[str, Path]) -> None:
    model, ended = load(runs["t5"], device="cpu"), Finished(6, "steps", 6, 1.0, 1.0)
    assert model.recipe is not None
    examples = [Text("the old dog sees a red bird .")]
    outcome = Outcome("t5", runs["t5"], model.recipe, model, "valid", examples, Scores({}, {}), ended)
    (view,) = outcome.views()
    assert view.title.startswith("the old dog sees <extra_id_0> red bird .")


def test_chance_of_replaced_tokens_and_of_the_question_about_sentences(runs: dict[str, Path]) -> None:
    assert "recall 0% and an accuracy of about 85% or more" in describe_chance(load(runs["electra"], device="cpu"), [])
    model = load(runs["t5"], device="cpu")
    assert model.recipe is not None
    for metrics in (("perplexity",), ("perplexity", "sentences")):
        chance = describe_chance(replace(model, recipe=replace(model.recipe, metrics=metrics)), [])
        assert ("sentences is right in 50%" in chance) == ("sentences" in metrics)


def test_exported_models_do_the_same(runs: dict[str, Path], tmp_path: Path) -> None:
    for family, use in (("electra", lambda model: [one.total for one in score(model, ["the dog sees"])]),
                        ("t5", lambda model: fill(model, ["the [MASK] sees"], top=2))):  # fmt: skip
        ours = load(runs[family], device="cpu")
        export(ours, tmp_path / family)
        assert use(load(tmp_path / family, device="cpu")) == use(ours)


def test_a_public_detector_has_no_generator_to_be_evaluated_with(runs: dict[str, Path], tmp_path: Path) -> None:
    export(load(runs["electra"], device="cpu"), tmp_path / "public")
    with pytest.raises(UserError, match="this ELECTRA has no generator"):
        evaluate(load(tmp_path / "public", device="cpu"), [Text("the dog sees")], ("loss",))


def test_an_example_shows_what_both_networks_of_electra_read(tmp_path: Path) -> None:
    found = example_picture(recipe("electra", tmp_path))
    generator, model = (found.inputs[name] for name in ("generator", "model"))
    assert len(generator) == len(model)
    for one, other in zip(generator, model):
        if one.chosen is None:
            assert (other.token, other.predicts) == (one.token, None)
        else:
            assert (one.token, one.chosen) == ("[MASK]", "mask")
            assert other.predicts == ("original" if other.token == one.predicts else "replaced")
    assert sum(place.chosen is not None for place in generator) == 4  # 15 % of 24, rounded up
    assert "a generator predicts 4 masked tokens" in found.about


def test_an_example_shows_the_sentinels_of_t5(tmp_path: Path) -> None:
    found = example_picture(recipe("t5", tmp_path))
    source, target = found.inputs["source"], found.inputs["tokens"]
    assert [place.token for place in source if "extra_id" in place.token] == ["<extra_id_0>"]
    assert [place.token for place in target][:2] == ["<bos>", "<extra_id_0>"]
    assert target[-1].predicts == "<eos>"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the dog", r"line 1: no \[MASK\] in 'the dog'; write \[MASK\] or <extra_id_0>"),
        ("a <extra_id_1> b", "line 1: <extra_id_1> … are not the sentinels in their order"),
        ("a <extra_id_0> b [MASK]", r"line 1: has \[MASK\] and <extra_id_0>; write one"),
        ("[MASK] " * 100, r"line 1: 100 times \[MASK\], but the model can fill in 99"),
    ],
)
def test_a_text_without_gaps_in_order_is_refused(text: str, found: str, runs: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=found):
        fill(load(runs["t5"], device="cpu"), [text])


@pytest.mark.parametrize(
    ("family", "text"), [(family, text) for family in SETTINGS for text in ("a", "a b", "x" * 500)]
)
def test_a_text_of_one_token_or_one_word_trains(family: str, text: str, tmp_path: Path) -> None:
    made = recipe(family, tmp_path, f"data.valid={tmp_path / 'text.txt'}", "plan.steps=1", "data.tokens=char")
    (tmp_path / "text.txt").write_text(text)
    train(made, tmp_path / "run")
    assert load(tmp_path / "run", device="cpu").step == 1


@pytest.mark.parametrize("family", [*SETTINGS])
def test_a_line_of_a_megabyte_is_left_out(family: str, tmp_path: Path) -> None:
    made = recipe(family, tmp_path, "plan.steps=1", "data=lines", "data.tokens=word")
    (tmp_path / "text.txt").write_text("".join(f"dog {n}\n" for n in range(40)) + f"{'x' * 30} " * 32_000)
    run = train(made, tmp_path / "run")
    assert run.prepared.batches.dropped == 1


def test_a_tokenizer_without_sentinels_cannot_start_t5(runs: dict[str, Path], tmp_path: Path) -> None:
    made = recipe("t5", runs["t5"].parent, f"data.tokenizer={runs['electra']}")
    with pytest.raises(UserError, match=r"no sentinels .* data.tokenizer|no sentinels"):
        Run(made, tmp_path / "run")


def test_a_tokenizer_without_a_mask_cannot_start_electra(runs: dict[str, Path], tmp_path: Path) -> None:
    made = recipe("electra", runs["t5"].parent, f"data.tokenizer={runs['t5']}")
    with pytest.raises(UserError, match="no mask token, which objective=replaced needs"):
        Run(made, tmp_path / "run")
