"""Tagging by fine-tuning a Transformer that reads sub-words: training, tags, export, long sentences, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.cli import main
from regard.data.batches import collate
from regard.data.word_pieces import PieceText
from regard.entities import to_iob2
from regard.errors import UserError
from regard.heads import tag_sequences
from regard.models import HeadedConfig
from regard.recipes import find_recipe
from regard.recording import record
from regard.training.evaluate import evaluate
from regard.training.extractor import Extraction, started
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.training.warm_start import WarmStart
from regard.verbs import export, load, look, tag
from regard.verbs.tagging import tag_words, word_tags
from tiny_public import CONTEXT, LINES, albert, bert, gpt2, roberta, transformers

PEOPLE, PLACES, VERBS = ("Anna", "Hal Berg"), ("London", "New York"), ("sees", "left")
PLAN = [
    *("plan.threads=1", "plan.device=cpu", "plan.batch_tokens=512", "plan.warmup=2", "plan.patience=0"),
    *("model.dropout=0", "model.attention_dropout=0"),
]
FEW = [*PLAN, "plan.steps=2", "plan.evaluate=2"]
MAKE: dict[str, Callable[[Path], Any]] = {"bert": bert, "roberta": roberta, "albert": albert, "gpt2": gpt2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of columns, and tiny public models."""
    folder, lines = tmp_path_factory.mktemp("pieces"), list[str]()
    for person, verb, place in product(PEOPLE, VERBS, PLACES):
        for words, kind in ((person, "PER"), (verb, ""), (place, "LOC"), (".", "")):
            for number, word in enumerate(words.split()):
                lines.append(f"{word} {'BI'[number > 0]}-{kind}" if kind else f"{word} O")
        lines.append("")
    (folder / "train.txt").write_text("\n".join(lines))
    for name, make in MAKE.items():
        make(folder / name)
    return folder


def files(folder: Path) -> list[str]:
    return [f"data.train={folder / 'train.txt'}", f"data.valid={folder / 'train.txt'}"]


def trained(folder: Path, out: Path, given: str, *settings: str) -> Any:
    recipe, start = started("tag", [*files(folder), *settings], folder / given)
    list(Run(recipe, out, init=start))
    return load(out, "cpu")


@pytest.mark.parametrize("head", ["tag", "crf"])
def test_a_tagger_learns_its_sentences(folder: Path, tmp_path: Path, head: str) -> None:
    settings = [*PLAN, "plan.steps=40", "plan.evaluate=40", "plan.rate=0.01", *(["head=crf"] if head == "crf" else [])]
    model = trained(folder, tmp_path / "run", "bert", *settings)
    assert isinstance(model.module.config, HeadedConfig)
    assert (tag_sequences(model.module) is not None) == (head == "crf")
    _, examples = model.examples("valid")
    assert evaluate(model, examples, ["entity_f1", "accuracy"]).values == {"entity_f1": 1.0, "accuracy": 1.0}
    text = "  Hal Berg left New York."
    (found,) = tag(model, [text])
    assert [(one.type, one.text) for one in found.entities] == [("PER", "Hal Berg"), ("LOC", "New York")]
    assert all(text[one.start : one.end] == one.text and 0 < one.probability <= 1 for one in found.entities)
    assert tag_words(model, [["Anna", "left"], []])[0].tags == ("S-PER", "O")
    assert tag_words(model, [[]])[0].tags == ()
    view = look(model, "Anna left")
    assert len(view.layers) == 2
    with record(model.module) as tape:
        tag(model, ["Hal Berg left", "Anna left"])
    assert len(tape) == 2
    pieces = model.tokenizer.pieces(model.tokenizer.wrap_input(model.tokenizer.encode("Anna left")))
    assert regard.view(tape, item=1).columns == pieces == view.columns


@pytest.mark.parametrize("given", MAKE)
def test_a_tagger_of_each_type_is_exported(folder: Path, tmp_path: Path, given: str) -> None:
    model = trained(folder, tmp_path / "run", given, *FEW)
    assert model.recipe.head.labels == 0  # the number of tags is that of the data
    assert model.recipe.plan.rate == 5e-5
    assert export(model, tmp_path / "public").kind == given
    theirs, report = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "public", output_loading_info=True
    )
    assert not any(report.values()), report
    assert list(theirs.config.id2label.values()) == [to_iob2(name) for name in model.fields["tags"].names]
    row = model.fields["text"].encode(["Hal Berg left ."])[0]
    batch = collate([{"text": row, "tags": torch.zeros(4, dtype=torch.int32).numpy()}], model.task)
    with torch.no_grad():
        expected = theirs.eval()(batch["tokens"]).logits
        torch.testing.assert_close(model.module(batch), expected, atol=1e-4, rtol=0)
    again = load(tmp_path / "public", "cpu")
    assert again.kind == "a tagger"
    assert isinstance(again.fields["text"], PieceText)
    texts = ["Hal Berg left New York .", "Anna sees London"]
    assert word_tags(again, texts) == word_tags(model, texts)


