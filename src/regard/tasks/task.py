"""What a task is, and the literal table of all tasks."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """What a model is trained to do. No other code compares the name of a task: it asks for what it needs to know."""

    name: str
    verb: str  # the command that uses a trained model
    head: str  # what the model must predict; a model's config lists in `predicts` what it can


TASKS: dict[str, Task] = {
    "translate": Task(name="translate", verb="translate", head="target"),
    "language": Task(name="language", verb="generate", head="next"),
    "masked": Task(name="masked", verb="fill", head="masked"),
    "classify": Task(name="classify", verb="classify", head="class"),
}


def task_of(config: Any) -> Task:
    """The first task that a model of this config can do."""
    return next(task for task in TASKS.values() if task.head in config.predicts)
