"""Looking never changes the answer, and leaves nothing behind."""

import copy
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, Memory, MultiHead, weights
from regard.errors import UserError
from regard.layers.transformer import Shape, Stack
from regard.mask import CAUSAL, Mask
from regard.recording import Tape, active_tape, attentions, pause_recording, record, recorded
from regard.scores import SCORES, WINDOWS, Additive, Dot, build_score
from regard.taps import RECORDING

WIDTH, HEADS = 8, 4


class Toy(nn.Module):
    """Two layers of heads and a single-headed read of a source on top."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MultiHead(WIDTH, HEADS, dropout=dropout) for _ in range(2))
        self.source = Attention(Additive(WIDTH, WIDTH, WIDTH), dropout)

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, mask=CAUSAL)
        return self.source(x, self.source.memory(states))


NAMES = ["layers.0.read", "layers.1.read", "source"]


@pytest.fixture
def toy() -> Toy:
    torch.manual_seed(0)
    return Toy()


@pytest.fixture
def example() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH)


@pytest.mark.parametrize("training", [True, False])
def test_outputs_and_gradients_are_bit_equal(training: bool, example: tuple[Tensor, Tensor]) -> None:
    toy = Toy(dropout=0.3).train(training)
    results = []
    for recording in (False, True):
        torch.manual_seed(1)  # of the dropout
        if recording:
            with record(toy) as tape:
                out = toy(*example)
            assert tape.names() == NAMES
        else:
            out = toy(*example)
        results.append((out, *torch.autograd.grad(out.square().sum(), list(toy.parameters()))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_names_are_module_paths_and_shapes_are_reads(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    assert list(attentions(toy)) == NAMES
    with record(toy) as tape, torch.no_grad():
        toy(*example)
    assert list(tape) == tape.names() == NAMES
    assert len(tape) == 3
    assert tape["layers.0.read"].shape == (2, HEADS, 5, 5)
    assert tape["source"].shape == (2, 5, 7)
    assert all(tape[name].dtype == torch.float32 and not tape[name].requires_grad for name in tape)
    assert all(tape[name].sum(-1).allclose(torch.ones(())) for name in tape)
    assert (tape["layers.1.read"].triu(1) == 0).all()


@pytest.mark.parametrize(("pattern", "names"), [("layers.*", NAMES[:2]), ("*.1.*", NAMES[1:2]), ("source", NAMES[2:])])
def test_a_pattern_chooses(pattern: str, names: list[str], toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with record(toy, pattern) as tape:
        toy(*example)
    assert tape.names() == names


def test_a_pattern_that_matches_nothing_is_refused(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with (
        pytest.raises(UserError, match=r'no attention module matches \'sourse\'.*Did you mean "source"'),
        record(toy, "sourse"),
    ):
        pass
    with pytest.raises(UserError, match="record: Linear has no attention module of Regard"), record(nn.Linear(2, 2)):
        pass
    with record(toy, "source") as tape:
        toy(*example)
    with pytest.raises(KeyError, match="source"):
        tape["sauce"]


def test_heads_and_rows_limit_what_is_kept(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with record(toy) as full:
        toy(*example)
    with record(toy, heads=[2, 0], rows=[4, 1]) as part:
        toy(*example)
    assert torch.equal(part["layers.0.read"], full["layers.0.read"][:, [2, 0]][:, :, [1, 4]])
    assert torch.equal(part["source"], full["source"][:, [1, 4]])  # one head: nothing to choose from


@pytest.mark.parametrize("rows", [[1, 3], [3, 1], [4], None])
def test_a_row_is_the_same_query_in_steps_in_parts_and_at_once(
    rows: list[int] | None, toy: Toy, example: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tape has its rows in one order, or captions would stand beside the wrong ones."""
    x, states = example
    with record(toy, "source", rows=rows) as at_once:
        toy.source(x, toy.source.memory(states))
    with record(toy, "source", rows=rows) as in_steps:
        for t in range(5):
            toy.source(x[:, t : t + 1], toy.source.memory(states))
    monkeypatch.setattr(sys.modules["regard.recording"], "CHUNK", 2 * 2 * 7)  # two queries of two rows
    with record(toy, "source", rows=rows) as in_parts:
        toy.source(x, toy.source.memory(states))
    assert at_once["source"].shape == (2, 5 if rows is None else len(rows), 7)
    torch.testing.assert_close(in_steps["source"], at_once["source"])
    torch.testing.assert_close(in_parts["source"], at_once["source"])


