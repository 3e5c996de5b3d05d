"""Settings and weight table of Transformer-XL checkpoints (type transfo-xl; Dai et al. 2019)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.models import GptConfig
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable, their_settings
from regard.pretrained.weight_table import WeightEntry, entry, for_all_layers, weight_and_bias

SETTINGS: SettingTable = {  # of two of ours with one name of theirs, the last is written
    "vocab": ("vocab_size", 267735),
    "width": ("d_model", 1024),
    "embed": ("d_embed", 1024),
    "heads": ("n_head", 16),
    "head_width": ("d_head", 64),
    "layers": ("n_layer", 18),
    "inner": ("d_inner", 4096),
    "epsilon": ("layer_norm_epsilon", 1e-5),
    "feed_dropout": ("dropout", 0.1),
    "output_dropout": ("dropout", 0.1),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("dropatt", 0.0),
    "divide": ("div_val", 4),
}
SCORE = "stack.blocks.{}.attention.read.score"
BIASES = {"r_w_bias": "content", "r_r_bias": "position"}  # u and v of the paper's section 3.3
BLOCK = [
    entry("transformer.layers.{}.dec_attn.qkv_net.weight", "stack.blocks.{}.attention.qkv.weight"),
    entry("transformer.layers.{}.dec_attn.o_net.weight", "stack.blocks.{}.attention.out.weight"),
    entry("transformer.layers.{}.dec_attn.r_net.weight", f"{SCORE}.relative.weight"),
    *(entry(f"transformer.layers.{{}}.dec_attn.{theirs}", f"{SCORE}.{ours}") for theirs, ours in BIASES.items()),
    *weight_and_bias("transformer.layers.{}.dec_attn.layer_norm", "stack.blocks.{}.attention_norm"),
    *weight_and_bias("transformer.layers.{}.pos_ff.CoreNet.0", "stack.blocks.{}.feed.up"),
    *weight_and_bias("transformer.layers.{}.pos_ff.CoreNet.3", "stack.blocks.{}.feed.down"),
    *weight_and_bias("transformer.layers.{}.pos_ff.layer_norm", "stack.blocks.{}.feed_norm"),
]
INV_FREQ = "transformer.pos_emb.inv_freq"
ATTENTION_NAME = re.compile(r"transformer\.layers\.\d+\.dec_attn\.")
SOFTMAX_NAME = re.compile(r"crit\.out_(layers|projs)\.(\d+)(\.weight)?")


def transfo_xl_weight_table(config: GptConfig) -> list[WeightEntry]:
    shared = BIASES.items() if config.shared_biases else ()
    table = [entry(f"transformer.{theirs}", f"{SCORE.format(0)}.{ours}") for theirs, ours in shared]
    table += for_all_layers(BLOCK, config.layers)
    if config.softmax != "adaptive":
        return table
    clusters = config.clusters  # of the embedding and of the softmax
    for i, _ in enumerate(clusters.tables):
        table += [entry(f"transformer.word_emb.emb_layers.{i}.weight", f"embedding.tokens.tables.{i}.weight")]
        table += [entry(f"crit.out_layers.{i}.bias", f"readout_.biases.{i}")]
        if not config.tied:
            table += [entry(f"crit.out_layers.{i}.weight", f"readout_.tables.{i}.weight")]
        if clusters.projected:
            table += [entry(f"transformer.word_emb.emb_projs.{i}", f"embedding.tokens.projections.{i}.weight")]
    for i in config.projections if clusters.projected else ():
        table += [entry(f"crit.out_projs.{i}", f"readout_.projections.{i}.weight", transposed=True)]
    if config.cutoffs:
        table += [
            entry("crit.cluster_weight", "readout_.others.weight"),
            entry("crit.cluster_bias", "readout_.others.bias"),
        ]
    return table


def read_transfo_xl_config(reader: ConfigReader, names: frozenset[str]) -> GptConfig:
    reader.expect({"attn_type": 0})
    if reader.number("sample_softmax", -1) > 0:
        reader.expect({"sample_softmax": -1})
    memory, windowed = reader.integer("mem_len", 1600), reader.boolean("same_length", True)
    if windowed and memory < 2:
        raise reader.invalid("mem_len", "at least 2 where same_length is true")
    cutoffs, projections = _clusters(reader, names)
    pre_norm = reader.boolean("pre_lnorm", False)
    found = reader.read_table(SETTINGS)
    if found["embed"] == found["width"]:
        del found["embed"]
    return GptConfig(
        **found,
        activation="relu",
        norm_place="pre" if pre_norm else "post",
        last_norm=not pre_norm,
        attention_bias=False,
        positions="xl",
        windows=(memory - 1,) if windowed else (),
        tied="crit.out_layers.0.weight" not in names and reader.boolean("tie_word_embeddings", True),
        scaled=True,
        memory=memory,
        memory_zeros=memory > 0,
        clamp=max(int(reader.number("clamp_len", 1000)), 0),
        shared_biases=not reader.boolean("untie_r", True),
        softmax="adaptive",
        cutoffs=cutoffs,
        projections=projections,
    )


def _clusters(reader: ConfigReader, names: frozenset[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cutoffs, and the clusters with a projection of their own, by the settings or by the tensors of the file."""
    cutoffs = reader.get("cutoffs", [20000, 40000, 200000])
    if not isinstance(cutoffs, list) or not all(type(one) is int for one in cutoffs):
        raise reader.invalid("cutoffs", "a list of whole numbers")
    all_but_first = reader.boolean("proj_share_all_but_first", True)  # the setting of older files
    shared = reader.get("tie_projs", [False] + [all_but_first] * len(cutoffs))
    if not isinstance(shared, list) or len(shared) != len(cutoffs) + 1:
        raise reader.invalid("tie_projs", f"a list of {len(cutoffs) + 1}, true or false")
    untied = (i for i, one in enumerate(shared) if not one or f"crit.out_projs.{i}" in names)
    return tuple(cutoffs), tuple(untied)


