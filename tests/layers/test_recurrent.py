"""Recurrent layers against torch's own, against their equations, and against the padding they must not see."""

import copy
import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.errors import UserError
from regard.layers.cells import MEANINGS, STATE, Weights, cell
from regard.layers.projected import ProjectedLstm
from regard.layers.recurrent import BFLOAT16_CUDNN, KERNELS, Recurrent, chrono_start, flatten_bfloat16
from regard.layers.unrolled import UnrolledRecurrent
from regard.taps import collected_layers

CELLS = tuple(KERNELS)
TORCH_CELLS = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
EXACT = {"atol": 1e-12, "rtol": 0.0}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def stack(kind: str, layers: int = 1, directions: int = 1, dropout: float = 0.0) -> Recurrent:
    return Recurrent(kind, 3, 6, layers, directions, dropout).double()


def torch_stack(ours: Recurrent) -> nn.RNNBase:
    """torch's stack of the same shape, with our weights."""
    directions = 2 if ours.returning else 1
    theirs = KERNELS[ours.cell](
        3, 6 // directions, ours.layers, batch_first=True, bidirectional=directions == 2, dtype=torch.float64
    )
    with torch.no_grad():
        for suffix, layers in (("", ours.onward), ("_reverse", ours.returning)):
            for depth, layer in enumerate(layers):
                for name in NAMES:
                    getattr(theirs, f"{name}_l{depth}{suffix}").copy_(getattr(layer, f"{name}_l0"))
    return theirs


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def gradients(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> list[Tensor]:
    """Of a fixed weighing of the outputs, in which no two elements count alike."""
    total = sum((out * torch.linspace(-1, 2, out.numel()).view(out.shape)).sum() for out in outputs)
    return list(torch.autograd.grad(total, inputs))


@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_is_that_of_torch(kind: str) -> None:
    theirs = TORCH_CELLS[kind](3, 6, dtype=torch.float64)
    x, h, c = random(4, 3), random(4, 6), random(4, 6)
    before = (h, c) if kind == "lstm" else (h,)
    expected = theirs(x, before if kind == "lstm" else h)
    expected = expected if isinstance(expected, tuple) else (expected,)
    weights = Weights(*(getattr(theirs, name) for name in NAMES))
    found = cell(kind, x, before, weights)
    inputs = [x, *before, *weights]
    torch.testing.assert_close(found, expected, **EXACT)
    torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs), **EXACT)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("directions", [1, 2])
def test_a_stack_is_that_of_torch_on_packed_sequences(kind: str, layers: int, directions: int) -> None:
    ours = stack(kind, layers, directions)
    x, lengths = random(4, 7, 3), torch.tensor([5, 7, 1, 3])
    real = torch.arange(7) < lengths[:, None]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, last = torch_stack(ours)(packed)
    expected, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    last = last[0] if kind == "lstm" else last  # (layers · directions, B, own): h alone
    wanted = expected[real], last.unflatten(0, (layers, directions)).permute(2, 0, 1, 3).flatten(2)
    outputs, finals = ours(x, real)
    found = outputs[real], finals
    torch.testing.assert_close(found, wanted, **EXACT)
    torch.testing.assert_close(gradients(found, [x]), gradients(wanted, [x]), **EXACT)


@pytest.mark.parametrize("directions", [1, 2])
def test_without_padding_nothing_needs_to_be_said(directions: int) -> None:
    ours, x = stack("lstm", 2, directions), random(2, 5, 3)
    found = ours(x)
    torch.testing.assert_close(found, ours(x, torch.ones(2, 5, dtype=torch.bool)), atol=0, rtol=0)
    torch.testing.assert_close(found[0], torch_stack(ours)(x)[0], **EXACT)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("layers", [1, 3])
def test_four_routes_agree(kind: str, layers: int) -> None:
    """By definition, in one call, in pieces, step by step: outputs, states and every gradient."""
    ours = stack(kind, layers)
    x, state = random(4, 6, 3), random(4, layers, ours.parts, 6)

    def in_pieces(*lengths: int) -> tuple[Tensor, Tensor]:
        outputs, after = [], state
        for part in x.split(list(lengths), 1):
            output, after = ours.advance(part, after)
            outputs.append(output)
        return torch.cat(outputs, 1), after

    def stepped() -> tuple[Tensor, Tensor]:
        outputs, after = [], state
        for part in x.unbind(1):
            output, after = ours.step(part, after)
            outputs.append(output)
        return torch.stack(outputs, 1), after

    inputs = [x, state, *ours.parameters()]
    expected = ours.definition(x, state)
    wanted = gradients(expected, inputs)
    assert expected[0].shape == (4, 6, 6)
    assert expected[1].shape == state.shape
    for found in (ours.advance(x, state), in_pieces(2, 3, 1), in_pieces(*[1] * 6), stepped()):
        torch.testing.assert_close(found, expected, **EXACT)
        torch.testing.assert_close(gradients(found, inputs), wanted, **EXACT)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_trace_has_what_is_explained_and_the_states_of_the_fast_route(kind: str) -> None:
    ours, x = stack(kind, 2), random(3, 5, 3)
    with collected_layers() as layers:
        _, after = ours.advance(x, ours.zeros(3, x))
    traces = ours.trace(x, ours.zeros(3, x))
    for depth, trace in enumerate(traces):
        assert set(trace) == set(MEANINGS[kind])
        torch.testing.assert_close(trace["h"], layers[depth], **EXACT)
        last = torch.stack([trace[name][:, -1] for name in STATE[kind]], 1)
        torch.testing.assert_close(last, after[:, depth], **EXACT)


