"""A recipe: the data, the model, the objective and the plan of an experiment."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from regard.config import Kinds, Table, override
from regard.data.conll import Conll
from regard.data.dates import Dates
from regard.data.flickr8k import Flickr8k
from regard.data.french import French
from regard.data.labelled import Labelled, MultiLabelled, Rated, TextsOf
from regard.data.made_texts import MadeAnswers, MadeChoices, MadeEntailment
from regard.data.mnist import Mnist
from regard.data.music import PolyphonicMusic
from regard.data.passages import Play, Titles
from regard.data.related import RelatedPairs
from regard.data.running_corpora import Hello, Ptb, PtbChar, Text8, WikiText2, WikiText103
from regard.data.scenes import Scenes
from regard.data.sounds import Sounds
from regard.data.sources import GreekEnglish, Lines, Multi30k, Pairs, Wmt14
from regard.data.squad import Questions
from regard.data.stories import Stories
from regard.data.streams import Book, Shakespeare
from regard.data.synthetic import Adding, ClipCaptions, Clips, CopyMemory
from regard.data.text2text import Mixture, TextToText
from regard.data.text_pairs import Choices, DelimitedTexts, LabelledPairs, RatedPairs
from regard.data.words import Words
from regard.device import check_seed
from regard.errors import UserError, nearest
from regard.models import HeadedConfig, ModelConfig, Seq2SeqConfig
from regard.objectives import TeacherForcing
from regard.objectives.objective import UPDATES
from regard.synonyms import known_as
from regard.tasks import Task, fits, reads_inputs

Schedule = Literal["constant", "linear", "cosine", "triangular", "inverse-sqrt", "noam"]
MOST_THREADS = 1024
# Settings that fine-tune a Transformer (Devlin et al. 2019, appendix A.3). A batch of short texts or pairs has about 16
# to 64 of them, and fewer if the file is small (`_smaller_batches` of training/prepare.py).
FINETUNE = (
    *("plan.rate=5e-5", "plan.schedule=linear", "plan.warmup=0.1", "plan.epochs=3", "plan.evaluate=epoch"),
    "plan.decay=0.01",
)
FINETUNE_TEXTS = (*FINETUNE, "plan.batch_tokens=1024")
VOCABULARIES = ("vocab", "source_vocab", "target_vocab", "numbers")  # settings of a model that follow from the data

# The names of data in settings and in recipe.json.
DATA: dict[str, type[Any]] = {
    "dates": Dates,
    "sounds": Sounds,
    "french": French,
    "pairs": Pairs,
    "multi30k": Multi30k,
    "wmt14": Wmt14,
    "greek": GreekEnglish,
    "text2text": TextToText,
    "mixture": Mixture,
    "play": Play,
    "titles": Titles,
    "lines": Lines,
    "book": Book,
    "shakespeare": Shakespeare,
    "stories": Stories,
    "labelled": Labelled,
    "multilabel": MultiLabelled,
    "rated": Rated,
    "related": RelatedPairs,
    "delimited": DelimitedTexts,
    "text-pairs": LabelledPairs,
    "rated-pairs": RatedPairs,
    "choices": Choices,
    "texts": TextsOf,
    "conll": Conll,
    "adding": Adding,
    "copy": CopyMemory,
    "clips": Clips,
    "clip-captions": ClipCaptions,
    "mnist": Mnist,
    "music": PolyphonicMusic,
    "scenes": Scenes,
    "flickr8k": Flickr8k,
    "hello": Hello,
    "ptb": Ptb,
    "ptb-char": PtbChar,
    "wikitext2": WikiText2,
    "wikitext103": WikiText103,
    "text8": Text8,
    "words": Words,
    "questions": Questions,
    "made-answers": MadeAnswers,
    "made-entailment": MadeEntailment,
    "made-choices": MadeChoices,
}


@dataclass(frozen=True)
class Plan:
    """The settings of training that belong neither to the model, the data nor the objective."""

    steps: int = 1000  # number of updates of the weights
    epochs: float | None = None  # number of passes over the training examples; none: plan.steps is the length
    # Stop after this long, evaluations included; linear, cosine and triangular rates then end at this time.
    minutes: float | None = None
    batch_tokens: int = 4096  # number of tokens of a batch, padding included, on its longer side
    accumulate: int = 1  # number of batches per step, on each rank
    rate: float = 1e-3  # the highest learning rate; for noam a factor, such as 1
    schedule: Schedule = "cosine"  # how the rate decays after the warm-up; noam: 1/√step, divided by √width
    cut: float = 0.1  # triangular: the part of the steps in which the rate rises; there is no other warm-up
    ratio: float = 32.0  # triangular: the highest rate divided by the lowest
    warmup: int | float = 100  # number of steps in which the rate rises to its maximum; below 1: this part of all steps
    # The optimiser. sgd has momentum 0.9; asgd has none, and averages the weights from a trigger on.
    optimizer: Literal["adam", "adamw", "sgd", "asgd"] = "adamw"
    trigger: int = 5  # asgd: averaging starts at a loss above the best one that is so many evaluations old, or older
    betas: tuple[float, float] = (0.9, 0.999)  # adam: the decays of its means of the gradient and the squared gradient
    epsilon: float = 1e-8  # adam: number added to the root of the mean squared gradient
    decay: float = 0.01  # weight decay of matrices and embeddings; adam has none
    layer_decay: float = 1.0  # each layer's rate is that of the layer above times this (Howard & Ruder 2018, §3.2)
    freeze: int | tuple[str, ...] = 0  # layers that are not trained: how many from the input on, or their names
    # Steps after which the next layer from the top starts to train, or epoch: one layer an epoch; 0: all train at once.
    unfreeze: int | Literal["epoch"] = 0
    tune_lm: float = 0.0  # epochs in which a language model of the texts is trained first; the body starts from it
    finetune: tuple[str, ...] = ()  # default settings of a classifier that starts from this run (from=DIR)
    clip: float = 1.0  # the largest norm of the gradient; 0: no clipping
    seed: int = 1  # random seed of the initial weights, the order of the examples and the dropout
    device: str = "auto"  # where the model runs: auto, cpu, cuda or cuda:N
    precision: Literal["auto", "float32", "bf16"] = "auto"  # precision of matrix products; auto: bf16 on a GPU
    capture: bool = True  # whether to capture each shape of batch as a CUDA graph; ignored on a CPU
    # gradient checkpointing of a Transformer: less memory, about a third more time, no CUDA graphs
    checkpoint: bool = False
    compile: bool = False  # whether to compile the blocks of a Transformer; ignored for other models
    threads: int = 0  # number of CPU threads; 0: torch's default
    log: int = 10  # number of steps between two reports
    # number of steps between two evaluations, or epoch: one evaluation an epoch; each evaluation saves the step
    evaluate: int | Literal["epoch"] = 200
    samples: int = 500  # number of validation examples that are decoded at an evaluation; the loss uses all of them
    patience: int = 0  # stop after this many evaluations without improvement; 0: never
    keep: int = 2  # number of newest steps that are kept on disk, beside the best one
    select: str = "loss"  # the metric that selects the best step

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log", "keep"):
            self._at_least(name, 1)
        for name in ("warmup", "decay", "clip", "threads", "samples", "patience", "trigger", "tune_lm"):
            self._at_least(name, 0)
        for name, least in (("unfreeze", 0), ("evaluate", 1)):
            if getattr(self, name) != "epoch":
                self._at_least(name, least)
        self._at_least("batch_tokens", 2)
        if self.threads > MOST_THREADS:
            raise UserError(f"plan.threads={self.threads}: give at most {MOST_THREADS}, or 0 for torch's default.")
        object.__setattr__(self, "seed", check_seed(self.seed, "plan.seed"))
        if not 0 < self.rate < float("inf"):
            raise UserError(f"plan.rate={self.rate}: give a number above 0, such as 1e-3.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"plan.betas={','.join(map(str, self.betas))}: give two numbers from 0 to below 1.")
        if not self.epsilon > 0:
            raise UserError(f"plan.epsilon={self.epsilon}: give a number above 0, such as 1e-8.")
        if not 0 < self.layer_decay <= 1:
            raise UserError(f"plan.layer_decay={self.layer_decay}: give a number above 0, at most 1 (none).")
        if not 0 < self.cut < 1:
            raise UserError(f"plan.cut={self.cut}: give a number between 0 and 1, such as 0.1.")
        if not self.ratio >= 1:
            raise UserError(f"plan.ratio={self.ratio}: give 1 or more, such as 32.")
        if isinstance(self.freeze, int):
            self._at_least("freeze", 0)
        settings: list[str] = []
        for part in self.finetune:  # the value of a setting may have commas, as plan.betas has
            if "=" in part or not settings:
                settings.append(part)
            else:
                settings[-1] += f",{part}"
        object.__setattr__(self, "finetune", tuple(settings))
        for one in settings:
            part, _, setting = one.partition(".")
            if part not in ("data", "model", "objective", "plan", "head") or "=" not in setting:
                raise UserError(
                    f"plan.finetune={one}: give settings of a classifier, such as plan.tune_lm=10,head.inner=50."
                )
            try:
                override(Plan(), [setting] if part == "plan" else [], {})
            except UserError as error:
                raise UserError(f"plan.finetune={one}: {str(error).removeprefix('plan.')}") from error
        for name in ("epochs", "minutes"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise UserError(f"plan.{name}={getattr(self, name)}: give a number above 0, or none.")

    @property
    def warmup_steps(self) -> int:
        """The number of steps in which the rate rises to its maximum."""
        return round(self.warmup if self.warmup >= 1 else self.warmup * self.steps)

    def _at_least(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:
            raise UserError(f"plan.{name}={getattr(self, name)}: give {least} or more.")


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
    head: Annotated[Any | None, Table("head")] = None  # the output layer; none: that of the model, or of the task
    finetune: tuple[str, ...] = ()  # default settings of a run that fine-tunes a Transformer (from=DIR)

    def __repr__(self) -> str:
        parts = ", ".join(type(part).__name__ for part in (self.data, self.model, self.objective))
        return f"<Recipe {self.name}: {parts}, {self.plan.steps} steps>"


def find_task(recipe: Recipe, kinds: Kinds) -> Task:
    """The task of a recipe: the first task of its data that fits the model, the head and the objective.

    Raises an error that names the setting if parts of the recipe do not fit together or a metric does not exist.
    """
    tasks: list[Task] = [kinds["task"][name] for name in recipe.data.tasks]
    data = f"data={name_of(recipe.data, kinds['data'])}"
    if recipe.head is not None and recipe.head.predicts not in (heads := [each.head for each in tasks]):
        raise _misfit("head", recipe.head, data, [name for name in heads if name in kinds["head"]], kinds)
    model = recipe.model.directed()
    fitting = [each for each in tasks if recipe.head is None and fits(model, each)]
    if not fitting and model.takes_head:
        heads = [recipe.head.predicts] if recipe.head else list(kinds["head"])
        fitting = [each for each in tasks if each.head in heads and reads_inputs(model, each)]
    if not fitting:
        under_head = recipe.head is not None
        fit = models_for(tasks, kinds, recipe.objective.learns_by, under_head)
        fit = fit or models_for(tasks, kinds, under_head=under_head)  # no model of this data learns by counts
        raise _misfit("model", recipe.model, data, fit, kinds)
    learns_by = recipe.model.learns_by
    task = next((each for each in fitting if can_train(recipe.objective, each)), None)
    if task is None or recipe.objective.learns_by != learns_by:
        table = kinds["objective"]
        able = {name: kind for name, kind in table.items() if any(can_train(kind, each) for each in fitting)}
        objectives = [name for name, kind in able.items() if kind.learns_by == learns_by]
        named = f"model={shown_name(recipe.model, kinds['model'])}"
        beside = named if len({each.head for each in tasks}) > 1 else data
        raise _misfit("objective", recipe.objective, beside, objectives, kinds)
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
    fits = task.head in objective.heads and set(objective.needs) <= set(task.fields)
    return fits and set(objective.makes) == set(task.made)


def model_config(recipe: Recipe, task: Task, kinds: Kinds) -> Any:
    """The config of a recipe's model: its own, or that of a body under a head. Sizes from the data are not set yet."""
    model = recipe.model.directed()
    if recipe.head is None and fits(model, task):
        return model
    head = recipe.head or kinds["head"][task.head]()
    return HeadedConfig(model, head.for_body(model))


