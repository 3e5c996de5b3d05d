"""Trained models that come with regard, and how their names are found. `make models` trains them.

Each is the directory of a run, `shipped/NAME/`: its recipe and one step, whose weights are float16. They are rounded
when they are written, so that everybody who reads them computes with the same numbers, in float32. Nothing in them is
needed to resume: they are read alone.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from regard.errors import UserError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class ShippedModel:
    """What a model that comes with regard does, and a command to try."""

    about: str
    example: str


SHIPPED = {
    "dates": ShippedModel("dates in 24 languages to ISO 8601", 'regard look dates "3 février 2021"'),
    "dates-plain": ShippedModel("the same, without attention", 'echo "3 février 2021" | regard translate dates-plain'),
    "french": ShippedModel(
        "French to English, sentences of a grammar",
        'regard look french "L\'accord sur la zone économique européenne a été signé en août 1992 ."',
    ),
    "stories": ShippedModel("continues short stories", 'regard generate stories "Anna found a red ball in the park."'),
    "blanks": ShippedModel(
        "fills in words of short stories",
        'regard fill blanks "Anna found some red keys in the park. She put [MASK] in the box in the hall."',
    ),
    "scenes": ShippedModel(
        "captions of drawn scenes", "regard caption scenes --extremes 4 --split valid -o captions.html"
    ),
}


def run_named(path: Path) -> Path:
    """The directory that a user names: the path if there is anything, else the model of this name, if there is one."""
    if str(path) in SHIPPED and not os.path.lexists(path):
        return HERE / path
    return path


def no_such_run(path: Path) -> UserError:
    """The error of a path where nothing is."""
    models = ", ".join(SHIPPED)
    return UserError(
        f"{path}: no such directory; name a run, such as runs/dates, or a model that comes with regard: {models}."
    )


def check_not_shipped(out: Path) -> None:
    """Refuse to write into a model that comes with regard, or beside the models, also through a symbolic link."""
    try:
        below = out.resolve().relative_to(HERE.resolve())
    except ValueError:
        return
    name = below.parts[0] if below.parts and below.parts[0] in SHIPPED else "dates"
    raise UserError(
        f"{out}: a model that comes with regard, which is not trained further or replaced; start from it with "
        f"from={name}, and choose another --out."
    )
