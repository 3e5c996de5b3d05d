"""Classifiers of `transformers` in both directions: the same labels, the same logits, with and without padding."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import UserError
from regard.heads import ClassHeadConfig
from regard.models import BertConfig, HeadedConfig
from regard.pretrained.folder import find_type
from regard.pretrained.public_heads import label_names, label_settings
from regard.recipes import KINDS, change, find_recipe
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs import classify, export, load, look
from regard.verbs.answering import answer
from regard.verbs.labelling import choose, label_sets, rate, similarity
from tiny_public import CONTEXT, ENCODER, END, LINES, bert, gpt2, roberta, saved, transformers, wordpiece

NAMES = {0: "no", 1: "yes", 2: "maybe"}
LABELS: dict[str, Any] = {"id2label": NAMES, "label2id": {name: at for at, name in NAMES.items()}}
DISTIL: dict[str, Any] = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
TEXTS = ["the grey heron stood", "rain fell on the tin roof", "warm"]  # of several lengths
SHORT = [
    *("plan.steps=4", "plan.evaluate=2", "plan.batch_tokens=256", "plan.warmup=1", "plan.threads=1"),
    *("plan.rate=1e-2", "plan.device=cpu", "plan.patience=0"),
]


def test_classes_are_named_in_the_order_of_their_numbers() -> None:
    twelve = {str(number): f"c{number}" for number in range(12)}
    for settings, names in (
        ({"id2label": {"2": "b", "0": "c", "1": "a"}}, ("c", "a", "b")),
        ({"id2label": dict(sorted(twelve.items()))}, tuple(twelve.values())),  # "10" comes before "2" in the file
        ({"id2label": {"0": 7, "1": "x"}}, ("7", "x")),
        ({"id2label": {"0": "one", "1": "two"}, "num_labels": 5}, ("one", "two")),
        ({"num_labels": 3}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"num_labels": 1}, ("LABEL_0",)),
        ({"id2label": {}}, ("LABEL_0", "LABEL_1")),
        ({}, ("LABEL_0", "LABEL_1")),
    ):
        assert label_names(settings, "config.json") == names
    written = label_settings(("b", "a"))
    assert written == {"id2label": {"0": "b", "1": "a"}, "label2id": {"b": 0, "a": 1}}
    for count in (0, -1, True, 2.0):
        with pytest.raises(UserError, match=f"^config.json: num_labels={count}: give the number of classes"):
            label_names({"num_labels": count}, "config.json")


def bert_classifier(folder: Path) -> Any:
    wordpiece(folder)
    config = transformers.BertConfig(**ENCODER, vocab_size=200, max_position_embeddings=CONTEXT, **LABELS)
    return saved(transformers.BertForSequenceClassification(config), folder)


def distilbert_classifier(folder: Path) -> Any:
    wordpiece(folder)
    config = transformers.DistilBertConfig(**DISTIL, vocab_size=200, max_position_embeddings=CONTEXT, **LABELS)
    return saved(transformers.DistilBertForSequenceClassification(config), folder)


def roberta_classifier(folder: Path) -> Any:
    roberta(folder)
    config = transformers.RobertaConfig.from_pretrained(folder, **LABELS)
    return saved(transformers.RobertaForSequenceClassification(config), folder)


def electra_classifier(folder: Path) -> Any:
    wordpiece(folder)
    sizes = {**ENCODER, "embedding_size": 8, "vocab_size": 200, "max_position_embeddings": CONTEXT}
    return saved(transformers.ElectraForSequenceClassification(transformers.ElectraConfig(**sizes, **LABELS)), folder)


def albert_classifier(folder: Path) -> Any:
    wordpiece(folder)
    sizes = {**ENCODER, "embedding_size": 8, "vocab_size": 200, "max_position_embeddings": CONTEXT}
    return saved(transformers.AlbertForSequenceClassification(transformers.AlbertConfig(**sizes, **LABELS)), folder)


def gpt2_classifier(folder: Path) -> Any:
    gpt2(folder)
    config = transformers.GPT2Config.from_pretrained(folder, **LABELS)
    config.pad_token_id = config.eos_token_id
    return saved(transformers.GPT2ForSequenceClassification(config), folder)


PUBLIC: dict[str, Callable[[Path], Any]] = {
    "bert": bert_classifier,
    "distilbert": distilbert_classifier,
    "roberta": roberta_classifier,
    "electra": electra_classifier,
    "albert": albert_classifier,
    "gpt2": gpt2_classifier,
}


@torch.no_grad()
def reference(folder: Path, texts: list[str]) -> torch.Tensor:
    """The logits of `transformers` for the texts of a batch."""
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or END
    return model.eval()(**tokenizer(texts, return_tensors="pt", padding=True)).logits


def our_logits(model: regard.Loaded, texts: list[str]) -> torch.Tensor:
    labels = model.fields["label"].names
    found = classify(model, texts)
    return torch.tensor([[one.labels[name] for name in labels] for one in found]).log()


def equal(folder: Path, model: regard.Loaded, texts: list[str]) -> None:
    expected = reference(folder, texts).log_softmax(-1)
    torch.testing.assert_close(our_logits(model, texts), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", PUBLIC)
def test_a_public_classifier_is_read_and_written(kind: str, tmp_path: Path) -> None:
    PUBLIC[kind](tmp_path / "public")
    model = load(tmp_path / "public", "cpu")
    assert isinstance(model.module.config, HeadedConfig)
    assert model.fields["label"].names == ("no", "yes", "maybe")
    assert model.kind == "a classifier"
    equal(tmp_path / "public", model, TEXTS)
    view = look(model, TEXTS[0])
    assert len(view.layers) == 2
    assert list(view.rows) == list(view.columns)

    assert export(model, tmp_path / "written").kind == kind
    equal(tmp_path / "written", model, TEXTS)
    again = load(tmp_path / "written", "cpu")
    assert again.module.config == model.module.config
    for name, weight in model.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name]), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id2label": {"0": "only"}}, "classifier.weight is 3×16, but by config.json it should be 1×16"),
        ({"id2label": {"0": "no", "1": "yes", "3": "maybe"}}, r"config\.json: id2label has no name for each number"),
        ({"id2label": {"0": "no", "one": "yes", "2": "maybe"}}, r"id2label .* number its classes 0, 1, 2 …$"),
        ({"id2label": ["no", "yes", "maybe"]}, "id2label has no name for each number"),
        ({"id2label": {"0": "no", "1": "yes", "2": None}}, "id2label has a class name that is no text"),
        (
            {"id2label": {"0": "no", "1": "yes", "2": "no"}},
            r"config\.json: id2label: 2 classes have the name 'no'",
        ),
        ({"id2label": {"0": "no", "1": "yes", "2": " "}}, r"config\.json: id2label: the class name ' ' is no text"),
        ({"id2label": {"0": "no", "1": "yes"}}, "is 3×16, but by config.json it should be 2×16"),
        ({"id2label": None, "num_labels": "three"}, "config.json: num_labels=three: give the number of classes"),
        ({"model_type": ["bert"]}, r"config\.json: model_type=\['bert'\]: this type is not supported"),
        (
            {"architectures": ["BertForMultipleChoice"]},
            "classifier.weight is 3×16, but by config.json it should be 1×16",
        ),
        ({"architectures": ["BertForRanking"]}, "classifier.bias and 1 more: this model has no such tensor"),
    ],
)
def test_another_head_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    bert_classifier(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path, "cpu")
    assert "\n" not in str(caught.value)


@pytest.fixture
def opinions(tmp_path: Path) -> Path:
    path = tmp_path / "opinions.tsv"
    path.write_text("".join(f"{('good', 'bad')[n % 2]}\t{line} {n}\n" for n, line in enumerate(LINES * 8)))
    return path


SMALL = ["model.width=16", "model.heads=2", "model.layers=2", "model.inner=24"]
OURS = {
    "bert": (["model=bert", *SMALL], None),
    "segments-bert": (["model=bert", "model.segments=0", *SMALL], None),
    "relu-distilbert": (["model=bert", "model.segments=0", "head.hidden=relu", *SMALL], None),
    "gpt2": (["model=gpt", "data.tokens=bpe", *SMALL], None),
    "from-bert": ([], bert),
    "from-gpt2": ([], gpt2),
    "from-roberta": ([], roberta),
}


@pytest.mark.parametrize("name", OURS)
def test_a_classifier_of_ours_is_exported(name: str, opinions: Path, tmp_path: Path) -> None:
    settings, make = OURS[name]
    settings, given = [*settings, *SHORT, f"data.train={opinions}"], None
    recipe = find_recipe("classify")
    if make is None:
        recipe = change(recipe, settings, KINDS)
    else:
        make(tmp_path / "public")
        recipe, given = warm_started(recipe, settings, warm_start_from(tmp_path / "public"), "public")
    list(Run(recipe, tmp_path / "run", init=given))
    model = load(tmp_path / "run", "cpu")
    assert export(model, tmp_path / "written").kind == name.rpartition("-")[2]
    equal(tmp_path / "written", model, TEXTS)
    again = load(tmp_path / "written", "cpu")
    assert again.fields["label"].names == ("bad", "good")
    torch.testing.assert_close(our_logits(again, TEXTS), our_logits(model, TEXTS))


def test_a_checkpoint_without_a_masked_head_gets_a_new_one(opinions: Path, tmp_path: Path) -> None:
    bert(tmp_path / "public")
    recipe, given = warm_started(
        find_recipe("classify"), [*SHORT, f"data.train={opinions}"], warm_start_from(tmp_path / "public"), "public"
    )
    list(Run(recipe, tmp_path / "run", init=given))
    export(load(tmp_path / "run", "cpu"), tmp_path / "written")
    start = warm_start_from(tmp_path / "written")
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 4))
    recipe, given = warm_started(
        find_recipe("pretrain"), [*SHORT, "data=lines", f"data.train={tmp_path / 'lines.txt'}"], start, "written"
    )
    run = Run(recipe, tmp_path / "masked", init=given)
    assert run.transfer is not None
    assert run.transfer.new == ("masked", "masked.dense", "masked.norm")
    list(run)


def test_a_head_has_as_many_classes_as_the_data(opinions: Path, tmp_path: Path) -> None:
    bert(tmp_path / "public")
    start, settings = warm_start_from(tmp_path / "public"), [*SHORT, f"data.train={opinions}", "head.labels=5"]
    recipe, given = warm_started(find_recipe("classify"), settings, start, "public")
    with pytest.raises(UserError, match=r"head.labels=5: the data has 2; leave it at 0"):
        Run(recipe, tmp_path / "run", init=given)


def test_a_head_that_no_public_type_has_is_refused_by_name(opinions: Path, tmp_path: Path) -> None:
    settings = [*OURS["bert"][0], *SHORT, f"data.train={opinions}", "head.pool=mean"]
    list(Run(change(find_recipe("classify"), settings, KINDS), tmp_path / "run"))
    message = (
        r"bert, the nearest, has head\.pool=first, and this model has head\.pool=mean; train one with head\.pool=first"
    )
    with pytest.raises(UserError, match=message):
        export(load(tmp_path / "run", "cpu"), tmp_path / "written")
    body = BertConfig(vocab=50, embed=32, outputs=("replaced",))
    assert find_type(HeadedConfig(body, ClassHeadConfig(labels=2).for_body(body))) == "electra"
    with pytest.raises(UserError, match=r"electra, the nearest, has head\.hidden=gelu, and .* head\.hidden=tanh"):
        find_type(HeadedConfig(body, ClassHeadConfig(labels=2, hidden="tanh").for_body(body)))


# -- numbers and several labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["number", "labels"])
def test_numbers_and_labels_from_tables_to_transformers(head: str, tmp_path: Path) -> None:
    """A run that starts from BERT has its pooler, gives what its export gives, and the export starts another run."""
    bert(tmp_path / "public")
    targets = ("2.5", "-7", "30") if head == "number" else ("a|b", "b", "")
    lines = [f"{targets[n % 3]}\t{line} {n}\n" for n, line in enumerate(LINES * 8)]
    (tmp_path / "texts.tsv").write_text("".join(lines))
    recipe = find_recipe({"number": "rate", "labels": "multilabel"}[head])
    settings = [*SHORT, f"data.train={tmp_path / 'texts.tsv'}", *(["head.threshold=0.3"] if head == "labels" else [])]
    recipe, given = warm_started(recipe, settings, warm_start_from(tmp_path / "public"), "public")
    list(Run(recipe, tmp_path / "run", init=given))
    model = load(tmp_path / "run", "cpu")
    export(model, tmp_path / "written")
    logits = reference(tmp_path / "written", TEXTS)
    again = load(tmp_path / "written", "cpu")
    assert again.kind == model.kind
    for one in (model, again):
        if head == "number":
            found = torch.tensor([answer.number for answer in rate(one, TEXTS)])[:, None]
        else:
            found = torch.tensor([[answer.labels[name] for name in "ab"] for answer in label_sets(one, TEXTS)]).logit()
        torch.testing.assert_close(found, logits, atol=1e-4, rtol=1e-5)
        assert one.module.config.threshold == (0.3 if head == "labels" else 0.5)
    recipe, given = warm_started(find_recipe(recipe.name), settings[:-1] if head == "labels" else settings,
                                 warm_start_from(tmp_path / "written"), "written")  # fmt: skip
    run = Run(recipe, tmp_path / "next", init=given)
    assert run.transfer is not None
    assert not run.transfer.new


@pytest.mark.parametrize("task", ["pair", "similarity", "choice", "answer"])
def test_texts_of_several_parts_keep_their_task(task: str, tmp_path: Path) -> None:
    """The files of `transformers` do not say whether a class is that of one text or of a pair; our export does."""
    roberta(tmp_path / "public")
    targets = {"pair": ("yes", "no"), "similarity": ("2.5", "-7"), "choice": ("0", "1")}
    data, given = tmp_path / "data.jsonl", [("the heron stood", "in the water"), ("rain", "a warm oven")]
    if task == "answer":
        rows = [{"question": "where?", "passage": line, "answer": line.split()[1]} for line in LINES[:4] * 8]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        data = tmp_path / "data.tsv"
        data.write_text("".join(f"{targets[task][n % 2]}\t{a}\t{n} a\tb {n}\n" for n, a in enumerate(LINES * 8)))
        if task != "choice":
            data.write_text(data.read_text().replace("\tb", " b"))
    start = warm_start_from(tmp_path / "public")
    recipe, start = warm_started(find_recipe(task), [*SHORT, f"data.train={data}"], start, "public")
    list(Run(recipe, tmp_path / "run", init=start))
    model = load(tmp_path / "run", "cpu")
    export(model, tmp_path / "written")
    again = load(tmp_path / "written", "cpu")
    assert again.task.name == model.task.name == task
    verbs: dict[str, Any] = {"pair": classify, "similarity": similarity, "choice": choose, "answer": answer}
    if task == "choice":
        given = [(*one, "at night") for one in given]
    for ours, theirs in zip(verbs[task](model, given), verbs[task](again, given)):
        assert json.loads(json.dumps(asdict(theirs)), parse_float=lambda text: round(float(text), 3)) == json.loads(
            json.dumps(asdict(ours)), parse_float=lambda text: round(float(text), 3)
        )
