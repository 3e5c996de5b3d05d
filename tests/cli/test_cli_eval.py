"""`regard eval`: its figures are those of the library, its tables have them in their places."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from regard import load
from regard.cli.eval import GROUPS, _by_length
from regard.data.example import Pair
from regard.data.sources import Pairs
from regard.decode import Penalty
from regard.file_io import write_json
from regard.metrics import METRICS
from regard.models import BertConfig, GptConfig
from regard.pretrained import write_model
from regard.recipes import KINDS
from regard.stored import recipe_json, stored_recipe
from regard.training.chance import describe_chance
from regard.training.evaluate import evaluate

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]
SIZES: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "inner": 8, "context": 16}


def pairs_file(path: Path, count: int) -> Path:
    """Pairs whose sources have from 2 to 7 characters."""
    words = ["".join("abc"[(i + j * (i % 4)) % 3] for j in range(2 + i * i % 6)) for i in range(count)]
    table = str.maketrans("abc", "xyz")
    path.write_text("".join(f"{word}\t{word.translate(table)}\n" for word in words), encoding="utf-8")
    return path


def table(text: str) -> list[list[str]]:
    """The cells of the lines of a table."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines() if line.strip()]


def test_the_figures_are_those_of_the_library(regard: Regard, translator: Make, tmp_path: Path) -> None:
    run, file = translator(), "own.tsv"
    pairs_file(tmp_path / file, 10)
    how = ["--beam", 2, "--penalty", 0.5, "--formula", "gnmt", "--coverage", 0.1, "--stop", "exact", "--patience", 2]
    said = regard("eval", run, "--data", file, *how, "--json")
    found = json.loads(said.out)
    ranking = Penalty(0.5, "gnmt", 0.1, "exact", 2.0)
    examples = Pairs(train=file, valid=file).load().train
    expected = evaluate(load(run, device="cpu"), examples, ("loss", "perplexity", "exact"), 2, ranking)
    scores = {name: pytest.approx(value, rel=1e-6) for name, value in expected.values.items()}
    assert found == {
        **{"run": str(run), "step": 7, "data": file, "examples": 10, "truncated": 0, "beam": 2},
        **{"penalty": asdict(ranking), "scores": scores, "notes": expected.notes},
        "chance": describe_chance(load(run, device="cpu"), examples),
    }
    said = regard("eval", run, "--data", file, *how).out
    figures, _, chance = said.partition("Chance: ")
    assert f"Chance: {' '.join(chance.split())}" == found["chance"]
    title, *rows = table(figures)
    assert title == [f"{run}, step 7, on 10 examples of {file}"]
    assert [row[:2] for row in rows] == [[METRICS[n].title, METRICS[n].show(v)] for n, v in expected.values.items()]


def test_tables_by_length_and_by_position(regard: Regard, translator: Make, tmp_path: Path) -> None:
    file, run = pairs_file(tmp_path / "own.tsv", 10), translator()
    how = ["--data", file, "--by-length", "--free-running"]
    found = json.loads(regard("eval", run, *how, "--json").out)
    text = regard("eval", run, *how).out
    by_length = table(text[text.index("By length") : text.index("By position")])
    names = list(found["scores"])
    assert by_length[1:] == [
        ["tokens", *(METRICS[name].title for name in names)],
        *([span, *(METRICS[n].show(values[n]) for n in names)] for span, values in found["lengths"].items()),
    ]
    columns = ("count", "forced_loss", "free_loss", "forced_error", "free_error")
    counts, *losses, forced_error, free_error = (found["exposure"][name] for name in columns)
    shown = [[f"{value:.4f}" for value in column] for column in losses]
    shown += [[f"{value:.2%}" for value in column] for column in (forced_error, free_error)]
    by_position = table(text[text.index("By position") :])
    assert by_position[1] == ["position", "targets", "loss, forced", "loss, free", "error, forced", "error, free"]
    assert by_position[2:] == [
        [str(at), str(count), *row] for at, (count, row) in enumerate(zip(counts, zip(*shown)), 1)
    ]
    assert found["exposure"]["forced_loss"] != found["exposure"]["free_loss"]


