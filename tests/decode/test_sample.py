"""Streams and samplers: the tokens of each row, where rows end, and how often each token is drawn."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode import PAD, Advancing, Pick, Sampler, collect, greedy, stream
from regard.errors import UserError
from regard.models import LstmnConfig, Seq2SeqConfig
from regard.models.recurrent_decoders import DECODERS

STOP = 1


@dataclass(frozen=True)
class TokenState:
    """All tokens read so far: (R, n)."""

    read: Tensor

    def select(self, rows: Tensor) -> "TokenState":
        return TokenState(self.read[rows])


class Table:
    """Logits that depend on the last two tokens read: a table of random numbers."""

    def __init__(self, seed: int, vocab: int = 6) -> None:
        self.table = torch.randn(vocab, vocab, vocab, generator=torch.Generator().manual_seed(seed)) * 2

    def step(self, tokens: Tensor, state: TokenState) -> tuple[Tensor, TokenState]:
        return self.table[state.read[:, -1], tokens], TokenState(torch.cat([state.read, tokens[:, None]], dim=1))


class Reader(Table):
    """The same table, which can also read a prompt at once."""

    advanced = 0

    def advance(self, tokens: Tensor, state: TokenState) -> tuple[Tensor, TokenState]:
        self.advanced += tokens.shape[1]
        return tokens[..., None], TokenState(torch.cat([state.read, tokens], dim=1))


class Scripted:
    """Predicts the given tokens, whatever it reads."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = torch.tensor(rows)

    def step(self, tokens: Tensor, state: TokenState) -> tuple[Tensor, TokenState]:
        at = state.read.shape[1] - 1
        return torch.eye(10)[self.rows[:, at]], TokenState(torch.cat([state.read, tokens[:, None]], dim=1))


def start(rows: int) -> TokenState:
    return TokenState(torch.zeros(rows, 1, dtype=torch.long))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 4), limit=st.integers(1, 12))
def test_a_greedy_stream_is_a_loop_of_argmax(seed: int, rows: int, limit: int) -> None:
    decoder = Table(seed)
    prompt = torch.arange(rows) + 2
    tokens = collect(stream(decoder, start(rows), prompt, greedy, limit, STOP))[0].tolist()
    for row in range(rows):
        expected, before, token = [], 0, int(prompt[row])
        while len(expected) < limit and STOP not in expected:
            before, token = token, int(decoder.table[before, token].argmax())
            expected.append(token)
        assert tokens[row] == expected + [PAD] * (len(tokens[row]) - len(expected))
    longest = max((line.index(STOP) + 1 if STOP in line else limit) for line in tokens)
    assert len(tokens[0]) == longest


def test_each_row_stops_by_itself() -> None:
    scripted = Scripted([[5, 6, STOP, 7, 7, 7], [STOP, 8, 8, 8, 8, 8], [4, 4, 4, STOP, 9, 9]])
    tokens = collect(stream(scripted, start(3), torch.tensor([2, 2, 2]), greedy, limit=6, stop=STOP))[0]
    assert tokens.tolist() == [[5, 6, STOP, PAD], [STOP, PAD, PAD, PAD], [4, 4, 4, STOP]]


def test_the_limit_ends_a_row_without_stop() -> None:
    tokens = collect(stream(Scripted([[5] * 9]), start(1), torch.tensor([2]), greedy, limit=3, stop=STOP))[0]
    assert tokens.tolist() == [[5, 5, 5]]
    with pytest.raises(UserError, match="limit is 0"):
        next(stream(Scripted([[5]]), start(1), torch.tensor([2]), greedy, limit=0, stop=STOP))


def test_a_stream_is_lazy_and_leaves_gradients_alone() -> None:
    tokens = stream(Scripted([[5] * 9]), start(1), torch.tensor([2]), greedy, limit=10**9, stop=STOP)
    assert [int(next(tokens)[0]) for _ in range(3)] == [5, 5, 5]
    assert torch.is_grad_enabled(), "a stream must not disable gradients for its caller"


