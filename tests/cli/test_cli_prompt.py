"""`regard eval --prompt`: labels ranked by a language model, its tables, its JSON and its errors."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tiny_public
from regard import load
from regard.verbs.prompting import Prompt, draw_shots, rank_labels

Regard = Callable[..., "Said"]  # noqa: F821
TEMPLATE = r"{text}\nmood: {label}"
TRAIN = [("1", "warm sun"), ("0", "cold rain"), ("1", "old harbour"), ("0", "tin roof"), ("0", "grey night")]
DEV = [("1", "the sun rose"), ("0", "rain fell"), ("1", "a lantern"), ("1", "warm water")]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public") / "gpt2"
    tiny_public.gpt2(folder)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> None:
    for name, rows in (("train.tsv", TRAIN), ("dev.tsv", DEV)):
        (tmp_path / name).write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    table = "".join(f"{text}\t{label}\n" for label, text in DEV)
    (tmp_path / "named.tsv").write_text(f"sentence\tmood\n{table}", encoding="utf-8")
    (tmp_path / "empty.tsv").write_text("", encoding="utf-8")


@pytest.mark.usefixtures("files")
def test_the_figures_are_those_of_the_library(regard: Regard, gpt2: Path) -> None:
    how = ["--prompt", TEMPLATE, "--labels", "dull=0,bright=1", "--data", "dev.tsv", "--device", "cpu"]
    found = json.loads(regard("eval", gpt2, *how, "--shots", 2, "--seed", 5, "data.train=train.tsv", "--json").out)
    words, template = {"0": "dull", "1": "bright"}, TEMPLATE.replace("\\n", "\n")
    shots = draw_shots([(text, label) for label, text in TRAIN], 2, 5)
    texts = [text for _, text in DEV]
    expected = rank_labels(load(gpt2, "cpu"), texts, Prompt(template, words, shots))
    assert found["best"] == expected.best
    assert found["scores"]["accuracy"] == sum(a == b for a, (b, _) in zip(expected.best, DEV)) / 4
    assert found["scores"]["majority"] == 0.75
    assert found["labels"] == words
    assert (found["shots"], found["seed"], found["prompt"]) == (2, 5, template)
    assert found["first_prompt"] == Prompt(template, words, shots).context(texts[0], expected.shots[0])
    assert found["fewer_shots"] == sum(number < 2 for number in expected.shots)
    assert set(found["classes"]["scores"]) == {"0", "1"}


@pytest.mark.usefixtures("files")
def test_the_tables_have_the_majority_and_warn_of_fewer_shots(regard: Regard, gpt2: Path) -> None:
    how = ["--prompt", TEMPLATE, "--labels", "dull=0,bright=1", "--device", "cpu"]
    plain = regard("eval", gpt2, *how, "--data", "dev.tsv")
    assert plain.code == 0
    assert "no shots" in plain.out
    assert "always '1', the most frequent label" in plain.out
    assert "Confusion matrix" in plain.out
    assert r"'the sun rose\nmood:'" in plain.out
    more = regard("eval", gpt2, *how, "data.train=train.tsv", "data.test=dev.tsv", "--shots", 5, "--calibrate")
    assert more.code == 0
    assert f"prompts are longer than the model's {tiny_public.CONTEXT} tokens with 5 shots and have fewer" in more.err
    named = regard("eval", gpt2, *how, "--data", "named.tsv", "data.text=sentence", "data.label=mood", "--per-token")
    assert named.code == 0


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "mood: {label}", "--data", "dev.tsv"], "has no {text}"),
        (["--prompt", "{text}", "--data", "dev.tsv"], "has no {label}"),
        (["--prompt", "{text}", "--data", "missing.tsv"], "has no {label}"),  # before files are read
        (["--prompt", TEMPLATE], "give --data FILE"),
        (["--prompt", TEMPLATE, "--data", "empty.tsv"], "the file is empty"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--shots", 2, "data.train=empty.tsv"], "the file is empty"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--shots", 2], "give data.train=FILE"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--shots", 6, "data.train=train.tsv"], "--shots 6: there are"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--labels", "dull=0,=1"], "is a label without words"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--labels", "dull=0,x=0"], "is there twice"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--labels", "a=0,b=2"], "the label '1' has no words"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--labels", "a=0,a=1"], "have the same tokens"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "data.test=dev.tsv"], "both name the texts"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "data.vocab=3"], "not a setting of --prompt"),
        (["--prompt", TEMPLATE, "data.train=train.tsv", "--split", "best"], "--split best: there are no such texts"),
        (["--prompt", TEMPLATE, "--data", "dev.tsv", "--beam", 2], "--beam 2: is not for --prompt"),
        (["--shots", 2, "--data", "dev.tsv"], "--shots 2: is for --prompt; add that"),
    ],
)
def test_wrong_input_is_refused(regard: Regard, gpt2: Path, options: list[str], message: str) -> None:
    said = regard("eval", gpt2, *options)
    assert said.code != 0
    assert message in " ".join(said.err.split())
    assert "Traceback" not in said.err


@pytest.mark.usefixtures("files")
def test_a_model_that_is_no_language_model_is_refused(regard: Regard, classifier: Path, tmp_path: Path) -> None:
    said = regard("eval", classifier, "--prompt", TEMPLATE, "--data", "dev.tsv")
    assert said.code != 0
    assert "this is a classifier, which cannot rank labels; use: regard classify" in " ".join(said.err.split())
    tiny_public.bert(tmp_path / "bert")
    said = regard("eval", tmp_path / "bert", "--prompt", TEMPLATE, "--data", "dev.tsv")
    assert "a masked language model, which cannot rank labels" in " ".join(said.err.split())


@pytest.mark.usefixtures("files")
def test_labels_may_share_their_first_token(regard: Regard, gpt2: Path) -> None:
    """Both words begin with the token of a space and "b"."""
    how = ["--prompt", TEMPLATE, "--data", "dev.tsv", "--labels", "baker=0,before=1", "--json"]
    assert regard("eval", gpt2, *how, "--device", "cpu").code == 0


def test_a_t5_ranks_labels_as_targets_as_transformers_does(tmp_path: Path) -> None:
    sentencepiece, transformers = pytest.importorskip("sentencepiece"), tiny_public.transformers
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tiny_public.LINES), model_prefix=str(tmp_path / "spiece"), vocab_size=120,
        hard_vocab_limit=False, minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(vocab_size=260, decoder_start_token_id=0, **sizes)
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path, "cpu")
    prompt = Prompt("mood: {text} {label}", {"0": "rain", "1": "the sun"}, [("tin roof", "0")])
    ranked = rank_labels(ours, [text for _, text in DEV], prompt)
    for (_, text), scores in zip(DEV, ranked.scores):
        source = ours.tokenizer.encode(f"mood: tin roof rain mood: {text}")  # T5 reads a line end as a space
        for words, score in zip(("rain", "the sun"), scores):
            target = torch.tensor([[*ours.target_tokenizer.encode(words), 1]])
            with torch.no_grad():
                logits = theirs(input_ids=torch.tensor([[*source, 1]]), labels=target).logits
            logps = logits.log_softmax(-1).gather(2, target[..., None])
            assert score == pytest.approx(float(logps.sum()), abs=1e-3)
