"""Beam search against exhaustive search, against a beam search in plain Python, and against its documented rules."""

import importlib
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode import PAD, Hypotheses, Penalty, Sampler, beam, collect, greedy, stream
from regard.errors import UserError
from regard.models import Seq2SeqConfig, TransformerConfig
from regard.models.recurrent_decoders import DECODERS
from regard.recording import record

STOP, BOS = 1, 2  # then the two letters 3 and 4; PAD and BOS are forbidden
FORBIDDEN = (PAD, BOS)


@dataclass(frozen=True)
class ToyState:
    """A vector that depends on every token read so far and on their order: any mistake in `select` shows."""

    vector: Tensor  # (R, W)

    def select(self, rows: Tensor) -> "ToyState":
        return ToyState(self.vector[rows])


@dataclass(frozen=True)
class DroppingState(ToyState):
    """A toy state that can also drop sentences."""

    beams: int = 1

    @property
    def sentences(self) -> int:
        return len(self.vector) // self.beams

    def select(self, rows: Tensor) -> "DroppingState":
        return DroppingState(self.vector[rows], self.beams * len(rows) // len(self.vector))

    def keep(self, sentences: Tensor, rows: Tensor) -> "DroppingState":
        return DroppingState(self.vector[rows], self.beams)


@dataclass(frozen=True)
class ToyDecoder:
    """A small random recurrent network. Each row is summed by itself, so other rows cannot change a single bit."""

    mix: Tensor  # (W, W)
    embed: Tensor  # (V, W)
    head: Tensor  # (W, V)

    def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        vector = torch.tanh((state.vector[:, :, None] * self.mix).sum(1) + self.embed[tokens])
        return (vector[:, :, None] * self.head).sum(1), replace(state, vector=vector)


def toy_decoder(seed: int, rows: int, vocab: int = 5, width: int = 6) -> tuple[ToyDecoder, ToyState]:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    made = ToyDecoder(normal(width, width) * 0.7, normal(vocab, width) * 1.5, normal(width, vocab))
    return made, ToyState(normal(rows, width))


def search(
    seed: int, rows: int = 1, vocab: int = 5, penalty: float | Penalty = 0.0, rule: str = "exact", **settings: object
) -> Hypotheses:
    decoder, state = toy_decoder(seed, rows, vocab)
    ranking = penalty if isinstance(penalty, Penalty) else Penalty(penalty, stop=rule)
    given: dict[str, object] = {"size": 4, "limit": 5, "stop": STOP, "forbid": FORBIDDEN, "penalty": ranking}
    return beam(decoder, state, torch.full((rows,), BOS), **(given | settings))  # type: ignore[arg-type]


def forced_logp(decoder: ToyDecoder, state: ToyState, sentence: list[int]) -> float:
    """The log-probability of one sentence, token by token."""
    total = 0.0
    for before, token in itertools.pairwise([BOS, *sentence]):
        logits, state = decoder.step(torch.tensor([before]), state)
        total += float(logits.double().log_softmax(-1)[0, token])
    return total


def sentences(found: Hypotheses, row: int) -> list[list[int]]:
    return [
        tokens[:length] for tokens, length in zip(found.tokens[row].tolist(), found.lengths[row].tolist(), strict=True)
    ]


@pytest.mark.parametrize("size", [1, 4])
def test_logits_of_nan_give_a_score_of_nan(size: int) -> None:
    decoder, state = toy_decoder(1, rows=2)
    state.vector[1] = torch.nan
    found = beam(decoder, state, torch.full((2,), BOS), size, 5, STOP, Penalty(0.6), forbid=FORBIDDEN)
    assert found.scores[:, 0].isnan().tolist() == [False, True]
    assert found.logps[:, 0].isnan().tolist() == [False, True]


@pytest.mark.parametrize("formula", ["power", "gnmt"])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("limit", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_is_exhaustive_search(seed: int, limit: int, penalty: float, formula: str) -> None:
    rows = 3
    decoder, state = toy_decoder(seed, rows)
    found = search(seed, rows, size=24, limit=limit, penalty=Penalty(penalty, formula, stop="exact"), nbest=3)

    def divisor(sentence: list[int]) -> float:
        return (len(sentence) if formula == "power" else (5 + len(sentence)) / 6) ** penalty

    everything = [[*word, STOP] for n in range(limit) for word in itertools.product([3, 4], repeat=n)]
    everything += [list(word) for word in itertools.product([3, 4], repeat=limit)]  # cut short
    for row in range(rows):
        logps = {tuple(s): forced_logp(decoder, state.select(torch.tensor([row])), s) for s in everything}
        best = sorted(everything, key=lambda s: -logps[tuple(s)] / divisor(s))[:3]
        assert sentences(found, row) == best
        assert found.logps[row].tolist() == pytest.approx([logps[tuple(s)] for s in best], abs=1e-5)
        assert found.scores[row].tolist() == pytest.approx([logps[tuple(s)] / divisor(s) for s in best], abs=1e-5)


def list_beam_search(
    decoder: ToyDecoder, state: ToyState, size: int, limit: int, penalty: Penalty, letters: list[int]
) -> list[list[int]]:
    """The same search with lists, for one sentence: best first. The exact rule is: without stopping early."""
    beams: list[tuple[float, list[int], ToyState]] = [(0.0, [], state)]
    done: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        grown = []
        for logp, found_tokens, past in beams:
            logits, after = decoder.step(torch.tensor([[BOS, *found_tokens][-1]]), past)
            grown += [(logp + float(logits.log_softmax(-1)[0, t]), [*found_tokens, t], after) for t in letters]
        grown.sort(key=lambda each: -each[0])
        over = [each for each in grown[:size] if each[1][-1] == STOP or length == limit]
        done += [(logp / length**penalty.alpha, found_tokens) for logp, found_tokens, _ in over]
        beams = [each for each in grown if each[1][-1] != STOP][:size]
        enough = round(penalty.patience * size)
        if penalty.stop == "present" and len(done) >= enough:
            worst = sorted((score for score, _ in done), reverse=True)[enough - 1]
            if all(logp / length**penalty.alpha <= worst for logp, _, _ in beams):
                break
    return [found_tokens for _, found_tokens in sorted(done, key=lambda each: -each[0])][:size]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 5),
    limit=st.integers(1, 8),
    vocab=st.integers(5, 9),
    length=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    rule=st.sampled_from([("exact", 1.0), ("present", 1.0), ("present", 2.0)]),
)
def test_the_batched_search_equals_the_search_with_lists(
    seed: int, size: int, limit: int, vocab: int, length: float, rule: tuple[str, float]
) -> None:
    penalty = Penalty(length, stop=rule[0], patience=rule[1])
    decoder, state = toy_decoder(seed, 3, vocab)
    found = search(seed, 3, vocab, size=size, limit=limit, penalty=penalty)
    letters = [t for t in range(vocab) if t not in FORBIDDEN]
    for row in range(3):
        expected = list_beam_search(decoder, state.select(torch.tensor([row])), size, limit, penalty, letters)
        got = [s for s in sentences(found, row) if s]
        assert got == expected[: len(got)]
        assert len(got) == min(size, len(expected))
        for sentence, logps in zip(sentences(found, row), found.token_logps[row].tolist()):
            alone = [
                forced_logp(decoder, state.select(torch.tensor([row])), sentence[:n]) for n in range(len(sentence) + 1)
            ]
            assert logps[: len(sentence)] == pytest.approx([b - a for a, b in itertools.pairwise(alone)], abs=1e-4)
            assert logps[len(sentence) :] == [0.0] * (len(logps) - len(sentence))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 4), penalty=st.sampled_from([0.0, 0.6, 1.0]))
