"""Corpora of sequences: drawn ones follow from their seed, files are read exactly, and broken files are one line."""

import gzip
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from matlab import mat_file
from regard.data.images import ClipField
from regard.data.mnist import DEVIATION, MEAN, Mnist, read_idx
from regard.data.music import PolyphonicMusic, read_cells
from regard.data.synthetic import MOVES, Adding, ClipCaptions, Clips, CopyMemory
from regard.errors import UserError


def test_the_adding_problem_marks_two_numbers_and_sums_them() -> None:
    data = Adding(train=200, valid=5, test=0, length=7)
    corpus = data.load()
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (200, 5, 0)
    for one in corpus.train:
        values = np.asarray(one.values)
        assert values.shape == (7, 2)
        assert ((values[:, 0] >= 0) & (values[:, 0] < 1)).all()
        assert sorted(values[:, 1]) == [0, 0, 0, 0, 0, 1, 1]
        assert one.number == pytest.approx(float(values[:, 0] @ values[:, 1]))
    marked = np.array([np.flatnonzero(np.asarray(one.values)[:, 1]) for one in corpus.train])
    assert set(marked.flatten()) == set(range(7))  # every step may be marked
    again = data.load()
    assert np.array_equal(again.train[3].values, corpus.train[3].values)
    assert not np.array_equal(corpus.train[0].values, corpus.valid[0].values)
    assert not np.array_equal(Adding(train=1, valid=1, length=7, seed=2).load().train[0].values, corpus.train[0].values)


def test_copy_memory_asks_for_the_first_symbols_after_a_delay() -> None:
    one = CopyMemory(train=3, valid=1, test=1, delay=5).load().train[1]
    symbols = one.text[:10]
    assert set(symbols) <= set("12345678")
    assert one.text == symbols + "0000" + "9" * 11
    assert one.tags == "0" * 15 + symbols
    assert len(one.text) == len(one.tags) == 25  # delay + 20, as published


def test_the_label_of_a_frame_is_how_the_shape_moved() -> None:
    corpus = Clips(train=20, valid=1, test=1, size=6, frames=5, noise=0.0).load()
    for one in corpus.train:
        frames = np.asarray(one.values).reshape(5, 6, 6)
        assert one.tags[0] == "still"
        for before, frame, tag in zip(frames, frames[1:], one.tags[1:]):
            assert np.array_equal(np.roll(before, MOVES[tag], (0, 1)), frame)
    assert {tag for one in corpus.train for tag in one.tags} == set(MOVES)


def test_the_region_of_a_direction_is_the_frames_that_the_shape_reached_in_it() -> None:
    corpus = ClipCaptions(train=30, valid=1, test=1, size=6, frames=8, noise=0.0).load()
    field = ClipField.fit([], "image", ClipCaptions(size=6, frames=8))
    for one, read in zip(corpus.train, field.encode([one.image for one in corpus.train])):
        frames, words, moved = read.reshape(8, 6, 6), one.target.split(), [0]
        assert one.image.shape == (6, 8 * 6, 3)
        directions = [words[region.word] for region in one.regions]
        assert words[3::2] == directions
        assert all(before != after for before, after in pairwise(directions))
        for region in one.regions:
            first, end = round(region.box[0] * 8), round(region.box[2] * 8)
            for place in range(first, end):
                assert np.array_equal(np.roll(frames[place - 1], MOVES[words[region.word]], (0, 1)), frames[place])
            moved += range(first, end)
            assert end - first >= 2
        assert moved == list(range(8))
    assert {len(one.regions) for one in corpus.train} == {2, 3}


def test_a_clip_field_is_read_as_it_was_saved(tmp_path: Path) -> None:
    ClipField(8, 6).save(tmp_path / "image.json")
    assert ClipField.load(tmp_path / "image.json") == ClipField(8, 6)
    (tmp_path / "image.json").write_text('{"frames": 8}', encoding="utf-8")
    with pytest.raises(UserError, match="not the frames of a run"):
        ClipField.load(tmp_path / "image.json")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ClipCaptions(frames=6), "data.frames=6: give 7 or more."),
        (lambda: ClipCaptions(noise=-1), "data.noise=-1: give 0"),
        (lambda: Adding(length=1), "data.length=1: give 2 or more."),
        (lambda: Adding(train=0), "data.train=0: give 1 or more."),
        (lambda: CopyMemory(delay=0), "data.delay=0: give 1 or more."),
        (lambda: Clips(size=4), "data.size=4: give 5 or more."),
        (lambda: Clips(noise=-1), "data.noise=-1: give 0"),
        (lambda: Mnist(train=-1), "data.train=-1: give 0 or more."),
    ],
)
def test_a_setting_that_draws_nothing_is_refused(make, told) -> None:
    with pytest.raises(UserError, match=told):
        make()


