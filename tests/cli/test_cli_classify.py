"""Classes, several labels and numbers of texts, from training to the report by class."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard as library
from regard.cli import main
from regard.errors import UserError
from regard.verbs.labelling import label_sets, rate

Regard = Callable[..., Any]
WORDS = {"good": "fine", "bad": "rain"}
SETTINGS = [
    *("model.filters=4", "model.embed=4", "plan.steps=12", "plan.warmup=1", "plan.evaluate=6", "plan.rate=0.1"),
    *("plan.threads=1", "plan.batch_tokens=256", "plan.device=cpu"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and what the three recipes leave that learn from it."""
    folder = tmp_path_factory.mktemp("classify")
    rows = [("good", "good|dry", 2.0), ("bad", "wet", -1.0), ("bad", "bad|wet", -1.0), ("bad", "", 0.0)] * 10
    lines = [f"a {WORDS[label]} day {labels[:3]},{label},{labels},{number}\n" for label, labels, number in rows]
    (folder / "table.csv").write_text("text,label,labels,number\n" + "".join(lines))
    files = [f"data.train={folder / 'table.csv'}", f"data.valid={folder / 'table.csv'}"]
    for name in ("classify", "multilabel", "rate"):
        more = ["objective.class_weights=balanced"] * (name == "classify")
        assert main(["train", name, "model=kim", *files, *SETTINGS, *more, "--out", str(folder / name)]) == 0
    return folder


def test_the_report_by_class(regard: Regard, runs: Path) -> None:
    found = json.loads(regard("eval", runs / "classify", "--json").out)
    always = {"run", "step", "data", "examples", "truncated", "scores", "notes", "chance"}
    assert found.keys() == always | {"classes"}  # nothing of a search, or of parts that were not asked for
    classes = found["classes"]
    assert classes["names"] == ["bad", "good"]
    assert [sum(row) for row in classes["confusion"]] == [30, 10]
    right = sum(classes["confusion"][k][k] for k in range(2))
    assert found["scores"]["accuracy"] == pytest.approx(right / 40)
    assert classes["micro"]["f1"] == pytest.approx(right / 40)
    hits, predicted = classes["confusion"][1][1], sum(row[1] for row in classes["confusion"])
    assert classes["scores"]["good"]["recall"] == pytest.approx(hits / 10)
    assert classes["scores"]["good"]["precision"] == pytest.approx(hits / max(predicted, 1))
    said = regard("eval", runs / "classify")
    assert "true \\ predicted" in said.out
    assert "(macro average)" in said.out
    page = (runs / "classify" / "report.html").read_text(encoding="utf-8")
    for heading in ("By class", "Confusion matrix", "The n-grams that won the filters"):
        assert f"<h2>{heading}" in page
    answer = json.loads(regard("classify", runs / "classify", "--json", stdin="a fine day\n").out)
    assert sum(answer["labels"].values()) == pytest.approx(1.0)


def test_the_texts_of_a_table_are_those_of_the_column_of_training(regard: Regard, runs: Path) -> None:
    lines = "a fine day\na rain day\n"
    expected = regard("classify", runs / "classify", stdin=lines).out
    Path("a.csv").write_text("id,text,label\n1,a fine day,?\n2,a rain day,?\n")
    Path("a.jsonl").write_text('{"text": "a fine day"}\n{"text": "a rain day"}\n')
    Path("a.tsv").write_text("label\tSentence\n?\ta fine day\n?\ta rain day\n")
    for kind in ("csv", "jsonl", "tsv"):
        assert regard("classify", runs / "classify", f"a.{kind}").out == expected
    assert regard("classify", runs / "classify", stdin=f"text\n{lines}").out.endswith(expected)  # a word is a text
    assert regard("classify", runs / "classify", stdin=f"text\n{lines}").out != expected


def test_the_lines_of_a_table_are_those_on_which_its_records_start(regard: Regard, runs: Path) -> None:
    Path("a.csv").write_text('text\n"a fine\nday"\n\na rain day\na strange day\n')
    said = regard("classify", runs / "classify", "a.csv", "--json")
    assert [json.loads(line)["line"] for line in said.out.splitlines()] == [2, 5, 6]
    assert "1 token in line 6: not in this model's vocabulary" in said.err


def test_the_help_keeps_the_lines_of_its_examples(regard: Regard) -> None:
    assert "\n   echo" in regard("classify", "--help").out


def test_the_progress_names_the_two_stages_of_a_run(regard: Regard, runs: Path) -> None:
    model = ["model=lstm", "model.width=4", "model.embed=4", "plan.tune_lm=1", "plan.log=1"]
    plan = ["plan.steps=2", "plan.evaluate=2", "plan.warmup=0", "plan.batch_tokens=1024"]
    said = regard(
        "train", "classify", f"data.train={runs / 'table.csv'}", *model, *plan, "--out", "two", "--device", "cpu"
    )
    assert said.code == 0, said.err
    first, _, second = said.out.partition("classify (2 of 2): two: ")
    assert first.startswith("classify (language model, 1 of 2): two/tuned: ")
    assert "\nclassify (language model, 1 of 2): step 1/" in first
    assert "classify (language model, 1 of 2): ended at step" in first
    assert "\nclassify (2 of 2): step 2/2" in second


