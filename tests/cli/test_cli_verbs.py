"""The verbs on the command line: lines in, lines out, in order, blank ones in place."""

import io
import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.verbs import Scored, align, load, score, translate

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]
TEXT = "abc cab\n\nb?a\n   \ncc\n"


def test_translate_answers_every_line_in_place(regard: Regard, translator: Make, tmp_path: Path) -> None:
    said = regard("translate", translator(), "--device", "cpu", stdin=TEXT)
    assert (said.code, said.err) == (0, "1 token in line 3: not in this model's vocabulary, and read as <unk>\n")
    lines = said.out.removesuffix("\n").split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False, True]
    alone = [regard("translate", translator(), "--beam", 1, stdin=line + "\n").out for line in TEXT.splitlines()]
    assert "".join(alone) == said.out
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    assert regard("translate", translator(), tmp_path / "in.txt").out == said.out
    assert regard("translate", translator(), "-", stdin="").out == ""


def test_translate_nbest_prints_scores_in_order(regard: Regard, translator: Make) -> None:
    lines = regard("translate", translator(), "--beam", 4, "--nbest", 3, stdin="abc\n\n").out.splitlines()
    assert len(lines) == 4
    assert lines[3] == ""
    scores = [float(line.split("\t")[1]) for line in lines[:3]]
    assert scores == sorted(scores, reverse=True)


def test_translate_json_carries_alignment(regard: Regard, translator: Make) -> None:
    said = regard("translate", translator(), "--align", "--json", stdin="abc\n\n")
    first, second = map(json.loads, said.out.splitlines())
    assert (first["line"], second) == (1, {"line": 2})
    assert first["unit"] == "piece"  # the tokens are characters
    assert len(first["pieces"]["weights"]) == len(first["pieces"]["target"]) == len(first["links"])
    assert (first["pieces"]["source"], first["words"]["source"]) == (["a", "b", "c"], ["abc"])
    assert [len(row) for row in first["words"]["weights"]] == [1] * len(first["words"]["target"])
    assert sum(first["logps"]) == pytest.approx(first["logp"], abs=1e-4)
    text, links = regard("translate", translator(), "--align", stdin="abc\n").out.rstrip("\n").split("\t")
    assert (text, links) == (first["text"], " ".join(f"{i}-{j}" for i, j in sorted(map(tuple, first["links"]))))