@pytest.mark.parametrize("scheme", ["bioes", "iob2"])
@pytest.mark.parametrize("strategy", ["simple", "first"])
def test_transformers_finds_the_same_entities(folder: Path, tmp_path: Path, scheme: str, strategy: str) -> None:
    """Its pipeline groups IOB2 alone: in BIOES, E-PER would be an entity of its own, and S-LOC one of the type S-LOC.

    The strategy "simple" takes each sub-word for a word, so here each word is one.
    """
    whole = " ".join([*PEOPLE, *PLACES, *VERBS, "."])
    bert(tmp_path / "given", lines=[whole] if strategy == "simple" else LINES)
    settings = [*PLAN, "plan.steps=40", "plan.evaluate=40", "plan.rate=0.01", f"data.scheme={scheme}"]
    recipe, start = started("tag", [*files(folder), *settings], tmp_path / "given")
    list(Run(recipe, tmp_path / "run", init=start))
    model = load(tmp_path / "run", "cpu")
    export(model, tmp_path / "public")
    texts = ["Hal Berg left New York.", "Anna sees London."]
    ours = [[(one.type, one.start, one.end) for one in found.entities] for found in tag(model, texts)]
    assert ours == [[("PER", 0, 8), ("LOC", 14, 22)], [("PER", 0, 4), ("LOC", 10, 16)]]
    read = transformers.pipeline(
        "token-classification",
        model=str(tmp_path / "public"),
        tokenizer=str(tmp_path / "public"),
        aggregation_strategy=strategy,
    )
    assert [[(one["entity_group"], one["start"], one["end"]) for one in found] for found in read(texts)] == ours


def test_an_exported_tagger_keeps_its_own_tags(folder: Path, tmp_path: Path) -> None:
    """`transformers` reads those of IOB2; the tags of the run are beside them, as long as both say the same."""
    model = trained(folder, tmp_path / "run", "bert", *FEW)
    export(model, tmp_path / "public")
    texts = ["Hal Berg left New York.", "Anna sees London."]
    again = load(tmp_path / "public", "cpu")
    assert again.fields["tags"].names == model.fields["tags"].names
    assert tag(again, texts) == tag(model, texts)
    export(again, tmp_path / "once more")
    first, second = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("public", "once more"))
    assert first == second
    named = dict.fromkeys(map(str, range(len(first["id2label"]))), "B-GOD") | {"0": "O"}
    (tmp_path / "public" / "config.json").write_text(json.dumps(first | {"id2label": named}))
    with pytest.raises(UserError, match="classes have the name 'B-GOD'"):  # another tool gave other names: they count
        load(tmp_path / "public", "cpu")


def test_a_random_field_scores_first_pieces_alone(folder: Path) -> None:
    """Its loss is that of the emissions of the words, without the other pieces and the special tokens between."""
    recipe, start = started("tag", [*files(folder), *FEW, "head=crf", "plan.precision=float32"], folder / "bert")
    prepared = prepare(recipe, given=start)
    loss = prepared.build()
    with torch.no_grad():
        for name, weight in loss.model.named_parameters():
            if name in ("head.transitions", "head.start", "head.end"):
                weight.normal_()
    batch = prepared.batches.batch(0)
    with torch.no_grad():
        sums, _ = recipe.objective(loss.model.eval(), batch, 0)
    chain, logits, words = loss.model.head, loss.model(batch), batch["words"]
    expected = 0.0
    for row in range(len(words)):
        emissions, targets = logits[row][words[row]][None], batch["targets"][row][words[row]]
        allowed = targets[:, None] == torch.arange(logits.shape[-1])
        expected += -chain.log_probability(emissions, allowed[None]).item() if len(targets) else 0.0
    assert float(sums["nll"]) == pytest.approx(expected, rel=1e-4)
    assert int(sums["right"]) <= batch.counts["targets"] == int(words.sum())


def test_a_text_longer_than_the_context_is_read_in_windows(folder: Path, tmp_path: Path) -> None:
    """In training it is cut between words; `tag` gives every word a tag."""
    long = "".join(f"{word} O\n" for word in ["Anna", "sees", "London"] * 12)
    (tmp_path / "long.txt").write_text((folder / "train.txt").read_text() + "\n" + long)
    settings = [f"data.train={tmp_path / 'long.txt'}", f"data.valid={tmp_path / 'long.txt'}", *FEW]
    recipe, start = started("tag", settings, folder / "bert")
    prepared = prepare(recipe, given=start)
    assert prepared.batches.dropped == 0
    list(Run(recipe, tmp_path / "run", init=start))
    model = load(tmp_path / "run", "cpu")
    assert model.longest == CONTEXT
    text = " ".join(["Anna", "sees", "London"] * 40)
    (found,) = tag(model, [text])
    assert found.words == tuple(text.split())
    assert len(found.tags) == 120
    _, examples = model.examples("valid")
    assert 0 <= evaluate(model, examples, ["accuracy", "entity_f1"]).values["accuracy"] <= 1


