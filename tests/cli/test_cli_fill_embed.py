"""`regard fill` and `regard embed`: lines in, guesses or vectors out, in their order."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard import embed, fill, load
from regard.cli import main
from regard.verbs.words import embed_words
from tiny_public import bert

Regard = Callable[..., "Said"]  # noqa: F821
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public")
    bert(folder)
    return folder


def test_fill_shows_the_likeliest(regard: Regard, public: Path) -> None:
    said = regard("fill", public, "The [MASK] stood by the [MASK].", "--top", 2)
    (one,) = fill(load(public, device="cpu"), ["The [MASK] stood by the [MASK]."], top=2)
    text, first, second = said.out.rstrip("\n").split("\t")
    assert (said.code, text) == (0, one.text)
    for shown, guesses in zip((first, second), one.masks):
        assert shown == " ".join(f"{guess.piece} {guess.probability:.6g}" for guess in guesses)


def test_a_public_model_is_measured_on_a_file(regard: Regard, public: Path, tmp_path: Path) -> None:
    """Its settings do not say which token is the mask: its tokenizer does."""
    file = tmp_path / "lines.txt"
    file.write_text("the grey heron stood\nrain fell on the tin roof\n", encoding="utf-8")
    said = regard("eval", public, "--data", file, "--json")
    assert (said.code, said.err) == (0, "")
    assert set(json.loads(said.out)["scores"]) == {"loss", "perplexity"}
    assert "step" not in regard("eval", public, "--data", file).out
    assert regard("eval", public, "--data", file, "--split", "test").code == 2


def test_fill_answers_lines_in_place(regard: Regard, public: Path) -> None:
    said = regard("fill", public, "--json", stdin="a [MASK]\n\n[MASK] rain\n")
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert [one["line"] for one in answers] == [1, 2, 3]
    assert answers[1] == {"line": 2}
    assert len(answers[0]["masks"][0]) == 5
    assert regard("fill", public, stdin="\n").out == "\n"


def test_fill_without_a_mask(regard: Regard, public: Path, language: Path) -> None:
    said = regard("fill", public, stdin="[MASK]\n\nthe heron\n")
    assert (said.code, said.out) == (2, "")
    assert said.err == "error: line 3: no [MASK] in 'the heron'; write [MASK] where a token is to be found.\n"
    assert "line 1: no [MASK] in 'a'" in regard("fill", language, "a").err


def test_embed_writes_an_npz(public: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the grey heron\n\na lantern\n", encoding="utf-8")
    expected = embed(load(public, device="cpu"), ["the grey heron", "", "a lantern"])
    assert main(["embed", str(public), str(lines)]) == 0
    found = np.load(io.BytesIO(capsysbinary.readouterr().out))
    assert found.files == ["vectors"]
    np.testing.assert_allclose(found["vectors"], expected.vectors, atol=1e-6)
    out = tmp_path / "deep" / "out.npz"
    assert main(["embed", str(public), str(lines), "--pool", "tokens", "--normalize", "-o", str(out)]) == 0
    assert capsysbinary.readouterr().out == b""
    whole = np.load(out)
    assert whole["lengths"].tolist() == [5, 2, 4]
    np.testing.assert_allclose(np.linalg.norm(whole["vectors"], axis=1), 1.0, atol=1e-5)


def test_embed_json_and_many_lines(
    regard: Regard, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["rain " * (1 + row % 7) for row in range(40)]
    text = "\n".join(lines) + "\n"
    said = regard("embed", public, "--json", stdin=text)
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert [one["line"] for one in answers] == list(range(1, 41))
    monkeypatch.setattr("regard.cli.embed.TOGETHER", 15)
    assert regard("embed", public, "-o", tmp_path / "out.npz", stdin=text).code == 0
    vectors = np.load(tmp_path / "out.npz")["vectors"]
    np.testing.assert_allclose(vectors, [one["vector"] for one in answers], atol=1e-5)
    assert np.allclose(vectors[0], vectors[7], atol=1e-6)
    tokens = regard("embed", public, "--json", "--pool", "tokens", stdin="rain\n")
    assert len(json.loads(tokens.out)["vectors"]) == 3
    assert regard("embed", public, "-o", tmp_path / "none.npz", stdin="").code == 0
    assert np.load(tmp_path / "none.npz")["vectors"].shape == (0, 16)


def test_lines_are_numbered_through_all_chunks(regard: Regard, public: Path, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("a\n" * 520 + "the " * 60 + "\n", encoding="utf-8")
    for verb, more in (("embed", ["--json"]), ("embed", ["-o", "out.npz"])):
        said = regard(verb, public, "many.txt", *more)
        assert (said.code, said.err.startswith("error: line 521: ")) == (2, True), (verb, said.err)


def test_embed_words(regard: Regard, public: Path, tmp_path: Path) -> None:
    """JSON has each word with its place and all nine digits; the .npz has all words, end to end."""
    text = "the grey  heron\n\nrain\n"
    expected = embed_words(load(public, device="cpu"), text.splitlines(), "mix")
    said = regard("embed", public, "--words", "--layers", "mix", "--json", stdin=text)
    lines = [json.loads(line).get("words", []) for line in said.out.splitlines()]
    assert [[(one["word"], one["start"], one["end"]) for one in line] for line in lines] == [
        [("the", 0, 3), ("grey", 4, 8), ("heron", 10, 15)],
        [],
        [("rain", 0, 4)],
    ]
    assert (np.array([one["vector"] for one in lines[0]], np.float32) == expected[0].vectors).all()
    assert regard("embed", public, "--words", "--layers", "all", "-o", tmp_path / "out.npz", stdin=text).code == 0
    with np.load(tmp_path / "out.npz") as found:
        assert found["lengths"].tolist() == [3, 0, 1]
        assert found["offsets"].tolist() == [[0, 3], [4, 8], [10, 15], [0, 4]]
        assert found["vectors"].shape == (4, 3, 16)
    assert regard("embed", public, "--words", "--layers", "all", "-o", tmp_path / "none.npz", stdin="").code == 0
    with np.load(tmp_path / "none.npz") as found:
        assert [found[name].shape for name in ("vectors", "lengths", "offsets")] == [(0, 3, 16), (0,), (0, 2)]
    for more, message in (
        (["--words", "--pool", "mean"], "--words: has no pooling"),
        (["--layers", "cove"], "--layers cove: is no layer; give --as cove"),
        (["--carry", 2], "--carry 2: works with --words only"),
        (["--words", "--carry", 2], "only an ELMo carries its state"),
        (["--layers", "frist"], 'Did you mean "first"'),
    ):
        said = regard("embed", public, "--json", *more, stdin="a\n")
        assert said.code == 2
        assert message in said.err


def test_embed_refuses_what_cannot_be(regard: Regard, public: Path, language: Path) -> None:
    assert (
        "line 2: 60 tokens, but the model reads at most 38"
        in regard("embed", public, stdin="a\n" + "a " * 60 + "\n").err
    )
    assert 'Did you mean "mean"' in regard("embed", public, "--pool", "meen", stdin="a\n").err
    assert "pool=first" in regard("embed", language, "--pool", "first", stdin="a\n").err


def test_embed_keeps_binary_from_a_terminal(regard: Regard, public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.cli.embed.sys.stdout.isatty", lambda: True, raising=False)
    said = regard("embed", public, stdin="a\n")
    assert said.code == 2
    assert "--out out.npz" in said.err


def test_every_kind_of_model_embeds(regard: Regard, translator: Make, classifier: Path, language: Path) -> None:
    for run in (translator(), classifier, language):
        said = regard("embed", run, "--json", stdin="abc\n\n")
        assert (said.code, len(said.out.splitlines())) == (0, 2)
