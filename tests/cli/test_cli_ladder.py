"""The ladder: every rung of one size, finished cells kept, one table and one page."""

import json
import math
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from regard.cli.ladder import _rungs
from regard.cli.progress import follow
from regard.metrics import METRICS
from regard.recipes import find_recipe
from regard.report.figures import deviation
from regard.training.events import Event, Finished, Started

Regard = Callable[..., "Said"]  # noqa: F821


def test_a_ladder_is_fair_and_resumes(regard: Regard, tiny: list[str], pairs: Path) -> None:
    settings = [each for each in tiny if not each.startswith(("data.train", "model.width", "plan.steps"))]
    command = ["ladder", pairs, *settings, "model.width=32", "--steps", 3, "--seeds", 1, "--out", "lad"]
    first = regard(*command)
    assert first.code == 0
    assert "±" not in first.out  # one seed spreads over nothing
    ladder = json.loads(Path("lad/ladder.json").read_text(encoding="utf-8"))
    sizes = [row["parameters"] for row in ladder["rows"]]
    assert len(ladder["rows"]) == 9
    assert max(sizes) / min(sizes) < 1.11  # ± 5 % of the one that was asked for
    assert all(row["seeds"] == 1 and row["tokens_per_second"]["mean"] > 0 for row in ladder["rows"])
    assert all(row["loss"]["sd"] is None for row in ladder["rows"])
    page = Path("lad/ladder.html").read_text(encoding="utf-8")
    assert "The ladder" in page
    seen = {cell["cell"]: cell["attention"] for cell in ladder["cells"]}
    assert [name for name, one in seen.items() if one is None] == ["no attention"]
    axes = {(tuple(one["rows"]), tuple(one["columns"])) for one in seen.values() if one}
    assert len(axes) == 1  # one example for all rungs
    pictures = page.partition("<h2>Attention over an example of ")[2].partition("</section>")[0]
    assert re.findall(r"<figcaption[^>]*><bdi>([^<]*)", pictures) == list(seen)
    assert pictures.count(">no attention</text>") == 1
    level = re.search(r"each of the (\d+) tokens the same probability has loss ([\d.]+), perplexity (\d+)", page)
    assert level is not None
    assert (level[2], level[3]) == (f"{math.log(int(level[1])):.3f}", level[1])
    before = {path: path.stat().st_mtime_ns for path in Path("lad/cells").rglob("metrics.jsonl")}
    Path("lad/cells/dot/seed-1.json").unlink()  # as if stopped before this cell was written down
    again = regard(*command, "--json")
    assert json.loads(again.out)["rows"][1]["cell"] == "dot"
    assert again.err.count("parameters on") == 1  # nothing else was run again
    after = {path: path.stat().st_mtime_ns for path in before}
    assert [path.parts[2] for path in before if before[path] != after[path]] in ([], ["dot"])
    other = regard(*command, "model.embed=6")
    assert other.code == 2
    assert "other settings" in other.err


def test_a_spread_needs_two() -> None:
    assert (deviation([0.5]), deviation([0.25, 0.75])) == (None, pytest.approx(0.3536, abs=1e-4))
    assert METRICS["exact"].show(0.5, None) == "50.00%"
    assert METRICS["exact"].show(0.5, 0.25) == "50.00 ± 25.00 %"
    assert "±" not in METRICS["loss"].show(0.5, None)


def families(tiny: list[str], pairs: Path) -> list[object]:
    """The command that climbs from no attention to the Transformer in a moment."""
    settings = [each for each in tiny if not each.startswith(("data.train", "model.", "plan.steps"))]
    model = ["model=transformer", "model.width=48", "model.heads=3", "model.layers=1", "model.inner=96"]
    joint = ["data.joint=true", "model.shared=all", "model.context=32", "model.dropout=0"]
    return ["ladder", pairs, *model, *joint, *settings, "plan.select=bleu", "--steps", 6, "--seeds", 2, "--out", "lad"]


@pytest.mark.slow
def test_families_under_one_budget(regard: Regard, tiny: list[str], pairs: Path) -> None:
    said = regard(*families(tiny, pairs), "plan.clip=0.5", "--quality", 0)
    assert said.code == 0, said.err
    assert "to BLEU 0.00" in said.out
    assert "plan.rate" not in said.out  # both recipes here have the same
    ladder = json.loads(Path("lad/ladder.json").read_text(encoding="utf-8"))
    names = ["no attention", "additive", "general", "gnmt", "convs2s", "transformer sinusoidal", "transformer learned"]
    names += ["transformer 1 head", "transformer 2 heads", "transformer 8 heads"]
    assert [row["cell"] for row in ladder["rows"]] == names
    sizes = [row["parameters"] for row in ladder["rows"]]
    assert max(sizes) / min(sizes) < 1.11
    assert ladder["quality"] == {"measure": "bleu", "value": 0.0}
    for cell in ladder["cells"]:
        assert cell["recipe"]["plan"]["clip"] == 0.5  # what is said of the plan holds for every rung
        assert [point["step"] for point in cell["curve"]] == [3, 6]
        assert 0 < cell["curve"][0]["seconds"] < cell["curve"][1]["seconds"] <= cell["training_seconds"]
        assert cell["training_seconds"] < cell["seconds"]  # which has the evaluations too
    for row in ladder["rows"]:
        assert row["seconds_to_quality"]["reached"] == 2  # 0 is reached by all, at the first evaluation
        firsts = [cell["curve"][0]["seconds"] for cell in ladder["cells"] if cell["cell"] == row["cell"]]
        assert row["seconds_to_quality"]["mean"] == pytest.approx(sum(firsts) / 2)
    page = Path("lad/ladder.html").read_text(encoding="utf-8")
    assert "Quality against time: BLEU" in page
    assert "model.positions" in page


