"""The first stage of a classifier with `plan.tune_lm`: a language model of its texts (Howard & Ruder 2018, §3.2).

The language model is a run of its own, in the directory `tuned` of the classifier's run. The classifier starts from its
best step.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.config import Kinds
from regard.data.fields import TextField
from regard.data.labelled import TextsOf
from regard.errors import UserError
from regard.recipes import Plan, Recipe
from regard.recipes.recipe import name_of, shown_name
from regard.tasks import fits
from regard.training.folder import FREE_OF_PLAN
from regard.training.prepare import Prepared
from regard.training.warm_start import WarmStart


def tuning_recipe(recipe: Recipe, given: WarmStart | None, kinds: Kinds) -> Recipe:
    """The recipe of the language model of a classifier's texts.

    Its rates are those of the classifier's plan, but all layers train from the first step, and new weights (`given` is
    None) have one rate for all layers. Its objective is that of the run that the weights are from, or the usual one. It
    has at most half of the time.
    """
    plan, model = recipe.plan, recipe.model.directed()
    stated = f"plan.tune_lm={plan.tune_lm:g}"
    if "text" not in {name for each in recipe.data.tasks for name in kinds["task"][each].fields}:
        raise UserError(f"{stated}: data={name_of(recipe.data, kinds['data'])} has no texts; leave it out.")
    tasks = [kinds["task"][name] for name in TextsOf.tasks]
    task = next((each for each in tasks if fits(model, each)), None)
    if task is None:
        shown = shown_name(recipe.model, kinds["model"])
        raise UserError(f"{stated}: model={shown} is no language model; use one, such as model=lstm, or leave it out.")
    own = given.objective if given else None
    return Recipe(
        name=recipe.name,
        title="the language model that the classifier starts from",
        data=TextsOf(recipe.data, recipe.data.tokens, recipe.data.vocab),
        model=recipe.model,
        objective=own if own is not None and task.head in own.heads else task.objective(),
        plan=replace(
            plan,
            **tuning_limits(plan),
            epochs=plan.tune_lm,
            tune_lm=0.0,
            layer_decay=plan.layer_decay if given else 1.0,
            freeze=0,
            unfreeze=0,
            select="loss",
        ),
        metrics=task.metrics,
    )


def tuning_limits(plan: Plan) -> dict[str, Any]:
    """What a resumed run may change of the plan of its language model, given the plan of the classifier.

    It has half of `plan.minutes` at most. The classifier has what the model leaves.
    """
    same = {name: getattr(plan, name) for name in FREE_OF_PLAN}
    return same | {"minutes": None if plan.minutes is None else plan.minutes / 2, "patience": 0}


def tuned_start(prepared: Prepared, weights: Callable[[], Mapping[str, Tensor]], path: Path) -> WarmStart:
    """The start of a classifier from a language model that is not trained yet."""
    texts = [field.tokenizer for field in prepared.fields.values() if isinstance(field, TextField)]
    return WarmStart(prepared.config, [each.origin or each for each in texts], weights=weights, path=str(path))
