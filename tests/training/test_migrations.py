"""Runs of earlier formats: what a migration changes in settings, weights, the optimiser's state and the batch plan."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from kept.answers import among, answers, climbed, differences, files_of, resumed, shortened
from kept.own_parts import MINE, PoolConfig
from regard import migrations
from regard.checkpoint import FORMAT, OLDEST, _fingerprint, read_pointer
from regard.config import to_json
from regard.data.streams import Book
from regard.errors import UserError
from regard.file_io import load_tensors, read_json, save_tensors, write_json
from regard.migrations import IN_STATE, MIGRATIONS, MODEL, OWN, Migration, migrated, places, renamed
from regard.recipes import DATA, KINDS
from regard.recipes import pretraining as pretraining_recipes
from regard.stored import asked_recipe, average, stored_config, stored_recipe, stored_training
from regard.training.evaluate import evaluate
from regard.training.events import Finished
from regard.training.ladder.cells import Cell, measure
from regard.training.ladder.pretraining import Probe, _known_tokenizer
from regard.training.ladder.quality import evaluations, read_log
from regard.training.run import Run

FILES = Path(__file__).parent / "format-2"  # two runs of a small Transformer-XL, one of them with memory_zeros=true
KEPT = Path(__file__).parents[1] / "kept" / "format-2"


def test_every_earlier_format_has_a_migration() -> None:
    assert list(MIGRATIONS) == list(range(OLDEST, FORMAT))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs and their texts, in the current directory."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_with_the_default_opens_and_has_its_numbers(place: Path) -> None:
    assert read_json(Path("plain/recipe.json"))["model"]["memory_zeros"] is False
    (found,) = regard.score(regard.load("plain", device="cpu"), ["the heron waits"])
    assert found.total == pytest.approx(-42.61337, abs=1e-4)


def test_a_run_with_the_default_resumes(place: Path) -> None:
    *_, finished = Run(stored_recipe(Path("plain")), Path("plain"), "resume")
    assert isinstance(finished, Finished)
    last = evaluations(read_log(Path("plain")))[-1]
    assert (last["step"], last["loss"]) == (4, pytest.approx(3.03741, abs=1e-4))
    assert "memory_zeros" not in read_json(Path("plain/steps/000004/model.json"))
    assert read_json(Path("plain/recipe.json"))["format"] == FORMAT  # a resume alone rewrites it


def test_a_cell_of_a_ladder_with_the_default_is_read(place: Path) -> None:
    recipe = read_json(Path("plain/recipe.json"))
    del recipe["format"]
    cell = Cell("transformer-xl", 1, stored_recipe(Path("plain")), place / "cells/transformer-xl")
    cell.out.parent.mkdir()
    write_json(cell.result, {"beam": 1, "recipe": recipe, "curve": []})
    assert measure(cell, lambda run: pytest.fail("it is finished"))["curve"] == []


def test_a_cell_of_a_ladder_that_used_the_setting_is_to_be_removed(place: Path) -> None:
    cell = Cell("transformer-xl", 1, stored_recipe(Path("plain")), place / "cells/transformer-xl")
    cell.out.parent.mkdir()
    write_json(cell.result, {"beam": 1, "recipe": read_json(Path("zeros/recipe.json")), "curve": []})
    with pytest.raises(UserError, match=r"transformer-xl\.json: measured with other settings; remove it or choose ano"):
        measure(cell, lambda run: pytest.fail("it is finished"))


def test_a_result_has_the_recipe_of_the_present_format(place: Path) -> None:
    """The reports read the recipe of a result, which may lack a setting that is new."""
    recipe = read_json(Path("plain/recipe.json"))
    cell = Cell("transformer-xl", 1, stored_recipe(Path("plain")), place / "cells/transformer-xl")
    cell.out.parent.mkdir()
    del recipe["format"], recipe["plan"]["compile"]
    write_json(cell.result, {"beam": 1, "recipe": recipe, "curve": []})
    found = measure(cell, lambda run: pytest.fail("it is finished"))
    assert found["recipe"] == to_json(cell.recipe, KINDS)


def test_a_run_that_used_the_setting_is_replaced_if_the_user_says_so(place: Path) -> None:
    list(Run(stored_recipe(Path("plain")), Path("zeros"), "overwrite"))
    assert read_json(Path("zeros/recipe.json"))["format"] == FORMAT


def test_a_run_that_used_the_setting_is_refused(place: Path) -> None:
    dropped = r"model\.memory_zeros=true: it was dropped with the public directories of Transformer-XL"
    with pytest.raises(UserError, match=rf"zeros/recipe\.json: {dropped}.*; train the model again without it\.$"):
        regard.load("zeros", device="cpu")
    with pytest.raises(UserError, match=rf"model\.json: {dropped}"):
        stored_config(Path("zeros/steps/000004"))
    headed = {"kind": "headed", "body": read_json(Path("zeros/steps/000004/model.json"))}
    dropped = dropped.replace("model", r"model\.body", 1)  # by the place of the setting
    with pytest.raises(UserError, match=rf"^model\.json: {dropped}"):
        migrated(headed, 2, Path("model.json"), place=MODEL)


def test_a_setting_of_this_name_of_another_kind_stays() -> None:
    content = {"kind": "mine", "memory_zeros": True, "parts": [1]}
    assert migrated(dict(content), 2, Path("model.json")) == content


def test_a_new_run_has_no_migration() -> None:
    content = {"kind": "gpt", "memory_zeros": True}
    assert migrated(dict(content), FORMAT, Path("model.json")) == content


# -- the table --------------------------------------------------------------------------------------------------------


def _add(monkeypatch: pytest.MonkeyPatch, *rows: Migration) -> None:
    """As if the present format were so many formats ago, and these are what followed."""
    table = {FORMAT + at: row for at, row in enumerate(rows)}
    monkeypatch.setattr(migrations, "MIGRATIONS", {**MIGRATIONS, **table})
    monkeypatch.setattr(migrations, "FORMAT", FORMAT + len(rows))


def test_migrations_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is that of the format after it, and the settings that a migration reads are those of its own format."""

    def wider(node: dict, place: tuple[str, ...]) -> None:
        node["width"] = 2 * node.pop("size")

    def second(name: str, model: dict, part: str) -> str | None:
        return None if name.startswith("old") else f"{name}.{model['width']}"

    _add(
        monkeypatch,
        Migration(settings=wider, weight=lambda name, model, part: f"{name}.{part}.{model['size']}"),
        Migration(weight=second),
    )
    model, path = {"kind": "mine", "size": 3}, Path("step")
    assert migrated(json.loads(json.dumps(model)), FORMAT, path) == {"kind": "mine", "width": 6}
    assert renamed({"a": 1, "old": 2}, FORMAT, model, path) == {"a.model.3.6": 1}
    assert renamed({"a": 1}, FORMAT + 1, {"kind": "mine", "width": 6}, path) == {"a.6": 1}
    state = {
        "optimizer/model.a/exp_avg": 1,
        "optimizer/model.old/exp_avg": 2,
        "optimizer/own.a/step": 3,
        "objective/a": 4,
        "squares.a": 5,
        "lanes/0/0": 6,
    }
    assert renamed(state, FORMAT, model, path, {}, IN_STATE) == {
        "optimizer/model.a.model.3.6/exp_avg": 1,
        "optimizer/own.a.objective.3.6/step": 3,
        "objective/a.objective.3.6": 4,
        "squares.a.model.3.6": 5,
        "lanes/0/0": 6,
    }
    assert model == {"kind": "mine", "size": 3}