def test_changed_gates_change_the_state() -> None:
    ours, x, state = stack("lstm"), random(2, 5, 3), random(2, 1, 2, 6)
    open_gates = dict.fromkeys("ifo", torch.ones(2, 6, dtype=torch.float64))
    (trace,) = ours.trace(x, state, lambda gates: {**gates, **open_gates})
    assert (trace["f"] == 1).all()  # the trace has the gates that were used
    torch.testing.assert_close(trace["c"], state[:, 0, 1, None] + trace["g"].cumsum(1), **EXACT)
    torch.testing.assert_close(trace["h"], trace["c"].tanh(), **EXACT)


@pytest.mark.parametrize("kind", CELLS)
def test_an_encoder_of_one_direction_starts_from_zeros(kind: str) -> None:
    ours, x = stack(kind, 2), random(3, 5, 3)
    outputs, finals = ours(x)
    expected, after = ours.definition(x, ours.zeros(3, x))
    torch.testing.assert_close(outputs, expected, **EXACT)
    torch.testing.assert_close(finals, after[:, :, 0], **EXACT)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_unit_of_a_chrono_start_keeps_its_state_for_two_to_all_steps(kind: str) -> None:
    """If W and U are zero, it keeps the part 1 − 1 / n of its state and writes at most 1 / n, with n uniform."""
    ours = Recurrent(kind, 3, 500, layers=2, hidden=300).double()
    chrono_start(ours, 40)
    for depth, width in enumerate(ours.widths):
        w = ours.weights(depth)
        w = w._replace(input=torch.zeros_like(w.input), hidden=torch.zeros_like(w.hidden))
        before = [random(1, width) for _ in range(ours.parts)]
        after = cell(kind, torch.zeros(1, w.input.shape[1], dtype=torch.float64), before, w)[-1]
        (kept,) = torch.autograd.grad(after.sum(), before[-1])
        steps = 1 / (1 - kept)
        assert 2 - 1e-9 < steps.min() < 3
        assert 39 < steps.max() < 40 + 1e-9
        assert abs(steps.mean() - 21) < 2
        written = (after - kept * before[-1]).abs()
        assert (written > 0).all()
        assert (written < 1 / steps).all()


@settings(max_examples=40)
@given(
    real=st.integers(1, 8).flatmap(
        lambda width: st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=4)
    ),
    kind=st.sampled_from(CELLS),
    directions=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
)
def test_padding_anywhere_is_as_if_it_were_not_there(
    real: list[list[bool]], kind: str, directions: int, seed: int
) -> None:
    torch.manual_seed(seed)
    ours, mask = stack(kind, 2, directions), torch.tensor(real)
    x = random(*mask.shape, 3)
    outputs, finals = ours(x, mask)
    assert outputs.isfinite().all()
    assert finals.isfinite().all()
    kept = mask.any(1)
    if kept.any():
        (gradient,) = gradients((outputs[mask], finals[kept]), [x])
        assert (gradient[~mask] == 0).all()
        assert (gradient[mask] != 0).any()
    for row in kept.nonzero().flatten():
        alone, last = ours(x[row, mask[row]][None])
        torch.testing.assert_close(outputs[row, mask[row]], alone[0], **EXACT)
        torch.testing.assert_close(finals[row], last[0], **EXACT)


@pytest.mark.parametrize("kind", CELLS)
def test_a_filler_row_is_finite_and_disturbs_nobody(kind: str) -> None:
    ours, x = stack(kind, 2, 2), random(3, 4, 3)
    real = torch.tensor([[True] * 4, [False] * 4, [True, True, False, False]])
    outputs, finals = ours(x, real)
    assert outputs.isfinite().all()
    assert finals.isfinite().all()
    without, last = ours(x[[0, 2]], real[[0, 2]])
    torch.testing.assert_close(outputs[[0, 2]][real[[0, 2]]], without[real[[0, 2]]], **EXACT)
    torch.testing.assert_close(finals[[0, 2]], last, **EXACT)


