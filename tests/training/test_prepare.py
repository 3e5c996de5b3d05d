"""From a recipe to what is trained: vocabularies, joint ones, those of a model that exists, and running text."""

from dataclasses import replace
from pathlib import Path

import pytest

from encoded import MASKED_LINES
from regard.config import override
from regard.data.streams import Book, Windows
from regard.data.tokenizers import EOS, train_tokenizer
from regard.errors import UserError
from regard.models import BertConfig, GptConfig, LstmnConfig, RecurrentLmConfig, TransformerConfig
from regard.recipes import KINDS, Recipe, find_recipe
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.training.warm_start import WarmStart
from regard.verbs.generating import generate
from regard.verbs.loaded import load

SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.inner=32", "model.context=32", "model.dropout=0"]
SHORT = [
    "plan.steps=4",
    "plan.evaluate=2",
    "plan.batch_tokens=256",
    "plan.warmup=1",
    "plan.threads=1",
    "plan.samples=4",
]


def made(name: str, *settings: str) -> Recipe:
    return override(find_recipe(name), [*settings, *SHORT], KINDS)


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"die maus {n}\tthe mouse {n}\n" for n in range(60)))
    return f"data.train={path}"


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"the mouse {n} runs,\nand sleeps.\n\n" for n in range(60)))
    return f"data.train={path}"


def test_a_joint_vocabulary_is_one_tokenizer_of_both_sides(pairs: str) -> None:
    apart = prepare(made("translate", pairs, "data.vocab=60", "model=transformer", *SMALL))
    assert apart.fields["source"].tokenizer is not apart.fields["target"].tokenizer
    joint = ("data.vocab=60", "model=transformer", "data.joint=true", "model.shared=all")
    found = prepare(made("translate", pairs, *joint, *SMALL))
    tokenizer = found.fields["target"].tokenizer
    assert found.fields["source"].tokenizer is tokenizer
    assert found.config.source_vocab == found.config.target_vocab == tokenizer.size
    for text in ("die maus 7", "the mouse 7"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    with pytest.raises(UserError, match=r"model\.shared=all: needs one vocabulary.*data\.joint=true"):
        prepare(made("translate", pairs, "model=transformer", "model.shared=all", *SMALL))
    with pytest.raises(UserError, match=r"data\.joint=true: .* data\.source_tokens=char and data\.target_tokens=bpe"):
        prepare(made("translate", pairs, "data.joint=true", "data.source_tokens=char"))


def test_a_transformer_of_pairs_trains_and_goes_on(pairs: str, tmp_path: Path) -> None:
    settings = (
        pairs,
        "data.joint=true",
        "data.vocab=60",
        "model=transformer",
        "model.shared=all",
        *SMALL,
        "model.context=128",
    )
    recipe = made("translate", *settings)
    list(Run(recipe, tmp_path / "whole"))
    run = iter(Run(recipe, tmp_path / "cut"))
    while next(run).step < 2:
        pass
    run.close()
    list(Run(None, tmp_path / "cut", "resume"))
    first, second = ((tmp_path / name / "steps/000004/weights.safetensors").read_bytes() for name in ("whole", "cut"))
    assert first == second


def test_a_model_that_exists_brings_its_settings_and_tokenizers(pairs: str) -> None:
    tokenizer = train_tokenizer("bpe", ["die maus", "the mouse"], 50)
    config = TransformerConfig(width=16, heads=2, layers=1, inner=32, source_vocab=64, target_vocab=64, shared="all")
    found = prepare(made("translate", pairs), given=WarmStart(config, [tokenizer, tokenizer]))
    assert found.config == config == found.recipe.model  # so that the run goes on with it; a padded vocabulary is fine
    assert found.fields["source"].tokenizer is found.fields["target"].tokenizer is tokenizer
    assert found.build().model.config == config
    speaker = GptConfig(width=16, heads=2, vocab=64)
    with pytest.raises(UserError, match="model=gpt: does not fit data=pairs; use model=seq2seq or model=gnmt or "):
        prepare(made("translate", pairs), given=WarmStart(speaker, [tokenizer]))


def test_a_vocabulary_has_the_size_of_the_tokenizer(lines: str) -> None:
    recipe = made("text", lines, "model=gpt", *SMALL)
    size = prepare(recipe).config.vocab
    for vocab in (size - 1, size + 1):
        with pytest.raises(UserError, match=rf"model\.vocab={vocab}: the data has {size}; leave it at 0"):
            prepare(replace(recipe, model=replace(recipe.model, vocab=vocab)))


def test_gaps_are_filled_with_the_mask_of_the_tokenizer(lines: str, tmp_path: Path) -> None:
    recipe = made("pretrain", *MASKED_LINES, lines, "data.tokens=bpe", *SMALL)
    found = prepare(recipe)
    config, tokenizer = found.config, found.fields["text"].tokenizer
    special = tokenizer.special_tokens
    assert isinstance(config, BertConfig)
    assert special.mask == tokenizer.encode("[MASK]")[0]
    assert {special.pad, special.prefix, special.suffix, special.mask} <= set(special.ids)
    assert config.vocab == tokenizer.size
    batch = found.batches.batch(0)
    tokens, real = batch["tokens"], batch.real["tokens"]
    assert tokens.shape[1] <= 32
    assert (tokens[:, 0][real[:, 0]] == special.prefix).all()
    assert (tokens == special.mask).any()
    assert (batch["targets"][tokens == special.mask] >= len(special.ids)).all()
    run = Run(recipe, tmp_path / "run")
    list(run)
    # What is hidden to judge by is the same every time.
    assert run.evaluate().values == run.evaluate().values


@pytest.mark.parametrize(("model", "kind"), [("gpt", GptConfig), ("lstmn", LstmnConfig)])
def test_running_text_is_read_in_windows_without_marks(lines: str, tmp_path: Path, model: str, kind: type) -> None:
    small = SMALL if model == "gpt" else ["model.width=16", "model.embed=8", "model.context=32"]
    recipe = made("text", "data=book", lines, f"model={model}", *small)
    run = Run(recipe, tmp_path / "run")
    found = run.prepared
    assert isinstance(found.config, kind)
    assert isinstance(found.batches, Windows)
    assert found.batches.shapes == [(8, 32)]
    text = "".join(example.text for example in recipe.data.load().train)
    batch = found.batches.batch(3)
    tokenizer = found.fields["text"].tokenizer
    for row in batch["tokens"].tolist():
        assert tokenizer.decode(row) in text
    assert tokenizer.special_tokens.bos is None
    events = list(run)
    loss_module = run.evaluate().values
    assert loss_module.keys() == {"loss", "perplexity"}
    assert 0 < loss_module["loss"] < 6
    assert events[-1].step == 4
    list(Run(None, tmp_path / "run", "resume"))
    (tmp_path / "lines.txt").write_text("another text\n" * 90)
    with pytest.raises(UserError, match="not what the run was started with"):
        Run(None, tmp_path / "run", "resume")


def test_the_loss_of_running_text_is_that_of_all_of_it(lines: str, tmp_path: Path) -> None:
    """However it is cut into batches; and longer windows know more of what came before."""
    recipe = made("text", "data=book", lines, "model=gpt", *SMALL)
    run = Run(recipe, tmp_path / "run")
    losses = []
    for budget in (32, 64, 4096):
        run.recipe = replace(recipe, plan=replace(recipe.plan, batch_tokens=budget))
        losses.append(run.evaluate().values["loss"])
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-5)


