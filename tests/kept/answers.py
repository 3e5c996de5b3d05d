"""What a kept run answers, what it becomes when it is resumed, and how that is compared with the expected values.

This is the present code's way to ask: it changes with the library. The questions and the expected values do not: they
are in the file of each run under `format-*/expected/`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from regard import Run, align, answer, caption, classify, embed, fill, generate, load, look, score, translate
from regard.cli import main
from regard.training.evaluate import evaluate
from regard.verbs import neighbours, tag
from regard.verbs.embedding import cosines
from regard.verbs.labelling import choose, label_sets, rate, similarity

TOLERANCE = 1e-5  # of numbers: |found - expected| ≤ 1e-5 · max(1, |expected|)
CLOCK = ("seconds", "training", "tokens_per_second")  # keys of metrics.jsonl that say how fast a machine is
EVALUATED = 4  # examples that the metrics are computed on


@contextmanager
def among(folder: Path) -> Iterator[None]:
    """Inside, the folder is the working directory, which the paths of its runs begin at, and has the public data."""
    before, here = os.environ.get("REGARD_DATA"), Path.cwd()
    os.environ["REGARD_DATA"] = str(folder.resolve() / "data" / "public")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.pop("REGARD_DATA") if before is None else os.environ.update(REGARD_DATA=before)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its path in it, but for locks."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# -- the verbs --------------------------------------------------------------------------------------------------------


def answers(run: Path, verb: str, given: Sequence[str], targets: Sequence[str], kinds: Any = None) -> dict[str, Any]:
    """What the run (its best step) says to texts, by the verbs of one kind of model, and its metrics on its data."""
    model = load(run, device="cpu", precision="float32", kinds=kinds)
    found = VERBS[verb](model, list(given), list(targets))
    if model.task.validates:
        _, examples = model.examples()
        metrics = ("loss", *model.recipe.metrics)  # type: ignore[union-attr]
        found["eval"] = evaluate(model, list(examples)[:EVALUATED], metrics).values
    return found


def _of_translator(model: Any, given: list[str], targets: list[str]) -> dict[str, Any]:
    pairs = list(zip(given, targets))
    seen = look(model, given[0], targets[0])
    return {
        "translate": [[one.text, one.score] for one in translate(model, given, limit=8)],
        "beam": [[one.text, one.score] for one in translate(model, given[:2], beam=3, limit=8)],
        "score": _scores(model, pairs),
        "align": [sorted(map(list, one.links)) for one in align(model, pairs[:1])] if seen.layers else [],
        "look": _looked(seen),
    }


def _of_writer(model: Any, given: list[str], targets: list[str]) -> dict[str, Any]:
    written = generate(model, given, limit=6)
    return {
        "generate": [[one.text, float(one.logps.sum())] for one in written],
        "score": _scores(model, given),
        "embed": _vectors(model, given),
        "look": _looked(look(model, given[0])),
        "logits": model.logits(torch.tensor(model.read(given[:1])))[0, -1, :8].tolist(),
    }


def _of_captioner(model: Any, given: list[str], targets: list[str]) -> dict[str, Any]:
    images = [one.image for one in model.examples()[1][: len(given)]]
    found = caption(model, images, targets=given)
    return {
        "caption": [[one.text, one.logp] for one in caption(model, images, limit=8)],
        "beam": [[one.text, one.score] for one in caption(model, images, beam=2, limit=8)],
        "score": [one.logps.tolist() for one in found],
        "look": [] if found[0].weights is None else found[0].weights[0].flatten()[:6].tolist(),
    }


def _of_filler(model: Any, given: list[str], targets: list[str]) -> dict[str, Any]:
    found = fill(model, given, top=2)
    return {
        "fill": [
            [one.text, [[[guess.token, guess.probability] for guess in mask] for mask in one.masks]] for one in found
        ],
        "embed": _vectors(model, given),
        "look": _looked(look(model, given[0])),
    }


def _of_filled_spans(model: Any, given: list[str], targets: list[str]) -> dict[str, Any]:
    found = fill(model, given)
    return {
        "fill": [[one.text, [[guess.probability for guess in mask] for mask in one.masks]] for one in found],
        "embed": _vectors(model, given),
    }


def _of_classifier(model: Any, given: list[str], targets: list[str]) -> dict[str, Any]:
    return {
        "classify": [[one.label, dict(sorted(one.labels.items()))] for one in classify(model, given)],
        "embed": _vectors(model, given),
        "look": _looked(look(model, given[0])),
    }


VERBS: dict[str, Callable[[Any, list[str], list[str]], dict[str, Any]]] = {
    "translate": _of_translator,
    "generate": _of_writer,
    "caption": _of_captioner,
    "fill": _of_filler,
    "spans": _of_filled_spans,
    "classify": _of_classifier,
    "classes": lambda model, given, targets: {
        "classify": [[one.label, dict(sorted(one.labels.items()))] for one in classify(model, given)]
    },
    "detect": lambda model, given, targets: {"score": _scores(model, given), "look": _looked(look(model, given[0]))},
    "both": lambda model, given, targets: {"score": _scores(model, given), "embed": _vectors(model, given)},
    "labels": lambda model, given, targets: {
        "classify": [[list(one.given), dict(sorted(one.labels.items()))] for one in label_sets(model, given)]
    },
    "tag": lambda model, given, targets: {
        "tag": [
            [list(one.tags), [[e.type, e.start, e.end, e.probability] for e in one.entities]]
            for one in tag(model, given)
        ]
    },
    "answer": lambda model, given, targets: {
        "answer": [[one.text, one.probability, one.no_answer] for one in answer(model, list(zip(given, targets)))],
        "look": _looked(look(model, (given[0], targets[0]))),
    },
    "vectors": lambda model, given, targets: {
        "embed": _vectors(model, given),
        "cosines": list(cosines(model, list(pairwise(given)))),
        "look": _looked(look(model, given[0])),
    },
    "rate": lambda model, given, targets: {"rate": [one.number for one in rate(model, given)]},
    "pair": lambda model, given, targets: {
        "classify": [[one.label, dict(sorted(one.labels.items()))] for one in classify(model, _parts(given))],
        "look": _looked(look(model, _parts(given)[0])),
    },
    "similarity": lambda model, given, targets: {
        "similarity": [one.number for one in similarity(model, _parts(given))]
    },
    "choice": lambda model, given, targets: {
        "choose": [list(one.probabilities) for one in choose(model, _parts(given))]
    },
    "neighbours": lambda model, given, targets: {
        "neighbours": [list(one) for word in given for one in neighbours(model, word, 3)],
        "embed": _vectors(model, given[:1]),
    },
    "number": lambda model, given, targets: {
        "number": [float(_prediction(model, text)) for text in given],
        "look": _looked(look(model, given[0])),
    },
    "nothing": lambda model, given, targets: {},  # a model of numbers has no verb but eval
}


def _prediction(model: Any, text: str) -> torch.Tensor:
    """The number that a model of a user's own gives to a text."""
    with torch.no_grad():
        features = model.module.features(torch.tensor(model.read([text])))
        return (model.module.readout if hasattr(model.module, "readout") else model.module.head)(features)[0]


