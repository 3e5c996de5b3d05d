"""A recipe decides: which data, which model, what is minimised, and how it is trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regard.data.dates import Dates
from regard.data.sounds import Sounds
from regard.data.sources import GreekEnglish, Labelled, Lines, Multi30k, Pairs
from regard.errors import UserError, nearest
from regard.models import MODELS, LstmnConfig, Seq2SeqConfig, StructuredConfig
from regard.objectives import Labelling, NextToken, ProfessorForcing, TeacherForcing
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
    "greek": GreekEnglish,
    "lines": Lines,
    "labelled": Labelled,
}
OBJECTIVES: dict[str, type] = {
    "teacher": TeacherForcing,
    "professor": ProfessorForcing,
    "next": NextToken,
    "label": Labelling,
}

# What may stand together, by what the data asks for.
FITTING: dict[str, tuple[str, ...]] = {
    "translate": ("dates", "sounds", "pairs", "multi30k", "greek", "seq2seq", "teacher", "professor"),
    "language": ("lines", "lstmn", "next", "teacher", "professor"),
    "classify": ("labelled", "structured", "label"),
}


@dataclass(frozen=True)
class Recipe:
    """One experiment, whole: with the same recipe and data, the same machine makes the same run."""

    name: str = ""  # what to call it
    title: str = ""  # one line about it
    data: Dates | Sounds | Pairs | Multi30k | GreekEnglish | Lines | Labelled = field(default_factory=Dates)
    model: Seq2SeqConfig | LstmnConfig | StructuredConfig = field(default_factory=Seq2SeqConfig)
    objective: TeacherForcing | ProfessorForcing | NextToken | Labelling = field(default_factory=TeacherForcing)
    plan: Plan = field(default_factory=Plan)
    metrics: tuple[str, ...] = ("exact",)  # what to measure beside the loss

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in MEASURES:
                raise UserError(f"metrics={','.join(self.metrics)}: no measure {name}.{nearest(name, MEASURES)}")
        if self.plan.select not in {"loss", *self.metrics}:
            near = nearest(self.plan.select, {"loss", *self.metrics})
            raise UserError(f"plan.select={self.plan.select}: the recipe does not measure that.{near}")
        for part, table in (("model", MODELS), ("objective", OBJECTIVES)):
            name = _name(getattr(self, part), table)
            fitting = [f"{part}={other}" for other in table if other in FITTING[self.task]]
            if name not in FITTING[self.task]:
                raise UserError(
                    f"{part}={name}: does not fit data={_name(self.data, DATA)}; use {' or '.join(fitting)}."
                )

    @property
    def task(self) -> str:
        """translate, language or classify: what the data asks for."""
        return next(task for task, fitting in FITTING.items() if _name(self.data, DATA) in fitting)


def _name(part: object, table: Mapping[str, type]) -> str:
    return next(name for name, kind in table.items() if kind is type(part))
