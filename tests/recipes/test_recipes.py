"""Every recipe is whole, round-trips through JSON, and refuses parts that do not fit together."""

import dataclasses

import pytest

from regard.config import from_json, override, to_json, tree
from regard.errors import UserError
from regard.models import MODELS, LstmnConfig, Seq2SeqConfig, StructuredConfig
from regard.recipes import KINDS, RECIPES, Recipe, find_recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_round_trips(name):
    recipe = find_recipe(name)
    assert recipe.name == name
    assert recipe.title
    assert RECIPES[name].__doc__
    assert from_json(to_json(recipe, KINDS), KINDS) == recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_from_before_a_setting_was_known_is_read(name):
    recipe = find_recipe(name)
    for part in ("plan", "model", "data", "objective"):
        for field in dataclasses.fields(getattr(recipe, part)):
            stored = to_json(recipe, KINDS)
            del stored[part][field.name]
            read = getattr(from_json(stored, KINDS), part)
            assert getattr(read, field.name) == field.default
            assert dataclasses.replace(read, **{field.name: getattr(getattr(recipe, part), field.name)}) == getattr(
                recipe, part
            )


@pytest.mark.parametrize("name", RECIPES)
def test_every_setting_of_plan_and_objective_is_explained(name):
    for setting in tree(find_recipe(name)):
        if setting.name.startswith(("plan.", "objective.")):
            assert setting.comment, setting.name


def test_every_part_has_one_name():
    assert len(set(KINDS.values())) == len(KINDS)
    assert MODELS.items() <= KINDS.items()
    assert all(dataclasses.is_dataclass(kind) for kind in KINDS.values())


def test_every_model_says_how_much_it_reads():
    assert Seq2SeqConfig(capacity=99).longest == 99
    assert LstmnConfig(context=77).longest == 77
    assert StructuredConfig().longest is None
    assert all(config().longest is None or config().longest >= 8 for config in MODELS.values())


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UserError, match=r'"datse" is no recipe. Did you mean "dates"'):
        find_recipe("datse")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model=lstmn"], "model=lstmn: does not fit data=dates; use model=seq2seq"),
        (["objective=label"], "objective=label: does not fit data=dates; use objective=teacher or objective=professor"),
        (["metrics=exat"], 'no measure exat. Did you mean "exact"'),
        (["plan.select=bleu"], "plan.select=bleu: the recipe does not measure that"),
        (["plan.rate=0"], "plan.rate=0"),
        (["plan.rat=0"], 'Did you mean "plan.rate"'),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        override(find_recipe("dates"), settings, KINDS)


def test_parts_that_fit_can_be_exchanged_together():
    made = override(find_recipe("text"), ["objective=teacher", "objective.ratio=0.5"], KINDS)
    assert isinstance(made, Recipe)
    assert made.task == "language"
