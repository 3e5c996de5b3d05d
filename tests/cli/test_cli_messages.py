"""The exact lines that commands print about their work: errors, progress, unknown tokens, what to do next."""

import errno
import io
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer

from regard.checks import DOES_NOT_APPLY, FAILED, PASSED, Finding
from regard.cli import console as console_module
from regard.cli import lines as lines_module
from regard.cli import options
from regard.cli.app import _message
from regard.cli.completion import setting_names
from regard.cli.console import SafeConsole, before_first_step, many, reported
from regard.cli.lines import Chunk, UnknownCounter, chunks, plain, program, to_json
from regard.cli.look import _choices
from regard.cli.progress import follow
from regard.errors import UserError
from regard.metrics import perplexity
from regard.render import AttentionView
from regard.render.formatting import format_number
from regard.render.view_data import Layer
from regard.training.events import Evaluated, Finished, Started
from regard.training.events import Progress as Going
from regard.verbs import load, score

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("two\nlines"), "two lines"),
        (MemoryError(), "out of memory; lower --batch-tokens (plan.batch_tokens), or give less text at a time, or use "
         "a smaller model."),
        (torch.OutOfMemoryError(), "out of memory; lower --batch-tokens (plan.batch_tokens), or choose --device cpu."),
        (OSError(errno.ENOSPC, "No space", "a/b"), "a/b: No space; free some space."),
        (OSError(errno.EDQUOT, "Quota", "a/b"), "a/b: Quota; free some space."),
        (PermissionError(errno.EACCES, "Denied", "a/b"), "a/b: Denied; check its permissions."),
        (OSError(errno.EISDIR, "Is a directory"), "Is a directory; check its name and place."),
        (OSError("odd"), "odd; check its name and place."),
        (typer.BadParameter("no."), "Invalid value: no. Try --help."),
        (typer.BadParameter("no"), "Invalid value: no. Try --help."),
        (ValueError("ours"), None),
        (RuntimeError("ours"), None),
    ],
)  # fmt: skip
def test_the_line_of_an_error(error: Exception, line: str | None) -> None:
    assert _message(error) == line


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["translate", ".", "--num-beams", "2"], "--beam?"),
        (["classify", ".", "--num-beams", "2"], ""),  # it has no --beam
        (["classify", ".", "--max-new-tokens", "2"], ""),
        (["generate", ".", "--max_new_tokens", "2"], "--limit?"),
        (["generate", ".", "--lr", "2"], "the setting plan.rate of regard train?"),
        (["fill", ".", "--k", "2"], "--top?"),  # --beam is another command's
        (["train", "dates", "--lr", "2"], "the setting plan.rate=VALUE?"),
        (["train", "dates", "--steps", "2"], "the setting plan.steps=VALUE?"),
        (["train", "dates", "--batch_size", "2"], "--batch-tokens or the setting plan.batch_tokens=VALUE?"),
        (["train", "dates", "--init-from", "a"], "from=DIR?"),
        (["eval", ".", "--lr", "2"], "the setting plan.rate of regard train?"),
    ],
)
def test_an_option_of_another_library_leads_to_ours(regard: Regard, arguments: list[str], meant: str) -> None:
    said = regard(*arguments)
    assert said.code == 2
    name = next(word for word in arguments if word.startswith("--"))
    assert said.err.startswith(f"error: No such option: {name}")
    assert (f"Did you mean {meant} Try --help." in said.err) == bool(meant)
    assert ("Did you mean" in said.err) == bool(meant)


def test_the_last_of_several_starts_is_used(regard: Regard) -> None:
    said = regard("train", "text", "from=one", "data.train=a.txt", "from=two")
    assert (said.code, "two" in said.err, "one" in said.err) == (2, True, False)


def test_a_directory_that_must_be_there(tmp_path: Path) -> None:
    for name in ("hf:owner/name", tmp_path, "runs/a/steps/000004"):  # a step may have been moved to steps/.old
        assert options.check_exists(Path(name)) == Path(name)
    for name in ("runs/a", "runs/a/steps", "steps", "ahf:owner/name"):
        with pytest.raises(UserError, match=f"{name}: no such directory; name a run, such as runs/dates"):
            options.check_exists(Path(name))


# -- progress ---------------------------------------------------------------------------------------------------------


def plain_console() -> SafeConsole:
    return SafeConsole(file=io.StringIO(), width=400)


def printed(console: SafeConsole) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


