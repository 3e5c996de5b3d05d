"""The models that come with regard: they load by name, they answer, and they are what was measured."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import UserError, caption, fill, generate, load, look, translate
from regard.cli import main
from regard.data.french import FIGURE, French
from regard.data.scenes import Scenes
from regard.data.stories import BOYS, GIRLS
from regard.file_io import load_tensors
from regard.shipped import HERE, SHIPPED, run_named
from regard.stored import WEIGHTS, given_tokenizer
from regard.training.evaluate import evaluate
from regard.training.run import Run
from regard.training.warm_start import warm_start_from

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import models

pytestmark = pytest.mark.slow  # `make journeys` runs it

MOST_BYTES = 6_000_000


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory in which no path has the name of a model."""
    monkeypatch.chdir(tmp_path)


def test_the_table_has_the_models_that_are_there_and_how_they_are_made() -> None:
    there = {path.name for path in HERE.iterdir() if (path / "recipe.json").is_file()}
    assert there == SHIPPED.keys() == models.MADE.keys()
    assert 100_000 < models.size(HERE) <= MOST_BYTES


@pytest.mark.parametrize("name", SHIPPED)
def test_weights_are_rounded_to_float16_and_computed_with_in_float32(name: str) -> None:
    model = load(name)
    assert str(model.path) == name
    (stored,) = HERE.glob(f"{name}/steps/*/{WEIGHTS}")
    tensors = load_tensors(stored)
    assert {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} == {torch.float16}
    loaded = model.module.state_dict()
    assert loaded.keys() == tensors.keys()
    for weight, tensor in tensors.items():
        assert loaded[weight].dtype == (torch.float32 if tensor.is_floating_point() else tensor.dtype)
        assert torch.equal(loaded[weight], tensor.to(loaded[weight].dtype)), weight


@pytest.mark.parametrize("name", SHIPPED)
def test_a_model_has_nothing_but_what_is_read(name: str) -> None:
    files = {path.relative_to(HERE / name).as_posix() for path in (HERE / name).rglob("*") if path.is_file()}
    step = (HERE / name / "latest").read_text().strip()
    fields = {file for file in files if file.startswith(f"steps/{step}/fields/")}
    own = {f"steps/{step}/{file}" for file in ("model.json", "weights.safetensors", "manifest.json")}
    assert files == {"recipe.json", "latest", *own, *fields}
    assert fields


def test_dates() -> None:
    assert [one.text for one in translate(load("dates"), ["3 février 2021", "March 14, 1998"])] == [
        "2021-02-03",
        "1998-03-14",
    ]
    views = look(load("dates"), "3 février 2021")
    assert views


def test_a_path_of_the_name_comes_first(tmp_path: Path) -> None:
    assert run_named(Path("dates")) == HERE / "dates"
    (tmp_path / "dates").mkdir()
    assert run_named(Path("dates")) == Path("dates")
    with pytest.raises(UserError, match="dates: has no checkpoint"):
        load("dates")


@pytest.mark.parametrize("name", ["datse", "../shipped/dates", "dates/recipe.json", "__init__.py", "Dates", "dates\n"])
def test_other_names_are_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(
        UserError, match=r"no such directory; name a run, such as runs/dates, or .*: dates, dates-plain"
    ):
        load(name)


def test_the_command_line_lists_shows_and_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in SHIPPED)
    assert "regard look dates" in said
    assert main(["show", "dates"]) == 0  # the recipe, and that a model has its name
    assert 'regard look dates "3 février 2021"' in capsys.readouterr().out
    assert main(["show", "dates-plain", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["run"], shown["recipe"], shown["settings"]["model.decoder"]) == ("dates-plain", "dates", "once")
    assert main(["look", "dates", "3 février 2021"]) == 0
    assert "2021-02-03" in capsys.readouterr().out
    assert main(["look", "datse", "3 février 2021"]) != 0
    assert "dates, dates-plain" in capsys.readouterr().err


def test_another_run_may_start_from_a_model() -> None:
    given = warm_start_from("dates")
    assert given.path == "dates"
    assert given.weights().keys() == load("dates").module.state_dict().keys()
    assert given_tokenizer("dates").size == given.tokenizers[1].size


@pytest.mark.parametrize("existing", ["refuse", "resume", "overwrite", "auto"])
def test_a_model_is_neither_resumed_nor_replaced(existing: str) -> None:
    with pytest.raises(UserError, match=r"a model that comes with regard.*from=dates"):
        Run(None, HERE / "dates", existing=existing)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["link", "link/x", "new"])