def idx(*shape: int, numbers: bytes) -> bytes:
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + numbers


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve training images of 2 × 3 pixels and two test images."""
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, count in (("train", 12), ("t10k", 2)):
        pixels = bytes(range(6 * count))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(count, 2, 3, numbers=pixels)))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(count, numbers=bytes(range(count)))))
    return folder


def test_digits_are_read_pixel_by_pixel(digits: Path) -> None:
    corpus = Mnist().load()
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [10, 2, 2]
    assert [one.label for one in corpus.valid] == ["10", "11"]  # the last training images
    expected = (np.arange(6, 12) / 255 - MEAN) / DEVIATION
    assert np.allclose(corpus.train[1].values, expected[:, None])
    at_once = Mnist(pixels=3).load().train[1].values
    assert np.allclose(at_once, expected.reshape(2, 3))
    with pytest.raises(UserError, match=r"^data\.pixels=4: an image has 6; give a divisor of this number"):
        Mnist(pixels=4).load()
    permuted = Mnist(permuted=True).load()
    order = [int(at) for at in np.argsort(np.ravel(permuted.train[0].values))]
    assert order != list(range(6))
    assert np.allclose(np.ravel(permuted.test[1].values)[order], expected)  # one order for all images
    assert len(Mnist(train=3).load().train) == 3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"no idx", "not an idx file"),
        (idx(2, 2, 3, numbers=bytes(12))[:10], "not an idx file"),
        (idx(12, numbers=bytes(12)), "not an idx file of bytes with 3 axes"),
        (idx(2, 2, 3, numbers=bytes(11)), "states 2 × 2 × 3 numbers, but has 11"),
        (idx(2**31, 2**31, 3, numbers=bytes(12)), "but has 12"),
        (idx(3, 2, 3, numbers=bytes(18)), "3 images, but 12 labels"),
    ],
)
def test_a_broken_file_of_digits_is_one_line(digits: Path, content: bytes, told: str) -> None:
    (digits / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match=told) as caught:
        Mnist().load()
    assert "\n" not in str(caught.value)


def test_an_idx_file_may_be_unpacked(digits: Path, tmp_path: Path) -> None:
    path = tmp_path / "plain"
    path.write_bytes(idx(2, 2, numbers=b"abcd"))
    assert read_idx(path, 2).tolist() == [[97, 98], [99, 100]]


def piece(steps: int, keys: int = 88) -> np.ndarray:
    return (np.arange(steps * keys).reshape(steps, keys) % 7 == 0).astype(float)


@pytest.fixture
def music(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "polymusic").mkdir()
    return tmp_path / "polymusic" / "JSB_Chorales.mat"


@pytest.mark.parametrize("packed", [False, True])
def test_music_predicts_the_keys_of_the_next_step(music: Path, packed: bool) -> None:
    parts = {"traindata": [piece(3), piece(5)], "validdata": [piece(2)], "testdata": [piece(4)]}
    music.write_bytes(mat_file(parts, packed))
    corpus = PolyphonicMusic().load()
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [2, 1, 1]
    assert np.array_equal(corpus.train[1].values, piece(5)[:-1])
    assert np.array_equal(corpus.train[1].keys, piece(5)[1:])


GOOD = mat_file({"traindata": [piece(3)], "validdata": [piece(2)], "testdata": []})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"RIFF" * 99, "not a MATLAB 5 file"),
        (GOOD[:128], "has no cell array traindata"),
        (GOOD[:400], "the file ends inside an element"),
        (GOOD[:131], "a damaged MATLAB file"),
        (GOOD[:128] + b"\x0f\0\0\0\x08\0\0\0not zlib", "a damaged MATLAB file"),
        (mat_file({"traindata": [piece(3)]}), "has no cell array validdata"),
        (GOOD.replace(struct.pack("<ii", 3, 88), struct.pack("<ii", -1, 88)), "a damaged MATLAB file"),
        (
            mat_file({"traindata": [piece(3, 87)], "validdata": [], "testdata": []}),
            "piece 1 of traindata is a matrix 3 × 87",
        ),
        (mat_file({"traindata": [piece(3), piece(1)], "validdata": [], "testdata": []}), "piece 2 .* matrix 1 × 88"),
        (mat_file({"traindata": [piece(3) * 2], "validdata": [], "testdata": []}), "numbers other than 0 and 1"),
        (mat_file({"traindata": [piece(3)[0]], "validdata": [], "testdata": []}), "is a matrix 88; expected"),
    ],
)
def test_a_broken_file_of_music_is_one_line(music: Path, content: bytes, told: str) -> None:
    music.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        PolyphonicMusic().load()
    assert "\n" not in str(caught.value)


def test_a_matlab_bomb_is_refused(music: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.music.MOST_UNPACKED", 100_000)
    music.write_bytes(mat_file({part: [np.zeros((90, 88))] for part in ("traindata", "validdata")}, packed=True))
    with pytest.raises(UserError, match="unpacks to more than 100,000 bytes"):  # one part alone is smaller
        read_cells(music)