def test_every_reported_score_is_reproduced_by_forced_scoring(seed: int, size: int, penalty: float) -> None:
    decoder, state = toy_decoder(seed, 2, vocab=9)
    found = search(seed, 2, vocab=9, size=size, limit=7, penalty=penalty)
    for row, rank in itertools.product(range(2), range(size)):
        sentence = sentences(found, row)[rank]
        if not sentence:
            continue
        assert (sentence[-1] == STOP) or len(sentence) == 7
        assert STOP not in sentence[:-1]
        assert not set(FORBIDDEN) & set(sentence)
        assert (found.tokens[row, rank, len(sentence) :] == PAD).all()
        logp = forced_logp(decoder, state.select(torch.tensor([row])), sentence)
        assert float(found.logps[row, rank]) == pytest.approx(logp, abs=1e-5)
        assert float(found.scores[row, rank]) == pytest.approx(logp / len(sentence) ** penalty, abs=1e-5)


@pytest.mark.parametrize("rule", ["present", "exact"])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_other_rows_of_the_batch_change_nothing(seed: int, penalty: float, rule: str) -> None:
    rows = 8
    decoder, state = toy_decoder(seed, rows, vocab=12)
    # Some rows stop early and some never stop: the early ones must keep their results while the others go on.
    state = ToyState(state.vector * torch.linspace(0.1, 6, rows)[:, None])
    ranking = Penalty(penalty, stop=rule)
    settings = {"size": 3, "limit": 12, "stop": STOP, "penalty": ranking, "forbid": FORBIDDEN}
    together = beam(decoder, state, torch.full((rows,), BOS), **settings)  # type: ignore[arg-type]
    for row in range(rows):
        alone = beam(decoder, state.select(torch.tensor([row])), torch.tensor([BOS]), **settings)  # type: ignore[arg-type]
        assert sentences(alone, 0) == sentences(together, row)
        assert torch.equal(alone.scores[0], together.scores[row])
        assert torch.equal(alone.logps[0], together.logps[row])


