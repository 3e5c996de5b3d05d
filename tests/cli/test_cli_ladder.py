"""The ladder: every rung of one size, finished cells kept, one table and one page."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from regard.cli.cells import parameters, rungs
from regard.cli.figures import deviation, spread
from regard.cli.progress import follow
from regard.models import Seq2SeqConfig
from regard.train.events import Event, Finished, Started

Regard = Callable[..., "Said"]  # noqa: F821


def test_rungs_and_their_sizes() -> None:
    found = rungs(Seq2SeqConfig(source_vocab=30, target_vocab=30))
    assert next(iter(found)) == "no attention"
    assert {"dot", "scaled_dot", "general", "additive", "cosine", "location"} < set(found)
    assert found["general local-p"].window == "local-p"
    config = Seq2SeqConfig(source_vocab=30, target_vocab=30, width=16)
    assert parameters(config) == sum(weight.numel() for weight in config.build().parameters())


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
    assert "The ladder" in Path("lad/ladder.html").read_text(encoding="utf-8")
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
    assert spread("exact", 0.5, None) == "50.00%"
    assert spread("exact", 0.5, 0.25) == "50.00 ± 25.00 %"
    assert "±" not in spread("loss", 0.5, None)


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
