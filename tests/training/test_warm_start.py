"""Starting from a model that exists: what comes with its weights, what may be changed, and what is refused by name."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from encoded import MASKED_LINES
from regard.config import override
from regard.data.sources import Pairs
from regard.data.streams import Book
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.models import BertConfig, LstmnConfig, RecurrentLmConfig, Seq2SeqConfig, TransformerConfig
from regard.recipes import KINDS, Plan, Recipe, find_recipe, find_task
from regard.stored import stored_recipe
from regard.training.estimate import estimate
from regard.training.run import Run
from regard.training.warm_start import Transfer, WarmStart, warm_start_from, warm_started
from regard.verbs import classify
from regard.verbs.loaded import load

PLAN = Plan(steps=2, batch_tokens=160, evaluate=2, samples=2, threads=1, warmup=1, device="cpu")


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


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("pretrain", BertConfig(neighbours=True), ("model.neighbours=false", "model.mimetic=true", "model.initial=1")),
        ("text2text", TransformerConfig(positions="t5", shared="all", copies=True), ("model.copies=false",)),
        ("text", RecurrentLmConfig(chrono=5), ("model.chrono=9",)),
    ],
)
@pytest.mark.parametrize("folder", [None, Path("public")])
def test_settings_of_the_first_weights_may_be_others(name, config, settings, folder):
    given = WarmStart(config, [train_tokenizer("char", ["ab"], 20)], folder=folder)
    chosen, _ = warm_started(find_recipe(name), ["data.train=a.txt", *settings], given, "first")
    changed = {setting.name for setting in fields(config)} & {one.partition("=")[0][6:] for one in settings}
    assert {each for each in vars(config) if getattr(chosen.model, each) != getattr(config, each)} == changed


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
            r"from=.*first: a model of the kind seq2seq does not fit objective=teacher; set objective=spans",
        ),
        ("model.widht=24", 'Did you mean "model.width"'),
        ("data=pears", 'Did you mean "pairs"'),
    ],
)
def test_what_contradicts_the_weights_is_refused_by_name(first, setting, message):
    with pytest.raises(UserError, match=message):
        warm_started(find_recipe("translate"), [setting], warm_start_from(first), first)


def test_the_data_has_the_settings_of_the_tokenizers_that_are_given() -> None:
    lines = ["a b", "c d e"]
    words, letters = train_tokenizer("word", lines, 50), train_tokenizer("char", lines, 40)
    other = train_tokenizer("char", [*lines, "f"], 40)
    config = Seq2SeqConfig(source_vocab=words.size, target_vocab=letters.size, width=8, embed=4)
    public = replace(words, kind="wordpiece")
    for tokenizers, data, expected in (  # source_tokens, target_tokens, vocab, joint
        ([words, letters], Pairs(vocab=77, joint=True), ("word", "char", 77, True)),
        ([words, letters], None, ("word", "char", max(words.size, letters.size), False)),
        ([letters, letters], None, ("char", "char", letters.size, True)),
        ([letters, other], None, ("char", "char", other.size, False)),
        ([letters, public], None, ("char", "bpe", letters.size, False)),  # not a kind of the setting: as in the recipe
    ):
        given = WarmStart(config, tokenizers, data=data)
        chosen, _ = warm_started(find_recipe("translate"), ["data.train=a.tsv"], given, "first")
        found = chosen.data
        assert (found.source_tokens, found.target_tokens, found.vocab, found.joint) == expected
        assert found.train == "a.tsv"
    given = WarmStart(config, [words, letters])
    for setting, was in (("source_tokens=char", "word"), ("target_tokens=word", "char"), ("joint=true", "false")):
        refused = f"data.{setting}: it is {was} for the tokenizers of first"
        with pytest.raises(UserError, match=refused):
            warm_started(find_recipe("translate"), [f"data.{setting}"], given, "first")


def test_a_module_that_is_both_new_and_unused_is_replaced() -> None:
    found = Transfer(3, new=("a", "both", "c"), unused=("both", "d")).parts
    assert found == {"new": ["a", "c"], "not used": ["d"], "replaced by new ones": ["both"]}


def test_an_objective_is_chosen_beside_the_model_that_is_given(recipe, tmp_path):
    """Settings that fit only together: the recipe's own model could not have this objective."""
    made = override(find_recipe("pretrain"), [*MASKED_LINES, f"data.train={tmp_path / 'pairs.tsv'}"], KINDS)
    small = ["model.width=16", "model.heads=2", "model.layers=1", "model.inner=16", "model.context=32"]
    recipe()  # which writes the file
    list(Run(override(replace(made, plan=PLAN), small, KINDS), tmp_path / "masked"))
    chosen, _ = warm_started(find_recipe("text"), ["objective=masked"], warm_start_from(tmp_path / "masked"), "masked")
    assert find_task(chosen, KINDS).verb == "fill"
    message = (
        "from=masked: a model of the kind bert does not fit objective=teacher; use the recipe pretrain data=lines."
    )
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


