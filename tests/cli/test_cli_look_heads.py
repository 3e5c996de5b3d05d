"""`regard look --off` and `--rank-heads`."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from regard import ablate, load, rank_heads

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]
FIELDS = ["text", "kind", "heads", "pieces", "before", "after", "deltas", "delta", "changed", "sentence"]


def test_off_compares_two_answers(regard: Regard, translator: Make) -> None:
    run = translator(decoder="bahdanau")
    found = ablate(load(run, "cpu"), "abc", "L0H0")
    said = regard("look", run, "abc", "--off", "l0·h0")
    assert said.code == 0
    words = " ".join(said.out.split())
    assert words.startswith(" ".join(found.sentence.split()))
    assert "original changed log p changed log p Δ log p" in words
    assert f"sum of Δ log p: {found.delta:.4f}" in words
    said = json.loads(regard("look", run, "abc", "--off", "L0H0", "--json").out)
    assert list(said) == FIELDS
    assert list(said["before"]) == list(said["after"]) == ["answer", "pieces", "logps", "total", "places", "number"]
    assert said["heads"] == {"L0H0": "off"}
    assert said["deltas"] == pytest.approx(found.deltas, rel=1e-4, abs=1e-6)
    assert said["sentence"] == found.sentence


def test_off_draws_the_changed_model(regard: Regard, translator: Make, tmp_path: Path) -> None:
    run = translator(decoder="bahdanau")
    said = regard("look", run, "abc", "--off", "L0H0=uniform", "-o", "look.html", "--json")
    assert (said.code, said.err) == (0, "wrote look.html\n")
    assert json.loads(said.out)["heads"] == {"L0H0": "uniform"}
    assert "The first picture is of the model with L0·H0 uniform." in (tmp_path / "look.html").read_text(
        encoding="utf-8"
    )


def test_rank_heads_prints_every_head(regard: Regard, translator: Make, language: Path) -> None:
    run = translator(decoder="luong")
    expected = rank_heads(load(run, "cpu"), "abc")
    lines = [json.loads(line) for line in regard("look", run, "abc", "--rank-heads", "--json").out.splitlines()]
    assert [list(line) for line in lines] == [["name", "part", "layer", "head", "delta", "changed"]] * len(expected)
    assert [line["delta"] for line in lines] == pytest.approx([one.delta for one in expected], rel=1e-4, abs=1e-6)
    table = regard("look", language, "abc", "--rank-heads").out
    assert "Each head off alone" in table
    assert "L0H0" in table


def test_options_that_do_not_fit_are_refused(regard: Regard, translator: Make) -> None:
    run = translator(decoder="bahdanau")
    for options, message in {
        ("--off", "L0H0", "--target", "x"): "leave out --target",
        ("--off", "L0H0", "--layer", 0): "leave out --layer",
        ("--rank-heads", "--off", "L0H0"): "leave out --off",
        ("--off", "L3H0"): "L3H0: cross of",
        ("--rank-heads", "-o", "look.svg"): "leave out --out",
    }.items():
        said = regard("look", run, "abc", *options)
        assert said.code == 2, options
        assert message in " ".join(said.err.split())


def test_a_page_that_computes_opens_on_what_is_chosen(regard: Regard, tmp_path: Path) -> None:
    """The page has all layers; a head that is not there is refused."""
    page = tmp_path / "look.html"
    text = "Anna found a red ball."
    assert regard("look", "stories", text, "--layer", "2", "--head", "1", "-o", page).code == 0
    (found,) = re.findall(
        r'<script type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL
    )
    data = json.loads(found)
    assert data["origin"]["opens"] == {"layer": 2, "head": 1}
    assert "live" in data
    assert [layer["number"] for layer in data["parts"][0]["layers"]] == [0, 1, 2, 3]
    assert "head=9" in regard("look", "stories", text, "--layer", "2", "--head", "9", "-o", tmp_path / "no.html").err
    assert not (tmp_path / "no.html").exists()
