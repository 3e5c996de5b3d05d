"""The head classes of `transformers`, for every type that has them: the same outputs in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import Rows, rows
from references import DISTIL, ENCODER, FACTORISED, GPT, ROBERTA, VOCAB, transformers
from torch import Tensor

import regard
from regard.errors import UserError
from regard.heads import HEADS, NumberHead
from regard.models import Headed, HeadedConfig
from regard.pretrained import CHECKPOINT_TYPES, read_model, read_settings, write_model

TYPES: dict[str, tuple[str, dict[str, Any]]] = {  # model_type → the beginning of their classes, and settings
    "bert": ("Bert", ENCODER),
    "distilbert": ("DistilBert", DISTIL),
    "roberta": ("Roberta", ROBERTA),
    "xlm-roberta": ("XLMRoberta", ROBERTA),
    "albert": ("Albert", FACTORISED),
    "electra": ("Electra", FACTORISED),
    "gpt2": ("GPT2", GPT),
    "openai-gpt": ("OpenAIGPT", GPT),
}
NAMES = {0: "O", 1: "B-PER", 2: "I-PER"}
THREE: dict[str, Any] = {"id2label": NAMES, "label2id": {name: at for at, name in NAMES.items()}}
JOBS: dict[str, tuple[str, dict[str, Any], str]] = {  # the job → the end of the class, its settings, our head
    "classes": ("ForSequenceClassification", THREE, "class"),
    "number": ("ForSequenceClassification", {"num_labels": 1}, "number"),
    "labels": ("ForSequenceClassification", {**THREE, "problem_type": "multi_label_classification"}, "labels"),
    "tags": ("ForTokenClassification", THREE, "tag"),
    "answers": ("ForQuestionAnswering", {}, "span"),
    "choices": ("ForMultipleChoice", {}, "choice"),
}
CASES = [
    (kind, job)
    for kind, (name, _) in TYPES.items()
    for job, (end, _, _) in JOBS.items()
    if hasattr(transformers, name + end)
]


def reference(kind: str, job: str) -> Any:
    """A model with random weights, large enough that an error anywhere changes the outputs."""
    name, settings = TYPES[kind]
    end, more, _ = JOBS[job]
    pad = {} if "pad_token_id" in settings else {"pad_token_id": 0}
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCAB, **settings, **pad, **more)
    model = getattr(transformers, name + end)(config).eval()
    torch.manual_seed(len(kind) + len(job))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    return model


def texts_of(model: Any) -> tuple[Rows, Tensor]:
    """A batch with padding, and segments of two kinds where the model has them."""
    found = rows((7, 4, 1), "right", model.config.pad_token_id, 1)
    kinds = getattr(model.config, "type_vocab_size", 1)
    return found, (torch.arange(7) > 3).long().expand(3, 7) % kinds


@torch.no_grad()
def their_outputs(model: Any) -> Tensor:
    texts, segments = texts_of(model)
    given = {"input_ids": texts.tokens, "attention_mask": texts.real.long()}
    if model.config.model_type not in ("distilbert", "gpt2", "openai-gpt"):
        given["token_type_ids"] = segments
    if "choice" in type(model).__name__.lower():  # the three texts are the choices of one example
        given = {name: one[None] for name, one in given.items()}
    found = model(**given)
    logits: Tensor = (
        torch.stack([found.start_logits, found.end_logits], -1) if "start_logits" in found else found.logits
    )
    return logits if logits.dim() == 2 else logits[texts.real]


@torch.no_grad()
def our_outputs(ours: Headed, theirs: Any) -> Tensor:
    texts, segments = texts_of(theirs)
    features = ours.features(texts.tokens, texts.real, segments if ours.config.segment_kinds else None)
    logits = ours.readout(features, texts.real, 3 if ours.config.head.predicts == "choice" else 1)
    if ours.config.head.predicts == "number":
        return logits[:, None]
    return logits if logits.dim() == 2 else logits[texts.real]


def opened(path: Path) -> Headed:
    model = read_model(path, read_settings(path))
    assert isinstance(model, Headed)
    return model.eval()


@pytest.mark.parametrize(("kind", "job"), CASES)
def test_a_head_is_read_and_written(kind: str, job: str, tmp_path: Path) -> None:
    theirs = reference(kind, job)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = opened(tmp_path / "theirs")
    assert ours.config.head.predicts == JOBS[job][2]
    expected = their_outputs(theirs)
    torch.testing.assert_close(our_outputs(ours, theirs), expected, atol=1e-4, rtol=0)

    (tmp_path / "back").mkdir()
    assert write_model(ours, tmp_path / "back", read_settings(tmp_path / "theirs"), kind) == kind
    again, report = type(theirs).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(report.values()), report
    assert again.config.architectures == [type(theirs).__name__]
    assert again.config.id2label == theirs.config.id2label
    torch.testing.assert_close(their_outputs(again.eval()), expected, atol=1e-4, rtol=0)
    assert opened(tmp_path / "back").config == ours.config


def test_every_head_class_that_there_is_has_a_case() -> None:
    assert {kind for kind, _ in CASES} == {kind for kind, one in CHECKPOINT_TYPES.items() if one.heads}
    for kind, one in CHECKPOINT_TYPES.items():
        assert {JOBS[job][2] for found, job in CASES if found == kind} == set(one.heads), kind


# -- a model of ours, new, under each head -----------------------------------------------------------------------------


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_new_model_is_written(kind: str, job: str, tmp_path: Path) -> None:
    """The automatic settings of a head are those of the public class, so that a fine-tuned model can be exported."""
    body = read_body(kind, tmp_path)
    head = HEADS[JOBS[job][2]]()
    sizes = {name: len(NAMES) for name in head.sizes.values()}
    torch.manual_seed(0)
    model = HeadedConfig(body, head.for_body(body).with_sizes(sizes)).build().eval()
    (tmp_path / "back").mkdir()
    if kind == "gpt2" and job in ("number", "choices"):  # it has no mean of numbers, and no class for choices
        lacks = {"number": r"head\.bias=True", "choices": "head=choice"}[job]
        with pytest.raises(UserError, match=rf"gpt2, the nearest, has no {lacks}"):
            write_model(model, tmp_path / "back", {}, None)
        return
    kept = {"pad_token_id": 0, **({} if job == "number" else json.loads(json.dumps(THREE)))}
    write_model(model, tmp_path / "back", kept, None)
    theirs = getattr(transformers, TYPES[kind][0] + JOBS[job][0]).from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(our_outputs(model, theirs), their_outputs(theirs), atol=1e-4, rtol=0)


def read_body(kind: str, folder: Path) -> Any:
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCAB, **TYPES[kind][1])
    transformers.AutoModel.from_config(config).save_pretrained(folder / "body")
    return read_model(folder / "body", read_settings(folder / "body")).config


def test_the_mean_of_the_training_numbers_is_part_of_the_written_layer(tmp_path: Path) -> None:
    theirs = reference("bert", "number")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = opened(tmp_path / "theirs")
    assert isinstance(ours.head, NumberHead)
    ours.head.statistics = torch.tensor([10.0, 3.0, 40.0])  # 10 numbers, mean 3, deviation 2
    torch.testing.assert_close(our_outputs(ours, theirs), 3 + 2 * their_outputs(theirs), atol=1e-4, rtol=0)
    (tmp_path / "back").mkdir()
    write_model(ours, tmp_path / "back", read_settings(tmp_path / "theirs"), "bert")
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(their_outputs(again), our_outputs(ours, theirs), atol=1e-4, rtol=0)
    assert again.config.problem_type == "regression"


def test_a_pooler_below_a_tagger_is_not_read(tmp_path: Path) -> None:
    """Files of older versions have it, although no output uses it."""
    theirs = reference("bert", "tags")
    theirs.save_pretrained(tmp_path)
    whole = transformers.BertModel(theirs.config)
    tensors = dict(theirs.state_dict())
    tensors |= {f"bert.{name}": tensor for name, tensor in whole.state_dict().items() if "pooler" in name}
    theirs.save_pretrained(tmp_path, state_dict=tensors)
    torch.testing.assert_close(our_outputs(opened(tmp_path), theirs), their_outputs(theirs), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("job", "settings", "message"),
    [
        ("classes", {"problem_type": "ranking"}, "problem_type=ranking: is not supported"),
        ("classes", {"problem_type": "regression"}, "problem_type=regression, but id2label has 3: .* so one label"),
        ("number", {"problem_type": "single_label_classification"}, "id2label has 1: this predicts one of several"),
        ("labels", {"threshold": "high"}, "threshold=high: give a probability"),
        ("labels", {"threshold": 1.5}, "threshold=1.5: must be between 0 and 1"),
        ("tags", {"architectures": ["BertForImages"]}, "a head for another task"),
    ],
)
def test_settings_that_do_not_fit(job: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    reference("bert", job).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(UserError, match=message) as caught:
        regard.load(tmp_path, "cpu")
    assert "\n" not in str(caught.value)
