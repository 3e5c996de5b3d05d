"""The cache of a stack: shared by beams, and read as if each hypothesis had its own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import UserError
from regard.layers.kv_cache import KVCache
from regard.models import GptConfig, TransformerConfig
from regard.recording import record

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
    past = KVCache(len(texts), texts.shape[1])
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


@torch.no_grad()
def test_beams_of_a_text_past_the_capacity_have_the_memory_that_each_would_have_alone() -> None:
    torch.manual_seed(5)
    model = GptConfig(**SMALL, positions="xl", memory=3).build().double().eval()
    texts = torch.randint(VOCAB, (2, 2))
    _, state = model.advance(texts, model.start(rows=2, capacity=5))
    state, texts = state.select(torch.tensor([0, 0, 1, 1])), texts.repeat_interleave(2, 0)
    for step in range(9):
        new = torch.randint(VOCAB, (4,))
        logits, state = model.step(new, state)
        texts = torch.cat([texts, new[:, None]], 1)
        if step == 8:
            for row, text in enumerate(texts):
                _, alone = model.advance(text[None, :2], model.start(rows=1, capacity=40))
                for token in text[2:]:
                    expected, alone = model.step(token[None], alone)
                torch.testing.assert_close(logits[row], expected[0], atol=1e-9, rtol=0.0)
        rows = torch.tensor([1, 0, 3, 3] if step % 2 else [0, 0, 3, 2])
        state, texts = state.select(rows), texts[rows]


def padded(texts: list[Tensor], left: list[int], length: int) -> tuple[Tensor, Tensor]:
    """Texts with so much padding before each, and behind it as much as is missing: tokens and real, (B, length)."""
    tokens, real = torch.full((len(texts), length), 9), torch.zeros(len(texts), length, dtype=torch.bool)
    for row, (text, first) in enumerate(zip(texts, left)):
        tokens[row, first : first + len(text)], real[row, first : first + len(text)] = text, True
    return tokens, real


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("left", [[3, 0], [0, 0], [1, 0]], ids=["before", "behind", "around"])
@torch.no_grad()
def test_padding_of_a_prompt_changes_nothing(kind: str, beams: int, left: list[int]) -> None:
    model = built(kind)
    texts = [torch.randint(VOCAB, (length,)) for length in (2, 5)]
    tokens, real = padded(texts, left, 5)
    _, state = model.advance(tokens, model.start(rows=2, capacity=9), real)
    state = state.select(torch.arange(2).repeat_interleave(beams))
    said = torch.randint(VOCAB, (2 * beams, 4))
    for step in range(4):
        logits, state = model.step(said[:, step], state)
        for row in range(2 * beams):
            whole = torch.cat([texts[row // beams], said[row, : step + 1]])[None]
            torch.testing.assert_close(logits[row], afresh(model, whole)[0], atol=1e-9, rtol=0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ready", [False, True])
@torch.no_grad()
def test_padding_may_be_read_again_and_again(kind: str, ready: bool) -> None:
    """Pieces of two texts, some of them padded, by rows of a past that is not the same in each."""
    model = built(kind)
    state, texts = model.start(rows=2, capacity=16), [torch.randint(VOCAB, (length,)) for length in (10, 12)]
    state, read = model.preallocate(state) if ready else state, [0, 0]
    for sizes, left in (((2, 4), [0, 0]), ((4, 1), [0, 2]), ((1, 4), [3, 0]), ((3, 3), None)):
        pieces = [text[first : first + size] for text, first, size in zip(texts, read, sizes)]
        tokens, real = padded(pieces, left or [0, 0], max(sizes))
        features, state = model.advance(tokens, state, None if left is None else real)
        read = [first + size for first, size in zip(read, sizes)]
        for row, (text, size) in enumerate(zip(texts, sizes)):
            whole, _ = model.advance(text[None, : read[row]], KVCache(1, read[row]))
            torch.testing.assert_close(features[row][real[row]], whole[0, -size:], atol=1e-9, rtol=0.0)


@torch.no_grad()
def test_a_step_after_padding_is_recorded_as_without() -> None:
    model, texts = built("relative"), [torch.randint(VOCAB, (length,)) for length in (2, 5)]
    tokens, real = padded(texts, [0, 0], 5)
    _, state = model.advance(tokens, model.start(rows=2, capacity=9), real)
    with record(model) as tape:
        model.step(torch.tensor([1, 2]), state)
    assert len(tape) > 0
    seen = torch.cat([real, torch.ones(2, 1, dtype=torch.bool)], 1)
    for row, text in enumerate(texts):
        with record(model) as alone:
            model.advance(torch.cat([text, torch.tensor([row + 1])])[None], KVCache(1, len(text) + 1))
        for name in tape:
            weights = tape[name][row, ..., -1, : seen.shape[1]]  # (H, Tk)
            torch.testing.assert_close(weights[:, seen[row]], alone[name][0, :, -1], atol=1e-9, rtol=0.0)
            assert not weights[:, ~seen[row]].any()


def test_a_state_is_given_as_many_rows_as_it_has() -> None:
    tokens = torch.ones(2, 5, dtype=torch.long)
    with pytest.raises(UserError, match=r"2 rows.*the state has 1.*rows=2"):
        built("learned").advance(tokens, built("learned").start(capacity=16))
    with pytest.raises(UserError, match=r"2 rows.*the state has 3.*rows=2"):
        built("learned").step(tokens[:, 0], built("learned").start(rows=1).select(torch.zeros(3, dtype=torch.long)))
    translator = TransformerConfig(source_vocab=VOCAB, target_vocab=VOCAB, width=8, heads=2, layers=1, inner=8).build()
    with pytest.raises(UserError, match=r"4 rows.*the state has 2.*sources"):
        translator.advance(torch.ones(4, 5, dtype=torch.long), translator.start(tokens))
    remembering = GptConfig(**SMALL, positions="xl", memory=4).build()
    _, state = remembering.advance(tokens, remembering.start(rows=2))
    with pytest.raises(UserError, match=r"3 rows.*the state has 2.*rows=3"):
        remembering.step(torch.ones(3, dtype=torch.long), state)


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