# -- a body under another head ----------------------------------------------------------------------------------------

SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.inner=16", "model.context=32"]
LINES = [f"{word} {other} sat {word}" for word in ("owl", "mouse", "fox") for other in ("still", "down", "there")] * 6


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    """Files of lines and of labelled lines."""
    (tmp_path / "lines.txt").write_text("\n".join(LINES), encoding="utf-8")
    labelled = "".join(f"{line.split()[0]}\t{line}\n" for line in LINES)
    (tmp_path / "labelled.tsv").write_text(labelled, encoding="utf-8")
    return {name: f"data.train={tmp_path / file}" for name, file in (("lines", "lines.txt"), ("class", "labelled.tsv"))}


def pretrained(recipe: str, settings: list[str], out: Path) -> Path:
    made = replace(override(find_recipe(recipe), settings, KINDS), plan=PLAN, metrics=())
    list(Run(made, out))
    return out


def under_a_head(texts: dict[str, str], given: Path, out: Path, *settings: str) -> Run:
    wanted = [texts["class"], "plan.steps=60", "plan.evaluate=30", "plan.rate=1e-2", "plan.warmup=5"]
    wanted += ["plan.threads=1", "plan.device=cpu"]
    recipe, init = warm_started(find_recipe("classify"), [*wanted, *settings], warm_start_from(given), given)
    return Run(recipe, out, init=init)


GIVEN: dict[str, tuple[str, list[str], tuple[str, ...]]] = {  # the recipe, its settings, what is not used of the model
    "masked": ("pretrain", [*MASKED_LINES, "data.tokens=word", *SMALL], ("masked", "masked.dense", "masked.norm")),
    "lines": ("text", ["model=gpt", "data.tokens=word", *SMALL], ()),
    "untied": ("text", ["model=gpt", "data.tokens=word", "model.tied=no", *SMALL], ("readout_",)),
    "running": ("text", ["model=gpt", "data=book", "data.tokens=word", *SMALL], ()),
    "lstm": ("text", ["model=lstm", "model.width=32", "model.layers=1", "data.tokens=word"], ("readout_",)),
    "lstmn": ("text", ["model.width=16", "model.embed=8", "model.context=32", "data.tokens=word"], ("readout_",)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in ("untied", "lstmn") else name for name in GIVEN]
)
def test_a_body_is_put_under_a_class_head(name: str, texts: dict[str, str], tmp_path: Path) -> None:
    recipe, settings, unused = GIVEN[name]
    given = pretrained(recipe, [texts["lines"], *settings], tmp_path / "given")
    run = under_a_head(texts, given, tmp_path / "run")
    assert run.transfer is not None
    assert run.transfer.unused == unused
    assert {module.partition(".")[0] for module in run.transfer.new} == {"head"}
    before, after = load(given, "cpu").module.state_dict(), run.model.state_dict()
    taken = [name for name in before if f"body.{name}" in after]
    assert len(taken) == run.transfer.taken
    assert all(torch.equal(before[name], after[f"body.{name}"]) for name in taken)
    assert run.prepared.fields["label"].names == ("fox", "mouse", "owl")
    assert run.prepared.fields["text"].size == load(given, "cpu").fields["text"].size

    list(run)
    model = load(tmp_path / "run", "cpu")
    found = classify(model, ["fox still sat fox", "owl down sat owl", "mouse there sat mouse"])
    assert [one.label for one in found] == ["fox", "owl", "mouse"]
    list(Run(None, tmp_path / "run", "resume"))