def test_settings_of_the_plan_are_those_of_every_rung() -> None:
    recipe = find_recipe("multi30k")
    own = _rungs(recipe, [], None)
    assert len({rung.plan.warmup for rung in own.values()}) > 1  # a rung has the warm-up of its family
    given = _rungs(recipe, ["plan.warmup=7", "data.vocab=99"], None)
    assert list(given) == list(own)
    assert {(rung.plan.warmup, rung.data.vocab) for rung in given.values()} == {(7, 8000)}
    assert list(_rungs(recipe, [], "transformer-learned,additive")) == ["additive", "transformer learned"]


def test_a_ladder_of_a_recipe_or_of_a_file(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("a\tb\n" * 9, encoding="utf-8")
    for what, told in (
        ("mine", "plan.minutes"),  # a file needs no suffix; the setting is refused later
        ("dates", "plan.minutes"),
        ("nothing", '"nothing" is no recipe'),
        ("dattes", 'Did you mean "dates"'),
    ):
        said = regard("ladder", what, "plan.minutes=1")
        assert (said.code, said.err.count("\n"), told in said.err) == (2, 1, True), said.err
    assert "no.tsv" in regard("ladder", "no.tsv", "plan.steps=1").err
    assert not Path("runs").exists()


def test_some_rungs(regard: Regard, tiny: list[str], pairs: Path) -> None:
    command = [*families(tiny, pairs), "--seeds", 1, "--json"]
    said = regard(*command, "--rungs", "transformer-learned,no attention", "--quality", 101)
    assert said.code == 0, said.err
    rows = json.loads(said.out)["rows"]
    assert [row["cell"] for row in rows] == ["no attention", "transformer learned"]
    assert all(row["seconds_to_quality"] is None and row["published"] is None for row in rows)
    assert {path.name for path in Path("lad/cells").iterdir()} == {"no-attention", "transformer-learned"}
    other = regard(*command, "--rungs", "no attention", "--beam", 2)
    assert other.code == 2
    assert "other settings" in other.err
    words = pairs.read_text(encoding="utf-8")
    try:
        pairs.write_text(words.replace("A", "B"), encoding="utf-8")
        changed = regard(*command, "--rungs", "no attention")
    finally:
        pairs.write_text(words, encoding="utf-8")
    assert (changed.code, "no-attention/seed-1.json: measured on other data" in changed.err) == (2, True), changed.err
    unknown = regard(*command, "--rungs", "additiv")
    assert unknown.code == 2
    assert 'Did you mean "additive"?' in unknown.err


def test_ctrl_c_before_and_after_something_is_done(
    regard: Regard, tiny: list[str], pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_given: object, **_named: object) -> None:
        raise KeyboardInterrupt

    command = [*families(tiny, pairs), "--seeds", 1, "--rungs", "additive"]
    cells = import_module("regard.training.ladder.cells")
    with monkeypatch.context() as patch:
        patch.setattr(cells, "prepare", interrupt)
        said = regard(*command)
    assert (said.code, said.out) == (130, "\nstopped before the first step; nothing to save\n")
    assert not Path("lad").exists()
    with monkeypatch.context() as patch:
        patch.setattr(cells, "evaluate", interrupt)
        said = regard(*command)
    assert said.code == 130
    assert "stopped; lad keeps what was done, and the same command continues from there." in said.out
    assert Path("lad/cells/additive/seed-1/latest").exists()


class Interrupted(Console):
    def print(self, *args: object, **settings: object) -> None:
        raise KeyboardInterrupt


def test_a_run_that_is_followed_is_closed_whatever_comes_between() -> None:
    closed = []

    def run() -> Iterator[Event]:
        try:
            yield Started(Path("run"), 0, 1, 1, "cpu", "float32", 1, 0, 1, 1)
            yield Finished(1, "steps", None, None, 1.0)
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        follow(run(), Interrupted(), "run")
    assert closed
    assert follow(run(), Console(quiet=True), "run").step == 1


def test_a_model_too_small_to_be_fair_is_refused(regard: Regard, tiny: list[str], pairs: Path) -> None:
    settings = [each for each in tiny if not each.startswith(("data.train", "model.width"))]
    said = regard("ladder", pairs, *settings, "model.width=2", "--out", "lad")
    assert said.code == 2
    assert "larger model.width" in said.err


@pytest.mark.parametrize("missing", ["nowhere.tsv", "dattes"])
def test_what_cannot_be_climbed(regard: Regard, missing: str) -> None:
    said = regard("ladder", missing)
    assert said.code == 2
    assert missing in said.err
