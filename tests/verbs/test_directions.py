"""Language models that read forward, backward and in both directions: each verb by its definition."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from encoded import text_batch
from regard import UserError, embed, export, fill, generate, look, score
from regard.data.batches import IGNORED, Batch
from regard.data.example import Direction, Text
from regard.data.fields import TargetText, in_direction
from regard.data.sources import Lines
from regard.data.streams import Book, RunningText, encode_running
from regard.data.tokenizers import train_tokenizer
from regard.models import BigramConfig, GptConfig, LstmnConfig, RecurrentLmConfig, TcnConfig, TwoDirections
from regard.models.directions import TwoDirectionsConfig, from_the_end
from regard.objectives import Counting, TeacherForcing
from regard.recipes import Plan, Recipe
from regard.verbs import Loaded
from regard.verbs.filling import fill_accuracy

LINES = ["the grey heron stood", "a lamp swung above the door", "rain fell on the sea", "the sea is grey"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "both")
SMALL: dict[str, Any] = {"width": 8, "embed": 8}
CONFIGS: dict[str, Any] = {
    "lstm": RecurrentLmConfig(**SMALL, layers=1, dropout=0.0),
    "tcn": TcnConfig(**SMALL, layers=1, dropout=0.0, embedding_dropout=0.0),
    "lstmn": LstmnConfig(**SMALL, context=24, dropout=0.0),
    "gpt": GptConfig(width=8, heads=2, layers=1, inner=8, context=24, dropout=0.0, tied=False),
}


@pytest.fixture(scope="module")
def made() -> Callable[..., Loaded]:
    """Makes a model of a family and direction, with the weights that a seed gives it."""
    found: dict[str, Loaded] = {}

    def make(family: str, direction: Direction, tokens: str = "word", running: bool = False) -> Loaded:
        name = f"{family}-{direction}-{tokens}-{running}"
        if name not in found:
            tokenizer = train_tokenizer(tokens, LINES, 60)
            config = replace(CONFIGS[family], vocab=tokenizer.size, direction=direction)
            data = Book(train="none", window=8) if running else Lines()
            recipe = Recipe("tiny", "tiny", data, config, TeacherForcing(), Plan(), ("perplexity",))
            fields = {"text": RunningText(tokenizer) if running else TargetText(tokenizer)}
            torch.manual_seed(3)
            module = config.directed().build().eval()
            found[name] = Loaded(Path(name), module, torch.device("cpu"), in_direction(fields, direction), recipe)
        return found[name]

    return make


@pytest.mark.parametrize("tokens", ["char", "word", "bpe", "byte-bpe", "word-eos"])
def test_a_backward_tokenizer_reverses_ids_and_exchanges_the_ends(tokens: str) -> None:
    forward = train_tokenizer(tokens, LINES, 300)
    backward = forward.in_direction("backward")
    ids = forward.encode(LINES[1])
    assert backward.encode(LINES[1]) == ids[::-1]
    assert backward.decode(ids[::-1]) == forward.decode(ids)
    assert backward.words(ids[::-1]) == forward.words(ids)[::-1]
    whole = forward.special_tokens.wrap_target(ids)
    assert backward.special_tokens.wrap_target(ids[::-1]) == whole[::-1]
    assert forward.in_direction("both").special_tokens.wrap_input(ids) == whole
    assert backward.in_direction("backward").encode("the sea") == backward.encode("the sea")
    assert backward.in_direction("forward") is forward
    examples = [Text("a lamp swung "), Text("above the door")]
    np.testing.assert_array_equal(encode_running(backward, examples)[0], encode_running(forward, examples)[0][::-1])


def test_a_batch_from_the_end_reads_targets_and_predicts_tokens() -> None:
    batch = text_batch([[5, 6, 7], [8]])
    back = from_the_end(batch)
    assert back["tokens"].tolist() == [[2, 7, 6, 5], [2, 8, 0, 0]]  # eos first
    assert back["targets"].tolist() == [[7, 6, 5, 1], [8, 1, IGNORED, IGNORED]]  # bos last
    assert back.real["tokens"].tolist() == [[True] * 4, [True, True, False, False]]


@pytest.mark.parametrize("family", CONFIGS)
def test_two_directions_are_a_forward_and_a_backward_model(made: Callable[..., Loaded], family: str) -> None:
    """With the same weights, both halves score a text as models of their own, and the loss is the mean of theirs."""
    both, texts = made(family, "both"), LINES[:3]
    module: Any = both.module
    answers = score(both, texts)
    for direction, half in zip(("forward", "backward"), (module.onward, module.returning)):
        alone = made(family, direction)  # type: ignore[arg-type]
        alone.module.load_state_dict(half.state_dict())
        for one, other in zip(score(alone, texts), answers):
            found = other if direction == "forward" else other.backward
            assert found is not None
            assert one.pieces == found.pieces
            np.testing.assert_allclose(one.logps, found.logps, atol=1e-6)
    batch = text_batch([both.tokenizer.encode(text) for text in texts])
    loss = TeacherForcing()(module, batch, 0)[0]["nll"]
    total = -sum(one.total + one.backward.total for one in answers if one.backward)
    assert loss.item() == pytest.approx(total / 2, rel=1e-5)


def test_both_directions_share_the_embedding_and_the_output_layer() -> None:
    for config in (*CONFIGS.values(), replace(CONFIGS["lstm"], tied=True)):
        model = TwoDirectionsConfig(replace(config, vocab=50, direction="both")).build()
        one = replace(config, vocab=50).build()
        own = sum(p.numel() for p in one.parameters())
        shared = one.get_submodule(config.input_embedding).weight.numel()
        shared += sum(p.numel() for p in one.readout_.parameters()) if one.readout_ is not None else 0
        assert sum(p.numel() for p in model.parameters()) == 2 * own - shared


def test_a_backward_score_is_in_reading_order(made: Callable[..., Loaded]) -> None:
    model = made("lstm", "backward")
    (one,) = score(model, ["the grey sea"])
    assert one.pieces == ["<bos>", "the", "grey", "sea"]
    ids = model.target_tokenizer.special_tokens.wrap_target(model.tokenizer.encode("the grey sea"))  # eos sea grey …
    logps = model.logits(torch.tensor([ids[:-1]]))[0].log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    np.testing.assert_allclose(one.logps, logps.flip(0).numpy(), atol=1e-6)


def test_a_backward_model_writes_what_comes_before(made: Callable[..., Loaded]) -> None:
    model = made("gpt", "backward", "char")
    (one,) = generate(model, ["the sea"], limit=5)
    read = model.target_tokenizer.encode("the sea")
    assert read == model.target_tokenizer.in_direction("forward").encode("the sea")[::-1]
    ids = [*model.opening, *read]
    for _ in range(len(one.tokens)):
        logits = model.logits(torch.tensor([ids]))[0, -1]
        logits[list(model.forbidden)] = -torch.inf
        ids.append(int(logits.argmax()))
    assert ids[len(read) + 1 :] == one.tokens
    assert one.text + one.prompt == model.target_tokenizer.decode(ids)
    with pytest.raises(UserError, match=r"both directions, which cannot generate; use: regard fill"):
        generate(made("gpt", "both", "char"), ["the sea"])


@pytest.mark.parametrize("running", [False, True])
def test_fill_joins_the_probabilities_of_both_sides(made: Callable[..., Loaded], running: bool) -> None:
    model = made("lstm", "both", running=running)
    forward, backward = model.halves
    logps = torch.zeros(model.tokenizer.size)
    for half, side in ((forward, "the grey"), (backward, "stood .")):
        ids = torch.tensor([[*half.opening, *half.tokenizer.encode(side)]])
        logps += half.logits(ids)[0, -1].log_softmax(-1)
    module: Any = model.module
    module.frequency.zero_()
    module.count_batch(Batch({"targets": torch.tensor([5, 5, 5, 7, IGNORED, 9])}))
    logps -= torch.tensor([1, 1, 1, 1, 1, 4, 1, 2, 1, 2, *[1] * (model.tokenizer.size - 10)]).log()
    logps[:4] = -torch.inf  # special tokens
    best = logps.softmax(-1).topk(3)
    (both,) = fill(model, ["the grey [MASK] stood ."], top=3)
    assert [guess.token for guess in both.masks[0]] == best.indices.tolist()
    assert [guess.probability for guess in both.masks[0]] == pytest.approx(best.values.tolist(), rel=1e-4)
    assert both.text == f"the grey {both.masks[0][0].text} stood ."
    for half, text in ((forward, "the grey [MASK] whatever"), (backward, "whatever [MASK] stood .")):
        assert fill(half, [text], top=2)[0].masks == fill(half, [text.replace("whatever", "")], top=2)[0].masks
    assert len(fill(model, ["", "[MASK]"])) == 2
    with pytest.raises(UserError, match=r"line 2: 2 times \[MASK\]"):
        fill(model, ["a [MASK]", "[MASK] [MASK]"])


def test_the_accuracy_of_fill_is_that_of_filling_each_word(made: Callable[..., Loaded]) -> None:
    words = ["the grey heron stood", "rain fell"]
    for direction, name in zip(DIRECTIONS, ("before", "after", "both")):
        model = made("gpt", direction)
        origin = model.target_tokenizer.in_direction("forward")
        ids = [origin.special_tokens.wrap_target(origin.encode(text)) for text in words]
        found = fill_accuracy(model, ids)
        right = 0
        for text in words:
            for at, word in enumerate(text.split()):
                (one,) = fill(model, [" ".join([*text.split()[:at], "[MASK]", *text.split()[at + 1 :]])], top=1)
                right += one.masks[0][0].text == word
        assert (found.tokens, found.right[name]) == (6, right)
        with_unknown = [[*one[:2], origin.special_tokens.unk, *one[2:]] for one in ids]
        assert fill_accuracy(model, with_unknown).tokens == 6  # fill never predicts a special token


def test_states_of_both_directions_are_joined(made: Callable[..., Loaded]) -> None:
    model = made("lstm", "both")
    vectors = embed(model, ["the grey sea"], pool="tokens").vectors
    ids = torch.tensor([model.target_tokenizer.wrap_input(model.tokenizer.encode("the grey sea"))])
    module: Any = model.module
    ahead, behind = module.onward.features(ids)[0], module.returning.features(ids.flip(1))[0].flip(0)
    np.testing.assert_allclose(vectors, torch.cat([ahead, behind], -1).detach().numpy(), atol=1e-6)
    backward = made("lstm", "backward")
    alone = embed(backward, ["the grey sea"], pool="tokens").vectors
    again = backward.states(torch.tensor([[*backward.opening, *backward.tokenizer.encode("the grey sea")]]))[0]
    np.testing.assert_allclose(alone, again.flip(0).numpy(), atol=1e-6)


def test_look_shows_each_direction_in_its_order(made: Callable[..., Loaded]) -> None:
    view = look(made("gpt", "both"), "the grey sea")
    assert "does not compute: the engine of a page has no directions" in view.html()  # it would compute one of the two
    assert [layer.part for layer in view.layers] == ["decoder", "decoder backward"]
    assert [layer.name.partition(".")[0] for layer in view.layers] == ["onward", "returning"]
    assert [list(layer.rows or ()) for layer in view.layers] == [
        ["<bos>", "the", "grey", "sea"],
        ["<eos>", "sea", "grey", "the"],
    ]


def test_export_refuses_a_direction_that_no_public_type_has(made: Callable[..., Loaded], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no .*model\.direction=backward"):
        export(made("gpt", "backward"), tmp_path / "out")


def test_a_bigram_model_counts_in_both_orders() -> None:
    model = BigramConfig(vocab=8, k=0.5, direction="both").directed().build()
    assert isinstance(model, TwoDirections)
    batch = text_batch([[4, 5, 4], [5, 5]])
    model.add(batch["tokens"].flatten(), batch["targets"].flatten())
    backward = BigramConfig(vocab=8, k=0.5).build()
    end = from_the_end(batch)
    backward.add(end["tokens"].flatten(), end["targets"].flatten())
    tokens = torch.arange(8)
    found = model.returning.probability(tokens[:, None], tokens)
    torch.testing.assert_close(found, backward.probability(tokens[:, None], tokens))
    assert float(found[5, 4]) == pytest.approx((1 + 0.5) / (3 + 0.5 * 8))  # of three 5, one comes after a 4
    assert model.config.body.pairs == len(model.onward.numbers) == len(model.returning.numbers)
    assert Counting()(model, batch, 0)[0]["nll"].isfinite()
    features = model.onward.advance(batch["tokens"], model.onward.start())[0]
    assert F.softmax(model.onward.readout(features), -1).sum(-1).allclose(torch.ones(2, 4).double())
