"""The encoder of BERT and similar types: their settings and weight tables, given the names in which they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from regard.models import BertConfig
from regard.models.bert import OUTPUTS
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable, their_settings
from regard.pretrained.public_heads import PublicHead
from regard.pretrained.weight_table import WeightEntry, entry, weight_and_bias

SETTINGS: SettingTable = {
    "vocab": ("vocab_size", 30522),
    "width": ("hidden_size", 768),
    "heads": ("num_attention_heads", 12),
    "layers": ("num_hidden_layers", 12),
    "inner": ("intermediate_size", 3072),
    "activation": ("hidden_act", "gelu"),
    "epsilon": ("layer_norm_eps", 1e-12),
    "context": ("max_position_embeddings", 512),
    "segments": ("type_vocab_size", 2),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
}
BLOCK = {  # our part of a block → the names of BERT
    "attention.qkv": "attention.self.query attention.self.key attention.self.value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed.up": "intermediate.dense",
    "feed.down": "output.dense",
    "feed_norm": "output.LayerNorm",
}
EMBEDDINGS = {"tokens": "word", "positions": "position", "segments": "token_type"}  # ours → theirs
SUPPORTED = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
}
MASK_ID, SPECIAL_IDS = "mask_token_id", "special_token_ids"  # ids that training uses; the network does not


@dataclass(frozen=True)
class EncoderType(CheckpointType):
    """A type whose readout may store its bias under two names: that of the readout, and that of its decoder.

    If both are there, the second is the one that the model uses. A file with a tied readout has only the first, a file
    with an untied readout has both.
    """

    bias: str = ""
    decoder: str = ""

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normalized(tensors)
        used = f"{self.decoder}.bias"
        bias = found.pop(used, found.get(self.bias))
        if bias is not None:
            found[self.bias] = bias
            if f"{self.decoder}.weight" in found:
                found[used] = bias
        return found


@dataclass(frozen=True)
class Encoder:
    """The names and settings in which the types differ."""

    kind: str  # the model_type
    name: str  # the beginning of the names of their classes, such as BertModel
    prefix: str  # of the tensors of the body
    masked: tuple[str, str, str, str]  # of the masked output: the dense layer, the norm, the bias, the untied matrix
    head_patterns: tuple[str, ...]  # patterns of the tensors of the output layers
    settings: SettingTable = field(default_factory=lambda: SETTINGS)
    layer: str = "encoder.layer.{number}"
    block: Mapping[str, str] = field(default_factory=lambda: BLOCK)
    project: str = ""  # the projection of narrow embeddings
    outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # other outputs: our names → theirs
    classes: Mapping[tuple[str, ...], str] = field(default_factory=dict)  # by outputs: classes other than ForMaskedLM
    masked_activation: str = ""  # of the masked output, if it is not that of the feed-forward layers
    heads: Mapping[str, PublicHead] = field(default_factory=dict)
    # The settings that need more than a name: from a config.json to our config, and back.
    read_more: Callable[[BertConfig, ConfigReader], BertConfig] = lambda config, reader: config
    write_more: Callable[[BertConfig], dict[str, Any]] = lambda config: {}

    def checkpoint_type(self) -> CheckpointType:
        *_, bias, decoder = self.masked
        return EncoderType(
            BertConfig,
            self.settings,
            self.read_config,
            self.write_config,
            self.weight_table,
            prefix=self.prefix,
            head_patterns=(*self.head_patterns, "classifier.*", "qa_outputs.*"),
            # The constants 0, 1, 2, … and zeros.
            ignored=("*.embeddings.position_ids", "*.embeddings.token_type_ids"),
            tied_copies={f"{decoder}.weight": f"{self.prefix}embeddings.word_embeddings.weight"},
            old_endings={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
            heads=self.heads,
            bias=bias,
            decoder=decoder,
        )

    def weight_table(self, config: BertConfig) -> list[WeightEntry]:
        parts = {"embedding.norm": "embeddings.LayerNorm"}  # ours → theirs, in the body
        if config.embed and self.project:
            parts["embedding.project"] = self.project
        for number in range(config.groups * config.group_blocks or config.layers):
            group, place = divmod(number, config.group_blocks)
            layer = self.layer.format(number=number, group=group, place=place)
            for ours, names in self.block.items():
                parts[f"stack.blocks.{number}.{ours}"] = " ".join(f"{layer}.{name}" for name in names.split())
        kinds = [kind for kind in EMBEDDINGS if kind != "segments" or kind in self.settings]
        table = [
            entry(f"embeddings.{EMBEDDINGS[kind]}_embeddings.weight", f"embedding.{kind}.weight") for kind in kinds
        ]
        table += [one for ours, names in parts.items() for one in weight_and_bias(names, ours)]
        table = [one.with_prefixes(self.prefix, "") for one in table]
        for output in config.outputs:
            table += self._output_entries(output, config.tied)
        return table

    def _output_entries(self, output: str, tied: bool) -> list[WeightEntry]:
        if output != "masked":
            return [one for ours, name in self.outputs.get(output, {}).items() for one in weight_and_bias(name, ours)]
        dense, norm, bias, decoder = self.masked
        table = [*weight_and_bias(dense, "masked.dense"), *weight_and_bias(norm, "masked.norm")]
        return [*table, entry(bias, "masked.bias"), *([] if tied else weight_and_bias(decoder, "masked"))]

    def read_config(self, reader: ConfigReader, names: frozenset[str]) -> BertConfig:
        """Our config. An output is present if the file has any tensor of it."""
        reader.expect(SUPPORTED)
        mask, ids = -1 if reader.get(MASK_ID) is None else reader.integer(MASK_ID), reader.get(SPECIAL_IDS, [])
        if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
            raise reader.invalid(SPECIAL_IDS, "a list of whole numbers")
        found = {"segments": 0} | reader.read_table(self.settings)
        config = self.read_more(BertConfig(**found, outputs=(), mask=mask, specials=tuple(ids)), reader)
        shown = {
            output
            for output in OUTPUTS
            if any(name in names for one in self._output_entries(output, tied=False) for name in one.theirs)
        }
        shown |= {"pooled"} if "next" in shown else set()
        untied = f"{self.masked[-1]}.weight" in names
        activation = self.masked_activation if "masked" in shown else ""
        return replace(
            config,
            outputs=tuple(output for output in OUTPUTS if output in shown),
            tied="masked" not in shown or (not untied and reader.boolean("tie_word_embeddings", True)),
            head_activation="" if activation == config.activation else activation,
        )

    def write_config(self, config: BertConfig) -> dict[str, Any]:
        classes = {**self.classes, ("masked",): "ForMaskedLM", (): "Model"}
        written = {
            "model_type": self.kind,
            "architectures": [self.name + next(classes[one] for one in classes if {*one} <= {*config.outputs})],
            **their_settings(config, self.settings),
            "tie_word_embeddings": config.tied,
        }
        written |= {self.settings["segments"][0]: max(config.segments, 1)} if "segments" in self.settings else {}
        written |= {MASK_ID: config.mask} if config.mask >= 0 else {}
        written |= {SPECIAL_IDS: list(config.specials)} if config.specials else {}
        return written | self.write_more(config)