def _parts(texts: Iterable[str]) -> list[Any]:
    """The parts of each text, between tabs."""
    return [tuple(text.split("\t")) for text in texts]


def _scores(model: Any, texts: Sequence[Any]) -> list[Any]:
    """The log-probability of each text, and of every piece of the first."""
    found = score(model, texts)
    return [[one.total for one in found], found[0].logps.tolist(), list(found[0].pieces)]


def _vectors(model: Any, texts: Sequence[str]) -> list[list[float]]:
    """The first numbers of the vectors of two texts."""
    return embed(model, texts[:2]).vectors[:, :4].tolist()


def _looked(seen: Any) -> list[Any]:
    """Of every layer of a picture: its part, and the last row of its first head."""
    return [[layer.part, layer.weights[0, -1].tolist()] for layer in seen.layers]


# -- resuming ---------------------------------------------------------------------------------------------------------


def resumed(run: Path, kinds: Any = None) -> dict[str, Any]:
    """Train the run to its end: the lines that its log gets, without the clock, and its last weights in numbers."""
    before = len(_log(run))
    for _ in Run(None, run, existing="resume", kinds=kinds):
        pass
    step = (run / "latest").read_text(encoding="utf-8").strip()
    module = load(run / "steps" / step, device="cpu", precision="float32", kinds=kinds).module
    weights = {name: weight.detach().double().flatten() for name, weight in module.state_dict().items()}
    return {
        "step": int(step),
        "log": [{key: value for key, value in line.items() if key not in CLOCK} for line in _log(run)[before:]],
        "weights": {
            name: [weight.numel(), float(weight.sum()), float(weight.abs().sum()), *weight[:2].tolist()]
            for name, weight in weights.items()
            if weight.numel()
        },
    }


