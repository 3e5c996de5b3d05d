"""Reports of runs and ladders: exact tables, notes and curves for results that are written out here."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import regard
from regard.data.example import Question
from regard.data.fields import InputText, LabelField
from regard.data.tokenizers import train_tokenizer
from regard.metrics import METRICS
from regard.objectives import Classification
from regard.recipes import find_recipe
from regard.render import AttentionView, Layer
from regard.report.figures import duration, find_metric, size
from regard.report.glossary import WORDS, glossary
from regard.report.ladder import Standing
from regard.report.run import Outcome, curves, run_sections, sample_table, score_table
from regard.report.samples import PICTURED, Sample, _near_answer, excerpt, excerpts, gapped, samples
from regard.report.sections import Curve, Folded, Gallery, Table, Text, paragraphs
from regard.training.evaluate import Scores
from regard.training.events import Finished
from regard.training.ladder.rungs import Published


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0.4, "0 s"), (99.4, "99 s"), (100, "1 min 40 s"), (184.6, "3 min 05 s"), (5999, "99 min 59 s")],
        *[(6000, "1 h 40 min"), (7_859, "2 h 10 min")],
    ],
)
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_and_metrics_without_a_name() -> None:
    assert [size(each) for each in (0, 912.4, 1000, 45_612, 1_234_567, 2.5e9)] == [
        *("0", "912", "1k", "45.6k", "1.23M", "2.5G")
    ]
    assert find_metric("bleu", METRICS) is METRICS["bleu"]
    unknown = find_metric("other", METRICS)
    assert (unknown.title, unknown.show(0.123456), unknown.lower_is_better) == ("other", "0.1235", True)


def test_words_are_sorted_without_regard_to_case() -> None:
    table = glossary(["width", "BLEU", "alignment", "chance"])
    assert [row[0] for row in table.rows] == ["alignment", "BLEU", "chance", "width"]
    assert table.rows[1][1] == WORDS["BLEU"]
    assert paragraphs("a\nb\n\n \n\nc  d\n") == ["a b", "c d"]


# -- ladders ----------------------------------------------------------------------------------------------------------


def cell(seed: int, loss: float, bleu: float | None, curve: list[tuple[int, float, float]], parameters: int) -> Any:
    return {
        "seed": seed,
        "parameters": parameters,
        "width": 8,
        "scores": {"loss": loss, **({} if bleu is None else {"bleu": bleu})},
        "notes": {"bleu": "sacreBLEU"},
        "part": "test",
        "beam": 4,
        "tokens_per_second": 1000.0 * seed,
        "training_seconds": 10.0 * seed,
        "curve": [{"step": step, "seconds": seconds, "value": value} for step, seconds, value in curve],
    }


def standing(**settings: Any) -> Standing:
    recipe = find_recipe("multi30k")
    recipe = replace(recipe, title="A ladder", plan=replace(recipe.plan, select="bleu", steps=20))
    other = replace(recipe, plan=replace(recipe.plan, rate=0.5, seed=9), model=replace(recipe.model, layers=1))
    results = {
        "no attention": [cell(1, 2.0, None, [(10, 3.0, 5.0), (20, 6.0, 8.0)], 1234)],
        "full": [
            cell(1, 1.0, 20.0, [(10, 4.0, 10.0), (20, 8.0, 20.0)], 5678),
            cell(2, 2.0, 21.0, [(10, 5.0, 12.0), (20, 9.0, 18.0)], 5678),
        ],
    }
    rungs = {"no attention": other, "full": recipe}
    return Standing(recipe, rungs, results, **settings)


def test_the_rows_of_a_ladder_are_means_over_its_seeds() -> None:
    found = standing()
    none, full = found.rows
    assert found.goal is not None
    assert (found.goal.measure, found.goal.value) == ("bleu", pytest.approx(0.95 * 19))
    assert none == {
        **{"cell": "no attention", "seeds": 1, "parameters": 1234, "width": 8, "loss": {"mean": 2.0, "sd": None}},
        **{"tokens_per_second": {"mean": 1000.0, "sd": None}, "training_seconds": {"mean": 10.0, "sd": None}},
        **{"seconds_to_quality": None, "published": None},
    }
    assert full["bleu"] == {"mean": 20.5, "sd": pytest.approx(math.sqrt(0.5))}
    assert full["tokens_per_second"] == {"mean": 1500.0, "sd": pytest.approx(500 * math.sqrt(2))}
    assert full["seconds_to_quality"] == {"mean": 8.0, "sd": None, "reached": 1}
    assert full["seeds"] == 2
    assert found.numbers["quality"] == vars(found.goal)
    assert found.numbers["published"] is None


def test_the_table_of_a_ladder() -> None:
    published = Published("their BLEU", {"full": 36.54}, "Published elsewhere.")
    found = standing(published=published, quality=12.0)
    (table, own) = found.tables()
    assert isinstance(table, Table)
    assert table.title == "A ladder: 20 steps, 2 seeds, mean ± standard deviation"
    columns = ["", "parameters", "loss", "BLEU", "tokens/s", "to BLEU 12.00", "published, their BLEU"]
    assert [METRICS["loss"].title, METRICS["bleu"].title] == columns[2:4]
    assert list(table.columns) == columns
    assert table.rows == [
        ["no attention", "1,234", "2", "–", "1k", "never", "–"],
        ["full", "5,678", "1.5 ± 0.7", "20.50 ± 0.71", "1.5k", "6.5 s", "36.5"],
    ]
    assert table.note == (
        "To validation BLEU 12.00: seconds of training, without evaluations, until an evaluation first found it. "
        "BLEU on test, beam 4: sacreBLEU. Published elsewhere."
    )
    assert table.best == {"loss": "low", "BLEU": "high"}
    assert isinstance(own, Table)
    assert own.columns == ["", "plan.rate"]  # the seed is no setting of a rung
    assert own.rows == [["no attention", "0.5"], ["full", "0.001"]]
    same = replace(found, rungs={**found.rungs, "wide": found.rungs["full"]}).tables()[1]
    assert isinstance(same, Table)
    assert [row[0] for row in same.rows] == ["no attention", "full, wide"]
    shared = standing().tables()[0]
    assert isinstance(shared, Table)
    assert shared.note.startswith("To validation BLEU 18.05, 95% of the best rung's: ")
    assert shared.rows[1][5] == "8.0 s (1 of 2)"
    assert found.numbers["published"] == {"measure": "their BLEU", "note": "Published elsewhere."}


def test_the_time_to_the_weakest_rung_that_attends_and_the_operations() -> None:
    found = standing()
    more = {
        "full": [one | {"attends": True, "flops": 12_345_678} for one in found.results["full"]],
        "better": [cell(1, 1.0, 30.0, [(10, 4.0, 19.0), (20, 8.0, 30.0)], 5678) | {"attends": True, "flops": 2_000}],
    }
    elsewhere = Table("Other data", ["", "BLEU"], [["big", "28.4"]])
    published = Published("their BLEU", {}, "Published elsewhere.", elsewhere)
    found = replace(found, results=found.results | more, published=published)
    assert found.weakest is not None
    assert found.weakest.value == 19.0
    assert found.numbers["weakest"] == {"measure": "bleu", "value": 19.0}
    assert [row["seconds_to_weakest"] for row in found.rows] == [
        None,
        {"mean": 8.0, "sd": None, "reached": 1},
        {"mean": 4.0, "sd": None, "reached": 1},
    ]
    table, *_, last = found.tables()
    assert isinstance(table, Table)
    assert [table.columns[at] for at in (2, 6, 7)] == ["FLOPs/token", "to BLEU 28.50", "to BLEU 19.00"]
    assert [(row[2], row[7]) for row in table.rows] == [("–", "never"), ("12.3M", "8.0 s (1 of 2)"), ("2k", "4.0 s")]
    assert "19.00 is the best of the weakest rung that attends." in table.note
    assert last is elsewhere


def test_the_sections_of_a_ladder(tmp_path: Path) -> None:
    for name, seed in (("no-attention", 1), ("full", 1)):
        run = tmp_path / "cells" / name / f"seed-{seed}"
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text(json.dumps({"kind": "valid", "step": 5, "loss": 0.5}), encoding="utf-8")
    sections = replace(standing(), out=tmp_path).sections()
    titles = [section.title for section in sections]
    assert titles[:4] == ["What is shown", "The ladder", "Quality against time: BLEU", "Validation: loss"]
    assert titles[4:] == ["Where the rungs differ", "Settings", "Words"]
    timed, loss, differ = sections[2], sections[3], sections[4]
    assert isinstance(timed, Curve)
    assert [(line.name, list(line.xs), list(line.ys)) for line in timed.lines] == [
        ("no attention", [3.0, 6.0], [5.0, 8.0]),
        ("full", [4.5, 8.5], [11.0, 19.0]),
    ]
    assert (timed.log_y, timed.x_label, timed.y_label) == (False, "seconds of training", "BLEU")
    assert isinstance(loss, Curve)
    assert [(line.name, line.xs, line.ys) for line in loss.lines] == [(n, [5], [0.5]) for n in ("no attention", "full")]
    assert isinstance(differ, Table)
    names = [row[0] for row in differ.rows]
    assert names == ["plan.rate", "model.layers"]  # the plan's first
    folded = sections[5]
    assert isinstance(folded, Folded)
    assert folded.summary == "model=transformer with 1,234 parameters · data=multi30k · 20 steps"


def test_a_ladder_shows_the_attention_of_each_rung_over_one_example() -> None:
    """A rung without attention has an empty picture; cells of earlier versions have none, and no picture."""
    seen = {"source": "3 mai", "target": "05", "part": "cross", "label": "cross · layer 1", "rows": ["0", "5"]}
    seen |= {"columns": ["3", "mai"], "weights": [[0.75, 0.25], [0.0, 1.0]]}
    found = standing()
    results: dict[str, Any] = {
        "no attention": [one | {"attention": None} for one in found.results["no attention"]],
        "full": [one | {"attention": seen} for one in found.results["full"]],
        "old": found.results["full"],
    }
    gallery = replace(found, results=results).sections()[2]
    assert isinstance(gallery, Gallery)
    assert gallery.title == "Attention over an example of test: “3 mai”"
    none, full = (one.matrix() for one in gallery.views)
    assert (none.title, none.label, none.weights.max()) == ("no attention", "no attention", 0.0)
    assert (none.rows, none.columns) == (full.rows, full.columns) == (["0", "5"], ["3", "mai"])
    assert (full.title, full.label, full.part) == ("full", "cross", "cross")
    np.testing.assert_allclose(full.weights, seen["weights"])
    assert not any(isinstance(one, Gallery) for one in found.sections())


# -- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    text: str
    label: str = ""


def outcome(tmp_path: Path, name: str = "run", **settings: Any) -> Outcome:
    tokenizer = train_tokenizer("char", ["ab"], 40)
    model: Any = SimpleNamespace(
        fields={"text": InputText(tokenizer)},
        metrics=METRICS,
        task=SimpleNamespace(
            made=(), name="a task", verb="look", head="next", objective=Classification, validates=True
        ),
        recipe=None,
        reads_images=False,
        target_tokenizer=tokenizer,
        tokenizer=tokenizer,
        step=40,
        parameter_count=12345,
        about="A model.",
        module=SimpleNamespace(config=SimpleNamespace(filter_sizes=(), one_per_text=False, width=64)),
    )
    recipe = replace(find_recipe("shakespeare"), title="title of a recipe", metrics=("perplexity",))
    scores = Scores({"loss": 1.5, "bleu": 12.25}, {"bleu": "a signature"})
    given = {"part": "test", "examples": [Example("ab")] * 1200, "scores": scores, "model": model}
    finished = Finished(60, "patience", 40, 1.5, 184.6)
    return Outcome(name, tmp_path / name, recipe, finished=finished, **{**given, **settings})


def test_the_scores_of_runs_side_by_side(tmp_path: Path) -> None:
    first = outcome(tmp_path)
    other = outcome(tmp_path, "other", scores=Scores({"loss": 2.0, "accuracy": 0.25}, {}))
    table = score_table([first, other])
    vocab = first.model.target_tokenizer.size
    assert table.title == "Scores: 1,200 examples of test"
    assert list(table.columns) == ["", "run", "other"]
    assert table.rows == [
        [METRICS["loss"].title, "1.5", "2"],
        [METRICS["bleu"].title, "12.25", "–"],
        [METRICS["accuracy"].title, "–", "25.00%"],
        ["parameters", "12,345", "12,345"],
        ["best step", "40", "40"],
        ["training", "3 min 05 s", "3 min 05 s"],
    ]
    assert table.note == (
        f"bleu: a signature. Chance: a model that gives each of the {vocab} tokens the same probability has loss "
        f"{math.log(vocab):.3f}, perplexity {vocab} and accuracy {100 / vocab:.2f}%."
    )
    assert first.numbers == {
        **{"part": "test", "scores": {"loss": 1.5, "bleu": 12.25}, "notes": {"bleu": "a signature"}, "step": 40},
        **{"parameters": 12345, "seconds": 184.6, "ended_by": "plan.patience"},
    }


def test_chance_is_the_most_frequent_class_or_unknown(tmp_path: Path) -> None:
    first = outcome(tmp_path)
    labelled: Any = SimpleNamespace(**{**vars(first.model), "fields": {"label": LabelField(("bad", "good"))}})
    examples = [Example("", "bad"), Example("", "good"), Example("", "good")]
    found = replace(first, model=labelled, examples=examples).chance
    assert found == "Chance: a model that always answers “good”, the most frequent class, has accuracy 66.7%."
    unseen = [Example("", "new") for _ in range(5)]  # of a class that the model does not have
    found = replace(first, model=labelled, examples=[*examples, *unseen]).chance
    assert found == "Chance: a model that always answers “good”, the most frequent class, has accuracy 25.0%."
    other: Any = SimpleNamespace(**{**vars(first.model), "task": SimpleNamespace(head="vectors", verb="", name="")})
    assert replace(first, model=other).chance == ""


def test_the_words_of_a_report_are_those_of_its_measures_and_pictures(tmp_path: Path) -> None:
    first = outcome(tmp_path)
    measures = ["loss", "cross-entropy", "nats", "BLEU", "chance", "step", "parameters", "width"]
    assert first.words([]) == measures
    view = AttentionView("t", ["a"], ["b"], [Layer("l", np.ones((1, 1, 1)), part="cross")])
    pictures = ["attention", "query", "key", "weights", "head", "piece", "cross-attention"]
    assert first.words([view]) == [*measures, *pictures]


def test_the_sections_of_a_report(tmp_path: Path) -> None:
    first, other = outcome(tmp_path), outcome(tmp_path, "other")
    view = AttentionView("t", ["a"], ["b"], [Layer("l", np.ones((1, 1, 1)))])
    sections = run_sections([first, other], [view], [Sample("in", "out")])
    assert [(type(each).__name__, each.title) for each in sections] == [
        ("Text", "What is shown"),
        ("Table", "Scores: 1,200 examples of test"),
        ("Table", "Samples"),
        ("Gallery", "Attention"),
        ("Folded", "Settings"),
        ("Table", "Words"),
    ]
    assert isinstance(sections[0], Text)
    select = METRICS[first.recipe.plan.select].title
    assert sections[0].text == (
        f"Title of a recipe. A model. Its task is “a task”. The best step, by {select}, is step 40; the scores and "
        f"pictures are those of this step on examples of test. “other” is a run that it is compared with: "
        f"{tmp_path / 'other'}."
    )
    assert isinstance(sections[3], Gallery)
    assert sections[3].views == [view]
    folded = sections[4]
    assert isinstance(folded, Folded)
    assert folded.summary == f"model=gpt with 12,345 parameters · data=shakespeare · {first.recipe.plan.steps:,} steps"
    (settings,) = folded.sections
    assert isinstance(settings, Table)
    assert {row[0]: row[1] for row in settings.rows}["name"] == first.recipe.name
    assert sample_table([Sample("in", "out")]).rows == [("in", "out")]
    assert all(each.title != "Samples" for each in run_sections([first], [view], []))


def test_a_report_has_no_attention_pictures_of_a_model_without_attention(tmp_path: Path) -> None:
    first, empty = outcome(tmp_path, examples=[Example("ab")]), AttentionView("t", ["a"], ["b"], [])
    titles = [each.title for each in run_sections([first], [empty], [Sample("in", "out")])]
    assert "Attention" not in titles
    assert "Scores: 1 example of test" in titles
    assert "Attention" not in [each.title for each in run_sections([first], [], [])]
    assert "Attention" in [each.title for each in run_sections([first], [empty], [])]  # it shows the translations


def test_the_curves_of_runs_have_a_line_for_each_run_and_skip_what_is_no_number(tmp_path: Path) -> None:
    logs: dict[str, list[dict[str, object]]] = {
        "one": [
            {"kind": "train", "step": 1, "loss": 3.0},
            {"kind": "valid", "step": 2, "loss": 2.0, "bleu": 5},
            {"kind": "valid", "step": 4, "loss": "nan", "bleu": None},
        ],
        "two": [{"kind": "valid", "step": 3, "loss": 1.0}],
    }
    for name, log in logs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, log)), encoding="utf-8")
    found = curves({name: tmp_path / name for name in logs}, ("loss", "bleu", "exact"), METRICS)
    assert [(each.title, each.x_label, each.y_label, each.log_y, each.log_x) for each in found] == [
        ("Training: loss", "step", "loss", False, False),
        ("Validation: loss", "step", "loss", False, False),
        ("Validation: BLEU", "step", "BLEU", False, False),
    ]
    assert [[(line.name, line.xs, line.ys) for line in each.lines] for each in found] == [
        [("one", [1], [3.0]), ("two", [], [])],
        [("one", [2], [2.0]), ("two", [3], [1.0])],
        [("one", [2], [5]), ("two", [], [])],
    ]


# -- samples ----------------------------------------------------------------------------------------------------------


def test_the_picture_of_a_long_passage_has_the_answer() -> None:
    passage = "word " * 300 + "heron " + "word " * 300
    near = _near_answer(Question("who ?", passage, (("heron", 1500),)))
    assert "heron" in near.passage[:PICTURED]
    assert passage.endswith(near.passage)
    assert near.passage.startswith("word ")
    assert _near_answer(Question("who ?", "a heron", (("heron", 2),))).passage == "a heron"


def test_excerpts_and_gaps() -> None:
    assert excerpt("a\n a longer line \nb") == "a longer line"
    assert excerpt("") == ""
    words = "word " * 16
    assert (excerpt(words), excerpt("x" + words + "x")) == (words.strip(), "x" + " ".join(["word"] * 15))
    assert excerpt("x" * 81) == excerpt("  " + "x" * 81) == "x" * 80
    assert [gapped(text, "?") for text in ("", "a", "a b", "a b c", "a b c d")] == ["?", "?", "a ?", "a ? c", "a b ? d"]


def test_texts_that_a_model_can_read(language: Path, translator: Callable[..., Path]) -> None:
    model = regard.load(language)
    given = [Example("ab ba cab c\na"), Example(""), Example("c"), Example("a b"), Example("cc")]
    assert excerpts(model, given, 2) == ["ab ba cab c", "c"]
    long = regard.load(translator(), long="truncate")
    pair = SimpleNamespace(source="ab " + "ab" * 40, target="xy")
    (kept,) = excerpts(long, [pair], 3)  # whole lines of a pair, as long as the model can read them
    assert kept == pair.source[: len(kept)]
    assert 10 < len(kept) < 80


def test_samples_are_texts_continued_or_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(model: Any, prompts: list[str], *settings: Any, **named: Any) -> list[Any]:
        return [SimpleNamespace(prompt=each, text=f" {model} {settings} {named}") for each in prompts]

    def fill(model: Any, texts: list[str]) -> list[Any]:
        return [SimpleNamespace(text=text.replace("[M]", "word")) for text in texts]

    monkeypatch.setattr("regard.report.samples.verbs", SimpleNamespace(generate=generate, fill=fill))
    monkeypatch.setattr("regard.report.samples.mask_of", lambda model: "[M]")

    class Model:
        reads_backward = False
        tokenizer = SimpleNamespace(encode=list, decode="".join)  # characters

        def __init__(self, verb: str) -> None:
            self.task = SimpleNamespace(verb=verb)

        def __repr__(self) -> str:
            return "model"

    def found(verb: str) -> list[Sample]:
        return samples(Model(verb), ["a b c d", "hello", "e"], 5)  # type: ignore[arg-type]

    assert found("classify") == []
    said = "model (0.8,) {'seed': 5, 'limit': 160}"
    assert found("generate") == [("a b c", f"a b c {said}"), ("h", f"h {said}"), ("e", f"e {said}")]
    assert found("fill") == [("a b [M] d", "a b word d"), ("[M]", "word"), ("[M]", "word")]
