"""`regard generate`: prompts in, answers out, at once or as they come."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from regard import generate, load
from tiny_public import gpt2

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public")
    gpt2(folder)
    return folder


def test_prompts_are_printed_with_their_answers(regard: Regard, public: Path) -> None:
    first, second = generate(load(public, device="cpu"), ["the grey", "a"], limit=9)
    said = regard("generate", public, "the grey", "a", "--limit", 9)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"the grey{first.text}\na{second.text}\n"
    assert regard("generate", public, "--limit", 9, stdin="the grey\na\n").out == said.out
    assert regard("generate", public, "the grey", "a", "--limit", 9, "--stream").out == said.out


def test_blank_lines_have_blank_answers_wherever_they_are(regard: Regard, public: Path) -> None:
    answer = regard("generate", public, "--limit", 2, stdin="a\n").out
    for lines in (["", " "], ["", "a"], ["a", "", ""], ["", "a", "", "a", ""]):
        text = "".join(f"{line}\n" for line in lines)
        for more in ([], ["--stream"]):
            said = regard("generate", public, "--limit", 2, *more, stdin=text)
            assert said.out == "".join(answer if line.strip() else "\n" for line in lines), (lines, more)
        found = regard("generate", public, "--limit", 2, "--json", stdin=text).out.splitlines()
        assert [json.loads(one)["line"] for one in found] == list(range(1, len(lines) + 1))


def test_json_has_tokens_and_logps_in_order(regard: Regard, public: Path) -> None:
    prompts = ["rain fell on the tin roof", "a", "", "the grey heron", "a"]
    how = ["--temperature", 1.2, "--top-k", 50, "--top-p", 0.99, "--seed", 3, "--limit", 7]
    said = regard("generate", public, *how, "--json", "--batch-tokens", 40, stdin="\n".join(prompts) + "\n")
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert [one["line"] for one in answers] == [1, 2, 3, 4, 5]
    assert answers[2] == {"line": 3}  # a blank line
    library = generate(load(public, device="cpu"), prompts, temperature=1.2, top_k=50, top_p=0.99, seed=3, limit=7)
    for one, two in [pair for pair in zip(answers, library) if pair[1].prompt]:
        assert (one["prompt"], one["seed"]) == (two.prompt, 3)
        assert (one["text"], one["tokens"], one["ended"]) == (two.text, two.tokens, two.ended)
        assert one["logps"] == pytest.approx(two.logps.tolist(), abs=1e-4)


def test_the_end_of_the_context_is_told_or_passed(regard: Regard, tmp_path: Path) -> None:
    gpt2(tmp_path, read_pointer=False)  # it never ends a text
    how = ["the grey", "--limit", 60, "--temperature", 1]
    said = regard("generate", tmp_path, *how)
    assert said.err == "1 answer stopped at the model's context of 40 tokens; --long window continues past it\n"
    assert regard("generate", tmp_path, *how, "--stream") == said
    cut, on = (
        json.loads(regard("generate", tmp_path, *how, "--json", *more).out) for more in ([], ["--long", "window"])
    )
    assert (cut["ended"], on["ended"]) == ("context", "limit")
    assert len(cut["tokens"]) < len(on["tokens"]) == 60
    assert on["tokens"][: len(cut["tokens"])] == cut["tokens"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["x" * 90], "prompt 1: 90 tokens, but the model reads at most 39"),
        (["a", "--top-k", 3], "top_k=3 with temperature=0"),
        (["a", "--stream", "--json"], "--stream and --json"),
        (["a", "--stream", "--beam", 2], "--stream and --beam"),
        (["a", "--long", "widow"], 'Did you mean "window"'),
        (["a", "--limit", 0], "--limit"),
        (["a", "--seed", -1], "seed=-1"),
    ],
)
def test_mistakes_are_one_line(regard: Regard, public: Path, arguments: list[object], told: str) -> None:
    said = regard("generate", public, *arguments)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert told in said.err


def test_the_wrong_kind_of_model(regard: Regard, translator: Make, classifier: Path) -> None:
    assert "use: regard translate" in regard("generate", translator(), "abc").err
    assert "use: regard classify" in regard("generate", classifier, "abc").err