def change(recipe: Recipe, settings: Sequence[str], kinds: Kinds) -> Recipe:
    """The recipe with settings applied. If a setting is inside `head` and there is no head yet, it is the task's.

    Of a recipe with families, the settings of the family that the model is of come first (`family_settings`). A model
    that learns in another way than the recipe's (`model=bigram`) has the objective that trains it so; `model=glove` of
    word2vec is refused, since another recipe has the plan for it. Metrics of the recipe that do not fit what the model
    predicts (`model.direction=forward`) are left out, unless stated. A changed setting of the plan that the objective's
    own trainer does not read is an error.
    """
    stated = dict(setting.partition("=")[::2] for setting in settings)
    if "plan.steps" in stated and stated.get("plan.epochs", "none") != "none":
        both = f"plan.steps={stated['plan.steps']} and plan.epochs={stated['plan.epochs']}"
        raise UserError(f"{both}: each is the length of the run; give one of them.")
    if "plan.steps" in stated and "plan.epochs" not in stated and recipe.plan.epochs is not None:
        settings = [*settings, "plan.epochs=none"]  # the length that is stated replaces that of the recipe
    for name in stated if "data" not in stated else ():
        if name.startswith("data.") and (other := _recipe_with(name.removeprefix("data."), recipe, kinds)):
            raise UserError(f"{name}={stated[name]}: {recipe.name} has no such setting; use: regard train {other}")
    objective = stated.get("objective")
    if objective not in (None, *kinds["objective"]) and not stated.keys() & {"data", "model"}:
        table, own = kinds["objective"], [kinds["task"][name] for name in recipe.data.tasks]
        able = {name: kind for name, kind in table.items() if any(can_train(kind, each) for each in own)}
        fitting = [name for name, kind in able.items() if kind.learns_by == recipe.model.learns_by]
        raise UserError(f"objective={objective}: no such choice.{nearest(str(objective), fitting)}")
    settings = [*family_settings(recipe, stated, kinds), *settings]
    stated = dict(setting.partition("=")[::2] for setting in settings)
    if recipe.head is None and "head" not in stated and any(name.startswith("head.") for name in stated):
        data = kinds["data"].get(stated.get("data", ""), recipe.data)
        heads = [kinds["task"][name].head for name in data.tasks]
        settings = [*(f"head={name}" for name in heads[:1] if name in kinds["head"]), *settings]
    changed = override(recipe, settings, kinds)
    if "model" in stated and "objective" not in stated and changed.model.learns_by != changed.objective.learns_by:
        learns_by, made = changed.model.learns_by, {name: make() for name, make in kinds["recipe"].items()}
        alike = {name: one.model for name, one in made.items() if isinstance(one.data, type(recipe.data))}
        other = next((name for name, model in alike.items() if model.learns_by == learns_by), "")
        gradients = "gradients" in (recipe.model.learns_by, learns_by)
        if other and recipe.name in alike and not gradients:  # the plan is for one way to learn
            named = f"model={stated['model']}"
            raise UserError(f"{named}: the plan of {recipe.name} does not train it; use: regard train {other} {named}")
        names = [name for name, kind in kinds["objective"].items() if kind.learns_by == learns_by]
        changed = override(changed, [f"objective={name}" for name in names[:1]], kinds)
    for name in UPDATES:
        unread = name not in changed.objective.plan_settings and f"plan.{name}" in stated
        if unread and getattr(changed.plan, name) != getattr(recipe.plan, name):
            trained = f"objective={name_of(changed.objective, kinds['objective'])} trains without this setting"
            raise UserError(f"plan.{name}={stated[f'plan.{name}']}: {trained}; leave it out.")
    tasks = {kinds["task"][name].head for name in changed.data.tasks}
    predicted = tasks & {*changed.model.directed().predicts} if changed.head is None else {changed.head.predicts}
    if "metrics" in stated or not predicted:  # a body gets a head that fits the task
        return changed
    of = {name: metric.heads for name, metric in kinds["metric"].items()}
    return replace(
        changed, metrics=tuple(name for name in changed.metrics if not of.get(name) or predicted & {*of[name]})
    )


