"""Fill: the reference's probabilities at every mask, and a clear word where there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard import UserError, fill, load
from regard.data.fields import MaskedText
from regard.data.sources import Lines
from regard.data.tokenizers import train_tokenizer
from regard.layers.product import Product
from regard.models import Bert, BertConfig
from regard.objectives import MaskedTokens
from regard.recipes import Plan, Recipe
from regard.verbs import Loaded
from tiny_public import LINES, bert, roberta, transformers

TEXTS = ["The [MASK] heron stood.", "a [MASK] swung above the [MASK] door, all through the night", "[MASK]"]
Checkpoint = tuple[Path, object]


@pytest.fixture(scope="module")
def berts(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("bert")
    return folder, bert(folder)


@pytest.fixture(scope="module")
def robertas(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("roberta")
    return folder, roberta(folder)


@pytest.fixture(scope="module")
def model(berts: Checkpoint) -> Loaded:
    return load(berts[0], device="cpu")


@pytest.mark.parametrize("kind", ["berts", "robertas"])
def test_probabilities_are_the_references(request: pytest.FixtureRequest, kind: str) -> None:
    folder, reference = request.getfixturevalue(kind)
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), load(folder, device="cpu")
    texts = [text.replace("[MASK]", tokenizer.mask_token) for text in TEXTS]
    for text, one in zip(texts, fill(model, texts, top=4)):
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            chances = reference(**ids).logits.softmax(-1)[ids["input_ids"] == tokenizer.mask_token_id]
        assert len(one.masks) == text.count(tokenizer.mask_token) == len(chances)
        for guesses, row in zip(one.masks, chances):
            best, tokens = row[: len(tokenizer)].topk(4)  # of ids that are spelt at all
            assert [guess.token for guess in guesses] == tokens.tolist()
            assert [guess.probability for guess in guesses] == pytest.approx(best.tolist(), abs=1e-4)


def test_the_text_is_filled_as_it_was_written(model: Loaded) -> None:
    first, second, third = fill(model, TEXTS, top=1)
    (guess,) = first.masks[0]
    goes_on = model.tokenizer.pieces([guess.token])[0].startswith("##")
    assert first.text == (f"The{guess.text} heron stood." if goes_on else f"The {guess.text} heron stood.")
    words = [mask[0].text for mask in second.masks]
    assert all(word in second.text for word in words)
    assert second.text.endswith("door, all through the night")
    assert third.text == third.masks[0][0].text
    assert "[MASK]" not in first.text + second.text + third.text


def test_a_piece_that_goes_on_with_a_word_has_no_space_before_it(
    model: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = model.tokenizer.pieces(range(model.tokenizer.size)).index("##s")
    ahead = torch.zeros(200, 1)
    ahead[token] = 9.0
    monkeypatch.setattr(Bert, "product", lambda _, states: Product(torch.ones(len(states), 1), ahead, None))
    (one,) = fill(model, ["the heron [MASK] stood"])
    assert one.text == "the herons stood"
    assert (one.masks[0][0].text, one.masks[0][0].piece) == ("s", "##s")


def test_company_changes_nothing(model: Loaded) -> None:
    together = fill(model, [*TEXTS, "", LINES[0] + " [MASK]"], batch_tokens=64)
    assert together[3].masks == []
    for text, one in zip(TEXTS, together):
        (alone,) = fill(model, [text])
        assert alone.text == one.text
        for mine, theirs in zip(alone.masks, one.masks):
            assert [guess.token for guess in mine] == [guess.token for guess in theirs]


def test_no_mask(model: Loaded, robertas: Checkpoint) -> None:
    with pytest.raises(UserError, match=r"line 2: no \[MASK\] in 'the heron'; write \[MASK\] where"):
        fill(model, ["[MASK]", "the heron"])
    with pytest.raises(UserError, match=r"line 7: no <mask> in 'the \[MASK\]'; write <mask>"):
        fill(load(robertas[0], device="cpu"), ["the [MASK]"], first=7)


def test_a_mask_that_was_cut_away(berts: Checkpoint) -> None:
    text = "rain " * 60 + "[MASK]"
    with pytest.raises(UserError, match="61 tokens, but the model reads at most 38"):
        fill(load(berts[0], device="cpu"), [text])
    with pytest.raises(UserError, match=r"its \[MASK\] is past what the model reads; .*--long window.*in Python: load"):
        fill(load(berts[0], device="cpu", long="truncate"), [text])
    (one,) = fill(load(berts[0], device="cpu", long="window"), [text])
    assert len(one.masks) == 1
    assert one.text.count("rain") >= 37


def test_a_model_of_ours() -> None:
    tokenizer = train_tokenizer("word", LINES, 60, mask="[MASK]")
    config = BertConfig(width=16, heads=2, layers=1, inner=24, vocab=tokenizer.size, context=24)
    recipe = Recipe("tiny", "tiny", Lines(), config, MaskedTokens(), Plan(), ())
    model = Loaded(Path("tiny"), config.build().eval(), torch.device("cpu"), {"text": MaskedText(tokenizer)}, recipe)
    (one,) = fill(model, ["the [MASK] heron"], top=100)
    assert len(one.masks[0]) == tokenizer.size
    assert sum(guess.probability for guess in one.masks[0]) == pytest.approx(1.0, abs=1e-4)


def test_the_wrong_kind_of_model(
    model: Loaded, tmp_path: Path, language: Path, translator: Callable[..., Path]
) -> None:
    with pytest.raises(UserError, match="regard translate"):
        fill(load(translator(), device="cpu"), ["a [MASK]"])
    assert fill(load(language, device="cpu"), ["a [MASK]"])[0].masks  # a language model fills from one side
    with pytest.raises(UserError, match="top=0"):
        fill(model, TEXTS, top=0)
    with pytest.raises(UserError, match="pass a list"):
        fill(model, "a [MASK]")
    bert(tmp_path).bert.save_pretrained(tmp_path)  # the body alone
    with pytest.raises(UserError, match="an encoder without an output layer, which cannot fill; use: regard embed"):
        fill(load(tmp_path, device="cpu"), TEXTS)


def test_guesses_are_tokens_that_have_a_name(model: Loaded) -> None:
    """A vocabulary may be padded, and marks say nothing: they are called by their names."""
    size = model.tokenizer.size
    assert size < model.module.config.vocab  # type: ignore[union-attr]
    (one,) = fill(model, ["the [MASK] stood"], top=10_000)
    (guesses,) = one.masks
    assert sorted(guess.token for guess in guesses) == list(range(size))
    assert all(guess.text for guess in guesses)
    assert {guess.token: guess.text for guess in guesses}[model.tokenizer.special_tokens.prefix] == "[CLS]"