def test_what_a_run_starts_from(folder: Path, tmp_path: Path) -> None:
    """A Transformer of sub-words is trained itself; with model=bilstm, and for any other model, states are features."""
    recipe, start = started("tag", files(folder), folder / "bert")
    assert isinstance(start, WarmStart)
    assert {"head=tag", "plan.epochs=5", "plan.rate=5e-5"} <= set(start.finetune) <= set(find_recipe("tag").finetune)
    assert (recipe.plan.epochs, type(recipe.head).__name__) == (5, "TagHeadConfig")
    recipe, start = started("tag", [*files(folder), "plan.steps=7", "plan.rate=0.1", "head=crf"], folder / "bert")
    assert (recipe.plan.steps, recipe.plan.epochs, recipe.plan.rate) == (7, None, 0.1)
    assert type(recipe.head).__name__ == "CrfHeadConfig"
    _, start = started("tag", [*files(folder), "model=bilstm", "model.tune=true"], folder / "bert")
    assert isinstance(start, Extraction)
    (tmp_path / "book.txt").write_text("Anna sees London and Hal left New York\n" * 200)
    tiny = ["plan.steps=1", "plan.evaluate=1", "plan.device=cpu", "plan.batch_tokens=256", "plan.warmup=0"]
    tiny += ["model.width=8", *(f"data.{part}={tmp_path / 'book.txt'}" for part in ("train", "valid")), "--out"]
    assert main(["train", "text", "model=lstm", *tiny, str(tmp_path / "lstm")]) == 0
    assert main(["train", "text", "model=gpt", "model.heads=2", "data.tokens=char", *tiny, str(tmp_path / "char")]) == 0
    for name in ("lstm", "char"):  # no Transformer; one whose tokens are characters
        assert isinstance(started("tag", files(folder), tmp_path / name)[1], Extraction)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.tune=true"], "model.tune=true: .* is trained itself, .* add model=bilstm to read its states"),
        (["model.filters=9"], "model.filters=9: .* add model=bilstm to read its states as features"),
        (["model.width=32"], "model.width=32: the model in .* has 16; leave it out"),
        (["data.tokens=char"], "data.tokens=char: each word has a tag; set data.tokens=word, word-lower, bpe or"),
        (["model=gpt"], "model=gpt: the model in .* is of the kind bert; leave it out"),
    ],
)
def test_settings_that_do_not_fit(folder: Path, settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        started("tag", [*files(folder), *settings], folder / "bert")


def test_a_published_tagger_is_tuned_with_its_own_head(folder: Path, tmp_path: Path) -> None:
    model = trained(folder, tmp_path / "run", "bert", *FEW)
    export(model, tmp_path / "public")
    recipe, start = started("tag", [*files(folder), *FEW], tmp_path / "public")
    run = Run(recipe, tmp_path / "again", init=start)
    assert run.transfer is not None
    assert not run.transfer.new
    (tmp_path / "other.txt").write_text((folder / "train.txt").read_text().replace("LOC", "GOD"))
    recipe, start = started("tag", [f"data.train={tmp_path / 'other.txt'}", *FEW, "head=tag"], tmp_path / "public")
    run = Run(recipe, tmp_path / "other", init=start)
    assert run.transfer is not None
    assert run.transfer.new == ("head.out",)


def test_a_tagger_from_nothing(folder: Path, tmp_path: Path) -> None:
    small = ["model=bert", "model.width=16", "model.heads=2", "model.layers=1", "model.inner=24", "data.tokens=bpe"]
    plan = [*PLAN[:5], "plan.steps=2", "plan.evaluate=2", "plan.epochs=none", "data.vocab=30"]
    assert main(["train", "tag", *files(folder), *small, *plan, "--out", str(tmp_path / "run")]) == 0
    model = load(tmp_path / "run", "cpu")
    assert len(tag(model, ["Anna left London"])[0].tags) == 3
    assert any(len(ids) > 1 for ids in model.tokenizer.encode_words(["London"]))


def test_a_head_of_another_task_is_refused_or_replaced(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """`regard classify` names the verb to use; `from=` takes the body."""
    config = transformers.BertConfig.from_pretrained(folder / "bert")
    for kind, named in (("TokenClassification", "a tagger"), ("QuestionAnswering", "a model that answers questions")):
        place = tmp_path / kind
        transformers.AutoTokenizer.from_pretrained(folder / "bert").save_pretrained(place)
        getattr(transformers, f"BertFor{kind}")(config).save_pretrained(place)
        capsys.readouterr()
        assert main(["classify", str(place), str(folder / "train.txt")]) != 0
        said = " ".join(capsys.readouterr().err.split())
        assert f"this is {named}, which cannot classify; use: regard" in said
        recipe, start = started("tag", [*files(folder), *FEW, "head=tag"], place)
        run = Run(recipe, tmp_path / f"run{kind}", init=start)
        assert run.transfer is not None
        assert run.transfer.new == ("head.out",)
    settings = json.loads((tmp_path / "QuestionAnswering" / "config.json").read_text())
    assert settings["architectures"] == ["BertForQuestionAnswering"]