@pytest.mark.parametrize("rule", ["present", "exact"])
@pytest.mark.parametrize("seed", [0, 2])
def test_dropping_sentences_that_are_done_changes_nothing(seed: int, rule: str) -> None:
    decoder, state = toy_decoder(seed, 9)
    dropping = DroppingState(state.vector * torch.linspace(0.1, 6, 9)[:, None])
    plain, prompt, rows = ToyState(dropping.vector), torch.full((9,), BOS), []

    class Counting(ToyDecoder):
        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            rows.append(len(tokens))
            return super().step(tokens, state)

    counting, penalty = Counting(decoder.mix, decoder.embed, decoder.head), Penalty(float(rule == "present"), stop=rule)
    found = beam(counting, dropping, prompt, 3, 20, STOP, penalty, forbid=FORBIDDEN)
    expected = beam(decoder, plain, prompt, 3, 20, STOP, penalty, forbid=FORBIDDEN)
    for name in ("tokens", "lengths", "scores", "logps", "token_logps"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert rows[0] == 27
    assert rows[-1] < 27
    for one, other in zip(
        stream(decoder, dropping, prompt, greedy, 20, STOP),
        stream(decoder, plain, prompt, greedy, 20, STOP),
        strict=True,
    ):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("rule", ["present", "exact"])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_steps_after_the_search_is_done_change_nothing(
    monkeypatch: pytest.MonkeyPatch, penalty: float, rule: str
) -> None:
    seeds = (2, 4, 6)
    early = {seed: search(seed, 4, limit=20, penalty=penalty, rule=rule, nbest=2) for seed in seeds}
    steps = count_steps(monkeypatch, lambda flag: bool(flag))
    for seed in seeds:
        search(seed, 4, limit=20, penalty=penalty, rule=rule, nbest=2)
    stopped = len(steps)
    steps = count_steps(monkeypatch, lambda flag: False)
    for seed in seeds:
        full = search(seed, 4, limit=20, penalty=penalty, rule=rule, nbest=2)
        for part in ("tokens", "lengths", "scores", "logps"):
            assert torch.equal(getattr(full, part), getattr(early[seed], part)), part
    assert len(steps) == 60
    assert stopped < 60 or (penalty == 1.0 and rule == "exact")


def test_the_present_rule_stops_earlier_than_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = count_steps(monkeypatch, lambda flag: bool(flag))
    counts = []
    for rule, patience in (("present", 1.0), ("present", 3.0), ("exact", 1.0)):
        search(2, 2, limit=40, penalty=Penalty(1.0, stop=rule, patience=patience))
        counts.append(len(steps) - sum(counts))
    assert counts[0] < counts[1] < counts[2]


def count_steps(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Tensor], bool]) -> list[Tensor]:
    """Replace DelayedFlag by a function that counts its calls; return the list of flags it was called with."""
    flags: list[Tensor] = []

    def counting_flag(device: torch.device) -> Callable[[Tensor], bool]:
        return lambda flag: flags.append(flag) or answer(flag)  # type: ignore[func-returns-value]

    monkeypatch.setattr(importlib.import_module("regard.decode.beam_search"), "DelayedFlag", counting_flag)
    return flags


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_smaller_nbest_gives_the_first_of_a_larger_one(penalty: float) -> None:
    for seed in range(5):
        all_four = search(seed, 3, vocab=9, limit=8, penalty=penalty)
        assert (all_four.scores.diff(dim=1) <= 0).all()
        for nbest in (1, 2, 3):
            few = search(seed, 3, vocab=9, limit=8, penalty=penalty, nbest=nbest)
            assert torch.equal(few.scores, all_four.scores[:, :nbest])
            assert [sentences(few, r) for r in range(3)] == [sentences(all_four, r)[:nbest] for r in range(3)]