STARTED = Started(Path("runs/a"), 0, 40, 12_345, "cpu", "float32", 1200, 0, 3, 1)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "runs/a: 12.3k parameters on cpu (float32), 1,200 examples, 1 batch of 3 shapes"),
        ({"step": 5}, "runs/a: resumed at step 5, 12.3k parameters on cpu (float32), 1,200 examples, 1 batch of 3 "
         "shapes"),
        ({"step": 5, "over": "minutes"}, "runs/a: finished at step 5 (plan.minutes), only evaluated again: 12.3k "
         "parameters on cpu (float32), 1,200 examples, 1 batch of 3 shapes"),
        ({"ranks": 2, "dropped": 1500, "examples": 1, "epoch": 2000, "shapes": 1, "counts": True},
         "runs/a: a model of counts on 2 ranks, this one on cpu (float32), 1 example, 1,500 too long and left out, "
         "2,000 batches of 1 shape"),
    ],
)  # fmt: skip
def test_the_first_line_of_a_run(changes: dict[str, Any], line: str) -> None:
    console = plain_console()
    events = [replace(STARTED, **changes), Finished(5, "steps", None, None, 1.0)]
    follow((event for event in events), console, "name")
    assert printed(console)[0] == line


def test_the_log_of_a_run_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """At most 20 lines of progress, each evaluation, and how it ended."""
    console = plain_console()
    steps = [Going(step, 40, step / 8, {}, None if step == 2 else 0.001, 1.0, 2500.0, 1.0) for step in range(1, 41)]
    steps[39] = replace(steps[39], tokens_per_second=0.0)  # a step of a model that counts may have no text
    events = [
        replace(STARTED, warnings=("few",)),
        *steps,
        Evaluated(40, {"exact": 0.5, "loss": 0.25}, {}, True),
        Evaluated(40, {"loss": 0.5}, {}, False),
        Finished(40, "epochs", None, None, 1.0, rising=True),
    ]
    last = follow((event for event in events), console, "name")
    found = printed(console)[1:]
    assert last is events[-1]
    assert [line.split()[2] for line in found[:-3]] == [f"{step}/40" for step in range(2, 40, 2)]
    assert found[0] == "name: step 2/40 · loss 0.2500 · 2.5k tokens/s"
    assert found[1] == "name: step 4/40 · loss 0.5000 · rate 1.00e-03 · 2.5k tokens/s"
    assert found[-3:] == [
        "name: step 40, valid: exact match 50.00% · loss 0.25, the best so far",
        "name: step 40, valid: loss 0.5",
        "name: ended at step 40 by plan.epochs, while the learning rate was still rising: lower plan.warmup",
    ]
    assert capsys.readouterr().err == "warning: few\n"


