"""The states of an existing model as features of another: `from=DIR` of a model that reads words (`model=bilstm`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from regard.config import Kinds
from regard.data.characters import BEGIN, END, word_characters
from regard.data.fields import Field, fit_fields
from regard.data.spelled import SpelledText, field_kinds
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.layers.mix import equal_width
from regard.models.facts import GivesLayers
from regard.recipes import KINDS, Recipe, change, find_recipe
from regard.recipes.recipe import name_of
from regard.stored import weights_sha256
from regard.tasks import Task
from regard.training.warm_start import Transfer, WarmStart, module_names, warm_start_from, warm_started
from regard.verbs.loaded import Loaded, load
from regard.verbs.words import ends


@dataclass(frozen=True, eq=False)
class Extraction:
    """An existing model whose layers a new model reads. The new model has a copy of it, and needs its files no more."""

    settings: Mapping[str, Any]  # of the new model: the config of the existing one, and how its layers are read
    tokenizer: Tokenizer | None  # None: the model reads the characters of words
    weights: Callable[[], Mapping[str, Tensor]]  # a function, so that the weights are not kept in memory
    path: str  # where the model is, for messages
    fills_embeddings: bool = True  # whether the new model may start from word vectors too

    def recipe_for(self, recipe: Recipe, kinds: Kinds) -> Recipe:
        """The recipe whose model has the extractor."""
        return replace(recipe, model=replace(recipe.model, **self.settings))

    def fields_for(self, task: Task, recipe: Recipe, examples: Iterable[Any]) -> dict[str, Field]:
        """The fields of a task; that of the text also has the tokens of the extractor."""
        fields = fit_fields(field_kinds(task.fields, reads_words=True), examples, recipe.data)
        for name, each in fields.items():
            if isinstance(each, SpelledText):
                texts, characters = (example.text for example in examples), self.settings["extractor"].characters
                fields[name] = found = each.with_extractor(self.tokenizer, characters, texts)
                if found.known == 0:
                    raise UserError(
                        f"from={self.path}: has no word of the training texts; check its language and case."
                    )
        return fields

    def load_into(self, model: Any, recipe: Recipe) -> Transfer:
        """Load the weights of the extractor into the model of a recipe."""
        expected = {name: tensor for name, tensor in model.state_dict().items() if tensor.numel()}
        path = next(name for name, _ in model.named_modules() if name.endswith("extractor"))
        given = self.weights()
        places = {f"{path}.body.{name}": (name, tensor) for name, tensor in given.items()}
        taken = {place: tensor for place, (_, tensor) in places.items() if place in expected}
        unused = [name for place, (name, _) in places.items() if place not in expected]
        model.load_state_dict(taken, strict=False)
        new = module_names(set(expected) - set(taken))
        return Transfer(len(taken), new, module_names(unused), weights_sha256(given))


Start = WarmStart | Extraction


def started(name: str, settings: Sequence[str], path: str | Path, kinds: Kinds = KINDS) -> tuple[Recipe, Start]:
    """A recipe changed by settings, and what it takes from the model in `path`: its weights, or its states.

    A model that reads words (`model=bilstm`) reads the states of any other model. A recipe whose model is one trains a
    model that `finetunes` instead, such as BERT, unless `model=bilstm` is stated. Otherwise the new model starts from
    the weights of the given one, which must be of its kind.
    """
    recipe, chosen = find_recipe(name, kinds), [one for one in settings if one.startswith("model=")]
    if (reader := change(recipe, chosen, kinds).model).reads_words:
        given = load(path, "cpu", kinds=kinds)
        body = given.module.config.split()[0]
        tunes = body.finetunes and body.direction == "forward" and given.tokenizer.kind != "char"
        if not body.reads_words and (chosen or not tunes):
            found = extraction_from(given, path, kinds)
            return found.recipe_for(change(recipe, settings, kinds), kinds), found
        own = {f"model.{one.name}" for one in fields(reader)} - {f"model.{one.name}" for one in fields(body)}
        if stated := [one for one in settings if one.partition("=")[0] in own]:
            kind = name_of(reader, kinds["model"])
            why = f"from={path} is trained itself, and has no such setting"
            raise UserError(f"{stated[0]}: {why}; add model={kind} to read its states as features.")
    return warm_started(recipe, settings, warm_start_from(path, kinds), path, kinds)


def extraction_from(given: Loaded, path: str | Path, kinds: Kinds = KINDS) -> Extraction:
    """The model of a run or of a public checkpoint as an extractor."""
    config = given.module.config
    if config.learns_by == "counts" or given.reads_images or config.direction == "backward":
        why = "reads texts backward" if config.direction == "backward" else "has no states of words"
        raise UserError(f"from={path}: {given.kind} that {why}; give another model, or leave from= out.")
    body, head = config.split()
    tokenizer: Tokenizer | None = None
    if config.characters:
        before, after = (word_characters(word, config.characters).tolist() for word in (BEGIN, END))
        tokens = torch.tensor([[before, after]])
    else:
        tokenizer = given.tokenizer
        before, after = ends(given)
        tokens = torch.tensor([[*before, tokenizer.special_tokens.pad, *after]])
    with torch.no_grad():
        layers = equal_width(cast(GivesLayers, given.module).layers(tokens))
    settings = {
        "extractor": body,
        "mixed": len(layers),
        "extracted": layers[-1].shape[-1],
        "before": tuple(before),
        "after": tuple(after),
    }

    def weights() -> Mapping[str, Tensor]:
        module: Any = load(path, "cpu", kinds=kinds).module
        return (module if head is None else module.body).state_dict()

    return Extraction(settings, tokenizer, weights, str(path))
