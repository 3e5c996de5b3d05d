"""Transformer-XL: names and settings of public checkpoints of type transfo-xl (Dai et al. 2019)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.models import GptConfig
from regard.pretrained.names import Line, both, layered, line
from regard.pretrained.public import Given, Public, Table, their_settings

SETTINGS: Table = {  # of two that are one of theirs, the last is the one that is written
    "vocab": ("vocab_size", 267735),
    "width": ("d_model", 1024),
    "embed": ("d_embed", 1024),
    "heads": ("n_head", 16),
    "head_width": ("d_head", 64),
    "layers": ("n_layer", 18),
    "inner": ("d_inner", 4096),
    "epsilon": ("layer_norm_epsilon", 1e-5),
    "feed_dropout": ("dropout", 0.1),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("dropatt", 0.0),
    "divide": ("div_val", 4),
}
SCORE = "stack.blocks.{}.attention.read.score"
BIASES = {"r_w_bias": "content", "r_r_bias": "position"}  # u and v of the paper's section 3.3
BLOCK = [
    line("transformer.layers.{}.dec_attn.qkv_net.weight", "stack.blocks.{}.attention.qkv.weight"),
    line("transformer.layers.{}.dec_attn.o_net.weight", "stack.blocks.{}.attention.out.weight"),
    line("transformer.layers.{}.dec_attn.r_net.weight", f"{SCORE}.relative.weight"),
    *(line(f"transformer.layers.{{}}.dec_attn.{theirs}", f"{SCORE}.{ours}") for theirs, ours in BIASES.items()),
    *both("transformer.layers.{}.dec_attn.layer_norm", "stack.blocks.{}.attention_norm"),
    *both("transformer.layers.{}.pos_ff.CoreNet.0", "stack.blocks.{}.feed.up"),
    *both("transformer.layers.{}.pos_ff.CoreNet.3", "stack.blocks.{}.feed.down"),
    *both("transformer.layers.{}.pos_ff.layer_norm", "stack.blocks.{}.feed_norm"),
]
RATES = "transformer.pos_emb.inv_freq"
LAYER = re.compile(r"transformer\.layers\.\d+\.dec_attn\.")
OUT = re.compile(r"crit\.out_(layers|projs)\.(\d+)(\.weight)?")


def lines(config: GptConfig) -> list[Line]:
    shared = BIASES.items() if config.shared_biases else ()
    return [
        *(line(f"transformer.{theirs}", f"{SCORE.format(0)}.{ours}") for theirs, ours in shared),
        *layered(BLOCK, config.layers),
        *_vocabulary(config),
    ]


def _vocabulary(config: GptConfig) -> list[Line]:
    """The lines of the embedding and of the softmax, which have the same clusters."""
    if config.softmax != "adaptive":
        return []
    clusters, table = config.clusters, []
    for i, _ in enumerate(clusters.tables):
        table += [line(f"transformer.word_emb.emb_layers.{i}.weight", f"embedding.tokens.tables.{i}.weight")]
        table += [line(f"crit.out_layers.{i}.bias", f"readout_.biases.{i}")]
        if not config.tied:
            table += [line(f"crit.out_layers.{i}.weight", f"readout_.tables.{i}.weight")]
        if clusters.projected:
            table += [line(f"transformer.word_emb.emb_projs.{i}", f"embedding.tokens.projections.{i}.weight")]
    for i in config.projections if clusters.projected else ():
        table += [line(f"crit.out_projs.{i}", f"readout_.projections.{i}.weight", turned=True)]
    if config.cutoffs:
        table += [
            line("crit.cluster_weight", "readout_.others.weight"),
            line("crit.cluster_bias", "readout_.others.bias"),
        ]
    return table


def read(given: Given, names: frozenset[str]) -> GptConfig:
    given.expect("attn_type", 0, 0)
    if given.number("sample_softmax", -1) > 0:
        given.expect("sample_softmax", -1, -1)
    memory, windowed = given.whole("mem_len", 1600), given.truth("same_length", True)
    if windowed and memory < 2:
        raise given.wrong("mem_len", "at least 2 where same_length is true")
    cutoffs, own = _clusters(given, names)
    before = given.truth("pre_lnorm", False)
    found = given.those_of(SETTINGS)
    if found["embed"] == found["width"]:
        del found["embed"]
    return GptConfig(
        **found,
        activation="relu",
        norm_place="pre" if before else "post",
        last_norm=not before,
        attention_bias=False,
        positions="xl",
        windows=(memory - 1,) if windowed else (),
        tied="crit.out_layers.0.weight" not in names and given.truth("tie_word_embeddings", True),
        scaled=True,
        memory=memory,
        memory_zeros=memory > 0,
        clamp=max(int(given.number("clamp_len", 1000)), 0),
        shared_biases=not given.truth("untie_r", True),
        softmax="adaptive",
        cutoffs=cutoffs,
        projections=own,
    )


def _clusters(given: Given, names: frozenset[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cutoffs, and the clusters with a projection of their own: those that have one in the file, at least."""
    cutoffs = given.get("cutoffs", [20000, 40000, 200000])
    if not isinstance(cutoffs, list) or not all(type(one) is int for one in cutoffs):
        raise given.wrong("cutoffs", "a list of whole numbers")
    all_but_first = given.truth("proj_share_all_but_first", True)  # what older files say instead
    shared = given.get("tie_projs", [False] + [all_but_first] * len(cutoffs))
    if not isinstance(shared, list) or len(shared) != len(cutoffs) + 1:
        raise given.wrong("tie_projs", f"a list of {len(cutoffs) + 1}, true or false")
    own = (i for i, one in enumerate(shared) if not one or f"crit.out_projs.{i}" in names)
    return tuple(cutoffs), tuple(own)


def write(config: GptConfig) -> dict[str, Any]:
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


def constants(config: GptConfig) -> dict[str, Tensor]:
    """How fast the sinusoids of distances run: saved by the reference, and missed by it where it is not there."""
    return {RATES: 1 / (10000 ** (torch.arange(0.0, config.width, 2.0) / config.width))}


@dataclass(frozen=True)
class TransfoXL(Public):
    """A type that repeats tensors under other names, in some of its files all of them."""

    def normal(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normal(tensors)
        for name in [name for name in found if OUT.fullmatch(name)]:
            if any(torch.equal(found[name], found[one]) for one in _originals(name) if one in found):
                del found[name]
        blocks = {match[0] for name in found if (match := LAYER.match(name))}
        for bias in BIASES:  # the layers', where they share one that is saved only once
            if (once := found.get(f"transformer.{bias}")) is not None:
                found = {f"{block}{bias}": once for block in blocks} | found
        return found


def _originals(name: str) -> tuple[str, ...]:
    """Which tensors of the embedding a tensor of the softmax may repeat."""
    match OUT.fullmatch(name):
        case re.Match() as part if part[1] == "layers":
            return (f"transformer.word_emb.emb_layers.{part[2]}.weight",)
        case re.Match() as part:
            return (f"transformer.word_emb.emb_projs.{part[2]}", "transformer.word_emb.emb_projs.0")
        case _:
            return ()


TRANSFO_XL = TransfoXL(
    GptConfig,
    SETTINGS,
    read,
    write,
    lines,
    prefix="transformer.",
    heads=("crit.*",),
    ignored=(RATES,),
    constants=constants,
)
