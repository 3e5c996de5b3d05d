"""Recipes, one function per experiment, and the tables of names that a recipe may use."""

from collections.abc import Callable

from regard.config import Kinds
from regard.errors import UserError, nearest
from regard.heads import HEADS
from regard.metrics import METRICS
from regard.models import CELLS, FAMILIES, MODELS, SIZES, HeadedConfig, TwoDirectionsConfig, WordVectorsConfig
from regard.recipes.captions import clip_captions, flickr8k, scenes
from regard.recipes.classifiers import classify, multilabel, rate, tag
from regard.recipes.language_models import (
    awd_lstm,
    bigram,
    context2vec,
    elmo,
    hello,
    ptb,
    ptb_char,
    shakespeare,
    shakespeare_cpu,
    text,
    text8,
    ulmfit,
    wikitext103,
)
from regard.recipes.pretraining import FAMILIES as PRETRAINED
from regard.recipes.pretraining import pretrain
from regard.recipes.recipe import DATA, OBJECTIVES, Plan, Recipe, change, find_task, model_config, without_vocabularies
from regard.recipes.sequences import adding, clips, copy, jsb, mnist, nottingham, permuted_mnist, sequential_mnist
from regard.recipes.translation import (
    dates,
    greek,
    multi30k,
    multi30k_convs2s,
    multi30k_de_en,
    multi30k_gnmt,
    sounds,
    translate,
    wmt14,
    wmt14_big,
)
from regard.recipes.word_vectors import glove, word2vec
from regard.synonyms import RECIPES as OTHER_RECIPES
from regard.synonyms import ours
from regard.tasks import TASKS

RECIPES: dict[str, Callable[[], Recipe]] = {
    "dates": dates,
    "sounds": sounds,
    "translate": translate,
    "multi30k": multi30k,
    "multi30k-de-en": multi30k_de_en,
    "multi30k-gnmt": multi30k_gnmt,
    "multi30k-convs2s": multi30k_convs2s,
    "wmt14": wmt14,
    "wmt14-big": wmt14_big,
    "greek": greek,
    "text": text,
    "bigram": bigram,
    "elmo": elmo,
    "shakespeare": shakespeare,
    "shakespeare-cpu": shakespeare_cpu,
    "pretrain": pretrain,
    "classify": classify,
    "tag": tag,
    "scenes": scenes,
    "flickr8k": flickr8k,
    "multilabel": multilabel,
    "rate": rate,
    "adding": adding,
    "copy": copy,
    "mnist": mnist,
    "smnist": sequential_mnist,
    "pmnist": permuted_mnist,
    "jsb": jsb,
    "nottingham": nottingham,
    "clips": clips,
    "clip-captions": clip_captions,
    "hello": hello,
    "ptb": ptb,
    "ptb-char": ptb_char,
    "text8": text8,
    "wikitext103": wikitext103,
    "awd-lstm": awd_lstm,
    "ulmfit": ulmfit,
    "context2vec": context2vec,
    "word2vec": word2vec,
    "glove": glove,
}
# The names that settings, recipe.json and the command line use: one table per part of a recipe.
KINDS: Kinds = {
    "recipe": RECIPES,
    "data": DATA,
    "model": {
        **MODELS,
        **CELLS,
        **FAMILIES,
        **{name: without_vocabularies(config) for name, config in SIZES.items()},
        "vectors": WordVectorsConfig,  # of a file, as the extractor of another model
    },
    "head": HEADS,
    "objective": OBJECTIVES,
    "task": TASKS,
    "metric": METRICS,
    "family": {"pretrain": PRETRAINED},  # by recipe and model: the settings that follow from the model
    "node": {"plan": Plan, "recipe": Recipe, "headed": HeadedConfig, "directions": TwoDirectionsConfig},
}


def with_kinds(more: Kinds | None) -> Kinds:
    """KINDS with a user's own entries, which take precedence if a name is in both."""
    if not more or more is KINDS:
        return KINDS
    for name in more:
        if name not in KINDS:
            raise UserError(f'kinds: there is no table "{name}".{nearest(name, KINDS)}')
    return {name: {**table, **more.get(name, {})} for name, table in KINDS.items()}


def find_recipe(name: str, kinds: Kinds = KINDS) -> Recipe:
    """The recipe of this name."""
    if name not in kinds["recipe"]:
        meant = [f' Use "{other}".' for other in ours(name, OTHER_RECIPES)[:1]]
        raise UserError(f'"{name}" is no recipe.{"".join(meant) or nearest(name, kinds["recipe"])}')
    recipe: Recipe = kinds["recipe"][name]()
    return recipe


__all__ = [
    "KINDS",
    "RECIPES",
    "Plan",
    "Recipe",
    "change",
    "find_recipe",
    "find_task",
    "model_config",
    "with_kinds",
    "without_vocabularies",
]
