"""A mistake is one line on stderr that names the value and the cure, exit code 2, and no traceback."""

import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.file_io import check_writable

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]


def refused(said: "Said") -> str:  # noqa: F821
    """The one line of a refusal."""
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "train"),
        (["train", "datse"], 'Did you mean "dates"'),
        (["train", "dates", "plan.stpes=4"], 'Did you mean "plan.steps"'),
        (["train", "dates", "plan.steps=many"], "plan.steps=many"),
        (["train", "dates", "plan.steps"], "name=value"),
        (["train", "classify", "data=tickets.csv"], "a file of your own is given as data.train=tickets.csv"),
        (["train", "classify", "--data", "tickets.csv"], "Did you mean the setting data.train=VALUE"),
        (["train", "captions"], 'Use "flickr8k data.train=FILE"'),
        (["train", "ner"], 'Use "tag"'),
        (["train", "dates", "plan.seed=9223372036854775808"], "plan.seed=9223372036854775808: no whole number above"),
        (
            ["train", "dates", "--seed", "99999999999999999999"],
            "plan.seed=99999999999999999999: no whole number above 2**63-1",
        ),
        (["train", "dates", "--seed", "-1"], "plan.seed=-1: give a whole number from 0"),
        (["train", "dates", "model.score=generel"], 'Did you mean "general"'),
        (["train", "dates", "model=lstmm"], 'Did you mean "lstm"'),
        (["train", "dates", "--resume", "--overwrite"], "give one"),
        (["train", "dates", "--resume"], "runs/dates: holds no run to resume"),
        (["train", "translate"], "data.train"),
        (["train", "text", "data.train=x", "--baseline"], "attention"),
        (["show", "dattes"], 'Did you mean "dates"'),
        (["explain", "gradient"], 'Did you mean "gradients"'),
        (["explain", "gradients", "-o", "curves.svg"], ".html"),
        (["ladder", "text"], "regard ladder dates"),
        (["ladder", "dates", "plan.minutes=1"], "plan.steps"),
        (["ladder", "dates", "plan.epochs=1"], "plan.epochs: every rung must train on the same tokens"),
        (["translate"], "DIR"),
        (["translate", "nowhere"], "no such directory"),
        (["eval", "nowhere"], "no such directory"),
        (["translate", ".", "--beam", "0"], "beam=0: give 1"),
        (["translate", ".", "--beam", "100000"], "beam=100000: give 1 (greedy) to 1,000"),
        (
            ["translate", ".", "--beam", "2", "--nbest", "5"],
            "a beam gives at most as many answers; raise the beam to 5",
        ),
        (["look", ".", "a", "--precision", "fp4"], "precision=fp4"),
    ],
)
def test_a_name_that_is_not_known(regard: Regard, arguments: list[str], expected: str) -> None:
    assert expected in refused(regard(*arguments))


