"""Two ranks are one rank that accumulates twice as much: the same run, stopped, resumed or bereft of a rank."""

import json
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.checkpoint import read_pointer, resolve, set_pointer
from regard.data.batches import Batches
from regard.errors import UserError
from regard.file_io import load_tensors
from regard.recipes import KINDS, Recipe, change, find_recipe
from regard.training import evaluate as evaluate_module
from regard.training import run as run_module
from regard.training.events import Evaluated, Finished, Saved
from regard.training.parallel import ALONE, MESSAGE, RankLost, Ranks, _group_messages, join_ranks
from regard.training.run import Run

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["regard.training.run", "torch._dynamo"])  # so that a process starts in no time


# -- what a rank does in a process of its own --------------------------------------------------------------------------


def _run(ranks: Ranks, recipe: Recipe, out: Path, existing: str) -> list[Any]:
    """Train a recipe; return the batches that were read and the events."""
    read = []
    batch = Batches.batch

    def reading(batches: Batches, number: int) -> Any:
        read.append(number)
        return batch(batches, number)

    Batches.batch = reading  # type: ignore[method-assign]
    try:
        run = Run(recipe, out, existing, ranks=ranks)  # type: ignore[arg-type]
        events = list(run)
    except KeyboardInterrupt:
        return ["interrupted"]
    except RankLost as error:
        return [str(error), ranks.claim_output()]
    loss_module = sum(isinstance(event, Evaluated) for event in events)
    weights = [weight.tolist() for weight in run.model.parameters()]
    return [read, loss_module, isinstance(events[-1], Finished), weights]


def _until_step_4(ranks: Ranks, recipe: Recipe, out: Path, existing: str) -> list[Any]:
    """The same, stopped after step 4 is saved."""
    run = Run(recipe, out, existing, ranks=ranks)  # type: ignore[arg-type]
    return [next(event.step for event in run if isinstance(event, Saved) and event.step == 4)]


def _pressed(ranks: Ranks, recipe: Recipe, out: Path, existing: str) -> list[Any]:
    """The same, with Ctrl-C on the second rank only, in the middle of step 5."""
    _at_step_5(ranks, lambda: signal.raise_signal(signal.SIGINT))
    return _run(ranks, recipe, out, existing)


def _pressed_while_judging(ranks: Ranks, recipe: Recipe, out: Path, existing: str) -> list[Any]:
    """The same, with SIGTERM on the first rank while all evaluate."""

    def stop(*given: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)

    if ranks.first:
        evaluate_module.grouped = stop  # type: ignore[assignment]
    return _run(ranks, recipe, out, existing)


def _slow_to_write(ranks: Ranks, recipe: Recipe, out: Path, existing: str) -> list[Any]:
    """The same, with a first rank that needs a while to write which step is the best one."""

    def late(*given: Any) -> None:
        time.sleep(0.3)
        set_pointer(*given)

    if ranks.first:
        run_module.set_pointer = late  # type: ignore[attr-defined]
    return _run(ranks, recipe, out, existing)


