"""Public checkpoints give the outputs of `transformers`, and are exported unchanged. `-k gpt2` runs one type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import Outputs, Rows, alone, batch, close, close_to_each, our_outputs, reference_outputs, rows, sources
from references import CASES, causal, reopen, with_source
from safetensors.torch import load_file

import regard
from regard.errors import UserError

NO_POSITIONS = ("t5", "marian", "pegasus")  # the reference takes no positions: it counts all tokens, padding included
# Tensors that are saved and not used: the bias of an untied head has two names, and only one is used.
UNUSED = {"cls.predictions.bias", "lm_head.bias", "predictions.bias", "model.shared.weight"}
MakeCheckpoint = Callable[[str], Any]

every = pytest.mark.parametrize("name", CASES)
generating = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if causal(case) and not case.is_body]
)


@every
def test_logits_and_states(name: str, public: MakeCheckpoint) -> None:
    case, made = CASES[name], public(name)
    given, source = batch(case, made.reference, "right")
    found = our_outputs(case, regard.load(made.path, device="cpu"), given.tokens, given.real, **sources(source))
    close(found, reference_outputs(made.reference, given.tokens, given.real, **sources(source)), given.real)


def test_numbers_need_no_tokenizer(public: MakeCheckpoint) -> None:
    model = regard.load(public("gpt2-plain").path, device="cpu")
    assert model.logits(torch.tensor([[5, 6]])).shape == (1, 2, 29)
    with pytest.raises(UserError, match="has no tokenizer"):
        _ = model.tokenizer


@every
def test_padding_on_the_left_changes_nothing(name: str, public: MakeCheckpoint) -> None:
    case, made = CASES[name], public(name)
    given, source = batch(case, made.reference, "left")
    found = our_outputs(case, regard.load(made.path, device="cpu"), given.tokens, given.real, **sources(source))
    close_to_each(found, alone(made.reference, given, source), given.real)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kind not in NO_POSITIONS])
@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_given_to_both(name: str, side: str, public: MakeCheckpoint) -> None:
    case, made = CASES[name], public(name)
    given, _ = batch(case, made.reference, side)
    positions = given.real.cumsum(1) + 3  # rows of the table, none of them the usual one
    found = our_outputs(case, regard.load(made.path, device="cpu"), given.tokens, given.real, positions=positions)
    close(found, reference_outputs(made.reference, given.tokens, given.real, positions=positions), given.real)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.settings.get("type_vocab_size", 0) > 1])
def test_segments(name: str, public: MakeCheckpoint) -> None:
    case, made = CASES[name], public(name)
    given, _ = batch(case, made.reference, "right")
    segments = torch.arange(given.tokens.shape[1]).expand_as(given.tokens) % case.settings["type_vocab_size"]
    model = regard.load(made.path, device="cpu")
    found = our_outputs(case, model, given.tokens, given.real, segments=segments)
    close(found, reference_outputs(made.reference, given.tokens, given.real, segments=segments), given.real)
    assert not torch.allclose(found.states, model.states(given.tokens, given.real), atol=1e-2)


@generating
@pytest.mark.parametrize("parts", [(7,), (4, 1, 1, 1), (1,) * 7], ids=["whole", "prompt", "steps"])
@torch.no_grad()
def test_continuing_from_a_cache(name: str, parts: tuple[int, ...], public: MakeCheckpoint) -> None:
    case, made = CASES[name], public(name)
    given, source = rows((7, 7), "right", None, 3), rows((6, 3), "left", 0, 4) if with_source(case) else None
    module = regard.load(made.path, device="cpu").module
    state = module.start(**sources(source), rows=2, capacity=7)
    features, logits = [], []
    for part in given.tokens.split(parts, 1):
        read, state = module.advance(part, state)
        features.append(read)
        logits.append(module.readout(read))
    found = Outputs(torch.cat(features, 1), torch.cat(logits, 1))
    close_to_each(found, alone(made.reference, given, source), given.real)


@generating
@torch.no_grad()
def test_a_cache_with_prompts_of_several_lengths(name: str, public: MakeCheckpoint) -> None:
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
    expected_alone = [one.logits for one in alone(made.reference, whole, source)]
    for row, expected in enumerate(expected_alone):
        found = torch.cat(logits, 1)[row][whole.real[row]]
        torch.testing.assert_close(found, expected[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["t5-plain", "t5-gated"])
def test_far_away_tokens(name: str, public: MakeCheckpoint) -> None:
    """Distances beyond the buckets of one distance each, and beyond the largest bucket."""
    made = public(name)
    given, source = rows((30,), "right", 0, 5), rows((40,), "right", 0, 6)
    found = our_outputs(CASES[name], regard.load(made.path, device="cpu"), given.tokens, given.real, **sources(source))
    close(found, reference_outputs(made.reference, given.tokens, given.real, **sources(source)), given.real)


@every
def test_export_writes_the_same_checkpoint(name: str, public: MakeCheckpoint, tmp_path: Path) -> None:
    case, made = CASES[name], public(name)
    regard.export(regard.load(made.path, device="cpu"), tmp_path / "back", to="transformers")
    given, source = batch(case, made.reference, "right")
    again = reopen(case, tmp_path / "back")
    expected = reference_outputs(made.reference, given.tokens, given.real, **sources(source))
    close(reference_outputs(again, given.tokens, given.real, **sources(source)), expected, given.real)
    assert again.config.model_type == case.kind
    if not case.is_body:  # a body may be exported with the names that it has in a model with a head
        theirs, back = (load_file(path / "model.safetensors") for path in (made.path, tmp_path / "back"))
        unused = set() if case.settings.get("tie_word_embeddings", True) else UNUSED
        assert set(theirs) - unused == set(back) - unused
        # The scale is now part of the weights, and sinusoids are computed again.
        moved = {key for key in theirs if ("c_attn" in key and name == "gpt2-by-layer") or "embed_positions" in key}
        assert all(torch.equal(back[key], theirs[key]) for key in set(theirs) - unused - moved)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.is_body and not causal(c)])
def test_a_body_has_no_logits(name: str, public: MakeCheckpoint) -> None:
    model = regard.load(public(name).path, device="cpu")
    with pytest.raises(UserError, match=r"head|readout"):
        model.logits(torch.tensor([[5, 6]]))
