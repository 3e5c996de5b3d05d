"""ELMo: its layers by their definitions, its spelling, its states in training, and the scalar mix."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard import UserError, embed, load
from regard.config import override
from regard.data.batches import Batch
from regard.data.characters import BEGIN, BEGIN_WORD, END, END_WORD, PAD_WORD, sentence_characters, word_characters
from regard.data.example import Direction
from regard.data.fields import TargetText
from regard.data.sources import Lines
from regard.data.tokenizers import BOS, EOS, train_tokenizer
from regard.layers.characters import CharacterEncoder
from regard.layers.mix import ScalarMix, equal_width
from regard.layers.projected import ProjectedLstm
from regard.models import ElmoConfig, TwoDirectionsConfig
from regard.models.elmo import SpelledEmbedding
from regard.objectives import TeacherForcing
from regard.recipes import KINDS, Plan, Recipe, find_recipe
from regard.training.events import Progress
from regard.training.run import Run
from regard.verbs import Loaded, look, score
from regard.verbs.words import embed_words

TINY = "model.width=8 model.cells=12 model.kernels=1,3 model.filters=8,8 model.embed=4 model.characters=10"
PLAN = "plan.steps=6 plan.evaluate=6 plan.batch_tokens=64 plan.rate=1e-2 plan.device=cpu plan.log=1"


def test_characters_of_words() -> None:
    """Bytes count from 1, a word is between two marks, and what does not fit is left out."""
    assert word_characters("aé", 8).tolist() == [BEGIN_WORD, 98, 0xC3 + 1, 0xA9 + 1, END_WORD, *[PAD_WORD] * 3]
    assert word_characters("abcdef", 5).tolist() == [BEGIN_WORD, 98, 99, 100, END_WORD]
    assert word_characters("", 4).tolist() == [BEGIN_WORD, END_WORD, PAD_WORD, PAD_WORD]
    ends = sentence_characters(["a"])
    assert ends.shape == (3, 50)
    assert ends[:, 1].tolist() == [257, 98, 258]
    assert (sentence_characters([]) == sentence_characters(["a"])[[0, 2]]).all()


def test_a_mix_is_a_weighted_sum() -> None:
    layers = [torch.randn(2, 3, 4) for _ in range(3)]
    mix = ScalarMix(3)
    torch.testing.assert_close(mix(layers), torch.stack(layers).mean(0))
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, 2.0, -1.0]))
        mix.scale.fill_(3.0)
    share = torch.tensor([0.0, 2.0, -1.0]).exp()
    expected = 3 * sum(one * layer for one, layer in zip(share / share.sum(), layers))
    torch.testing.assert_close(mix(layers), expected)
    assert len(equal_width([torch.zeros(2, 3, 5), *layers])) == 3


def test_padding_of_a_word_is_read_and_short_words_have_windows() -> None:
    encoder = CharacterEncoder(filters=((5, 4),), highways=0)
    short = torch.from_numpy(word_characters("ab", 4))[None]
    assert encoder(short).shape == (1, 4)
    longer = torch.from_numpy(word_characters("ab", 9))[None]
    assert not torch.equal(encoder(short), encoder(longer))
    with pytest.raises(UserError, match="give pairs of characters and filters"):
        CharacterEncoder(filters=())


@pytest.mark.parametrize("width", [3, 5])
def test_the_loop_is_the_lstm_of_torch(width: int) -> None:
    """Without limits, with and without a projection; then with limits, which are kept and change the next step."""
    layer = ProjectedLstm(4, 5, width).double()
    x, h, c = (torch.randn(*size, dtype=torch.float64) for size in ((2, 7, 4), (2, width), (2, 5)))
    expected, (last, cells) = layer.lstm(x, (h[None], c[None]))
    found, (after, after_cells) = layer(x, h, c)
    for one, other in ((found, expected), (after, last[0]), (after_cells, cells[0])):
        torch.testing.assert_close(one, other)
    layer.cell_clip, layer.state_clip = 0.3, 0.05 if width < 5 else 0.0
    clipped, (_, limited) = layer(x, h, c)
    assert limited.abs().max() == 0.3
    assert width == 5 or clipped.abs().max() == 0.05
    pieces, state = [], (h, c)
    for part in x.split(1, 1):
        output, state = layer(part, *state)
        pieces.append(output)
    torch.testing.assert_close(torch.cat(pieces, 1), clipped)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    lines = ["the bank of the river", "the bank lends money", "a river runs", "money runs out"] * 6
    (folder / "lines.txt").write_text("\n".join(lines))
    settings = [f"data.train={folder}/lines.txt", *TINY.split(), *PLAN.split()]
    for _ in Run(override(find_recipe("elmo"), settings, KINDS), folder / "run"):
        pass
    return folder / "run"


def test_a_run_spells_its_vocabulary_and_reads_new_words(trained: Path) -> None:
    model = load(trained, device="cpu")
    tokens = model.tokenizer.encode("the river")
    spelling = model.module.onward.embedding.spelling  # type: ignore[union-attr]
    for word, token in zip(("the", "river"), tokens):
        assert spelling[token].tolist() == word_characters(word, 10).tolist()
    special = model.tokenizer.special_tokens
    assert spelling[[special.bos, special.eos], 1].tolist() == [257, 258]
    known, new = embed_words(model, ["the river", "the rivers bank"], "all")
    assert new.words == ("the", "rivers", "bank")
    ids = torch.tensor([[special.bos, *tokens, special.eos]])
    layers = model.module.layers(ids)  # type: ignore[union-attr]
    for at, layer in enumerate(layers):
        np.testing.assert_allclose(known.vectors[:, at], layer[0, 1:-1].detach(), atol=1e-6)
    assert np.isfinite(new.vectors).all()
    assert len(score(model, ["the river"])) == 1
    assert len(look(model, "the river").frames) == 3  # the words and the end


def test_contiguous_text_carries_both_states(tmp_path: Path) -> None:
    """A run that is stopped and resumed, with its carried states, equals one that is not."""
    words = [f"word{number % 9}" for number in range(600)]
    (tmp_path / "text.txt").write_text(" ".join(words))
    data = [f"data.train={tmp_path}/text.txt", "data.order=contiguous", "data.window=8", "data.tokens=word"]
    recipe = override(find_recipe("elmo"), ["data=book", *data, *TINY.split(), *PLAN.split()], KINDS)
    assert list(Run(recipe, tmp_path / "whole"))
    events = iter(Run(recipe, tmp_path / "parts"))
    while not (isinstance(event := next(events), Progress) and event.step == 3):
        pass
    events.close()  # type: ignore[attr-defined]
    assert list(Run(recipe, tmp_path / "parts", "resume"))
    one, other = (load(tmp_path / name, device="cpu").module.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_states_of_both_directions_go_on() -> None:
    config = ElmoConfig(vocab=9, width=4, cells=6, kernels=(1,), filters=(4,), embed=3, characters=5, dropout=0.0)
    model = TwoDirectionsConfig(config).build()
    ids = torch.randint(9, (2, 5))
    real = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    batch = Batch({"tokens": ids[:, :-1], "targets": ids[:, 1:]}, {"tokens": real}, {"targets": 8}, segment=0)
    sums, state = TeacherForcing()(model, batch, 0)  # type: ignore[arg-type]
    again, _ = TeacherForcing()(model, batch, 0, None, state)  # type: ignore[arg-type]
    assert state[0].outputs.shape == (2, 2, 4)
    assert not state[0].outputs.requires_grad
    assert again["nll"] != sums["nll"]
    _, after = model.onward.advance(ids[:, :-1], model.onward.start(rows=2))
    _, behind = model.returning.advance(ids[:, 1:].flip(1), model.returning.start(rows=2))
    for found, expected in zip(state, (after, behind)):
        torch.testing.assert_close(found.outputs, expected.outputs.detach())
        torch.testing.assert_close(found.cells, expected.cells.detach())


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_the_words_of_each_direction(direction: Direction) -> None:
    """Characters give the states of the tokens, in the direction of the model; carried lines those of one long text."""
    lines = ["the bank of the river", "a river", "money runs", "the bank lends money"]
    tokenizer = train_tokenizer("word", lines, 40).in_direction(direction)
    small = ElmoConfig(width=4, cells=6, kernels=(1,), filters=(4,), embed=3, characters=9, dropout=0.0)
    config = replace(small, vocab=tokenizer.size, direction=direction)
    module: Any = config.directed().build().eval()
    names = [BEGIN if at == BOS else END if at == EOS else tokenizer.pieces([at])[0] for at in range(tokenizer.size)]
    for part in module.modules():
        if isinstance(part, SpelledEmbedding):
            part.set_words(names)
    recipe = Recipe("tiny", "tiny", Lines(), config, TeacherForcing(), Plan(), ("perplexity",))
    model = Loaded(Path("elmo"), module, torch.device("cpu"), {"text": TargetText(tokenizer)}, recipe)
    special = tokenizer.special_tokens
    ids = [[special.bos, *tokenizer.encode(line), special.eos] for line in lines]
    flip = -1 if direction == "backward" else 1

    for line, one, found in zip(lines, ids, embed_words(model, lines, "all"), strict=True):
        assert found.words == tuple(line.split())
        for at, layer in enumerate(module.layers(torch.tensor([one]))):
            np.testing.assert_allclose(found.vectors[:, at], layer[0, 1:-1].detach().numpy()[::flip], atol=1e-6)
    tokens = embed(model, lines, pool="tokens")
    np.testing.assert_array_equal(tokens.vectors, np.concatenate([one.vectors for one in embed_words(model, lines)]))

    carried = embed_words(model, lines[:3], "all", carry=2)
    state = module.start_segments(1)
    for line in (0, 2):  # the second of two lines at a time is line 1
        layers, state = module.advance_layers(torch.tensor([ids[line]]), state)
        for at, layer in enumerate(layers):
            np.testing.assert_allclose(carried[line].vectors[:, at], layer[0, 1:-1].detach().numpy()[::flip], atol=1e-6)


@pytest.mark.parametrize("spelled", [False, True])
def test_different_words_are_encoded_once_for_both_directions(spelled: bool) -> None:
    """Words that are read again, and padding, are not encoded again. The states are those of each model alone."""
    config = ElmoConfig(vocab=9, width=4, cells=6, kernels=(1,), filters=(4,), embed=3, characters=5, dropout=0.0)
    model = TwoDirectionsConfig(config).build()
    ids = torch.tensor([[5, 6, 5, 7], [6, 6, 0, 0]])
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    tokens = model.onward.embedding.spelling[ids].long() if spelled else ids
    encoded: list[int] = []
    hook = model.onward.embedding.encoder.register_forward_hook(
        lambda module, args, output: encoded.append(len(args[0]))
    )
    layers = model.layers(tokens, real)
    model.advance_layers(tokens, model.start_segments(2), real)
    hook.remove()
    assert encoded == [4, 4]
    back = torch.tensor([[7, 5, 6, 5], [6, 6, 0, 0]])
    ahead, behind = model.onward.layers(ids, real), model.returning.layers(back, real)
    for layer, one, other in zip(layers, ahead, behind, strict=True):
        for row, length in enumerate((4, 2)):
            expected = torch.cat([one[row, :length], other[row, :length].flip(0)], -1)
            torch.testing.assert_close(layer[row, :length], expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": ()}, "model.kernels=: give numbers from 1"),
        ({"filters": (3,)}, "model.filters=3: give a number of filters for each"),
        ({"cell_clip": -1.0}, "model.cell_clip=-1.0: must be at least 0"),
        ({"width": 1000}, "model.width=1000: must be at most model.cells=512"),
        ({"characters": 2, "kernels": (1,), "filters": (2,)}, "model.characters=2: give at least 3"),
        ({"highways": -1}, "model.highways=-1"),
    ],
)
def test_settings_that_do_not_fit(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(ElmoConfig(), **change)  # type: ignore[arg-type]


def test_words_need_a_tokenizer_of_words(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("ab\nba\n" * 30)
    settings = [f"data.train={tmp_path}/lines.txt", "data.tokens=char", *TINY.split(), *PLAN.split()]
    with pytest.raises(
        UserError, match=r"data.tokens=char: this model reads the characters of words; set data.tokens="
    ):
        list(Run(override(find_recipe("elmo"), settings, KINDS), tmp_path / "run"))