def test_a_prompt_is_read_before_the_first_token() -> None:
    prompt = torch.tensor([[2, 3, 4], [5, 2, 3]])
    after = TokenState(torch.cat([start(2).read, prompt[:, :-1]], dim=1))
    expected = collect(stream(Table(3), after, prompt[:, -1], greedy, 8, STOP))[0]
    assert torch.equal(collect(stream(Table(3), start(2), prompt, greedy, 8, STOP))[0], expected)
    reader = Reader(3)
    assert torch.equal(collect(stream(reader, start(2), prompt, greedy, 8, STOP))[0], expected)
    assert reader.advanced == 2
    assert torch.equal(
        collect(stream(Table(3), start(2), prompt[:, :1], greedy, 8, STOP))[0],
        collect(stream(Table(3), start(2), prompt[:, 0], greedy, 8, STOP))[0],
    )


@pytest.mark.parametrize(
    "config",
    [
        LstmnConfig(vocab=11, width=8, embed=6, context=16),
        *(Seq2SeqConfig(source_vocab=11, target_vocab=11, width=8, embed=6, decoder=name) for name in DECODERS),
    ],
    ids=lambda config: getattr(config, "decoder", "lstmn"),
)
def test_a_real_model_reads_a_prompt_as_it_would_step(config: LstmnConfig | Seq2SeqConfig) -> None:
    torch.manual_seed(4)
    model = config.build().double().eval()
    source, prompt = torch.randint(4, 11, (2, 5)), torch.randint(4, 11, (2, 4))
    assert isinstance(model, Advancing)
    for weight in model.parameters():
        weight.data.mul_(4)  # a model with clear preferences

    state = model.start(source, rows=2)
    with torch.no_grad():
        for tokens in prompt[:, :-1].unbind(1):
            _, state = model.step(tokens, state)
    expected = collect(stream(model, state, prompt[:, -1], greedy, 6, stop=-1))[0]  # no token is -1
    assert torch.equal(collect(stream(model, model.start(source, rows=2), prompt, greedy, 6, stop=-1))[0], expected)
    unread = collect(stream(model, model.start(source, rows=2), prompt[:, -1], greedy, 6, stop=-1))[0]
    assert not torch.equal(unread, expected), "the prompt changes the tokens"


def drawn(pick: Pick, probs: list[float], times: int = 20_000) -> dict[int, float]:
    """How often each token comes, as a fraction."""
    logits = torch.tensor(probs).log().expand(times, -1)
    return {token: count / times for token, count in Counter(pick(logits).tolist()).items()}


PROBS = [0.1, 0.4, 0.0, 0.2, 0.3]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (Sampler(), {0: 0.1, 1: 0.4, 3: 0.2, 4: 0.3}),
        (Sampler(top_k=2), {1: 4 / 7, 4: 3 / 7}),
        (Sampler(top_k=99), {0: 0.1, 1: 0.4, 3: 0.2, 4: 0.3}),
        (Sampler(top_p=0.65), {1: 4 / 7, 4: 3 / 7}),  # 0.4 is not enough, 0.4 + 0.3 is
        (Sampler(top_p=0.35), {1: 1.0}),
        (Sampler(top_p=1e-9), {1: 1.0}),  # never fewer than one
        (Sampler(top_p=1.0), {0: 0.1, 1: 0.4, 3: 0.2, 4: 0.3}),
        (Sampler(top_k=3, top_p=0.5), {1: 4 / 7, 4: 3 / 7}),  # among the three best 0.4 weighs 4 / 9 < 0.5
        (Sampler(temperature=0.5), {0: 1 / 30, 1: 16 / 30, 3: 4 / 30, 4: 9 / 30}),  # squares
        (Sampler(temperature=0.5, top_p=0.5), {1: 1.0}),  # 16 / 30 is enough: the temperature comes first
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_they_should(sampler: Sampler, expected: dict[int, float]) -> None:
    pick = Sampler(sampler.temperature, sampler.top_k, sampler.top_p, seeded())
    found = drawn(pick, PROBS)
    assert set(found) == set(expected)
    for token, prob in expected.items():
        assert found[token] == pytest.approx(prob, abs=0.02)  # five standard deviations


