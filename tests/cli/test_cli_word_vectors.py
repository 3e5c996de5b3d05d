"""Word vectors from the command line: train, neighbours, tests of similarity and analogies, export, files as models."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from regard.metrics import spearman

VECTORS = "king 1 1 0 0\nman 1 0 0 0\nwoman 0 0 1 0\nqueen 0 1 1 0\nRome 0 0 .1 1\nrome 0 0 0 1\nroman .3 0 0 1\n"


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    (tmp_path / "vectors.txt").write_text(VECTORS)
    return tmp_path / "vectors.txt"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("corpus") / "text.txt"
    words = [f"{first}{last}" for first in ("river", "cloud", "stone") for last in ("", "bed", "bank", "light")]
    path.write_text("".join(" ".join(random.choice(words, 8)) + "\n" for _ in range(60)))
    return path


def test_a_run_is_trained_asked_measured_and_exported(regard, corpus: Path) -> None:
    settings = [f"data.train={corpus}", "model.width=6", "plan.steps=4", "plan.batch_tokens=300", "plan.log=2"]
    said = regard("train", "word2vec", "model=cbow", "objective=hierarchical", *settings, "--out", "run")
    assert said.code == 0, said.err
    assert "words/s" in said.out
    assert re.search(r"^last step +4$", said.out, re.MULTILINE)
    assert "best step" not in said.out
    assert "regard neighbours run" in said.out.replace("python -m regard", "regard")
    assert "riverbed" in regard("neighbours", "run", "river", "--top", 11).out
    asked = regard("neighbours", "run", "rivr")
    assert asked.code == 2
    assert "rivr: not one of the 12 words that have vectors; nearest spellings: river" in asked.err
    kinds = {"v.txt": "word2vec text", "v.bin": "word2vec binary", "v.txt.gz": "GloVe text"}
    for name, kind in kinds.items():
        exported = regard("export", "run", name, "--to", kind.split()[0].lower())
        assert exported.out == f"wrote {name}: 12 word vectors of width 6, {kind}\n"
        one, other = (regard("neighbours", path, "river", "--json").out for path in ("run", name))
        assert one == other
    assert Path("v.txt").read_text().startswith("12 6\n")
    assert not gzip.decompress(Path("v.txt.gz").read_bytes()).startswith(b"12 6\n")
    assert "v.txt: is there already" in regard("export", "run", "v.txt", "--to", "glove").err
    assert "give --to word2vec or --to glove" in regard("export", "run", "folder").err
    assert regard("train", "word2vec", "--resume", "--out", "run").code == 0
    assert regard("doctor", "run").code == 0


def test_glove_is_trained_without_a_report_of_what_it_lacks(regard, corpus: Path) -> None:
    said = regard("train", "glove", f"data.train={corpus}", "model.width=6", "plan.steps=2", "--out", "run", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["step"] == 2
    assert "All of the text is for training" in Path("run/report.html").read_text()
    assert regard("train", "glove", f"data.train={corpus}", "--dry-run").code == 0


@pytest.mark.parametrize(("steps", "message"), [(1, "output: 72 of its 102 numbers are NaN"), (3, "the loss is nan")])
def test_vectors_that_diverge_are_not_saved(regard, corpus: Path, steps: int, message: str) -> None:
    settings = [f"data.train={corpus}", "model.width=6", f"plan.steps={steps}", "plan.rate=1e30"]
    said = regard("train", "word2vec", "model=cbow", *settings, "plan.batch_tokens=100", "--out", "run")
    assert said.code == 2
    assert f"training diverged: {message}" in said.err
    assert "lower plan.rate (1e+30)" in said.err
    assert [path.name for path in Path("run/steps").iterdir()] == ["000000"]


def test_a_loss_that_grows_tenfold_is_divergence(regard, corpus: Path) -> None:
    settings = [f"data.train={corpus}", "model.width=6", "plan.steps=12", "plan.rate=10", "plan.schedule=constant"]
    said = regard("train", "word2vec", "model=cbow", *settings, "plan.batch_tokens=100", "--out", "run")
    assert said.code == 2
    assert re.search(r"training diverged: the loss is [0-9.]+e\+\d+; lower plan.rate \(10\)", said.err)


def test_words_are_added_and_those_of_the_question_are_no_answers(regard, vectors: Path) -> None:
    (found,) = [json.loads(regard("neighbours", vectors, "king", "-", "man", "+", "woman", "--json", "--top", 2).out)]
    assert found["question"] == "king - man + woman"
    assert [one["word"] for one in found["neighbours"]] == ["queen", "Rome"]
    king, man, woman = np.array([1, 1, 0, 0]) / 2**0.5, np.array([1, 0, 0, 0]), np.array([0, 0, 1, 0])
    asked, queen = king - man + woman, np.array([0, 1, 1, 0]) / 2**0.5
    assert found["neighbours"][0]["cosine"] == pytest.approx(asked @ queen / np.linalg.norm(asked))
    assert "queen" in regard("neighbours", vectors, "king - man + woman").out
    assert regard("neighbours", vectors, "KING").out.splitlines()[2].split()[0] == "man"  # in lower case


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (["king", "man"], "give words with + or - between them"),
        (["king", "+"], "a word is missing at the end"),
        (["xyzzy"], "xyzzy: not one of the 7 words that have vectors; no word is spelt like it"),
        (["kinf"], "kinf: not one of the 7 words that have vectors; nearest spellings: king"),
        (["king-man+woman"], "words that have vectors; put spaces around + and -: king - man + woman."),
        (["king-mzn"], "king-mzn: not one of the 7 words that have vectors; nearest spellings: king"),
        (["king", "-", "KING"], "'king - KING': its vector is zero, which no word is near to; ask for other words"),
        (["x" * 10_000], f"error: {'x' * 80}: not one of the 7 words"),
        ([], "give a word"),
    ],
)
def test_a_question_that_is_none_is_refused(regard, vectors: Path, question: list[str], message: str) -> None:
    said = regard("neighbours", vectors, *question)
    assert said.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_spelling_that_differs_in_case_comes_first(regard, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("IRA 1 0\nIreland 0 1\nIrelands 1 1\nIRELAND's 2 1\n")
    said = regard("neighbours", tmp_path / "names.txt", "IRELAND")
    assert "nearest spellings: Ireland, Irelands, IRELAND's." in said.err


def test_the_number_of_words_that_a_file_cannot_give_is_told(regard, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("paris 1 0\nnew york 0 1\nrome 1 1\n")
    said = regard("neighbours", tmp_path / "names.txt", "paris")
    assert said.code == 0
    assert "names.txt: skipped 1 of its 3 words, with a space in them or empty; write new_york" in said.err
    (tmp_path / "names.txt").write_text("paris 1 0\nrome 1 1\nrome 2 1\n")
    assert not regard("neighbours", tmp_path / "names.txt", "paris").err


def test_cosines_of_very_large_and_very_small_numbers(regard, tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("large 3e38 3e38\nother 3e38 0\nsmall 1e-30 1e-30\n")
    found = json.loads(regard("neighbours", tmp_path / "sizes.txt", "large", "--json").out)["neighbours"]
    assert [one["word"] for one in found] == ["small", "other"]
    assert [one["cosine"] for one in found] == pytest.approx([1, 0.5**0.5])


def test_similarity_is_spearmans_with_ties_and_the_covered_pairs_are_told(regard, vectors: Path) -> None:
    Path("pairs.tsv").write_text(
        "# two words\tnumber\nking\tman\t5\nROME\troman\t9\nman\twoman\t1\nking\troman\t1\nx\ty\t3\n"
    )
    (found,) = json.loads(regard("eval", vectors, "--wordsim", "--data", "pairs.tsv", "--json").out)["wordsim"]
    assert (found["covered"], found["pairs"]) == (4, 5)
    cosines = [0.5**0.5, 1 / 1.09**0.5, 0.0, 0.3 / 1.09**0.5 / 2**0.5]
    # Ranks 3, 4, 1, 2 and 3, 4, 1.5, 1.5: 1 − Σ d² … by Pearson's correlation of the ranks
    assert found["spearman"] == pytest.approx(np.corrcoef([3, 4, 1, 2], [3, 4, 1.5, 1.5])[0, 1])
    scipy = pytest.importorskip("scipy.stats")
    assert found["spearman"] == pytest.approx(scipy.spearmanr(cosines, [5, 9, 1, 1]).statistic)
    assert spearman(np.array(cosines), np.array([5.0, 9, 1, 1])) == pytest.approx(found["spearman"])
    shown = regard("eval", vectors, "--wordsim", "--data", "pairs.tsv").out
    assert "4 of 5 (80%)" in shown
    Path("named.tsv").write_text("Word 1\tWord 2\tHuman (mean)\n" + Path("pairs.tsv").read_text().partition("\n")[2])
    assert "4 of 5 (80%)" in regard("eval", vectors, "--wordsim", "--data", "named.tsv").out
    for judgement in ("five", "nan", "inf"):
        Path("bad.tsv").write_text(f"king\tman\t5\nking\tman\t{judgement}\n")
        bad = regard("eval", vectors, "--wordsim", "--data", "bad.tsv")
        assert bad.code == 2
        assert "bad.tsv, line 2: no pair of words with a number" in bad.err


def test_analogies_are_answered_by_section(regard, vectors: Path) -> None:
    Path("questions.txt").write_text(
        ": family\nman king woman queen\nman woman king queen\n: none\nman king boy prince\n"
    )
    found = json.loads(regard("eval", vectors, "--analogies", "--data", "questions.txt", "--json").out)["analogies"]
    assert [(each["section"], each["right"], each["covered"]) for each in found["sections"]] == [
        ("family", 2, 2),
        ("none", 0, 0),
    ]
    assert (found["accuracy"], found["covered"], found["questions"]) == (1.0, 2, 3)
    few = json.loads(regard("eval", vectors, "--analogies", "--data", "questions.txt", "--json", "--most", 3).out)
    assert few["analogies"]["covered"] == 0  # queen is the fourth word


def test_the_folder_of_tests_is_found(regard, vectors: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    assert "--wordsim: give a file with --data FILE, or set REGARD_DATA" in regard("eval", vectors, "--wordsim").err
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert "has no such files" in regard("eval", vectors, "--analogies").err
    (tmp_path / "wordsim").mkdir()
    (tmp_path / "wordsim" / "EN-X.txt").write_text("king\tman\t1\nman\troman\t2\n")
    (tmp_path / "wordsim" / "questions-words.txt").write_text("man king woman queen\n")
    shown = regard("eval", vectors, "--wordsim", "--analogies").out
    assert "EN-X" in shown
    assert "100.0%" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval"], "give --wordsim, --analogies or both"),
        (["eval", "--wordsim", "--split", "test"], "--split test: is not for --wordsim"),
        (["eval", "--wordsim", "--analogies", "--data", "x"], "pairs or analogies, not both"),
        (["eval", "--analogies", "--data", "vectors.txt"], "line 1: 5 words; a question has four"),
        (["generate", "the"], "this is a table of word vectors, which cannot generate; use: regard neighbours"),
        (["export", "out", "--to", "ctranslate2"], "give --to word2vec or --to glove"),
        (["export", "out.bin", "--to", "glove"], "GloVe's format is text"),
    ],
)
def test_what_vectors_cannot_do_is_told(regard, vectors: Path, arguments: list[str], message: str) -> None:
    said = regard(arguments[0], vectors, *arguments[1:])
    assert said.code == 2
    assert message in said.err


def test_a_classifier_that_cannot_start_from_vectors_may_read_them_as_features(regard, vectors: Path) -> None:
    Path("texts.tsv").write_text("a\tking man\nb\troman queen\n")
    said = regard("train", "classify", "data.train=texts.tsv", f"from={vectors}")
    assert said.code == 2
    assert ", set model=bilstm to read it as features, or leave from= out" in said.err


def test_a_model_without_static_vectors_has_no_neighbours(regard, language: Path) -> None:
    said = regard("neighbours", language, "a")
    assert said.code == 2
    assert "this is a language model, which has no static word vectors; give a sentence" in said.err
    assert f"regard neighbours {language} '… *a* …' --text FILE" in said.err
    marked = regard("neighbours", language, "a *b* c").err
    assert f"regard neighbours {language} 'a *b* c' --text FILE" in marked
    assert "give --to transformers or ctranslate2" in regard("export", language, "v.txt", "--to", "word2vec").err


def test_lines_are_embedded_as_the_mean_of_their_words(regard, vectors: Path) -> None:
    said = regard("embed", vectors, "--json", stdin="king woman\n")
    assert json.loads(said.out)["vector"] == [0.5, 0.5, 0.5, 0]