def test_a_beam_of_one_is_greedy_decoding() -> None:
    ended = 0
    for seed in range(12):
        decoder, state = toy_decoder(seed, 4)
        found_tokens = collect(stream(decoder, state, torch.full((4,), BOS), greedy, limit=30, stop=STOP))[0].tolist()
        for limit in (2, 30):
            found = search(seed, 4, size=1, limit=limit, forbid=())
            for row in range(4):
                ended += STOP in found_tokens[row][:limit]
                cut = found_tokens[row].index(STOP) + 1 if STOP in found_tokens[row] else limit
                assert sentences(found, row)[0] == found_tokens[row][: min(cut, limit)]
    assert 10 < ended < 80


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(source_vocab=9, target_vocab=6, width=8, heads=2, layers=2, inner=16, context=32),
        *(Seq2SeqConfig(source_vocab=9, target_vocab=6, width=8, embed=6, decoder=name) for name in DECODERS),
    ],
    ids=lambda config: getattr(config, "decoder", "") if isinstance(config, Seq2SeqConfig) else "transformer",
)
def test_the_states_of_models_drop_sentences(config: Any) -> None:
    """After some steps with beams, the state of the sentences that are kept gives the same logits as before."""
    torch.manual_seed(5)
    model = config.build().double().eval()
    source, real = torch.randint(4, 9, (4, 5)), torch.ones(4, 5, dtype=torch.bool)
    real[1, 3:] = False
    kept, rows = torch.tensor([1, 3]), torch.tensor([3, 4, 5, 9, 10, 11])
    with torch.no_grad():
        state = model.start(source, real, 4, 12).select(torch.arange(4).repeat_interleave(3))
        for _ in range(3):
            _, state = model.step(torch.randint(3, 6, (12,)), state)
            state = state.select(torch.tensor([0, 0, 1, 5, 4, 3, 6, 7, 8, 9, 9, 10]))
        fewer, tokens = state.keep(kept, rows), torch.randint(3, 6, (12,))
        assert (state.sentences, fewer.sentences) == (4, 2)
        expected, found = model.step(tokens, state)[0], model.step(tokens[rows], fewer)[0]
    torch.testing.assert_close(found, expected[rows], atol=1e-12, rtol=0)


@dataclass(frozen=True)
class RecordingState:
    """A state without content that stores the arguments of `select`."""

    rows: int
    selected: list[Tensor]

    def select(self, rows: Tensor) -> "RecordingState":
        self.selected.append(rows)
        return replace(self, rows=len(rows))


class RandomDecoder:
    """Random logits at each step, so that the order of the hypotheses changes all the time."""

    def __init__(self, seed: int) -> None:
        self.draw = torch.Generator().manual_seed(seed)

    def step(self, tokens: Tensor, state: RecordingState) -> tuple[Tensor, RecordingState]:
        assert tokens.shape == (state.rows,)
        return torch.randn(state.rows, 7, generator=self.draw) * 4, state