def family_settings(recipe: Recipe, stated: Mapping[str, str], kinds: Kinds) -> list[str]:
    """The settings that follow from the model that is stated, without those of a part that is stated as a whole.

    A published size (roberta-base) has the settings of its family, but keeps those of its model. A setting may have a
    value of the data, such as {data.memory}; it is left out if other data is stated.
    """
    families, model = kinds.get("family", {}).get(recipe.name, {}), stated.get("model", "")
    named = (name for name in families if model.startswith(name) and not model.removeprefix(name)[:1].isalpha())
    family = max(named, key=len, default="")  # lstmn is none of lstm
    parts = {setting: setting.partition("=")[0].partition(".")[0] for setting in families.get(family, ())}
    found = [
        setting
        for setting, part in parts.items()
        if (part == "model" and family == model) or (part != "model" and part not in stated)
    ]
    own = [f"{name}={value}" for name, value in stated.items() if name.partition(".")[0] == "data"]
    data = override(recipe, own, kinds).data if found else recipe.data
    same = type(data) is type(recipe.data)
    return [setting.format(data=data) for setting in found if same or "{data." not in setting]


def sets_objective(name: str, kinds: Kinds) -> bool:
    """Whether the objective of the recipe of this name follows from the model."""
    families = kinds.get("family", {}).get(name, {}).values()
    return any(setting.startswith("objective=") for settings in families for setting in settings)


