"""Tasks: what a model is trained to do, as data."""

from regard.tasks.table import TASKS, task_of
from regard.tasks.task import Task

__all__ = ["TASKS", "Task", "task_of"]
