"""BERT, and two that kept its blocks, DistilBERT and ELECTRA: names and settings of their public checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.models import BertConfig
from regard.pretrained.encoder import (
    BLOCK,
    COUNTS,
    OLD_NORMS,
    SETTINGS,
    Encoder,
    always_gelu,
    block,
    embeddings,
    read_settings,
    with_outputs,
    write_settings,
)
from regard.pretrained.names import Line, both, line
from regard.pretrained.public import Given, Public, Table

# -- BERT (Devlin et al. 2019) ----------------------------------------------------------------------------------------

SIGNS = {"masked": "cls.predictions.", "pooled": "bert.pooler.", "next": "cls.seq_relationship."}


def lines(config: BertConfig) -> list[Line]:
    table = embeddings("bert.embeddings", ("tokens", "positions", "segments"))
    for number in range(config.layers):
        table += block(f"bert.encoder.layer.{number}", number, BLOCK)
    if "pooled" in config.outputs:
        table += both("bert.pooler.dense", "pooled")
    if "next" in config.outputs:
        table += both("cls.seq_relationship", "next")
    if "masked" in config.outputs:
        table += both("cls.predictions.transform.dense", "masked.dense")
        table += both("cls.predictions.transform.LayerNorm", "masked.norm")
        table += [line("cls.predictions.bias", "masked.bias")]
        table += [] if config.tied else both("cls.predictions.decoder", "masked")
    return table


def read(given: Given, names: frozenset[str]) -> BertConfig:
    return with_outputs(read_settings(given, SETTINGS), names, SIGNS, "cls.predictions.decoder.weight", given)


def write(config: BertConfig) -> dict[str, Any]:
    match "masked" in config.outputs, "next" in config.outputs:
        case True, True:
            name = "BertForPreTraining"
        case True, False:
            name = "BertForMaskedLM"
        case False, True:
            name = "BertForNextSentencePrediction"
        case _:
            name = "BertModel"
    return {"model_type": "bert", "architectures": [name], **write_settings(config, SETTINGS)}


BERT = Encoder(
    BertConfig,
    SETTINGS,
    read,
    write,
    lines,
    prefix="bert.",
    heads=("cls.*", "classifier.*", "qa_outputs.*"),
    ignored=COUNTS,
    copies={"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"},
    renamed=OLD_NORMS,
    readout="cls.predictions",
)

# -- DistilBERT (Sanh et al. 2019): no segments, no pooling, and words of its own -------------------------------------

DISTIL_SETTINGS: Table = {
    "vocab": ("vocab_size", 30522),
    "width": ("dim", 768),
    "heads": ("n_heads", 12),
    "layers": ("n_layers", 6),
    "inner": ("hidden_dim", 3072),
    "activation": ("activation", "gelu"),
    "context": ("max_position_embeddings", 512),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
}
DISTIL_BLOCK = {
    "attention.qkv": "attention.q_lin attention.k_lin attention.v_lin",
    "attention.out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed.up": "ffn.lin1",
    "feed.down": "ffn.lin2",
    "feed_norm": "output_layer_norm",
}


def distil_lines(config: BertConfig) -> list[Line]:
    table = embeddings("distilbert.embeddings", ("tokens", "positions"))
    for number in range(config.layers):
        table += block(f"distilbert.transformer.layer.{number}", number, DISTIL_BLOCK)
    if "masked" in config.outputs:
        table += [*both("vocab_transform", "masked.dense"), *both("vocab_layer_norm", "masked.norm")]
        table += [line("vocab_projector.bias", "masked.bias")]
        table += [] if config.tied else [line("vocab_projector.weight", "masked.weight")]
    return table


def read_distil(given: Given, names: frozenset[str]) -> BertConfig:
    signs = {"masked": "vocab_"}
    return with_outputs(read_settings(given, DISTIL_SETTINGS), names, signs, "vocab_projector.weight", given)


def write_distil(config: BertConfig) -> dict[str, Any]:
    name = "DistilBertForMaskedLM" if "masked" in config.outputs else "DistilBertModel"
    settings = write_settings(config, DISTIL_SETTINGS)
    # Whatever its positions were, they are saved as a table, and read from it.
    return {"model_type": "distilbert", "architectures": [name], "sinusoidal_pos_embds": False, **settings}


DISTILBERT = Public(
    BertConfig,
    DISTIL_SETTINGS,
    read_distil,
    write_distil,
    distil_lines,
    prefix="distilbert.",
    heads=("vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"),
    ignored=COUNTS,
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    renamed=OLD_NORMS,
)

# -- ELECTRA (Clark et al. 2020): the embeddings may be narrower; what it learns from is another output ---------------

ELECTRA_SETTINGS: Table = {
    **SETTINGS,
    "width": ("hidden_size", 256),
    "heads": ("num_attention_heads", 4),
    "inner": ("intermediate_size", 1024),
}
ELECTRA_SIGNS = {"masked": "generator_", "replaced": "discriminator_"}


def electra_lines(config: BertConfig) -> list[Line]:
    table = embeddings("electra.embeddings", ("tokens", "positions", "segments"))
    table += both("electra.embeddings_project", "embedding.project") if config.embed else []
    for number in range(config.layers):
        table += block(f"electra.encoder.layer.{number}", number, BLOCK)
    if "masked" in config.outputs:
        table += both("generator_predictions.dense", "masked.dense")
        table += both("generator_predictions.LayerNorm", "masked.norm")
        table += [line("generator_lm_head.bias", "masked.bias")]
        table += [] if config.tied else [line("generator_lm_head.weight", "masked.weight")]
    if "replaced" in config.outputs:
        table += both("discriminator_predictions.dense", "replaced.dense")
        table += both("discriminator_predictions.dense_prediction", "replaced.out")
    return table


def read_electra(given: Given, names: frozenset[str]) -> BertConfig:
    config = read_settings(given, ELECTRA_SETTINGS)
    embed = given.size("embedding_size", 128)
    config = replace(config, embed=0 if embed == config.width else embed)
    config = with_outputs(config, names, ELECTRA_SIGNS, "generator_lm_head.weight", given)
    return always_gelu(config)


def write_electra(config: BertConfig) -> dict[str, Any]:
    name = "ElectraForMaskedLM" if "masked" in config.outputs else "ElectraModel"
    name = "ElectraForPreTraining" if "replaced" in config.outputs else name
    settings = {**write_settings(config, ELECTRA_SETTINGS), "embedding_size": config.embed or config.width}
    return {"model_type": "electra", "architectures": [name], **settings}


ELECTRA = Public(
    BertConfig,
    ELECTRA_SETTINGS,
    read_electra,
    write_electra,
    electra_lines,
    prefix="electra.",
    heads=("generator_*", "discriminator_*", "classifier.*", "qa_outputs.*"),
    ignored=COUNTS,
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    renamed=OLD_NORMS,
)