def _killed(ranks: Ranks, recipe: Recipe, out: Path, existing: str) -> list[Any]:
    """The same, with the second rank killed in the middle of step 5."""
    _at_step_5(ranks, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return _run(ranks, recipe, out, existing)


def _full(ranks: Ranks, recipe: Recipe, out: Path, existing: str) -> list[Any]:
    """The same, with the second rank out of memory at step 5."""

    def full() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    _at_step_5(ranks, full)
    try:
        return _run(ranks, recipe, out, existing)
    except UserError as error:
        return [str(error), ranks.claim_output()]


def _at_step_5(ranks: Ranks, act: Callable[[], None]) -> None:
    batch = Batches.batch

    def acting(batches: Batches, number: int) -> Any:
        if number // 2 == 4 and not ranks.first:
            act()
        return batch(batches, number)

    Batches.batch = acting  # type: ignore[method-assign]


def _messages_of_all_kinds(ranks: Ranks) -> list[Any]:
    tensors = [torch.full((3, 2), 1.0 + ranks.rank), torch.tensor([10.0**ranks.rank], dtype=torch.float64)]
    ranks.all_reduce(tensors)
    copied = torch.tensor([float(ranks.rank), 7.0 - ranks.rank])
    ranks.broadcast_tensors([copied])
    same = [ranks.agree(2**40), ranks.agree(ranks.rank)]
    claims = ranks.sum([ranks.claim_output()])
    received = ranks.broadcast([ranks.rank + 5.0])
    return [[tensor.tolist() for tensor in tensors], copied.tolist(), same, claims, received]


def _enter(rank: int, port: int, results: Any, what: Callable[..., list[Any]], given: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join_ranks() as ranks:
        results.send(what(ranks, *given))


def _both(what: Callable[..., list[Any]], *given: Any) -> list[Any]:
    """What each of two ranks answers; None from one that died."""
    with socket.socket() as held:  # bound, so that no other process gets the port; a rank may still listen on it
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        pipes = [SPAWN.Pipe(duplex=False) for _ in range(2)]
        processes = [SPAWN.Process(target=_enter, args=(rank, port, pipes[rank][1], what, given)) for rank in range(2)]
        for process in processes:
            process.start()
        for _, sender in pipes:
            sender.close()
        answers = []
        for process, (receiver, _) in zip(processes, pipes):
            try:
                answers.append(receiver.recv() if receiver.poll(600) else pytest.fail("a rank hangs"))
            except EOFError:
                answers.append(None)
            process.join(600)
    return answers


# -- the tests ---------------------------------------------------------------------------------------------------------


def _weights(out: Path) -> dict[str, torch.Tensor]:
    return load_tensors(resolve(out, ("latest",)) / "weights.safetensors")


def _close(one: Path, other: Path) -> None:
    ours, theirs = _weights(one), _weights(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)


def _tensors(out: Path) -> list[dict[str, torch.Tensor]]:
    """The weights of the last step, and the state of its trainer with the carried states."""
    folder = resolve(out, ("latest",))
    return [load_tensors(folder / name) for name in ("weights.safetensors", "training/trainer.safetensors")]


def _told(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "settings",
    [
        ("model.dropout=0", "plan.optimizer=sgd", "plan.clip=0.01"),
        pytest.param(("model.dropout=0.3",), marks=pytest.mark.slow),
    ],
)
def test_two_ranks_are_one_that_accumulates_twice_as_much(recipe, tmp_path, settings):
    """An odd number of batches an epoch, dropout, gradients that are clipped: none makes a difference."""
    two, one = (recipe(*settings, "plan.batch_tokens=200", f"plan.accumulate={count}") for count in (1, 2))
    ours, theirs = _both(_run, two, tmp_path / "two", "refuse")
    (read, loss_module, done, weights), (also_read, also, also_done, also_weights) = ours, theirs
    assert weights == also_weights  # to the last bit
    assert (read, also_read) == (list(range(0, 16, 2)), list(range(1, 16, 2)))
    assert (loss_module, also, done, also_done) == (2, 2, True, True)
    run = Run(one, tmp_path / "one")
    assert len(run.prepared.batches) % 2 == 1
    list(run)
    ours, theirs = _weights(tmp_path / "two"), _weights(tmp_path / "one")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)
    times = dict.fromkeys(("seconds", "training", "tokens_per_second"))
    assert [told | times for told in _told(tmp_path / "two")] == [told | times for told in _told(tmp_path / "one")]


@pytest.mark.parametrize("model", ["lstm", pytest.param("xl", marks=pytest.mark.slow)])
def test_two_ranks_carry_the_states_of_one_that_accumulates_twice_as_much(running, tmp_path, model):
    """One rank also goes on where two stopped, and two where one stopped: the same run, to the last bit."""
    shared = ("plan.batch_tokens=32", "data.window=4", f"data.valid={tmp_path / 'text.txt'}")  # two lanes to evaluate
    two, one = (running(model, *shared, f"plan.accumulate={count}") for count in (1, 2))
    ours, theirs = _both(_run, two, tmp_path / "two", "refuse")
    assert ours[1:] == theirs[1:]
    list(Run(one, tmp_path / "one"))
    times = dict.fromkeys(("seconds", "training", "tokens_per_second"))
    assert [told | times for told in _told(tmp_path / "two")] == [told | times for told in _told(tmp_path / "one")]
    _both(_until_step_4, two, tmp_path / "from-two", "refuse")
    list(Run(one, tmp_path / "from-two", "resume"))
    _until_step_4(ALONE, one, tmp_path / "from-one", "refuse")
    _both(_run, two, tmp_path / "from-one", "resume")
    for run in ("two", "from-two", "from-one"):
        assert read_pointer(tmp_path / run, "latest") == "000008"
        for ours, theirs in zip(_tensors(tmp_path / run), _tensors(tmp_path / "one")):
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_all_ranks_start_from_the_same_step_of_the_language_model(tmp_path):
    """With plan.tune_lm, no rank reads the best step of the first stage before the first rank has written it."""
    lines = [f"{('good', 'bad')[n % 2]}\tthe {('fine', 'poor')[n % 2]} cat sat on {n % 5}\n" for n in range(40)]
    (tmp_path / "labelled.tsv").write_text("".join(lines))
    settings = [
        *(f"data.{part}={tmp_path / 'labelled.tsv'}" for part in ("train", "valid")),
        *("model=lstm", "model.width=8", "model.embed=8", "model.layers=1", "plan.tune_lm=4", "plan.steps=2"),
        *("plan.batch_tokens=64", "plan.rate=0.01", "plan.warmup=0", "plan.evaluate=4", "plan.device=cpu"),
    ]
    ours, theirs = _both(_slow_to_write, change(find_recipe("classify"), settings, KINDS), tmp_path / "run", "refuse")
    assert ours[1:] == theirs[1:]  # the weights, to the last bit


def test_each_rank_may_have_several_lanes(running, tmp_path):
    """Gradients of four lanes are added in another order on two ranks, so the numbers agree to a rounding error."""
    two, one = (running("lstm", "plan.batch_tokens=32", f"plan.accumulate={count}") for count in (2, 4))
    _both(_until_step_4, two, tmp_path / "two", "refuse")
    list(Run(one, tmp_path / "two", "resume"))
    list(Run(one, tmp_path / "one"))
    for ours, theirs in zip(_tensors(tmp_path / "two"), _tensors(tmp_path / "one")):
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)
    assert {name.split("/")[1] for name in ours if name.startswith("lanes/")} == {"0", "1", "2", "3"}