def test_a_classifier_is_given_to_the_same_task_another_head_or_another_task(
    texts: dict[str, str], tmp_path: Path
) -> None:
    given = pretrained("pretrain", [texts["lines"], *MASKED_LINES, "data.tokens=word", *SMALL], tmp_path / "given")
    list(under_a_head(texts, given, tmp_path / "first", "head.pool=mean", "plan.steps=2"))
    first = load(tmp_path / "first", "cpu").module

    same = under_a_head(texts, tmp_path / "first", tmp_path / "same", "head.dropout=0.3")
    assert same.transfer is not None
    assert (same.transfer.new, same.transfer.unused) == ((), ())
    assert same.recipe.head.pool == "mean"
    assert torch.equal(same.model.head.out.weight.cpu(), first.head.out.weight)
    with pytest.raises(UserError, match=r"head.pool=last: the model in .*first has mean; leave it out"):
        under_a_head(texts, tmp_path / "first", tmp_path / "wrong", "head.pool=last")

    other = under_a_head(texts, tmp_path / "first", tmp_path / "other", "head=class", "head.hidden=none")
    assert other.transfer is not None
    assert (other.transfer.new, other.transfer.unused) == (("head.out",), ("head.hidden", "head.out"))

    (tmp_path / "other.tsv").write_text("wolf\ta wolf\nfox\ta fox\n" * 20, encoding="utf-8")
    data = [f"data.{part}={tmp_path / 'other.tsv'}" for part in ("train", "valid")]
    with pytest.raises(
        UserError, match=r"from=.*first: label 'wolf': .* use one of fox, mouse, owl; give head=class for"
    ):
        under_a_head(texts, tmp_path / "first", tmp_path / "wrong", *data)
    wolf = under_a_head(texts, tmp_path / "first", tmp_path / "wolf", *data, "head=class")
    assert wolf.prepared.fields["label"].names == ("fox", "wolf")

    settings = [texts["lines"], "data=lines", "plan.threads=1", "plan.device=cpu"]
    back, init = warm_started(find_recipe("pretrain"), settings, warm_start_from(tmp_path / "first"), "first")
    masked = Run(back, tmp_path / "masked", init=init)
    assert masked.transfer is not None
    assert masked.transfer.new == ("masked", "masked.dense", "masked.norm")
    assert masked.transfer.unused == ("head.hidden", "head.out")
    weight = masked.model.embedding.tokens.weight
    assert torch.equal(weight, first.body.embedding.tokens.weight)


def test_a_translator_is_no_body(first: Path, texts: dict[str, str], tmp_path: Path) -> None:
    message = (
        r"a model of the kind seq2seq does not fit data=labelled; start from .* rnn or lstm or gru or elmo or tcn or"
    )
    with pytest.raises(UserError, match=message):
        under_a_head(texts, first, tmp_path / "run")


def test_a_small_file_is_fine_tuned_in_small_batches(texts: dict[str, str], tmp_path: Path) -> None:
    """Three epochs of a few large batches are too few steps; what the user states stays."""
    recipe, settings, _ = GIVEN["masked"]
    given = pretrained(recipe, [texts["lines"], *settings], tmp_path / "given")
    wanted = [texts["class"], "plan.threads=1", "plan.device=cpu"]

    def tuned(out: str, *more: str) -> Run:
        made, init = warm_started(find_recipe("classify"), [*wanted, *more], warm_start_from(given), given)
        return Run(made, tmp_path / out, init=init)

    small, stated = tuned("small"), tuned("stated", "plan.batch_tokens=1024")
    assert (stated.recipe.plan.batch_tokens, stated.recipe.plan.steps) == (1024, 3)
    batches, plan = small.prepared.batches, small.recipe.plan
    assert plan.batch_tokens < 128
    assert plan.steps == 3 * len(batches) >= 15
    assert batches.dropped == 0
    assert small.prepared.examples / len(batches) >= 8
    (warning,) = [one for one in small.prepared.warnings if one.startswith("plan.epochs=3: ")]
    assert f"has {plan.steps} steps" in warning
    assert not [one for one in tuned("long", "plan.epochs=3").prepared.warnings if one.startswith("plan.epochs")]
    list(small)
    resumed = Run(None, tmp_path / "small", "resume")
    assert resumed.recipe.plan.batch_tokens == plan.batch_tokens
    assert len(resumed.prepared.batches) == len(batches)
