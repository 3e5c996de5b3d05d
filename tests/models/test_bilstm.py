"""The bilstm: words with characters and an extractor, padding anywhere, frozen and tuned extractors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.characters import BEGIN, END, word_characters
from regard.data.spelled import CHARACTERS, SpelledText
from regard.data.tokenizers import UNK, train_tokenizer
from regard.errors import UserError
from regard.layers.mix import equal_width
from regard.models import BertConfig, BiLstmConfig, ElmoConfig, GptConfig, RecurrentLmConfig, Seq2SeqConfig
from regard.models.bilstm import Extractor

TEXTS = ["the old man saw the sea", "the sea", "old oldest"]
WORDS = train_tokenizer("word", TEXTS[:2], 100)
PIECES = train_tokenizer("char", TEXTS, 100)
SMALL: dict[str, Any] = {"width": 8, "heads": 2, "layers": 2, "inner": 12, "context": 64}
CONFIG = BiLstmConfig(vocab=WORDS.size, labels=3, width=8, embed=6, filters=4, character_embed=3)
EXTRACTORS: dict[str, Any] = {
    "lstm": RecurrentLmConfig(vocab=PIECES.size, width=8, embed=8, layers=1, dropout=0.3),
    "lstm-both": RecurrentLmConfig(vocab=PIECES.size, width=8, embed=8, layers=1, dropout=0.3, direction="both"),
    "gpt": GptConfig(vocab=PIECES.size, **SMALL),
    "bert": BertConfig(vocab=PIECES.size, mask=3, specials=(0, 1, 2, 3), **SMALL),
    "translator": Seq2SeqConfig(source_vocab=PIECES.size, target_vocab=9, width=8, embed=6),
    "elmo": ElmoConfig(
        vocab=9, width=4, cells=6, layers=2, characters=9, embed=3, kernels=(1, 2), filters=(3, 3), output=False
    ),
}


def extracted(name: str, **settings: Any) -> BiLstmConfig:
    """The config with an extractor that reads texts between two special tokens."""
    inner = EXTRACTORS[name]
    module = inner.directed().build()
    before, after = (1,), (2,)
    if inner.characters:
        before, after = (tuple(word_characters(word, inner.characters).tolist()) for word in (BEGIN, END))
    tokens = torch.tensor([[before, after]]) if inner.characters else torch.tensor([[1, 2]])
    layers = equal_width(module.layers(tokens))
    sizes = {"mixed": len(layers), "extracted": layers[-1].shape[-1]}
    return replace(CONFIG, extractor=inner, before=before, after=after, **sizes, **settings)


def rows(config: BiLstmConfig, texts: list[str] = TEXTS) -> tuple[Tensor, Tensor]:
    """The rows of texts with padding at the end, and what is real."""
    field = SpelledText(WORDS)
    if config.extractor is not None:
        field = field.with_extractor(PIECES, config.extractor.characters, texts)
    arrays = [torch.from_numpy(each.astype(np.int64)) for each in field.encode(texts)]
    longest = max(map(len, arrays))
    tokens = torch.stack([F.pad(each, (0, 0, 0, longest - len(each))) for each in arrays])
    return tokens, torch.arange(longest) < torch.tensor([len(each) for each in arrays])[:, None]


@pytest.mark.parametrize("name", ["none", *EXTRACTORS])
def test_padding_and_other_texts_change_nothing(name: str) -> None:
    """Padding full of other words may be anywhere."""
    config = CONFIG if name == "none" else extracted(name)
    model = config.build().double().eval()
    tokens, real = rows(config)
    with torch.no_grad():
        found = model.features(tokens, real)
        wider = F.pad(tokens, (0, 0, 2, 1), value=2), F.pad(real, (2, 1))
        torch.testing.assert_close(model.features(*wider)[wider[1]], found[real], atol=1e-9, rtol=0)
        for row, there in enumerate(real):
            alone = model.features(tokens[row : row + 1, : int(there.sum())])
            torch.testing.assert_close(found[row][there], alone[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", EXTRACTORS)
def test_the_vector_of_a_word_is_the_mean_of_the_mixed_states_of_its_tokens(name: str) -> None:
    config = extracted(name)
    part = Extractor(config).double().eval()
    with torch.no_grad():
        part.mix.weights.copy_(torch.arange(config.mixed))
    text = TEXTS[0]
    tokens, _ = rows(config, [text])
    if config.extractor.characters:  # type: ignore[union-attr]
        spelled = [word_characters(word, part.numbers) for word in (BEGIN, *text.split(), END)]
        ids, counts = torch.tensor(np.array(spelled))[None], [1] * len(text.split())
    else:
        ids = torch.tensor([[1, *PIECES.encode(text), 2]])
        counts = [len(word) + (place > 0) for place, word in enumerate(text.split())]  # a space belongs to its word
    with torch.no_grad():
        states = part.mix(equal_width(part.body.layers(ids)))[0, 1:-1]
        expected = torch.stack([each.mean(0) for each in states.split(counts)])
        found = part(tokens[..., 1 + CHARACTERS :])[0]
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_a_text_longer_than_the_context_is_read_in_windows() -> None:
    """Of 10 tokens beside the 2 special ones, of which 2 are also in the next window; no word is without a vector."""
    config = extracted("gpt")
    config = replace(config, extractor=replace(config.extractor, context=12))
    part = Extractor(config).double().eval()
    text = TEXTS[0]
    tokens, ids = rows(config, [text])[0], PIECES.encode(text)
    assert len(ids) == 23
    with torch.no_grad():
        read = [torch.tensor([[1, *ids[at : at + 10], 2]]) for at in (0, 8, 16)]
        windows = [part.mix(equal_width(part.body.layers(one))) for one in read]
        states = torch.cat([windows[0][0, 1:10], windows[1][0, 2:10], windows[2][0, 2:-1]])
        counts = [len(word) + (place > 0) for place, word in enumerate(text.split())]
        expected = torch.stack([each.mean(0) for each in states.split(counts)])
        found = part(F.pad(tokens, (0, 0, 0, 3))[..., 1 + CHARACTERS :])[0]
    torch.testing.assert_close(found[:6], expected, atol=1e-9, rtol=0)
    assert (found[6:] == 0).all()
    assert part(tokens[:, :0, 1 + CHARACTERS :]).shape == (1, 0, 8)


def test_a_word_is_known_by_its_characters() -> None:
    """Two words that the vocabulary does not have differ; without filters they do not."""
    for filters, differ in ((4, True), (0, False)):
        config = replace(CONFIG, filters=filters)
        model = config.build().eval()
        tokens, _ = rows(config, ["xa xa xa", "xb xb xb"])
        with torch.no_grad():
            one, other = model.features(tokens)
        assert tokens[..., 0].eq(UNK).all()
        assert bool((one - other).abs().max() > 1e-6) == differ


def test_an_extractor_is_frozen_unless_it_is_tuned() -> None:
    for tune in (False, True):
        torch.manual_seed(0)
        config = extracted("lstm", tune=tune, dropout=0.0, word_dropout=0.0)
        model = config.build().train()
        tokens, real = rows(config)
        model.features(tokens, real).sum().backward()
        assert model.extractor is not None
        assert all((weight.grad is not None) == tune for weight in model.extractor.body.rnn.parameters())
        assert model.extractor.mix.weights.grad is not None
        assert model.extractor.body.training == tune
        again = model.features(tokens, real)
        assert torch.equal(again, model.features(tokens, real)) != tune  # its dropout is on


def test_dropout_is_that_of_whole_features_and_of_words() -> None:
    tokens, real = rows(CONFIG)
    model = replace(CONFIG, layers=2, dropout=0.5, word_dropout=0.0).build().train()
    read: list[Tensor] = []  # what the second layer reads
    model.encoder.onward[1].register_forward_hook(lambda module, inputs, output: read.append(inputs[0]))
    features = model.features(tokens[:1])
    for states in (features, *read):
        dropped = states == 0
        assert torch.equal(dropped.all(1), dropped.any(1))
        assert dropped.any()
    assert len(read) == 1
    model = replace(CONFIG, dropout=0.0, word_dropout=0.5).build().train()
    seen: list[Tensor] = []
    model.embedding.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model.features(tokens, real)
    changed = seen[0] != tokens[..., 0]
    assert 0 < changed.sum() < changed.numel()
    assert (seen[0][changed] == UNK).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 7}, "model.width=7"),
        ({"filters": -1}, "model.filters=-1"),
        ({"word_dropout": 1.0}, "model.word_drop"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **settings)