def test_a_node_is_changed_after_those_in_it_and_what_it_becomes_is_not_changed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def settings(node: dict, place: tuple[str, ...]) -> None:
        seen.append(place)
        if place == MODEL:
            inner = dict(node)
            node.clear()
            node |= {"kind": "model", "body": inner, "heads": {}}
        if node["kind"] == "book":
            node["cut"] = node.pop("window")
        if not place:
            node["predict"] = {"kind": "next", "window": node["data"].pop("cut")}

    _add(monkeypatch, Migration(settings=settings))
    recipe = {
        "kind": "recipe",
        "data": {"kind": "book", "window": 8},
        "model": {"kind": "bilstm", "extractor": {"kind": "gpt"}},
    }
    assert migrated(recipe, FORMAT, Path()) == {
        "kind": "recipe",
        "data": {"kind": "book"},
        "predict": {"kind": "next", "window": 8},
        "model": {"kind": "model", "body": {"kind": "bilstm", "extractor": {"kind": "gpt"}}, "heads": {}},
    }
    assert sorted(seen) == [(), ("data",), ("model",), ("model", "extractor")]
    assert seen.index(("model", "extractor")) < seen.index(("model",)) < seen.index(())


def test_the_recipe_as_it_was_asked_for_is_changed_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(node: dict, place: tuple[str, ...]) -> None:
        if place == MODEL:
            del node["old"]

    list(Run(stored_recipe(Path("plain")), Path("plain"), "auto"))
    content = read_json(Path("plain/recipe.json"))
    for recipe in (content, content["asked"]):
        recipe["model"]["old"] = 1
    write_json(Path("plain/recipe.json"), content)
    _add(monkeypatch, Migration(settings=settings))
    assert asked_recipe(Path("plain")) == stored_recipe(Path("plain"))