def test_several_labels(regard: Regard, runs: Path) -> None:
    found = json.loads(regard("eval", runs / "multilabel", "--json").out)
    assert {"loss", "f1_micro", "f1_macro"} == set(found["scores"])
    assert found["classes"]["confusion"] is None
    assert found["classes"]["micro"]["f1"] == pytest.approx(found["scores"]["f1_micro"], abs=1e-6)
    assert found["classes"]["scores"]["wet"]["support"] == 20
    assert "Confusion" not in regard("eval", runs / "multilabel").out
    answer = json.loads(regard("classify", runs / "multilabel", "--json", stdin="a fine day good\n").out)
    assert answer["given"] == [name for name, p in answer["labels"].items() if p >= 0.5]
    (labels, probabilities) = regard("classify", runs / "multilabel", stdin="a fine day good\n").out[:-1].split("\t")
    assert labels == "|".join(answer["given"])
    assert len(probabilities.split("|")) == max(1, len(answer["given"]))
    assert "most frequent label, has micro F1 44.4%" in (runs / "multilabel" / "report.html").read_text("utf-8")


def test_numbers(regard: Regard, runs: Path) -> None:
    found = json.loads(regard("eval", runs / "rate", "--json").out)
    assert {"loss", "mse", "pearson", "spearman"} >= set(found["scores"]) >= {"loss", "mse", "pearson"}
    assert "classes" not in found
    number = float(regard("classify", runs / "rate", stdin="a fine day\n").out)
    answer = json.loads(regard("classify", runs / "rate", "--json", stdin="a fine day\n").out)
    assert answer["number"] == pytest.approx(number, rel=1e-4)


def test_the_function_for_each_kind_of_answer_is_named(runs: Path) -> None:
    numbers, several = (library.load(runs / name) for name in ("rate", "multilabel"))
    with pytest.raises(UserError, match=r"this is a regression model; use: regard\.verbs\.labelling\.rate\(model"):
        library.classify(numbers, ["a fine day"])
    with pytest.raises(UserError, match=r"several labels; use: regard\.verbs\.labelling\.label_sets\(model"):
        rate(several, ["a fine day"])
    assert label_sets(several, ["a fine day"])[0].labels.keys() == {"good", "dry", "wet", "bad"}


def test_the_filters_of_a_text_and_of_a_file(regard: Regard, runs: Path, tmp_path: Path) -> None:
    for name in ("classify", "multilabel", "rate"):
        said = regard("look", runs / name, "a fine day")
        assert said.code == 0
        assert "The n-gram that won each filter" in said.out
        assert "\nPredicted " in said.out
    found = json.loads(regard("look", runs / "rate", "a fine day", "--json").out)
    assert (found["output"], len(found["winners"]), len(found["features"])) == ("the number", 12, 3)
    assert found["answer"].keys() == {"number"}
    assert regard("look", runs / "classify", "a fine day", "-o", "look.html").code == 0
    assert "<h2>Filters and tokens" in (tmp_path / "look.html").read_text(encoding="utf-8")
    assert regard("look", runs / "classify", "a fine day", "-o", "look.svg").code == 0
    lines = regard("look", runs / "classify", "--data", runs / "table.csv", "--top", 2, "--json").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["size"] for row in rows] == [3] * 4 + [4] * 4 + [5] * 4
    assert max(len(row["ngrams"]) for row in rows) == 2
    assert "day" in regard("look", runs / "classify", "--data", runs / "table.csv").out


def test_a_model_without_filters_has_no_ngrams(regard: Regard, trained: Path) -> None:
    said = regard("look", trained, "--data", "texts.txt")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "a translator without filters over n-grams; leave out --data." in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "classify", "data.train=table.csv", "data.labels=labels"], "use: regard train multilabel"),
        (["train", "classify", "data.train=table.csv", "data.number=number"], "use: regard train rate"),
        (["train", "multilabel", "data.train=table.csv", "metrics=accuracy", "plan.select=loss"], "f1_micro, f1_macro"),
        (["train", "classify", "data.train=table.csv", "objective.class_weights=1,2,3"], "3 numbers for 2 classes"),
        (["eval", "classify", "--data", "late.csv"], "late.csv, line 3: the label 'ugly' is not a class"),
        (["eval", "multilabel", "--data", "late.csv"], 'late.csv, line 1 (the header): no column "labels"'),
        (["look", "classify"], "the text to look at is empty"),
        (["look", "classify", "a", "--data", "late.csv"], "leave out TEXT and -o"),
        (["look", "classify", "a", "-o", "look.npz"], "end the name so"),
        (["look", "classify", "a", "--layer", "0"], "classify: has filters and no attention; leave out --layer."),
    ],
)
def test_mistakes_are_one_line(
    regard: Regard, runs: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(runs)
    (runs / "late.csv").write_text("text,label\na,good\nb,ugly\n")
    more = ["--out", "never"] if arguments[0] == "train" else []
    said = regard(*arguments, *more)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert message in said.err
    assert not (runs / "never").exists()
