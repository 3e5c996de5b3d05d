"""Warm start: a run that starts from the weights of another run or of a public checkpoint.

The body of the given model may be put under another head: weights that fit by name are taken, the others are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from torch import Tensor

from regard.checkpoint import read_step
from regard.config import Kinds, format_value
from regard.data.example import Tokens
from regard.data.fields import Field, LabelField, TextField, fit_fields, read_tokenizer
from regard.data.spelled import SPELLED, SpelledText
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.heads import HeadConfig, VectorHeadConfig
from regard.models import HeadedConfig, ModelConfig
from regard.pretrained.weight_table import format_shape
from regard.recipes import KINDS, Recipe, change
from regard.recipes.recipe import can_train, family_settings, is_kind, models_for, name_of, sets_objective, shown_name
from regard.stored import field_path, weights_sha256
from regard.synonyms import known_as
from regard.tasks import Task
from regard.verbs.loaded import load
from regard.verbs.pooling import pooling_of, sentence_folder

# The settings of a model that may differ from those of its family: an ELECTRA of another width is an ELECTRA.
FREE_OF_FAMILIES = ("context", "embed", "memory", "dropout")
GIVEN = "from"  # the name of the given model's settings in the table of models


class WarmStart(NamedTuple):
    """An existing model: its settings, its fields, and a function that reads its weights."""

    config: ModelConfig
    tokenizers: Sequence[Tokenizer]  # of its text fields, in order, with all their special tokens
    others: Mapping[str, Field] = {}  # the fields that are not text
    weights: Callable[[], Mapping[str, Tensor]] = dict  # a function, so that the weights are not kept in memory
    data: Any = None  # the data of the run that the model is from; None for a public checkpoint
    objective: Any = None  # the objective of that run
    finetune: tuple[str, ...] = ()  # the settings that it gives to a classifier, see `Plan.finetune`
    path: str = ""  # where the model is, for messages
    new_head: bool = False  # whether its own head is replaced even if the data needs such a head
    words: SpelledText | None = None  # the field of the text of a model that reads words
    fills_embeddings: bool = False  # the embeddings have weights already
    folder: Path | None = None  # of a public checkpoint: its directory, which may define the pooling of text vectors

    def __repr__(self) -> str:
        return f"<WarmStart {self.path}: {type(self.config).__name__}>"

    def recipe_for(self, recipe: Recipe, kinds: Kinds) -> Recipe:
        """The recipe with the given model, under its own head if the data needs it and the recipe names no other."""
        body = _with_outputs(self.config.split()[0], recipe.data, kinds)
        return replace(recipe, model=body, head=recipe.head or self.head_for(recipe.data, kinds))

    def head_for(self, data: Any, kinds: Kinds) -> HeadConfig | None:
        """The head of the given model if the data needs it: its own, or one with the pooling of its directory."""
        head: HeadConfig | None = self.config.split()[1]
        if head is not None or "vector" not in _heads_of(data, kinds):
            return head if head is not None and head.predicts in _heads_of(data, kinds) else None
        if self.folder is None or sentence_folder(self.folder) is None:
            return None
        pooling = pooling_of(self.folder)
        if pooling.prefix or pooling.lower:
            found = "lower-cases texts" if pooling.lower else f"adds {pooling.prefix!r:.40} before texts"
            raise UserError(
                f"from={self.path}: it {found}, which training does not; change the texts of the file, and give "
                f"head=vector head.pool={pooling.pool}."
            )
        return VectorHeadConfig(pooling.pool, pooling.normalise, pooling.longest)  # type: ignore[arg-type]

    def fields_for(self, task: Task, recipe: Recipe, examples: Iterable[Any]) -> dict[str, Field]:
        """The fields of a task, with the model's tokenizers. Other fields are fitted to the data under a new head.

        The fields of a head that is kept must be able to encode the data.
        """
        body = self.config.split()[0]
        if body.reads_source and body.source_field not in task.fields and not self._one_vocabulary:
            why = "its source and its target have different tokens, and under a head both sides read one text"
            raise UserError(f"from={self.path}: {why}; start from a model that was trained with data.joint=true.")
        texts, kept = iter(self.tokenizers), self.others if self._keeps_head(recipe) else {}
        fields: dict[str, Field] = {}
        for name, kind in task.fields.items():
            if self.words is not None and kind in SPELLED:
                fields[name] = self.words
            elif issubclass(kind, TextField):
                fields[name] = kind(next(texts))
            elif name in kept:
                values, field = [getattr(example, name) for example in examples], kept[name]
                try:
                    field.encode(values)
                    fields[name] = field.counted(values) if isinstance(field, LabelField) else field
                except UserError as error:  # such as a class that the model does not have
                    takes_head = self.config.split()[0].takes_head
                    cure = f"give head={task.head} for a new head" if takes_head else "leave from= out"
                    raise UserError(f"from={self.path}: {str(error).rstrip('.')}; {cure}.") from error
            else:
                fields |= fit_fields({name: kind}, examples, recipe.data)
        return fields

    def load_into(self, model: Any, recipe: Recipe) -> Transfer:
        """Load the weights that fit by name into the model of a recipe."""
        expected, given = model.state_dict(), self.weights()
        head = model.config.split()[1]
        taken: dict[str, Tensor] = {}
        unused = []
        for name, tensor in given.items():
            place = self._place(name, head, self._keeps_head(recipe))
            if place not in expected or not expected[place].numel():  # a body has no counts of tokens
                unused.append(name)
            elif expected[place].shape != tensor.shape:
                shapes = (format_shape(shape) for shape in (tensor.shape, expected[place].shape))
                wrong = "the weight {} is {}, but the model's is {}".format(name, *shapes)
                raise UserError(f"from={self.path}: {wrong}; use the model settings of the run that has the weights.")
            else:
                taken[place] = tensor
        model.load_state_dict(taken, strict=False)
        new = module_names(set(expected) - set(taken))
        return Transfer(len(taken), new, module_names(unused), weights_sha256(given))

    @property
    def _one_vocabulary(self) -> bool:
        """Whether all tokenizers have the same tokens."""
        first, *others = (each.pieces(range(each.size)) for each in self.tokenizers)
        return all(each == first for each in others)

    def _keeps_head(self, recipe: Recipe) -> bool:
        return not self.new_head and bool(self.config.split()[1] == recipe.head)

    def _place(self, name: str, head: HeadConfig | None, kept: bool) -> str:
        """The name in the new model of a weight of the given one, if there is such a weight."""
        own = self.config.split()[1] is not None
        part, _, rest = name.partition(".")
        if head is None:
            return rest if own and part == "body" else name
        if own:
            return name if kept or part == "body" else ""
        return f"head.{head.init_from[part]}.{rest}" if part in head.init_from else f"body.{name}"


class Transfer(NamedTuple):
    """What a warm start loaded."""

    taken: int  # weights
    new: tuple[str, ...]  # the modules whose weights are new
    unused: tuple[str, ...]  # the modules of the given model whose weights were not used
    sha256: str = ""  # of the weights of the given model

    @property
    def parts(self) -> dict[str, list[str]]:
        """The modules that were not taken; a module of both models whose weights are new is replaced."""
        return {
            "new": [name for name in self.new if name not in self.unused],
            "not used": [name for name in self.unused if name not in self.new],
            "replaced by new ones": [name for name in self.new if name in self.unused],
        }


def module_names(weights: Iterable[str]) -> tuple[str, ...]:
    """The modules that have these weights, in alphabetical order."""
    return tuple(sorted({name.rpartition(".")[0] or name for name in weights}))


def _heads_of(data: Any, kinds: Kinds) -> list[str]:
    """The heads of the tasks of a corpus."""
    return [kinds["task"][name].head for name in data.tasks]


def _with_outputs(body: Any, data: Any, kinds: Kinds) -> Any:
    """The config with the output layer that the data needs: a checkpoint may have the states alone."""
    return next((body.with_output(name) for name in _heads_of(data, kinds) if name in body.predicts), body)


def warm_start_from(path: str | Path, kinds: Kinds | None = None) -> WarmStart:
    """The model of a run (its best step), of one step of a run, or of a public checkpoint."""
    model = load(path, "cpu", kinds=kinds)
    texts = {name: each for name, each in model.fields.items() if isinstance(each, TextField)}
    tokenizers = [each.tokenizer for each in texts.values()]
    words = next((each for each in texts.values() if isinstance(each, SpelledText)), None)
    # The field of a running text has no bos and no eos, but its file still has them.
    if model.recipe is not None and words is None:
        tokenizers = read_step(Path(path), lambda step: [read_tokenizer(field_path(step, name)) for name in texts])
    if not tokenizers:
        raise UserError(f"from={path}: has no tokenizer; add its tokenizer.json.")
    return WarmStart(
        config=model.module.config,
        tokenizers=tokenizers,
        others={name: each for name, each in model.fields.items() if name not in texts},
        weights=lambda: load(path, "cpu", kinds=kinds).module.state_dict(),
        data=model.data,
        objective=model.recipe.objective if model.recipe else None,
        finetune=model.recipe.plan.finetune if model.recipe else (),
        path=str(path),
        words=words,
        folder=model.path if model.public is not None else None,
    )


def warm_started(
    recipe: Recipe, settings: Sequence[str], given: WarmStart, path: str | Path, kinds: Kinds = KINDS
) -> tuple[Recipe, WarmStart]:
    """A recipe with the given model, changed by settings.

    The settings of the model and its tokenizers must be those of its weights; other values are refused. Dropout may
    change, since no weight depends on it, and so may settings that only the first weights depend on.
    """
    body, head = given.config.split()
    kind = name_of(body, kinds["model"])
    own_kinds = [f"model={name}" for name, each in kinds["model"].items() if is_kind(body, each)]
    changes = [setting for setting in settings if setting not in own_kinds]
    changes = [*_family(given, recipe, changes, kinds), *changes]
    stated = dict(setting.partition("=")[::2] for setting in changes)
    _check_fit(kind, recipe, stated, path, kinds)
    if "model" in stated:
        is_one = shown_name(body, kinds["model"])
        raise UserError(f"model={stated['model']}: the model in {path} is of the kind {is_one}; leave it out.")
    data = kinds["data"].get(stated.get("data", ""), recipe.data)
    body = _with_outputs(body, data, kinds)
    own, tables = [f"model={GIVEN}"], {**kinds, "model": {**kinds["model"], GIVEN: body}}
    offered = None if "head" in stated else given.head_for(data, kinds)
    kept = offered is not None and offered is head
    if offered is not None:
        own, tables = [*own, f"head={GIVEN}"], {**tables, "head": {**kinds["head"], GIVEN: offered}}
    advised = recipe.finetune if body.finetunes or body.reads_source else ()  # a Transformer of one side, or of two
    advised = tuple(one for one in advised if not (offered is not None and one.startswith("head=")))
    given = given._replace(finetune=_finetuning((*advised, *given.finetune), body, data, stated, tables))
    try:
        recipe = change(recipe, [*own, *given.finetune, *changes], tables)
    except UserError as error:
        if not str(error).startswith(tuple(one.partition("=")[0] + "=" for one in given.finetune)):
            raise
        raise UserError(f"from={path}: the plan.finetune of this run has {error}") from error
    for role, was, now in (("model", body, recipe.model), *([("head", head, recipe.head)] if kept else [])):
        free = body.first_weights if role == "model" else ()
        for name in (field.name for field in fields(was) if "drop" not in field.name and field.name not in free):
            before, after = (format_value(getattr(config, name)) or "none" for config in (was, now))
            if before != after:
                raise UserError(f"{role}.{name}={after}: the model in {path} has {before}; leave it out.")
    model = recipe.model.directed()
    config = model if head is None else HeadedConfig(model, recipe.head if kept else head)
    given = given._replace(config=config, new_head="head" in stated)
    return replace(recipe, data=_with_tokens(recipe.data, stated, given, path)), given


def _family(given: WarmStart, recipe: Recipe, settings: Sequence[str], kinds: Kinds) -> list[str]:
    """The settings of a recipe with families that follow from the given model, but none of the model itself.

    If the objective follows from the model, it is that of the run that the model is from, if it fits the data. A model
    without the output layer for it is asked nothing about sentences.
    """
    body = given.config.split()[0]
    names = kinds.get("family", {}).get(recipe.name, {})
    families = [name for name in names if is_kind(body, kinds["model"][name], FREE_OF_FAMILIES)]
    if not families:
        return []
    families.sort(key=lambda name: isinstance(kinds["model"][name], type))  # a family of this class comes last
    stated = {**dict(setting.partition("=")[::2] for setting in settings), "model": families[0]}
    own = [one for one in family_settings(recipe, stated, kinds) if not one.startswith("model.")]
    data = kinds["data"].get(stated.get("data", ""), recipe.data)
    tasks = [kinds["task"][name] for name in data.tasks]
    kept = given.objective is not None and any(can_train(given.objective, each) for each in tasks)
    if kept and "objective" not in stated and sets_objective(recipe.name, kinds):
        values = {one.name: getattr(given.objective, one.name) for one in fields(given.objective)}
        own = [one for one in own if not one.startswith("objective")]
        own += [f"objective={name_of(given.objective, kinds['objective'])}"]
        own += [f"objective.{name}={format_value(value)}" for name, value in values.items()]
    return own if body.predicts_sentences else [one for one in own if not one.startswith("objective.sentences=")]


def _finetuning(
    settings: Sequence[str], body: Any, data: Any, stated: Mapping[str, str], kinds: Kinds
) -> tuple[str, ...]:
    """The settings of `plan.finetune` that apply to a classifier and its head, without those that the user states."""
    heads = [kinds["head"][name] for name in _heads_of(data, kinds) if name in kinds["head"]]
    if not heads or any(name in body.predicts for name in _heads_of(data, kinds)):
        return ()  # the model keeps its own task
    head = kinds["head"].get(stated.get("head", ""), heads[0])
    known = {f"head.{one.name}" for one in fields(head)}
    length = {"plan.steps": "plan.epochs"}  # each is the length of a run
    taken = {*stated, *(length[name] for name in stated if name in length)}
    named = {setting.partition("=")[0]: setting for setting in settings}  # of two values, the last one
    return tuple(
        one for name, one in named.items() if name not in taken and (not name.startswith("head.") or name in known)
    )


def _check_fit(kind: str, recipe: Recipe, stated: Mapping[str, str], path: str | Path, kinds: Kinds) -> None:
    """Refuse a model that does not fit the data or the objective."""
    data = stated.get("data", name_of(recipe.data, kinds["data"]))
    objective = stated.get("objective", name_of(recipe.objective, kinds["objective"]))
    if data not in kinds["data"] or objective not in kinds["objective"]:
        return  # the settings raise an error later
    if kinds["model"][kind].learns_by == "counts":
        raise UserError(f"from={path}: a model that counts has no weights to start from; leave from= out.")
    fitting = _fitting_models(data, objective, kinds)
    if not fitting or kind in fitting:
        return
    features = "".join(
        f", set model={one} to read it as features" for one in fitting if kinds["model"][one].reads_words
    )
    cure = f"start from one of the kind {' or '.join(known_as(fitting))}{features}, or leave from= out"
    part = f"data={data}"
    if kind in _fitting_models(data, None, kinds):
        recipes = {name: recipe() for name, recipe in kinds["recipe"].items()}
        of_data = {name: name_of(one.data, kinds["data"]) for name, one in recipes.items()}
        use = [
            name if of_data[name] == data else f"{name} data={data}"
            for name, one in recipes.items()
            if (of_data[name] == data or sets_objective(name, kinds))
            and kind in _fitting_models(data, name_of(one.objective, kinds["objective"]), kinds)
        ]
        able = [f"objective={name}" for name in kinds["objective"] if kind in _fitting_models(data, name, kinds)]
        cure = f"use the recipe {' or '.join(use)}" if use else f"set {' or '.join(able)}"
        part = f"objective={objective}"
    name = " or ".join(known_as([kind]))
    raise UserError(f"from={path}: a model of the kind {name} does not fit {part}; {cure}.")


def _fitting_models(data: str, objective: str | None, kinds: Kinds) -> list[str]:
    """The kinds of model that fit a kind of data and an objective (None: any)."""
    tasks = [kinds["task"][name] for name in kinds["data"][data].tasks]
    if objective is None:
        return models_for(tasks, kinds)
    kind = kinds["objective"][objective]
    return models_for([each for each in tasks if can_train(kind, each)], kinds, kind.learns_by)


def _with_tokens(data: Any, stated: Mapping[str, str], given: WarmStart, path: str | Path) -> Any:
    """The data with the settings of the given tokenizers; other settings are refused."""
    source, target = given.tokenizers[0], given.tokenizers[-1]
    actual: dict[str, Any] = {
        "tokens": source.kind,
        "source_tokens": source.kind,
        "target_tokens": target.kind,
        "vocab": getattr(given.data, "vocab", max(source.size, target.size)),
        "joint": getattr(given.data, "joint", given._one_vocabulary),
    }
    actual = {field.name: actual[field.name] for field in fields(data) if field.name in actual}
    for name, was in actual.items():
        now = getattr(data, name)
        if f"data.{name}" in stated and now != was:
            why = f"it is {format_value(was)} for the tokenizers of {path}, which come with its weights"
            raise UserError(f"data.{name}={format_value(now)}: {why}; leave it out.")
    ours = get_args(Tokens)  # the kind of a public tokenizer may not be a valid setting
    return replace(data, **{name: was for name, was in actual.items() if "tokens" not in name or was in ours})
