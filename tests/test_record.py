"""Looking never changes the answer, and leaves nothing behind."""

import copy
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.attention import Attention, Memory, MultiHead
from regard.errors import UserError
from regard.mask import CAUSAL, Mask
from regard.record import active_tape, attentions, record, silenced
from regard.scores import SCORES, WINDOWS, Additive, Dot, build_score

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
    with record(nn.Linear(2, 2)) as tape:  # a model without attention has an empty tape, not an error
        pass
    assert len(tape) == 0
    with record(toy, "source") as tape:
        toy(*example)
    with pytest.raises(KeyError, match="source"):
        tape["sauce"]


def test_heads_and_rows_limit_what_is_kept(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    with record(toy) as full:
        toy(*example)
    with record(toy, heads=[2, 0], rows=[4, 1]) as part:
        toy(*example)
    assert torch.equal(part["layers.0.read"], full["layers.0.read"][:, [2, 0]][:, :, [4, 1]])
    assert torch.equal(part["source"], full["source"][:, [4, 1]])  # one head: nothing to choose from


def test_a_row_is_the_same_query_in_steps_and_at_once(toy: Toy, example: tuple[Tensor, Tensor]) -> None:
    x, states = example
    with record(toy, "source", rows=[1, 3]) as at_once:
        toy.source(x, toy.source.memory(states))
    with record(toy, "source", rows=[1, 3]) as in_steps:
        for t in range(5):
            toy.source(x[:, t : t + 1], toy.source.memory(states))
    assert at_once["source"].shape == (2, 2, 7)
    torch.testing.assert_close(in_steps["source"], at_once["source"])


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
        with silenced(toy):
            assert active_tape(toy) is None
            toy(*example)
        assert len(tape) == 0
        with pytest.raises(RuntimeError), silenced(toy):
            raise RuntimeError
        toy(*example)
    assert len(tape.reads["source"]) == 1


def test_an_exception_removes_the_taps(toy: Toy) -> None:
    with pytest.raises(RuntimeError), record(toy):
        toy(torch.randn(1, 2, WIDTH + 1), torch.randn(1, 2, WIDTH))
    assert all(module.tap is None for module in attentions(toy).values())


def test_nothing_is_left_on_the_model(toy: Toy, example: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    before = {name: dict(vars(module)) for name, module in toy.named_modules()}
    with record(toy):
        toy(*example)
        save_file(toy.state_dict(), tmp_path / "inside.safetensors")
    save_file(toy.state_dict(), tmp_path / "outside.safetensors")
    assert (tmp_path / "inside.safetensors").read_bytes() == (tmp_path / "outside.safetensors").read_bytes()
    for name, module in toy.named_modules():
        assert vars(module).keys() == before[name].keys()
        assert vars(module).get("tap") is None
    twin = copy.deepcopy(toy)
    assert all(module.tap is None for module in attentions(twin).values())
    assert torch.equal(twin(*example), toy(*example))


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


def test_look_is_recorded_too() -> None:
    read = Attention(Dot())
    memory = read.memory(torch.randn(2, 6, WIDTH))
    q = torch.randn(2, 3, WIDTH, requires_grad=True)
    with record(read) as tape:
        look = read.look(q, memory)
    assert torch.equal(tape[""], look.weights.detach())
    assert look.weights.requires_grad


def test_beams_are_recorded_as_rows_of_their_own() -> None:
    read = Attention(Dot())
    states, q = torch.randn(2, 6, WIDTH), torch.randn(4, 3, WIDTH)
    with record(read) as shared:
        read(q, read.memory(states))
    with record(read) as own:
        read(q, Memory(*[states.repeat_interleave(2, 0)] * 2))
    assert shared[""].shape == (4, 3, 6)
    torch.testing.assert_close(shared[""], own[""])
