"""ELMo, context2vec and ULMFiT on texts that are hardly texts: one line, one token, one word repeated, a megabyte."""

from pathlib import Path

import pytest

from regard import UserError, load
from regard.config import override
from regard.recipes import KINDS, find_recipe
from regard.training.run import Run

SMALL = {
    "elmo": "model.width=8 model.cells=12 model.kernels=1,3 model.filters=8,8 model.embed=4 model.characters=10",
    "context2vec": "model.width=8 model.embed=8 model.inner=8",
    "ulmfit": "model.width=8 model.embed=8 model.hidden=8",
}
PLAN = "plan.steps=2 plan.evaluate=2 plan.warmup=1 plan.device=cpu"


def train(name: str, folder: Path, text: str, *settings: str) -> Run:
    (folder / "text.txt").write_text(text)
    given = [f"data.{part}={folder}/text.txt" for part in ("train", "valid")]
    run = Run(
        override(find_recipe(name), [*given, *SMALL[name].split(), *PLAN.split(), *settings], KINDS), folder / "run"
    )
    list(run)
    return run


@pytest.mark.parametrize("name", ["elmo", "context2vec"])
@pytest.mark.parametrize("text", ["the same line of six words", "word", "word " * 40], ids=["line", "token", "word"])
def test_a_text_of_one_line_one_token_or_one_word_is_trained(name: str, text: str, tmp_path: Path) -> None:
    train(name, tmp_path, text)
    assert load(tmp_path / "run", device="cpu").step == 2


@pytest.mark.parametrize("name", ["elmo", "context2vec"])
def test_a_line_of_a_megabyte_is_left_out(name: str, tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text("a short line\n")  # a model reads the long one word by word
    valid = f"data.valid={tmp_path / 'valid.txt'}"
    run = train(name, tmp_path, "a short line\n" * 8 + "word " * 210_000, valid)
    assert run.prepared.batches.dropped == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("six words are no whole window", r"the text has \d tokens, .* or data.window=\d or less"),
        ("word", r"the text has 1 tokens, not more than one window of 70; give a longer data.train\.$"),
        ("word " * 40, r"the text has 41 tokens, .* or data.window=40 or less"),
    ],
    ids=["line", "token", "word"],
)
def test_a_running_text_needs_more_than_one_window(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        train("ulmfit", tmp_path, text)


def test_a_running_text_may_be_one_line_of_a_megabyte(tmp_path: Path) -> None:
    train("ulmfit", tmp_path, "word other " * 100_000, "plan.batch_tokens=700")
    assert load(tmp_path / "run", device="cpu").step == 2
