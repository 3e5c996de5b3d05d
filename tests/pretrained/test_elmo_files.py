"""ELMo in its public form: a file made here, compared with the equations written out in plain loops."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.cli import main
from regard.errors import UserError
from regard.pretrained.elmo import write_elmo
from regard.verbs import embed, export, fill, generate, load, score
from regard.verbs.occurrences import marked_occurrence, occurrence_layers
from regard.verbs.words import embed_words, iterate_words

h5py = pytest.importorskip("h5py")

LONGEST, CELLS, WIDTH, EMBED, KERNELS = 8, 6, 4, 3, ((1, 3), (3, 5))
LINES = ["ab cdefghijk é", "a", "", "ba ab <S> a b", "x yy"]
FIXTURE = Path(os.environ.get("REGARD_DATA", "")) / "elmo_fixture"


def options(skip: bool, clip: float | None = 0.5) -> dict[str, Any]:
    cnn = {"activation": "relu", "filters": [list(one) for one in KERNELS], "n_highway": 1, "n_characters": 262}
    lstm = {"dim": CELLS, "projection_dim": WIDTH, "n_layers": 2, "cell_clip": clip, "proj_clip": clip}
    return {
        "lstm": {**lstm, "use_skip_connections": skip},
        "char_cnn": {**cnn, "embedding": {"dim": EMBED}, "max_characters_per_token": LONGEST},
    }


def datasets() -> dict[str, Any]:
    """Random weights by their public names."""
    draw = np.random.default_rng(5)
    total = sum(count for _, count in KERNELS)
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, EMBED)}
    for number, (kernel, count) in enumerate(KERNELS):
        shapes |= {f"CNN/W_cnn_{number}": (1, kernel, EMBED, count), f"CNN/b_cnn_{number}": (count,)}
    for name in ("carry", "transform"):
        shapes |= {f"CNN_high_0/W_{name}": (total, total), f"CNN_high_0/b_{name}": (total,)}
    shapes |= {"CNN_proj/W_proj": (total, WIDTH), "CNN_proj/b_proj": (WIDTH,)}
    for direction in range(2):
        for depth in range(2):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"
            shapes |= {f"{place}/W_0": (2 * WIDTH, 4 * CELLS), f"{place}/B": (4 * CELLS,)}
            shapes[f"{place}/W_P_0"] = (CELLS, WIDTH)
    return {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a directory in the public form."""

    def make(weights: dict[str, Any] | None = None, **settings: Any) -> Path:
        place = tmp_path / "elmo"
        place.mkdir(exist_ok=True)
        (place / "options.json").write_text(json.dumps(options(**{"skip": True, **settings})))
        with h5py.File(place / "some_weights.hdf5", "w") as file:
            for name, array in (datasets() if weights is None else weights).items():
                file.create_dataset(name, data=array)
        return place

    return make


# -- the equations, one number after the other, in float64 ------------------------------------------------------------


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def spelled(word: str) -> list[int]:
    """Ids that count from 0, as the table of the file does: bytes, 256 and 257 sentence, 258 and 259 word, 260 rest."""
    inside = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode())[: LONGEST - 2])
    return [258, *inside, 259] + [260] * (LONGEST - 2 - len(inside))


def vector(word: str, w: dict[str, Any]) -> Any:
    characters = [w["char_embed"][one] for one in spelled(word)]
    found = []
    for number, (kernel, count) in enumerate(KERNELS):
        for each in range(count):
            sums = []
            for start in range(LONGEST - kernel + 1):
                window = sum(characters[start + k] @ w[f"CNN/W_cnn_{number}"][0, k, :, each] for k in range(kernel))
                sums.append(window + w[f"CNN/b_cnn_{number}"][each])
            found.append(max(*sums, 0.0))
    x = np.array(found)
    gate = sigmoid(x @ w["CNN_high_0/W_carry"] + w["CNN_high_0/b_carry"])
    x = gate * np.maximum(x @ w["CNN_high_0/W_transform"] + w["CNN_high_0/b_transform"], 0) + (1 - gate) * x
    return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]


