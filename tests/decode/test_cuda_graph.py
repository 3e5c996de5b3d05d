"""Captured steps: trees of tensors, which search uses which graph, and the same results as without graphs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.decode import CapturedDecoder, beam, collect, greedy, stream
from regard.decode.cuda_graph import KEPT_GRAPHS, CapturedGraph, CapturedStep
from regard.decode.sample import Sampler
from regard.errors import UserError
from regard.models import BigramConfig, GptConfig, LstmnConfig, TransformerConfig
from regard.tensor_tree import signature, tensors, with_tensors

SMALL: dict[str, Any] = {"width": 8, "heads": 2, "layers": 2, "inner": 12, "context": 24, "dropout": 0.0}
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@dataclass(frozen=True)
class Leaf:
    number: int
    weight: Tensor
    more: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> "Leaf":
        return self


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def test_a_tree_is_taken_apart_and_put_together() -> None:
    a, b, c = torch.zeros(2), torch.ones(3), torch.ones(1)
    tree = (a, [Leaf(7, b, (c, a))], None, "word")
    assert [id(one) for one in tensors(tree)] == [id(one) for one in (a, b, c, a)]
    other = with_tensors(tree, iter([b, a, a, c]))
    assert [id(one) for one in tensors(other)] == [id(one) for one in (b, a, a, c)]
    assert other[1][0].number == 7
    assert other[2:] == (None, "word")


def test_signatures_differ_by_shape_dtype_and_other_values() -> None:
    leaf = Leaf(1, torch.zeros(2))
    assert signature(leaf) == signature(Leaf(1, torch.ones(2)))
    others = [
        Leaf(2, torch.zeros(2)),
        Leaf(1, torch.zeros(3)),
        Leaf(1, torch.zeros(2).double()),
        Leaf(1, leaf.weight, ()),
    ]
    assert [signature(other) == signature(leaf) for other in others] == [False, False, False, True]


class FakeGraph:
    """Replaces a CUDA graph on a CPU: `replay` runs the step on the buffers and writes the results into them."""

    def __init__(self, step: Any, carry: Any, output: Any) -> None:
        self.step, self.carry, self.output = step, carry, output

    def replay(self) -> None:
        after, output = self.step(with_tensors(self.carry, iter([one.clone() for one in tensors(self.carry)])))
        for place, value in zip(tensors((self.carry, self.output)), tensors((after, output))):
            place.copy_(value)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[CapturedGraph[Any, Any]]:
    """Capture steps on a CPU too, with fake graphs; return the list of them."""
    made: list[CapturedGraph[Any, Any]] = []

    def capture(self: Any, key: object, carry: Any) -> CapturedGraph[Any, Any]:
        fixed = with_tensors(carry, iter([one.clone() for one in tensors(carry)]))
        trial = with_tensors(carry, iter([one.clone() for one in tensors(carry)]))
        output = self._step(trial)[1]
        made.append(CapturedGraph(key, FakeGraph(self._step, fixed, output), fixed, output))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(CapturedStep, "can_capture", lambda self, carry: True)
    monkeypatch.setattr(CapturedStep, "_capture", capture)
    return made


def model() -> Any:
    return GptConfig(vocab=11, **SMALL).build().double().eval()


def decoded(decoder: Any, start: Any, first: int, limit: int = 6) -> Any:
    return stream(decoder, start.start(rows=2, capacity=8), torch.tensor([first, first + 1]), greedy, limit, -1)


@pytest.mark.parametrize("config", [GptConfig(vocab=11, **SMALL), BigramConfig(vocab=11)], ids=["gpt", "no tensors"])
def test_searches_one_after_the_other_share_a_graph(config: Any, graphs: list[Any]) -> None:
    one = config.build().eval()
    captured = CapturedDecoder(one)
    for first in (1, 4, 7):
        torch.testing.assert_close(collect(decoded(captured, one, first)), collect(decoded(one, one, first)))
    assert len(graphs) == 1


def test_a_graph_of_inference_mode_is_not_used_outside_of_it(graphs: list[Any]) -> None:
    """torch refuses to write into a tensor of inference mode outside of that mode."""
    gpt = model()
    captured = CapturedDecoder(gpt)
    with torch.inference_mode():
        found = collect(decoded(captured, gpt, 1))
    torch.testing.assert_close(collect(decoded(captured, gpt, 1)), (found[0].clone(), found[1].clone()))
    assert len(graphs) == 2


def test_simultaneous_searches_do_not_disturb_each_other(graphs: list[Any]) -> None:
    gpt = model()
    captured = CapturedDecoder(gpt)
    expected = [collect(decoded(gpt, gpt, first)) for first in (1, 4, 7)]
    both = list(zip(*(decoded(captured, gpt, first) for first in (1, 4, 7))))
    for steps, right in zip(zip(*both), expected):
        assert collect(steps)[0].tolist() == right[0].tolist()
    assert len(graphs) == 3


def test_more_searches_than_kept_graphs(graphs: list[Any]) -> None:
    gpt = model()
    captured, firsts = CapturedDecoder(gpt), range(KEPT_GRAPHS + 3)
    expected = [collect(decoded(gpt, gpt, first))[0].tolist() for first in firsts]
    found = list(zip(*(decoded(captured, gpt, first) for first in firsts)))
    assert [collect(steps)[0].tolist() for steps in zip(*found)] == expected
    assert len(graphs) == len(firsts)  # none of them was captured twice, though all ran at the same time
    assert collect(decoded(captured, gpt, 1))[0].tolist() == expected[1]
    assert len(graphs) == len(firsts)


def test_searches_on_two_streams_share_no_graph(graphs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of two streams run in any order, so one search could overwrite what another still reads."""
    gpt = model()
    captured = CapturedDecoder(gpt)
    for name, made in (("one", 1), ("two", 2), ("one", 2)):
        monkeypatch.setattr("regard.decode.cuda_graph.stream_of", lambda tensor, name=name: name)
        torch.testing.assert_close(collect(decoded(captured, gpt, 1)), collect(decoded(gpt, gpt, 1)))
        assert len(graphs) == made