def test_top_k_keeps_k_even_of_equals() -> None:
    assert len(drawn(Sampler(top_k=2, generator=seeded()), [0.25] * 4)) == 2


def test_top_p_stops_exactly_when_it_is_reached() -> None:
    assert len(drawn(Sampler(top_p=0.5, generator=seeded()), [0.25] * 4)) == 2
    assert set(drawn(Sampler(top_p=0.5, generator=seeded()), [0.5, 0.25, 0.25])) == {0}


@pytest.mark.parametrize("temperature", [1e-3, 1e-6, 1e-30, 1e-300])
def test_a_cold_sampler_is_greedy(temperature: float) -> None:
    logits = torch.randn(500, 50, generator=seeded()) * 100
    assert torch.equal(Sampler(temperature)(logits), greedy(logits))
    assert torch.equal(Sampler(temperature, top_k=10, top_p=0.9)(logits), greedy(logits))


def test_half_precision_logits_are_accepted() -> None:
    logits = torch.randn(8, 50, generator=seeded()).bfloat16()
    assert Sampler(top_p=0.9)(logits).dtype == torch.long


@pytest.mark.parametrize("pick", [greedy, Sampler(2.0), Sampler(2.0, top_k=4), Sampler(2.0, top_p=0.9)])
def test_forbidden_tokens_are_never_picked_and_logps_are_the_models(pick: Pick) -> None:
    torch.manual_seed(0)
    table = Table(4, vocab=9)
    table.table[:, :, [2, 5]] += 8.0
    prompt = torch.randint(9, (300,))

    def first(forbid: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        return next(stream(table, start(300), prompt, pick, 3, STOP, forbid))

    tokens, logps = first((2, 5))
    assert not torch.isin(tokens, torch.tensor([2, 5])).any()
    torch.testing.assert_close(logps, table.table[0, prompt].log_softmax(1)[torch.arange(300), tokens])
    assert torch.isin(first(())[0], torch.tensor([2, 5])).any()


@pytest.mark.parametrize("pick", [greedy, Sampler(2.0), Sampler(2.0, top_k=4), Sampler(2.0, top_p=0.9)])
def test_logits_of_nan_give_a_log_probability_of_nan(pick: Pick) -> None:
    table = Table(4, vocab=9)
    table.table[..., 7] = torch.nan
    _, logps = next(stream(table, start(3), torch.tensor([2, 3, 4]), pick, 3, STOP, (2, 5)))
    assert logps.isnan().all()


def test_the_same_seed_draws_the_same_tokens() -> None:
    def draw(seed: int) -> Tensor:
        sampler = Sampler(1.5, top_k=5, generator=seeded(seed))
        return collect(stream(Table(0), start(3), torch.tensor([2, 3, 4]), sampler, 20, stop=99))[0]

    assert torch.equal(draw(7), draw(7))
    assert not torch.equal(draw(7), draw(8))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(UserError, match=named):
        Sampler(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [{}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 9, "top_p": 0.9}])
def test_with_a_generator_for_each_row_other_rows_change_nothing(kept: dict[str, Any]) -> None:
    logits = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))

    def generators() -> list[torch.Generator]:
        return [torch.Generator().manual_seed(10 + row) for row in range(4)]

    together = Sampler(temperature=1.3, generator=generators(), **kept)(logits)
    alone = [Sampler(temperature=1.3, generator=one, **kept)(row) for one, row in zip(generators(), logits.split(1))]
    assert together.tolist() == torch.cat(alone).tolist()