def run(lines: list[str], w: dict[str, Any], skip: bool, clip: float, carry: int) -> tuple[list[Any], int]:
    """The layers of each line, (words, 3, 2 · width), and how many numbers were clipped."""
    states: dict[Any, Any] = {}
    results, clipped = [], 0
    for row, line in enumerate(lines):
        words = ["<S>", *line.split(), "</S>"]
        vectors = [vector(word, w) for word in words]
        layers = [np.array([np.concatenate([one, one]) for one in vectors])]
        sides: list[list[Any]] = [[], []]
        for direction in range(2):
            inputs = vectors[::-1] if direction else vectors
            for depth in range(2):
                place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"
                key = (row % carry if carry else row, direction, depth)
                h, c = states.get(key, (np.zeros(WIDTH), np.zeros(CELLS)))
                outputs = []
                for x in inputs:
                    i, j, f, o = np.split(np.concatenate([x, h]) @ w[f"{place}/W_0"] + w[f"{place}/B"], 4)
                    c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
                    clipped += int((abs(c) > clip).sum())
                    c = np.clip(c, -clip, clip)
                    h = (sigmoid(o) * np.tanh(c)) @ w[f"{place}/W_P_0"]
                    clipped += int((abs(h) > clip).sum())
                    h = np.clip(h, -clip, clip)
                    outputs.append(h + x if skip and depth else h)
                states[key] = (h, c)
                inputs = outputs
                sides[direction].append(np.array(outputs[::-1] if direction else outputs))
        layers += [np.concatenate(both, -1) for both in zip(*sides)]
        results.append(np.stack(layers, 1)[1:-1])
    return results, clipped


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("carry", [0, 2])
def test_the_words_of_a_file_are_those_of_the_equations(folder: Callable[..., Path], skip: bool, carry: int) -> None:
    model = load(folder(skip=skip))
    weights = {name: array.astype(np.float64) for name, array in datasets().items()}
    expected, clipped = run(LINES, weights, skip, 0.5, carry)
    assert clipped
    found = embed_words(model, LINES, "all", carry)
    for line, one, other in zip(LINES, found, expected, strict=True):
        assert one.words == tuple(line.split())
        assert [line[start:end] for start, end in one.spans] == line.split()
        np.testing.assert_allclose(one.vectors, other.reshape(one.vectors.shape), atol=1e-5, rtol=0)


