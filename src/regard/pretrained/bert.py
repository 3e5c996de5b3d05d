"""Settings and weight tables of BERT and of types with its encoder: DistilBERT, ELECTRA, ALBERT, RoBERTa, XLM-R."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.models import BertConfig
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable
from regard.pretrained.encoder import SETTINGS, Encoder
from regard.pretrained.public_heads import choice_head, text_heads, token_heads

DROPOUT = ("classifier_dropout", "hidden_dropout_prob")  # of heads


# Devlin et al. 2019.
BERT = Encoder(
    "bert",
    "Bert",
    prefix="bert.",
    masked=(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "cls.predictions.decoder",
    ),
    head_patterns=("cls.*",),
    outputs={"pooled": {"pooled": "bert.pooler.dense"}, "next": {"next": "cls.seq_relationship"}},
    classes={
        ("masked", "next"): "ForPreTraining",
        ("masked",): "ForMaskedLM",
        ("next",): "ForNextSentencePrediction",
    },
    heads={
        **text_heads("Bert", "bert.pooler.dense", "classifier", "tanh", *DROPOUT),
        **token_heads("Bert", *DROPOUT),
        **choice_head("Bert", "bert.pooler.dense", "tanh", *DROPOUT),
    },
).checkpoint_type()

# Sanh et al. 2019: no segments, no pooling, and other names.
DISTILBERT = Encoder(
    "distilbert",
    "DistilBert",
    prefix="distilbert.",
    masked=("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"),
    head_patterns=("vocab_*", "pre_classifier.*"),
    settings={
        "vocab": ("vocab_size", 30522),
        "width": ("dim", 768),
        "heads": ("n_heads", 12),
        "layers": ("n_layers", 6),
        "inner": ("hidden_dim", 3072),
        "activation": ("activation", "gelu"),
        "context": ("max_position_embeddings", 512),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
    },
    layer="transformer.layer.{number}",
    block={
        "attention.qkv": "attention.q_lin attention.k_lin attention.v_lin",
        "attention.out": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "feed.up": "ffn.lin1",
        "feed.down": "ffn.lin2",
        "feed_norm": "output_layer_norm",
    },
    heads={
        **text_heads("DistilBert", "pre_classifier", "classifier", "relu", "seq_classif_dropout"),
        **token_heads("DistilBert"),
        **choice_head("DistilBert", "pre_classifier", "relu", "seq_classif_dropout"),
    },
    # Positions of every kind are saved as a table, which is then read.
    write_more=lambda config: {"sinusoidal_pos_embds": False},
).checkpoint_type()


def read_electra_settings(config: BertConfig, reader: ConfigReader) -> BertConfig:
    embed = reader.size("embedding_size", 128)
    return replace(config, embed=0 if embed == config.width else embed)


# Clark et al. 2020: narrower embeddings, and an output that detects replaced tokens.
ELECTRA = Encoder(
    "electra",
    "Electra",
    prefix="electra.",
    masked=(
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head.bias",
        "generator_lm_head",
    ),
    head_patterns=("generator_*", "discriminator_*", "sequence_summary.*"),
    settings={
        **SETTINGS,
        "width": ("hidden_size", 256),
        "heads": ("num_attention_heads", 4),
        "inner": ("intermediate_size", 1024),
    },
    project="embeddings_project",
    outputs={
        "replaced": {
            "replaced.dense": "discriminator_predictions.dense",
            "replaced.out": "discriminator_predictions.dense_prediction",
        }
    },
    classes={("replaced",): "ForPreTraining"},
    masked_activation="gelu",
    heads={
        **text_heads("Electra", "classifier.dense", "classifier.out_proj", "gelu", *DROPOUT),
        **token_heads("Electra", *DROPOUT),
        **choice_head(
            "Electra",
            "sequence_summary.summary",
            "gelu",
            "summary_last_dropout",
            expects={"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        ),
    },
    read_more=read_electra_settings,
    write_more=lambda config: {"embedding_size": config.embed or config.width},
).checkpoint_type()


def read_albert_settings(config: BertConfig, reader: ConfigReader) -> BertConfig:
    groups = reader.size("num_hidden_groups", 1)
    if config.layers % groups:
        raise reader.invalid("num_hidden_groups", f"a divisor of num_hidden_layers={config.layers}")
    return replace(config, groups=groups, group_blocks=reader.size("inner_group_num", 1))


# Lan et al. 2020: narrow embeddings, shared blocks.
ALBERT = Encoder(
    "albert",
    "Albert",
    prefix="albert.",
    masked=("predictions.dense", "predictions.LayerNorm", "predictions.bias", "predictions.decoder"),
    head_patterns=("predictions.*", "sop_classifier.*"),
    settings={
        **SETTINGS,
        "vocab": ("vocab_size", 30000),
        "embed": ("embedding_size", 128),
        "width": ("hidden_size", 4096),
        "heads": ("num_attention_heads", 64),
        "inner": ("intermediate_size", 16384),
        "activation": ("hidden_act", "gelu_new"),
        "dropout": ("hidden_dropout_prob", 0.0),
        "attention_dropout": ("attention_probs_dropout_prob", 0.0),
    },
    layer="encoder.albert_layer_groups.{group}.albert_layers.{place}",
    block={
        "attention.qkv": "attention.query attention.key attention.value",
        "attention.out": "attention.dense",
        "attention_norm": "attention.LayerNorm",
        "feed.up": "ffn",
        "feed.down": "ffn_output",
        "feed_norm": "full_layer_layer_norm",
    },
    project="encoder.embedding_hidden_mapping_in",
    outputs={"pooled": {"pooled": "albert.pooler"}, "next": {"next": "sop_classifier.classifier"}},
    classes={("next",): "ForPreTraining"},
    heads={
        **text_heads("Albert", "albert.pooler", "classifier", "tanh", "classifier_dropout_prob"),
        **token_heads("Albert", "classifier_dropout_prob", "hidden_dropout_prob"),
        **choice_head("Albert", "albert.pooler", "tanh", "classifier_dropout_prob"),
    },
    read_more=read_albert_settings,
    write_more=lambda config: {
        "embedding_size": config.embed or config.width,
        "num_hidden_groups": config.groups or config.layers,
        "inner_group_num": config.group_blocks,
    },
).checkpoint_type()


def read_roberta_settings(config: BertConfig, reader: ConfigReader) -> BertConfig:
    """Positions start at pad_token_id + 1: no token uses the first rows of the position table."""
    first = reader.integer("pad_token_id", 1) + 1
    if config.context <= first:
        raise reader.invalid("max_position_embeddings", f"more than {first}, as pad_token_id={first - 1}")
    return replace(config, first_position=first, context=config.context - first)


def write_roberta_settings(config: BertConfig) -> dict[str, Any]:
    first = max(config.first_position, 1)
    return {"max_position_embeddings": config.context + first, "pad_token_id": first - 1}


def roberta(kind: str, name: str, settings: SettingTable) -> CheckpointType:
    """RoBERTa and XLM-R, which differ in the defaults of their settings."""
    return Encoder(
        kind,
        name,
        prefix="roberta.",
        masked=("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"),
        head_patterns=("lm_head.*",),
        settings=settings,
        outputs={"pooled": {"pooled": "roberta.pooler.dense"}},
        masked_activation="gelu",
        heads={
            **text_heads(name, "classifier.dense", "classifier.out_proj", "tanh", *DROPOUT),
            **token_heads(name, *DROPOUT),
            **choice_head(name, "roberta.pooler.dense", "tanh"),
        },
        read_more=read_roberta_settings,
        write_more=write_roberta_settings,
    ).checkpoint_type()


# Liu et al. 2019; Conneau et al. 2020.
ROBERTA = roberta("roberta", "Roberta", {**SETTINGS, "vocab": ("vocab_size", 50265)})
XLM_ROBERTA = roberta("xlm-roberta", "XLMRoberta", SETTINGS)
