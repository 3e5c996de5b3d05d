"""The ladder of pre-training: its entries and pairs, its probe, and what it prints."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.config import tree
from regard.errors import UserError
from regard.models import FAMILIES as SMALL
from regard.report.pretraining import PretrainingStanding, result_line
from regard.stored import given_tokenizer
from regard.training.ladder.cells import TOLERANCE, fit_size, parameters
from regard.training.ladder.pretraining import (
    FAMILIES,
    GRID,
    PAIRS,
    Entry,
    Pretrained,
    Probe,
    _recipe,
    _sized,
    fine_tuning,
    jobs,
    probe_of,
    select,
)
from regard.training.warm_start import warm_start_from

Regard = Callable[..., "Said"]  # noqa: F821

MODEL = ["model.context=32", "model.width=64", "model.heads=2", "model.layers=1", "model.inner=128"]
PLAN = ["data.window=16", "data.vocab=400", "plan.steps=2", "plan.batch_tokens=128", "plan.threads=1"]
PROBE = ["probe=probe.tsv", "probe.labels=8", "probe.steps=2", "--seeds", 2]


def write_files() -> None:
    """A text of sentences, and sentences with a class each."""
    animals, places = ("cat", "dog", "hen", "fox"), ("house", "garden", "field")
    lines = [f"The {animals[i % 4]} sleeps in the {places[i % 3]}. Number {i} walks." for i in range(60)]
    Path("text.txt").write_text("\n".join(lines), encoding="utf-8")
    probes = [f"{('good', 'bad')[i % 2]}\ta {('fine', 'poor')[i % 2]} {animals[i % 4]} {i}" for i in range(40)]
    Path("probe.tsv").write_text("\n".join(probes), encoding="utf-8")


def test_a_pair_is_pretrained_and_probed_and_resumes(regard: Regard) -> None:
    write_files()
    command = ["ladder", "pretrain", "next-sentence", "data.train=text.txt", *MODEL, *PLAN, *PROBE, "--out", "lad"]
    said = regard(*command)
    assert said.code == 0, said.err
    assert "2/2: bert objective.sentences=none: masked tokens, perplexity" in said.out
    assert "Pairs that differ in one setting" in said.out
    ladder = json.loads(Path("lad/ladder.json").read_text(encoding="utf-8"))
    base, other = ladder["rows"]
    assert (base["name"], other["name"]) == ("bert", "bert objective.sentences=none")
    assert set(base["scores"]) == {"loss", "filled", "perplexity", "sentences"}
    assert "sentences" not in other["scores"]
    for row in (base, other):
        assert (row["cell"]["steps"], row["probe"]["seeds"]) == (2, 2)
        assert row["cell"]["recipe"]["data"]["tokenizer"] == base["cell"]["recipe"]["data"]["tokenizer"]
    assert other["scratch_cells"] == []  # the network is that of bert
    assert other["scratch"] == base["scratch"]
    assert [cell["seed"] for cell in base["scratch_cells"]] == [1, 2]
    tuned, scratch = ([cell["scores"]["loss"] for cell in base[name]] for name in ("tuned", "scratch_cells"))
    assert tuned != scratch
    assert base["tuned"][0]["recipe"] == base["scratch_cells"][0]["recipe"]
    (tuned_in,) = Path("lad/cells/bert").glob("probe-*/tuned")
    assert (tuned_in / "seed-1").is_dir()
    assert not (tuned_in / "seed-2").exists()  # its result stays
    (tuned_in / "seed-2.json").unlink()
    again = regard(*command, "--json")
    assert again.err.count("parameters on") == 1, again.err  # nothing else was run again
    found = json.loads(again.out)
    assert [row["probe"]["mean"] for row in found["rows"]] == [row["probe"]["mean"] for row in ladder["rows"]]
    assert "Pairs that differ" in Path(found["page"]).read_text(encoding="utf-8")
    changed = regard(*command, "plan.rate=2e-3")
    assert changed.code == 2
    assert "measured with other settings" in changed.err


@pytest.mark.slow
def test_every_family_and_pair_runs_side_by_side(regard: Regard) -> None:
    write_files()
    said = regard(
        *("ladder", "pretrain", "data.train=text.txt", *MODEL, *PLAN, *PROBE[:-1], 1, "--jobs", 2, "--out", "lad")
    )
    assert said.code == 0, said.err
    rows = json.loads(Path("lad/ladder.json").read_text(encoding="utf-8"))["rows"]
    assert [row["name"] for row in rows] == [entry.name for entry in select([])[0]]
    assert all(row["probe"]["seeds"] == row["scratch"]["seeds"] == 1 for row in rows)
    assert {row["family"]: row["learns"] for row in rows}["t5"] == "hidden spans"
    assert "Network and direction" in said.out


def test_names_select_families_and_pairs() -> None:
    entries, pairs = select(["electra", "next-sentence"])
    assert [entry.name for entry in entries] == ["bert", "electra", "bert objective.sentences=none"]
    assert pairs == [PAIRS["next-sentence"]]
    everything, all_pairs = select([])
    assert len(everything) == len(FAMILIES) + len(PAIRS)
    assert all_pairs == list(PAIRS.values())
    assert {name for names in GRID.values() for name in names} <= set(FAMILIES)
    assert {*SMALL, "bert", "gpt", "lstm", "masked-lstm"} == set(FAMILIES)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_entries_of_a_pair_differ_in_one_setting(pair: Any) -> None:
    before, after = ({one.name: one.value for one in tree(_recipe(entry, []))} for entry in pair.entries)
    assert [name for name in before if before[name] != after[name]] == [pair.setting]
    assert tuple(str(each[pair.setting]) for each in (before, after)) == pair.values


def test_all_families_but_albert_have_the_parameters_of_bert() -> None:
    vocab = 8000
    target = parameters(_sized(_recipe(FAMILIES["bert"], []), vocab))
    for entry in FAMILIES.values():
        config = _sized(_recipe(entry, []), vocab)
        fitted = fit_size(entry.name, config, target) if entry.fitted else config
        assert (abs(parameters(fitted) / target - 1) <= TOLERANCE) == (entry.family != "albert"), entry
    shared, apart = (parameters(_sized(_recipe(entry, []), vocab)) for entry in PAIRS["shared-layers"].entries)
    assert shared < apart < target


def test_one_tokenizer_has_what_every_family_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files()
    settings = ["data.train=text.txt", *MODEL, *PLAN]
    found = jobs(settings, probe_of(["probe=probe.tsv", "probe.labels=8"]), select([])[0], 2, 0.5, Path("lad"))
    (path,) = {job.cell.recipe.data.tokenizer for job in found}
    special = given_tokenizer(path).special_tokens
    assert special.mask is not None
    assert len(special.sentinels) == 100
    assert {job.cell.recipe.plan.minutes for job in found} == {0.5}
    assert {job.cell.part for job in found} == {"valid"}  # the test texts are left for the end
    sizes = {job.name: parameters(_sized(job.cell.recipe, given_tokenizer(path).size)) for job in found}
    fitted = [job.name for job in found if job.entry.fitted]
    assert all(abs(sizes[name] / sizes["bert"] - 1) <= TOLERANCE for name in fitted), sizes
    assert len({job.cell.out for job in found}) == len(found)
    assert all(job.seeds == (1, 2) for job in found)
    assert {job.name for job in found if job.relative_rate == pytest.approx(3)} == {"lstm", "masked-lstm"}
    one_rate = jobs([*settings, "plan.rate=1e-3"], Probe(), select(["lstm"])[0], 1, None, Path("lad"))
    assert [(job.relative_rate, job.cell.recipe.plan.rate) for job in one_rate] == [(1.0, 1e-3)]
    (probe,) = {job.probe for job in found}
    assert probe is not None
    assert len(Path(probe.train).read_text(encoding="utf-8").splitlines()) == 8
    assert probe_of(["probe=probe.tsv", "probe.labels=8"]).write(Path("lad")) == probe  # the same texts are drawn
    assert probe_of(["probe=probe.tsv", "probe.labels=9"]).write(Path("lad")).train != probe.train


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["brt"], 'Did you mean "bert"?'),
        (["bert"], "data.train is not set"),
        (["bert", "data.train=text.txt", "model=gpt"], "every family has its own"),
        (["bert", "data.train=text.txt", "objective.static=3"], "every family has its own"),
        (["bert", "data.train=text.txt", "plan.minutes=1"], "use --minutes and --seeds"),
        (["bert", "data.train=text.txt", "probe.labels=5"], "probe.train is not set"),
        (["bert", "data.train=text.txt", "probe=probe.tsv", "probe.steps=0"], "probe.steps=0: give 1 or more"),
        (["bert", "data.train=text.txt", "probe=probe.tsv", "probe.labels=1"], "no drawn text has the label"),
        (["bert", "data.train=text.txt", "probe=text.txt"], "expected label<TAB>text"),
        (["bert", "data.train=text.txt", "probe=no.csv"], "no.csv"),
        (["bert", "--trials", 2], "--rungs, --beam, --quality and --trials"),
    ],
)
def test_what_the_ladder_of_pretraining_refuses(regard: Regard, words: list[object], told: str) -> None:
    write_files()
    valid = ["probe.valid=probe.tsv"] if "probe.labels=1" in words else []
    said = regard("ladder", "pretrain", *words, *valid, "--out", "lad")
    assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert told in said.err
    assert not Path("lad/cells").exists()


def test_columns_that_the_probe_does_not_have_are_named_by_its_settings(tmp_path: Path) -> None:
    (tmp_path / "probe.csv").write_text("sentence,kind\na b,1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"name one with probe\.label=COLUMN"):
        Probe(train=str(tmp_path / "probe.csv")).write(tmp_path)


def test_a_family_with_a_higher_rate_is_fine_tuned_with_a_higher_rate(regard: Regard) -> None:
    write_files()
    run = Path("cell")
    said = regard("train", "pretrain", "model=lstm", "data.train=text.txt", "model.width=16", *PLAN, "--out", run)
    assert said.code == 0, said.err
    found = jobs(
        ["data.train=text.txt", *PLAN], Probe("probe.tsv", rate=1e-4), select(["lstm"])[0], 1, None, Path("lad")
    )
    (job,) = (replace(one, cell=replace(one.cell, out=run)) for one in found)
    recipe, _ = fine_tuning(job, warm_start_from(run), 1)
    assert recipe.plan.rate == pytest.approx(3e-4)


def test_a_probe_with_other_texts_has_other_results(tmp_path: Path) -> None:
    """A file that was changed keeps its name; the results of the old texts must not be read."""
    path, folders = tmp_path / "probe.tsv", list[Path]()
    for last in ("a good day", "a good day", "a good night"):
        texts = [f"{'good' if n % 2 else 'bad'}\tday {n}" for n in range(40)]
        path.write_text("\n".join([*texts, f"good\t{last}"]) + "\n", encoding="utf-8")
        folders.append(Path(Probe(train=str(path), labels=0).write(tmp_path / "out").train).parent)
    assert folders[0] == folders[1] != folders[2]
    assert "a good night" in "".join(file.read_text(encoding="utf-8") for file in folders[2].iterdir())


def cell(objective: str, **scores: float) -> dict[str, Any]:
    points = [{"step": 2, "seconds": 1.0, "value": 3.0}]
    recipe = {"objective": {"kind": objective}}
    return {
        "scores": scores,
        "recipe": recipe,
        "parameters": 10,
        "steps": 2,
        "training_seconds": 1.0,
        "curve": points,
        "examples": 5,
        "chance": "Chance: half.",
    }


def test_the_grid_and_what_diverged_are_shown() -> None:
    accuracy = [{**cell("classify", accuracy=value), "seed": 1} for value in (0.5, 0.7)]
    results = [
        Pretrained(FAMILIES["gpt"], cell("teacher", perplexity=9.0), accuracy, accuracy[:1], diverged=1),
        Pretrained(FAMILIES["lstm"], None),
        Pretrained(FAMILIES["roberta"], cell("masked", perplexity=8.0, filled=0.25), accuracy, accuracy),
        Pretrained(FAMILIES["masked-lstm"], cell("masked", perplexity=7.0, filled=0.5)),
    ]
    standing = PretrainingStanding(results, [], Probe(train="probe.tsv"), 2.0)
    families, grid = standing.tables()
    assert isinstance(grid.rows, list)  # type: ignore[union-attr]
    assert grid.rows == [  # type: ignore[union-attr]
        ["RNN", "lstm: diverged; probe –", "masked-lstm: perplexity 7, found 50.00%; probe –"],
        [
            "Transformer",
            "gpt: perplexity 9; probe 60.00 ± 14.14 % (1 diverged)",
            "roberta: perplexity 8, found 25.00%; probe 60.00 ± 14.14 %",
        ],
    ]
    assert [row[0] for row in families.rows] == ["gpt", "lstm", "roberta", "masked-lstm"]  # type: ignore[union-attr]
    assert result_line(results[1]) == "lstm: training diverged"
    assert "; probe 60.00 ± 14.14 %, from scratch 50.00%" in result_line(results[0])
    assert "from scratch" not in result_line(results[3])
    assert standing.numbers["rows"][0]["probe"]["mean"] == pytest.approx(0.6)
    assert len([section for section in standing.sections() if type(section).__name__ == "Curve"]) == 2
    without = PretrainingStanding([replace(results[0], tuned=(), scratch=())], [], Probe(), None)
    assert "There is no probe" in without.tables()[0].note  # type: ignore[union-attr]
    assert "probe" not in without.tables()[0].columns  # type: ignore[union-attr]


def test_a_variant_with_the_network_of_its_family_has_its_figures_from_scratch() -> None:
    base, other = PAIRS["next-sentence"].entries
    scratch = [cell("classify", accuracy=0.5)]
    results = [Pretrained(base, cell("masked", perplexity=9.0), scratch, scratch), Pretrained(other, None)]
    standing = PretrainingStanding(results, [PAIRS["next-sentence"]], Probe(train="probe.tsv"), None)
    assert [row["scratch"]["mean"] for row in standing.numbers["rows"]] == [0.5, 0.5]
    assert Entry("albert", changed="model.groups=0").own_network
    assert not other.own_network
