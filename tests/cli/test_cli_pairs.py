"""Pairs and choices from training to the verbs: `pair`, `similarity` and `choice`, in tiny."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard as library
from regard.cli import main
from regard.data.example import Choice, RatedPair
from regard.data.joined import ChoiceText
from regard.errors import UserError
from regard.recording import record
from regard.report.samples import PICTURED, excerpts, mistakes
from regard.training.warm_start import warm_start_from
from regard.verbs.labelling import choose, similarity

Regard = Callable[..., Any]
SETTINGS = [
    *(
        "model=bert",
        "model.width=16",
        "model.heads=2",
        "model.layers=1",
        "model.inner=16",
        "model.context=32",
        "plan.steps=4",
    ),
    *("plan.warmup=1", "plan.evaluate=4", "plan.threads=1", "plan.batch_tokens=512", "plan.device=cpu"),
]
WORDS = ("rain", "sun", "wind", "snow")


def examples(name: str) -> str:
    """A file of one of the recipes, without a header."""
    rows = []
    for number in range(40):
        first, second = WORDS[number % 4], WORDS[number % 3]
        text = f"the {first} came\tthe {second} came"
        label = {"pair": "yes" if first == second else "no", "similarity": str(number % 5)}
        rows.append(
            f"{number % 2}\tthe {first} came\t{first}\t{second}s" if name == "choice" else f"{label[name]}\t{text}"
        )
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, and what the three recipes leave that learn from them."""
    folder = tmp_path_factory.mktemp("pairs")
    for name in ("pair", "similarity", "choice"):
        path = folder / f"{name}.tsv"
        path.write_text(examples(name))
        files = [f"data.train={path}", f"data.valid={path}"]
        assert main(["train", name, *files, *SETTINGS, "--out", str(folder / name)]) == 0
    return folder


def test_a_pair_is_classified(regard: Regard, runs: Path) -> None:
    said = regard("classify", runs / "pair", stdin="the rain came\tthe sun came\n\nthe wind came\tthe wind came\n")
    lines = said.out.split("\n")
    assert [line.split("\t")[0] in ("yes", "no", "") for line in lines] == [True] * 4
    assert not lines[1]
    found = library.classify(library.load(runs / "pair"), [("the rain came", "the sun came")])
    assert lines[0].split("\t")[0] == found[0].label


def test_a_table_is_read_by_the_columns_of_training(regard: Regard, runs: Path) -> None:
    Path("table.csv").write_text("second,id,first\nthe sun came,1,the rain came\n")
    Path("head.tsv").write_text("id\tfirst\tsecond\n1\tthe rain came\tthe sun came\n")
    Path("lines.tsv").write_text("the rain came\tthe sun came\n")
    answers = [regard("similarity", runs / "similarity", name).out for name in ("table.csv", "head.tsv", "lines.tsv")]
    for name, line in (("table.csv", 2), ("head.tsv", 2), ("lines.tsv", 1)):  # the header is line 1
        assert json.loads(regard("similarity", runs / "similarity", name, "--json").out)["line"] == line
    assert len(set(answers)) == 1
    both = regard("similarity", runs / "similarity", "the rain came", "the sun came", "--json")
    assert json.loads(both.out)["number"] == pytest.approx(float(answers[0]), abs=1e-4)


def test_a_choice_is_made(regard: Regard, runs: Path) -> None:
    said = regard("classify", runs / "choice", "--json", stdin="the rain came\train\tsun\twind\n")
    found = json.loads(said.out)
    assert found["choice"] == ["rain", "sun", "wind"][found["number"]]
    assert sum(found["probabilities"]) == pytest.approx(1, abs=1e-5)
    (chosen,) = choose(library.load(runs / "choice"), [("the rain came", "rain", "sun", "wind")])
    assert chosen.choice == found["choice"]


def test_a_choice_of_a_table_with_usual_names(regard: Regard, runs: Path) -> None:
    Path("a.csv").write_text("id,sent1,ending0,ending1,ending2\n1,the rain came,rain,sun,wind\n")
    Path("a.tsv").write_text("sent1\tending0\tending1\tending2\nthe rain came\train\tsun\twind\n")
    Path("a.jsonl").write_text('{"ctx": "the rain came", "endings": ["rain", "sun", "wind"]}\n')
    lines = regard("classify", runs / "choice", stdin="the rain came\train\tsun\twind\n").out
    assert lines
    assert [regard("classify", runs / "choice", f"a.{kind}").out for kind in ("csv", "tsv", "jsonl")] == [lines] * 3


def test_the_report_has_the_worst_mistakes(runs: Path) -> None:
    page = (runs / "similarity" / "report.html").read_text(encoding="utf-8")
    assert "<h2>The worst mistakes" in page
    assert "The score is the difference of output and right number" in page
    assert "Bert with" in page  # the class of the body, not that of every model with a head
    (first, second), number = ("the rain came", "the sun came"), 9.0
    model = library.load(runs / "similarity")
    (wrong,), _ = mistakes(model, [RatedPair((first, second), number)])
    assert wrong.given == f"{first} · {second}"
    assert wrong.score == pytest.approx(9 - similarity(model, [(first, second)])[0].number, abs=1e-4)


