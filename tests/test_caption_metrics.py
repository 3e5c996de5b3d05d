"""Metrics of captions: against other implementations, formulas written out, and sums done by hand."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from regard.data.example import Region
from regard.data.scenes import Scenes
from regard.metrics import METRICS, Bleu, caption_words, cider

HYPS = [
    "A dog runs on the grass .",
    "two children play, in the snow",
    "a man",
    "the cat cat cat on the mat",
    "A black-and-white dog's ball on the grass",
]
REFS = [
    ("a dog runs across the green grass", "A brown dog is running .", "the dog runs on grass"),
    ("two children are playing in the snow !", "Two kids play in snow", "children in the snow"),
    ("a man rides a bike on the road", "a cyclist", "the man is riding a bicycle"),
    ("a cat on the mat", "the cat is on the mat", "a cat sits"),
    ("a ball on the grass", "a black-and-white dog with a ball", "the dog 's ball lies in the grass"),
]


def tokenized() -> tuple[list[list[str]], list[list[list[str]]]]:
    return [caption_words(hyp) for hyp in HYPS], [[caption_words(ref) for ref in refs] for refs in REFS]


def ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def papineni(order: int) -> float:
    """Corpus BLEU by the formulas of Papineni et al. 2002, §2."""
    hyps, refs = tokenized()
    logs = 0.0
    for n in range(1, order + 1):
        right = total = 0
        for hyp, accepted in zip(hyps, refs):
            for ngram, count in ngrams(hyp, n).items():
                right += min(count, max(ngrams(ref, n)[ngram] for ref in accepted))
                total += count
        logs += math.log(right / total) / order
    length = sum(map(len, hyps))
    closest = sum(min((abs(len(ref) - len(hyp)), len(ref)) for ref in some)[1] for hyp, some in zip(hyps, refs))
    return 100 * math.exp(min(0.0, 1 - closest / length) + logs)


def vedantam() -> float:
    """CIDEr-D by the formulas of Vedantam et al. 2015, §3 and §5.2, over vectors of all n-grams."""
    hyps, refs = tokenized()
    scores = list[float]()
    for hyp, accepted in zip(hyps, refs):
        by_order = list[float]()
        for n in range(1, 5):
            known = sorted(
                {ngram for text in [*hyps, *(ref for some in refs for ref in some)] for ngram in ngrams(text, n)}
            )
            images = np.array([sum(any(g in ngrams(ref, n) for ref in some) for some in refs) for g in known])
            idf = np.log(len(refs) / np.maximum(images, 1))

            def vector(words: list[str], n: int = n, known: Any = known, idf: Any = idf) -> Any:
                return np.array([ngrams(words, n)[ngram] for ngram in known]) * idf

            found = 0.0
            for ref in accepted:
                a, b = vector(hyp), vector(ref)
                norm = np.linalg.norm(a) * np.linalg.norm(b)
                gauss = math.exp(-((len(hyp) - len(ref)) ** 2) / (2 * 6**2))
                found += gauss * (np.minimum(a, b) @ b / norm if norm else 0.0)
            by_order.append(10 * found / len(accepted))
        scores.append(sum(by_order) / 4)
    return sum(scores) / len(scores)


def test_words_are_in_lower_case_without_punctuation() -> None:
    assert caption_words("A man's T-shirt, (red) – and 2 dogs ! ...") == [
        "a",
        "man",
        "'s",
        "t-shirt",
        "red",
        "and",
        "2",
        "dogs",
    ]
    assert caption_words("Größe’s … -") == ["größe", "'s"]
    assert caption_words(" . ") == []


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_bleu_is_that_of_the_paper(order: int) -> None:
    found = METRICS[f"bleu{order}"].compute(HYPS, REFS)
    assert isinstance(found, Bleu)
    assert found.score == pytest.approx(papineni(order), abs=1e-9)
    assert "tok:none" in found.signature
    assert "smooth:none" in found.signature


def test_cider_is_that_of_the_paper() -> None:
    assert cider(HYPS, REFS) == pytest.approx(vedantam(), abs=1e-12)
    assert vedantam() > 0.5


def test_both_equal_the_captioning_community_s_implementation() -> None:
    theirs = pytest.importorskip("pycocoevalcap.cider.cider", reason="pycocoevalcap is not installed")
    scorer = pytest.importorskip("pycocoevalcap.bleu.bleu", reason="pycocoevalcap is not installed")
    hyps, refs = tokenized()
    given = {number: [" ".join(ref) for ref in some] for number, some in enumerate(refs)}
    output = {number: [" ".join(hyp)] for number, hyp in enumerate(hyps)}
    assert cider(HYPS, REFS) == pytest.approx(theirs.Cider().compute_score(given, output)[0], abs=1e-9)
    expected, _ = scorer.Bleu(4).compute_score(given, output, verbose=0)
    found = [METRICS[f"bleu{order}"].compute(HYPS, REFS).score / 100 for order in range(1, 5)]
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_bounds_of_cider() -> None:
    texts = ["a dog runs on grass", "two men play a game", "snow falls in the city"]
    assert cider(texts, [(text,) for text in texts]) == pytest.approx(10)
    assert cider(["nothing at all", "", "..."], [(text,) for text in texts]) == 0
    assert cider(["a dog"], [("a dog",)]) == 0  # of one image, every n-gram is in all images


def table(cells: list[int], side: int = 8) -> Any:
    """Weights that are greatest at one cell of each word."""
    return 0.01 + np.eye(side**2)[cells].reshape(-1, side, side)


def test_pointing_compares_the_centre_of_the_cell_with_the_box() -> None:
    box = (2 / 8, 1 / 8, 4 / 8, 2 / 8)  # the cells 10 and 11 of an 8 × 8 grid
    regions = [(Region(0, box), Region(1, box), Region(2, box)), (Region(1, box), Region(7, box)), ()]
    weights = [table([10, 11, 12]), table([10, 2]), table([10])]
    # Right are 10 and 11; wrong are 12 and 2; word 7 is not in the table.
    assert METRICS["pointing"].compute(weights, regions) == 2 / 4
    assert METRICS["pointing_chance"].compute(weights, regions) == pytest.approx(2 / 64)
    assert METRICS["pointing"].compute([table([0])], [()]) is None
    assert METRICS["pointing_chance"].compute([], []) is None


def test_every_region_of_a_scene_has_the_centre_of_a_cell() -> None:
    scenes = Scenes(train=100, valid=1, test=1).load().train
    for scene in scenes:
        for region in scene.regions:
            one = (Region(0, region.box),)
            left, top, right, bottom = region.box
            best = int((top + bottom) / 2 * 8) * 8 + int((left + right) / 2 * 8)
            assert METRICS["pointing"].compute([table([best])], [one]) == 1
            assert METRICS["pointing_chance"].compute([table([best])], [one]) <= 9 / 64
