"""Tiny public checkpoints with tokenizers that go with them, made and saved by `transformers` itself."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is made here; nothing may be looked up
transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

LINES = [
    "the grey heron stood in the shallow water",
    "a lantern swung above the old harbour door",
    "rain fell on the tin roof all through the night",
    "the baker's oven was warm before the sun rose",
    "Η βάρκα φεύγει πρωί · naïve café 🙂",
]
CONTEXT = 40
END = "<|endoftext|>"
ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def gpt2(folder: Path, read_pointer: bool = True) -> Any:
    """A GPT-2 that cuts text into bytes and pairs of them; without its mark it has nothing to begin or end with."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = [END] if read_pointer else []
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(LINES, trainer)
    marks = {"bos_token": END, "eos_token": END} if read_pointer else {}
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **marks).save_pretrained(folder)
    end = inner.token_to_id(END)
    config = transformers.GPT2Config(
        vocab_size=inner.get_vocab_size(), n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, bos_token_id=end,
        eos_token_id=end,
    )  # fmt: skip
    return saved(transformers.GPT2LMHeadModel(config), folder)


def bert(folder: Path, lines: Sequence[str] = LINES, **settings: Any) -> Any:
    """A BERT with word pieces, lower-cased; the words of the lines are one piece each."""
    wordpiece(folder, lines)
    config = transformers.BertConfig(**{**ENCODER, "vocab_size": 200, "max_position_embeddings": CONTEXT, **settings})
    return saved(transformers.BertForMaskedLM(config), folder)


def roberta(folder: Path) -> Any:
    """A RoBERTa: bytes, and a mask that takes the space before it away."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    specials = ["<s>", "<pad>", "</s>", "<unk>", tokenizers.AddedToken("<mask>", lstrip=True)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        LINES,
        trainers.BpeTrainer(vocab_size=320, special_tokens=specials, initial_alphabet=alphabet, show_progress=False),
    )
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    marks = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    marks |= {"cls_token": "<s>", "sep_token": "</s>"}
    mask = tokenizers.AddedToken("<mask>", lstrip=True, special=True)
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, mask_token=mask, **marks).save_pretrained(folder)
    config = transformers.RobertaConfig(
        **ENCODER, vocab_size=inner.get_vocab_size(), max_position_embeddings=CONTEXT + 2, type_vocab_size=1
    )
    return saved(transformers.RobertaForMaskedLM(config), folder)


def albert(folder: Path) -> Any:
    """An ALBERT with pieces of SentencePiece, in lower case."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text").write_text("".join(f"{line}\n" for line in LINES[:4] * 20), encoding="utf-8")
    specials = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"}
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "spiece"), vocab_size=55, minloglevel=3, **specials
    )
    for name in ("text", "spiece.vocab"):
        (folder / name).unlink()
    sizes = {**ENCODER, "embedding_size": 8, "vocab_size": 55, "max_position_embeddings": CONTEXT}
    return saved(transformers.AlbertForMaskedLM(transformers.AlbertConfig(**sizes)), folder)


def marian(folder: Path, **settings: Any) -> Any:
    """A Marian with pieces of SentencePiece, and the settings of generation that such models are published with."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text").write_text("".join(f"{line}\n" for line in LINES[:4] * 20), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "source"), vocab_size=40, minloglevel=3
    )
    (folder / "source.model").rename(folder / "source.spm")
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    for name in ("text", "source.vocab"):
        (folder / name).unlink()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    names = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: at for at, name in enumerate(names)}), encoding="utf-8")
    languages = {"source_lang": "en", "target_lang": "de", "model_max_length": 512, "separate_vocabs": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(languages), encoding="utf-8")
    pad = len(names) - 1
    config = transformers.MarianConfig(**{
        **{"vocab_size": len(names), "d_model": 16, "encoder_layers": 2, "decoder_layers": 2},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
        **{"max_position_embeddings": CONTEXT, "activation_function": "swish", "scale_embedding": True},
        **{"pad_token_id": pad, "decoder_start_token_id": pad, "bos_token_id": 0, "eos_token_id": 0, **settings},
    })  # fmt: skip
    model = saved(transformers.MarianMTModel(config), folder)
    model.generation_config = transformers.GenerationConfig(
        bad_words_ids=[[pad]], bos_token_id=0, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
        max_length=CONTEXT, num_beams=3, pad_token_id=pad, renormalize_logits=True,
    )  # fmt: skip
    model.generation_config.save_pretrained(folder)
    return model


def wordpiece(folder: Path, lines: Sequence[str] = LINES) -> None:
    """A lower-casing tokenizer of word pieces: the words of the lines, and their letters."""
    folder.mkdir(parents=True, exist_ok=True)
    words = {word for line in lines for word in re.findall(r"\w+|[^\w\s]", line.lower())}
    letters = sorted({letter for word in words for letter in word})
    pieces = [*letters, *(f"##{letter}" for letter in letters), *sorted(words - set(letters))]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(folder)


def saved(model: Any, folder: Path) -> Any:
    """The model with random weights that are large enough to make it say something, and in its folder."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            gain = 1.0 if re.search(r"(norm|ln_\w)\.weight$", name, re.IGNORECASE) else 0.0
            weight.copy_(gain + 0.3 * torch.randn_like(weight))
    model.eval().save_pretrained(folder)
    return model
