"""What is open on a model belongs to the context that opened it: threads, asyncio tasks, forks, compiled code."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from regard.attention import Attention, MultiHead, weights
from regard.errors import UserError
from regard.layers.transformer import Block
from regard.models import BertConfig, GptConfig
from regard.models.layered import Layered
from regard.readers import edit
from regard.recording import Recorder, record, recorded, watch
from regard.scores import Additive, Dot
from regard.taps import COLLECTING, INTERCEPTING, RECORDING, collected_layers, recomputation
from regard.training.loop import compile_blocks

WIDTH = 8
TOKENS = torch.arange(4, 10).view(2, 3)


def first_key(weights: Tensor) -> Tensor:
    """All weight on the first key."""
    return torch.zeros_like(weights).index_fill(-1, torch.tensor(0), 1.0)


@pytest.fixture
def heads() -> MultiHead:
    torch.manual_seed(0)
    return MultiHead(WIDTH, 2).eval()


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return GptConfig(vocab=12, width=WIDTH, heads=2, layers=2, inner=16, context=8, dropout=0.0).build().eval()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert not any(flag.open for flag in (RECORDING, INTERCEPTING, COLLECTING))


def in_a_thread(function: Callable[[], Any]) -> Any:
    """What the function returns in a new thread, which has an empty context."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_model_that_is_built_without_memory_is_recorded_when_it_has_its_weights(model: Any) -> None:
    with torch.device("meta"):
        empty = model.config.build()
    filled = empty.to_empty(device="cpu").eval()
    filled.load_state_dict(model.state_dict())
    tokens, tapes = torch.tensor([[4, 5, 6]]), []
    for each in (model, filled):
        with record(each) as tape:
            each.features(tokens)
        tapes.append(tape)
    assert list(tapes[0]) == list(tapes[1]) != []
    assert all(torch.equal(tapes[0][name], tapes[1][name]) for name in tapes[0])


# --- threads ------------------------------------------------------------------------------------------------------


def test_other_threads_are_not_edited_or_recorded(heads: MultiHead) -> None:
    x = torch.randn(2, 4, WIDTH)
    plain = heads(x)
    with edit(heads, {"*": first_key}), record(heads) as tape:
        assert torch.equal(in_a_thread(lambda: heads(x)), plain)
        assert len(tape) == 0
        assert in_a_thread(lambda: recorded(heads)) == {}
        edited = heads(x)
    assert not torch.allclose(edited, plain)
    assert torch.equal(tape["read"], first_key(tape["read"]))


def test_threads_record_and_edit_the_same_model_at_the_same_time(heads: MultiHead) -> None:
    """Every thread gets its own weights, its own edit and its own tape, all through the same modules."""
    inputs = [torch.randn(1, 3 + number, WIDTH) for number in range(6)]

    def scaled(factor: float) -> Callable[[Tensor], Tensor]:
        return lambda weights: factor * weights

    def run(number: int) -> tuple[Tensor, Tensor]:
        with edit(heads, {"*": scaled(number)}), record(heads) as tape:
            return heads(inputs[number]), tape["read"]

    expected = [run(number) for number in range(6)]
    start, wrong = threading.Barrier(6), []

    def repeat(number: int) -> None:
        run(number)  # where torch uses several cores, it may round the first product of a thread otherwise
        start.wait()
        for _ in range(200):
            found = run(number)
            if not all(map(torch.equal, found, expected[number])):
                wrong.append(number)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_collect_their_own_layers(model: Any) -> None:
    texts = [torch.randint(4, 12, (1, 2 + number)) for number in range(5)]
    expected = [model.layers(text) for text in texts]

    def run(number: int) -> bool:
        return all(
            len(found) == 3 and all(torch.equal(*pair) for pair in zip(found, expected[number]))
            for found in (model.layers(texts[number]) for _ in range(50))
        )

    with torch.no_grad(), ThreadPoolExecutor(5) as pool:
        assert all(pool.map(run, range(5)))


# --- contexts that are copied ---------------------------------------------------------------------------------------


