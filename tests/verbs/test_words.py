"""The vectors of words: of every kind of tokens, from any layer, of causal models, encoders and translators."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import UserError, embed, load
from regard.data.fields import TargetText
from regard.data.sources import Lines
from regard.data.tokenizers import train_tokenizer
from regard.models import RecurrentLmConfig
from regard.objectives import TeacherForcing
from regard.recipes import Plan, Recipe
from regard.verbs import Loaded
from regard.verbs.words import embed_words
from tiny_public import bert, gpt2

TEXTS = ["  The grey heron's nest,", "", "rain fell  on the tin roof", "a"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    folder = tmp_path_factory.mktemp("public")
    bert(folder / "bert")
    gpt2(folder / "gpt2")
    found = {name: load(folder / name, device="cpu") for name in ("bert", "gpt2")}
    for kind in ("char", "word", "bpe", "byte-bpe"):
        tokenizer = train_tokenizer(kind, TEXTS, 300)
        config = RecurrentLmConfig(vocab=tokenizer.size, width=6, embed=6, layers=2)
        recipe = Recipe("tiny", "tiny", Lines(), config, TeacherForcing(), Plan(), ("perplexity",))
        module = config.build().eval()
        found[kind] = Loaded(folder, module, torch.device("cpu"), {"text": TargetText(tokenizer)}, recipe)
    return found


@pytest.mark.parametrize("name", ["bert", "gpt2", "char", "word", "bpe", "byte-bpe"])
def test_a_word_is_the_mean_of_its_pieces(models: dict[str, Loaded], name: str) -> None:
    """Characters are at their places; other pieces are those of each word alone, some with the space before it."""
    model, spaced = models[name], name in ("gpt2", "byte-bpe")
    texts = TEXTS if name in ("bert", "char", "word") else [" ".join(text.split()) for text in TEXTS]
    for text, found in zip(texts, embed_words(model, texts), strict=True):
        words = text.split()
        assert found.words == tuple(words)
        assert [text[start:end] for start, end in found.spans] == words
        states = embed(model, [text], pool="tokens").vectors
        at, lead = int(name != "gpt2"), len(text) - len(text.lstrip())  # [CLS] or bos; spaces before the text
        for number, (word, (start, end)) in enumerate(zip(words, found.spans)):
            if name == "char":
                pieces = states[at + start - lead : at + end - lead]
            else:
                ids = model.tokenizer.encode(f" {word}" if spaced and number else word)
                alone = int(not model.tokenizer.decode(ids[:1]).strip())  # a space of its own belongs to no word
                pieces, at = states[at + alone : at + len(ids)], at + len(ids)
            np.testing.assert_allclose(found.vectors[number], pieces.mean(0), atol=1e-6)


def test_layers_of_a_language_model(models: dict[str, Loaded]) -> None:
    """first is the embeddings, last the states, mix their mean, all every layer, and lines have them, too."""
    model = models["word"]
    found = {name: embed_words(model, TEXTS, name)[2].vectors for name in ("first", "last", "mix", "all")}
    ids = torch.tensor([[1, *model.tokenizer.encode(TEXTS[2].strip())]])
    with torch.no_grad():
        layers = [layer[0, 1:].numpy() for layer in model.module.layers(ids)]  # type: ignore[union-attr]
    assert len(layers) == 3
    for name, expected in {"first": layers[0], "last": layers[2], "mix": np.mean(layers, 0)}.items():
        np.testing.assert_allclose(found[name], expected, atol=1e-6)
    np.testing.assert_allclose(found["all"], np.stack(layers, 1), atol=1e-6)
    lines = embed(model, TEXTS, pool="tokens", layers="all")
    assert lines.vectors.shape == (lines.lengths.sum(), 3, 6)


def test_the_source_of_a_translator(translator: Callable[..., Path]) -> None:
    model = load(translator(decoder="bahdanau"), device="cpu")
    (found,) = embed_words(model, ["abc cab"], "all")
    assert found.vectors.shape == (2, 1, 16)  # its embeddings are narrower, so they are left out
    states = embed(model, ["abc cab"], pool="tokens").vectors
    np.testing.assert_allclose(found.vectors[1, 0], states[4:7].mean(0), atol=1e-6)
    (narrow,) = embed_words(model, ["abc cab"], "first")
    assert narrow.vectors.shape == (2, 8)


def test_a_text_that_is_too_long_keeps_the_words_that_fit(models: dict[str, Loaded]) -> None:
    model = models["bert"]
    text = " ".join(["rain"] * 500)
    with pytest.raises(UserError, match="line 1: 500 tokens"):
        embed_words(model, [text])
    (found,) = embed_words(replace(model, long="truncate"), [text])
    assert 0 < len(found.words) < 500
    assert found.spans[-1] == (5 * len(found.words) - 5, 5 * len(found.words) - 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "lats"}, "--layers lats .*Did you mean"),
        ({"carry": 2}, "--carry 2 .*: only an ELMo carries its state"),
        ({"carry": -1}, "--carry -1 .*: give 1 or more"),
    ],
)
def test_choices_that_do_not_fit(models: dict[str, Loaded], settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        embed_words(models["word"], TEXTS, **settings)  # type: ignore[arg-type]