def _log(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


# -- ladders ----------------------------------------------------------------------------------------------------------


def climbed(command: str, place: Path) -> dict[str, Any]:
    """What each cell of a ladder has found after `regard ladder COMMAND --out PLACE`, by its path."""
    code = main(["ladder", *command.split(), "--out", str(place)])
    assert code == 0, f"regard ladder {command} ends with {code}"
    stored = [path for path in sorted((place / "cells").rglob("*.json")) if path.with_suffix("").is_dir()]
    found = {path.relative_to(place).as_posix(): json.loads(path.read_text(encoding="utf-8")) for path in stored}
    keys = ("cell", "seed", "part", "examples", "scores", "step", "steps", "parameters", "flops", "width")
    return {name: {key: cell[key] for key in keys} for name, cell in found.items()}


# -- comparing --------------------------------------------------------------------------------------------------------


def shortened(value: Any) -> Any:
    """The values as they are stored: numbers with nine digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {str(name): shortened(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(one) for one in value]
    assert value is None or isinstance(value, int | str), f"{value!r} is nothing to store"
    return value


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """Where a result differs from the expected one, in words: texts must be equal, numbers close.

    A dictionary may have more keys than expected: a later version may say more. Weights are compared without their
    names, see `weight_differences`.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        missing = [f"{place}.{name}: is missing" for name in expected if name not in found]
        both = [name for name in expected if name in found]
        nested = [differences(expected[name], found[name], f"{place}.{name}") for name in both if name != "weights"]
        weights = [weight_differences(expected[name], found[name]) for name in both if name == "weights"]
        return [*missing, *(line for lines in (*nested, *weights) for line in lines)]
    if isinstance(expected, list) and isinstance(found, list | tuple):
        if len(expected) != len(found):
            return [f"{place}: expected {len(expected)} values, found {len(found)}"]
        nested = [differences(one, other, f"{place}[{at}]") for at, (one, other) in enumerate(zip(expected, found))]
        return [line for lines in nested for line in lines]
    return [] if _same(expected, found) else [f"{place}: expected {expected!r}, found {found!r}"]


def weight_differences(expected: Mapping[str, list[float]], found: Mapping[str, list[float]]) -> list[str]:
    """The expected weights that no weight found is equal to: a later format may have other names, or join copies."""
    return [
        f"weights: nothing is equal to {name}, {numbers}; {name} is now {found.get(name)}"
        for name, numbers in expected.items()
        if not any(all(map(_same, numbers, other)) for other in found.values())
    ]


def _same(expected: Any, found: Any) -> bool:
    numbers = (int, float)
    if type(expected) in numbers and type(found) in numbers:
        return bool(abs(expected - found) <= TOLERANCE * max(1.0, abs(expected)))
    return bool(expected == found)
