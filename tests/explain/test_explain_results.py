"""Whole results of topics: numbers, tables, curves and pictures are those in `results/TOPIC.txt`.

python tests/explain/test_explain_results.py [TOPIC …]   writes the files anew, after an intended change of results
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.explain import TOPICS, options
from regard.explain.topic import Result
from regard.report.sections import Gallery, LineGallery

FOLDER = Path(__file__).parent / "results"
OPTIONS: dict[str, options.Options] = {  # no option has its default
    "attention": options.AttentionOptions(seed=2, layer=-1, word=2, steps=1),
    "scores": options.ScoresOptions(seed=2, keys=3, width=6),
    "scaling": options.ScalingOptions(seed=2, keys=30, queries=5, widths=(4, 9)),
    "masking": options.MaskingOptions(seed=2, steps=1, count=7),
    "heads": options.HeadsOptions(seed=2, steps=1),
    "positions": options.PositionsOptions(seed=2, length=7, lengths=(9, 6), steps=1),
    "residuals": options.ResidualsOptions(seed=2, length=6, steps=1),
    "layers": options.LayersOptions(seed=2, length=33, width=12, window=3),
    "gradients": options.GradientsOptions(seed=2, length=7, steps=1),
    "gates": options.GatesOptions(seed=2, length=7, steps=1),
    "bottleneck": options.BottleneckOptions(seed=2, length=4, width=6, steps=1),
    "forcing": options.ForcingOptions(seed=2, seeds=2, steps=1, count=20),
    "receptive": options.ReceptiveOptions(seed=2, kernel=2, layers=1, steps=1),
    "ngrams": options.NgramsOptions(seed=2, words=3, steps=1),
    "senses": options.SensesOptions(seed=2, steps=1),
    "mix": options.MixOptions(seed=2, steps=1, fit=2),
    "filters": options.FiltersOptions(seed=2, text="a dog sees many boats .", layer=-1, steps=1),
    "masking-rates": options.MaskingRatesOptions(seed=2, vocab=30, seeds=2, steps=1, count=5),
    "transfer": options.TransferOptions(seed=2, labels=(3, 6), seeds=2, steps=1, fit=1),
}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def written(value: object, place: str = "") -> Iterator[str]:
    """Every value of a result on a line, with its place; numbers with four digits."""
    match value:
        case Tensor():
            yield from written(value.tolist(), place)
        case np.ndarray():
            yield from written(value.tolist(), place)
        case Mapping():
            for name, each in value.items():
                yield from written(each, f"{place}.{name}")
        case str() | None | bool() | int():
            yield f"{place} {value}"
        case float():
            yield f"{place} {value:.4g}"
        case Gallery() | LineGallery():
            for view in value.views:
                yield from written([view.title, view.rows, view.columns, view.layers[0].head_numbers], f"{place}.view")
                yield from written(view.matrix().label, f"{place}.label")
                yield from written(view.layers[0].weights, f"{place}.weights")
        case _ if is_dataclass(value):
            for field in fields(value):
                yield from written(getattr(value, field.name), f"{place}.{field.name}")
        case Sequence() | range():
            if all(isinstance(each, float | int | None) for each in value):
                yield f"{place} {' '.join(f'{each:.4g}' if isinstance(each, float) else str(each) for each in value)}"
            else:
                for at, each in enumerate(value):
                    yield from written(each, f"{place}.{at}")
        case _:
            raise TypeError(f"{place}: {type(value).__name__}")


def seconds(layer: nn.Module, inputs: Sequence[Tensor]) -> list[float]:
    """In place of the time that a layer takes."""
    return [len(x[0]) ** 1.5 * (1 + sum(p.numel() for p in layer.parameters())) * 1e-6 for x in inputs]


def result_of(topic: str) -> Result:
    with patch("regard.explain.layers.measure_seconds", seconds):
        return TOPICS[topic].run(OPTIONS[topic])


def lines_of(result: Result) -> list[str]:
    """The data, the sections without the prose, and what the result is about."""
    sections = [(type(each).__name__, each) for each in result.sections[1:]]
    return [" ".join(line.split()) for line in written((result.title, result.about, result.data, sections))]


def same(was: str, now: str) -> bool:
    """Whether two lines differ by no more than two machines do: texts and whole numbers are equal."""
    if NUMBER.sub("#", was) != NUMBER.sub("#", now):
        return False
    for one, other in zip(NUMBER.finditer(was), NUMBER.finditer(now)):
        if one[0] == other[0]:
            continue
        percent = was[one.end() : one.end() + 1] == "%"
        if not percent and ("." not in one[0] + other[0] and "e" not in one[0] + other[0]):
            return False
        unit = 10.0 ** -len(one[0].partition("e")[0].partition(".")[2]) if "e" not in one[0] else 0.0
        if not math.isclose(float(one[0]), float(other[0]), rel_tol=0.02, abs_tol=max(1e-9, 1.01 * unit)):
            return False
    return True


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_has_the_results_that_it_had(topic: str) -> None:
    was = (FOLDER / f"{topic}.txt").read_text(encoding="utf-8").splitlines()
    now = lines_of(result_of(topic))
    other = [f"was {one}\nis  {two}" for one, two in zip(was, now) if not same(one, two)]
    assert not other, "\n".join(other[:10])
    assert len(was) == len(now)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for each in sys.argv[1:] or TOPICS:
        (FOLDER / f"{each}.txt").write_text("\n".join(lines_of(result_of(each))) + "\n", encoding="utf-8")