def test_the_beams_of_a_sentence_stay_neighbours() -> None:
    selected: list[Tensor] = []
    batch, size = 5, 3
    beam(
        RandomDecoder(0),
        RecordingState(batch, selected),
        torch.full((batch,), BOS),
        size,
        limit=9,
        stop=STOP,
        penalty=1.0,
    )
    assert selected[0].tolist() == [b for b in range(batch) for _ in range(size)]
    sentence_of_row = torch.arange(batch).repeat_interleave(size)
    assert len(selected) > 3
    assert all(torch.equal(rows // size, sentence_of_row) for rows in selected[1:])
    assert any(not torch.equal(rows, torch.arange(batch * size)) for rows in selected[2:]), "no row ever moved"


def test_the_limit_counts_stop() -> None:
    decoder, state = toy_decoder(0, 2)
    found = search(0, 2, size=4, limit=1)
    for row in range(2):
        logits, _ = decoder.step(torch.tensor([BOS]), state.select(torch.tensor([row])))
        logps = logits.log_softmax(-1)[0, [STOP, 3, 4]]
        best = logps.argsort(descending=True)
        assert sentences(found, row) == [[(STOP, 3, 4)[at]] for at in best] + [[]]  # the fourth does not exist
        torch.testing.assert_close(found.scores[row, :3], logps[best])
    assert found.lengths.tolist() == [[1, 1, 1, 0]] * 2
    assert found.scores[:, 3].tolist() == [float("-inf")] * 2
    assert search(0, 2, size=4, limit=6, penalty=2.0).lengths.max() <= 6


def test_a_decoder_that_cannot_stop_is_cut_short() -> None:
    class Endless(ToyDecoder):
        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            logits, state = super().step(tokens, state)
            return logits.index_fill(1, torch.tensor([STOP]), float("-inf")), state

    decoder, state = toy_decoder(0, 2)
    endless = Endless(decoder.mix, decoder.embed, decoder.head)
    found = beam(endless, state, torch.full((2,), BOS), size=20, limit=4, stop=STOP, forbid=FORBIDDEN)
    assert found.lengths.tolist() == [[4] * 16 + [0] * 4] * 2
    for row in range(2):
        found_tokens = {
            word: forced_logp(endless, state.select(torch.tensor([row])), list(word))
            for word in itertools.product([3, 4], repeat=4)
        }
        assert [tuple(one) for one in sentences(found, row) if one] == sorted(
            found_tokens, key=found_tokens.__getitem__, reverse=True
        )
        assert found.scores[row, :16].tolist() == pytest.approx(sorted(found_tokens.values(), reverse=True), abs=1e-5)


def test_ties_are_broken_the_same_way_every_time() -> None:
    class Uniform(ToyDecoder):
        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            return torch.zeros(len(tokens), 5), state

    decoder, state = toy_decoder(0, 3)
    flat = Uniform(decoder.mix, decoder.embed, decoder.head)
    runs = [beam(flat, state, torch.full((3,), BOS), 4, 4, STOP, penalty=1.0, forbid=FORBIDDEN) for _ in range(3)]
    assert all(torch.equal(runs[0].tokens, run.tokens) for run in runs)
    assert all(torch.equal(runs[0].tokens[0], tokens) for tokens in runs[0].tokens)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"size": 0}, "beam=0: give 1"),
        ({"size": 100_000}, "beam=100000: give 1 .greedy. to 1,000"),
        ({"nbest": 5}, "nbest=5 with beam"),
        ({"nbest": 0}, "nbest=0 with beam"),
        ({"limit": 0}, "limit is 0"),
        ({"penalty": -0.5}, "penalty=-0.5: give a number from 0 to 10"),
        ({"penalty": float("nan")}, "penalty=nan"),
        ({"penalty": 10.5}, "penalty=10.5: give a number from 0"),
        ({"penalty": float("inf")}, "penalty=inf"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(UserError, match=named):
        search(0, **wrong)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"formula": "powers"}, 'formula=powers: no such formula. Did you mean "power"'),
        ({"stop": "early"}, "stop=early: no such stop"),
        ({"coverage": -1.0}, "coverage=-1.0: give a number from 0 to 1000"),
        ({"coverage": 1e308}, r"coverage=1e.308: give a number from 0 to 1000"),
        ({"patience": 0.0}, "patience=0.0: give a number from 0.01 to 1000"),
        ({"patience": 1e12}, "patience=1000000000000.0: give a number from 0.01 to 1000"),
        ({"alpha": "gnmt"}, "penalty='gnmt': give a number"),
    ],
)
def test_wrong_penalties_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        Penalty(**wrong)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong-feeding"])
def test_coverage_is_that_of_the_definition_and_ranks_all_sentences(decoder: str) -> None:
    """Wu et al. 2016, eq. 14, with the recorded weights of teacher forcing, for all sentences; one source is padded."""
    torch.manual_seed(2)
    model = Seq2SeqConfig(source_vocab=9, target_vocab=5, width=8, embed=6, decoder=decoder).build().eval()
    for weight in model.parameters():
        weight.data.mul_(4)  # a model with clear preferences
    source, real = torch.randint(4, 9, (2, 4)), torch.tensor([[True] * 4, [True, True, True, False]])
    penalty = Penalty(0.7, "gnmt", coverage=0.8, stop="exact")
    everything = [[*word, STOP] for n in range(3) for word in itertools.product([3, 4], repeat=n)]
    everything += [list(word) for word in itertools.product([3, 4], repeat=3)]
    with torch.no_grad():
        found = beam(model, model.start(source, real), torch.full((2,), BOS), 16, 3, STOP, penalty, 4, FORBIDDEN)
        for row in range(2):
            scores = {}
            for sentence in everything:
                alone = model.start(source[row : row + 1, : int(real[row].sum())])
                with record(model) as tape:
                    features, _ = model.advance(torch.tensor([[BOS, *sentence[:-1]]]), alone)
                logps = model.readout(features)[0].log_softmax(-1)[range(len(sentence)), sentence]
                coverage = tape["decoder.attention"][0].sum(0).clamp(max=1.0).log().sum()
                divisor = ((5 + len(sentence)) / 6) ** 0.7
                scores[tuple(sentence)] = float(logps.sum() / divisor + 0.8 * coverage)
            best = sorted(scores, key=scores.__getitem__, reverse=True)[:4]
            assert [tuple(one) for one in sentences(found, row)] == best
            assert found.scores[row].tolist() == pytest.approx([scores[one] for one in best], abs=1e-4)