def test_a_file_without_its_setting(regard: Regard, tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("text,label\na,b\n")
    assert f"the training file is data.train={path}" in refused(regard("train", "classify", path))


@pytest.mark.parametrize("text", ["a text of words", "many words " * 100])
def test_a_text_in_the_place_of_a_file(regard: Regard, translator: Make, text: str) -> None:
    line = refused(regard("translate", translator(), text))
    assert f"{text[:60]}{'…' * (len(text) > 60)}: no such file; if this is a text, give it on standard input" in line
    assert len(line) < 200


@pytest.mark.parametrize("verb", ["translate", "eval", "look", "embed", "export"])
def test_a_missing_directory_is_refused_before_torch_is_imported(
    regard: Regard, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    for name in ("torch", "regard.verbs", "regard.decode"):
        monkeypatch.setitem(sys.modules, name, None)  # an import fails
    assert "nowhere: no such directory" in refused(
        regard(verb, "nowhere", *(["a"] if verb in ("look", "export") else []))
    )


BROKEN = {
    "empty": (b"", "empty"),
    "blank": (b"\n  \n", "empty"),
    "binary": (b"\x7fELF\0\0\0", "binary"),
    "latin": ("fran\u00e7ais\tfrench\n".encode("latin-1"), "not UTF-8"),
}


@pytest.mark.parametrize("kind", [*BROKEN, "missing", "folder"])
def test_a_file_that_cannot_be_read(regard: Regard, translator: Make, tmp_path: Path, kind: str) -> None:
    path, expected = tmp_path / "file.tsv", {"missing": "no such file", "folder": "this is a folder"}.get(kind, "")
    if kind in BROKEN:
        data, expected = BROKEN[kind]
        path.write_bytes(data)
    elif kind == "folder":
        path.mkdir()
    for command in ("translate", "score", "align"):
        if kind != "blank":  # which is no corpus, but each line has its answer
            line = refused(regard(command, translator(), path))
            assert expected in line
            assert str(path) in line
    assert expected in refused(regard("train", "translate", f"data.train={path}"))
    assert expected in refused(regard("eval", translator(), "--data", path))


@pytest.mark.parametrize("kind", ["binary", "latin"])
def test_standard_input_that_is_no_text(regard: Regard, translator: Make, kind: str) -> None:
    for command in ("translate", "score", "align"):
        said = regard(command, translator(), stdin=b"ab\txy\n" + BROKEN[kind][0])
        assert said.code == 2
        assert "standard input, line 2: " in said.err


def test_lines_without_a_tab(regard: Regard, translator: Make, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("ab\txy\nonly one side\n", encoding="utf-8")
    for command in ("score", "align"):
        assert "line 2: expected source<TAB>target" in refused(regard(command, translator(), tmp_path / "pairs.tsv"))
    line = refused(regard("train", "translate", f"data.train={tmp_path / 'pairs.tsv'}"))
    assert "line 2" in line
    assert "<TAB>" in line


def test_a_place_that_cannot_be_written(regard: Regard, translator: Make, tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    assert "file" in refused(regard("train", "translate", *tiny, "--out", tmp_path / "file" / "run"))
    assert "file" in refused(regard("train", "translate", *tiny, "--out", tmp_path / "file"))
    assert "look.html" in refused(regard("look", translator(), "abc", "-o", tmp_path / "file" / "look.html"))
    assert ".pdf" in refused(regard("look", translator(), "abc", "-o", tmp_path / "look.pdf"))
    assert (tmp_path / "file").read_text(encoding="utf-8") == "in the way"


@pytest.mark.parametrize("place", ["file/run", "file/deep/run", "/sys/run"])
@pytest.mark.parametrize(
    "command",
    [
        *("train dates --out", "ladder dates --out", "explain heads --out", "show dates --example --out", "export RUN"),
        *("look RUN abc --out", "embed RUN --out", "caption RUN --out", "neighbours RUN --out"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_torch_is_imported(
    regard: Regard, translator: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, place: str
) -> None:
    """Also for the superuser, whom no permission stops: below a file, and in a system of files that are not real."""
    if place.startswith("/sys") and not Path("/sys/kernel").is_dir():
        pytest.skip("this system has no /sys")
    run = translator()
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "torch", None)  # an import fails
    assert f"{place}: cannot be written: " in refused(regard(*command.replace("RUN", str(run)).split(), place))


def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "run", tmp_path / "a" / "b" / "run"):
        check_writable(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "cure"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "write")])
def test_a_full_disk(
    regard: Regard, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    said = regard("train", "translate", *tiny, "--out", tmp_path / "run")
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert os.strerror(number) in said.err
    assert cure in said.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_that_cannot_be_written(translator: Make) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "regard", "translate", str(translator()), "--device", "cpu"]
        said = subprocess.run(command, input="abc\n", stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert said.returncode == 2
    assert said.stderr == f"error: {os.strerror(errno.ENOSPC)}; free some space.\n"


@pytest.mark.parametrize("command", [["show", "dates"], ["--help"]])
def test_a_reader_that_has_had_enough(command: list[str]) -> None:
    """`regard show dates | head`: no complaint, and no failure."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        said = subprocess.run(
            [sys.executable, "-m", "regard", *command], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.slow
def test_a_run_outlives_its_reader(tiny: list[str], tmp_path: Path) -> None:
    """`regard train translate … | head -1` trains to the end, and says once that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "regard", "train", "translate", *tiny, "--out", "run"]
    with os.fdopen(write, "w") as closed:
        said = subprocess.run(command, cwd=tmp_path, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "the output was closed; the command continues without it\n")
    assert (tmp_path / "run/latest").read_text(encoding="utf-8") == "000006\n"
    assert (tmp_path / "run/report.html").exists()


@pytest.mark.skipif(os.name != "posix", reason="only there can a program be started without any output")
def test_no_output_at_all() -> None:
    command = f"{shlex.quote(sys.executable)} -m regard --version >&-"
    said = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_ctrl_c_when_all_is_said() -> None:
    """What was registered before the command runs after it, at the very end of the program."""
    code = "import atexit, os, signal; from regard.cli import main; "
    code += "atexit.register(os.kill, os.getpid(), signal.SIGINT); main(['--version'])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_debug_shows_the_traceback(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="is no recipe"):
        regard("train", "datse", "--debug")
    monkeypatch.setenv("REGARD_DEBUG", "1")
    with pytest.raises(ValueError, match="is no recipe"):
        regard("show", "datse")


@pytest.mark.parametrize("option", ["--layer", "--head"])
def test_layers_and_heads_are_counted_from_0(regard: Regard, option: str) -> None:
    said = regard("look", "run", "a text", option, -1)
    assert said.code == 2
    assert f"Invalid value for '{option}': Input should be greater than or equal to 0" in said.err


def test_help_comes_at_once_and_has_examples(regard: Regard) -> None:
    from regard.cli.app import COMMANDS

    listed = regard("--help").out
    for name in [*(name for commands in COMMANDS.values() for name in commands), "explain"]:
        assert name in listed
        said = regard(name, "--help")
        assert (said.code, "Examples:" in map(str.strip, said.out.splitlines())) == (0, True)
        assert f"  regard {name} " in said.out
        assert "[[" not in said.out
    fresh = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "regard", "--help"], capture_output=True, text=True, check=True
    )
    assert not [line for line in fresh.stderr.splitlines() if line.rsplit("|", 1)[-1].strip() in ("torch", "numpy")]
    assert "--install-completion" in listed
    assert regard().out == listed
    assert regard("--version").out.startswith("regard 0.")


def test_the_message_about_a_very_long_value_is_short_and_keeps_its_cure(regard: Regard) -> None:
    said = refused(regard("show", "dates", f"plan.steps={'y' * 10**6}\x1b"))
    assert "plan.steps" in said[:100]
    assert "…" in said
    assert said.endswith("y\\x1b: expected a whole number\n")
    assert len(said) < 400


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (["train", "VALUE"], r" and \d+ more\.\n"),
        (["train", "dates", "VALUE"], "has the form name=value; such as plan.steps=400.\n"),
        (["train", "dates", "model=VALUE"], r" and \d+ more\.\n"),
        (["train", "dates", "plan.VALUE=1"], r" and \d+ more\.\n"),
        (["explain", "VALUE"], "scores, senses, transfer.\n"),
        (["translate", "VALUE"], "check its name and place.\n"),
        (["train", "classify", "data.train=VALUE"], "check its name and permissions.\n"),
        (["VALUE"], "Try --help.\n"),
        (["look", "runs/dates", "text", "--VALUE"], "Try --help.\n"),
    ],
)
def test_no_value_makes_a_long_message(regard: Regard, arguments: list[str], cure: str) -> None:
    for value in ("y" * 3000, "many words " * 300):
        said = refused(regard(*(one.replace("VALUE", value.strip()) for one in arguments)))
        assert len(said) <= 820
        if " " not in value:
            assert re.search(f"{cure}$", said)
