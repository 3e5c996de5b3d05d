"""Published models, from directories that the variable REGARD_MODELS names; without it the tests are skipped.

    REGARD_MODELS=gpt2:bert-base-uncased:t5-small python -m pytest tests/verbs/test_published.py -rs

Each test takes the first directory whose config.json has the type and the size that it is for.
"""

import json
import os
from pathlib import Path

import pytest

from regard.verbs import fill, generate, load, translate

VARIABLE = "REGARD_MODELS"
FOLDERS = [Path(place) for place in os.environ.get(VARIABLE, "").split(os.pathsep) if place]
pytestmark = pytest.mark.skipif(not FOLDERS, reason=f"set {VARIABLE} to directories of published models")

UNICORNS = (
    "In a shocking finding, scientist discovered a herd of unicorns living in a remote, previously unexplored valley, "
    "in the Andes Mountains. Even more surprising to the researchers was the fact that the unicorns spoke perfect "
    "English."
)


def published(kind: str, least: int) -> Path:
    """The first named directory of a type whose vocabulary has at least so many tokens."""
    found = []
    for folder in FOLDERS:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config.get("model_type") == kind and config.get("vocab_size", 0) >= least:
            found.append(folder)
    if not found:
        pytest.skip(f"{VARIABLE} names no published model of the type {kind}")
    return found[0]


def test_the_unicorns_of_gpt2() -> None:
    """The prompt of Radford et al. 2019: the text goes on in English, and is about the same things."""
    model = load(published("gpt2", 50_000), "cpu")
    (greedy,) = generate(model, [UNICORNS], limit=60)
    text = greedy.text.lower()
    assert sum(word in text for word in ("the", "of", "and", "unicorn", "researchers", "scientists")) >= 4, text


def test_the_store_and_the_gallon_of_bert() -> None:
    """The example of Devlin et al. 2019: the man went to the [MASK] store; he bought a gallon [MASK] milk."""
    model = load(published("bert", 20_000), "cpu")
    text = "The man went to the [MASK] store. He bought a gallon of milk."
    (found,) = fill(model, [text], top=20)
    best = [one.text.strip().lower() for one in found.masks[0]]
    assert {"grocery", "convenience", "liquor", "drug", "general", "corner", "local", "milk"} & set(best), best
    (found,) = fill(model, ["The man went to the store. He bought a gallon [MASK] milk."], top=1)
    assert found.masks[0][0].text.strip().lower() == "of"


def test_a_prefix_of_t5() -> None:
    """The prefix of Raffel et al. 2020 for translation."""
    model = load(published("t5", 32_000), "cpu")
    (found,) = translate(model, ["translate English to German: The house is wonderful."])
    assert "Haus" in found.text, found.text
