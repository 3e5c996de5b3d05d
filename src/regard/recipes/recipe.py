"""A recipe: the data, the model, the objective and the plan of an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from regard.config import Kinds, Table
from regard.data.dates import Dates
from regard.data.sounds import Sounds
from regard.data.sources import GreekEnglish, Labelled, Lines, Multi30k, Pairs, Wmt14
from regard.data.streams import Book, Shakespeare
from regard.errors import UserError, nearest
from regard.models import Seq2SeqConfig
from regard.objectives import Counting, Labelling, MaskedTokens, ProfessorForcing, TeacherForcing
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
    "masked": MaskedTokens,
    "label": Labelling,
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


def find_task(recipe: Recipe, kinds: Kinds) -> Task:
    """The task of a recipe: the first task of its data that fits the model and the objective.

    Raises an error that names the setting if parts of the recipe do not fit together or a metric does not exist.
    """
    tasks: list[Task] = [kinds["task"][name] for name in recipe.data.tasks]
    fitting = [task for task in tasks if task.head in recipe.model.predicts]
    data = f"data={name_of(recipe.data, kinds['data'])}"
    if not fitting:
        _refuse("model", recipe.model, data, models_for(tasks, kinds, recipe.objective.learns_by), kinds)
    learns_by = recipe.model.learns_by
    task = next((task for task in fitting if task.head in recipe.objective.heads), None)
    if task is None or recipe.objective.learns_by != learns_by:
        heads, table = {task.head for task in fitting}, kinds["objective"]
        able = {name: kind for name, kind in table.items() if heads & set(kind.heads)}
        objectives = [name for name, kind in able.items() if kind.learns_by == learns_by]
        model = f"model={name_of(recipe.model, kinds['model'])}"
        _refuse("objective", recipe.objective, model if len(tasks) > 1 else data, objectives, kinds)
    assert task is not None
    for name in recipe.metrics:
        if name not in kinds["metric"]:
            near = nearest(name, kinds["metric"])
            raise UserError(f"metrics={','.join(recipe.metrics)}: no metric {name}.{near}")
    if recipe.plan.select not in {"loss", *recipe.metrics}:
        near = nearest(recipe.plan.select, {"loss", *recipe.metrics})
        raise UserError(f"plan.select={recipe.plan.select}: not a metric of the recipe.{near}")
    return task


def models_for(tasks: list[Task], kinds: Kinds, learns_by: str = "gradients") -> list[str]:
    """The names of the models that fit one of the tasks and learn in this way, without the published sizes."""
    heads = {task.head for task in tasks}
    models: dict[str, Any] = {name: kind for name, kind in kinds["model"].items() if isinstance(kind, type)}
    return [name for name, kind in models.items() if heads & set(kind.predicts) and kind.learns_by == learns_by]


def name_of(part: object, table: Mapping[str, Any]) -> str:
    """The name of a part of a recipe in settings."""
    return next(name for name, kind in table.items() if kind is type(part))


def _refuse(role: str, part: object, beside: str, fitting: list[str], kinds: Kinds) -> None:
    cure = " or ".join(f"{role}={other}" for other in fitting)
    raise UserError(f"{role}={name_of(part, kinds[role])}: does not fit {beside}; use {cure}.")
