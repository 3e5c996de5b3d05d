"""A recipe: the data, the model, the objective and the plan of an experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from regard.config import Kinds, Table, override
from regard.data.dates import Dates
from regard.data.sounds import Sounds
from regard.data.sources import GreekEnglish, Labelled, Lines, Multi30k, Pairs, Wmt14
from regard.data.streams import Book, Shakespeare
from regard.errors import UserError, nearest
from regard.models import HeadedConfig, Seq2SeqConfig
from regard.objectives import (
    Classification,
    Counting,
    GuidedAlignment,
    MaskedTokens,
    ProfessorForcing,
    TeacherForcing,
)
from regard.recipes.plan import Plan
from regard.tasks import Task

# The names of data and objectives in settings and in recipe.json.
DATA: dict[str, type[Any]] = {
    "dates": Dates,
    "sounds": Sounds,
    "pairs": Pairs,
    "multi30k": Multi30k,
    "wmt14": Wmt14,
    "greek": GreekEnglish,
    "lines": Lines,
    "book": Book,
    "shakespeare": Shakespeare,
    "labelled": Labelled,
}
OBJECTIVES: dict[str, type[Any]] = {
    "teacher": TeacherForcing,
    "counts": Counting,
    "professor": ProfessorForcing,
    "guided": GuidedAlignment,
    "masked": MaskedTokens,
    "classify": Classification,
}


@dataclass(frozen=True)
class Recipe:
    """A complete experiment: the same recipe and data give the same run on the same machine."""

    name: str = ""  # the name of the recipe
    title: str = ""  # a description in one line
    data: Annotated[Any, Table("data")] = field(default_factory=Dates)
    model: Annotated[Any, Table("model")] = field(default_factory=Seq2SeqConfig)
    objective: Annotated[Any, Table("objective")] = field(default_factory=TeacherForcing)
    plan: Plan = field(default_factory=Plan)
    metrics: tuple[str, ...] = ("exact",)  # metrics that are computed beside the loss
    head: Annotated[Any | None, Table("head")] = None  # none: the output layer of the model, or else of the task


def find_task(recipe: Recipe, kinds: Kinds) -> Task:
    """The task of a recipe: the first task of its data that fits the model, the head and the objective.

    Raises an error that names the setting if parts of the recipe do not fit together or a metric does not exist.
    """
    tasks: list[Task] = [kinds["task"][name] for name in recipe.data.tasks]
    data = f"data={name_of(recipe.data, kinds['data'])}"
    if recipe.head is not None and recipe.head.predicts not in (heads := [task.head for task in tasks]):
        _refuse("head", recipe.head, data, [name for name in heads if name in kinds["head"]], kinds)
    fitting = [task for task in tasks if recipe.head is None and task.head in recipe.model.predicts]
    if not fitting and recipe.model.takes_head:
        heads = [recipe.head.predicts] if recipe.head else list(kinds["head"])
        fitting = [task for task in tasks if task.head in heads]
    if not fitting:
        fit = models_for(tasks, kinds, recipe.objective.learns_by, recipe.head is not None)
        _refuse("model", recipe.model, data, fit, kinds)
    learns_by = recipe.model.learns_by
    task = next((task for task in fitting if can_train(recipe.objective, task)), None)
    if task is None or recipe.objective.learns_by != learns_by:
        table = kinds["objective"]
        able = {name: kind for name, kind in table.items() if any(can_train(kind, task) for task in fitting)}
        objectives = [name for name, kind in able.items() if kind.learns_by == learns_by]
        model = f"model={name_of(recipe.model, kinds['model'])}"
        _refuse(
            "objective", recipe.objective, model if len({task.head for task in tasks}) > 1 else data, objectives, kinds
        )
    assert task is not None
    for name in recipe.metrics:
        if name not in kinds["metric"]:
            near = nearest(name, kinds["metric"])
            raise UserError(f"metrics={','.join(recipe.metrics)}: no metric {name}.{near}")
    if recipe.plan.select not in {"loss", *recipe.metrics}:
        near = nearest(recipe.plan.select, {"loss", *recipe.metrics})
        raise UserError(f"plan.select={recipe.plan.select}: not a metric of the recipe.{near}")
    return task


def can_train(objective: Any, task: Task) -> bool:
    """Whether an objective (or its class) can train a model for a task."""
    return task.head in objective.heads and set(objective.needs) <= set(task.fields)


def model_config(recipe: Recipe, task: Task, kinds: Kinds) -> Any:
    """The config of a recipe's model: its own, or that of a body under a head. Sizes from the data are not set yet."""
    if recipe.head is None and task.head in recipe.model.predicts:
        return recipe.model
    head = recipe.head or kinds["head"][task.head]()
    return HeadedConfig(recipe.model, head.for_body(recipe.model))


def change(recipe: Recipe, settings: Sequence[str], kinds: Kinds) -> Recipe:
    """The recipe with settings applied. If a setting is inside `head` and there is no head yet, it is the task's."""
    stated = dict(setting.partition("=")[::2] for setting in settings)
    if recipe.head is None and "head" not in stated and any(name.startswith("head.") for name in stated):
        data = kinds["data"].get(stated.get("data", ""), recipe.data)
        heads = [kinds["task"][name].head for name in data.tasks]
        settings = [*(f"head={name}" for name in heads[:1] if name in kinds["head"]), *settings]
    return override(recipe, settings, kinds)


def models_for(tasks: list[Task], kinds: Kinds, learns_by: str = "gradients", under_head: bool = False) -> list[str]:
    """The names of the models that fit one of the tasks and learn in this way, without the published sizes.

    With `under_head`, only those that can be the body under another head.
    """
    heads = {task.head for task in tasks}
    models: dict[str, Any] = {name: kind for name, kind in kinds["model"].items() if isinstance(kind, type)}
    bodies = [name for name, kind in models.items() if kind.takes_head and heads & kinds["head"].keys()]
    own = [name for name, kind in models.items() if heads & set(kind.predicts) and not under_head]
    return [name for name, kind in models.items() if name in (*bodies, *own) and kind.learns_by == learns_by]


def name_of(part: object, table: Mapping[str, Any]) -> str:
    """The name of a part of a recipe in settings."""
    return next(name for name, kind in table.items() if kind is type(part))


def _refuse(role: str, part: object, beside: str, fitting: list[str], kinds: Kinds) -> None:
    cure = " or ".join(f"{role}={other}" for other in fitting)
    cure = f"use {cure}" if cure else "leave it out"
    raise UserError(f"{role}={name_of(part, kinds[role])}: does not fit {beside}; {cure}.")