def test_running_text_in_bytes_trains_and_generates(tmp_path: Path) -> None:
    """The first byte that is no special token, "!", has the id of other tokenizers' unknown, and can be generated."""
    (tmp_path / "loud.txt").write_text("!" * 600, encoding="utf-8")
    settings = [f"data.train={tmp_path / 'loud.txt'}", "data.tokens=byte-bpe", "data.vocab=10", "model=gpt", *SMALL]
    list(Run(made("text", "data=book", *settings, "plan.rate=0.05"), tmp_path / "run"))
    model = load(tmp_path / "run")
    assert (model.tokenizer.kind, model.tokenizer.size, model.module.config.vocab) == ("byte-bpe", 259, 259)
    assert model.tokenizer.decode(model.tokenizer.encode("γάτα 😀\t\x00")) == "γάτα 😀\t\x00"  # of which it saw nothing
    assert generate(model, ["!"], limit=4)[0].text == "!!!!"


def test_a_text_that_says_nothing_is_no_judge(lines: str, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("x", encoding="utf-8")
    settings = [lines, f"data.valid={tmp_path / 'short.txt'}", "model=gpt", *SMALL]
    with pytest.raises(UserError, match="a text needs two tokens; give longer ones"):
        list(Run(made("text", "data=book", *settings), tmp_path / "run"))


def test_what_ends_a_text_is_the_tokenizers(pairs: str, lines: str) -> None:
    """A public vocabulary may have any id there, and windows of running text have none."""
    own = prepare(made("translate", pairs, "objective=professor")).build().own
    book = prepare(made("text", "data=book", lines, "objective=professor")).build().own
    assert (own.eos, book.eos) == (EOS, -1)
    tokenizer = train_tokenizer("bpe", ["die maus", "the mouse"], 50)
    other = replace(tokenizer, special_tokens=replace(tokenizer.special_tokens, eos=7))
    config = TransformerConfig(width=16, heads=2, layers=1, inner=32, source_vocab=64, target_vocab=64)
    found = prepare(made("translate", pairs, "objective=professor"), given=WarmStart(config, [tokenizer, other]))
    assert found.build().own.eos == 7
    assert 7 in found.batches.batch(0)["targets"]


def test_examples_leave_room_for_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join("a" * n + "\n" for n in range(25, 40)) + "b\n")
    chars = (f"data.train={path}", f"data.valid={path}", "data.tokens=char")
    spoken = prepare(made("text", *chars, "model=gpt", *SMALL)).batches
    filled = prepare(made("pretrain", *MASKED_LINES, *chars, *SMALL)).batches
    assert [spoken.dropped, filled.dropped] == [8, 9]  # of 32 places the beginning takes one; begin and end take two


@pytest.mark.parametrize("running", [False, True])
def test_a_validation_set_of_one_example_is_a_warning(recipe, tmp_path, running):
    """Of running text, an example may be long: its characters count."""
    (tmp_path / "one").write_text("ab\tba\n")
    (tmp_path / "more").write_text("ab\tba\n" * 900)
    model = RecurrentLmConfig(width=8)
    found = "text has 6 characters" if running else "set has 1 example"
    for name, few in (("one", True), ("more", False)):
        paths = {"train": str(tmp_path / "more"), "valid": str(tmp_path / name)}
        given = (
            recipe() if not running else replace(recipe(), model=model, metrics=("perplexity",), data=Book(window=16))
        )
        warnings = prepare(replace(given, data=replace(given.data, **paths))).warnings
        assert any(f"the validation {found}, too few to select" in one for one in warnings) == few
