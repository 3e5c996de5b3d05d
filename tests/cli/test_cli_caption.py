"""`regard train scenes`, then `caption`, `look` and `eval` of the run: a tiny model, drawn images."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import regard as library
from regard.checks import FAILED, doctor
from regard.checks.adapters import loaded_calls
from regard.cli import main
from regard.data.example import Region
from regard.data.images import ImageField
from regard.data.scenes import Scenes
from regard.errors import UserError
from regard.models import CaptionerConfig
from regard.recipes import find_recipe
from regard.recording import record
from regard.render.image_view import png
from regard.report.glossary import WORDS
from regard.training.evaluate import evaluate
from regard.verbs import search

Regard = Callable[..., "object"]
DATA = ["data.train=40", "data.valid=6", "data.test=6", "data.size=32"]
MODEL = ["model.width=16", "model.embed=8", "model.blocks=2"]
PLAN = ["plan.steps=2", "plan.warmup=0", "plan.evaluate=2", "plan.samples=2", "plan.threads=1", "plan.batch_tokens=128"]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `regard train scenes` leaves."""
    path = tmp_path_factory.mktemp("scenes") / "run"
    assert main(["train", "scenes", *DATA, *MODEL, *PLAN, "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def images() -> list[np.ndarray]:
    return [one.image for one in Scenes(train=1, valid=1, test=3, size=32).load().test]


def test_a_run_leaves_a_report_and_an_image_to_try(run: Path) -> None:
    assert (run / "example.png").read_bytes().startswith(b"\x89PNG")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<image" in page
    assert WORDS["weights"] in page


def test_one_image_is_shown_word_by_word(regard: Regard, run: Path) -> None:
    said = regard("caption", run, run / "example.png", "--limit", 5)
    assert said.code == 0
    lines = said.out.splitlines()
    assert "example.png" in said.out
    assert sum(set(line) <= set("·░▒▓█ ") and len(line) > 15 for line in lines) >= 8  # 8 × 8 cells
    assert "of the largest weight" in lines[-1]
    looked = regard("look", run, run / "example.png", "--target", "a red circle")
    assert looked.out.splitlines()[1].split() == ["a", "red", "circle"]


def test_json_has_the_weights_of_each_word(regard: Regard, run: Path) -> None:
    said = regard("caption", run, run / "example.png", run / "example.png", "--beam", 2, "--limit", 4, "--json")
    first, second = map(json.loads, said.out.splitlines())
    assert first == second
    assert first["grid"] == [8, 8]
    assert len(first["weights"]) == len(first["words"]) <= 4
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in first["weights"])


def test_several_images_are_lines_and_one_page(regard: Regard, run: Path) -> None:
    said = regard("caption", run, run / "example.png", run / "example.png", "--limit", 3, "-o", "two.html")
    assert [line.split("\t")[0] for line in said.out.splitlines()] == [str(run / "example.png")] * 2
    page = Path("two.html").read_text(encoding="utf-8")
    assert page.count("<section") == 2
    assert regard("caption", run, run / "example.png", "-o", "one.svg").code == 0
    assert Path("one.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["caption", "{run}", "absent.png"], "error: absent.png"),
        (["caption", "{run}", "text.png"], "error: text.png: not a JPEG, PNG, WebP or GIF image"),
        (["caption", "{run}", "a.png", "b.png", "-o", "x.svg"], "several images are written as one page"),
        (["caption", "{run}", "a.png", "-o", "x.png"], "-o x.png: end the name in .html, .svg or .npz"),
        (["caption", "{run}", "folder"], "folder: a folder; give the image files in it, such as folder/*.jpg"),
        (["look", "{run}"], "a captioner looks at an image; for example: regard look"),
        (["caption", "{run}", "a.png", "--beam", "0"], "beam=0"),
        (["translate", "{run}"], "this is a captioner, which cannot translate; use: regard caption"),
        (["score", "{run}"], "a captioner, which cannot score; use: regard caption"),
        (["generate", "{run}", "a"], "a captioner, which cannot generate; use: regard caption"),
        (["embed", "{run}", "text.png"], "a captioner, which cannot embed; use: regard caption"),
        (["look", "{run}", "a.png", "--layer", "0"], "a captioner has one attention; leave out --layer."),
        (["look", "{run}", "a.png", "--data", "b", "--head", "0"], "leave out --head and --data."),
        (["caption", "{run}", "."], "error: .: a folder; give the image files in it"),
        (["train", "scenes", "model=seq2seq"], "model=seq2seq: does not fit data=scenes; use model=captioner"),
        (["caption", "{run}"], "IMAGE: give one or more image files; or --extremes 8"),
        (["caption", "{run}", "a.png", "--split", "valid"], "give --extremes 8, too"),
        (["caption", "{run}", "a.png", "--extremes", "2"], "--extremes 2: describes the recipe's own data"),
        (["caption", "{run}", "--extremes", "2", "-o", "a.svg"], "--extremes 2: is written as a page"),
        (["caption", "{run}", "--extremes", "2", "--split", "all", "-o", "a.html"], "--split all: no such part"),
        (["train", "dates", "model=captioner"], "model=captioner: does not fit data=dates; use model=seq2seq"),
        (["train", "scenes", "model.attention=hard", *DATA, *MODEL], "model.attention=hard; set objective=hard"),
    ],
)
def test_a_mistake_is_one_line(regard: Regard, run: Path, arguments: list[str], message: str) -> None:
    Path("text.png").write_text("no image", encoding="utf-8")
    Path("folder").mkdir()
    said = regard(*(argument.format(run=run) for argument in arguments))
    assert said.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1


