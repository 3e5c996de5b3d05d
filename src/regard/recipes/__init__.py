"""Recipes, one function per experiment, and the tables of names that a recipe may use."""

from collections.abc import Callable

from regard.config import Kinds
from regard.data.text2text import TaskFiles
from regard.errors import UserError, nearest
from regard.heads import HEADS
from regard.metrics import METRICS
from regard.models import CELLS, FAMILIES, MODELS, SIZES, HeadedConfig, TwoDirectionsConfig, WordVectorsConfig
from regard.objectives import OBJECTIVES
from regard.recipes import (
    answers,
    captions,
    classifiers,
    language_models,
    pairs,
    pretraining,
    sequences,
    text_to_text,
    translation,
    word_vectors,
)
from regard.recipes.recipe import DATA, Plan, Recipe, change, find_task, model_config, with_vocabularies
from regard.synonyms import RECIPES as OTHER_RECIPES
from regard.synonyms import ours
from regard.tasks import TASKS

RECIPES: dict[str, Callable[[], Recipe]] = {
    "dates": translation.dates,
    "sounds": translation.sounds,
    "french": translation.french,
    "translate": translation.translate,
    "multi30k": translation.multi30k,
    "multi30k-de-en": translation.multi30k_de_en,
    "multi30k-gnmt": translation.multi30k_gnmt,
    "multi30k-convs2s": translation.multi30k_convs2s,
    "wmt14": translation.wmt14,
    "wmt14-big": translation.wmt14_big,
    "greek": translation.greek,
    "text2text": text_to_text.text2text,
    "reply": text_to_text.reply,
    "titles": text_to_text.titles,
    "text": language_models.text,
    "bigram": language_models.bigram,
    "elmo": language_models.elmo,
    "stories": language_models.stories,
    "shakespeare": language_models.shakespeare,
    "shakespeare-cpu": language_models.shakespeare_cpu,
    "pretrain": pretraining.pretrain,
    "classify": classifiers.classify,
    "pair": pairs.pair,
    "similarity": pairs.similarity,
    "choice": pairs.choice,
    "tag": classifiers.tag,
    "answer": answers.answer,
    "made-answers": answers.made_answers,
    "made-entailment": answers.made_entailment,
    "made-choices": answers.made_choices,
    "embed": pairs.embed,
    "scenes": captions.scenes,
    "flickr8k": captions.flickr8k,
    "multilabel": classifiers.multilabel,
    "rate": classifiers.rate,
    "adding": sequences.adding,
    "copy": sequences.copy,
    "mnist": sequences.mnist,
    "smnist": sequences.sequential_mnist,
    "pmnist": sequences.permuted_mnist,
    "jsb": sequences.jsb,
    "nottingham": sequences.nottingham,
    "clips": sequences.clips,
    "clip-captions": captions.clip_captions,
    "hello": language_models.hello,
    "ptb": language_models.ptb,
    "ptb-char": language_models.ptb_char,
    "text8": language_models.text8,
    "wikitext103": language_models.wikitext103,
    "awd-lstm": language_models.awd_lstm,
    "ulmfit": language_models.ulmfit,
    "context2vec": language_models.context2vec,
    "word2vec": word_vectors.word2vec,
    "glove": word_vectors.glove,
}
# The names that settings, recipe.json and the command line use: one table per part of a recipe.
KINDS: Kinds = {
    "recipe": RECIPES,
    "data": DATA,
    "model": {
        **MODELS,
        **CELLS,
        **FAMILIES,
        **{name: with_vocabularies(config) for name, config in SIZES.items()},
        "vectors": WordVectorsConfig,  # of a file, as the extractor of another model
    },
    "head": HEADS,
    "objective": OBJECTIVES,
    "task": TASKS,
    "metric": METRICS,
    "family": {  # by recipe and model: the settings that follow from the model
        "dates": translation.DATES,
        "hello": language_models.HELLO_CELLS,
        "stories": language_models.STORIES,
        "pretrain": pretraining.FAMILIES,
        **dict.fromkeys(("adding", "copy", "smnist", "pmnist"), sequences.LONG_MEMORY),
    },
    "node": {
        "plan": Plan,
        "recipe": Recipe,
        "headed": HeadedConfig,
        "directions": TwoDirectionsConfig,
        "files": TaskFiles,
    },
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
    return kinds["recipe"][name]()


# fmt: off
__all__ = [
    "KINDS", "RECIPES", "Plan", "Recipe", "change", "find_recipe", "find_task", "model_config", "with_kinds",
    "with_vocabularies",
]
# fmt: on
