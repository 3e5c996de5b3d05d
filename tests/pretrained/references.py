"""Tiny random models of every public type, made by `transformers`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

os.environ["HF_HUB_OFFLINE"] = "1"  # every model is made here; nothing is downloaded
transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCAB = 29
MASKED, CAUSAL, TRANSLATING = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
PRETRAINING, BODY, TEXT_ENCODING = "AutoModelForPreTraining", "AutoModel", "AutoModelForTextEncoding"

# All sizes differ, so that a confusion of two of them causes an error.
ENCODER = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}
DISTIL = {"dim": 12, "n_layers": 2, "n_heads": 2, "hidden_dim": 20, "max_position_embeddings": 24}
ROBERTA = {**ENCODER, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
FACTORISED = {**ENCODER, "embedding_size": 8}
GPT = {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 24}
T5 = {
    "d_model": 12,
    "d_kv": 5,  # heads × 5 is not the width
    "d_ff": 20,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}
T5_GATED = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MARIAN = {
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 24,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": VOCAB - 1,
    "decoder_start_token_id": VOCAB - 1,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}
PEGASUS = {**MARIAN, "activation_function": "relu", "static_position_embeddings": True}


@dataclass(frozen=True)
class Case:
    """A model to make: its type, the class that people save it as, and its settings."""

    kind: str
    auto: str
    settings: dict[str, Any] = field(default_factory=dict)
    own_head: bool = False  # the readout is untied although the settings tie it

    @property
    def is_body(self) -> bool:
        """Whether the model gives states alone."""
        return self.auto in (BODY, TEXT_ENCODING)


CASES: dict[str, Case] = {
    "bert-plain": Case("bert", MASKED, ENCODER),
    "bert-relu": Case(
        "bert", MASKED, {**ENCODER, "hidden_act": "relu", "num_attention_heads": 4, "layer_norm_eps": 1e-3}
    ),
    "bert-deep": Case(
        "bert", MASKED, {**ENCODER, "hidden_act": "gelu_new", "num_hidden_layers": 4, "type_vocab_size": 3}
    ),
    "bert-sigmoid": Case("bert", MASKED, {**ENCODER, "hidden_act": "quick_gelu", "num_attention_heads": 3}),
    "bert-untied": Case("bert", MASKED, {**ENCODER, "tie_word_embeddings": False}),
    "bert-pretraining": Case("bert", PRETRAINING, ENCODER),
    "bert-body": Case("bert", BODY, ENCODER),
    "distilbert-plain": Case("distilbert", MASKED, DISTIL),
    "distilbert-relu": Case("distilbert", MASKED, {**DISTIL, "activation": "relu", "n_heads": 3, "n_layers": 3}),
    "distilbert-sines": Case("distilbert", MASKED, {**DISTIL, "sinusoidal_pos_embds": True}),
    "distilbert-untied": Case("distilbert", MASKED, {**DISTIL, "tie_word_embeddings": False}),
    "distilbert-body": Case("distilbert", BODY, DISTIL),
    "roberta-plain": Case("roberta", MASKED, ROBERTA),
    "roberta-relu": Case("roberta", MASKED, {**ROBERTA, "hidden_act": "relu", "type_vocab_size": 2, "pad_token_id": 2}),
    "roberta-untied": Case("roberta", MASKED, {**ROBERTA, "tie_word_embeddings": False, "num_attention_heads": 3}),
    "roberta-body": Case("roberta", BODY, ROBERTA),
    "xlm-roberta-plain": Case("xlm-roberta", MASKED, {**ROBERTA, "num_hidden_layers": 3, "num_attention_heads": 4}),
    "xlm-roberta-body": Case("xlm-roberta", BODY, ROBERTA),
    "albert-plain": Case("albert", MASKED, FACTORISED),
    "albert-groups": Case(
        "albert",
        MASKED,
        {**FACTORISED, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "gelu"},
    ),
    "albert-square": Case("albert", MASKED, {**ENCODER, "embedding_size": 12, "num_attention_heads": 3}),
    "albert-pretraining": Case("albert", PRETRAINING, FACTORISED),
    "albert-body": Case("albert", BODY, FACTORISED),
    "electra-plain": Case("electra", MASKED, FACTORISED),
    "electra-relu": Case("electra", MASKED, {**FACTORISED, "hidden_act": "relu", "num_attention_heads": 4}),
    "electra-square": Case("electra", MASKED, {**ENCODER, "embedding_size": 12}),
    "electra-discriminator": Case("electra", PRETRAINING, {**FACTORISED, "num_hidden_layers": 3}),
    "electra-body": Case("electra", BODY, FACTORISED),
    "gpt2-plain": Case("gpt2", CAUSAL, GPT),
    "gpt2-relu": Case(
        "gpt2",
        CAUSAL,
        {**GPT, "activation_function": "relu", "n_head": 4, "n_layer": 3, "n_inner": 20, "layer_norm_epsilon": 1e-3},
    ),
    "gpt2-untied": Case("gpt2", CAUSAL, {**GPT, "activation_function": "silu", "tie_word_embeddings": False}),
    "gpt2-by-layer": Case(
        "gpt2", CAUSAL, {**GPT, "n_layer": 3, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}
    ),
    "gpt2-dot": Case("gpt2", CAUSAL, {**GPT, "activation_function": "quick_gelu", "scale_attn_weights": False}),
    "gpt2-body": Case("gpt2", BODY, GPT),
    "openai-gpt-plain": Case("openai-gpt", CAUSAL, GPT),
    "openai-gpt-relu": Case("openai-gpt", CAUSAL, {**GPT, "afn": "relu", "n_head": 4, "n_layer": 3}),
    "openai-gpt-body": Case("openai-gpt", BODY, GPT),
    "t5-plain": Case("t5", TRANSLATING, T5),
    "t5-gelu": Case("t5", TRANSLATING, {**T5, "feed_forward_proj": "gelu", "num_heads": 2, "layer_norm_epsilon": 1e-3}),
    "t5-gated": Case("t5", TRANSLATING, T5_GATED),  # v1.1 as this version of the library starts one
    "t5-published": Case("t5", TRANSLATING, T5_GATED, own_head=True),  # v1.1 as it was published
    "t5-silu": Case("t5", TRANSLATING, {**T5_GATED, "feed_forward_proj": "gated-silu"}, own_head=True),
    "t5-body": Case("t5", BODY, T5),
    "t5-encoder": Case("t5", TEXT_ENCODING, T5),
    "t5-encoder-gated": Case("t5", TEXT_ENCODING, T5_GATED),
    "marian-plain": Case("marian", TRANSLATING, MARIAN),
    "marian-uneven": Case(
        "marian",
        TRANSLATING,
        {
            **MARIAN,
            "decoder_layers": 1,
            "decoder_attention_heads": 3,
            "decoder_ffn_dim": 28,
            "activation_function": "relu",
            "scale_embedding": False,
        },
    ),
    "marian-separate": Case(
        "marian",
        TRANSLATING,
        {**MARIAN, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 33, "activation_function": "gelu"},
    ),
    "marian-untied": Case("marian", TRANSLATING, {**MARIAN, "tie_word_embeddings": False}),
    "marian-body": Case("marian", BODY, MARIAN),
    "pegasus-plain": Case("pegasus", TRANSLATING, PEGASUS),
    "pegasus-body": Case("pegasus", BODY, PEGASUS),
}


def with_source(case: Case) -> bool:
    return case.kind in ("t5", "marian", "pegasus") and case.auto != TEXT_ENCODING


def causal(case: Case) -> bool:
    return case.kind in ("gpt2", "openai-gpt") or with_source(case)


def build(case: Case) -> Any:
    """The model with random weights, large enough that an error anywhere changes the outputs."""
    torch.manual_seed(len(case.kind) + len(case.settings))
    config = transformers.AutoConfig.for_model(case.kind, vocab_size=VOCAB, **case.settings)
    model = getattr(transformers, case.auto).from_config(config).eval()
    if case.own_head:
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue  # Marian's sinusoids, which it does not save
            gain = 1.0 if re.search(r"(norm|ln_\w)\.weight$", name, re.IGNORECASE) else 0.0
            parameter.copy_(gain + 0.3 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.normal_()
    return model


def reopen(case: Case, path: Path) -> Any:
    """The model that `transformers` reads from a directory: no tensor may be missing or extra."""
    model, report = getattr(transformers, case.auto).from_pretrained(path, output_loading_info=True)
    wrong = {what: found for what, found in report.items() if found}
    assert not wrong, wrong
    return model.eval()