def test_a_copied_context_has_the_edit_until_its_block_ends(heads: MultiHead) -> None:
    x = torch.randn(2, 4, WIDTH)
    plain = heads(x)
    with edit(heads, {"*": first_key}):
        edited, inside = heads(x), contextvars.copy_context()
        assert torch.equal(inside.run(heads, x), edited)
        assert torch.equal(in_a_thread(lambda: inside.run(heads, x)), edited)
        assert torch.equal(in_a_thread(lambda: heads(x)), plain)
    with edit(heads, {"*": torch.relu}):  # another block, so that modules ask their context
        assert torch.equal(inside.run(heads, x), plain)


def test_asyncio_tasks_have_the_edits_of_the_task_that_creates_them(heads: MultiHead) -> None:
    x = torch.randn(2, 4, WIDTH)
    plain = heads(x)

    async def with_edit(started: asyncio.Event) -> list[Tensor]:
        with edit(heads, {"*": first_key}):
            started.set()
            await asyncio.sleep(0)  # the other task runs
            inner = asyncio.create_task(without(asyncio.Event()))
            return [heads(x), await asyncio.to_thread(heads, x), await inner]

    async def without(started: asyncio.Event) -> Tensor:
        await asyncio.sleep(0)
        return heads(x)

    async def both() -> tuple[list[Tensor], Tensor]:
        started = asyncio.Event()
        task = asyncio.create_task(with_edit(started))
        await started.wait()
        return await task, await without(started)

    edited, outside = asyncio.run(both())
    assert torch.equal(outside, plain)
    assert not torch.allclose(edited[0], plain)
    assert all(torch.equal(one, edited[0]) for one in edited)


def test_blocks_may_end_in_any_order_and_in_another_thread(heads: MultiHead) -> None:
    x = torch.randn(2, 4, WIDTH)
    plain = heads(x)
    outer, inner = edit(heads, {"*": first_key}), edit(heads, {"*": lambda weights: 2 * weights})
    outer.__enter__()
    one = heads(x)
    inner.__enter__()
    outer.__exit__(None, None, None)
    with edit(heads, {"*": lambda weights: 2 * weights}):
        inner.__exit__(None, None, None)
        doubled = heads(x)
    left = edit(heads, {"*": first_key})
    left.__enter__()
    assert torch.equal(heads(x), one)
    in_a_thread(lambda: left.__exit__(None, None, None))
    assert torch.equal(heads(x), plain)
    with edit(heads, {"*": lambda weights: 2 * weights}):
        assert torch.equal(heads(x), doubled)


def test_a_copied_context_keeps_no_tape_of_a_block_that_ended(heads: MultiHead) -> None:
    with record(heads) as tape:
        heads(torch.randn(1, 3, WIDTH))
        inside = contextvars.copy_context()
    left = weakref.ref(tape)
    del tape
    gc.collect()
    assert left() is None
    assert inside is not None


def test_collected_layers_end_in_any_order_and_in_another_thread(model: Any) -> None:
    outer, inner = collected_layers(), collected_layers()
    first, second = outer.__enter__(), inner.__enter__()
    copied = contextvars.copy_context()
    in_a_thread(lambda: outer.__exit__(None, None, None))
    model.features(TOKENS)
    assert (len(first), len(second)) == (0, 3)
    inner.__exit__(None, None, None)
    with collected_layers():  # so that stacks ask their context
        copied.run(model.features, TOKENS)
    assert (len(first), len(second)) == (0, 3)


def test_a_model_that_adds_no_layers_says_what_to_call() -> None:
    class Silent(Layered):
        def features(self, *given: Any) -> Tensor:
            return torch.zeros(1, 3, WIDTH)

    with pytest.raises(UserError, match=r"Silent: adds no states of layers; call regard\.taps\.add_layer"):
        Silent().layers(TOKENS)


def test_watches_end_in_any_order(heads: MultiHead) -> None:
    outer, inner = watch(heads), watch(heads)
    first, second = outer.__enter__(), inner.__enter__()
    outer.__exit__(None, None, None)
    heads(torch.randn(1, 3, WIDTH))
    inner.__exit__(None, None, None)
    assert (len(first.read), len(second.read)) == (0, 1)
    assert heads.read.watchers == ()


def test_first_recordings_in_several_threads() -> None:
    """The operators are registered with torch once; a new process has not registered them yet."""
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
from regard.taps import register_operators
start, errors = threading.Barrier(8), []

