"""A recipe decides: which data, which model, what is minimised, and how it is trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regard.data.dates import Dates
from regard.data.sounds import Sounds
from regard.data.sources import GreekEnglish, Labelled, Lines, Multi30k, Pairs, Wmt14
from regard.data.streams import Book, Shakespeare
from regard.errors import UserError, nearest
from regard.models import MODELS, ModelConfig, Seq2SeqConfig
from regard.objectives import Labelling, MaskedTokens, ProfessorForcing, TeacherForcing
from regard.recipes.plan import Plan

# Every measure, and whether less of it is better.
MEASURES = {
    "loss": True,
    "perplexity": True,
    "exact": False,
    "accuracy": False,
    "bleu": False,
    "chrf": False,
    "word_error": True,
    "phoneme_error": True,
    "alignment": False,
    "aer": True,
}

# The names by which settings and recipe.json know each kind of part.
DATA: dict[str, type] = {
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
OBJECTIVES: dict[str, type] = {
    "teacher": TeacherForcing,
    "professor": ProfessorForcing,
    "masked": MaskedTokens,
    "label": Labelling,
    "next": TeacherForcing,  # what older runs call it
}

# What may stand together. Data that serves several tasks has the first one, unless the model is for another.
FITTING: dict[str, tuple[str, ...]] = {
    "translate": (
        *("dates", "sounds", "pairs", "multi30k", "wmt14", "greek"),
        *("seq2seq", "transformer"),
        *("teacher", "professor"),
    ),
    "language": ("lines", "book", "shakespeare", "lstmn", "gpt", "teacher", "professor"),
    "fill": ("lines", "bert", "masked"),
    "classify": ("labelled", "structured", "label"),
}


Data = Dates | Sounds | Pairs | Multi30k | Wmt14 | GreekEnglish | Lines | Book | Shakespeare | Labelled
AnyObjective = TeacherForcing | ProfessorForcing | MaskedTokens | Labelling


@dataclass(frozen=True)
class Recipe:
    """One experiment, whole: with the same recipe and data, the same machine makes the same run."""

    name: str = ""  # what to call it
    title: str = ""  # one line about it
    data: Data = field(default_factory=Dates)
    model: ModelConfig = field(default_factory=Seq2SeqConfig)
    objective: AnyObjective = field(default_factory=TeacherForcing)
    plan: Plan = field(default_factory=Plan)
    metrics: tuple[str, ...] = ("exact",)  # what to measure beside the loss

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in MEASURES:
                raise UserError(f"metrics={','.join(self.metrics)}: no measure {name}.{nearest(name, MEASURES)}")
        if self.plan.select not in {"loss", *self.metrics}:
            near = nearest(self.plan.select, {"loss", *self.metrics})
            raise UserError(f"plan.select={self.plan.select}: the recipe does not measure that.{near}")
        data = name_of(self.data, DATA)
        objectives = [name for name in FITTING[self.task] if name in OBJECTIVES]
        for part, table, fitting in (("model", MODELS, models_for(data)), ("objective", OBJECTIVES, objectives)):
            if (name := name_of(getattr(self, part), table)) not in fitting:
                cure = " or ".join(f"{part}={other}" for other in fitting)
                several = part == "objective" and len(_tasks(data)) > 1  # then the model is what it does not fit
                beside = f"model={name_of(self.model, MODELS)}" if several else f"data={data}"
                raise UserError(f"{part}={name}: does not fit {beside}; use {cure}.")

    @property
    def task(self) -> str:
        """translate, language, fill or classify: what the data asks for, and of that what the model does."""
        tasks, model = _tasks(name_of(self.data, DATA)), name_of(self.model, MODELS)
        return next((task for task in tasks if model in FITTING[task]), tasks[0])


def models_for(data: str, objective: str | None = None) -> list[str]:
    """The kinds of model that a kind of data is for, with any objective or with one."""
    tasks = [task for task in _tasks(data) if objective is None or objective in FITTING[task]]
    return [name for task in tasks for name in FITTING[task] if name in MODELS]


def name_of(part: object, table: Mapping[str, type]) -> str:
    """What settings call a part of a recipe."""
    return next(name for name, kind in table.items() if kind is type(part))


def _tasks(data: str) -> list[str]:
    return [task for task, fitting in FITTING.items() if data in fitting]
