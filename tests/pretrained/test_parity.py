"""Public checkpoints say here what they say in `transformers`, and go back unchanged. `-k gpt2` runs one type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import Rows, Said, alone, batch, close, close_to_each, ours, rows, said, sources
from references import BODY, CASES, causal, reopen, with_source
from safetensors.torch import load_file

import regard
from regard.errors import UserError

SLOTTED = ("t5", "marian")  # the reference takes no positions: it counts slots, padding included
# Tensors that are saved and never read: the bias of an untied head has two names, and one of them counts.
DEAD = {"cls.predictions.bias", "lm_head.bias", "predictions.bias", "model.shared.weight"}
Public = Callable[[str], Any]

every = pytest.mark.parametrize("name", CASES)
speaking = pytest.mark.parametrize("name", [name for name, case in CASES.items() if causal(case) and case.auto != BODY])


@every
def test_logits_and_states(name: str, public: Public) -> None:
    case, made = CASES[name], public(name)
    given, source = batch(case, made.reference, "right")
    found = ours(case, regard.load(made.path, device="cpu"), given.tokens, given.real, **sources(source))
    close(found, said(made.reference, given.tokens, given.real, **sources(source)), given.real)


def test_numbers_need_no_tokenizer(public: Public) -> None:
    model = regard.load(public("gpt2-plain").path, device="cpu")
    assert model.logits(torch.tensor([[5, 6]])).shape == (1, 2, 29)
    with pytest.raises(UserError, match="has no tokenizer"):
        _ = model.tokenizer


@every
def test_padding_on_the_left_changes_nothing(name: str, public: Public) -> None:
    case, made = CASES[name], public(name)
    given, source = batch(case, made.reference, "left")
    found = ours(case, regard.load(made.path, device="cpu"), given.tokens, given.real, **sources(source))
    close_to_each(found, alone(made.reference, given, source), given.real)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kind not in SLOTTED])
@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_given_to_both(name: str, side: str, public: Public) -> None:
    case, made = CASES[name], public(name)
    given, _ = batch(case, made.reference, side)
    positions = given.real.cumsum(1) + 3  # rows of the table, none of them the usual one
    found = ours(case, regard.load(made.path, device="cpu"), given.tokens, given.real, positions=positions)
    close(found, said(made.reference, given.tokens, given.real, positions=positions), given.real)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.settings.get("type_vocab_size", 0) > 1])
def test_segments(name: str, public: Public) -> None:
    case, made = CASES[name], public(name)
    given, _ = batch(case, made.reference, "right")
    segments = torch.arange(given.tokens.shape[1]).expand_as(given.tokens) % case.settings["type_vocab_size"]
    model = regard.load(made.path, device="cpu")
    found = ours(case, model, given.tokens, given.real, segments=segments)
    close(found, said(made.reference, given.tokens, given.real, segments=segments), given.real)
    assert not torch.allclose(found.states, model.states(given.tokens, given.real), atol=1e-2)


@speaking
@pytest.mark.parametrize("parts", [(7,), (4, 1, 1, 1), (1,) * 7], ids=["whole", "prompt", "steps"])
@torch.no_grad()
def test_reading_on_from_a_cache(name: str, parts: tuple[int, ...], public: Public) -> None:
    case, made = CASES[name], public(name)
    given, source = rows((7, 7), "right", None, 3), rows((6, 3), "left", 0, 4) if with_source(case) else None
    module = regard.load(made.path, device="cpu").module
    state = module.start(**sources(source), rows=2, capacity=7)
    features, logits = [], []
    for part in given.tokens.split(parts, 1):
        read, state = module.advance(part, state)
        features.append(read)
        logits.append(module.readout(read))
    found = Said(torch.cat(features, 1), torch.cat(logits, 1))
    close_to_each(found, alone(made.reference, given, source), given.real)


@speaking
@torch.no_grad()
def test_a_cache_with_prompts_of_several_lengths(name: str, public: Public) -> None:
    case, made = CASES[name], public(name)
    given, source = batch(case, made.reference, "left")
    module = regard.load(made.path, device="cpu").module
    state = module.start(**sources(source), rows=3, capacity=9)
    features, state = module.advance(given.tokens, state, given.real)
    steps = torch.tensor([[5, 9, 4], [11, 12, 3]]).unbind(0)
    logits = [module.readout(features)]
    for tokens in steps:
        step, state = module.step(tokens, state)
        logits.append(step[:, None])
    longer = torch.cat([given.tokens, torch.stack(steps, 1)], 1)
    whole = Rows(longer, torch.cat([given.real, torch.ones(3, 2, dtype=torch.bool)], 1))
    said_alone = [one.logits for one in alone(made.reference, whole, source)]
    for row, expected in enumerate(said_alone):
        found = torch.cat(logits, 1)[row][whole.real[row]]
        torch.testing.assert_close(found, expected[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["t5-plain", "t5-gated"])
def test_far_away_tokens(name: str, public: Public) -> None:
    """Beyond the buckets of single distances, and beyond the furthest of all."""
    made = public(name)
    given, source = rows((30,), "right", 0, 5), rows((40,), "right", 0, 6)
    found = ours(CASES[name], regard.load(made.path, device="cpu"), given.tokens, given.real, **sources(source))
    close(found, said(made.reference, given.tokens, given.real, **sources(source)), given.real)


@every
def test_the_way_back(name: str, public: Public, tmp_path: Path) -> None:
    case, made = CASES[name], public(name)
    regard.export(regard.load(made.path, device="cpu"), tmp_path / "back", to="transformers")
    given, source = batch(case, made.reference, "right")
    again = reopen(case, tmp_path / "back")
    expected = said(made.reference, given.tokens, given.real, **sources(source))
    close(said(again, given.tokens, given.real, **sources(source)), expected, given.real)
    assert again.config.model_type == case.kind
    if case.auto != BODY:  # a body may go back under the names that it has in a whole model
        theirs, back = (load_file(path / "model.safetensors") for path in (made.path, tmp_path / "back"))
        dead = set() if case.settings.get("tie_word_embeddings", True) else DEAD
        assert set(theirs) - dead == set(back) - dead
        moved = {
            key for key in theirs if "c_attn" in key and name == "gpt2-by-layer"
        }  # the scale is in the weights now
        assert all(torch.equal(back[key], theirs[key]) for key in set(theirs) - dead - moved)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.auto == BODY and not causal(c)])
def test_a_body_has_no_logits(name: str, public: Public) -> None:
    model = regard.load(public(name).path, device="cpu")
    with pytest.raises(UserError, match=r"head|readout"):
        model.logits(torch.tensor([[5, 6]]))
