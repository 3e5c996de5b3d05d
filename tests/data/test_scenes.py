"""Drawn scenes: what the captions say is what the images show."""

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from regard.data.example import Captioned, Corpus
from regard.data.scenes import COLOURS, GRID, HELD_OUT, RADII, SHAPES, Scenes, distance
from regard.errors import UserError

SCENES = Scenes(train=120, valid=100, test=100)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return SCENES.load()


def named(example: Captioned) -> list[tuple[list[str], tuple[float, ...]]]:
    """The words of each object of a caption, and its box."""
    words, found = example.target.split(), dict[tuple[float, ...], list[str]]()
    for region in example.regions:
        found.setdefault(region.box, []).append(words[region.word])
    return [(names, box) for box, names in found.items()]


def looks(examples: Any) -> set[tuple[str, ...]]:
    """The combinations of size, colour and shape."""
    return {(*(["large"] if len(names) == 2 else []), *names) for example in examples for names, _ in named(example)}


def test_scenes_depend_on_the_seed_alone(corpus: Corpus) -> None:
    again, other = SCENES.load(), replace(SCENES, seed=2).load()
    assert all((a.image == b.image).all() for a, b in zip(corpus.train, again.train))
    assert [one.target for one in corpus.valid] == [one.target for one in again.valid]
    assert [one.target for one in corpus.valid] != [one.target for one in other.valid]
    assert [one.target for one in corpus.valid] != [one.target for one in corpus.test]
    more = replace(SCENES, train=150).load()
    assert [one.target for one in more.train[:100]] == [one.target for one in corpus.train[:100]]


def test_a_scene_has_three_or_four_small_objects(corpus: Corpus) -> None:
    for example in corpus.valid:
        assert example.image.shape == (64, 64, 3)
        assert example.image.dtype == np.uint8
        boxes = [box for _, box in named(example)]
        assert 3 <= len(boxes) <= 4
        for left, top, right, bottom in boxes:
            assert 0 <= left < right <= 1
            assert 0 <= top < bottom <= 1
            assert (right - left) * (bottom - top) <= 1 / 9
    assert {len(named(example)) for example in corpus.valid} == {3, 4}


def test_the_regions_have_the_colours_that_the_words_name(corpus: Corpus) -> None:
    for example in corpus.train:
        for names, (left, top, right, bottom) in named(example):
            part = example.image[int(64 * top) : int(64 * bottom) + 1, int(64 * left) : int(64 * right) + 1]
            nearest = {
                colour: (np.abs(part.astype(int) - value).sum(-1) < 90).mean() for colour, value in COLOURS.items()
            }
            assert max(nearest, key=nearest.__getitem__) == names[-2]


def test_captions_are_in_reading_order_and_relations_are_true(corpus: Corpus) -> None:
    for example in corpus.valid:
        places = [
            (int(GRID * (top + bottom) / 2), int(GRID * (left + right) / 2))
            for _, (left, top, right, bottom) in named(example)
        ]
        assert places == sorted(set(places))
        objects = [" ".join(["a", *names]) for names, _ in named(example)]
        text = objects[0]
        for number, (before, here) in enumerate(pairwise(places), 1):
            relation = "left of" if before[0] == here[0] else "above"
            text += f" {relation if number % 2 else 'and'} {objects[number]}"
        assert text == example.target


def test_some_combinations_are_never_in_the_training_set() -> None:
    corpus = Scenes(train=250, valid=250, test=250).load()
    every = set(product(RADII, COLOURS, SHAPES))
    assert looks(corpus.train) == every - set(HELD_OUT)
    assert looks(corpus.valid) == looks(corpus.test) == every


def test_sizes_are_drawn_to_scale() -> None:
    example = Scenes(train=1, valid=1, test=1, size=128, objects=8).load().train[0]
    assert example.image.shape == (128, 128, 3)
    small = [right - left for names, (left, _, right, _) in named(example) if "small" in names]
    large = [right - left for names, (left, _, right, _) in named(example) if "small" not in names]
    assert max(small, default=0) <= 9 / 64 < 14 / 64 <= min(large, default=1)


def test_shapes_differ() -> None:
    y, x = np.mgrid[-8:9, -8:9].astype(np.float32)
    masks = [distance(shape, x, y, 7) < 0 for shape in SHAPES]
    assert all(mask.any() and not mask[0, 0] for mask in masks)
    for number, one in enumerate(masks):
        assert all((one != other).mean() > 0.05 for other in masks[:number])
    assert (masks[0] == masks[0].T).all()
    assert not masks[SHAPES.index("ring")][8, 8]
    assert masks[SHAPES.index("cross")][8, 2]
    assert not masks[SHAPES.index("cross")][4, 4]
    triangle = masks[SHAPES.index("triangle")]
    assert triangle[12].sum() > triangle[4].sum()  # the base is below


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": 0}, "data.train=0: give 1 or more"),
        ({"seed": -1}, "data.seed=-1: give 0 or more"),
        ({"objects": 2}, "data.objects=2: give from 3 to 8"),
        ({"size": 30}, "data.size=30: give a multiple of 4 from 32 to 512"),
        ({"size": 66}, "data.size=66"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Scenes(**settings)  # type: ignore[arg-type]