def _recipe_with(setting: str, recipe: Recipe, kinds: Kinds) -> str:
    """The recipe of the same verb whose data alone has a setting; empty if there is none."""

    def verbs(data: Any) -> set[str]:
        return {kinds["task"][name].verb for name in data.tasks}

    alike = [kind for kind in kinds["data"].values() if verbs(kind) == verbs(recipe.data)]
    having = [kind for kind in alike if setting in (one.name for one in fields(kind))]
    if len(having) != 1 or isinstance(recipe.data, having[0]):
        return ""
    made = {name: make() for name, make in kinds["recipe"].items()}
    return next((name for name, one in made.items() if isinstance(one.data, having[0])), "")


def with_vocabularies(config: Any, sizes: ModelConfig | None = None) -> Any:
    """The config with the vocabulary sizes of another, or with 0, so that they are set from the data."""
    names = [one.name for one in fields(config) if one.name in VOCABULARIES]
    return replace(config, **{name: getattr(sizes, name, 0) for name in names})


def models_for(tasks: list[Task], kinds: Kinds, learns_by: str = "gradients", under_head: bool = False) -> list[str]:
    """The names of the models that fit one of the tasks and learn in this way, without the published sizes.

    With `under_head`, only those that can be the body under another head.
    """
    models: dict[str, Any] = {name: kind for name, kind in kinds["model"].items() if isinstance(kind, type)}
    bodies = [
        name
        for name, kind in models.items()
        if kind.takes_head and any(each.head in kinds["head"] and reads_inputs(kind, each) for each in tasks)
    ]
    own = [name for name, kind in models.items() if any(fits(kind, each) for each in tasks) and not under_head]
    return [name for name, kind in models.items() if name in (*bodies, *own) and kind.learns_by == learns_by]