def test_nothing_is_written_among_the_models(place: str, tmp_path: Path) -> None:
    """Through a link of another name, into a model, or beside the models."""
    (tmp_path / "link").symlink_to(HERE / "french")
    (tmp_path / "new").symlink_to(HERE / "another")
    with pytest.raises(
        UserError, match=rf"a model that comes with regard.*from={'dates' if place == 'new' else 'french'}"
    ):
        Run(None, tmp_path / place, existing="overwrite")  # type: ignore[arg-type]


def test_the_same_training_writes_the_same_bytes(tmp_path: Path) -> None:
    small = ("data.train=200", "data.valid=20", "data.test=20", "data.languages=en,fr", "plan.steps=4")
    for turn in ("one", "two"):
        models.trained("dates", tmp_path / turn, small)
        models.ship(tmp_path / turn, tmp_path / f"{turn} written")
    one, two = (
        {file.relative_to(place): file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()}
        for place in (tmp_path / "one written", tmp_path / "two written")
    )
    assert one == two
    assert len(one) == 7


def french_sentences(count: int) -> list[Any]:
    """Sentences of the test set, whose words no training sentence has in this order."""
    return French(train=1, valid=1, test=count).load().test


def test_the_sentence_of_the_figure() -> None:
    """The sentence of Bahdanau et al. (2015, figure 3): its translation, and the weights of the reversed phrase."""
    model = load("french")
    (found,) = translate(model, [FIGURE[0]])
    assert found.text == FIGURE[1]
    view = look(model, *FIGURE)
    (weights,) = view.layers[0].weights  # of the one head
    strongest = {row: view.columns[int(place)] for row, place in zip(view.rows, weights.argmax(-1))}
    for english, french in {"European": "européenne", "Economic": "économique", "Area": "zone"}.items():
        assert strongest[f"▁{english}"] == f"▁{french}"
    assert strongest["▁agreement"] == "accord"
    assert (strongest["▁on"], strongest["▁signed"], strongest["▁August"]) == ("▁sur", "▁signé", "▁août")


def test_new_french_sentences() -> None:
    model, pairs = load("french"), french_sentences(100)
    found = translate(model, [pair.source for pair in pairs])
    assert sum(one.text == pair.target for one, pair in zip(found, pairs)) >= 90
    assert evaluate(model, pairs, ("aer",)).values["aer"] < 0.2


def test_the_wheel_has_the_models(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, root], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {info.filename: archive.read(info) for info in archive.infolist() if "/shipped/" in info.filename}
    files = [file for model in SHIPPED for file in (HERE / model).rglob("*") if file.is_file()]
    there = {f"regard/shipped/{file.relative_to(HERE).as_posix()}": file for file in files}
    for name, file in there.items():
        assert packed[name] == file.read_bytes(), name
    assert sum(map(len, packed.values())) <= MOST_BYTES


def test_a_story_goes_on_with_its_own_people_and_things() -> None:
    """The thing is where it was put, and the names are those of the story."""
    told = "Nora found a red ball in the forest. She put it in the box in the attic and went to the castle."
    (found,) = generate(load("stories"), [f'{told} Tom asked Nora, "Where is the ball?"'])
    assert "in the box" in found.text
    assert re.search(r"Tom opened the box and took the \w+ ball\.", found.text)  # it forgets colours
    assert {name for name in (*GIRLS, *BOYS) if name in found.text} == {"Nora", "Tom"}


def test_blanks_are_filled_from_the_story() -> None:
    """The pronoun of several things, and of one thing, which are named in the sentence before."""
    texts = {
        "Anna found some red keys in the park. She put [MASK] in the box in the hall.": "them",
        "Anna found a red key in the park. She put [MASK] in the box in the hall.": "it",
    }
    found = fill(load("blanks"), list(texts))
    assert [one.masks[0][0].text.strip() for one in found] == list(texts.values())


def test_a_drawn_scene() -> None:
    model, scenes = load("scenes"), Scenes(train=1, valid=1, test=60).load().test
    found = caption(model, [scene.image for scene in scenes])
    assert sum(one.text == scene.target for one, scene in zip(found, scenes)) >= 54
    assert evaluate(model, scenes, ("pointing",)).values["pointing"] > 0.9