def test_a_wrong_choice_is_a_mistake(runs: Path) -> None:
    model = library.load(runs / "choice")
    parts = ("the rain came", "rain", "suns")
    (chosen,) = choose(model, [parts])
    examples = [Choice(ChoiceText.value(parts), label) for label in (0, 1)]
    (wrong,), score = mistakes(model, examples)  # one of the two labels is wrong
    assert wrong == (parts[0], chosen.choice, parts[2 - chosen.number], pytest.approx(chosen.probability))
    assert score == "the probability of the output"


def test_a_picture_of_a_classified_pair_has_its_class(runs: Path) -> None:
    page = (runs / "pair" / "report.html").read_text(encoding="utf-8")
    (found,) = library.classify(library.load(runs / "pair"), [("the rain came", "the rain came")])
    assert f"the rain came · the rain came → {found.label} ({found.probability:.2f})" in page


def test_the_scores_of_a_run_and_of_a_file(regard: Regard, runs: Path) -> None:
    for name, score in (("pair", "accuracy"), ("similarity", "spearman"), ("choice", "accuracy")):
        whole = json.loads(regard("eval", runs / name, "--json").out)
        own = json.loads(regard("eval", runs / name, "--json", "--data", runs / f"{name}.tsv").out)
        assert whole["scores"].keys() >= {"loss", score}
        assert whole["scores"] == own["scores"]
    assert "classes" not in whole
    text = (runs / "pair.tsv").read_text()
    Path("named.tsv").write_text("gold\ta\tb\n" + text)
    named = ["data.label=gold", "data.first=a", "data.second=b"]
    found = json.loads(regard("eval", runs / "pair", "--json", "--data", "named.tsv", *named).out)
    assert found["examples"] == 40


def test_both_parts_are_in_the_picture(regard: Regard, runs: Path) -> None:
    for name in ("pair", "similarity", "choice"):
        view = library.look(library.load(runs / name), ("the rain came", "rainx"))
        pieces = ["<bos>", "▁the", "▁rain", "▁came", "<eos>"]
        assert list(view.rows)[:5] == pieces
        assert list(view.columns)[-1] == "<eos>"
        assert len(view.rows) > 6
        assert regard("look", runs / name, "the rain came", "the sun came").code == 0
    said = regard("look", runs / "pair", "the rain came")
    assert "this is a classifier that reads first and second; give as many texts" in said.err


def test_every_text_of_a_pair_or_choice_is_recorded(runs: Path) -> None:
    model = library.load(runs / "choice")
    with record(model.module) as tape:
        choose(model, [("the rain came", "rain", "sun"), ("the sun came", "wind", "wind and snow")])
    name = next(iter(tape))
    assert len(tape[name]) == len(tape.captions) == 4
    assert "▁sun" in tape.captions[1][name].columns
    assert tape.captions[3][name].columns[-1] == "<eos>"


def test_texts_that_a_model_cannot_read(regard: Regard, runs: Path) -> None:
    for run, text, message in (
        (
            "pair",
            "one text\n",
            "line 1: expected first and second, none of them empty, found 'one text'; in a",
        ),
        ("pair", "a\tb\n\na\t \n", "line 3: expected first and second"),
        ("choice", "context\tchoice\n", "line 1: expected a context and two or more choices"),
        ("choice", "c\ta\tb\nc\ta\tb\td\n", "some examples have 2 choices and some 3"),
        ("pair", f"a\t{'rain ' * 40}\n", "line 1: 45 tokens with the special ones, but the model reads at most 32"),
    ):
        said = regard("classify", runs / run, stdin=text)
        assert said.code == 2
        assert message in said.err
    assert regard("classify", runs / "pair", "--long", "truncate", stdin=f"a\t{'rain ' * 40}\n").code == 0
    assert "give truncate" in regard("classify", runs / "pair", "--long", "window", stdin="a\tb\n").err
    with pytest.raises(UserError, match=r"text 1: expected first and second"):
        library.classify(library.load(runs / "pair"), ["one text"])


def test_a_cell_over_several_lines_does_not_shift_the_lines_after_it(regard: Regard, runs: Path) -> None:
    long = "rain " * 40
    Path("a.csv").write_text(f'first,second\n"the rain\n\ncame",the sun came\n\na,b\na,{long}\n')  # the last is line 7
    assert "line 7: 45 tokens with the special ones" in regard("classify", runs / "pair", "a.csv").err


def test_one_text_alone_is_not_compared(regard: Regard, runs: Path) -> None:
    assert "give a file of pairs, or a second text" in regard("similarity", runs / "similarity", "a cat").err