def test_lines_are_read_as_they_arrive(folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """With a carried state two lines are read at a time, and their vectors are ready before the next line is read."""
    place = folder()
    expected = embed_words(load(place), LINES, carry=2)
    arrived: list[str] = []
    parts = iterate_words(load(place), ([arrived.append(line) or line] for line in LINES), carry=2)  # type: ignore[func-returns-value]
    for end, part in zip((2, 4, 5), parts, strict=True):
        assert arrived == LINES[:end]
        for one, other in zip(part, expected[end - len(part) : end], strict=True):
            assert one.words == other.words
            np.testing.assert_array_equal(one.vectors, other.vectors)
    (place / "lines").write_text("\n".join(LINES), encoding="utf-8")
    assert main(["embed", str(place), str(place / "lines"), "--words", "--carry", "2", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["line"] for one in shown] == [1, 2, 3, 4, 5]
    for one, other in zip(shown, expected):
        words = one.get("words", [])  # a blank line has none
        np.testing.assert_allclose([word["vector"] for word in words], other.vectors.tolist(), rtol=1e-6)


def test_a_file_without_limits_clips_nothing(folder: Callable[..., Path]) -> None:
    model = load(folder(clip=None))
    weights = {name: array.astype(np.float64) for name, array in datasets().items()}
    expected, _ = run(LINES, weights, True, 1e9, 0)
    for one, other in zip(embed_words(model, LINES), expected):
        np.testing.assert_allclose(one.vectors, other[:, -1].reshape(one.vectors.shape), atol=1e-5, rtol=0)


def test_layers_and_lines(folder: Callable[..., Path]) -> None:
    """first, mix and last are parts of all; the vector of a line is the mean of its words."""
    model = load(folder())
    whole = embed_words(model, LINES, "all")
    for name, of in {"first": lambda x: x[:, 0], "last": lambda x: x[:, -1], "mix": lambda x: x.mean(1)}.items():
        for one, each in zip(embed_words(model, LINES, name), whole):
            np.testing.assert_allclose(one.vectors, of(each.vectors), atol=1e-6)
        lines = embed(model, LINES, layers=name)
        assert lines.vectors.shape == (len(LINES), 2 * WIDTH)
        np.testing.assert_allclose(lines.vectors[0], of(whole[0].vectors).mean(0), atol=1e-6)
        assert not lines.vectors[2].any()  # a blank line has no words
    assert embed(model, LINES, layers="all", pool="tokens").vectors.shape == (11, 3, 2 * WIDTH)
    assert embed(model, [], layers="all").vectors.shape[0] == 0
    assert embed_words(model, []) == []


def test_several_words_in_asterisks_have_the_mean_of_their_vectors(folder: Callable[..., Path]) -> None:
    model = load(folder(), "cpu")
    found = occurrence_layers(model, [marked_occurrence("a *ab, x* cdef")])
    (words,) = embed_words(model, ["a ab, x cdef"], "all")
    for layer, expected in zip(found, words.vectors[1:3].mean(0), strict=True):
        np.testing.assert_allclose(layer[0].numpy(), expected, atol=1e-6)


def test_what_is_written_is_what_was_read(folder: Callable[..., Path], tmp_path: Path) -> None:
    done = export(folder(skip=False), tmp_path / "again", to="elmo")
    assert (done.kind, done.files, done.left_out) == ("elmo", ("lm_weights.hdf5", "options.json"), ())
    written: dict[str, Any] = {}
    with h5py.File(tmp_path / "again/lm_weights.hdf5") as file:
        file.visititems(lambda name, one: written.update({name: one[...]} if isinstance(one, h5py.Dataset) else {}))
    assert written.keys() == datasets().keys()
    assert all((written[name] == array).all() for name, array in datasets().items())
    assert json.loads((tmp_path / "again/options.json").read_text()) == {
        **options(False),
        "regard_version": regard.__version__,
    }
    export(tmp_path / "again", tmp_path / "again", to="elmo", overwrite=True)


def damaged(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    weights = datasets()
    change(weights)
    return weights


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.pop("CNN/b_cnn_1"),
            r"some_weights.hdf5: has no CNN/b_cnn_1, which a model with this options.json",
        ),
        (lambda w: w.update(other=np.zeros(3, np.float32)), "has other, which is no weight of a model with this"),
        (lambda w: w.update(char_embed=w["char_embed"][1:]), "char_embed is 260×3 of float32, but .* 261×3"),
        (lambda w: w.update(char_embed=w["char_embed"].astype(int)), "char_embed is 261×3 of int64"),
        (lambda w: w["CNN_proj/b_proj"].fill(np.nan), "NaN or infinite; download or export"),
    ],
)
def test_weights_that_do_not_fit(folder: Callable[..., Path], change: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load(folder(damaged(change)))
    assert "\n" not in str(caught.value)


def test_a_truncated_file_a_text_and_no_file(folder: Callable[..., Path]) -> None:
    place = folder()
    file = place / "some_weights.hdf5"
    content = file.read_bytes()
    kind = b"\x11\x20\x1f\x00\x04"  # float32: of four bytes, with the sign in bit 31
    assert kind in content
    changed = content.replace(kind, b"\x11\x20\x1e\x00\x04")
    for part in (content[: len(content) // 2], content[:100], b"", b"not HDF5 at all", changed):
        file.write_bytes(part)
        with pytest.raises(UserError, match=r"some_weights.hdf5: is no HDF5 file, or is damaged"):
            load(place)
    (place / "more_weights.hdf5").write_bytes(content)
    with pytest.raises(UserError, match=r"has 2 files \*weights.hdf5 beside options.json; put exactly one there"):
        load(place)
    file.unlink()
    (place / "more_weights.hdf5").unlink()
    os.mkfifo(file)  # reading it would never end
    with pytest.raises(UserError, match=r"has no file \*weights.hdf5"):
        load(place)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o.pop("char_cnn"), "has no settings char_cnn; only models that read characters are supported"),
        (lambda o: o["lstm"].pop("dim"), "lstm.dim should be given"),
        (lambda o: o["lstm"].update(cell_clip=0), "lstm.cell_clip should be above 0 and a number of float32"),
        (lambda o: o["lstm"].update(cell_clip=1e308), "options.json: lstm.cell_clip should be above 0 and a number of"),
        (lambda o: o["lstm"].update(proj_clip=10**400), "options.json: lstm.proj_clip should be a finite number"),
        (lambda o: o["lstm"].update(dim=2**62), "options.json: no model can be built from its settings .*; download"),
        (
            lambda o: o["char_cnn"].update(filters=[[1, 1]] * 4000),
            "options.json: .* much larger model than the weights",
        ),
        (
            lambda o: o["char_cnn"].update(max_characters_per_token=10**9),
            "char_cnn.max_characters_per_token should be at most 1000, found 1000000000; restore",
        ),
        (lambda o: o["lstm"].update(projection_dim=9), "options.json: model.width=9: must be at most model.cells=6"),
        (lambda o: o["char_cnn"].update(filters=[[1, 2, 3]]), "char_cnn.filters should be a list of pairs"),
        (lambda o: o["char_cnn"].update(n_characters=300), "char_cnn.n_characters=300: is not supported, only 262"),
        (lambda o: o["char_cnn"].update(embedding=4), "dim should be given"),
    ],
)
def test_options_that_do_not_fit(folder: Callable[..., Path], change: Any, message: str) -> None:
    place = folder()
    stated = options(True)
    change(stated)
    (place / "options.json").write_text(json.dumps(stated))
    with pytest.raises(UserError, match=message):
        load(place)