def test_dropout_lies_between_layers_and_only_in_training() -> None:
    """Between layers: a single layer has none, whatever the rate, and a deep one keeps its first layer's states."""
    x = random(8, 5, 3)
    single, deep = stack("gru", dropout=0.5), stack("gru", 2, dropout=0.5)
    expected, after = single.definition(x, single.zeros(8, x))
    torch.testing.assert_close(single.advance(x, single.zeros(8, x)), (expected, after), **EXACT)
    for read in (deep.advance, deep.definition):
        _, state = read(x, deep.zeros(8, x))
        torch.testing.assert_close(state[:, 0], deep.definition(x, deep.zeros(8, x))[1][:, 0], **EXACT)
    noisy = [deep.advance(x, deep.zeros(8, x))[0] for _ in range(2)]
    assert not torch.equal(*noisy)
    deep.eval()
    torch.testing.assert_close(deep.advance(x, deep.zeros(8, x)), deep.definition(x, deep.zeros(8, x)), **EXACT)
    torch.testing.assert_close(deep(x)[0], deep.definition(x, deep.zeros(8, x))[0], **EXACT)


@torch.no_grad()
def test_every_route_drops_the_input_of_the_second_layer_and_no_output() -> None:
    for kind in CELLS:
        ours, x = stack(kind, layers=2, dropout=1.0), torch.randn(2, 4, 3, dtype=torch.float64)
        state = torch.randn(2, 2, ours.parts, 6, dtype=torch.float64)
        cut = copy.deepcopy(ours)
        cut.onward[1].weight_ih_l0.zero_()  # as if its input were zeros
        outputs, after = cut.definition(x, state)
        loop, unrolled, steps = UnrolledRecurrent(ours, x[..., :2]), state, state
        for t in range(4):
            output, unrolled = loop.step(x[:, t, 2:], unrolled)
            torch.testing.assert_close(output, outputs[:, t], **EXACT)
            output, steps = ours.step(x[:, t], steps)
            torch.testing.assert_close(output, outputs[:, t], **EXACT)
        torch.testing.assert_close((unrolled, steps, *ours.advance(x, state)), (after, after, outputs, after), **EXACT)
        expected, _ = cut.definition(x, torch.zeros_like(state))
        torch.testing.assert_close(ours(x)[0], expected, **EXACT)


@pytest.mark.parametrize(
    ("dtype", "version", "capability", "flattened"),
    [
        (torch.bfloat16, BFLOAT16_CUDNN, (9, 0), True),
        (torch.bfloat16, BFLOAT16_CUDNN - 1, (9, 0), False),
        (torch.bfloat16, BFLOAT16_CUDNN, (7, 5), False),
        (torch.float32, BFLOAT16_CUDNN, (9, 0), False),  # torch does it itself
    ],
)
def test_bfloat16_weights_are_flattened_if_cudnn_has_kernels_for_them(
    dtype: torch.dtype, version: int, capability: tuple[int, int], flattened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds, seen = torch.backends.cudnn.CUDNN_TENSOR_DTYPES, []
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: version)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    weight = SimpleNamespace(dtype=dtype, is_cuda=True, device="cuda")
    flatten_bfloat16(SimpleNamespace(weight_ih_l0=weight, flatten_parameters=lambda: seen.append(set(kinds))))
    assert [torch.bfloat16 in accepted for accepted in seen] == [True] * flattened
    assert torch.bfloat16 not in kinds  # torch's own list is as before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="cuDNN needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", CELLS)
def test_the_weights_on_a_gpu_are_one_block_of_memory(kind: str, dtype: torch.dtype) -> None:
    ours = Recurrent(kind, 3, 6, 2, 2).to("cuda", dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "RNN module weights are not part of single contiguous chunk of memory"
        ours(torch.randn(2, 4, 3, device="cuda", dtype=dtype))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="cuDNN needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_weights_of_a_projected_lstm_on_a_gpu_are_one_block_of_memory(dtype: torch.dtype) -> None:
    ours = ProjectedLstm(3, 8, 4).to("cuda", dtype)
    x, h, c = (torch.zeros(*size, device="cuda", dtype=dtype) for size in ((2, 5, 3), (2, 4), (2, 8)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours(x, h, c)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match=r'model\.cell=grue: no such cell\. Did you mean "gru"\?'):
        Recurrent("grue", 3, 6)
    with pytest.raises(UserError, match=r"model\.width=5: .* even"):
        Recurrent("gru", 3, 5, directions=2)


@pytest.mark.parametrize("kind", CELLS)
def test_nan_at_padding_reaches_neither_real_states_nor_gradients(kind: str) -> None:
    ours, x = stack(kind, layers=2, directions=2), random(2, 5, 3)
    real = torch.tensor([[True] * 5, [False, True, True, False, False]])
    found = []
    for filler in (0.0, float("nan")):
        states, last = ours(x.masked_fill(~real[..., None], filler), real)
        found.append([last, *gradients((states[real], last), [x, *ours.parameters()])])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, **EXACT)