def test_threads_use_graphs_of_their_own(graphs: list[Any]) -> None:
    gpt = model()
    captured, firsts = CapturedDecoder(gpt), range(8)
    with torch.no_grad():
        expected = [collect(decoded(gpt, gpt, first))[0].tolist() for first in firsts]

    def repeated(first: int) -> bool:
        with torch.no_grad():
            return all(collect(decoded(captured, gpt, first))[0].tolist() == expected[first] for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(repeated, firsts))


def test_a_beam_and_a_sampler_are_captured_too(graphs: list[Any]) -> None:
    config = TransformerConfig(source_vocab=11, target_vocab=11, **SMALL)
    one = config.build().double().eval()
    captured, source = CapturedDecoder(one), torch.randint(1, 11, (3, 5))
    prompt = torch.ones(3, dtype=torch.long)
    for penalty, limit in ((0.0, 5), (1.0, 5), (1.0, 7)):
        found, expected = (
            beam(decoder, one.start(source, None, 3, 8), prompt, 3, limit, 2, penalty) for decoder in (captured, one)
        )
        assert found.tokens.tolist() == expected.tokens.tolist()
        torch.testing.assert_close(found.scores, expected.scores)
    drawn = []
    for decoder in (captured, one):
        pick = Sampler(generator=torch.Generator().manual_seed(5))
        drawn.append(collect(stream(decoder, one.start(source, None, 3, 8), prompt, pick, 8, 2))[0].tolist())
    assert drawn[0] == drawn[1]
    assert len(graphs) >= 4  # three beams and a sampler


@pytest.mark.parametrize("config", [GptConfig(vocab=11, **SMALL), LstmnConfig(vocab=11, width=8, embed=8)], ids=repr)
def test_more_steps_than_were_preallocated_are_refused(graphs: list[Any], config: Any) -> None:
    """A captured step would write behind its buffers."""
    one = config.build().eval()
    captured, token = CapturedDecoder(one), torch.tensor([4])
    state = captured.preallocate(one.start(rows=1, capacity=4), 4)
    for _ in range(4):
        _, state = captured.step(token, state)
    assert graphs
    with pytest.raises(UserError, match="more than the state was preallocated for"):
        captured.step(token, state)
    with pytest.raises(UserError, match="capacity=4"):
        captured.preallocate(one.start(rows=1, capacity=4), 5)


@GPU
@pytest.mark.parametrize("config", [GptConfig(vocab=11, **SMALL), LstmnConfig(vocab=11, width=8, embed=8)], ids=repr)
def test_a_full_cache_on_a_gpu_is_refused_without_a_device_assert(config: Any) -> None:
    one, token = config.build().eval().cuda(), torch.tensor([4], device="cuda")
    state = one.start(rows=1, capacity=2)
    for _ in range(2):
        _, state = one.step(token, state)
    with pytest.raises(UserError, match="capacity=2"):
        one.step(token, state)
    torch.cuda.synchronize()


def test_on_a_cpu_nothing_is_captured() -> None:
    gpt = model()
    captured = CapturedDecoder(gpt)
    assert collect(decoded(captured, gpt, 1))[0].tolist() == collect(decoded(gpt, gpt, 1))[0].tolist()
    logits, _ = captured.step(torch.tensor([1]), gpt.start(rows=1, capacity=4))
    torch.testing.assert_close(logits, gpt.step(torch.tensor([1]), gpt.start(rows=1, capacity=4))[0])


def test_each_key_has_a_captured_step_and_old_ones_are_dropped() -> None:
    captured = CapturedDecoder(model())
    first = captured.capture(0, lambda carry: (carry, None))
    assert captured.capture(0, lambda carry: (carry, 1)) is first
    for key in range(1, KEPT_GRAPHS + 1):
        captured.capture(key, lambda carry: (carry, None))
    assert captured.capture(0, lambda carry: (carry, None)) is not first


@GPU
def test_a_graph_gives_the_tokens_of_the_model() -> None:
    gpt = model().cuda()
    captured = CapturedDecoder(gpt)

    def tokens(decoder: Any, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        prompt = torch.tensor([first, first + 1], device="cuda")
        return stream(decoder, gpt.start(rows=2, capacity=8), prompt, greedy, 6, -1)

    expected = [collect(tokens(gpt, first))[0].tolist() for first in (1, 4, 7)]
    assert [collect(tokens(captured, first))[0].tolist() for first in (1, 4, 7)] == expected
    together = zip(*(tokens(captured, first) for first in (1, 4, 7)))
    assert [collect(one)[0].tolist() for one in zip(*together)] == expected


@GPU
def test_threads_on_a_gpu_use_graphs_of_their_own() -> None:
    """Threads capture while other threads run: every search has the tokens of the model."""
    gpt = model().cuda()
    captured, firsts = CapturedDecoder(gpt), range(8)

    def tokens(decoder: Any, first: int, limit: int) -> list[list[int]]:
        with torch.no_grad():
            start = gpt.start(rows=2, capacity=limit + 2)
            prompt = torch.tensor([first, first + 1], device="cuda")
            return collect(stream(decoder, start, prompt, greedy, limit, -1))[0].tolist()

    lengths = (6, 9, 12)
    expected = [[tokens(gpt, first, limit) for limit in lengths] for first in firsts]

    def repeated(first: int) -> bool:
        return all([tokens(captured, first, limit) for limit in lengths] == expected[first] for _ in range(10))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(repeated, firsts))