def test_captions_are_printed_batch_by_batch(regard: Regard, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.verbs.captioning.AT_ONCE", 2)
    said = regard("caption", run, *[run / "example.png"] * 3, "absent.png", "--limit", 3)
    assert said.code == 2
    assert len(said.out.splitlines()) == 2
    assert "absent.png: no such file" in said.err


def test_the_best_and_the_worst_captions_are_a_page(
    regard: Regard, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.report.captions.caption_ciders", lambda hyps, refs: [3.0, 1.0, 5.0, 0.0, 4.0, 2.0])
    arguments = ("--extremes", 2, "--split", "valid", "--limit", 4, "-o", "page.html")
    said = regard("caption", run, *arguments, "--beside", run, "--json")
    found = json.loads(said.out)
    assert found["images"] == 6
    assert [(one["place"], one["captions"][0]["cider"]) for one in found["ranked"]] == [
        ("best 1", 5.0),
        ("best 2", 4.0),
        ("worst 1", 0.0),
        ("worst 2", 1.0),
    ]
    corpus = Scenes(train=40, valid=6, test=6, size=32).load()
    assert found["ranked"][0]["references"] == [corpus.valid[2].target]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("References: ") == 4
    assert page.count("CIDEr-D 5.00</text>") == 2  # a row of pictures for each model
    assert regard("caption", run, *arguments).out.splitlines()[1].split() == ["model", "BLEU-4", "CIDEr-D"]


def test_an_unknown_word_of_a_target_is_reported(regard: Regard, run: Path) -> None:
    said = regard("caption", run, run / "example.png", "--target", "a red zebra")
    assert said.out.splitlines()[1].split() == ["a", "red", "\N{REPLACEMENT CHARACTER}"]
    assert "1 token in line 1: not in this model's vocabulary" in said.err


def test_a_text_model_does_not_caption(regard: Regard, trained: Path) -> None:
    said = regard("caption", trained, "a.png")
    assert said.code == 2
    assert "this is a translator, which cannot caption; use: regard translate" in said.err


def test_evaluation_has_the_measures_of_captions(regard: Regard, run: Path) -> None:
    scores = json.loads(regard("eval", run, "--json", "--beam", 2).out)["scores"]
    assert {"exact", "pointing", "pointing_chance", "bleu4", "cider"} <= set(scores)
    assert 0 < scores["pointing_chance"] < 0.1
    assert find_recipe("flickr8k").metrics == ("bleu1", "bleu2", "bleu3", "bleu4", "cider")  # no regions are known


def test_pointing_compares_the_weights_of_each_word_with_its_region(run: Path) -> None:
    model = library.load(run)
    scenes = Scenes(train=1, valid=1, test=3, size=32).load().test
    looked = library.caption(model, [one.image for one in scenes], targets=[one.target for one in scenes])
    right, wrong = [], []
    for scene, found in zip(scenes, looked):
        row, column = np.divmod(found.weights.argmax(axis=1), 8)
        boxes = [(x / 8, y / 8, (x + 1) / 8, (y + 1) / 8) for x, y in zip(column, row)][: len(scene.target.split())]
        regions = tuple(Region(word, box) for word, box in enumerate(boxes))
        right.append(replace(scene, regions=regions))
        moved = tuple(Region(word, (*[(edge + 0.5) % 1 for edge in box[:2]], 1, 1)) for word, box in enumerate(boxes))
        wrong.append(replace(scene, regions=moved))
    assert evaluate(model, right, ("pointing",)).values == {"pointing": 1.0, "pointing_chance": 1 / 64}
    assert evaluate(model, wrong, ("pointing",)).values["pointing"] < 1


# -- in Python


@pytest.fixture(scope="session")
def model(run: Path) -> library.Loaded:
    return library.load(run)


def test_a_batch_of_images_is_captioned_as_each_alone(model: library.Loaded, images: list[np.ndarray]) -> None:
    for beam in (1, 3):
        together = library.caption(model, images, beam, limit=6)
        for one, image in zip(together, images):
            (alone,) = library.caption(model, [image], beam, limit=6)
            assert alone.tokens == one.tokens
            np.testing.assert_allclose(alone.weights, one.weights, atol=1e-5)


def test_images_and_captions_come_in_any_iterable(model: library.Loaded, images: list[np.ndarray]) -> None:
    listed = [one.text for one in library.caption(model, images, limit=6)]
    for given in (iter(images), np.stack(images)):
        assert [one.text for one in library.caption(model, given, limit=6)] == listed
    forced = library.caption(model, iter(images), targets=iter(listed))
    assert [one.text for one in forced] == listed
    with pytest.raises(UserError, match="this is one image"):
        library.caption(model, images[0])
    with pytest.raises(UserError, match=r"^images=3: this is of the type int; pass a list"):
        library.caption(model, 3)  # type: ignore[arg-type]


def test_without_alignment_the_captions_are_the_same_and_have_no_weights(
    model: library.Loaded, images: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = library.caption(model, images, limit=4)
    plain = library.caption(model, images, limit=4, align=False)
    assert [one.text for one in plain] == [one.text for one in found]
    assert all(one.weights is not None for one in found)
    assert all(one.weights is None for one in plain)
    monkeypatch.setattr(search, "_alignments", lambda *given: pytest.fail("an evaluation needs no weights"))
    evaluate(model, Scenes(train=1, valid=1, test=1, size=32).load().test, ("exact",))


def test_a_caption_that_is_given_has_the_weights_of_the_one_that_was_found(
    model: library.Loaded, images: list[np.ndarray]
) -> None:
    found = library.caption(model, images, limit=6)
    forced = library.caption(model, images, targets=[one.text for one in found])
    for one, other in zip(found, forced):
        assert other.words == one.words
        np.testing.assert_allclose(other.weights, one.weights, atol=1e-5)
        np.testing.assert_allclose(other.logps[: len(one.tokens)], one.logps[: len(one.tokens)], atol=1e-4)
        assert len(other.logps) == len(other.tokens) + 1  # with the end
        assert other.score == pytest.approx(other.logp / len(other.logps))


def test_a_tape_records_the_captions(model: library.Loaded, images: list[np.ndarray]) -> None:
    plain = library.caption(model, images, limit=5)
    with record(model.module) as tape:
        recorded = library.caption(model, images, limit=5)
    assert [one.text for one in recorded] == [one.text for one in plain]
    seen = library.view(tape, item=1)
    np.testing.assert_allclose(seen.layers[0].weights[0][: len(plain[1].tokens)], plain[1].weights, atol=1e-5)
    assert seen.columns[9] == "1,1"
    with record(model.module, rows=[1, 3]) as tape:
        library.caption(model, images, limit=5)
    some = library.view(tape, item=1)
    assert list(some.rows) == [seen.rows[1], seen.rows[3]]
    np.testing.assert_allclose(some.layers[0].weights[0], seen.layers[0].weights[0][[1, 3]], atol=1e-6)


def test_an_image_of_the_wrong_kind_is_refused(model: library.Loaded, images: list[np.ndarray]) -> None:
    with pytest.raises(UserError, match="pass a list of images"):
        library.caption(model, images[0])
    with pytest.raises(UserError, match="targets: 1 captions for 3 images"):
        library.caption(model, images, targets=["a"])
    with pytest.raises(UserError, match="source: should be images, numbers of shape"):
        model.logits(torch.tensor([[1, 4]]), source=torch.zeros(1, 5))
    pixels = torch.from_numpy(images[0])[None]
    assert model.logits(torch.tensor([[1, 4]]), source=pixels).shape[:2] == (1, 2)


def test_the_size_of_images_of_another_run_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageField, "load", lambda path: ImageField(4096))
    with pytest.raises(UserError, match=r"image\.json: its size is 4096, but the model has model\.image=32; restore"):
        library.load(run)


def test_features_of_another_grid_are_refused() -> None:
    settings = {"image": 4, "target_vocab": 9, "width": 8, "embed": 4, "positions": "none"}
    model = CaptionerConfig(encoder="features", grid=3, **settings).build()
    clips = CaptionerConfig(encoder="frames", grid=9, **settings).build()
    for cells in (4, 10):
        with pytest.raises(UserError, match=f"an image of {cells} × 4 numbers: model.encoder=features reads 9 × 4"):
            model.start(torch.zeros(1, cells, 4))
    model.start(torch.zeros(1, 9, 4))
    clips.start(torch.zeros(1, 4, 4))  # a clip may have fewer frames


def test_the_doctor_examines_a_captioner(model: library.Loaded) -> None:
    found = doctor(model.module, loaded_calls(model))
    assert [one for one in found if one.status == FAILED] == []


def test_an_image_is_read_from_a_file_as_from_an_array(
    model: library.Loaded, images: list[np.ndarray], tmp_path: Path
) -> None:
    path = tmp_path / "scene.png"
    path.write_bytes(png(images[0]))
    one, other = library.caption(model, [path, images[0]], limit=5)
    assert one.text == other.text
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
    assert one.view.name == str(path)
