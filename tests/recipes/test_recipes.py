"""Every recipe is whole, round-trips through JSON, and refuses parts that do not fit together."""

import dataclasses
import re

import pytest

from regard.config import from_json, override, to_json, tree
from regard.data.sources import Multi30k, Wmt14
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.metrics import METRICS
from regard.models import (
    CELLS,
    FAMILIES,
    MODELS,
    SIZES,
    BertConfig,
    GptConfig,
    LstmnConfig,
    Seq2SeqConfig,
    StructuredConfig,
)
from regard.objectives import OBJECTIVES, MaskedTokens
from regard.recipes import KINDS, RECIPES, Recipe, change, find_recipe, find_task, model_config, with_kinds
from regard.recipes.recipe import DATA, is_kind, shown_name, without_same_kinds
from regard.training.warm_start import WarmStart, warm_started

# Settings that are valid only together: a width and its heads or its tied embedding, a softmax and its clusters, the
# positions and the shared embedding that model.copies needs.
TOGETHER = {("model", name) for name in ("width", "heads", "embed", "softmax", "positions", "shared")}


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
            if (part, field.name) in TOGETHER:
                continue
            stored = to_json(recipe, KINDS)
            del stored[part][field.name]
            read = getattr(from_json(stored, KINDS), part)
            assert getattr(read, field.name) == field.default
            assert dataclasses.replace(read, **{field.name: getattr(getattr(recipe, part), field.name)}) == getattr(
                recipe, part
            )


@pytest.mark.parametrize("name", RECIPES)
def test_every_setting_of_a_recipe_has_a_description(name):
    for setting in tree(find_recipe(name)):
        assert setting.comment, setting.name
        # a sentence is whole: its first line is not left out
        assert not setting.comment.endswith(".") or setting.comment[0].isupper(), setting.name


@pytest.mark.parametrize("part", ["data", "model", "head", "objective"])
def test_every_setting_of_every_kind_has_a_description(part):
    for name, kind in KINDS[part].items():
        for setting in tree(kind() if isinstance(kind, type) else kind):
            assert setting.comment, f"{name}: {setting.name}"


def test_every_part_has_one_name():
    assert KINDS["data"] is DATA
    assert KINDS["objective"] is OBJECTIVES
    assert KINDS["model"].keys() == MODELS.keys() | CELLS.keys() | FAMILIES.keys() | SIZES.keys() | {"vectors"}
    assert MODELS.items() <= KINDS["model"].items()
    for table in ("data", "model", "objective", "node"):
        classes = [kind for kind in KINDS[table].values() if isinstance(kind, type)]
        assert len(set(classes)) == len(classes)
        assert all(dataclasses.is_dataclass(kind) for kind in KINDS[table].values())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_task(name):
    recipe = find_recipe(name)
    task = find_task(recipe, KINDS)
    assert task.head in model_config(recipe, task, KINDS).predicts
    assert task.head in recipe.objective.heads
    assert task is KINDS["task"][task.name]


@dataclasses.dataclass(frozen=True)
class Few:
    """A corpus of a user's own."""

    tasks = ("language",)
    count: int = 3  # how many


def test_tables_of_ones_own_are_read_beside_ours():
    kinds = with_kinds({"data": {"few": Few}, "metric": {"exact": METRICS["loss"]}})
    assert kinds["data"] == {**DATA, "few": Few}
    assert kinds["metric"]["exact"] is METRICS["loss"]  # one's own wins
    assert KINDS["metric"]["exact"] is METRICS["exact"]
    assert with_kinds(None) is with_kinds(KINDS) is KINDS
    made = override(find_recipe("text"), ["data=few", "data.count=5"], kinds)
    assert made.data == Few(5)
    assert find_task(made, kinds).name == "language"
    assert from_json(to_json(made, kinds), kinds) == made
    with pytest.raises(UserError, match="few"):
        override(find_recipe("text"), ["data=few"], KINDS)


def test_an_unknown_table_is_refused():
    with pytest.raises(UserError, match=r'kinds: there is no table "metrics". Did you mean "metric"'):
        with_kinds({"metrics": {}})