def register():
    start.wait()
    try:
        register_operators()
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=register) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(str(errors) if errors else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_models_that_are_built_in_a_mode_of_torch_are_recorded() -> None:
    torch.compiler.reset()
    with torch.inference_mode():
        heads = MultiHead(WIDTH, 2).eval()
    heads.compile(backend="aot_eager")
    with torch.no_grad(), record(heads) as tape:
        heads(torch.randn(1, 3, WIDTH))
    assert len(tape) == 1
    with FakeTensorMode():
        fake = MultiHead(WIDTH, 2)
        with edit(fake, {"*": torch.relu}), record(fake):
            pass
    assert type(fake.read.number_tensor) is Tensor
    torch.compiler.reset()


def test_an_error_in_an_edit_leaves_nothing_behind(heads: MultiHead) -> None:
    x = torch.randn(2, 4, WIDTH)
    plain = heads(x)

    def fails(weights: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), edit(heads, {"*": fails}), record(heads), collected_layers():
        heads(x)
    assert torch.equal(heads(x), plain)


def test_a_copy_of_a_model_is_not_recorded_and_not_edited(model: Any) -> None:
    with torch.no_grad():
        plain = model.features(TOKENS)
        with edit(model, {"*": first_key}), record(model) as tape:
            for copied in (copy.deepcopy(model), copy.copy(model.stack.blocks[0].attention.read)):
                if isinstance(copied, Attention):
                    assert int(copied.number) != int(model.stack.blocks[0].attention.read.number)
                else:
                    assert torch.equal(copied.features(TOKENS), plain)
    assert len(tape) == 0


# --- forks --------------------------------------------------------------------------------------------------------

FORK = """
import os, sys, threading, torch
from regard.attention import MultiHead
from regard.readers import edit
from regard.recording import record
from regard.taps import INTERCEPTING, RECORDING

torch.set_num_threads(1)
heads, x = MultiHead(8, 2).eval(), torch.randn(2, 4, 8)
double = {"*": lambda weights: 2 * weights}
with torch.no_grad():
    plain = heads(x)
    with edit(heads, double):
        edited = heads(x)
    busy, end = threading.Event(), threading.Event()

    def opens():
        while not end.is_set():
            with edit(heads, double), record(heads):
                busy.set()

    threads = [threading.Thread(target=opens) for _ in range(4)]
    for thread in threads:
        thread.start()
    busy.wait()
    for _ in range(20):
        child = os.fork()
        if child == 0:  # the other threads are gone, whatever they had open
            right = torch.equal(heads(x), plain) and not (INTERCEPTING.open or RECORDING.open)
            with edit(heads, double), record(heads) as tape:
                right = right and torch.equal(heads(x), edited) and len(tape) == 1
            os._exit(0 if right and torch.equal(heads(x), plain) else 1)
        assert os.waitpid(child, 0)[1] == 0
    end.set()
    for thread in threads:
        thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_has_what_its_thread_had_open() -> None:
    """Forked while other threads open and close edits: no deadlock, and none of their edits.

    These threads do not run torch, whose own locks a fork may copy while they are held.
    """
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


# --- gradient checkpointing ---------------------------------------------------------------------------------------


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def gradients(
    model: Any, backward: Callable[[Tensor], object], checkpointed: bool, device: str, compiled: bool = False
) -> list[Tensor]:
    """The gradients of a pass whose attention is edited, where the backward pass runs as given."""
    model = copy.deepcopy(model).to(device).train()
    if compiled:
        compile_blocks(model)
    for block in model.modules():
        if isinstance(block, Block):
            block.recomputes = checkpointed
    with edit(model, {"*": lambda weights: weights.roll(1, -1)}):
        loss = model.features(TOKENS.to(device)).square().sum()
    backward(loss)
    return [weight.grad.cpu() for weight in model.stack.parameters()]


@contextmanager
def nothing() -> Iterator[None]:
    yield


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("where", ["after the edit", "in another thread", "in another edit"])
def test_a_repeated_forward_pass_has_the_edits_of_the_first(model: Any, where: str, device: str) -> None:
    """Gradient checkpointing repeats the forward pass in the backward pass; on a GPU, in a thread of autograd."""
    expected = gradients(model, lambda loss: loss.backward(), False, "cpu")

    def backward(loss: Tensor) -> object:
        if where == "in another thread":
            return in_a_thread(loss.backward)
        with edit(model, {"*": first_key}) if where == "in another edit" else nothing():
            return loss.backward()

    for found, wanted in zip(gradients(model, backward, True, device), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_compiled_blocks_repeat_the_edits_of_the_forward_pass(model: Any, device: str) -> None:
    torch.compiler.reset()
    expected = gradients(model, lambda loss: loss.backward(), False, "cpu")
    found = gradients(model, lambda loss: loss.backward(), True, device, compiled=True)
    for one, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(one, wanted, atol=1e-4, rtol=1e-4)
    torch.compiler.reset()


def test_a_repeated_forward_pass_is_not_edited_later(model: Any) -> None:
    """An edit that is opened between the passes belongs to neither of them."""
    model.train()
    for block in model.stack.blocks:
        block.recomputes = True
    model.features(TOKENS).square().sum().backward()
    expected = [weight.grad.clone() for weight in model.stack.parameters()]
    model.zero_grad()
    loss = model.features(TOKENS).square().sum()
    with edit(model, {"*": first_key}):
        loss.backward()
    for weight, wanted in zip(model.stack.parameters(), expected):
        torch.testing.assert_close(weight.grad, wanted)


def test_a_forward_pass_is_repeated_in_each_backward_pass(model: Any) -> None:
    model.train()
    for block in model.stack.blocks:
        block.recomputes = True
    with edit(model, {"*": lambda weights: weights.roll(1, -1)}):
        loss = model.features(TOKENS).square().sum()
    loss.backward(retain_graph=True)
    once = [weight.grad.clone() for weight in model.stack.parameters()]
    loss.backward()
    for weight, wanted in zip(model.stack.parameters(), once):
        torch.testing.assert_close(weight.grad, 2 * wanted)


def test_a_repeated_forward_pass_has_no_edit_of_a_block_that_ended(model: Any) -> None:
    model.train()
    for block in model.stack.blocks:
        block.recomputes = True

    def backward() -> list[Tensor]:
        model.zero_grad()
        model.features(TOKENS).square().sum().backward()
        return [weight.grad.clone() for weight in model.stack.parameters()]

    expected = backward()
    with edit(model, {"*": first_key}):
        copied = contextvars.copy_context()
    for weight, wanted in zip(copied.run(backward), expected):
        torch.testing.assert_close(weight, wanted)


def test_recomputation_keeps_the_edits_of_any_checkpoint(model: Any) -> None:
    model.train()
    expected = gradients(model, lambda loss: loss.backward(), False, "cpu")
    with edit(model, {"*": lambda weights: weights.roll(1, -1)}):
        found = checkpoint(model.features, TOKENS, use_reentrant=False, context_fn=recomputation)
    with collected_layers() as layers:
        found.square().sum().backward()
    for weight, wanted in zip(model.stack.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, wanted)
    assert layers == []


def test_a_repeated_forward_pass_is_watched_once(model: Any) -> None:
    model.train()
    for block in model.stack.blocks:
        block.recomputes = True
    with watch(model) as watched:
        model.features(TOKENS).square().sum().backward()
    assert [len(watcher.read) for watcher in watched.watchers.values()] == [1, 1]


def test_a_repeated_forward_pass_is_recorded_once(model: Any) -> None:
    model.train()
    for block in model.stack.blocks:
        block.recomputes = True
    with record(model) as tape:
        model.features(TOKENS).square().sum().backward()
    assert [len(reads) for reads in tape.reads.values()] == [1, 1]


def test_weights_are_watched_where_the_forward_pass_is_repeated() -> None:
    """The repeated pass reads by the definition too, though nothing watches it any more."""
    found, tokens = [], torch.randint(4, 12, (4, 40))
    model = GptConfig(vocab=12, width=64, heads=2, layers=2, inner=16, context=64, dropout=0.0).build()
    for checkpointed in (False, True):
        again = copy.deepcopy(model).train()
        for block in again.stack.blocks:
            block.recomputes = checkpointed
        with watch(again) as watched:
            features = again.features(tokens)
        entropy = sum(torch.special.entr(watched.weights[name]).sum() for name in watched.weights)
        (features.square().sum() + entropy).backward()
        found.append([weight.grad for weight in again.stack.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


# --- compiled code ------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(model: Any) -> Iterator[Any]:
    torch.compiler.reset()
    for block in model.stack.blocks:
        block.compile(backend="eager")
    yield model
    torch.compiler.reset()


def test_compiled_blocks_are_edited_and_observed_as_others(compiled: Any) -> None:
    """Whatever the number of edits, the block is not compiled again for each."""
    plain_model = copy.deepcopy(compiled)
    for block in plain_model.stack.blocks:
        block._compiled_call_impl = None
    with torch.no_grad():
        plain = compiled.features(TOKENS)
        for factor in range(12):
            change = {"*": lambda weights, factor=factor: factor * weights}
            with edit(plain_model, change):
                expected = plain_model.features(TOKENS)
            with edit(compiled, change), record(compiled) as tape:
                assert torch.equal(compiled.features(TOKENS), expected)
                if factor == 0:
                    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            assert len(tape) == 2
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
        assert torch.equal(compiled.features(TOKENS), plain)


def test_compiled_blocks_in_other_threads_are_not_edited(compiled: Any) -> None:
    with torch.no_grad():
        plain = compiled.features(TOKENS)
        with edit(compiled, {"*": first_key}), record(compiled) as tape:
            torch.testing.assert_close(in_a_thread(lambda: compiled.features(TOKENS)), plain)
    assert len(tape) == 0


class Whole(nn.Module):
    """A model whose forward pass is its features, to be compiled whole."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.features(tokens)


@pytest.mark.skipif(
    torch.__version__ < "2.12", reason="the compiler of torch 2.11 takes no mask as the default of an argument"
)
def test_a_whole_model_without_breaks_is_recorded() -> None:
    """Recording breaks no graph, in this thread or in another one."""
    torch.compiler.reset()
    whole = Whole(BertConfig(vocab=12, width=WIDTH, heads=2, layers=2, inner=16, context=8, dropout=0.0).build()).eval()
    with torch.no_grad():
        with record(whole) as expected:
            plain = whole(TOKENS)
        whole.compile(fullgraph=True, backend="eager")
        with record(whole) as tape:
            assert torch.equal(whole(TOKENS), plain)
            assert torch.equal(in_a_thread(lambda: whole(TOKENS)), plain)
        assert torch.equal(whole(TOKENS), plain)
    assert tape.names() == expected.names()
    assert all(torch.equal(tape[name], expected[name]) for name in tape)
    torch.compiler.reset()


@pytest.mark.parametrize("recording", [False, True], ids=["plain", "recorded"])
def test_compiled_blocks_are_trained_with_checkpoints(model: Any, recording: bool) -> None:
    torch.compiler.reset()
    model.train()
    model.features(TOKENS).square().sum().backward()
    expected = [weight.grad.clone() for weight in model.stack.parameters()]
    model.zero_grad()
    for block in model.stack.blocks:
        block.recomputes = True
        block.compile(backend="aot_eager")
    with record(model) if recording else nullcontext() as tape:
        model.features(TOKENS).square().sum().backward()
    for weight, wanted in zip(model.stack.parameters(), expected):
        torch.testing.assert_close(weight.grad, wanted)
    assert tape is None or [len(reads) for reads in tape.reads.values()] == [1, 1]
    torch.compiler.reset()


@contextmanager
def compiling(compiled: Any, backend: Callable[[], object]) -> Iterator[threading.Thread]:
    """Inside this block, another thread compiles the blocks of a model; ``backend`` is called as it compiles."""
    torch.compiler.reset()
    started = threading.Event()

    def compiler(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        started.set()
        backend()
        return graph.forward

    def run() -> None:
        with torch.no_grad():
            compiled.features(TOKENS)

    for block in compiled.stack.blocks:
        block.compile(backend=compiler)
    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    yield thread
    thread.join()


def test_other_threads_do_as_always_while_one_compiles(model: Any) -> None:
    """torch.compiler.is_compiling is true in all threads while one compiles.

    Something is open from the start, since the first to open something waits for the compilation.
    """
    other, additive, long = copy.deepcopy(model), Attention(Additive(4, 4, 4)), torch.randn(1, 40, 4)
    trained = copy.deepcopy(model).train()
    for block in trained.stack.blocks:
        block.recomputes = True

    def work() -> list[Tensor]:
        with torch.no_grad(), edit(other, {"*": first_key}), record(other) as tape:
            found = [*other.layers(TOKENS), *(tape[name] for name in tape)]
        found.append(additive(long, additive.memory(long)))  # in blocks
        with edit(trained, {"*": lambda weights: weights.roll(1, -1)}):
            loss = trained.features(TOKENS).square().sum()
        trained.zero_grad()
        loss.backward()
        return [*found, *(weight.grad.clone() for weight in trained.stack.parameters())]

    alone, ended, unrelated = work(), threading.Event(), Attention(Dot())
    with edit(unrelated, {"*": first_key}), record(unrelated), collected_layers(), compiling(model, ended.wait):
        try:
            together = work()
        finally:
            ended.set()
    assert all(torch.equal(*pair) for pair in zip(alone, together, strict=True))
    torch.compiler.reset()


@pytest.mark.parametrize("open_", [lambda other: edit(other, {"*": first_key}), record, watch])
def test_nothing_opens_in_the_middle_of_a_compilation(model: Any, open_: Callable[..., Any]) -> None:
    """The compiler would take the program that it has traced for the right one whenever the same is open."""
    plain = copy.deepcopy(model)
    other = model if open_ is watch else copy.deepcopy(model)
    compiles, ended = threading.Event(), threading.Event()

    def opens() -> None:
        compiles.wait()
        with open_(other):
            ended.wait()

    thread = threading.Thread(target=opens)
    thread.start()

    def slow() -> None:
        compiles.set()
        thread.join(0.3)  # it has the time to open something, if it does not wait

    with compiling(model, slow) as run:
        run.join()
        ended.set()
        thread.join()
    with torch.no_grad():
        with record(model) as tape:
            model.features(TOKENS)
        with watch(model) as watched:
            model.features(TOKENS)
        with edit(plain, {"*": first_key}):
            edited = plain.features(TOKENS)
        with edit(model, {"*": first_key}):
            assert torch.equal(model.features(TOKENS), edited)
    assert len(tape) == len(watched.read) == 2
    torch.compiler.reset()


def test_compiled_code_computes_no_weights_for_others(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread records, the model computes weights in this thread alone."""
    reads = []
    record_read = Recorder.record_read
    monkeypatch.setattr(Recorder, "record_read", lambda self, *given: (reads.append(self), record_read(self, *given)))
    monkeypatch.setattr("regard.recording.weights", lambda *given: (reads.append("weights"), weights(*given))[1])
    with torch.no_grad(), record(compiled) as tape:
        in_a_thread(lambda: compiled.features(TOKENS))
        assert reads == []
        compiled.features(TOKENS)
    assert len(tape) == 2
    assert len(reads) == 4


@pytest.mark.parametrize("positions", ["learned", "t5", "relative", "xl"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
def test_compiled_blocks_record_what_others_do(positions: str, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setattr("regard.layers.transformer.AT_ONCE", 1)  # the bias of T5 is then a function of the positions
    config = GptConfig(vocab=12, width=WIDTH, heads=2, layers=2, inner=16, context=8, positions=positions)
    model = config.build().eval()
    real = torch.tensor([[True, True, True], [True, True, False]])
    tapes = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        for _ in range(2):
            with record(model, rows=[1, 2]) as tape:
                model.features(TOKENS, real)
            tapes.append(tape)
            for block in model.stack.blocks:
                block.compile(backend="aot_eager", fullgraph=True)
    eager, compiled = tapes
    assert eager.names() == compiled.names()
    tolerance = 1e-2 if half else 1e-6  # the keys and queries of the compiled block may be rounded otherwise
    for name in eager:
        torch.testing.assert_close(compiled[name], eager[name], atol=tolerance, rtol=tolerance)
    torch.compiler.reset()


def test_compiled_code_collects_layers() -> None:
    torch.compiler.reset()
    whole = Whole(BertConfig(vocab=12, width=WIDTH, heads=2, layers=2, inner=16, context=8, dropout=0.0).build()).eval()
    with torch.no_grad():
        expected = whole.model.layers(TOKENS)
        whole.compile(backend="eager")
        whole(TOKENS)
        with collected_layers() as found:
            whole(TOKENS)
    assert len(found) == len(expected) == 3
    assert all(torch.equal(*pair) for pair in zip(found, expected))
    torch.compiler.reset()


def test_a_watched_read_is_one_read_of_the_tape() -> None:
    attention = Attention(Dot())
    q, memory = torch.randn(2, 3, 4), attention.memory(torch.randn(2, 5, 4))
    with watch(attention) as watched, record(attention) as tape:
        attention(q, memory)
    assert torch.equal(watched.read[""], tape[""])
    assert len(tape.reads[""]) == 1
