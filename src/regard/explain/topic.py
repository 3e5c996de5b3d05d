"""What a topic of `regard explain` is: prose, options, and a function that returns numbers and sections."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.errors import UserError
from regard.explain.experiment import Report
from regard.report.sections import Section, Text, paragraphs

INFINITE = float("inf")
Limits = Mapping[str, tuple[int, float]]  # option → the least and the largest value


@dataclass(frozen=True)
class Options:
    """The options of a topic."""

    seed: int = 1  # of initial weights and examples
    limits: ClassVar[Limits] = {}
    places: ClassVar[tuple[str, ...]] = ()  # options that a command takes without their names, in this order

    def __post_init__(self) -> None:
        for name, (least, most) in {"seed": (0, 2**31), "steps": (0, INFINITE), **self.limits}.items():
            value = getattr(self, name, least)
            if not least <= value <= most:
                raise UserError(f"{name}={value}: give {least} {'or more' if most == INFINITE else f'to {most}'}.")


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a topic: numbers for JSON, and sections for the terminal and the page."""

    title: str
    data: Mapping[str, Any]
    sections: Sequence[Section]


def prose(docstring: str | None) -> Text:
    """The prose of a topic: the paragraphs of its module's docstring after the first line."""
    return Text("\n\n".join(paragraphs(inspect.cleandoc(docstring or ""))[1:]))


@dataclass(frozen=True)
class Topic:
    """A topic. Its prose is the docstring of its module: a summary in one line, then what it shows."""

    group: str
    docstring: str | None
    options: Options  # with their defaults
    run: Callable[[Any, Report], Result]
    takes: str  # how long it takes with these options
    examples: tuple[str, ...]  # what may follow `regard explain TOPIC`

    @property
    def summary(self) -> str:
        return paragraphs(inspect.cleandoc(self.docstring or ""))[0]

    @property
    def prose(self) -> list[str]:
        return paragraphs(prose(self.docstring).text)