def test_interrupted_anywhere_both_stop_at_one_step_and_any_number_of_ranks_goes_on(recipe, tmp_path):
    assert _both(_pressed, recipe(), tmp_path / "run", "refuse") == [["interrupted"], ["interrupted"]]
    assert read_pointer(tmp_path / "run", "latest") == "000005"
    with pytest.raises(UserError, match=r"plan.accumulate=1 on 1 rank: .* 2 batches a step; .* plan.accumulate=2"):
        Run(recipe(), tmp_path / "run", "resume")
    with pytest.raises(UserError, match=r"plan.accumulate=1 on 3 ranks: .* a number of ranks that divides 2"):
        Run(recipe(), tmp_path / "run", "resume", ranks=Ranks(0, 3))
    list(Run(recipe("plan.accumulate=2"), tmp_path / "run", "resume"))
    list(Run(recipe("plan.accumulate=2"), tmp_path / "straight"))
    _close(tmp_path / "run", tmp_path / "straight")


def test_interrupted_while_the_first_rank_judges_both_stop(recipe, tmp_path):
    assert _both(_pressed_while_judging, recipe(), tmp_path / "run", "refuse") == [["interrupted"], ["interrupted"]]
    assert read_pointer(tmp_path / "run", "latest") == "000004"


def test_a_dead_rank_ends_the_job_with_one_message_and_the_run_goes_on(recipe, tmp_path):
    out = tmp_path / "run"
    (message, speaks), nothing = _both(_killed, recipe(), out, "refuse")
    assert nothing is None
    assert speaks
    assert "another process of this job has died" in message
    assert "the run is complete up to step 4; continue it with --resume" in message
    assert resolve(out).name == "000004"
    assert [answer[2] for answer in _both(_run, recipe(), out, "resume")] == [True, True]
    assert read_pointer(out, "latest") == "000008"


def test_a_rank_that_is_out_of_memory_says_so_and_the_other_is_silent(recipe, tmp_path):
    first, second = _both(_full, recipe(), tmp_path / "run", "refuse")
    assert second[0].startswith("out of memory on cpu: lower plan.batch_tokens (160) and raise plan.accumulate (1)")
    assert "complete up to step 4" in first[0]
    assert sorted([first[1], second[1]]) == [False, True]


def test_group_messages():
    for rank, (sums, copied, same, claims, received) in enumerate(_both(_messages_of_all_kinds)):
        assert sums == [[[3.0, 3.0]] * 3, [11.0]], rank
        assert copied == [0.0, 7.0]
        assert same == [True, False]
        assert claims == [1.0]
        assert received == [5.0]


def test_one_alone_speaks_to_nobody(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_ranks() as ranks:
        assert ranks is ALONE
    assert ranks.sum([1.0, 2.0]) == [1.0, 2.0]
    assert ranks.agree(5)
    assert ranks.claim_output()
    assert list(ranks.numbers(3, accumulate=2)) == [6, 7]
    assert ranks.choose_device("cuda:1") == "cuda:1"


def test_the_ranks_of_a_step_read_what_one_would():
    for accumulate in (1, 3):
        shares = [Ranks(rank, 4).numbers(5, accumulate) for rank in range(4)]
        together = sorted(number for share in shares for number in share)
        assert together == list(ALONE.numbers(5, accumulate * 4))
        assert {len(share) for share in shares} == {accumulate}


def test_a_rank_needs_a_gpu_of_its_own():
    assert Ranks(1, 2, local=1).choose_device("cpu") == "cpu"
    with pytest.raises(UserError, match=r"plan.device=cuda:0: 2 processes need a GPU each"):
        Ranks(1, 2, local=1).choose_device("cuda:0")
    with pytest.raises(UserError, match=r"--nproc-per-node"):
        Ranks(98, 99, local=98).choose_device("cuda")


def test_messages_are_neither_many_nor_mixed():
    sizes = [3, MESSAGE, 5, 7]
    tensors = [torch.empty(size, device="meta") for size in sizes]
    tensors.append(torch.empty(2, device="meta", dtype=torch.float64))
    assert [[one.numel() for one in group] for group in _group_messages(tensors)] == [[3], [MESSAGE], [5, 7], [2]]
