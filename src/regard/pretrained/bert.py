"""Settings and weight tables of BERT, DistilBERT and ELECTRA checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.heads import ClassHeadConfig
from regard.models import BertConfig
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable
from regard.pretrained.encoder import (
    BLOCK,
    OLD_NORMS,
    POSITION_BUFFERS,
    SETTINGS,
    EncoderType,
    block_entries,
    embedding_entries,
    read_encoder_config,
    with_gelu_head,
    with_outputs,
    write_encoder_config,
)
from regard.pretrained.heads import PublicHead
from regard.pretrained.weight_table import WeightEntry, entry, weight_and_bias

# -- BERT (Devlin et al. 2019) ----------------------------------------------------------------------------------------

OUTPUT_PREFIXES = {"masked": "cls.predictions.", "pooled": "bert.pooler.", "next": "cls.seq_relationship."}


def bert_weight_table(config: BertConfig) -> list[WeightEntry]:
    table = embedding_entries("bert.embeddings", ("tokens", "positions", "segments"))
    for number in range(config.layers):
        table += block_entries(f"bert.encoder.layer.{number}", number, BLOCK)
    if "pooled" in config.outputs:
        table += weight_and_bias("bert.pooler.dense", "pooled")
    if "next" in config.outputs:
        table += weight_and_bias("cls.seq_relationship", "next")
    if "masked" in config.outputs:
        table += weight_and_bias("cls.predictions.transform.dense", "masked.dense")
        table += weight_and_bias("cls.predictions.transform.LayerNorm", "masked.norm")
        table += [entry("cls.predictions.bias", "masked.bias")]
        table += [] if config.tied else weight_and_bias("cls.predictions.decoder", "masked")
    return table


def read_bert_config(reader: ConfigReader, names: frozenset[str]) -> BertConfig:
    return with_outputs(
        read_encoder_config(reader, SETTINGS), names, OUTPUT_PREFIXES, "cls.predictions.decoder.weight", reader
    )


def write_bert_config(config: BertConfig) -> dict[str, Any]:
    match "masked" in config.outputs, "next" in config.outputs:
        case True, True:
            name = "BertForPreTraining"
        case True, False:
            name = "BertForMaskedLM"
        case False, True:
            name = "BertForNextSentencePrediction"
        case _:
            name = "BertModel"
    return {"model_type": "bert", "architectures": [name], **write_encoder_config(config, SETTINGS)}


BERT_CLASS_HEAD = PublicHead(
    "BertForSequenceClassification",
    ClassHeadConfig(pool="first", hidden="tanh", bias=True),
    (*weight_and_bias("bert.pooler.dense", "hidden"), *weight_and_bias("classifier", "out")),
    dropout=("classifier_dropout", "hidden_dropout_prob"),
)
BERT = EncoderType(
    BertConfig,
    SETTINGS,
    read_bert_config,
    write_bert_config,
    bert_weight_table,
    prefix="bert.",
    head_patterns=("cls.*", "classifier.*", "qa_outputs.*"),
    ignored=POSITION_BUFFERS,
    tied_copies={"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"},
    old_endings=OLD_NORMS,
    readout="cls.predictions",
    heads={"class": BERT_CLASS_HEAD},
)

# -- DistilBERT (Sanh et al. 2019): no segments, no pooling, and other names ------------------------------------------

DISTILBERT_SETTINGS: SettingTable = {
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
DISTILBERT_BLOCK = {
    "attention.qkv": "attention.q_lin attention.k_lin attention.v_lin",
    "attention.out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed.up": "ffn.lin1",
    "feed.down": "ffn.lin2",
    "feed_norm": "output_layer_norm",
}


def distilbert_weight_table(config: BertConfig) -> list[WeightEntry]:
    table = embedding_entries("distilbert.embeddings", ("tokens", "positions"))
    for number in range(config.layers):
        table += block_entries(f"distilbert.transformer.layer.{number}", number, DISTILBERT_BLOCK)
    if "masked" in config.outputs:
        table += [
            *weight_and_bias("vocab_transform", "masked.dense"),
            *weight_and_bias("vocab_layer_norm", "masked.norm"),
        ]
        table += [entry("vocab_projector.bias", "masked.bias")]
        table += [] if config.tied else [entry("vocab_projector.weight", "masked.weight")]
    return table


def read_distilbert_config(reader: ConfigReader, names: frozenset[str]) -> BertConfig:
    prefixes = {"masked": "vocab_"}
    return with_outputs(
        read_encoder_config(reader, DISTILBERT_SETTINGS), names, prefixes, "vocab_projector.weight", reader
    )


def write_distilbert_config(config: BertConfig) -> dict[str, Any]:
    name = "DistilBertForMaskedLM" if "masked" in config.outputs else "DistilBertModel"
    settings = write_encoder_config(config, DISTILBERT_SETTINGS)
    # Positions of every kind are saved as a table, which is then read.
    return {"model_type": "distilbert", "architectures": [name], "sinusoidal_pos_embds": False, **settings}


DISTILBERT_CLASS_HEAD = PublicHead(
    "DistilBertForSequenceClassification",
    ClassHeadConfig(pool="first", hidden="relu", bias=True),
    (*weight_and_bias("pre_classifier", "hidden"), *weight_and_bias("classifier", "out")),
    dropout=("seq_classif_dropout",),
)
DISTILBERT = CheckpointType(
    BertConfig,
    DISTILBERT_SETTINGS,
    read_distilbert_config,
    write_distilbert_config,
    distilbert_weight_table,
    prefix="distilbert.",
    head_patterns=("vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"),
    ignored=POSITION_BUFFERS,
    tied_copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    old_endings=OLD_NORMS,
    heads={"class": DISTILBERT_CLASS_HEAD},
)

# -- ELECTRA (Clark et al. 2020): narrower embeddings, and an output that detects replaced tokens ---------------------

ELECTRA_SETTINGS: SettingTable = {
    **SETTINGS,
    "width": ("hidden_size", 256),
    "heads": ("num_attention_heads", 4),
    "inner": ("intermediate_size", 1024),
}
ELECTRA_PREFIXES = {"masked": "generator_", "replaced": "discriminator_"}


def electra_weight_table(config: BertConfig) -> list[WeightEntry]:
    table = embedding_entries("electra.embeddings", ("tokens", "positions", "segments"))
    table += weight_and_bias("electra.embeddings_project", "embedding.project") if config.embed else []
    for number in range(config.layers):
        table += block_entries(f"electra.encoder.layer.{number}", number, BLOCK)
    if "masked" in config.outputs:
        table += weight_and_bias("generator_predictions.dense", "masked.dense")
        table += weight_and_bias("generator_predictions.LayerNorm", "masked.norm")
        table += [entry("generator_lm_head.bias", "masked.bias")]
        table += [] if config.tied else [entry("generator_lm_head.weight", "masked.weight")]
    if "replaced" in config.outputs:
        table += weight_and_bias("discriminator_predictions.dense", "replaced.dense")
        table += weight_and_bias("discriminator_predictions.dense_prediction", "replaced.out")
    return table


def read_electra_config(reader: ConfigReader, names: frozenset[str]) -> BertConfig:
    config = read_encoder_config(reader, ELECTRA_SETTINGS)
    embed = reader.size("embedding_size", 128)
    config = replace(config, embed=0 if embed == config.width else embed)
    config = with_outputs(config, names, ELECTRA_PREFIXES, "generator_lm_head.weight", reader)
    return with_gelu_head(config)


def write_electra_config(config: BertConfig) -> dict[str, Any]:
    name = "ElectraForMaskedLM" if "masked" in config.outputs else "ElectraModel"
    name = "ElectraForPreTraining" if "replaced" in config.outputs else name
    settings = {**write_encoder_config(config, ELECTRA_SETTINGS), "embedding_size": config.embed or config.width}
    return {"model_type": "electra", "architectures": [name], **settings}


ELECTRA = CheckpointType(
    BertConfig,
    ELECTRA_SETTINGS,
    read_electra_config,
    write_electra_config,
    electra_weight_table,
    prefix="electra.",
    head_patterns=("generator_*", "discriminator_*", "classifier.*", "qa_outputs.*"),
    ignored=POSITION_BUFFERS,
    tied_copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    old_endings=OLD_NORMS,
)
