"""The cache of a stack: shared by beams, and read as if each hypothesis had its own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import UserError
from regard.layers.past import Past
from regard.models import GptConfig
from regard.record import record

VOCAB = 11
SMALL: dict[str, Any] = {"vocab": VOCAB, "width": 8, "heads": 2, "layers": 2, "inner": 12, "context": 40}
KINDS: dict[str, dict[str, Any]] = {
    "learned": {},
    "banded": {"windows": (0, 2)},
    "t5": {"positions": "t5", "buckets": 6, "furthest": 9},
    "relative": {"positions": "relative", "furthest": 3},
    "xl": {"positions": "xl", "clamp": 4},
    "shared": {"groups": 1},
    "additive": {"score": "additive"},
}


def built(kind: str) -> Any:
    torch.manual_seed(5)
    return GptConfig(**SMALL, **KINDS[kind]).build().double().eval()


def afresh(model: Any, texts: Tensor) -> Tensor:
    """The last logits of texts that are read whole, each by itself: the definition."""
    past = Past(len(texts), texts.shape[1])
    return model.readout(model.advance(texts, past)[0][:, -1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", [0, 3])
@torch.no_grad()
def test_lineage_is_copying_the_caches(kind: str, prompt: int) -> None:
    """Hypotheses are dropped, doubled and moved at random; each goes on as the text it descends from."""
    model, draw = built(kind), torch.Generator().manual_seed(7)
    sentences, beams, steps = 2, 3, 6
    texts = torch.randint(VOCAB, (sentences, prompt), generator=draw)
    state = model.start(rows=sentences, capacity=prompt + steps)
    if prompt:
        _, state = model.advance(texts, state)
    rows = torch.arange(sentences).repeat_interleave(beams)  # widened, after the prompt
    state, texts = state.select(rows), texts[rows]
    keys = None
    for _ in range(steps):
        tokens = torch.randint(VOCAB, (sentences * beams,), generator=draw)
        texts = torch.cat([texts, tokens[:, None]], 1)
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, afresh(model, texts), atol=1e-9, rtol=0.0)
        parents = torch.randint(beams, (sentences, beams), generator=draw)
        rows = (torch.arange(sentences)[:, None] * beams + parents).flatten()
        state, texts = state.select(rows), texts[rows]
        places = [memory.keys.data_ptr() for memory in state.layers]
        assert keys is None or places == keys, "keys were copied"
        keys = places


@torch.no_grad()
def test_beams_may_read_several_tokens_at_once_and_change_their_number() -> None:
    model = built("banded")
    texts = torch.randint(VOCAB, (2, 3))
    _, state = model.advance(texts, model.start(rows=2, capacity=12))
    for rows, count in (([0, 0, 1, 1], 2), ([1, 0, 0, 2, 3, 3], 3), ([2, 0, 4, 5], 1)):
        state, texts = state.select(torch.tensor(rows)), texts[torch.tensor(rows)]
        more = torch.randint(VOCAB, (len(rows), count))
        texts = torch.cat([texts, more], 1)
        features, state = model.advance(more, state)
        torch.testing.assert_close(model.readout(features[:, -1]), afresh(model, texts), atol=1e-9, rtol=0.0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "xl"])
@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_padding_before_a_prompt_changes_nothing(kind: str, beams: int) -> None:
    model = built(kind)
    texts = [torch.randint(VOCAB, (length,)) for length in (2, 5)]
    padded = torch.stack([torch.cat([torch.full((5 - len(text),), 9), text]) for text in texts])
    real = torch.arange(5) >= torch.tensor([[3], [0]])
    _, state = model.advance(padded, model.start(rows=2, capacity=9), real)
    state = state.select(torch.arange(2).repeat_interleave(beams))
    said = torch.randint(VOCAB, (2 * beams, 4))
    for step in range(4):
        logits, state = model.step(said[:, step], state)
        for row in range(2 * beams):
            whole = torch.cat([texts[row // beams], said[row, : step + 1]])[None]
            torch.testing.assert_close(logits[row], afresh(model, whole)[0], atol=1e-9, rtol=0.0)


@pytest.mark.parametrize("beams", [1, 2])
@torch.no_grad()
def test_there_is_no_room_beyond_the_capacity(beams: int) -> None:
    model = built("learned")
    state = model.start(rows=1, capacity=3).select(torch.zeros(beams, dtype=torch.long))
    for _ in range(3):
        _, state = model.step(torch.ones(beams, dtype=torch.long), state)
    with pytest.raises(UserError, match="capacity=3"):
        model.step(torch.ones(beams, dtype=torch.long), state)


@torch.no_grad()
def test_a_text_that_filled_its_past_has_none() -> None:
    model = built("learned")
    _, state = model.advance(torch.ones(1, 3, dtype=torch.long), model.start(rows=1, capacity=3))
    assert not state.layers
    with pytest.raises(UserError, match="capacity=3"):
        model.step(torch.ones(1, dtype=torch.long), state)


def test_no_more_room_than_positions() -> None:
    with pytest.raises(UserError, match=r"capacity=41.*model\.context=40"):
        built("learned").start(rows=1, capacity=41)
    assert built("t5").start(rows=1, capacity=41).capacity == 41


def test_gradients_go_through_a_cache() -> None:
    model, texts = built("learned"), torch.randint(VOCAB, (2, 6))
    _, state = model.advance(texts[:, :4], model.start(rows=2, capacity=8))
    model.readout(model.advance(texts[:, 4:], state)[0]).sum().backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model.readout(model.advance(texts, model.start(rows=2, capacity=6))[0][:, 4:]).sum().backward()
    expected = [p.grad for p in model.parameters() if p.grad is not None]
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0.0)


@torch.no_grad()
def test_steps_are_recorded_as_the_whole_text_is() -> None:
    model, texts = built("learned"), torch.randint(VOCAB, (2, 5))
    with record(model) as whole:
        model.advance(texts, model.start(rows=2, capacity=5))
    with record(model) as stepped:
        state = model.start(rows=2, capacity=8)
        for tokens in texts.unbind(1):
            _, state = model.step(tokens, state)
    for name in whole:
        torch.testing.assert_close(stepped[name], whole[name], atol=1e-9, rtol=0.0)