def name_of(part: object, table: Mapping[str, Any]) -> str:
    """The name of a part of a recipe in settings; that of its class if another kind has its name in the table."""
    return next((name for name, kind in table.items() if kind is type(part)), type(part).__name__)


def is_kind(part: Any, kind: Any, but: Collection[str] = ()) -> bool:
    """Whether a part of a recipe is of a kind of its table: of that class, or with all that an instance sets.

    The settings with the names `but` may differ.
    """
    if isinstance(kind, type):
        return type(part) is kind
    names = [one.name for one in fields(kind) if one.init and getattr(kind, one.name) != one.default]
    stated = [name for name in names if name not in but]
    return type(part) is type(kind) and all(getattr(part, name) == getattr(kind, name) for name in stated)


def without_same_kinds(recipe: Recipe, settings: Sequence[str], kinds: Kinds) -> list[str]:
    """The settings without those that choose the kind that a part has already, such as `model=lstm`.

    A kind that is chosen resets its part to its defaults, which a run that is resumed must not do.
    """
    stated = ((setting, *setting.partition("=")[::2]) for setting in settings)
    return [
        setting
        for setting, part, name in stated
        if part not in ("data", "model", "objective", "head")
        or name not in kinds[part]
        or not is_kind(getattr(recipe, part), kinds[part][name])
    ]


def _misfit(role: str, part: object, beside: str, fitting: list[str], kinds: Kinds) -> UserError:
    cure = " or ".join(f"{role}={other}" for other in known_as(fitting))
    cure = f"use {cure}" if cure else "leave it out"
    return UserError(f"{role}={shown_name(part, kinds[role])}: does not fit {beside}; {cure}.")


def shown_name(part: object, table: Mapping[str, Any]) -> str:
    """The name of a part in messages: `name_of`, or of several names that are known better the one that fits."""
    name = name_of(part, table)
    return next((known for known in known_as([name]) if known in table and is_kind(part, table[known])), name)
