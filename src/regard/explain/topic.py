"""What a topic of `regard explain` is: prose, options, and a module whose `run` returns numbers and sections."""

import ast
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from regard.errors import UserError
from regard.explain.options import Options
from regard.report.sections import Section, Text, paragraphs


@dataclass(frozen=True)
class Progress:
    """The state of an experiment after a step: the network's name, the step, and the loss if it is trained."""

    name: str
    step: int
    steps: int
    loss: float | None = None


Report = Callable[[Progress], None]


def no_report(_: Progress) -> None:
    """Ignores the progress."""


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a topic: numbers for JSON, and sections for the terminal and the page."""

    title: str
    about: str  # which model and task the numbers are from
    data: Mapping[str, Any]
    sections: Sequence[Section]


def check_index(option: str, value: int, count: int) -> int:
    """The index from 0 that an option gives; -1 is the last. Raises UserError if there is no such index."""
    if not -count <= value < count:
        raise UserError(f"{option}={value}: there are {option}s 0 to {count - 1}.")
    return value % count


def prose(docstring: str | None) -> Text:
    """The prose of a topic: the paragraphs of its module's docstring after the first line."""
    return Text("\n\n".join(paragraphs(inspect.cleandoc(docstring or ""))[1:]))


def reading(text: str, options: Options) -> Text:
    """How to read the results of a topic, with what they mean: its module's READING, which its docs page includes.

    It is written for the results of the default options; the title says so if other options are given.
    """
    results = "the results" if options == type(options)() else "the results of the default options"
    return Text(text, f"How to read {results}")


@dataclass(frozen=True)
class Topic:
    """A topic. Its prose is the docstring of its module, which is read without importing the module and torch."""

    module: str  # in regard.explain
    group: str
    options: Options  # with their defaults
    takes: str  # how long it takes with these options
    examples: tuple[str, ...]  # what may follow `regard explain TOPIC`
    docs: str  # its page of the documentation
    words: tuple[str, ...]  # that its page defines; keys of WORDS

    @property
    def docstring(self) -> str:
        source = files("regard.explain").joinpath(f"{self.module}.py").read_text(encoding="utf-8")
        return ast.get_docstring(ast.parse(source)) or ""

    @property
    def summary(self) -> str:
        return paragraphs(self.docstring)[0]

    @property
    def prose(self) -> list[str]:
        return paragraphs(self.docstring)[1:]

    def sections(self, result: Result, command: str) -> list[Section]:
        """A result with the model, the task and the command that it is from."""
        return [Text(f"{result.about}\n\nMade by: {command}", "What is shown", self.docs), *result.sections]

    def run(self, options: Options, report: Report = no_report) -> Result:
        """Imports the module and calls its `run`."""
        return importlib.import_module(f"regard.explain.{self.module}").run(options, report)
