"""Cross-entropy of a linear head in chunks against its definition: losses and every gradient."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels import cross_entropy as module
from regard.kernels.cross_entropy import IGNORED, chunk_size, cross_entropy_rows, linear_cross_entropy
from tritons import DEVICE, GPU, interpret, runs, starts_interpreter


def definition(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(x, weight, bias)
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(precise, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)


def made(count: int, width: int, vocab: int, dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor]:
    """x, weight, bias, and targets of which about a third are ignored."""
    torch.manual_seed(count * vocab + width)
    parts = [torch.randn(shape, dtype=dtype, device=DEVICE) for shape in ((count, width), (vocab, width), (vocab,))]
    targets = torch.randint(vocab, (count,), device=DEVICE)
    return [part.requires_grad_() for part in parts], targets.masked_fill(
        torch.rand(count, device=DEVICE) < 0.3, IGNORED
    )


def both_ways(loss, parts: list[Tensor], targets: Tensor, smoothing: float = 0.0) -> list[Tensor]:
    """The loss and the gradients of all parts, of three times the loss."""
    found = loss(*parts, targets, smoothing)
    return [found.detach(), *torch.autograd.grad(3 * found, parts)]


def small_chunks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "chunk_size", lambda count, weight: size)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("count", "width", "vocab", "size"), [(1, 3, 2, 4), (13, 5, 11, 4), (12, 8, 17, 4), (7, 1, 1, 3), (9, 6, 33, 100)]
)
def test_loss_and_gradients_are_those_of_the_definition(monkeypatch, count, width, vocab, size, smoothing):
    small_chunks(monkeypatch, size)
    parts, targets = made(count, width, vocab)
    found = both_ways(linear_cross_entropy, parts, targets, smoothing)
    for ours, theirs in zip(found, both_ways(definition, parts, targets, smoothing)):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_ignored_targets_add_nothing_and_nothing_at_all_is_zero():
    parts, targets = made(6, 4, 5)
    for some in (torch.full_like(targets, IGNORED), targets[:0]):
        x = parts[0][: len(some)].detach().requires_grad_()
        found = both_ways(linear_cross_entropy, [x, *parts[1:]], some, 0.1)
        assert all(bool((each == 0).all()) for each in found)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_gradients_that_are_needed_are_made(needed):
    parts, targets = made(9, 4, 7)
    for part, need in zip(parts, needed):
        part.requires_grad_(need)
    linear_cross_entropy(*parts, targets).backward()
    found = [part.grad for part in parts]
    assert [grad is not None for grad in found] == list(needed)
    wanted = parts[needed.index(True)]
    expected = torch.autograd.grad(definition(*parts, targets, 0.0), [wanted])[0]
    torch.testing.assert_close(wanted.grad, expected, rtol=0, atol=1e-12)


def test_a_head_may_have_no_bias():
    (x, weight, _), targets = made(9, 4, 7)
    found = linear_cross_entropy(x, weight, None, targets)
    torch.testing.assert_close(found, definition(x, weight, None, targets, 0.0), rtol=0, atol=1e-12)
    found.backward()
    assert weight.grad is not None


def test_without_gradients_only_the_loss_is_made(monkeypatch):
    parts, targets = made(9, 4, 7)
    with_gradients = linear_cross_entropy(*parts, targets).detach()
    asked = []
    monkeypatch.setattr(
        module, "cross_entropy_rows", lambda *given: asked.append(given[-1]) or cross_entropy_rows(*given)
    )
    with torch.no_grad():
        loss = linear_cross_entropy(*parts, targets)
    assert asked == [False] or DEVICE == "cuda"
    assert not loss.requires_grad
    assert torch.equal(loss, with_gradients)


def test_the_gradients_are_spent_by_the_first_way_back():
    parts, targets = made(9, 4, 7)
    loss = linear_cross_entropy(*parts, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_tied_weight_gets_both_gradients():
    (_, weight, bias), targets = made(8, 4, 7)
    tokens = torch.randint(7, (8,), device=DEVICE)
    found, expected = (
        torch.autograd.grad(loss(F.embedding(tokens, weight), weight, bias, targets, 0.0), [weight])[0]
        for loss in (linear_cross_entropy, definition)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_autocast_multiplies_in_halves_and_adds_up_in_float32(monkeypatch, given):
    """Many chunks whose gradients of the weight would be lost beside their sum, were it a half."""
    small_chunks(monkeypatch, 16)
    (x, weight, bias), targets = made(1024, 16, 24, torch.float32)
    x = x.detach().to(given).requires_grad_()
    parts = [x, weight, bias]
    with torch.autocast(DEVICE, torch.bfloat16):
        found = linear_cross_entropy(*parts, targets)
    found.backward()
    assert found.dtype == weight.grad.dtype == bias.grad.dtype == torch.float32
    assert x.grad.dtype == given
    halves = [part.detach().bfloat16().double().requires_grad_() for part in parts]
    expected = definition(*halves, targets, 0.0)
    expected.backward()
    assert abs(float(found.detach() / expected.detach()) - 1) < 1e-3
    for part, half in zip(parts, halves):
        assert float((part.grad - half.grad).norm() / half.grad.norm()) < 6e-3


def test_weights_in_halves_get_gradients_in_halves():
    parts, targets = made(40, 8, 24, torch.bfloat16)
    loss, *grads = both_ways(linear_cross_entropy, parts, targets)
    assert loss.dtype == torch.float32
    assert {grad.dtype for grad in grads} == {torch.bfloat16}


def test_columns_past_the_vocabulary_change_nothing(monkeypatch):
    """On a GPU a vocabulary of an odd size is padded; here the padding is asked for by hand."""
    parts, targets = made(13, 5, 11)
    expected = both_ways(linear_cross_entropy, parts, targets, 0.1)
    monkeypatch.setattr(module, "_column_multiple", lambda weight: 8)
    found = both_ways(linear_cross_entropy, parts, targets, 0.1)
    for ours, theirs in zip(found, expected):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("vocab", [1, 50, 8_003, 50_257, 250_002, 10**9])
@pytest.mark.parametrize("count", [0, 1, 127, 8_000, 65_536])
def test_chunks_stay_within_their_memory(count, vocab):
    size = chunk_size(count, torch.empty(vocab, 1, device="meta"))
    assert size >= 1
    assert size == 1 or size <= 128 or size * vocab * 4 <= module.CHUNK["cuda"]
    pieces = -(-count // size)
    assert count - size * (pieces - 1) > 0 or count == 0  # none is empty


def test_no_chunk_of_many_outlives_its_turn(monkeypatch):
    """What autograd keeps is as large as the inputs, never as large as the logits."""
    small_chunks(monkeypatch, 8)
    parts, targets = made(64, 4, 500)
    loss = linear_cross_entropy(*parts, targets)
    assert sum(kept.numel() for kept in loss.grad_fn.saved_tensors) == sum(part.numel() for part in parts)


@runs
@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("count", "vocab", "padded"), [(3, 5, 5), (4, 64, 64), (2, 9_001, 9_024), (3, 1, 8)])
def test_the_triton_program_judges_as_the_formula_does(count, vocab, padded, smoothing, with_gradients):
    from regard.kernels.cross_entropy_triton import launch_rows

    torch.manual_seed(vocab)
    logits = (5 * torch.randn(count, vocab, device=DEVICE) + 40).requires_grad_()
    wide = F.pad(logits.detach(), (0, padded - vocab), value=7.0)
    targets = torch.randint(vocab, (count,), device=DEVICE)
    targets[0] = IGNORED
    losses = launch_rows(wide, targets, vocab, smoothing, with_gradients, IGNORED)
    precise = logits.double()
    expected = F.cross_entropy(precise, targets, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(expected.sum(), [logits])
    torch.testing.assert_close(wide[:, :vocab], gradient if with_gradients else logits.detach(), rtol=1e-4, atol=1e-5)
    assert bool((wide[:, vocab:] == (0.0 if with_gradients else 7.0)).all())


@runs
def test_the_triton_program_takes_halves_and_refuses_to_read_elsewhere():
    from regard.kernels.cross_entropy_triton import launch_rows

    logits = torch.randn(3, 20, device=DEVICE).half()
    targets = torch.tensor([4, 20, 0], device=DEVICE)  # the second is no token
    expected = F.cross_entropy(logits[::2].float(), targets[::2], reduction="none")
    losses = launch_rows(logits, targets, 20, 0.0, True, IGNORED)
    torch.testing.assert_close(losses[::2], expected, rtol=1e-5, atol=1e-5)
    assert losses[1].isnan()
    assert logits.dtype == torch.float16
    assert float(logits[::2].float().sum(1).abs().max()) < 1e-2  # a gradient of logits adds up to nothing


@pytest.mark.skipif(not GPU, reason="only a GPU pads, fuses and captures")
@pytest.mark.parametrize("vocab", [1_000, 5_003])
def test_on_a_gpu_it_can_be_captured_and_gives_the_same_bits(monkeypatch, vocab):
    small_chunks(monkeypatch, 256)
    parts, targets = made(700, 64, vocab, torch.float32)

    def work() -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            return both_ways(linear_cross_entropy, parts, targets, 0.1)

    expected = work()
    halves = [part.detach().bfloat16().double().requires_grad_() for part in parts]
    for ours, exact in zip(expected, both_ways(definition, halves, targets, 0.1)):
        assert float((ours - exact).norm() / exact.norm()) < 2e-2
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


@starts_interpreter
def test_programs_in_the_interpreter():
    interpret(__file__, "-k", "triton_program")
