"""The head classes of `transformers`, for every type that has them: the same outputs in both directions."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import Rows, rows
from references import CASES as WHOLE
from references import DISTIL, ENCODER, FACTORISED, GPT, MARIAN, PEGASUS, ROBERTA, T5, VOCAB, build, transformers
from test_bert_family import SENTENCES
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
    "t5": ("T5", T5),
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
    "choices beside a language model": ("DoubleHeadsModel", {}, "choice"),
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
    if model.config.model_type == "t5":  # its classifier reads the state at the end of a text
        found.tokens[torch.arange(3), found.real.sum(1) - 1] = model.config.eos_token_id
    kinds = getattr(model.config, "type_vocab_size", 1)
    return found, (torch.arange(7) > 3).long().expand(3, 7) % kinds


@torch.no_grad()
def their_outputs(model: Any) -> Tensor:
    texts, segments = texts_of(model)
    given = {"input_ids": texts.tokens, "attention_mask": texts.real.long()}
    if model.config.model_type not in ("distilbert", "gpt2", "openai-gpt", "t5"):
        given["token_type_ids"] = segments
    if type(model).__name__.endswith("DoubleHeadsModel"):  # without a mask, which OpenAI's does not take for choices
        given = {"input_ids": texts.tokens, "mc_token_ids": texts.real.sum(1) - 1}
    if type(model).__name__.endswith(("MultipleChoice", "DoubleHeadsModel")):  # the three texts are choices of one row
        given = {name: one[None] for name, one in given.items()}
    found = model(**given)
    if "mc_logits" in found:
        return found.mc_logits
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


# -- every class of `transformers` for the types that are opened -------------------------------------------------------

DECODER = {"is_decoder": True}
NOT_READ: dict[
    str, tuple[str, dict[str, Any], str]
] = {  # the class → its type and settings, and the error that says why
    "BertLMHeadModel": ("bert", {**ENCODER, **DECODER}, "is_decoder=True: is not supported"),  # BERT as a decoder
    "RobertaForCausalLM": ("roberta", {**ROBERTA, **DECODER}, "is_decoder=True: is not supported"),
    "XLMRobertaForCausalLM": ("xlm-roberta", {**ROBERTA, **DECODER}, "is_decoder=True: is not supported"),
    "ElectraForCausalLM": ("electra", {**FACTORISED, **DECODER}, "is_decoder=True: is not supported"),
    "MarianForCausalLM": (
        "marian",
        MARIAN,
        "those of a decoder alone",
    ),  # no family here has cross-attention to nothing
    "PegasusForCausalLM": ("pegasus", PEGASUS, "those of a decoder alone"),
}


def classes_of(kind: str) -> set[str]:
    """The names of the classes with weights that `transformers` has for a type."""
    module = importlib.import_module(f"transformers.models.{kind.replace('-', '_').replace('openai_gpt', 'openai')}")
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {
        name
        for name, one in found.items()
        if isinstance(one, type) and issubclass(one, transformers.PreTrainedModel) and "PreTrainedModel" not in name
    }


def test_every_class_is_compared_or_refused() -> None:
    heads = {TYPES[kind][0] + JOBS[job][0] for kind, job in CASES}  # in this file
    whole = {type(build(case)).__name__ for case in WHOLE.values()}  # in test_parity.py
    sentences = {name for name, *_ in SENTENCES.values()}  # in test_bert_family.py
    assert heads | whole | sentences | {*NOT_READ} == {name for kind in CHECKPOINT_TYPES for name in classes_of(kind)}


@pytest.mark.parametrize("name", NOT_READ)
def test_a_class_that_is_not_read_is_refused(name: str, tmp_path: Path) -> None:
    kind, settings, message = NOT_READ[name]
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCAB, **settings)
    getattr(transformers, name)(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=message):
        regard.load(tmp_path, "cpu")


def test_every_head_in_the_tables_has_a_case() -> None:
    for kind, one in CHECKPOINT_TYPES.items():
        heads = {head for each in (one, *one.variants.values()) for head in each.heads}
        assert {JOBS[job][2] for found, job in CASES if found == kind} == heads, kind


@torch.no_grad()
def test_the_language_model_beside_the_choices_is_kept(tmp_path: Path) -> None:
    theirs = reference("gpt2", "choices beside a language model")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = opened(tmp_path / "theirs")
    texts, _ = texts_of(theirs)
    expected = theirs(texts.tokens).logits[texts.real]
    found = ours.features(texts.tokens, texts.real) @ ours.body.embedding.tokens.weight.T
    torch.testing.assert_close(found[texts.real], expected, atol=1e-4, rtol=0)
    (tmp_path / "back").mkdir()
    write_model(ours, tmp_path / "back", read_settings(tmp_path / "theirs"), "gpt2")
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(again(texts.tokens).logits[texts.real], expected, atol=1e-4, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("job", ["classes", "answers", "tags"])
def test_t5_reads_a_text_with_padding_on_the_left(job: str, tmp_path: Path) -> None:
    """The start token of the decoder is before the first real token, wherever that is."""
    theirs = reference("t5", job)
    theirs.save_pretrained(tmp_path)
    ours, (texts, _) = opened(tmp_path), texts_of(theirs)
    right = ours.readout(ours.features(texts.tokens, texts.real), texts.real)
    tokens, real = texts.tokens.clone(), texts.real.flip(1)
    tokens[real] = texts.tokens[texts.real]
    left = ours.readout(ours.features(tokens, real), real)
    same = (left, right) if left.dim() == 2 else (left[real], right[texts.real])
    torch.testing.assert_close(*same, atol=1e-5, rtol=0)


# -- a model of ours, new, under each head -----------------------------------------------------------------------------

TAGS = ("t5", "tags")  # the tags of T5 are those of an encoder alone, see the test below


@pytest.mark.parametrize(
    ("kind", "job"), [(kind, job) for kind, job in CASES if kind in ("bert", "gpt2", "t5") and (kind, job) != TAGS]
)
def test_a_new_model_is_written(kind: str, job: str, tmp_path: Path) -> None:
    """The automatic settings of a head are those of the public class, so that a fine-tuned model can be exported."""
    body = read_body(kind, tmp_path)
    head = HEADS[JOBS[job][2]]()
    sizes = {name: len(NAMES) for name in head.sizes.values()}
    torch.manual_seed(0)
    model = HeadedConfig(body, head.for_body(body).with_sizes(sizes)).build().eval()
    (tmp_path / "back").mkdir()
    if kind == "gpt2" and job == "number":
        with pytest.raises(UserError, match=r"gpt2, the nearest, has head\.bias=False, and .* head\.bias=True"):
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


def test_tags_on_the_encoder_of_t5_are_written(tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model("t5", vocab_size=VOCAB, **T5)
    transformers.T5EncoderModel(config).save_pretrained(tmp_path / "body")
    body: Any = read_model(tmp_path / "body", read_settings(tmp_path / "body")).config
    model = HeadedConfig(body, HEADS["tag"](labels=len(NAMES))).build().eval()
    (tmp_path / "back").mkdir()
    write_model(model, tmp_path / "back", json.loads(json.dumps(THREE)), "t5")
    theirs = transformers.T5ForTokenClassification.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(our_outputs(model, theirs), their_outputs(theirs), atol=1e-4, rtol=0)


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
        ("labels", {"threshold": "high"}, "threshold should be a finite number, found 'high'"),
        ("labels", {"threshold": 1.5}, "threshold=1.5: must be between 0 and 1"),
        ("tags", {"architectures": ["BertForImages"]}, "a head for another task"),
        ("tags", {"architectures": 5}, "architectures=5: give a list, such as"),
        ("tags", {"classifier_dropout": "high"}, "classifier_dropout should be a finite number, found 'high'"),
        (
            "tags",
            {"id2label": None, "num_labels": 10**12},
            "num_labels=1000000000000: give the number of classes, at most",
        ),
        (
            "electra choices",
            {"summary_type": "mean"},
            "summary_type=mean: ElectraForMultipleChoice is read only with f",
        ),
        (
            "gpt2 choices beside a language model",
            {"summary_type": "last"},
            "GPT2DoubleHeadsModel is read only with cls",
        ),
        ("gpt2 choices beside a language model", {"tie_word_embeddings": False}, "tie_word_embeddings=False: .* True"),
        ("t5 classes", {"decoder_start_token_id": 3}, "decoder_start_token_id=3: .* is read only with 0"),
    ],
)
def test_settings_that_do_not_fit(job: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    kind, _, named = job.partition(" ")
    reference(*((kind, named) if named else ("bert", job))).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(UserError, match=message) as caught:
        regard.load(tmp_path, "cpu")
    assert "\n" not in str(caught.value)