def test_the_digest_is_the_first_that_concerns_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Batches:
        digest = "now"

    _add(
        monkeypatch,
        Migration(digest=lambda batches: None),
        Migration(digest=lambda batches: "of format 4" if isinstance(batches, Batches) else None),
        Migration(digest=lambda batches: "of format 5"),
        Migration(),
    )
    assert migrations.stored_digest(Batches(), FORMAT) == "of format 4"
    assert migrations.stored_digest(Batches(), FORMAT + 2) == "of format 5"
    assert migrations.stored_digest(Batches(), FORMAT + 3) == "now"


def test_two_weights_with_one_new_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _add(monkeypatch, Migration(weight=lambda name, model, part: name.removeprefix("left.").removeprefix("right.")))
    path, message = Path("weights.safetensors"), "left.a and right.a are both a in the present format; restore"
    with pytest.raises(UserError, match=rf"^weights\.safetensors: {message}"):
        renamed({"left.a": 1, "right.a": 2, "b": 3}, FORMAT, {"kind": "gpt"}, path)
    state = {"optimizer/model.left.a/step": 1, "optimizer/model.right.a/step": 2}
    with pytest.raises(UserError, match=r"are both optimizer/model\.a/step in"):
        renamed(state, FORMAT, {"kind": "gpt"}, path, {}, IN_STATE)


