"""What the parity of tokens does not show: other outputs, biases with two names, names of old, refusals, exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import reference_outputs, rows
from references import CASES, ENCODER, FACTORISED, MASKED, ROBERTA, VOCAB, Case, build, reopen, transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import UserError
from regard.models import SIZES, Bert, BertConfig
from regard.pretrained import CHECKPOINT_TYPES, read_model, read_settings, write_model
from regard.pretrained.folder import find_type
from regard.recording import record

KINDS = ("bert", "distilbert", "roberta", "xlm-roberta", "albert", "electra")
Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]
TEXTS = rows((7, 4, 1), "right", 0, 1)


def opened(path: Path) -> Bert:
    model = read_model(path, read_settings(path))
    assert isinstance(model, Bert)
    return model.eval()


def written(model: Bert, folder: Path, kind: str | None = None, kept: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    write_model(model, folder, kept or {}, kind)
    return folder


def changed(path: Path, tensors: Change | None = None, **settings: object) -> Path:
    """Change tensors and settings of a checkpoint in place; a setting that is `...` is removed."""
    if tensors is not None:
        save_file(tensors(load_file(path / "model.safetensors")), path / "model.safetensors")
    config = json.loads((path / "config.json").read_text()) | settings
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))
    return path


def saved(case: Case, path: Path) -> Any:
    reference = build(case)
    reference.save_pretrained(path)
    return reference


@torch.no_grad()
def logits(model: Bert, **given: Tensor) -> Tensor:
    return model.readout(model.features(TEXTS.tokens, TEXTS.real, **given))[TEXTS.real]


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


# -- outputs other than tokens ----------------------------------------------------------------------------------------

SENTENCES = {
    "bert": ("BertForPreTraining", ENCODER, "seq_relationship_logits", ("masked", "pooled", "next")),
    "bert-next": ("BertForNextSentencePrediction", ENCODER, "logits", ("pooled", "next")),
    "albert": ("AlbertForPreTraining", FACTORISED, "sop_logits", ("masked", "pooled", "next")),
}


@pytest.mark.parametrize("name", SENTENCES)
@torch.no_grad()
def test_whether_one_sentence_follows_the_other(name: str, tmp_path: Path) -> None:
    auto, settings, said_as, outputs = SENTENCES[name]
    case = Case(name.partition("-")[0], "AutoModel", settings)
    config = transformers.AutoConfig.for_model(case.kind, vocab_size=VOCAB, **settings)
    torch.manual_seed(0)
    reference = getattr(transformers, auto)(config).eval()
    reference.save_pretrained(tmp_path / "theirs")
    segments = (torch.arange(7) > 3).long().expand(3, 7)
    given = {"input_ids": TEXTS.tokens, "attention_mask": TEXTS.real.long(), "token_type_ids": segments}
    expected = reference(**given)[said_as]

    model = opened(tmp_path / "theirs")
    assert model.config.outputs == outputs
    assert model.next is not None
    same(model.next(model.pool(model.features(TEXTS.tokens, TEXTS.real, segments))), expected)

    back = written(model, tmp_path / "back", case.kind)
    again, report = getattr(transformers, auto).from_pretrained(back, output_loading_info=True)
    assert not any(report.values()), report
    assert again.config.architectures == [auto]
    same(again.eval()(**given)[said_as], expected)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "albert"])
@torch.no_grad()
def test_pooled_output(kind: str, tmp_path: Path) -> None:
    reference = saved(CASES[f"{kind}-body"], tmp_path / "theirs")
    model = opened(tmp_path / "theirs")
    assert model.config.outputs == ("pooled",)
    expected = reference(TEXTS.tokens, attention_mask=TEXTS.real.long()).pooler_output
    positions = None
    if model.config.first_position:  # its positions depend on which ids are padding
        positions = (TEXTS.tokens != reference.config.pad_token_id).cumsum(1) + model.config.first_position - 1
    same(model.pool(model.features(TEXTS.tokens, TEXTS.real, positions=positions)), expected)


@torch.no_grad()
def test_a_file_with_both_outputs_of_electra(tmp_path: Path) -> None:
    case = CASES["electra-relu"]
    generator = saved(case, tmp_path / "theirs")
    torch.manual_seed(1)
    more = {
        "discriminator_predictions.dense.weight": torch.randn(12, 12),
        "discriminator_predictions.dense.bias": torch.randn(12),
        "discriminator_predictions.dense_prediction.weight": torch.randn(1, 12),
        "discriminator_predictions.dense_prediction.bias": torch.randn(1),
    }
    model = opened(changed(tmp_path / "theirs", lambda tensors: tensors | more))
    assert model.config.outputs == ("masked", "replaced")
    same(logits(model), reference_outputs(generator, TEXTS.tokens, TEXTS.real).logits[TEXTS.real])
    discriminator = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "theirs").eval()
    expected = discriminator(TEXTS.tokens, attention_mask=TEXTS.real.long()).logits
    assert model.replaced is not None
    same(model.replaced(model.features(TEXTS.tokens, TEXTS.real))[TEXTS.real], expected[TEXTS.real])


def test_a_file_with_readout_and_pooler(tmp_path: Path) -> None:
    """A readout and a pooler: no class saves both, but files with both are published."""
    saved(CASES["roberta-plain"], tmp_path / "theirs")
    pooler = {"roberta.pooler.dense.weight": torch.eye(12), "roberta.pooler.dense.bias": torch.ones(12)}
    model = opened(changed(tmp_path / "theirs", lambda tensors: tensors | pooler))
    assert model.config.outputs == ("masked", "pooled")
    back = load_file(written(model, tmp_path / "back", "roberta") / "model.safetensors")
    assert set(back) == set(load_file(tmp_path / "theirs" / "model.safetensors"))


# -- a bias with two names --------------------------------------------------------------------------------------------

READOUTS = {"bert": "cls.predictions", "roberta": "lm_head", "albert": "predictions"}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kept", ["first", "used", "both"])
@pytest.mark.parametrize("kind", READOUTS)
def test_the_bias_that_is_used(kind: str, kept: str, tied: bool, tmp_path: Path) -> None:
    settings = {"bert": ENCODER, "roberta": ROBERTA, "albert": FACTORISED}[kind] | {"tie_word_embeddings": tied}
    reference = saved(Case(kind, MASKED, settings), tmp_path / "theirs")
    first, used = f"{READOUTS[kind]}.bias", f"{READOUTS[kind]}.decoder.bias"

    def names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        bias = tensors[used] if used in tensors else tensors[first]
        left = {key: tensor for key, tensor in tensors.items() if key not in (first, used)}
        unused = torch.full_like(bias, 9.0)
        return left | {"first": {first: bias}, "used": {used: bias}, "both": {first: unused, used: bias}}[kept]

    model = opened(changed(tmp_path / "theirs", names))
    tokens = TEXTS.tokens + 2 * (TEXTS.tokens == 1)  # without the id of padding
    expected = reference_outputs(reference, tokens[:1]).logits
    with torch.no_grad():
        same(model.readout(model.features(tokens[:1])), expected)
    again = reopen(Case(kind, MASKED), written(model, tmp_path / "back", kind))
    same(reference_outputs(again, tokens[:1]).logits, expected)


# -- names of older versions and of other classes ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert-plain", "distilbert-plain", "roberta-plain", "albert-plain", "electra-plain"])
def test_a_readout_above_a_body_without_its_prefix(name: str, tmp_path: Path) -> None:
    saved(CASES[name], tmp_path / "theirs")
    expected = logits(opened(tmp_path / "theirs"))
    prefix = CHECKPOINT_TYPES[CASES[name].kind].prefix
    changed(tmp_path / "theirs", lambda tensors: {key.removeprefix(prefix): value for key, value in tensors.items()})
    assert torch.equal(logits(opened(tmp_path / "theirs")), expected)


@pytest.mark.parametrize("name", ["bert-body", "distilbert-body", "roberta-body", "albert-body", "electra-body"])
@torch.no_grad()
def test_a_body_with_its_prefix(name: str, tmp_path: Path) -> None:
    saved(CASES[name], tmp_path / "theirs")
    expected = opened(tmp_path / "theirs").features(TEXTS.tokens, TEXTS.real)
    prefix = CHECKPOINT_TYPES[CASES[name].kind].prefix
    buffers = {
        "embeddings.position_ids": torch.arange(24)[None],
        "embeddings.token_type_ids": torch.zeros(1, 24).long(),
    }
    changed(tmp_path / "theirs", lambda tensors: {prefix + key: value for key, value in (tensors | buffers).items()})
    assert torch.equal(opened(tmp_path / "theirs").features(TEXTS.tokens, TEXTS.real), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_another_head_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    settings = CASES[f"{kind}-plain"].settings
    saved(Case(kind, "AutoModelForTokenClassification", settings), tmp_path / "theirs")
    changed(tmp_path / "theirs", architectures=["AnotherForRanking"])
    with pytest.raises(UserError, match=r"classifier\.\w+"):
        opened(tmp_path / "theirs")


# -- errors -----------------------------------------------------------------------------------------------------------


def without(name: str) -> Change:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("bert-plain", "bert.encoder.layer.1.attention.self.key.bias"),
        ("bert-plain", "cls.predictions.transform.dense.weight"),
        ("bert-plain", "cls.predictions.bias"),
        ("bert-pretraining", "bert.pooler.dense.weight"),
        ("bert-untied", "cls.predictions.decoder.weight"),
        ("distilbert-plain", "vocab_projector.bias"),
        ("distilbert-untied", "vocab_projector.weight"),
        ("roberta-plain", "roberta.embeddings.token_type_embeddings.weight"),
        ("albert-square", "albert.encoder.embedding_hidden_mapping_in.weight"),
        ("albert-groups", "albert.encoder.albert_layer_groups.1.albert_layers.1.ffn.weight"),
        ("electra-plain", "electra.embeddings_project.bias"),
        ("electra-discriminator", "discriminator_predictions.dense.bias"),
    ],
)
def test_a_missing_tensor(name: str, missing: str, tmp_path: Path) -> None:
    saved(CASES[name], tmp_path / "theirs")
    with pytest.raises(UserError, match=rf"{missing} is missing".replace(".", r"\.")):
        opened(changed(tmp_path / "theirs", without(missing)))


def test_a_tensor_left_over_or_of_another_shape(tmp_path: Path) -> None:
    saved(CASES["bert-plain"], tmp_path / "theirs")
    extra = {"bert.encoder.layer.2.output.dense.bias": torch.zeros(12)}
    with pytest.raises(UserError, match=r"layer\.2\.output\.dense\.bias"):
        opened(changed(tmp_path / "theirs", lambda tensors: tensors | extra))
    short = {"bert.embeddings.position_embeddings.weight": torch.zeros(23, 12)}
    with pytest.raises(UserError, match=r"position_embeddings\.weight is 23×12.*24×12"):
        opened(changed(tmp_path / "theirs", lambda tensors: without(next(iter(extra)))(tensors) | short))


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("bert-plain", "num_attention_heads", 5),
        ("bert-plain", "num_attention_heads", 0),
        ("bert-plain", "hidden_size", -12),
        ("bert-plain", "hidden_size", "twelve"),
        ("bert-plain", "vocab_size", 29.5),
        ("bert-plain", "num_hidden_layers", True),
        ("bert-plain", "type_vocab_size", 0),
        ("bert-plain", "layer_norm_eps", None),
        ("bert-plain", "hidden_dropout_prob", 1.5),
        ("bert-plain", "hidden_act", "gelu_10"),
        ("bert-plain", "position_embedding_type", "relative_key"),
        ("bert-plain", "is_decoder", True),
        ("bert-plain", "add_cross_attention", True),
        ("bert-plain", "pruned_heads", {"0": [1]}),
        ("bert-plain", "tie_word_embeddings", "no"),
        ("bert-plain", "special_token_ids", [0, "one"]),
        ("distilbert-plain", "n_heads", 5),
        ("distilbert-plain", "dim", []),
        ("roberta-plain", "pad_token_id", None),
        ("roberta-plain", "max_position_embeddings", 2),
        ("albert-plain", "num_hidden_groups", 0),
        ("albert-groups", "num_hidden_groups", 3),
        ("albert-plain", "inner_group_num", 0),
        ("electra-plain", "embedding_size", "8"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, setting: str, value: object, tmp_path: Path) -> None:
    saved(CASES[name], tmp_path / "theirs")
    with pytest.raises(UserError, match=rf"config\.json: {setting}\b"):
        opened(changed(tmp_path / "theirs", **{setting: value}))


# -- export -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        ("bert-base", "bert"),
        ("bert-large", "bert"),
        ("distilbert-base", "distilbert"),
        ("roberta-base", "roberta"),
        ("albert-base", "albert"),
        ("albert-xxlarge", "albert"),
        ("electra-small", "electra"),
        ("electra-base", "electra"),
    ],
)
def test_published_sizes_can_be_written(size: str, kind: str) -> None:
    assert find_type(SIZES[size]) == kind


def test_export_keeps_the_type(tmp_path: Path) -> None:
    saved(CASES["xlm-roberta-plain"], tmp_path / "theirs")
    model = opened(tmp_path / "theirs")
    assert find_type(model.config) == "roberta"
    assert read_settings(written(model, tmp_path / "kept", "xlm-roberta"))["model_type"] == "xlm-roberta"
    assert read_settings(written(model, tmp_path / "other", "bert"))["model_type"] == "roberta"  # bert cannot hold it


TINY = BertConfig(vocab=VOCAB, width=12, heads=2, layers=2, inner=20, context=16, mask=4, specials=(0, 1, 2, 4))


def test_a_model_of_ours_is_exported_and_read_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Bert(TINY).eval()
    folder = written(model, tmp_path / "out")
    same(
        reference_outputs(reopen(Case("bert", MASKED), folder), TEXTS.tokens, TEXTS.real).logits[TEXTS.real],
        logits(model),
    )
    again = opened(folder)
    assert again.config == TINY  # with the ids that training uses
    assert torch.equal(logits(again), logits(model))


@pytest.mark.parametrize(
    "settings",
    [
        {"norm_place": "pre"},
        {"positions": "sinusoidal"},
        {"heads": 5, "head_width": 4},
        {"windows": (3,)},
        {"norm": "rms"},
        {"outputs": ("masked", "replaced", "pooled")},
        {"segments": 0, "epsilon": 1e-5},
        {"groups": 1},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_settings_that_no_type_has_are_named(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no public type has this model") as refused:
        written(Bert(replace(TINY, **settings)), tmp_path / "out")
    assert any(f"{name}=" in str(refused.value) for name in settings)


@pytest.mark.parametrize(("groups", "blocks"), [(1, 1), (2, 1), (4, 1), (1, 3), (2, 2)])
def test_shared_blocks(groups: int, blocks: int, tmp_path: Path) -> None:
    shared = {"num_hidden_layers": 4, "num_hidden_groups": groups, "inner_group_num": blocks}
    case = Case("albert", MASKED, FACTORISED | shared)
    expected = reference_outputs(saved(case, tmp_path / "theirs"), TEXTS.tokens, TEXTS.real).logits[TEXTS.real]
    model = opened(tmp_path / "theirs")
    assert len(model.stack.blocks) == groups * blocks
    same(logits(model), expected)
    again = reopen(case, written(model, tmp_path / "back"))
    same(reference_outputs(again, TEXTS.tokens, TEXTS.real).logits[TEXTS.real], expected)


# -- the model --------------------------------------------------------------------------------------------------------


def test_blocks_of_groups_run_in_turn() -> None:
    model = Bert(replace(TINY, layers=4, groups=2, group_blocks=2)).eval()
    blocks = list(model.stack.blocks)
    assert model.stack.layers == [blocks[number] for number in (0, 1, 0, 1, 2, 3, 2, 3)]
    with record(model) as tape:
        logits(model)
    assert len(tape) == 8  # every layer records its own attention weights


def test_embeddings_are_projected_if_embed_is_set() -> None:
    assert Bert(replace(TINY, embed=12)).embedding.project is not None
    assert Bert(TINY).embedding.project is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"group_blocks": 2}, "group_blocks=2"),
        ({"group_blocks": 0, "groups": 1}, "group_blocks=0"),
        ({"outputs": ("next",)}, "outputs=next"),
        ({"outputs": ("maskd",)}, "outputs=maskd"),
        ({"head_activation": "gellu"}, "head_activation=gellu"),
        ({"embed": -1}, "embed=-1"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        replace(TINY, **settings)