def test_other_verbs_name_the_one_to_use(folder: Callable[..., Path]) -> None:
    model = load(folder())
    for verb in (lambda: fill(model, ["a"]), lambda: generate(model, ["a"]), lambda: score(model, ["a"])):
        with pytest.raises(UserError, match=r"an encoder without an output layer, which cannot .*; use: regard embed"):
            verb()
    assert main(["eval", str(model.path), "--data", str(model.path / "options.json")]) == 2
    with pytest.raises(UserError, match="--to elmo: this model is no ELMo in both directions"):
        write_elmo(torch.nn.Linear(1, 1), Path())


@pytest.mark.skipif(not FIXTURE.is_dir(), reason="needs REGARD_DATA with elmo_fixture")
def test_the_outputs_of_the_original_code() -> None:
    """Batches of three sentences, whose state is carried from batch to batch; the outputs of the first of each."""
    sentences = json.loads((FIXTURE / "sentences.json").read_text())
    lines = [line for batch in zip(*sentences) for line in batch]
    found = embed_words(load(FIXTURE, device="cpu", precision="float32"), lines, carry=len(sentences))
    with h5py.File(FIXTURE / "lm_embeddings_0.hdf5") as file:
        for number, one in enumerate(found[:: len(sentences)]):
            expected = np.concatenate(list(file[str(number)][...]), -1)
            np.testing.assert_allclose(one.vectors, expected, atol=1e-6, rtol=0)