def test_links_are_of_the_unit_that_is_named(regard: Regard, translator: Make) -> None:
    """Sub-words are linked as words; the pieces are there too, and each unit has its own weights."""
    run = translator(tokens="bpe")
    said = json.loads(regard("translate", run, "--align", "--json", stdin="abc cab a\n").out)
    given = json.loads(regard("align", run, "--json", stdin="abc cab a\txyz zxy\n").out)
    pieces = json.loads(regard("align", run, "--json", "--unit", "piece", stdin="abc cab a\txyz zxy\n").out)
    assert list(given) == ["line", "unit", "links", "words", "pieces"]
    assert given["words"]["target"] == ["xyz", "zxy"]
    assert "".join(said["words"]["target"]) == said["text"].replace(" ", "")
    assert len(said["logps"]) == len(said["pieces"]["target"]) + (said["ended"] == "end")
    for found, name in ((said, "words"), (given, "words"), (pieces, "pieces")):
        assert f"{found['unit']}s" == name
        best = [[row.index(max(row)), at] for at, row in enumerate(found[name]["weights"])]
        assert found["links"] == sorted(best)
        assert found["words"]["source"] == ["abc", "cab", "a"]
        for unit in (found["words"], found["pieces"]):
            assert [len(row) for row in unit["weights"]] == [len(unit["source"])] * len(unit["target"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", ["translate", "embed"])
def test_a_bar_on_the_terminal_counts_the_lines_of_a_file(
    regard: Regard, translator: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It appears on standard error; the answers still go to standard output."""
    (tmp_path / "in.txt").write_text("abc\n\ncab\n", encoding="utf-8")
    plain = regard(command, translator(), tmp_path / "in.txt", "--json")
    assert (plain.code, plain.err) == (0, "")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    said = regard(command, translator(), tmp_path / "in.txt", "--json")
    assert said.out == plain.out
    assert "3/3" in terminal.getvalue()
    if command == "embed":  # nothing is printed until the end, so the bar may share a terminal with standard output
        terminal.truncate(0)
        monkeypatch.setattr(sys, "stdout", Terminal())
        assert regard(command, translator(), tmp_path / "in.txt", "-o", tmp_path / "out.npz").code == 0
        assert "3/3" in terminal.getvalue()


def test_lines_are_answered_while_the_pipe_is_open(translator: Make) -> None:
    """A person, or a slow program, at the other end gets each answer before sending the next line."""
    command = [sys.executable, "-m", "regard", "translate", str(translator()), "--device", "cpu"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in ("abc\n", "\n", "cc\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer.endswith("\n")
            assert bool(answer.strip()) == bool(line.strip())
        process.stdin.close()
        assert process.wait(600) == 0


def _accept_interrupts() -> None:
    """A shell starts what runs in the background with interrupts ignored; the command must not inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("line", "code"), [pytest.param(b"caf\xe9\n", 2, marks=pytest.mark.slow), (b"abc\n", 130)])
def test_leaving_while_the_pipe_is_open(translator: Make, line: bytes, code: int) -> None:
    """After a mistake, or Ctrl-C, the command does not wait for another line, and ends without an abort."""
    command = [sys.executable, "-m", "regard", "translate", str(translator()), "--device", "cpu"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=_accept_interrupts) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        if code == 130:
            assert process.stdout.readline().endswith(b"\n")
            process.send_signal(signal.SIGINT)
        assert process.wait(600) == code
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert said.count("\n") == (1 if code == 2 else 0)
    assert "Fatal" not in said


def test_standard_input_that_is_closed(translator: Make) -> None:
    command = f"{sys.executable} -m regard translate {translator()} <&-"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (2, "error: standard input is closed; send it lines, or name a FILE.\n")


@pytest.mark.parametrize(("closed", "lines"), [(">&-", 0), ("2>&-", 1)])
def test_output_that_is_closed(translator: Make, tmp_path: Path, closed: str, lines: int) -> None:
    """Without standard error, its messages do not go to standard output."""
    (tmp_path / "in.tsv").write_text("abc\txy\n", encoding="utf-8")
    command = f"{sys.executable} -m regard score {translator()} {tmp_path / 'in.tsv'} --json {closed}"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout.count("\n")) == (0, lines)
    assert "Traceback" not in said.stderr
    assert all(json.loads(line)["line"] == 1 for line in said.stdout.splitlines())


@pytest.mark.parametrize("command", ["translate", "score", "align"])
def test_a_file_of_blank_lines_is_answered_like_standard_input(
    regard: Regard, translator: Make, tmp_path: Path, command: str
) -> None:
    (tmp_path / "blank.txt").write_text("\n  \n\n", encoding="utf-8")
    said = regard(command, translator(), tmp_path / "blank.txt")
    assert (said.code, said.out) == (0, "\n\n\n")
    assert said == regard(command, translator(), stdin="\n  \n\n")


def test_many_lines_keep_their_order(regard: Regard, translator: Make) -> None:
    lines = ["abc"[: 1 + i % 3] + "ab" * (i % 7) for i in range(1300)]
    said = regard("translate", translator(), "--json", stdin="\n".join(lines) + "\n")
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert [one["line"] for one in answers] == list(range(1, 1301))
    texts = {line: one["text"] for line, one in zip(lines, answers)}
    assert all(texts[line] == one["text"] for line, one in zip(lines, answers))


def test_a_closed_pipe_is_no_error(translator: Make) -> None:
    lines = "c\\n" * 1100
    command = f"printf '{lines}' | {sys.executable} -m regard translate {translator()} | head -n 1"
    said = subprocess.run(
        ["bash", "-c", f"export OMP_NUM_THREADS=1; {command}"], capture_output=True, text=True, check=False
    )
    assert (said.stderr, said.stdout.count("\n")) == ("", 1)


def test_score_of_pairs(regard: Regard, translator: Make) -> None:
    said = regard("score", translator(), stdin="abc\txy\n\ncc\tz\n")
    first, blank, third = said.out.removesuffix("\n").split("\n")
    total, perplexity, pieces = first.split("\t")
    assert (blank, len(third.split("\t"))) == ("", 3)
    assert pieces.split()[::2] == ["x", "y", "<eos>"]
    assert sum(map(float, pieces.split()[1::2])) == pytest.approx(float(total), abs=1e-3)
    assert float(perplexity) > 1
    assert "5 tokens, perplexity" in said.err
    objects = [
        json.loads(line) for line in regard("score", translator(), "--json", stdin="abc\txy\n\n").out.splitlines()
    ]
    assert objects[0]["total"] == pytest.approx(float(total), abs=1e-3)
    assert objects[1] == {"line": 2}


def test_small_numbers_keep_their_digits(regard: Regard, translator: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is all but sure of what it hears: neither its doubts nor its perplexity are rounded away."""
    sure = Scored(["x", "<eos>"], np.array([-2.5e-5, -1e-7], dtype=np.float32), -2.51e-5, 1.0000125)
    monkeypatch.setattr("regard.verbs.score", lambda *given: [sure])
    assert regard("score", translator(), stdin="a\tx\n").out == "-2.51e-05\t1.00001\tx -2.5e-05 <eos> -1e-07\n"
    chain = regard("score", translator(), "--tokens", stdin="a\tx\n").out
    assert "-2.5e-05" in chain
    assert "perplexity 1.00001 over 2 tokens" in chain


def test_the_chain_ends_in_the_total(regard: Regard, translator: Make) -> None:
    pairs = [("abc", "xyz" * length) for length in range(1, 30)]
    for one in score(load(translator(), device="cpu"), pairs):
        assert one.total == pytest.approx(math.fsum(map(float, one.logps)), rel=1e-12)  # not to single precision
    said = regard("score", translator(), "--tokens", stdin="".join("\t".join(pair) + "\n" for pair in pairs))
    chains = [one.splitlines() for one in said.out.split("\n\n") if one]
    assert len(chains) == len(pairs)
    for *_, last, total in chains:
        assert f"ln p(text) = {last.split()[-1]}, " in total


def test_translate_has_a_limit(regard: Regard, translator: Make) -> None:
    said = regard("translate", translator(), "--limit", 2, "--json", stdin="abc cab\n")
    (one,) = translate(load(translator(), device="cpu"), ["abc cab"], limit=2)
    answer = json.loads(said.out)
    assert (answer["text"], answer["ended"]) == (one.text, one.ended)
    assert len(one.tokens) <= 2
    assert "--limit" in regard("translate", translator(), "--limit", 0, stdin="abc\n").err


def test_score_of_lines(regard: Regard, language: Path) -> None:
    assert len(regard("score", language, stdin="ab ba\nc\n").out.splitlines()) == 2
    one = json.loads(regard("score", language, "--json", stdin="ab\tba\n").out)
    assert len(one["pieces"]) == len("ab\tba") + 1  # a tab is text like any other
    said = regard("score", language, stdin="ab\n" * 600 + "a\t" + "b" * 40 + "\n")
    assert "line 601: 42 tokens" in said.err


def test_align_writes_pharaoh(regard: Regard, translator: Make) -> None:
    said = regard("align", translator(tokens="word"), stdin="ab ba\txy yx\n\ncc\tzz\n")
    lines = said.out.removesuffix("\n").split("\n")
    assert (len(lines), lines[1], lines[2]) == (3, "", "0-0")
    (expected,) = align(load(translator(tokens="word"), device="cpu"), [("ab ba", "xy yx")])
    assert lines[0].split() == [f"{i}-{j}" for i, j in expected.links]
    assert [j for _, j in sorted(expected.links, key=lambda link: link[1])] == [0, 1]
    one = json.loads(regard("align", translator(tokens="word"), "--json", stdin="ab ba\txy yx\n").out)
    assert one["unit"] == "word"
    assert (one["words"]["source"], one["words"]["target"]) == (["ab", "ba"], ["xy", "yx"])
    assert [tuple(link) for link in one["links"]] == expected.links


def test_classify(regard: Regard, classifier: Path) -> None:
    lines = regard("classify", classifier, stdin="ab ba\n\ncc\n").out.removesuffix("\n").split("\n")
    assert lines[1] == ""
    assert {line.split("\t")[0] for line in (lines[0], lines[2])} <= {"good", "bad"}
    assert set(json.loads(regard("classify", classifier, "--json", stdin="cc\n").out)["labels"]) == {"good", "bad"}


def test_look_draws_and_saves(regard: Regard, translator: Make, tmp_path: Path) -> None:
    assert "<eos>" in regard("look", translator(), "abc cab").out
    for suffix in ("html", "svg", "npz"):
        said = regard("look", translator(), "abc cab", "-o", tmp_path / f"deep/look.{suffix}", "--beam", 2)
        assert (said.code, said.out) == (0, "")
        assert (tmp_path / f"deep/look.{suffix}").stat().st_size > 100
    page = (tmp_path / "deep/look.html").read_text(encoding="utf-8")
    assert '"frames"' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    seen = json.loads(regard("look", translator(), "abc", "--target", "zz", "--json").out)
    assert seen["rows"] == ["z", "z", "<eos>"]


def test_a_model_without_attention_says_so(regard: Regard, translator: Make, tmp_path: Path) -> None:
    run = translator(decoder="once")
    said = regard("look", run, "abc")
    assert (said.code, "no attention" in said.out, "·" in said.out) == (0, True, False)
    assert regard("look", run, "abc", "-o", tmp_path / "look.html").code == 0
    refused = regard("look", run, "abc", "-o", tmp_path / "look.svg")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "look.html" in refused.err
    for command, line in (("align", "abc\txy\n"), ("translate", "abc\n")):
        said = regard(command, run, *(["--align"] if command == "translate" else []), stdin=line)
        assert (said.code, said.out) == (2, "")
        assert "model.decoder=bahdanau" in said.err


@pytest.mark.parametrize("penalty", [-1, 11, "nan"])
@pytest.mark.parametrize("beam", [1, 2])
def test_a_penalty_out_of_bounds(regard: Regard, translator: Make, penalty: object, beam: int) -> None:
    said = regard("translate", translator(), "--beam", beam, f"--penalty={penalty}", stdin="abc\n")
    assert (said.code, said.out) == (2, "")
    assert "give a number from 0 to 10" in said.err


def test_characters_never_seen_survive_and_are_told(regard: Regard, translator: Make) -> None:
    for command, line in (("translate", "日本 ξ 🙂"), ("score", "日本\tξ🙂"), ("align", "日本\tξ🙂")):
        said = regard(command, translator(), stdin=line + "\n")
        assert (said.code, len(said.out.splitlines())) == (0, 1)
        assert "4 tokens in line 1: not in this model's vocabulary, and read as <unk>" in said.err
    for command in ("score", "align"):  # what is to be said is counted too
        told = regard(command, translator(), stdin="ab\txy\nab\txξ\nξb\tξξ\n").err
        assert "4 tokens in 2 lines, first in line 2: not in this model's vocabulary" in told
        assert "vocabulary" not in regard(command, translator(), stdin="ab\txy\n").err
    said = regard("translate", translator(), stdin="abc\nξb\nc\nξξ\n")
    assert "3 tokens in 2 lines, first in line 2: not in this model's vocabulary" in said.err
    assert "2 tokens in line 1" in regard("look", translator(), "ξbξ").err
    assert "vocabulary" not in regard("translate", translator(), stdin="abc\n").err


def test_a_source_past_the_limit_is_refused_by_its_line_or_cut(regard: Regard, translator: Make) -> None:
    lines = "abc\n" * 600 + "b" * 40 + "\n"
    said = regard("translate", translator(), stdin=lines)
    assert said.code == 2
    assert said.err == (
        "error: line 601: 40 tokens, but the model reads at most 32; "
        "shorten it, or give --long truncate (keeps its beginning) or --long window (keeps its end); "
        'in Python: load(…, long="truncate")\n'
    )
    assert regard("translate", translator(), "--long", "truncate", stdin=lines).code == 0
    for command in ("score", "align"):
        assert "line 2: 40 tokens" in regard(command, translator(), stdin=f"a\tx\n{'b' * 40}\tx\n").err


@pytest.mark.parametrize(
    ("command", "kind", "cure"),
    [
        ("translate", "language", "regard generate"),
        ("translate", "classifier", "regard classify"),
        ("score", "classifier", "regard classify"),
        ("align", "language", "regard generate"),
        ("classify", "language", "regard generate"),
    ],
)
def test_a_verb_on_the_wrong_kind_of_model_names_the_right_one(
    regard: Regard, request: pytest.FixtureRequest, command: str, kind: str, cure: str
) -> None:
    said = regard(command, request.getfixturevalue(kind), stdin="a\n")
    assert (said.code, said.out) == (2, "")
    assert cure in said.err
    assert said.err.count("\n") == 1


def test_a_target_that_is_too_long_is_named_by_its_line(regard: Regard, tiny: list[str]) -> None:
    small = ["model=transformer", "model.width=8", "model.heads=1", "model.layers=1", "model.inner=8"]
    plan = [one for one in tiny if not one.startswith("model.")]
    assert regard("train", "translate", *plan, *small, "model.context=16", "--out", "run").code == 0
    lines = f"abc\tCBA\n\nab\t{'A' * 40}\n"
    for command in ("score", "align"):
        said = regard(command, "run", stdin=lines)
        assert "line 3: a target of 40 tokens, but the model generates at most 15" in said.err


def test_look_refuses_options_that_it_would_ignore(regard: Regard, translator: Make, language: Path) -> None:
    assert "--top 3: is the number of n-grams from --data FILE" in regard("look", translator(), "abc", "--top", 3).err
    assert "leave out --beam" in regard("look", language, "abc", "--beam", 2).err