def test_a_large_file_is_reported_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(console_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    console = plain_console()
    with reported("book", console) as report:
        for second in range(1, 26):
            now[0] = 100.0 + second
            report("tokens", second * 10**8, 2_500_000_000)
    assert printed(console) == ["book: tokens, 1,000 of 2,500 MB", "book: tokens, 2,000 of 2,500 MB"]


def test_ctrl_c_before_the_first_step_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/latest").write_text("000012", encoding="utf-8")
    nothing = "stopped before the first step; nothing to save"
    for place, line in (
        (None, nothing),
        (tmp_path / "none", nothing),
        (tmp_path / "run", f"stopped before another step; {tmp_path / 'run'} is at step 12"),
    ):
        console = plain_console()
        with pytest.raises(typer.Exit) as stopped, before_first_step(console, place):
            raise KeyboardInterrupt
        assert (stopped.value.exit_code, printed(console)) == (130, ["", line])


# -- lines ------------------------------------------------------------------------------------------------------------


def test_numbers_of_things() -> None:
    assert [many(n, "line", "lines") for n in (0, 1, 2, 1200)] == ["0 lines", "1 line", "2 lines", "1,200 lines"]


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({}, ""),
        ({3: 1}, "1 token in line 3: not in this model's vocabulary, and read as <?>\n"),
        ({3: 2}, "2 tokens in line 3: not in this model's vocabulary, and read as <?>\n"),
        ({7: 1, 4: 1000, 9: 1}, "1,002 tokens in 3 lines, first in line 4: not in this model's vocabulary, and read as "
         "<?>\n"),
    ],
)  # fmt: skip
def test_the_report_of_unknown_tokens(found: dict[int, int], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    UnknownCounter(Counter(found), "<?>").report()
    assert capsys.readouterr().err == line


def test_unknown_tokens_are_counted_by_line() -> None:
    known: Any = SimpleNamespace(special_tokens=SimpleNamespace(unk=None))
    tokenizer: Any = SimpleNamespace(special_tokens=SimpleNamespace(unk=0), pieces=lambda ids: ["<?>" for _ in ids])
    counter = UnknownCounter()
    counter.count(known, [[0, 0]], [1])
    assert not counter.found
    counter.count(tokenizer, [[0, 5, 0], [4], [0]], [10, 11, 12])
    counter.count(tokenizer, [[0]], [10])  # the other side of the pair
    assert (dict(counter.found), counter.name) == ({10: 3, 12: 1}, "<?>")


def test_unknown_tokens_of_a_pair_are_those_of_both_its_sides(regard: Regard, translator: Make) -> None:
    """Columns after the second are not read, so that nothing in them is unknown."""
    plain_pair = regard("score", translator(), stdin="abc\txyz\n")
    third = regard("score", translator(), stdin="abc\txyz\t??\n")
    assert (third.code, third.out, third.err) == (0, plain_pair.out, plain_pair.err)
    assert "2 tokens in line 2" in regard("score", translator(), stdin="abc\txyz\na?\tx?\n").err


def test_the_perplexity_of_all_lines_is_printed_at_the_end(regard: Regard, language: Path, tmp_path: Path) -> None:
    many_lines = lines_module.AHEAD + 3  # more than one chunk
    (tmp_path / "many.txt").write_text("ab\n" * many_lines + "\nabc\n", encoding="utf-8")
    said = regard("score", language, "many.txt")
    one, other = score(load(language, device="cpu"), ["ab", "abc"])
    total, count = many_lines * one.total + other.total, many_lines * len(one.pieces) + len(other.pieces)
    assert said.err == f"{count} tokens, perplexity {format_number(perplexity(total, count))}\n"
    assert said.out.count("\n") == many_lines + 2


@dataclass
class Point:
    x: float
    y: Any


def test_values_of_json() -> None:
    given = {
        1: Point(1 / 3, Path("a/b")),
        "array": np.array([[1.0, 2.0]], np.float32),
        "tensor": torch.tensor([1, 2]),
        "none": [None, True, math_nan(), float("inf"), 123456789, 1234567.89],
        "sets": (range(2), {"a"}, frozenset({2})),
    }
    assert plain(given) == {
        "1": {"x": 0.3333333, "y": "a/b"},
        "array": [[1.0, 2.0]],
        "tensor": [1, 2],
        "none": [None, True, None, None, 123456789, 1234568.0],
        "sets": [[0, 1], ["a"], [2]],
    }
    assert to_json({"a": "é\x1b\u2028\n"}) == '{"a": "é\\u001b\\u2028\\n"}'


def math_nan() -> float:
    return float("nan")


@pytest.mark.parametrize("size", [1, 3, 4, 100, lines_module.AHEAD])
def test_chunks_have_every_line_once_with_its_number(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [f"line {n}" if n % 3 else "" for n in range(10)]
    data = "\n".join(wanted) + "\n"
    (tmp_path / "in.txt").write_text(data, encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xef\xbb\xbf" + data.encode())))
    for file in (str(tmp_path / "in.txt"), "-"):
        found = [(first, lines) for first, lines in chunks(file, size) if lines]
        assert [line for _, lines in found for line in lines] == wanted
        assert [first for first, _ in found] == [
            1 + sum(len(each) for _, each in found[:at]) for at in range(len(found))
        ]
        if file != "-":
            assert all(len(lines) == size for _, lines in found[:-1])


def test_lines_of_standard_input_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> list[str]:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        return [line for _, lines in chunks("-") for line in lines]

    assert read(b"a\r\nb\n\r\n c \nlast") == ["a", "b", "", " c ", "last"]
    assert read(b"") == []
    assert read(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n") == ["a", "\ufeffb"]
    for data, told in ((b"a\n\0\n", "standard input, line 2: a zero byte"), (b"a\nb\xff\n", "line 2")):
        with pytest.raises(UserError, match=told):
            read(data)


def test_pairs_of_lines() -> None:
    assert lines_module._pair(" a b \t c d \tlinks", 1) == ("a b", "c d")
    for line in ("a", "a\t", "\tb", " \tb", "a\t \tc"):
        with pytest.raises(UserError, match="line 7: expected source<TAB>target, found"):
            lines_module._pair(line, 7)


def test_answers_stand_beside_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    chunk = Chunk([5, 6, 7, 9], ["a", " ", "b", ""], ["a", "b"])
    chunk.print_answers(["x", "y"], False, lambda one: [one, one * 2])
    assert capsys.readouterr().out == "x\txx\n\ny\tyy\n\n"
    chunk.print_answers([Point(1.0, None), Point(2.0, "y")], True, lambda one: [])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"line": 5, "x": 1.0}, {"line": 6}, {"line": 7, "x": 2.0, "y": "y"}, {"line": 9}]


def test_the_command_that_starts_this_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for there, started, expected in (
        ("/usr/bin/regard", "/x/regard", "regard"),
        (None, str(tmp_path / ".venv/bin/regard"), ".venv/bin/regard"),
        (None, "/x/__main__.py", f"{sys.executable} -m regard"),
    ):
        monkeypatch.setattr(shutil, "which", lambda name, there=there: there)
        monkeypatch.setattr(sys, "argv", [started])
        assert program() == expected


# -- completion, look -------------------------------------------------------------------------------------------------


def test_completion_starts_with_the_parts_of_the_recipe() -> None:
    def names(recipe: str, *given: str) -> set[str]:
        context: Any = SimpleNamespace(params={"recipe": recipe, "settings": list(given)})
        return set(setting_names(context, ""))

    assert names("") >= {"data=", "model=", "objective=", "head=", "metrics=", "from=", "plan.steps="}
    assert {"data.languages=", "model.decoder=", "objective.ratio=", "head.pool="} <= names("dates")
    assert {"data.text=", "model.hops=", "objective.penalty="} <= names("classify")
    assert "model.decoder=" not in names("dates", "model=gpt2-large")
    assert {"model.memory=", "model.tied="} <= names("dates", "model=gpt2-large")  # a size has its family's settings
    assert "model.cell=" in names("text", "model=gru")


def views() -> Iterator[tuple[list[Layer], str]]:
    def layer(name: str, heads: int, part: str) -> Layer:
        return Layer(name, np.ones((heads, 1, 1), np.float32), ["a"], ["b"], part)

    end = "; choose with --part, --layer, --head, or see all with -o look.html"
    yield [], ""
    yield [layer("a", 1, "cross")], ""
    yield [layer("a", 2, "cross")], f"cross: 1 layer of 2 heads{end}"
    yield [layer("a", 1, ""), layer("b", 1, "")], f"in all: 2 layers of 1 head{end}"
    yield (
        [layer("a", 2, "encoder"), layer("b", 2, "encoder"), layer("c", 4, "cross")],
        f"cross: 1 layer of 4 heads · encoder: 2 layers of 2 heads{end}",
    )


def test_look_lists_what_else_there_is() -> None:
    for layers, line in views():
        assert _choices(AttentionView("", ["a"], ["b"], layers)) == line


@pytest.mark.parametrize(("failures", "code"), [(2, 1), (0, 0)])
def test_doctor_counts_its_findings(
    regard: Regard, language: Path, monkeypatch: pytest.MonkeyPatch, failures: int, code: int
) -> None:
    given = [*[PASSED] * 3, *[FAILED] * failures, DOES_NOT_APPLY]
    found = [Finding(f"check {n}", "claim", "did", status, None, None, "") for n, status in enumerate(given)]
    monkeypatch.setattr("regard.checks.doctor", lambda model, data: found)
    said = regard("doctor", language)
    assert (said.code, said.err) == (code, "")
    title = " ".join(said.out.split("checks passed,")[1].split()[:6])
    assert said.out.split("checks passed,")[0].strip() == f"{language}: 3"
    assert title.startswith(f"{failures} failed, 1 do not apply")
    said = regard("doctor", language, "--json")
    about = json.loads(said.out)
    assert (said.code, about["run"], about["failed"]) == (
        code,
        str(language),
        [f"check {3 + n}" for n in range(failures)],
    )
    assert [one["status"] for one in about["checks"]] == given


@pytest.mark.parametrize(
    ("command", "rest", "fixed"),
    [
        *((name, [], {}) for name in ("translate", "classify", "score", "align", "embed")),
        ("fill", ["a"], {}),
        ("generate", ["a"], {}),
        ("look", ["a"], {}),
        ("eval", [], {"long": "truncate"}),
        ("tag", [], {"long": "error"}),
        ("neighbours", ["a"], {"long": "error"}),
        ("caption", ["a.png"], {"long": "error"}),
        ("export", ["out"], {"device": "cpu", "precision": "auto", "long": "error"}),
        ("doctor", [], {"device": "cpu", "precision": "float32", "long": "error"}),
    ],
)
def test_options_of_loading_reach_the_loader(
    regard: Regard,
    language: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    rest: list[str],
    fixed: dict[str, str],
) -> None:
    """The two flags apart, so that they cannot be exchanged."""
    seen = list[tuple[object, ...]]()

    def loader(*values: object) -> None:
        seen.append(values)
        raise ValueError("seen")

    monkeypatch.setattr("regard.verbs.load", loader)
    for flag, allow_pickle, download in (("--allow-pickle", True, False), ("--download", False, True)):
        usual = {"device": "cpu", "precision": "bf16", "long": "window"}
        given = [word for name, value in usual.items() if name not in fixed for word in (f"--{name}", value)]
        with pytest.raises(ValueError, match="seen"):
            regard(command, language, *rest, *given, flag)
        assert seen[-1][:-1] == (language, *(usual | fixed).values(), allow_pickle, download)
    with pytest.raises(ValueError, match="seen"):
        regard(command, language, *rest)
    assert seen[-1][:-1] == (
        language,
        *({"device": "auto", "precision": "auto", "long": "error"} | fixed).values(),
        False,
        False,
    )
