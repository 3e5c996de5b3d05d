"""Each decoder against its paper's equations, written out naively, one sentence and one token at a time."""

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from encoded import pair_batch
from regard.errors import UserError
from regard.models import Seq2Seq, Seq2SeqConfig
from regard.recording import record
from regard.scores import WINDOWS

CONFIG = Seq2SeqConfig(source_vocab=11, target_vocab=9, width=6, embed=4, capacity=12, dropout=0.0)
PAIRS = [([4, 5, 6, 7, 10], [8, 7]), ([10, 4], [5, 4, 6, 8]), ([9], [4])]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


# The papers


def linear(layer: nn.Linear, *parts: Tensor) -> Tensor:
    """W [a; b; …] + b"""
    return layer.weight @ torch.cat(parts) + (0 if layer.bias is None else layer.bias)


def gru(layer: nn.Module, x: Tensor, h: Tensor) -> Tensor:
    """One step of a gated recurrent unit."""
    (wr, wz, wn), (ur, uz, un) = layer.weight_ih_l0.chunk(3), layer.weight_hh_l0.chunk(3)
    (br, bz, bn), (cr, cz, cn) = layer.bias_ih_l0.chunk(3), layer.bias_hh_l0.chunk(3)
    r = torch.sigmoid(wr @ x + br + ur @ h + cr)
    z = torch.sigmoid(wz @ x + bz + uz @ h + cz)
    n = torch.tanh(wn @ x + bn + r * (un @ h + cn))
    return (1 - z) * n + z * h


def encoded(model: Seq2Seq, source: list[int]) -> tuple[list[Tensor], Tensor]:
    """The annotations h_j = [→h_j; ←h_j], and the decoder's first state."""
    x = [model.encoder.embedding.weight[token] for token in source]
    h = back = x[0].new_zeros(3)
    forth_states, back_states = [], []
    for embedded in x:
        forth_states.append(h := gru(model.encoder.rnn.onward[0], embedded, h))
    for embedded in reversed(x):
        back_states.insert(0, back := gru(model.encoder.rnn.returning[0], embedded, back))
    states = [torch.cat(pair) for pair in zip(forth_states, back_states)]
    return states, torch.tanh(linear(model.bridge, h, back))


def softmax_sum(logits: list[Tensor], states: list[Tensor]) -> Tensor:
    """Σ α_j h_j with α = softmax(e)"""
    powers = [e.exp() for e in logits]
    return sum(power / sum(powers) * state for power, state in zip(powers, states))  # type: ignore[return-value]


def bahdanau(model: Seq2Seq, source: list[int], tokens: list[int]) -> list[Tensor]:
    """Bahdanau et al. 2015, §A.1.2 and §A.2.2: align by s_{i-1}, read c_i, then move to s_i."""
    decoder, score = model.decoder, model.decoder.attention.score
    states, s = encoded(model, source)
    logits = []
    for token in tokens:
        y = model.target_embedding.weight[token]
        energies = [score.v @ torch.tanh(linear(score.query, s) + linear(score.key, h)) for h in states]
        c = softmax_sum(energies, states)
        s = gru(decoder.rnn.onward[0], torch.cat([y, c]), s)
        logits.append(linear(model.readout_, torch.tanh(linear(decoder.out, s, c, y))))
    return logits


def luong(model: Seq2Seq, source: list[int], tokens: list[int]) -> list[Tensor]:
    """Luong et al. 2015, §3.1, general score: move to h_t, align by it, h̃_t = tanh(W [c_t; h_t])."""
    decoder, w = model.decoder, model.decoder.attention.score.key.weight
    states, h = encoded(model, source)
    logits = []
    for token in tokens:
        h = gru(decoder.rnn.onward[0], model.target_embedding.weight[token], h)
        c = softmax_sum([h @ w @ state for state in states], states)
        logits.append(linear(model.readout_, torch.tanh(linear(decoder.out, c, h))))
    return logits


def luong_feeding(model: Seq2Seq, source: list[int], tokens: list[int]) -> list[Tensor]:
    """Luong et al. 2015, §3.3: h̃_{t-1} is a part of the next input."""
    decoder, w = model.decoder, model.decoder.attention.score.key.weight
    states, h = encoded(model, source)
    fed, logits = torch.zeros_like(h), []
    for token in tokens:
        h = gru(decoder.rnn.onward[0], torch.cat([model.target_embedding.weight[token], fed]), h)
        c = softmax_sum([h @ w @ state for state in states], states)
        fed = torch.tanh(linear(decoder.out, c, h))
        logits.append(linear(model.readout_, fed))
    return logits


