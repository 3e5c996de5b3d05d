"""Recurrent language models: their equations, their names in settings, padding, and the verbs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from regard import load, verbs
from regard.config import override
from regard.errors import UserError
from regard.models import CELLS, RecurrentLmConfig
from regard.recipes import KINDS, find_recipe
from regard.training.run import Run

SMALL = RecurrentLmConfig(vocab=13, width=8, embed=6, layers=2, dropout=0.0)


@pytest.mark.parametrize("cell", CELLS)
def test_the_model_is_an_embedding_the_equations_and_a_linear_layer(cell: str) -> None:
    model = replace(SMALL, cell=cell).build().double()
    tokens = torch.randint(4, 13, (3, 5))
    outputs, hidden = model.rnn.definition(model.embedding(tokens), model.start(rows=3).hidden)
    features, state = model.advance(tokens, model.start(rows=3))
    torch.testing.assert_close(features, outputs, atol=1e-12, rtol=0)
    torch.testing.assert_close(state.hidden, hidden, atol=1e-12, rtol=0)
    assert isinstance(model.readout_, nn.Linear)
    torch.testing.assert_close(model.readout(features), model.readout_(outputs), atol=1e-12, rtol=0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_with_chrono_the_last_state_depends_on_the_first_of_many_inputs(cell: str) -> None:
    """300 steps before the end: without it, what is left of an input is less than a float can add to the others."""
    left = []
    for chrono in (0, 300):
        torch.manual_seed(1)
        model = replace(SMALL, cell=cell, numbers=1, vocab=0, width=32, layers=1, chrono=chrono).build_body()
        numbers = torch.randn(4, 300, 1, requires_grad=True)
        features, _ = model.advance(numbers, model.start(rows=4))
        (gradient,) = torch.autograd.grad(features[:, -1].sum(), numbers)
        left.append(float(gradient[:, 0].norm() / gradient[:, -1].norm()))
    assert left[0] < 1e-20
    assert left[1] > 1e-5


def test_an_rnn_has_no_gates_for_chrono() -> None:
    with pytest.raises(UserError, match=r"model\.chrono=9: an RNN has no gates"):
        replace(SMALL, cell="rnn", chrono=9)


def test_names_choose_the_cell() -> None:
    for cell in ("rnn", "lstm", "gru"):
        recipe = override(find_recipe("text"), [f"model={cell}", "model.width=32"], KINDS)
        assert recipe.model == RecurrentLmConfig(cell=cell, width=32)


def test_a_tied_output_layer_has_no_weights_of_its_own() -> None:
    untied, tied = SMALL.build(), replace(SMALL, embed=8, tied=True).build()
    assert untied.readout_ is not None
    assert tied.readout_ is None
    assert tied.product(torch.zeros(1, 8)).weight is tied.embedding.weight
    with pytest.raises(UserError, match=r"model\.tied=True: needs model\.embed=6 equal to model\.width=8"):
        replace(SMALL, tied=True)
    with pytest.raises(UserError, match=r"model\.cell=gro: no such cell\. Did you mean \"gru\""):
        replace(SMALL, cell="gro")


def test_a_tied_adaptive_softmax_has_the_vectors_and_projections_of_the_embedding() -> None:
    settings = {"vocab": 20, "width": 8, "embed": 8, "softmax": "adaptive", "cutoffs": (5, 9), "divide": 2}
    for tied, own in ((True, set()), (False, {"tables", "projections"})):
        layer = RecurrentLmConfig(**settings, tied=tied).build().readout_
        assert layer is not None
        assert {name.split(".")[0] for name in layer.state_dict()} == {"biases", "others"} | own


def test_the_state_does_not_change_at_padding() -> None:
    """Padding in the middle, and a row of padding alone."""
    model = replace(SMALL, cell="lstm").build().double()
    tokens = torch.tensor([[4, 5, 6, 7], [8, 9, 10, 11]])
    real = torch.tensor([[True, False, True, False], [False] * 4])
    _, state = model.advance(tokens, model.start(rows=2), real)
    _, alone = model.advance(torch.tensor([[4, 6]]), model.start(rows=1))
    torch.testing.assert_close(state.hidden[:1], alone.hidden, atol=1e-12, rtol=0)
    assert not state.hidden[1].any()


def test_a_trained_model_works_with_the_verbs(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("the cat sees a dog\na dog sees the cat\nthe dog\n" * 4)
    settings = [f"data.train={path}", f"data.valid={path}", "model=gru", "model.width=16", "model.embed=8"]
    plan = ["plan.steps=4", "plan.evaluate=4", "plan.threads=1"]
    list(Run(override(find_recipe("text"), [*settings, *plan], KINDS), tmp_path / "run"))
    model = load(tmp_path / "run")
    texts = ["the dog", "a", "the cat sees"]
    together = verbs.generate(model, texts, limit=4)
    assert [one.tokens for one in together] == [verbs.generate(model, [text], limit=4)[0].tokens for text in texts]
    assert [one.tokens for one in verbs.generate(model, texts, limit=4, beam=2)]
    scored = verbs.score(model, texts)
    assert [one.total for one in scored] == pytest.approx([verbs.score(model, [text])[0].total for text in texts])
    assert verbs.embed(model, texts).vectors.shape == (3, 16)
    assert len(verbs.look(model, "the dog").frames) == len("the dog") + 1
