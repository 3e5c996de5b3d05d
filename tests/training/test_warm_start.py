"""Starting from a model that exists: what comes with its weights, what may be changed, and what is refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from regard.config import override
from regard.data.streams import Book
from regard.errors import UserError
from regard.models import LstmnConfig
from regard.recipes import KINDS, Plan, Recipe, find_recipe, find_task
from regard.stored import stored_recipe
from regard.training.estimate import estimate
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs.loaded import load

PLAN = Plan(steps=2, batch_tokens=160, evaluate=2, samples=2, threads=1, warmup=1)


@pytest.fixture
def first(recipe, tmp_path):
    """A run of two steps, narrower than any recipe."""
    list(Run(recipe("plan.steps=2"), tmp_path / "first"))
    return tmp_path / "first"


def test_the_settings_of_the_model_and_its_tokenizers_come_with_the_weights(recipe, first, tmp_path):
    data = recipe().data
    wide = replace(find_recipe("translate"), plan=PLAN)
    settings = [f"data.train={data.train}", f"data.valid={data.train}"]
    chosen, given = warm_started(wide, settings, warm_start_from(first), first)
    assert chosen.model == given.config == load(first).module.config
    assert estimate(chosen, given).parameters == sum(one.numel() for one in load(first).module.parameters())
    run = Run(chosen, tmp_path / "second", init=given)
    assert run.prepared.fields["target"].tokenizer.kind == "char"  # the recipe's own would be bpe
    list(run)
    assert load(tmp_path / "second").module.config == given.config
    assert stored_recipe(tmp_path / "second").data == data  # what it is cut into, not what the recipe would say
    list(Run(None, tmp_path / "second", "resume"))


def test_what_is_said_again_is_no_contradiction_and_dropout_is_free(recipe, first):
    settings = ["model=seq2seq", "model.width=16", "model.dropout=0.3", "data.source_tokens=char"]
    chosen, given = warm_started(find_recipe("translate"), settings, warm_start_from(first), first)
    assert (chosen.model.dropout, given.config.dropout) == (0.3, 0.3)
    assert replace(chosen.model, dropout=0.1) == load(first).module.config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.width=24", r"model.width=24: the model in .*first has 16; leave it out"),
        ("model=transformer", r"model=transformer: the model in .*first is of the kind seq2seq"),
        ("model.target_vocab=3", r"model.target_vocab=3: the model in .*first has \d+"),
        ("data.target_tokens=word", r"data.target_tokens=word: it is char for the tokenizers of .*first, which come"),
        (
            "data.vocab=50",
            r"data.vocab=50: it is 8000 for the tokenizers of .*first, which come with its weights; leave",
        ),
        ("data.joint=yes", r"data.joint=true: it is false for the tokenizers of .*first"),
        (
            "data=lines",
            r"from=.*first: a model of the kind seq2seq does not fit data=lines; .* kind recurrent or lstmn or gpt, ",
        ),
        ("model.widht=24", 'Did you mean "model.width"'),
        ("data=pears", 'Did you mean "pairs"'),
    ],
)
def test_what_contradicts_the_weights_is_refused_by_name(first, setting, message):
    with pytest.raises(UserError, match=message):
        warm_started(find_recipe("translate"), [setting], warm_start_from(first), first)


def test_an_objective_is_chosen_beside_the_model_that_is_given(recipe, tmp_path):
    """Settings that fit only together: the recipe's own model could not have this objective."""
    made = override(find_recipe("masked"), [f"data.train={tmp_path / 'pairs.tsv'}", "data.tokens=char"], KINDS)
    small = ["model.width=16", "model.heads=2", "model.layers=1", "model.inner=16", "model.context=32"]
    recipe()  # which writes the file
    list(Run(override(replace(made, plan=PLAN), small, KINDS), tmp_path / "masked"))
    chosen, _ = warm_started(find_recipe("text"), ["objective=masked"], warm_start_from(tmp_path / "masked"), "masked")
    assert find_task(chosen, KINDS).verb == "fill"
    message = "from=masked: a model of the kind bert does not fit objective=teacher; use the recipe masked."
    with pytest.raises(UserError, match=message):
        warm_started(find_recipe("text"), [], warm_start_from(tmp_path / "masked"), "masked")


def test_lines_have_their_marks_after_running_text(tmp_path: Path) -> None:
    """A model of running text has a tokenizer without any, but the file still has them."""
    text = tmp_path / "text.txt"
    text.write_text("the owl sat still\nand the mouse sat too\n" * 30, encoding="utf-8")
    book = Recipe(data=Book(train=str(text)), model=LstmnConfig(width=16, embed=8, context=32), plan=PLAN, metrics=())
    list(Run(book, tmp_path / "book"))
    assert load(tmp_path / "book").target_tokenizer.special_tokens.eos is None
    lines, given = warm_started(find_recipe("text"), [f"data.train={text}"], warm_start_from(tmp_path / "book"), "book")
    assert Run(lines, tmp_path / "lines", init=given).prepared.fields["text"].tokenizer.special_tokens.eos is not None