def write_transfo_xl_config(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "transfo-xl",
        "architectures": ["TransfoXLLMHeadModel"],
        **their_settings(config, SETTINGS),
        "cutoffs": list(config.cutoffs),
        "d_embed": config.embed or config.width,
        "d_head": config.head,
        "pre_lnorm": config.norm_place == "pre",
        "mem_len": config.memory,
        "clamp_len": config.clamp or -1,
        "same_length": config.memory > 1 and config.windows == (config.memory - 1,),
        "attn_type": 0,
        "sample_softmax": -1,
        "adaptive": True,
        "untie_r": not config.shared_biases,
        "tie_projs": [i not in config.projections for i in range(len(config.cutoffs) + 1)],
        "tie_word_embeddings": config.tied,
    }


def inv_freq(config: GptConfig, classes: Sequence[str]) -> dict[str, Tensor]:
    """The frequencies of the sinusoids of distances: a constant that the reference saves and requires."""
    return {INV_FREQ: 1 / (10000 ** (torch.arange(0.0, config.width, 2.0) / config.width))}


@dataclass(frozen=True)
class TransfoXLType(CheckpointType):
    """Transformer-XL, whose files store tied tensors again under other names."""

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normalized(tensors)
        for copy in [match for name in found if (match := SOFTMAX_NAME.fullmatch(name))]:
            originals = {"layers": (f"emb_layers.{copy[2]}.weight",), "projs": (f"emb_projs.{copy[2]}", "emb_projs.0")}
            tied = [f"transformer.word_emb.{name}" for name in originals[copy[1]]]
            if any(torch.equal(found[copy[0]], found[name]) for name in tied if name in found):
                del found[copy[0]]
        blocks = {match[0] for name in found if (match := ATTENTION_NAME.match(name))}
        for bias in BIASES:  # give each layer the bias that all share and that is saved only once
            if (shared := found.get(f"transformer.{bias}")) is not None:
                found = {f"{block}{bias}": shared for block in blocks} | found
        return found


TRANSFO_XL = TransfoXLType(
    GptConfig,
    SETTINGS,
    read_transfo_xl_config,
    write_transfo_xl_config,
    transfo_xl_weight_table,
    prefix="transformer.",
    head_patterns=("crit.*",),
    ignored=(INV_FREQ,),
    constants=inv_freq,
)
