"""What error messages have in common."""

from pathlib import Path

import pytest
import torch

import regard
from regard.config import override
from regard.errors import LONGEST, LONGEST_WORD, NAMED, UserError, nearest, shorten
from regard.recipes import KINDS, find_recipe
from regard.stored import given_tokenizer
from regard.training.run import Run
from regard.training.warm_start import warm_start_from


def test_a_name_that_shares_more_than_half_of_its_letters_is_suggested() -> None:
    known = ["batch_tokens", "steps"]
    assert nearest("batchsize", known) == ' Did you mean "batch_tokens"?'
    assert nearest("batchsize", known, "plan.") == ' Did you mean "plan.batch_tokens"?'
    assert nearest("xlnet", ["albert", "gpt"]) == " Known: albert, gpt."


def test_of_many_names_the_closest_are_shown_and_the_others_counted() -> None:
    known = [f"number{at}" for at in range(50)] + ["abxyz", "abuvw"]
    message = nearest("abcde", known)
    assert message.endswith(" and 32 more.")
    shown = message.removeprefix(" Known: ").removesuffix(" and 32 more.").split(", ")
    assert len(shown) == NAMED
    assert shown == sorted(shown)
    assert {"abxyz", "abuvw"} < {*shown}
    assert nearest("zz", known[:NAMED]).count("number") == NAMED
    assert nearest("zz", known[:NAMED], "plan.").count("plan.number") == NAMED


def test_a_long_value_loses_its_middle_and_the_cure_stays() -> None:
    path = "/" + "a" * (LONGEST_WORD - 2) + ":"
    assert shorten(f"{path} no such file; check its name.") == f"{path} no such file; check its name."
    assert shorten(f"model.{'x' * 3000}=1: no such setting.") == f"model.{'x' * 114}…{'x' * 117}=1: no such setting."
    long = shorten(f"first {'many words ' * 300}; give fewer.")
    assert (len(long), long[:6], long[-11:]) == (LONGEST + 1, "first ", "give fewer.")


@pytest.mark.parametrize(
    ("path", "message"),
    [("", "this path is empty"), ("a" * 5000, "File name too long"), ("a\0b", "embedded null")],
)
def test_a_path_that_no_file_can_have_is_refused_at_every_entrance(tmp_path: Path, path: str, message: str) -> None:
    recipe = find_recipe("hello")
    model = regard.Loaded(tmp_path, torch.nn.Identity(), torch.device("cpu"))
    for entrance in (
        regard.load,
        warm_start_from,
        given_tokenizer,
        lambda path: Run(recipe, path),
        lambda path: regard.export(model, path),
        lambda path: regard.export(path, tmp_path / "out"),
    ):
        with pytest.raises(UserError, match=message):
            entrance(path)
    if path:  # an empty one is no path: the setting is not given
        with pytest.raises(UserError):
            Run(override(find_recipe("classify"), [f"data.train={path}"], KINDS), tmp_path / "run")
