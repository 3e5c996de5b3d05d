"""The output of commands: one line for each line, the same JSON of every verb, and nothing that controls a terminal."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import regard.cli
from regard import generate, load
from regard.cli.console import SafeConsole
from regard.cli.progress import print_warnings
from regard.errors import escape_controls
from regard.verbs import Translation, translate
from tiny_public import bert, gpt2
from untrained import save_untrained

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]
HOSTILE = "\x1b]0;title\x07\x9b31m\x7fred\u2028"
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # invisible


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public")
    gpt2(folder)
    return folder


def objects(said: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.out.removesuffix("\n").split("\n")]


def test_only_one_rank_prints_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        print_warnings(["few examples"], SafeConsole(quiet=quiet))
    assert capsys.readouterr().err.count("few examples") == 1


def test_control_characters_are_written_as_escapes() -> None:
    assert escape_controls(HOSTILE) == r"\x1b]0;title\x07\x9b31m\x7fred\u2028"
    assert escape_controls("a\nb\tc\r\udc80") == r"a\nb\tc\r\udc80"
    assert escape_controls("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert escape_controls("Η βάρκα · naïve 🙂 \\n") == "Η βάρκα · naïve 🙂 \\n"


def test_directions_that_nobody_sees_are_written_as_escapes(regard: Regard) -> None:
    for one in DIRECTIONS:
        escape = f"\\u{ord(one):04x}"
        assert escape_controls(f"a{one}b") == f"a{escape}b"
        assert escape in regard("score", f"runs/x{one}", stdin="a\n").err
    assert (
        escape_controls("שלום עולם · می\u200cخواهم") == "שלום עולם · می\u200cخواهم"
    )  # the letters have directions, too


def test_directions_do_not_leave_a_command(regard: Regard, public: Path, tmp_path: Path) -> None:
    text, hidden = f"the{DIRECTIONS[7]}{DIRECTIONS[1]}", re.compile(f"[{DIRECTIONS}]")
    (tmp_path / "train.tsv").write_text("".join(f"good\t{n} {text}\n" for n in range(9)), encoding="utf-8")
    for said in (
        regard("generate", public, text, "--limit", 1),
        regard("generate", public, text, "--limit", 1, "--stream"),
        regard("generate", public, text, "--limit", 1, "--json"),
        regard("score", public, "--tokens", stdin=text),
        regard("look", public, text),
        regard("show", "classify", f"data.train={tmp_path / 'train.tsv'}", "--example"),
    ):
        assert (said.code, hidden.findall(said.out + said.err)) == (0, []), said.err
    assert objects(regard("generate", public, text, "--limit", 1, "--json"))[0]["prompt"] == text
    page = tmp_path / "page.html"
    assert regard("look", public, text, "-o", page).code == 0
    assert hidden.findall(re.sub("<script>.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)) == []


def test_errors_do_not_control_the_terminal(regard: Regard) -> None:
    said = regard("score", f"runs/{HOSTILE}\nsecond line", stdin="a\n")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", said.err)
    assert r"\x1b]0;title" in said.err


def test_data_does_not_control_the_terminal(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"good\tline {n} {HOSTILE}\n" for n in range(9)), encoding="utf-8")
    said = regard("show", "classify", f"data.train={tmp_path / 'train.tsv'}", "--example")
    assert (said.code, "\x1b" in said.out, "\x9b" in said.out) == (0, False, False)
    assert r"\x1b]0;title" in said.out


def test_every_console_of_the_commands_is_safe() -> None:
    for path in Path(regard.cli.__file__).parent.glob("*.py"):
        assert not re.search(r"(?<!Safe)(?<!Lasting)\bConsole\(", path.read_text(encoding="utf-8")), path
    console = SafeConsole(width=40, color_system=None)
    with console.capture() as capture:
        console.print(f"[bold]{HOSTILE}[/]\nnext")
    assert capture.get() == escape_controls(HOSTILE).replace(r"\x07", "") + "\nnext\n"  # rich drops the bell


def test_an_answer_is_one_line(regard: Regard, translator: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(*given: Any) -> list[Translation]:
        return [replace(one, text=f"x\ny\tz{HOSTILE}") for one in translate(*given)]

    monkeypatch.setattr("regard.verbs.translate", odd)
    said = regard("translate", translator(), stdin="abc\ncc\n")
    assert said.out == rf"x\ny\tz{escape_controls(HOSTILE)}" + "\n" + rf"x\ny\tz{escape_controls(HOSTILE)}" + "\n"
    said = regard("translate", translator(), "--json", stdin="abc\n")
    assert "\x9b" not in said.out
    assert objects(said)[0]["text"] == f"x\ny\tz{HOSTILE}"  # JSON has the exact text


def test_a_continuation_of_a_line_is_one_line(regard: Regard, public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = load(public, device="cpu").tokenizer.decode
    monkeypatch.setattr("regard.data.tokenizers.Tokenizer.decode", lambda self, tokens: decode(tokens) + "\n\x1b!")
    for how in ([], ["--stream"]):
        assert len(regard("generate", public, "--limit", 1, *how, stdin="the\n").out.splitlines()) == 1
        said = regard("generate", public, "the", "--limit", 1, *how)
        assert "\x1b" not in said.out


def test_the_json_of_a_blank_line_is_its_number(
    regard: Regard, translator: Make, language: Path, classifier: Path, public: Path, tmp_path: Path
) -> None:
    bert(tmp_path / "bert")
    made = {name: save_untrained(name, tmp_path) for name in ("pair", "similarity", "multilabel", "rate", "tag")}
    for verb, model, line in (
        ("translate", translator(), "abc"),
        ("score", translator(), "abc\txy"),
        ("align", translator(), "abc\txy"),
        ("score", language, "abc"),
        ("generate", public, "the"),
        ("classify", classifier, "ab"),
        ("classify", made["pair"], "a b\tb"),
        ("classify", made["multilabel"], "a b"),
        ("classify", made["rate"], "a b"),
        ("similarity", made["similarity"], "a b\tb"),
        ("fill", tmp_path / "bert", "the [MASK]"),
        ("tag", made["tag"], "a b"),
        ("embed --words", language, "abc"),
    ):
        text = f"{line}\n\n{line}\n  \n{line}"  # the last line has no end
        command, *options = verb.split()
        found = objects(regard(command, model, *options, "--json", stdin=text))
        assert [one["line"] for one in found] == [1, 2, 3, 4, 5], verb
        assert (found[1], found[3]) == ({"line": 2}, {"line": 4}), verb
        assert found[0].keys() == found[2].keys() == found[4].keys() > {"line"}
        if command not in ("tag", "embed"):  # one line for each entity, and binary vectors
            lines = regard(verb, model, stdin=text).out.split("\n")
            assert [bool(one) for one in lines] == [True, False, True, False, True, False], verb


def test_a_blank_line_has_a_vector(regard: Regard, language: Path) -> None:
    found = objects(regard("embed", language, "--json", stdin="abc\n\n  \nabc"))
    assert [one["line"] for one in found] == [1, 2, 3, 4]
    assert found[1]["vector"] == found[2]["vector"] != found[0]["vector"]


def test_a_beam_of_generate_has_scores_and_several_answers(regard: Regard, public: Path) -> None:
    how = ["--beam", 3, "--nbest", 2, "--limit", 5]
    found = objects(regard("generate", public, *how, "--json", stdin="the\na\n"))
    library = generate(load(public, device="cpu"), ["the", "a"], beam=3, nbest=2, limit=5)
    assert [one["line"] for one in found] == [1, 1, 2, 2]
    assert [one["tokens"] for one in found] == [one.tokens for one in library]
    for one, two in ((library[0], library[1]), (library[2], library[3])):
        assert one.tokens != two.tokens
        assert one.score > two.score
        assert two.score == pytest.approx(two.logps.mean(), abs=1e-5)
    (best,) = generate(load(public, device="cpu"), ["the"], beam=3, limit=5)
    assert (best.tokens, best.score) == (library[0].tokens, library[0].score)
    lines = regard("generate", public, *how, stdin="the\n").out.splitlines()
    assert [float(line.rpartition("\t")[2]) for line in lines] == pytest.approx(
        [one.score for one in library[:2]], 1e-5
    )
    assert "nbest=3 with beam=2" in regard("generate", public, "the", "--beam", 2, "--nbest", 3).err
    assert "nbest=2: long=window" in regard("generate", public, "the", *how, "--long", "window").err


def test_only_a_model_that_counts_has_formulas(regard: Regard, language: Path, bigram: Path) -> None:
    assert "formulas" not in objects(regard("score", language, "--json", stdin="ab\n"))[0]
    assert len(objects(regard("score", bigram, "--json", stdin="ab\n"))[0]["formulas"]) == 3


def test_a_text_of_one_token_without_a_begin_token(regard: Regard, tmp_path: Path) -> None:
    gpt2(tmp_path / "running", read_pointer=False)
    said = regard("score", tmp_path / "running", stdin="a\n")
    assert said.out == "0\t-\t\n"
    assert "1 line of one token" in said.err
    assert "nan" not in regard("score", tmp_path / "running", "--tokens", stdin="a\n").out
    assert objects(regard("score", tmp_path / "running", "--json", stdin="a\n"))[0]["perplexity"] is None