def test_coverage_needs_a_model_that_sums_its_weights() -> None:
    with pytest.raises(UserError, match=r"coverage=0\.2: this model does not sum its attention weights"):
        search(0, penalty=Penalty(1.0, coverage=0.2))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"prompt": torch.full((2, 3), BOS)}, r"prompt: has shape \(2, 3\), but a beam starts from one token"),
        ({"stop": "exact"}, "stop='exact': give the id of the token"),
        ({"forbid": (STOP,)}, "stop=1: this token is forbidden too"),
    ],
)
def test_wrong_prompts_and_stops_are_named(given: dict[str, Any], named: str) -> None:
    decoder, state = toy_decoder(0, 2)
    settings = {"prompt": torch.full((2,), BOS), "size": 3, "limit": 4, "stop": STOP, **given}
    with pytest.raises(UserError, match=named):
        beam(decoder, state, **settings)


def test_the_largest_penalty_gives_finite_scores() -> None:
    found = search(0, 2, size=4, limit=500, penalty=10.0)
    assert found.scores.isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnAGpu:
    def on_gpu(self, seed: int) -> tuple[ToyDecoder, ToyState, Tensor]:
        decoder, state = toy_decoder(seed, 4, vocab=9)
        there = ToyDecoder(decoder.mix.cuda(), decoder.embed.cuda(), decoder.head.cuda())
        return there, ToyState(state.vector.cuda()), torch.full((4,), BOS).cuda()

    @pytest.mark.parametrize("penalty", [0.0, 1.0])
    def test_the_search_is_the_same(self, penalty: float) -> None:
        for seed in range(10):
            here = search(seed, 4, vocab=9, limit=12, penalty=penalty)
            there = beam(*self.on_gpu(seed), 4, 12, STOP, Penalty(penalty, stop="exact"), forbid=FORBIDDEN)
            assert torch.equal(there.tokens.cpu(), here.tokens)
            torch.testing.assert_close(there.scores.cpu(), here.scores, atol=1e-5, rtol=0)

    def test_a_stream_is_the_same(self) -> None:
        for seed in range(10):
            decoder, state = toy_decoder(seed, 4, vocab=9)
            here = collect(stream(decoder, state, torch.full((4,), BOS), greedy, 20, STOP))
            there = collect(stream(*self.on_gpu(seed), greedy, 20, STOP))
            assert torch.equal(there[0].cpu(), here[0])
            torch.testing.assert_close(there[1].cpu(), here[1])

    def test_a_stream_does_not_synchronise_with_the_gpu(self) -> None:
        draw = torch.Generator("cuda").manual_seed(0)
        for pick in (greedy, Sampler(0.8, generator=draw), Sampler(0.8, top_k=5, top_p=0.9)):
            decoder, state, prompt = self.on_gpu(0)
            torch.cuda.set_sync_debug_mode("error")  # from here on a synchronisation raises
            try:
                assert len(list(stream(decoder, state, prompt, pick, 20, stop=99))) == 20
            finally:
                torch.cuda.set_sync_debug_mode("default")

    def test_the_steps_of_a_search_do_not_synchronise_with_the_gpu(self) -> None:
        # The list of forbidden tokens and the longest length synchronise: twice a search, not once a step.
        synchronisations = []
        for limit in (5, 20):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                try:
                    beam(*self.on_gpu(0), 4, limit, stop=8, penalty=1.0, forbid=FORBIDDEN)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            synchronisations.append(len(caught))
        assert synchronisations[0] == synchronisations[1]