def test_groups_by_length_have_about_the_same_number_of_examples(translator: Make) -> None:
    model = load(translator(), device="cpu")
    sizes = [1 + 7 * i % 32 for i in range(32)]  # each length once, in no order
    groups = _by_length(model, [Pair("a" * size, "x") for size in sizes])
    around = len(model.encode([Pair("a", "x")])[0]["source"]) - 1
    assert [len(some) for some in groups.values()] == [32 // GROUPS] * GROUPS
    lengths = [[len(one.source) for one in some] for some in groups.values()]
    assert lengths == [list(range(4 * at + 1, 4 * at + 5)) for at in range(GROUPS)]
    assert list(groups) == [f"{some[0] + around}-{some[-1] + around}" for some in lengths]
    same = _by_length(model, [Pair("ab", "x")] * 5 + [Pair("abc", "x")])  # equal lengths are one group
    assert [len(some) for some in same.values()] == [5, 1]


def test_the_part_of_the_data_that_is_measured(regard: Regard, translator: Make, tmp_path: Path) -> None:
    sizes = {"train": 9, "valid": 8, "test": 7}
    files = {name: str(pairs_file(tmp_path / f"{name}.tsv", size)) for name, size in sizes.items()}
    recipe = stored_recipe(translator(), KINDS)
    whole, part = tmp_path / "whole", tmp_path / "part"
    for run, data in ((whole, Pairs(**files)), (part, Pairs(**{**files, "test": ""}))):
        shutil.copytree(translator(), run)
        write_json(run / "recipe.json", recipe_json(replace(recipe, data=data), KINDS))
    for run, given, name in (
        (whole, [], "test"),
        (whole, ["--split", "valid"], "valid"),
        (whole, ["--split", "train"], "train"),
        (part, [], "valid"),
    ):
        found = json.loads(regard("eval", run, *given, "--json").out)
        assert (found["data"], found["examples"]) == (name, sizes[name])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--data", "own.tsv", "--beam", "0"], "beam=0: give 1 (greedy) to"),
        (["--split", "tets"], '--split tets: no such part. Did you mean "test"?'),
        (["--data", "own.tsv", "--split", "test"], "--data own.tsv and --split test"),
        (["data.source=a"], "a column of your own file is named beside --data FILE"),
        (["--data", "own.tsv", "data.label=a"], "data.label=a: not a column of the examples; give data.source=COLUMN"),
        (["--data", "own.tsv", "source=a"], "source=a: not a column of the examples"),
        (["--data", "own.tsv", "data.source"], "data.source: not a column of the examples"),
        (["--data", "own.tsv", "--stride", "7"], "--stride 7: is for --running; add that"),
        (["--running"], "--running: measures a text of your own; give --data FILE"),
        (["--last-word"], "--last-word: measures a text of your own; give --data lambada or"),
        (["--data", "own.tsv", "--last-word", "--beam", "2"], "--beam 2: is not for --last-word; leave it out"),
        (["--data", "own.tsv", "--last-word", "--running"], "--running: is not for --last-word"),
        *(
            (["--data", "own.tsv", "--running", *more], f"{' '.join(more)}: is not for --running; leave it out")
            for more in (
                ["--penalty", "0.5"], ["--beam", "2"], ["--formula", "gnmt"], ["--coverage", "0.1"],
                ["--stop", "exact"], ["--patience", "2.0"], ["--split", "test"], ["data.source=a"],
                ["--free-running"], ["--by-length"], ["--most", "5"],
            )
        ),
        (["--most", "5"], "--most 5: is for --analogies; add that"),
        (["--wordsim", "--most", "5"], "--most 5: is not for --wordsim"),
        (["--substitution", "--wordsim"], "--wordsim: is not for --substitution"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(
    regard: Regard, translator: Make, tmp_path: Path, given: list[str], told: str
) -> None:
    pairs_file(tmp_path / "own.tsv", 4)
    said = regard("eval", translator(), *given)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("error: ")
    assert told in said.err


@pytest.mark.parametrize("more", [[], ["--by-length"]])
@pytest.mark.parametrize("config", [GptConfig(vocab=9, **SIZES), BertConfig(vocab=9, **SIZES)], ids=["gpt", "bert"])
def test_a_checkpoint_without_a_tokenizer_is_refused(
    config: Any, more: list[str], regard: Regard, tmp_path: Path
) -> None:
    (tmp_path / "public").mkdir()
    write_model(config.build(), tmp_path / "public", {})
    (tmp_path / "lines.txt").write_text("abc\nab c\n", encoding="utf-8")
    said = regard("eval", "public", "--data", "lines.txt", *more)
    assert (said.code, "public: has no tokenizer; add its tokenizer.json" in said.err) == (2, True), said.err


def test_what_a_kind_of_model_has_no_use_for(
    regard: Regard, classifier: Path, language: Path, translator: Make, tmp_path: Path
) -> None:
    (tmp_path / "labelled.tsv").write_text("good\tab ba\nbad\tcc\n", encoding="utf-8")
    (tmp_path / "lines.txt").write_text("abc\nab c\n", encoding="utf-8")
    found: dict[str, Any] = json.loads(regard("eval", classifier, "--data", "labelled.tsv", "--json").out)
    assert list(found["scores"]) == ["loss", "accuracy"]  # no perplexity of a class
    found = json.loads(regard("eval", language, "--data", "lines.txt", "--json").out)
    assert list(found["scores"]) == ["loss", "perplexity"]
    for more in (["--beam", 2], ["--coverage", 0.1], ["--penalty", 0.5]):
        said = regard("eval", language, "--data", "lines.txt", *more)
        assert (said.code, "a language model, which is evaluated without a search" in said.err) == (2, True), more
    assert (
        "a classifier generates no text" in regard("eval", classifier, "--data", "labelled.tsv", "--free-running").err
    )


def test_the_table_of_a_running_text(regard: Regard, language: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("abc cab bca\na b c cc ?" * 3, encoding="utf-8")  # line ends and ? are unknown
    how = ["eval", language, "--data", "book.txt", "--running"]
    found, said = json.loads(regard(*how, "--json").out), regard(*how)
    title, *rows = table(said.out)
    assert title == [f"{language} on the running text book.txt"]
    labels = {
        "perplexity of a token": ("perplexity", f"{found['tokens']} tokens, {_windows(found)}"),
        "bits per byte": ("bits_per_byte", f"{found['bytes']} bytes of UTF-8"),
        "bits per word": ("bits_per_word", f"{found['words']} words"),
        "perplexity of a word": ("word_perplexity", f"{found['words']} words"),
    }
    assert [[label, note] for label, _, note in rows] == [[label, note] for label, (_, note) in labels.items()]
    values = [float(value) for _, value, _ in rows]
    assert values == pytest.approx([found["scores"][name] for name, _ in labels.values()], rel=1e-5)
    assert said.err == "6 of the tokens are not in the vocabulary, so the figures are too low\n"


def _windows(found: dict[str, Any]) -> str:
    stride = found["stride"]
    return "the state is carried" if stride is None else f"windows of {found['window']}, stride {stride}"
