"""The recipe `pretrain`: what follows from the model, its objectives and evaluation, the tokenizer, odd texts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.data.batches import IGNORED, collate
from regard.data.corruption import Composed, MaskTokens
from regard.data.flat import Rows
from regard.data.streams import Streams, WindowRows
from regard.errors import UserError
from regard.models import FAMILIES, BertConfig
from regard.objectives import MaskedTokens, TeacherForcing
from regard.recipes import KINDS, Recipe, change, find_recipe, find_task
from regard.recipes.pretraining import FAMILIES as SETTINGS
from regard.training.evaluate import evaluate
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs import embed, fill, load

WORDS = ("the", "a", "heron", "fish", "girl", "stood", "waited", "saw", "came", "near", "and", "it", "was", "slow")
STACK = ("model.width=16", "model.heads=2", "model.layers=1", "model.inner=32")
PLAN = (
    *("plan.steps=4", "plan.evaluate=2", "plan.batch_tokens=128", "plan.warmup=1", "plan.threads=1"),
    *("plan.device=cpu", "plan.samples=4"),
)


def text(sentences: int = 120) -> str:
    draw = Random(7)
    return " ".join(" ".join(draw.choices(WORDS, k=draw.randint(3, 8))) + "." for _ in range(sentences))


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    def write(content: str = text(), name: str = "text.txt") -> str:
        (tmp_path / name).write_text(content, encoding="utf-8")
        return f"data.train={tmp_path / name}"

    return write


def made(*settings: str) -> Recipe:
    return change(find_recipe("pretrain"), [*PLAN, *settings], KINDS)


def small(model: str, *settings: str) -> Recipe:
    sizes = ("model.width=16", "model.embed=8", "model.layers=1") if "lstm" in model else STACK
    window = ("data.window=24",) if "lstm" in model or model in ("transformer-xl", "t5") else ("model.context=24",)
    vocab = 160 if model == "t5" else 60  # with 100 sentinels
    return made(f"model={model}", f"data.vocab={vocab}", *sizes, *window, *settings)


def test_the_settings_follow_from_the_model_and_stated_ones_win() -> None:
    bert = made()
    assert bert == made("model=bert")
    assert (bert.objective.sentences, bert.model.context, bert.metrics) == ("next", 128, ("perplexity", "sentences"))
    assert made("model=roberta").objective == MaskedTokens()
    assert made("model=albert").objective == MaskedTokens(sentences="order")
    gpt = made("model=gpt")
    assert (gpt.objective, gpt.metrics, find_task(gpt, KINDS).name) == (TeacherForcing(), ("perplexity",), "running")
    xl = made("model=transformer-xl")
    assert (xl.data.order, xl.data.window, xl.model.memory, xl.model.positions) == ("contiguous", 128, 128, "xl")

    assert made("model=albert", "objective.sentences=next").objective.sentences == "next"
    assert made("model=bert", "objective.words=true").objective == MaskedTokens(words=True, sentences="next")
    assert made("objective=masked", "model=bert").objective == MaskedTokens()  # stated as a whole
    assert made("model=bert", "model.context=64", "metrics=perplexity").model.context == 64
    assert made("data.window=32", "model=transformer-xl").data.window == 32
    lines = made("model=gpt", "data=lines", "data.train=x")
    assert find_task(lines, KINDS).name == "language"
    large = made("model=roberta-base")  # a published size has the settings of its family, and its own model
    assert (large.objective, large.model.width, large.model.context) == (MaskedTokens(), 768, 512)
    assert made("model=gpt2").model.context == 1024
    for other in ("tcn", "lstmn"):  # of no family
        with pytest.raises(UserError, match=f"objective=masked: does not fit model={other}; use objective=teacher"):
            find_task(made(f"model={other}"), KINDS)


def test_every_family_is_a_model() -> None:
    assert SETTINGS.keys() <= KINDS["model"].keys()
    assert FAMILIES.keys() <= SETTINGS.keys()
    for name in SETTINGS:
        find_task(made(f"model={name}"), KINDS)


@pytest.mark.parametrize(
    ("name", "data"),
    [*((name, "book") for name in ("bert", "t5", "masked-lstm")), *((name, "lines") for name in ("albert", "electra"))],
)
def test_what_an_evaluation_hides_does_not_depend_on_the_size_of_a_batch(
    name: str, data: str, file: Callable[..., str], tmp_path: Path
) -> None:
    lines = file(text(200).replace(". ", ".\n") if data == "lines" else text(500))
    recipe = small(name, *(("data=lines",) if data == "lines" else ()), lines, "plan.steps=1", "plan.samples=0")
    list(Run(recipe, tmp_path / "run"))
    model = load(tmp_path / "run", "cpu")
    examples = model.examples("train")[1]
    few, many = (
        evaluate(model, examples, {"loss", *recipe.metrics}, batch_tokens=size).values for size in (60, 100_000)
    )
    assert few == pytest.approx(many, rel=1e-5)


def test_a_line_of_the_longest_length_is_cut_so_that_the_tokens_between_two_sentences_fit(
    file: Callable[..., str], tmp_path: Path
) -> None:
    lines = file(text(100).replace(". ", ".\n"))  # most are longer than the context
    recipe = small("bert", "data=lines", lines, f"data.valid={tmp_path / 'text.txt'}")
    assert [event for event in Run(recipe, tmp_path / "run") if type(event).__name__ == "Evaluated"]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_family_trains_is_evaluated_and_used(name: str, file: Callable[..., str], tmp_path: Path) -> None:
    recipe = small(name, file())
    run = Run(recipe, tmp_path / "run")
    kinds = {"masked": WindowRows}
    expected = kinds.get(run.prepared.task.head, Streams if recipe.data.order == "contiguous" else None)
    assert expected is None or type(run.prepared.batches) is expected
    evaluated = [event.values for event in run if type(event).__name__ == "Evaluated"]
    assert set(evaluated[-1]) == {"loss", *recipe.metrics}
    model = load(tmp_path / "run", "cpu")
    assert embed(model, ["the heron stood."]).vectors.shape == (1, model.module.config.width)
    if run.prepared.task.head == "masked":
        assert len(fill(model, ["the [MASK] stood."])[0].masks[0]) == 5
    scores = evaluate(model, model.examples("valid")[1], {"loss", *recipe.metrics})
    assert scores == evaluate(model, model.examples("valid")[1], {"loss", *recipe.metrics})  # the same masks


def test_a_run_that_is_stopped_goes_on_as_if_it_were_not(file: Callable[..., str], tmp_path: Path) -> None:
    recipe = small("bert", file(), "objective.words=true", "objective.static=3")
    list(Run(recipe, tmp_path / "whole"))
    first = iter(Run(recipe, tmp_path / "cut"))
    while next(first).step < 2:
        pass
    first.close()
    list(Run(None, tmp_path / "cut", "resume"))
    weights = [(tmp_path / run / "steps/000004/weights.safetensors").read_bytes() for run in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_the_loss_is_that_of_the_masked_places_and_of_the_question(file: Callable[..., str]) -> None:
    prepared = prepare(small("bert", file(), "model.dropout=0"))
    loss_module, batch = prepared.build().eval(), prepared.batches.batch(0)
    model: Any = loss_module.model
    sums, _ = loss_module.objective(model, batch, 0)
    features = model.features(batch["tokens"], None, batch["segments"])
    logits = model.readout(features).flatten(0, 1)
    nll = F.cross_entropy(logits, batch["targets"].flatten(), ignore_index=IGNORED, reduction="sum")
    answers = model.next(torch.tanh(model.pooled(features[:, 0])))
    torch.testing.assert_close(sums["nll"], nll)
    torch.testing.assert_close(sums["sentences"], F.cross_entropy(answers, batch["next"], reduction="sum"))
    assert sums["sentences_right"] == (answers.argmax(1) == batch["next"]).sum()
    assert loss_module.objective.count(batch) == {"nll": batch.counts["targets"], "sentences": len(batch["next"])}
    other = model.features(batch["tokens"], None, 1 - batch["segments"])
    assert (other - features).abs().max() > 1e-3  # segments are read
    sums["sentences"].backward()
    assert model.pooled.weight.grad.abs().sum() > 0


def test_evaluation_has_the_same_masks_for_every_model() -> None:
    stated = MaskedTokens(part=0.4, words=True, static=2, kept=0.0, smoothing=0.1, sentences="order")
    assert stated.evaluated() == MaskedTokens(sentences="order")
    assert TeacherForcing().evaluated() is None


def test_a_question_needs_an_output_layer(file: Callable[..., str]) -> None:
    recipe = small("roberta", file(), "objective.sentences=next")
    with pytest.raises(UserError, match=r"objective.sentences=next: .*set model.outputs=masked,pooled,next"):
        prepare(recipe).build()
    with pytest.raises(UserError, match=r"objective.static=-1: give 1 or more"):
        MaskedTokens(static=-1)


def test_the_corruption_has_what_the_settings_ask_for(file: Callable[..., str]) -> None:
    prepared = prepare(small("bert", file(), "objective.part=0.3", "objective.words=true", "objective.static=7"))
    corruption = prepared.recipe.objective.corruption(prepared.fields)
    assert isinstance(corruption, Composed)
    masks = corruption.parts[1]
    assert isinstance(masks, MaskTokens)
    assert (masks.fraction, masks.static, masks.words is not None) == (0.3, 7, True)
    task, rows = prepared.task, Rows.of([{"text": np.array([1, 9, 8, 2])}])
    assert collate(corruption(rows, np.random.default_rng(0)), task)["tokens"].shape == (1, 5)


# -- the tokenizer ----------------------------------------------------------------------------------------------------


def test_a_tokenizer_is_taken_from_a_run(file: Callable[..., str], tmp_path: Path) -> None:
    data = file()
    list(Run(small("roberta", data), tmp_path / "first"))
    for model in ("gpt", "albert"):
        prepared = prepare(small(model, data, f"data.tokenizer={tmp_path / 'first'}", "data.vocab=9999"))
        first = load(tmp_path / "first", "cpu").tokenizer
        assert prepared.fields["text"].tokenizer.display_names == first.display_names
    list(Run(small("gpt", data), tmp_path / "gpt"))
    with pytest.raises(UserError, match="no mask token; start from a model whose tokenizer has one, or leave"):
        prepare(small("bert", data, f"data.tokenizer={tmp_path / 'gpt'}"))
    for nowhere in ("nowhere", "~nosuchuser/run"):
        with pytest.raises(UserError, match=f"data.tokenizer={nowhere}: no such directory"):
            prepare(small("bert", data, f"data.tokenizer={nowhere}"))


def test_a_tokenizer_without_a_separator_is_refused(file: Callable[..., str]) -> None:
    prepared = prepare(small("roberta", file()))
    field: Any = prepared.fields["text"]
    special = replace(field.tokenizer.special_tokens, prefix=None, suffix=None, eos=None, bos=None)
    bare = {"text": replace(field, tokenizer=replace(field.tokenizer, special_tokens=special))}
    with pytest.raises(UserError, match="no special token to separate two texts"):
        MaskedTokens(sentences="next").corruption(bare).lengths({"text": np.array([4])})


def test_pretraining_goes_on_from_a_run_of_any_family(file: Callable[..., str], tmp_path: Path) -> None:
    data = file()
    for name, sentences in (("bert", "next"), ("roberta", "none"), ("albert", "order")):
        list(Run(small(name, data, "plan.steps=1"), tmp_path / name))
        recipe, _ = warm_started(find_recipe("pretrain"), [data], warm_start_from(tmp_path / name), name)
        assert recipe.objective == MaskedTokens(sentences=sentences)
    list(Run(small("gpt", data, "plan.steps=1"), tmp_path / "gpt"))
    recipe, _ = warm_started(find_recipe("pretrain"), [data], warm_start_from(tmp_path / "gpt"), "gpt")
    assert recipe.objective == TeacherForcing()
    for name, size in (("electra", "model.embed=8"), ("transformer-xl", "model.memory=8")):  # not those of the family
        list(Run(small(name, data, "plan.steps=1", size), tmp_path / name))
        few = [data, "plan.batch_tokens=256"]
        recipe, given = warm_started(find_recipe("pretrain"), few, warm_start_from(tmp_path / name), name)
        Run(recipe, tmp_path / "next", init=given)  # refuses metrics and windows that do not fit the model
        fresh = small(name, data)
        assert (recipe.objective, recipe.metrics) == (fresh.objective, fresh.metrics)
        assert getattr(recipe.data, "order", "") == getattr(fresh.data, "order", "")
    bare = warm_start_from(tmp_path / "roberta")
    assert isinstance(bare.config, BertConfig)


# -- odd texts --------------------------------------------------------------------------------------------------------


def test_a_text_of_one_line_is_enough(file: Callable[..., str], tmp_path: Path) -> None:
    for model in ("bert", "roberta"):
        events = list(Run(small(model, file(text(12))), tmp_path / model))
        assert np.isfinite(events[-1].step)


@pytest.mark.parametrize("model", ["bert", "roberta", "gpt"])
def test_a_text_of_one_token_is_refused_by_its_name(model: str, file: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.train|data: "):
        list(Run(small(model, file("a")), tmp_path / "run"))
    with pytest.raises(UserError, match=r"the file is empty"):
        list(Run(small(model, file("")), tmp_path / "run"))


def test_a_line_of_a_megabyte_is_a_text_as_any(file: Callable[..., str]) -> None:
    long = file("heron " * 175_000, "long.txt")  # a megabyte
    prepared = prepare(small("roberta", long))
    assert prepared.batches.batch(0)["tokens"].shape[1] == 24
    short = file("a heron stood\n" * 60, "short.txt").replace("train", "valid")
    lines = file("heron " * 175_000 + "\n" + "a heron stood\n" * 60, "lines.txt")
    read = prepare(small("roberta", "data=lines", lines, short))
    assert read.batches.dropped == 1  # longer than the model reads


@pytest.mark.slow
def test_whether_a_part_follows_is_learnt_from_topics(file: Callable[..., str], tmp_path: Path) -> None:
    """Documents of four topics: another part has another topic in three of four cases, so 87 % can be right."""
    draw = Random(5)
    topics = ["heron river fish water", "stone house wall door", "snow winter ice cold", "drum song voice dance"]
    words = [draw.choice(topics).split() for _ in range(600)]
    text = " ".join(" ".join(draw.choices(some, k=draw.randint(2, 4))) + "." for some in words for _ in range(8))
    plan = ("plan.steps=400", "plan.evaluate=400", "plan.batch_tokens=1536", "plan.rate=5e-3", "plan.warmup=20")
    run = Run(small("bert", file(text), "model.width=32", "model.layers=2", "model.dropout=0", *plan), tmp_path / "run")
    scores = [event.values for event in run if type(event).__name__ == "Evaluated"][-1]
    assert scores["sentences"] > 0.65