def test_every_model_says_how_much_it_reads():
    assert Seq2SeqConfig(capacity=99).longest == 99
    assert LstmnConfig(context=77).longest == 77
    assert StructuredConfig().longest is None
    assert all(config().longest is None or config().longest >= 8 for config in MODELS.values())


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UserError, match=r'"datse" is no recipe. Did you mean "dates"'):
        find_recipe("datse")
    with pytest.raises(UserError, match=r"model=xlnet: no such choice. Known: albert, .*transformer-xl"):
        change(find_recipe("pretrain"), ["model=xlnet"], KINDS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model=lstmn"], "model=lstmn: does not fit data=dates; use model=seq2seq"),
        (
            ["objective=masked"],
            "objective=masked: does not fit data=dates; use objective=teacher or objective=",
        ),
        (["head=class"], "head=class: does not fit data=dates; leave it out"),
        (["metrics=exat"], 'no metric exat. Did you mean "exact"'),
        (["plan.select=bleu"], "plan.select=bleu: not a metric of the recipe"),
        (["plan.rate=0"], "plan.rate=0"),
        (["plan.rat=0"], 'Did you mean "plan.rate"'),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        find_task(override(find_recipe("dates"), settings, KINDS), KINDS)


def test_parts_that_fit_can_be_exchanged_together():
    made = override(find_recipe("text"), ["objective=teacher", "objective.ratio=0.5"], KINDS)
    assert isinstance(made, Recipe)
    assert find_task(made, KINDS).name == "language"


@pytest.mark.parametrize(
    ("name", "model", "task"),
    [
        ("translate", "transformer", "translate"),
        ("multi30k-de-en", "transformer", "translate"),
        ("multi30k", "seq2seq", "translate"),
        ("text", "gpt", "language"),
        ("shakespeare", "lstmn", "running"),
    ],
)
def test_recipes_take_either_family(name, model, task):
    made = override(find_recipe(name), [f"model={model}"], KINDS)
    assert type(made.model) is MODELS[model]
    assert find_task(made, KINDS).name == task


def test_the_model_decides_between_the_tasks_of_lines():
    assert find_task(find_recipe("text"), KINDS).name == "language"
    assert find_task(find_recipe("pretrain"), KINDS).name == "masked running"
    filled = override(find_recipe("text"), ["model=bert", "objective=masked"], KINDS)
    assert find_task(filled, KINDS).name == "masked"
    assert isinstance(filled.objective, MaskedTokens)
    with pytest.raises(UserError, match="objective=teacher: does not fit model=bert; use objective=masked"):
        find_task(override(find_recipe("text"), ["model=bert"], KINDS), KINDS)
    with pytest.raises(
        UserError,
        match="model=captioner: does not fit data=lines; use model=seq2seq or model=gnmt or model=convs2s or",
    ):
        find_task(override(find_recipe("text"), ["model=captioner"], KINDS), KINDS)
    with pytest.raises(UserError, match="objective=teacher: does not fit model=seq2seq; use objective=spans"):
        find_task(override(find_recipe("text"), ["model=seq2seq"], KINDS), KINDS)
    with pytest.raises(UserError, match="model=bigram: does not fit data=labelled; use model=rnn or model=lstm or"):
        find_task(change(find_recipe("classify"), ["model=bigram"], KINDS), KINDS)


def test_metrics_that_do_not_fit_the_model_are_left_out_unless_stated():
    elmo = find_recipe("elmo")
    assert change(elmo, ["model.width=8", "model.cells=8"], KINDS).metrics == ("perplexity", "forward", "backward")
    for direction in ("forward", "backward"):
        assert change(elmo, [f"model.direction={direction}"], KINDS).metrics == ("perplexity",)
    stated = ["model.direction=forward", "metrics=perplexity,forward"]
    assert change(elmo, stated, KINDS).metrics == ("perplexity", "forward")
    for name in ("rate", "multilabel"):  # a head that fits the task is added to a body
        assert change(find_recipe(name), ["model=bert"], KINDS).metrics == find_recipe(name).metrics


@pytest.mark.parametrize("name", SIZES)
def test_published_sizes_are_trained_on_the_vocabulary_of_the_data(name):
    kind = type(SIZES[name])
    recipe = {GptConfig: "text", BertConfig: "pretrain"}.get(kind, "translate")
    made = override(find_recipe(recipe), [f"model={name}", "model.dropout=0.25"], KINDS).model
    assert type(made) is kind
    assert (made.width, made.layers, made.dropout) == (SIZES[name].width, SIZES[name].layers, 0.25)
    assert {getattr(made, field, 0) for field in ("vocab", "source_vocab", "target_vocab")} == {0}


def test_the_published_shapes():
    base, big = find_recipe("wmt14").model, find_recipe("wmt14-big").model
    assert (base.width, base.inner, base.layers, base.shared) == (512, 2048, 6, "all")
    assert (big.width, big.inner, big.heads) == (1024, 4096, 16)
    assert find_recipe("wmt14").data.joint
    small, tiny = find_recipe("shakespeare").model, find_recipe("shakespeare-cpu").model
    count = {
        name: sum(w.numel() for w in dataclasses.replace(m, vocab=69).build().parameters())
        for name, m in (("small", small), ("tiny", tiny))
    }
    assert 10.6e6 < count["small"] < 10.9e6
    assert 0.79e6 < count["tiny"] < 0.82e6


def test_a_title_names_no_language_that_a_setting_changes() -> None:
    """With data.target=fr, the report of a run would name German."""
    recipes = [find_recipe(name) for name in RECIPES]
    chosen = [recipe.title for recipe in recipes if isinstance(recipe.data, Multi30k | Wmt14)]
    assert len(chosen) == 6
    assert not [title for title in chosen if re.search("English|German|French", title)]


def test_a_part_that_is_of_a_kind_already_is_not_reset() -> None:
    recipe = change(find_recipe("text"), ["model=lstm", "model.width=24", "data.train=mine.txt"], KINDS)
    assert is_kind(recipe.model, KINDS["model"]["lstm"])
    assert is_kind(recipe.model, KINDS["model"]["recurrent"])
    assert not is_kind(recipe.model, KINDS["model"]["gru"])
    assert shown_name(recipe.model, KINDS["model"]) == "lstm"
    assert shown_name(find_recipe("dates").model, KINDS["model"]) == "seq2seq"
    again = ["data=lines", "model=lstm", "model.width=24"]
    assert change(recipe, without_same_kinds(recipe, again, KINDS), KINDS) == recipe
    assert without_same_kinds(recipe, ["model=gru", "data=book", "model=none"], KINDS) == [
        "model=gru",
        "data=book",
        "model=none",
    ]
    given = WarmStart(recipe.model, [train_tokenizer("char", ["abc"], 10)])
    assert warm_started(find_recipe("text"), ["model=lstm"], given, "run")[0].model.width == 24
    with pytest.raises(UserError, match="model=gru: the model in run is of the kind lstm; leave it out"):
        warm_started(find_recipe("text"), ["model=gru"], given, "run")


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_gates_start_with_a_memory_as_long_as_the_sequences_of_the_recipe(model: str) -> None:
    def chrono(recipe: str, *settings: str) -> int:
        return int(change(find_recipe(recipe), [f"model={model}", *settings], KINDS).model.chrono)

    assert [chrono(name) for name in ("adding", "copy", "smnist", "pmnist")] == [600, 1020, 784, 784]
    assert (chrono("adding", "data.length=200"), chrono("copy", "data.delay=30")) == (200, 50)
    assert (chrono("smnist", "data.pixels=4"), chrono("smnist", "data.pixels=784")) == (196, 0)
    assert chrono("smnist", "model.chrono=0") == 0  # what is stated wins
    assert (chrono("smnist", "data=clips"), chrono("text", "data.train=x")) == (0, 0)
    assert change(find_recipe("smnist"), ["model=rnn"], KINDS).model.chrono == 0  # no gates


def test_a_transformer_of_dates_is_small_and_trained_for_longer() -> None:
    def made(*settings: str) -> Recipe:
        return change(find_recipe("dates"), settings, KINDS)

    recipe = made("model=transformer")
    assert (recipe.model.width, recipe.model.layers, recipe.plan.steps, recipe.plan.rate) == (128, 2, 1200, 1e-3)
    assert made("plan.steps=30", "model=transformer", "model.width=64").plan.steps == 30
    assert made("plan.steps=30", "model=transformer", "model.width=64").model.width == 64
    assert made("model=gnmt").plan == made().plan


def test_a_model_that_others_start_from_has_the_plan_of_its_family_and_the_objective_of_the_recipe() -> None:
    own = change(find_recipe("dates"), ["model=transformer", "objective=guided"], KINDS)
    tokens = [train_tokenizer("char", ["abc"], 10)] * 2
    given = WarmStart(own.model, tokens, objective=own.objective)
    recipe = warm_started(find_recipe("dates"), [], given, "run")[0]
    assert (recipe.plan.steps, recipe.objective) == (1200, find_recipe("dates").objective)


def test_an_unknown_objective_is_answered_with_those_that_fit():
    with pytest.raises(UserError, match=r"^objective=softmax: no such choice\. Known: hierarchical, negative\.$"):
        change(find_recipe("word2vec"), ["objective=softmax"], KINDS)
    with pytest.raises(UserError, match=r'^objective=negativ: no such choice\. Did you mean "negative"\?$'):
        change(find_recipe("word2vec"), ["objective=negativ"], KINDS)


def test_a_model_that_learns_by_gradients_replaces_one_that_counts():
    assert change(find_recipe("bigram"), ["model=lstm"], KINDS).objective.learns_by == "gradients"


def test_the_small_t5_does_not_scale_its_logits_and_the_published_one_does():
    small, large = (change(find_recipe("pretrain"), [f"model={name}"], KINDS).model for name in ("t5", "t5-small"))
    assert (small.readout_factor, large.readout_factor) == (1.0, large.width**-0.5)