@pytest.mark.parametrize("model", [{"kind": "gpt"}, {"kind": []}, {"kind": "gpt", "width": None}, [], None])
def test_a_file_that_no_format_wrote_is_named(monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    """A migration reads settings that nobody has checked yet."""

    def wider(node: dict, place: tuple[str, ...]) -> None:
        node["width"] += 1

    def name(name: str, model: dict, part: str) -> str:
        return f"{name}{model['width'] + 1}"

    _add(monkeypatch, Migration(settings=wider, weight=name))
    message = rf"^step/x: not what format {FORMAT} wrote; restore the file or use another checkpoint\.$"
    if model:
        with pytest.raises(UserError, match=message):
            migrated(json.loads(json.dumps(model)), FORMAT, Path("step/x"), {"model": {"mine"}}, MODEL)
    with pytest.raises(UserError, match=message):
        renamed({"a": 1}, FORMAT, model, Path("step/x"))


def test_errors_of_weights_name_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    _add(monkeypatch, Migration(weight=lambda name, model, part: pytest.fail("the settings are refused")))
    path, model = Path("weights.safetensors"), {"kind": "gpt", "memory_zeros": True}
    with pytest.raises(UserError, match=r"^weights\.safetensors: model\.memory_zeros=true: it was dropped"):
        renamed({"a": 1}, 2, model, path)


def test_a_model_that_is_nested_without_end_is_no_crash(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`regard export --average` reads the weights of several steps, and the settings of one."""
    depth = 600  # `json` reads as many; a copy of them needs twice the depth of calls
    deep = json.loads('{"body":' * depth + "1" + "}" * depth)
    step = Path("plain/steps/000002")
    (step / "model.json").write_text(json.dumps(deep))
    _sign(step)
    assert average(Path("plain"), 1)
    _add(monkeypatch, Migration(weight=lambda name, model, part: name))
    with pytest.raises(UserError, match="not what format 2 wrote"):
        renamed({"a": 1}, 2, deep, Path("weights.safetensors"))


# -- kept runs, as if format 2 had stored them otherwise --------------------------------------------------------------

Kept = Callable[[str], tuple[Path, dict[str, Any]]]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """Unpacks a kept run or ladder into the current directory; gives its path, and what is asked of it and expected."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").symlink_to(KEPT / "data")
    threads = torch.get_num_threads()

    def unpack(name: str) -> tuple[Path, dict[str, Any]]:
        with zipfile.ZipFile(KEPT / "stored" / f"{name}.zip") as packed:
            packed.extractall(tmp_path)
        expected = json.loads((KEPT / "expected" / f"{name}.json").read_text(encoding="utf-8"))
        return Path("ladders" if name.startswith("ladder-") else "runs", name), expected

    with among(tmp_path):
        yield unpack
    torch.set_num_threads(threads)  # a run sets the number that its plan has


def _check_answers(run: Path, expected: dict[str, Any], kinds: Any = None) -> None:
    said = answers(run, expected["verb"], expected["given"], expected["targets"], kinds)
    assert not differences(expected["answers"], json.loads(json.dumps(shortened(said))))


def _check_resumed(run: Path, expected: dict[str, Any], kinds: Any = None) -> None:
    became = json.loads(json.dumps(shortened(resumed(run, kinds))))
    assert not differences(expected["resumed"], became)
    assert became["weights"].keys() == expected["resumed"]["weights"].keys()  # the present names
    last = run / "steps" / (read_pointer(run, "latest") or "")
    assert read_json(last / "manifest.json")["format"] == FORMAT


def _sign(step: Path) -> None:
    """Put what the files of a step are now into its manifest."""
    manifest = read_json(step / "manifest.json")
    names = [path.relative_to(step).as_posix() for path in step.rglob("*") if path.is_file()]
    files = {name: _fingerprint(step / name) for name in names if name != "manifest.json"}
    write_json(step / "manifest.json", {**manifest, "files": files})


def _change_settings(run: Path, change: Callable[[dict], None]) -> None:
    """Change every object of the recipe and of the models."""

    def change_all(node: object) -> None:
        for inner in node.values() if isinstance(node, dict) else ():
            change_all(inner)
        if isinstance(node, dict):
            change(node)

    for path in (run / "recipe.json", *run.glob("steps/*/model.json")):
        content = read_json(path)
        change_all(content)
        write_json(path, content)


def _rename_weights(run: Path, other: Callable[[str], str], state: Callable[[str], str] | None = None) -> None:
    """Give the weights, and the state of the trainer, other names. Without `state`, the optimiser's are as theirs."""

    def of_state(place: str) -> str:
        begin = next((one for one in IN_STATE if place.startswith(one)), None)
        if begin is None:
            return place
        weight, slash, key = place.removeprefix(begin).partition("/")
        return f"{begin}{other(weight)}{slash}{key}"

    for step in run.glob("steps/*"):
        renames = {"weights.safetensors": other, "training/trainer.safetensors": state or of_state}
        for file, rename in renames.items():
            found = {rename(name): value for name, value in load_tensors(step / file).items()}
            save_tensors(step / file, found)


@pytest.mark.parametrize("name", ["transformer-tied", "text-tied", "professor", "electra", "glove"])
def test_a_run_with_other_names_and_another_digest_opens_and_resumes(
    name: str, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if format 2 had called weights, a setting and a field otherwise, and had counted its batches otherwise."""
    run, expected = kept(name)

    def thick(node: dict) -> None:
        if "width" in node:
            node["thickness"] = node.pop("width")

    _change_settings(run, thick)
    _rename_weights(run, lambda name: "net_" + name.replace(".", "_of_the_"))
    for step in run.glob("steps/*"):
        state = read_json(step / "training/state.json")
        write_json(step / "training/state.json", {**state, "data": _counted_otherwise(state["data"])})
        for path in step.glob("fields/*.json"):
            path.rename(path.with_name(f"the-{path.name}"))
        _sign(step)

    def width(node: dict, place: tuple[str, ...]) -> None:
        if "thickness" in node:
            node["width"] = node.pop("thickness")

    parts = set()

    def weight(name: str, model: dict, part: str) -> str:
        assert model["thickness"] > 0
        parts.add(part)
        return name.removeprefix("net_").replace("_of_the_", ".")

    with pytest.raises(UserError, match="thickness"):
        regard.load(run)
    other = Migration(width, weight, lambda name: f"the-{name}", lambda batches: _counted_otherwise(batches.digest))
    monkeypatch.setitem(MIGRATIONS, 2, other)
    _check_answers(run, expected)
    _check_resumed(run, expected)
    with among(run.parents[1]):
        assert Run(None, run, "resume").state.step == expected["resumed"]["step"]  # its data now has the present digest
    assert parts == {"model", "objective"} if name in ("professor", "electra") else {"model"}


def _counted_otherwise(digest: str) -> str:
    return hashlib.sha256(f"otherwise {digest}".encode()).hexdigest()


@pytest.mark.parametrize("name", ["text-tied", "headed-lstm", "text-both", "features"])
def test_the_weights_of_a_family_are_renamed_wherever_it_stands(
    name: str, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recurrent language model alone, under a head, in both directions, and as the extractor of a tagger."""
    run, expected = kept(name)
    begins = {
        "text-tied": [""],
        "headed-lstm": ["body."],
        "text-both": ["onward.", "returning."],
        "features": ["body.extractor.body.onward.", "body.extractor.body.returning."],
    }[name]

    def other(name: str) -> str:
        begin = next((one for one in begins if name.startswith(f"{one}rnn.")), None)
        return name if begin is None else f"{begin}cells.{name.removeprefix(f'{begin}rnn.')}"

    _rename_weights(run, other)
    for step in run.glob("steps/*"):
        _sign(step)

    def weight(name: str, model: dict, part: str) -> str:
        begin, inner = [(begin, inner) for begin, inner in places(model) if name.startswith(begin)][-1]
        rest = name.removeprefix(begin)
        ours = inner["kind"] == "recurrent" and rest.startswith("cells.")
        return f"{begin}rnn.{rest.removeprefix('cells.')}" if ours else name

    with pytest.raises(UserError, match="cells"):
        regard.load(run)
    monkeypatch.setitem(MIGRATIONS, 2, Migration(weight=weight))
    _check_answers(run, expected)
    _check_resumed(run, expected)


def test_the_places_of_models() -> None:
    gpt, lstm = {"kind": "gpt"}, {"kind": "recurrent", "direction": "both"}
    both = {"kind": "directions", "body": lstm}
    reader = {"kind": "bilstm", "extractor": lstm}
    headed = {"kind": "headed", "body": reader, "head": {"kind": "crf"}}
    assert list(places(gpt)) == [("", gpt)]
    assert list(places({"kind": "bilstm", "extractor": gpt}))[1:] == [("extractor.body.", gpt)]
    assert list(places({"kind": "bilstm", "extractor": None})) == [("", {"kind": "bilstm", "extractor": None})]
    assert list(places(headed)) == [
        ("", headed),
        ("body.", reader),
        ("body.extractor.body.", both),
        ("body.extractor.body.onward.", lstm),
        ("body.extractor.body.returning.", lstm),
    ]
    mine = {"kind": f"{OWN}mine", "body": gpt}
    assert list(places(mine)) == [("", mine)]  # how it names the weights of a model inside, only the user knows


def test_a_shared_weight_that_was_stored_by_its_other_name_is_resumed(kept: Kept) -> None:
    """The optimiser stores a weight by the first of its names, and the order of the layers may change."""
    run, expected = kept("text-both")
    shared = ("embedding.", "readout_.")

    def other(place: str) -> str:
        return place.replace(".onward.", ".returning.") if place.split(".onward.")[-1].startswith(shared) else place

    _rename_weights(run, lambda name: name, other)
    for step in run.glob("steps/*"):
        assert "optimizer/model.returning.embedding.weight/exp_avg" in load_tensors(
            step / "training/trainer.safetensors"
        )
        _sign(step)
    _check_resumed(run, expected)


def test_weights_beside_the_model_that_do_not_fit_are_named(kept: Kept) -> None:
    run, _ = kept("electra")
    _rename_weights(run, lambda name: name, lambda place: place.replace("objective/project.", "objective/projection."))
    for step in run.glob("steps/*"):
        _sign(step)
    model = regard.load(run, device="cpu")
    with pytest.raises(UserError, match=r"training/trainer\.safetensors: objective/project\.bias is absent, but the m"):
        evaluate(model, list(model.examples()[1]), ("loss",))


# -- parts of a user's own --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GptOfMine(PoolConfig):
    """A model that has the name of one of ours, and the setting that this one has lost."""

    memory_zeros: bool = False


def test_a_model_of_a_users_own_is_not_migrated(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    run, expected = kept("own")

    def mine(node: dict) -> None:
        if node.get("kind") == "pool":
            node |= {"kind": "gpt", "memory_zeros": True}

    _change_settings(run, mine)
    for step in run.glob("steps/*"):
        _sign(step)
    settings = MIGRATIONS[2].settings
    monkeypatch.setitem(MIGRATIONS, 2, Migration(settings, lambda name, model, part: f"ours.{name}"))
    kinds = {**MINE, "model": {"gpt": GptOfMine}}
    assert regard.load(run, kinds=kinds).module.config.memory_zeros is True
    _check_answers(run, expected, kinds)
    _check_resumed(run, expected, kinds)
    assert stored_recipe(run, {**KINDS, **kinds}).model.memory_zeros is True


def test_only_kinds_of_a_users_own_are_left_alone() -> None:
    """Whose a kind is follows from its table: that of the place where it stands."""
    ours, zeros = {"kind": "gpt"}, {"kind": "gpt", "memory_zeros": True}
    own = {"data": {"gpt"}, "model": {"mine"}}
    recipe = {"kind": "recipe", "data": dict(zeros), "model": {"kind": "mine", "body": {**ours, "memory_zeros": False}}}
    assert migrated(recipe, 2, Path(), own) == {
        "kind": "recipe",
        "data": zeros,
        "model": {"kind": "mine", "body": ours},
    }
    with pytest.raises(UserError, match=r"model\.memory_zeros=true"):
        migrated({"kind": "recipe", "data": dict(zeros), "model": dict(zeros)}, 2, Path(), own)
    for at in (("model", "body"), ("model", "reader")):  # a setting of a user's own may have any name
        node = {"kind": "recipe", "model": {"kind": "mine", at[1]: dict(zeros)}}
        migrated(node, 2, Path(), {"model": {"gpt", "mine"}})
        assert node["model"][at[1]] == zeros


def test_weights_of_a_users_own_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def weight(name: str, model: dict, part: str) -> str:
        begin, inner = [(begin, inner) for begin, inner in places(model) if name.startswith(begin)][-1]
        return f"{begin}net.{name.removeprefix(begin)}" if inner["kind"] == "gpt" else name

    _add(monkeypatch, Migration(weight=weight))
    gpt, own = {"kind": "gpt"}, {"model": {"gpt"}}
    headed = {"kind": "headed", "body": gpt, "head": {"kind": "class"}}
    for model, name, new in ((gpt, "a", "net.a"), (headed, "body.a", "body.net.a")):
        assert renamed({name: 1}, FORMAT, model, Path()) == {new: 1}
        assert renamed({name: 1}, FORMAT, model, Path(), own) == {name: 1}


def test_weights_that_an_objective_of_a_users_own_trains_keep_their_names(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = kept("professor")
    monkeypatch.setitem(MIGRATIONS, 2, Migration(weight=lambda name, model, part: f"new.{name}"))
    (step,) = run.glob("steps/*")
    ours = {name.split(".")[0] for name in stored_training(step, stored_recipe(run).objective)}
    assert {"objective/new", "optimizer/own", "optimizer/model"} <= ours
    assert "objective/shrink" not in ours
    mine = stored_training(step, object())
    assert {"objective/shrink.weight", "optimizer/model.new.bridge.bias/step", "optimizer/own.shrink.weight/step"} <= {
        *mine
    }


# -- the ladder of pre-training ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaterBook(Book):
    """The running text of a later version, with one more setting."""

    stride: int = 0


@dataclass(frozen=True)
class LaterProbe(Probe):
    stride: int = 0


def test_a_ladder_of_a_version_without_a_setting_is_completed(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokenizer is found, and its probe is that of the folder that is there."""
    place, expected = kept("ladder-pretraining")
    before = files_of(place)
    monkeypatch.setitem(DATA, "book", LaterBook)
    monkeypatch.setattr(pretraining_recipes, "Book", LaterBook)
    found = climbed(expected["command"], place)
    assert not differences(expected["cells"], json.loads(json.dumps(shortened(found))))
    after = files_of(place)
    assert {name for name in after if name.startswith(("tokenizer-", "probe-"))} == {
        name for name in before if name.startswith(("tokenizer-", "probe-"))
    }
    assert all(after[name] == content for name, content in before.items() if name.startswith("cells/gpt/"))


def test_the_tokenizer_of_a_ladder_is_found_if_its_other_cells_lack_a_setting(kept: Kept) -> None:
    place, expected = kept("ladder-pretraining")
    settings = [one for one in expected["command"].split() if one.startswith(("data.", "model."))]
    (path,) = place.glob("tokenizer-*.json")
    assert _known_tokenizer([*settings, "objective.sentences=next"], place) == str(path)  # gpt has no such setting
    assert not _known_tokenizer([*settings, "data.vocab=9"], place)
    path.unlink()
    assert not _known_tokenizer(settings, place)


def test_a_setting_that_a_later_version_adds_to_the_probe_is_in_its_name_only_if_it_is_changed() -> None:
    given = {"train": "labels.tsv", "steps": 4}
    assert Probe(**given).key == vars(Probe(**given))
    assert LaterProbe(**given).key == Probe(**given).key
    assert LaterProbe(**given, stride=2).key == {**Probe(**given).key, "stride": 2}
