"""`regard train pretrain` and `regard show pretrain --example` as a user meets them."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from test_cli_parallel import _torchrun

from regard.cli import main
from regard.recipes import find_recipe
from regard.recipes.pretraining import FAMILIES
from regard.report.example import example_picture
from regard.report.sections import Interlinear

Regard = Callable[..., Any]
SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.inner=16", "model.context=24", "data.vocab=60"]
PLAN = ["plan.steps=2", "plan.evaluate=2", "plan.batch_tokens=96", "plan.warmup=1", "plan.device=cpu", "plan.samples=2"]


def write(folder: Path) -> None:
    draw = Random(3)
    words = ["the", "heron", "stood", "a", "fish", "came", "near"]
    sentences = [" ".join(draw.choices(words, k=draw.randint(3, 7))) + "." for _ in range(500)]
    (folder / "text.txt").write_text(" ".join(sentences), encoding="utf-8")


def test_a_model_is_pretrained_filled_in_and_resumed(regard: Regard, tmp_path: Path) -> None:
    write(tmp_path)
    said = regard("train", "pretrain", "data.train=text.txt", *SMALL, *PLAN, "--out", "run")
    assert (said.code, said.err) == (0, "")
    assert "sentence accuracy" in said.out
    assert regard("fill", "run", "the [MASK] stood.").code == 0
    assert set(json.loads(regard("eval", "run", "--json").out)["scores"]) >= {"loss", "perplexity", "sentences"}
    assert regard("train", "pretrain", "model=bert", "--resume", "--out", "run").code == 0
    said = regard("train", "pretrain", "from=run", "data.train=text.txt", *PLAN, "--out", "next")
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize("model", [model for model in FAMILIES if model != "bert"])
def test_every_family_is_pretrained_and_reported(model: str, regard: Regard, tmp_path: Path) -> None:
    write(tmp_path)
    small, data = SMALL[: 1 if "lstm" in model else 4], ["data.train=text.txt", "data.window=16", "data.vocab=140"]
    said = regard("train", "pretrain", f"model={model}", *small, *data, *PLAN)
    assert (said.code, said.err) == (0, "")
    assert (tmp_path / "runs/pretrain/report.html").exists()


def test_a_text_of_one_letter_is_too_short(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a", encoding="utf-8")
    said = regard("train", "pretrain", "data.train=text.txt", *SMALL, *PLAN, "--out", "run")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "pretrain has no training examples; data.train=text.txt is too short, give a longer file." in said.err
    assert not (tmp_path / "run").exists()


def test_the_recipe_that_is_gone_is_named(regard: Regard) -> None:
    said = regard("train", "masked", "data.train=text.txt")
    assert said.code != 0
    assert 'error: "masked" is no recipe. Use "pretrain model=bert".' in said.err


@pytest.mark.parametrize("model", FAMILIES)
def test_every_family_has_a_picture_of_an_example(model: str, regard: Regard) -> None:
    said = regard("show", "pretrain", f"model={model}", "--example", "--json")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert bool(found["carried"]) == (model in ("transformer-xl", "lstm"))
    if found["objective"] == "replaced":  # the generator hides tokens, and the model reads what it gives for them
        hidden, read = (found["inputs"][name] for name in ("generator", "model"))
        assert sum(place["chosen"] == "mask" for place in hidden) == 8
        replaced = [one["token"] != (two["predicts"] or two["token"]) for one, two in zip(read, hidden)]
        assert [place["predicts"] == "replaced" for place in read] == replaced
        assert any(replaced)
        return
    places = found["inputs"]["tokens"]
    hidden = [place for place in places if place["chosen"]]
    if found["objective"] == "masked":
        assert len(hidden) == 8  # 15 % of 48 places, rounded up
        assert all((place["predicts"] is not None) == (place["chosen"] is not None) for place in places)
        assert all(place["token"] == "[MASK]" for place in hidden if place["chosen"] == "mask")
        assert all(place["token"] == place["predicts"] for place in hidden if place["chosen"] == "kept")
    else:
        assert not hidden
        assert [place["predicts"] for place in places[:-1]] == [place["token"] for place in places[1:]]
    segments = [place["segment"] for place in places]
    if "objective.sentences=none" not in FAMILIES[model] and found["answers"]:
        assert segments == sorted(segments)
        assert set(segments) == {0, 1}
        (question,) = found["answers"]
        assert question == {"bert": "next", "albert": "order"}[model]
    else:
        assert set(segments) == {None}


def test_an_example_is_drawn_on_the_terminal_and_on_a_page(regard: Regard, tmp_path: Path) -> None:
    said = regard("show", "pretrain", "model=bert", "--example")
    assert said.code == 0
    for line in ("reads", "segment", "chosen", "predicts"):
        assert f"\n{line} " in said.out
    assert "8 of them are chosen" in said.out
    write(tmp_path)
    said = regard("show", "pretrain", *SMALL, "data.train=text.txt", "--example", "-o", "page.html")
    assert said.code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "[MASK]" in page
    assert 'class="interlinear"' in page
    assert "end its name in .html" in regard("show", "pretrain", "--example", "-o", "page.txt").err
    assert "only --example writes a page" in regard("show", "pretrain", "-o", "page.html").err
    assert "data.train is not set" in regard("train", "pretrain", "--out", "run").err


def test_other_recipes_have_a_picture_too(regard: Regard, tmp_path: Path) -> None:
    lines = "".join(f"{'good' if n % 2 else 'bad'}\tthe heron {n % 7}\n" for n in range(40))
    (tmp_path / "labelled.tsv").write_text(lines, encoding="utf-8")
    found = json.loads(regard("show", "classify", "data.train=labelled.tsv", "--example", "--json").out)
    assert found["answers"]["target"] in ("good", "bad")
    assert [place["token"] for place in found["inputs"]["tokens"]][:2] == ["the", "heron"]
    choices = json.loads(regard("show", "made-choices", "data.train=8", "--example", "--json").out)
    assert [*choices["inputs"]] == ["choice 0", "choice 1", "choice 2", "choice 3"]
    assert int(choices["answers"]["target"]) in range(4)
    for places in choices["inputs"].values():  # without padding, which has another segment
        assert ({place["segment"] for place in places}, places[-1]["token"]) == ({0, 1}, "<eos>")
    rows = [{"question": "Who stood?", "passage": "The grey heron stood.", "answer": "grey heron"}] * 2
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    rows = [rows[0], *[{"question": "Who sat?", "passage": "The grey heron stood.", "answer": ""}] * 30]
    (tmp_path / "none.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked = ["show", "answer", "data.valid=asked.jsonl", "--example", "data.tokens=word"]
    found = json.loads(regard(*asked, "data.train=asked.jsonl", "--json").out)
    predicted = [(place["token"], place["predicts"]) for place in found["inputs"]["tokens"] if place["predicts"]]
    assert predicted == [("grey", "first"), ("heron", "last")]
    said = regard(*asked, "data.train=none.jsonl").out
    assert "predicts  no answer" in said
    (tmp_path / "pairs.tsv").write_text("a heron\ta grey bird\na fish\ta carp\n", encoding="utf-8")
    related = ["show", "embed", "data.train=pairs.tsv", "data.valid=pairs.tsv", "data.tokens=word", "--example"]
    found = json.loads(regard(*related, "--json").out)
    texts = {name: " ".join(place["token"] for place in places) for name, places in found["inputs"].items()}
    assert texts in ({"first": "a heron", "second": "a grey bird"}, {"first": "a fish", "second": "a carp"})
    assert found["answers"] == {"target": "the second text, among 1 other texts of the batch"}
    assert "from=runs/a: regard show has no from=" in regard(*related, "from=runs/a").err
    picture = example_picture(find_recipe("pretrain"))
    (drawn,) = [section for section in picture.sections() if isinstance(section, Interlinear)]
    assert drawn.names == ["reads", "segment", "chosen", "predicts"]


@pytest.mark.slow
def test_two_ranks_pretrain_as_one_that_accumulates(regard: Regard, tmp_path: Path) -> None:
    write(tmp_path)
    settings = ["train", "pretrain", "data.train=text.txt", *SMALL, *PLAN, "model.dropout=0", "plan.threads=1"]
    with _torchrun(*settings, "--out", "two", "--json", cwd=tmp_path) as process:
        _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert main([*settings, "plan.accumulate=2", "--out", "one", "--json"]) == 0
    one, two = (
        json.loads((tmp_path / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        for run in ("one", "two")
    )
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
