"""Tasks: what a model is trained to do, as data."""

from regard.tasks.task import TASKS, Task, task_of

__all__ = ["TASKS", "Task", "task_of"]