@pytest.mark.parametrize(
    ("decoder", "score", "by_hand"),
    [("bahdanau", "additive", bahdanau), ("luong", "general", luong), ("luong-feeding", "general", luong_feeding)],
)
def test_a_decoder_is_its_paper(decoder: str, score: str, by_hand: Callable[..., list[Tensor]]) -> None:
    """Logits and the gradient of every parameter."""
    model = replace(CONFIG, decoder=decoder, score=score).build().double()
    batch = pair_batch(PAIRS)
    rows = [by_hand(model, source, [1, *target]) for source, target in PAIRS]
    expected, found = torch.stack([logits for row in rows for logits in row]), model(batch)[batch.real["tokens"]]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0.0)
    weighing = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).view_as(found)
    parameters = dict(model.named_parameters())
    for name, one, other in zip(
        parameters,
        torch.autograd.grad((found * weighing).sum(), list(parameters.values())),
        torch.autograd.grad((expected * weighing).sum(), list(parameters.values())),
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0.0, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("decoder", ["once", "every"])
@pytest.mark.parametrize("layers", [1, 2])
def test_without_attention_it_is_two_networks_of_torch(decoder: str, layers: int) -> None:
    model = replace(CONFIG, decoder=decoder, layers=layers).build().double()
    batch = pair_batch(PAIRS)
    encoder = nn.GRU(4, 3, layers, batch_first=True, bidirectional=True).double()
    speaker = nn.GRU(10 if decoder == "every" else 4, 6, layers, batch_first=True).double()
    for theirs, ours, suffix in (
        (encoder, model.encoder.rnn.onward, ""),
        (encoder, model.encoder.rnn.returning, "_reverse"),
        (speaker, model.decoder.rnn.onward, ""),
    ):
        for depth, layer in enumerate(ours):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{name}_l{depth}{suffix}").data.copy_(getattr(layer, f"{name}_l0"))

    lengths = batch.real["source"].sum(1)
    packed = nn.utils.rnn.pack_padded_sequence(
        model.encoder.embedding(batch["source"]), lengths, batch_first=True, enforce_sorted=False
    )
    _, ends = encoder(packed)
    context = torch.cat([ends[-2], ends[-1]], -1)  # of the top layer, both directions
    first = torch.tanh(model.bridge(context)).view(3, layers, 6).transpose(0, 1).contiguous()
    x = model.target_embedding(batch["tokens"])
    if decoder == "every":
        x = torch.cat([x, context[:, None].expand(-1, x.shape[1], -1)], -1)
    outputs, _ = speaker(x, first)
    torch.testing.assert_close(model(batch), model.readout_(outputs), atol=1e-12, rtol=0.0)


def test_in_a_deep_stack_the_top_layer_asks() -> None:
    """What the lower layer remembers does not move Bahdanau's first look; what the top one does, moves it."""
    model = replace(CONFIG, layers=2, cell="lstm").build().double()
    batch, queries = pair_batch(PAIRS), []
    model.decoder.attention.register_forward_pre_hook(lambda _, args: queries.append(args[0]))
    state = model.start(batch["source"], batch.real["source"])
    model.step(torch.tensor([1, 1, 1]), state)
    torch.testing.assert_close(queries[0], state.hidden[:, 1:2, 0])


@pytest.mark.parametrize("score", ["none", "additive"])
def test_a_state_is_on_the_device_of_its_model(score: str) -> None:
    """Or a captured step would wait for the other device."""
    model = Seq2SeqConfig(source_vocab=9, target_vocab=9, width=8, embed=8)
    model = (model.without_attention() if score == "none" else model).build().eval().to("meta")
    state = model.start(torch.zeros(2, 3, dtype=torch.long, device="meta"), capacity=4)
    tensors = [each for each in vars(state).values() if isinstance(each, Tensor)]
    assert {each.device.type for each in tensors} == {"meta"}


def test_dropout_is_noise_in_training_only() -> None:
    model, batch = replace(CONFIG, dropout=0.5).build(), pair_batch(PAIRS)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_beams_share_one_memory() -> None:
    model, batch = CONFIG.build(), pair_batch(PAIRS)
    state = model.start(batch["source"], batch.real["source"])
    wide = state.select(torch.arange(3).repeat_interleave(4))
    assert wide.memory is state.memory
    assert wide.hidden.shape == (12, 1, 1, 6)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong-feeding"])
@pytest.mark.parametrize("pieces", [[1, 1, 1, 1], [3, 1]], ids=str)
def test_beams_that_share_a_memory_read_what_each_would_read_of_its_own(
    pieces: list[int], decoder: str, window: str
) -> None:
    model = replace(CONFIG, decoder=decoder, window=window, radius=2).build().double().eval()
    batch, tokens = pair_batch(PAIRS), torch.randint(4, 9, (12, 4))
    sentences = torch.arange(3).repeat_interleave(4)
    with torch.no_grad():
        shared = model.start(batch["source"], batch.real["source"]).select(sentences)
        own = model.start(batch["source"][sentences], batch.real["source"][sentences])
        for some in tokens.split(pieces, 1):
            features, shared = model.advance(some, shared)
            expected, own = model.advance(some, own)
            torch.testing.assert_close(features, expected, atol=1e-12, rtol=0.0)


@pytest.mark.parametrize("rows", [None, [5]])
def test_beams_on_a_tape_are_more_queries_of_their_sentence(
    rows: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three beams of three tokens are nine rows, however few of them are looked at at a time."""
    model, batch, tokens = (
        replace(CONFIG, decoder="luong").build().eval(),
        pair_batch(PAIRS),
        torch.randint(4, 9, (9, 3)),
    )
    sentences = torch.arange(3).repeat_interleave(3)
    with torch.no_grad(), record(model) as own:
        model.advance(tokens, model.start(batch["source"][sentences], batch.real["source"][sentences]))
    monkeypatch.setattr(
        sys.modules["regard.recording"], "CHUNK", 2 * 3 * 5
    )  # two queries of each of the three sentences
    with torch.no_grad(), record(model, rows=rows) as tape:
        model.advance(tokens, model.start(batch["source"], batch.real["source"]).select(sentences))
    expected = own["decoder.attention"].view(3, 9, 5)
    torch.testing.assert_close(tape["decoder.attention"], expected if rows is None else expected[:, rows])


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong-feeding"])
def test_coverage_is_the_sum_of_the_weights_so_far(decoder: str) -> None:
    model = replace(CONFIG, decoder=decoder, coverage=True).build().double().eval()
    batch = pair_batch(PAIRS)
    with torch.no_grad(), record(model) as tape:
        state = model.start(batch["source"], batch.real["source"])
        for tokens in batch["tokens"].split([1, 2, 2], dim=1):
            _, state = model.advance(tokens, state)
    assert state.coverage is not None
    torch.testing.assert_close(state.coverage, tape["decoder.attention"].sum(1))
    rows = torch.tensor([0, 0, 1, 1, 2, 2])  # two beams a sentence, which then read different tokens
    with torch.no_grad():
        state = state.select(rows)
        _, after = model.advance(torch.tensor([4, 5, 6, 7, 8, 4])[:, None], state)
        assert after.coverage is not None
        torch.testing.assert_close(after.coverage.sum(1), state.coverage.sum(1) + 1)
        swapped = after.select(torch.tensor([1, 0, 3, 3, 4, 5]))
    assert torch.equal(swapped.coverage[:4], after.coverage[[1, 0, 3, 3]])


# Mistakes


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"cell": "gruu"}, r'model\.cell=gruu: no such cell\. Did you mean "gru"\?'),
        ({"score": "aditive"}, r'model\.score=aditive: no such score\. Did you mean "additive"\?'),
        ({"score": "relative"}, r"model\.score=relative: works only within one text"),
        ({"decoder": "badhanau"}, r'model\.decoder=badhanau: no such decoder\. Did you mean "bahdanau"\?'),
        ({"decoder": "luong-feed"}, r'Did you mean "luong-feeding"\?'),
        ({"window": "local"}, r'model\.window=local: no such window\. Did you mean "local-'),
        ({"window": "zzz"}, r"Known: local-m, local-p, none\."),
        ({"width": 7}, r"model\.width=7: .*even"),
        ({"width": 0}, r"model\.width=0: must be at least 1"),
        ({"layers": 0}, r"model\.layers=0: must be at least 1"),
        ({"capacity": -1}, r"model\.capacity=-1: must be at least 1"),
        ({"radius": 0}, r"model\.radius=0: must be at least 1"),
        ({"decoder": "once", "coverage": True}, r"model\.coverage=true: model\.decoder=once has no attention"),
        ({"dropout": 1.0}, r"model\.dropout=1\.0: .*below 1"),
        ({"dropout": -0.1}, r"model\.dropout=-0\.1: .*at least 0"),
        ({"dropout": float("nan")}, r"model\.dropout=nan"),
    ],
)
def test_a_wrong_setting_is_named_with_its_cure(setting: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **setting)


@pytest.mark.parametrize("score", ["additive", "location"])
def test_a_source_past_the_capacity_is_refused(score: str) -> None:
    model = replace(CONFIG, score=score).build()
    assert model(pair_batch([([4] * 12, [5])])).isfinite().all()
    with pytest.raises(UserError, match=r"a source of 13 tokens .*model\.capacity=12"):
        model(pair_batch([([4] * 13, [5])]))