def test_a_model_of_another_task_is_refused(regard: Regard, runs: Path) -> None:
    said = regard("similarity", runs / "pair", "a", "b")
    assert "this is a classifier, which cannot compare two texts; use: regard classify" in said.err
    with pytest.raises(UserError, match=r"this is a model of choices; use: regard\.verbs\.labelling\.choose"):
        library.classify(library.load(runs / "choice"), [("a", "b")])
    with pytest.raises(UserError, match="cannot compare two texts; use: regard classify"):
        similarity(library.load(runs / "choice"), [("a", "b")])


def test_a_run_starts_from_a_model_with_another_head(regard: Regard, runs: Path) -> None:
    """The body of a model of pairs gets the head of a number; its tokenizer is kept."""
    settings = [f"from={runs / 'pair'}", "plan.steps=2", "plan.evaluate=2", "plan.device=cpu", "plan.threads=1"]
    said = regard("train", "similarity", f"data.train={runs / 'similarity.tsv'}", *settings, "--out", "tuned")
    assert said.code == 0, said.err
    assert re.search("replaced by new ones: .*head.out", said.out)
    assert library.load("tuned").tokenizer.size == warm_start_from(runs / "pair").tokenizers[0].size
    Path("other.tsv").write_text("maybe\ta\tb\nyes\ta\tb\nno\tb\tc\n" * 5)
    said = regard("train", "pair", "data.train=other.tsv", "data.valid=other.tsv", *settings, "--out", "classes")
    assert "label 'maybe': not a class of the training examples" in said.err
    assert "give head=class for a new head" in said.err


def test_gpt_reads_both_orders_with_the_loss_of_a_language_model(regard: Regard, runs: Path) -> None:
    gpt = ["model.positions=relative", "data.both_orders=true", "objective.language=0.5"]
    files = [f"data.train={runs / 'similarity.tsv'}", f"data.valid={runs / 'similarity.tsv'}"]
    said = regard("train", "similarity", *gpt, *files, "model=gpt", *SETTINGS[1:], "--out", "both")
    assert said.code == 0, said.err
    model = library.load("both")
    one, other = similarity(model, [("the rain came", "sun"), ("sun", "the rain came")])
    assert one.number == pytest.approx(other.number, abs=1e-5)
    for setting in ("model=structured", "model=bilstm"):
        named = [one for one in SETTINGS if one.startswith("plan")]
        pairs = [f"data.train={runs / 'pair.tsv'}", "data.both_orders=true"]
        said = regard("train", "pair", setting, *pairs, *named, "--out", "own")
        assert ("add head=class" if "structured" in setting else "does not fit data=text-pairs") in said.err


def test_a_text_between_start_and_end(regard: Regard, runs: Path) -> None:
    """Classification as GPT reads it: start, text, extract."""
    Path("texts.tsv").write_text("yes\tthe rain came\nno\tthe sun came\n" * 6)
    gpt = ["data=delimited", "data.train=texts.tsv", "data.valid=texts.tsv", "objective.language=0.5"]
    assert regard("train", "pair", *gpt, "model=gpt", *SETTINGS[1:], "--out", "gpt").code == 0
    model = library.load("gpt")
    assert list(library.look(model, "the rain came").rows) == ["<bos>", "▁the", "▁rain", "▁came", "<eos>"]
    assert regard("classify", "gpt", stdin="the rain came\n").out.split("\t")[0] in ("yes", "no")
    assert library.classify(model, ["the sun came"]) == library.classify(model, [("the sun came",)])


def test_a_long_pair_is_cut_in_training(regard: Regard, runs: Path) -> None:
    Path("long.tsv").write_text(f"yes\ta\t{'rain ' * 90}\nno\tb\tsun\n" * 6)
    said = regard("train", "pair", "data.train=long.tsv", "data.valid=long.tsv", *SETTINGS, "--out", "long", "--json")
    assert said.code == 0, said.err
    assert "longer" not in said.err


def test_words_of_other_models(regard: Regard, runs: Path) -> None:
    """Kim's network reads the joined ids; a picture has its n-grams over both parts."""
    files = [f"data.train={runs / 'pair.tsv'}", f"data.valid={runs / 'pair.tsv'}"]
    plan = [one for one in SETTINGS if one.startswith("plan")]
    said = regard("train", "pair", "model=kim", "model.filters=4", "model.embed=4", *files, *plan, "--out", "kim")
    assert said.code == 0, said.err
    assert regard("look", "kim", "the rain came", "the sun came").code == 0
    headed = regard("train", "pair", "model=kim", "head=class", "model.embed=4", *files, *plan, "--out", "headed")
    assert headed.code == 0, headed.err
    assert regard("eval", "headed").code == 0


def test_a_picture_of_a_long_pair_has_its_beginnings(runs: Path) -> None:
    pair = SimpleNamespace(text=("the sun came", "the rain came " * 100))
    ((first, second),) = excerpts(library.load(runs / "pair", long="truncate"), [pair], 1)
    assert (first, len(first + second) <= PICTURED) == (pair.text[0], True)
    assert pair.text[1].startswith(second + " ")