def test_a_head_that_does_not_exist_is_named(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(UserError, match=r"heads=\[9\].*layers\.0\.read.*0 to 3"), record(toy, heads=[9]):
        toy(*example)


def test_an_inner_record_takes_over_until_it_ends(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with record(toy) as outer:
        toy(*example)
        assert active_tape(toy) is outer
        with record(toy, "source") as inner:
            toy(*example)
        toy(*example)
    assert len(inner.reads["source"]) == 1
    assert len(outer.reads["source"]) == 2
    assert len(outer.reads["layers.0.read"]) == 3  # the inner one did not ask for it
    assert active_tape(toy) is None


def test_silenced(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with record(toy) as tape:
        with pause_recording(toy):
            assert active_tape(toy) is None
            toy(*example)
        assert len(tape) == 0
        with pytest.raises(RuntimeError), pause_recording(toy):
            raise RuntimeError
        toy(*example)
    assert len(tape.reads["source"]) == 1


def test_an_exception_removes_the_taps(toy: Toy) -> None:
    with pytest.raises(RuntimeError), record(toy):
        toy(torch.randn(1, 2, WIDTH + 1), torch.randn(1, 2, WIDTH))
    assert recorded(toy) == {}
    assert not RECORDING.open


def test_nothing_is_left_on_the_model(toy: Toy, example: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    before = {name: dict(vars(module)) for name, module in toy.named_modules()}
    with record(toy) as tape:
        toy(*example)
        assert all(vars(module) == before[name] for name, module in toy.named_modules())
        inside = copy.deepcopy(toy)
        inside(*example)
        assert [len(tape.reads[name]) for name in tape] == [1] * len(tape)
        save_file(toy.state_dict(), tmp_path / "inside.safetensors")
    save_file(toy.state_dict(), tmp_path / "outside.safetensors")
    assert (tmp_path / "inside.safetensors").read_bytes() == (tmp_path / "outside.safetensors").read_bytes()
    assert torch.equal(inside(*example), toy(*example))


def test_weights_on_the_tape_are_before_dropout(example: tuple[Tensor, Tensor]) -> None:
    toy = Toy(dropout=0.5)
    x, states = example
    with record(toy, "source") as trained:
        toy.source(x, toy.source.memory(states))
    with record(toy.eval(), "source") as evaluated:
        toy.source(x, toy.source.memory(states))
    assert torch.equal(trained["source"], evaluated["source"])
    assert (trained["source"] > 0).all()


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(("name", "narrowed"), list(product(SCORES, WINDOWS)))
def test_recorded_weights_at_values_are_the_read(name: str, narrowed: str, gradient: bool) -> None:
    read = Attention(build_score(name, WIDTH, 9, narrowed, radius=2))
    real = torch.arange(6) < torch.tensor([[6], [4], [0]])  # the last row has nothing to read
    states, q = torch.randn(3, 6, WIDTH), torch.randn(3, 4, WIDTH)
    with record(read) as tape, torch.set_grad_enabled(gradient):
        memory = read.memory(states, real)
        context = read(q, memory, Mask(window=4))
    seen = tape[""]
    torch.testing.assert_close(seen @ states, context.detach())
    sums = seen.sum(-1)
    assert (sums[2] == 0).all()
    assert (seen[1, :, 4:] == 0).all()
    if narrowed == "local-p":
        assert (sums <= 1 + 1e-6).all()
    else:
        assert ((sums - 1).abs().lt(1e-6) | (sums == 0)).all()


@pytest.mark.parametrize(
    ("given", "kept"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
)
def test_no_digits_are_lost_on_the_tape(given: torch.dtype, kept: torch.dtype) -> None:
    read = Attention(Dot())
    with record(read) as tape:
        context = read(torch.randn(2, 3, WIDTH, dtype=given), read.memory(states := torch.randn(2, 6, WIDTH).to(given)))
    assert tape[""].dtype == kept
    if given == torch.float64:
        torch.testing.assert_close(tape[""] @ states, context, atol=1e-12, rtol=0)


def test_reads_that_do_not_join_are_refused_by_name(toy: Toy) -> None:
    with record(toy, "source") as tape:
        for rows, length in ((2, 7), (2, 7), (3, 7), (2, 4)):
            toy.source(torch.randn(rows, 5, WIDTH), toy.source.memory(torch.randn(rows, length, WIDTH)))
    with pytest.raises(UserError, match=r"tape\['source'\].*\(2, 5, 7\) and \(3, 5, 7\) and \(2, 5, 4\).*tape\.reads"):
        tape["source"]
    assert [read.shape for read in tape.reads["source"]] == [(2, 5, 7), (2, 5, 7), (3, 5, 7), (2, 5, 4)]


def test_unrelated_reads_are_not_taken_for_a_past_that_grew(toy: Toy) -> None:
    """Three queries more and three keys more: as if the second read went on after the first."""
    with record(toy) as tape:
        for queries, keys in ((4, 5), (3, 8)):
            toy(torch.randn(1, queries, WIDTH), torch.randn(1, keys, WIDTH))
    for name, one, other in (("source", (1, 4, 5), (1, 3, 8)), ("layers.0.read", (1, 4, 4, 4), (1, 4, 3, 3))):
        with pytest.raises(UserError, match="record one batch at a time") as refused:
            tape[name]
        assert f"{one} and {other}" in str(refused.value)


@pytest.mark.parametrize("rows", [None, [0, 4]])
@pytest.mark.parametrize("capacity", [5, 9])
@pytest.mark.parametrize("pieces", [[5], [2, 2, 1], [3, 1, 1]], ids=str)
def test_a_past_that_grows_is_one_square(pieces: list[int], capacity: int, rows: list[int] | None) -> None:
    """However it is read, and whether a read sees as many slots as are filled or all of them."""
    read, states = Attention(Dot()), torch.randn(2, 5, WIDTH)
    whole = weights(read.score, states, states, CAUSAL)[:, slice(None) if rows is None else rows]
    for reach in (lambda end: end, lambda end: capacity):
        with record(read, rows=rows) as tape:
            for at in torch.arange(5).split(pieces):
                first, keys = int(at[0]), reach(int(at[-1]) + 1)
                slots = F.pad(states, (0, 0, 0, capacity - 5))[:, :keys]
                if first == 0:  # nothing was there before: positions go without saying
                    read(states[:, at], Memory(states[:, at], states[:, at]), CAUSAL)
                else:
                    read(states[:, at], Memory(slots, slots), CAUSAL, at, torch.arange(keys))
        torch.testing.assert_close(tape[""][..., :5], whole)
        assert (tape[""][..., 5:] == 0).all()


def test_a_past_that_grows_is_one_square_in_compiled_code() -> None:
    torch.compiler.reset()
    read, states, at = Attention(Dot()), torch.randn(2, 5, WIDTH), torch.arange(5)
    read.compile(fullgraph=True, backend="eager")
    with torch.no_grad(), record(read) as tape:
        for some in at.split([2, 2, 1]):
            past = states[:, : some[-1] + 1]
            read(states[:, some], Memory(past, past), CAUSAL, some, at[: some[-1] + 1])
    torch.testing.assert_close(tape[""], weights(read.score, states, states, CAUSAL))


def test_a_second_text_is_not_the_first_one_going_on() -> None:
    read, states, at = Attention(Dot()), torch.randn(1, 6, WIDTH), torch.arange(6)
    with record(read) as tape:
        read(states[:, :2], Memory(states[:, :2], states[:, :2]), CAUSAL, at[:2], at[:2])
        read(states[:, 3:], Memory(states, states), CAUSAL, at[3:], at)  # from the fourth on: the third is missing
    with pytest.raises(UserError, match=r"\(1, 2, 2\) and \(1, 3, 6\)"):
        tape[""]


@pytest.mark.parametrize("name", SCORES)
def test_a_read_of_which_no_row_was_asked_for_leaves_none(name: str) -> None:
    read = Attention(build_score(name, WIDTH, 9))
    with record(read, rows=[7]) as tape:
        for queries in (3, 5):
            read(torch.randn(2, queries, WIDTH), read.memory(torch.randn(2, 6, WIDTH)), Mask(keys=torch.ones(2, 6) > 0))
    assert [one.shape for one in tape.reads[""]] == [(2, 0, 6), (2, 1, 6)]


def test_look_is_recorded_too() -> None:
    read = Attention(Dot())
    memory = read.memory(torch.randn(2, 6, WIDTH))
    q = torch.randn(2, 3, WIDTH, requires_grad=True)
    with record(read) as tape:
        look = read.look(q, memory)
    assert torch.equal(tape[""], look.weights.detach())
    assert look.weights.requires_grad


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"rows": [-1]}, r"rows=\[-1\]: rows count from 0"),
        ({"rows": [4, 5]}, r"rows=\[4, 5\]: the tape has rows 0 to 4"),
        ({"rows": [9, 7]}, r"rows=\[7, 9\]: the tape has rows 0 to 4"),
        ({"rows": 1}, r"rows=1: give a list of numbers, such as rows=\[0\]"),
        ({"heads": 1}, r"heads=1: give a list of numbers, such as heads=\[0\]"),
        ({"heads": [-7]}, r"heads=\[-7\]: 'layers.0.read' has heads 0 to 3"),
        ({"heads": [4]}, r"heads=\[4\]: 'layers.0.read' has heads 0 to 3"),
    ],
)
def test_heads_and_rows_that_do_not_exist_are_refused(
    limit: dict[str, list[int]], message: str, toy: Toy, example: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(UserError, match=message), record(toy, **limit):
        toy(*example)
    assert active_tape(toy) is None


def test_a_tape_has_the_numbers_of_its_heads_and_layers(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with record(toy, ["layers.1.*", "source"], heads=[3, -3]) as tape:
        toy(*example)
    assert tape.heads == {"layers.1.read": [3, 1]}  # the source has one head: nothing to choose from
    assert tape.layer_number("layers.1.read") == 1
    assert tape.layer_number("source") is None


def test_layers_that_share_blocks_are_numbered_in_the_order_of_their_reads() -> None:
    shape = Shape(width=4, heads=2, layers=2, inner=4, groups=1, group_blocks=2)
    stack = Stack(shape, causal=False)
    with record(stack) as tape:
        stack(torch.randn(1, 3, 4))
    assert tape.names() == [f"blocks.{block}.attention.read[{turn}]" for turn in range(2) for block in range(2)]
    assert [tape.layer_number(name) for name in tape] == [0, 1, 2, 3]
    with record(stack, "blocks.1.*") as tape:
        stack(torch.randn(1, 3, 4))
    assert [tape.modules.index(name) for name in tape] == [tape.layer_number(name) for name in tape] == [2, 3]


@pytest.mark.parametrize("reader", [None, nn.Identity()])
def test_only_reads_of_a_cache_continue_a_text(reader: nn.Module | None) -> None:
    attention, states = Attention(Dot(), reader=reader), torch.randn(1, 3, 2)
    memory, at = attention.memory(states), torch.arange(3)
    for k_at, continues in ((None, [False, False, False]), (at, [False, True, False])):
        with record(attention) as tape:
            for here in (at[:2], at[2:], at[:1]):  # the last read begins another text
                attention(states[:, here], memory, q_at=here, k_at=k_at)
        assert tape.continues == {"": continues}


def test_an_empty_tape_is_named() -> None:
    with pytest.raises(KeyError, match="the tape is empty"):
        Tape()["layers.0.read"]
