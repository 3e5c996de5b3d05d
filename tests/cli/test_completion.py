"""Shell completion without torch, and the words of other libraries in error messages."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from regard.cli import completion
from regard.cli.app import app
from regard.cli.completion import KINDS, RECIPES, SETTINGS, recipe_names, setting_names
from regard.config import tree
from regard.recipes import KINDS as TABLES
from regard.recipes.recipe import Plan, name_of
from regard.synonyms import OPTIONS
from regard.synonyms import SETTINGS as WORDS

Regard = Callable[..., "Said"]  # noqa: F821
PARTS = ("data", "model", "objective")


def _names(kind: Any) -> str:
    return " ".join(field.name for field in fields(kind) if field.init)


def tables() -> dict[str, dict[str, str]]:
    """The content of completion.json."""
    made = {name: make() for name, make in TABLES["recipe"].items()}
    kinds = {name: " ".join(name_of(getattr(one, part), TABLES[part]) for part in PARTS) for name, one in made.items()}
    types = (
        (part, name, kind) for part in (*PARTS, "head") for name, kind in TABLES[part].items() if isinstance(kind, type)
    )
    return {
        "recipes": kinds,
        "kinds": {part: " ".join(TABLES[part]) for part in (*PARTS, "head")},
        "settings": {"plan": _names(Plan), **{f"{part}={name}": _names(kind) for part, name, kind in types}},
    }


def test_the_tables_are_those_of_the_recipes() -> None:
    found = {"recipes": RECIPES, "kinds": KINDS, "settings": SETTINGS}
    assert found == tables(), "write the file anew: python tests/cli/test_completion.py"


@pytest.mark.parametrize(
    ("recipe", "given", "incomplete", "expected"),
    [
        ("dates", [], "model.w", ["model.width=", "model.window="]),
        ("dates", ["model=gpt"], "model.h", ["model.heads=", "model.head_width="]),
        ("dates", ["model", "=", "gpt"], "model.h", ["model.heads=", "model.head_width="]),  # as bash splits words
        ("text", ["model=lstm"], "model.t", ["model.tied="]),
        ("dates", [], "plan.ep", ["plan.epochs=", "plan.epsilon="]),
        ("dates", [], "model=gpt2-", ["model=gpt2-medium", "model=gpt2-large", "model=gpt2-xl"]),
        ("dates", ["objective", "="], "pro", ["professor"]),
        ("nothing", [], "data.", []),
    ],
)
def test_settings_are_completed(recipe: str, given: list[str], incomplete: str, expected: list[str]) -> None:
    context: Any = SimpleNamespace(params={"recipe": recipe, "settings": given})
    assert setting_names(context, incomplete) == expected


def test_recipes_are_completed_by_the_shell_without_torch() -> None:
    assert recipe_names("shake") == ["shakespeare", "shakespeare-cpu"]
    code = "import sys; from regard.cli.app import app\n"
    code += "try:\n app(prog_name='regard')\nfinally: print('torch' in sys.modules)"
    words = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": "regard train shake", "COMP_CWORD": "2"}
    said = subprocess.run([sys.executable, "-c", code], env=os.environ | words, capture_output=True, text=True)
    assert said.stdout.split() == ["shakespeare", "shakespeare-cpu", "False"]


def test_each_of_our_names_in_the_tables_of_words_exists() -> None:
    known = {f"{name.partition('=')[0]}.{setting}" for name, words in SETTINGS.items() for setting in words.split()}
    assert WORDS.keys() <= known | {"metrics"}
    group: Any = typer.main.get_command(app)
    options = {option for command in group.commands.values() for param in command.params for option in param.opts}
    assert {option for option in OPTIONS if "=" not in option} <= options
    plan = {setting.name for setting in tree(Plan())}
    assert not plan & {word for words in WORDS.values() for word in words.split()}  # a word of ours needs no hint


def test_each_option_and_argument_has_a_help() -> None:
    group: Any = typer.main.get_command(app)
    listed = {name: [one for one in command.params if not one.hidden] for name, command in group.commands.items()}
    assert [(name, one.name) for name, params in listed.items() for one in params if not one.help] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("train dates plan.lr=1", 'no such setting. Did you mean "plan.rate" (the highest learning rate'),
        ("train dates learning_rate=1", 'Did you mean "plan.rate"'),
        ("train dates model.learning-rate=1", 'Did you mean "plan.rate"'),
        ("train dates Learning_Rate=1", 'Did you mean "plan.rate"'),
        ("train dates num_train_epochs=1", 'Did you mean "plan.epochs" (number of passes'),
        ("train dates batch_size=1", 'Did you mean "plan.batch_tokens" (number of tokens of a batch, padding included'),
        ("train dates num_heads=4", "model.heads is a setting of model=transformer or model=gpt or model=bert."),
        ("train dates model.heads=4", "no such setting of this model; model.heads is a setting of model=transformer"),
        (
            "train dates model.tied=true",
            "model.tied is a setting of model=rnn or model=lstm or model=gru or 3 others",
        ),
        ("train shakespeare n_head=4", 'Did you mean "model.heads"'),
        ("train text data.window=8", "data.window is a setting of data=book or data=shakespeare or data=hello or "),
        ("train dates max_new_tokens=4", "Did you mean the option --limit?"),
        ("train dates output_dir=x", "Did you mean the option --out?"),
        ("train dates beam=4", "Did you mean the option --beam?"),
        ("train text pretrained=x", "Did you mean from=DIR?"),
        ("train dates --lr 1e-3", "No such option: --lr. Did you mean the setting plan.rate=VALUE?"),
        ("train dates --steps 4", "Did you mean the setting plan.steps=VALUE?"),
        ("generate run --max-new-tokens 4", "No such option: --max-new-tokens. Did you mean --limit?"),
        ("translate run --num-beams 4", "Did you mean --beam?"),
        ("generate run --lr 3", "Did you mean the setting plan.rate of regard train?"),
        ("translate run --truncation", "Did you mean --long?"),
        ("score run --batch_size 4", "Did you mean --batch-tokens?"),
        ("eval run --steps 4", "No such option: --steps"),
    ],
)
def test_words_of_other_libraries_lead_to_ours(regard: Regard, arguments: str, expected: str) -> None:
    said = regard(*arguments.split())
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert expected in said.err


def test_short_help_and_flags_without_a_type(regard: Regard) -> None:
    for command in ([], ["train"], ["explain", "scaling"]):
        assert regard(*command, "-h") == regard(*command, "--help")
    said = regard("train", "-h")
    assert said.code == 0
    assert "--resume" in said.out
    assert "bool" not in said.out


if __name__ == "__main__":
    text = json.dumps(tables(), indent=2) + "\n"
    Path(completion.__file__).with_name("completion.json").write_text(text, encoding="utf-8")
