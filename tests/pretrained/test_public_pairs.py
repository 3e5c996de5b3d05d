"""Public checkpoints that read two texts: the logits are those of `transformers`."""

from pathlib import Path

import pytest
import torch

import regard
from regard.cli import main
from tiny_public import ENCODER, saved, transformers, wordpiece

PAIRS = [("the grey heron stood", "rain fell"), ("a lantern", "the old harbour door swung above the water")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public") / "bert"
    wordpiece(folder)
    names = {0: "no", 1: "yes", 2: "maybe"}
    config = transformers.BertConfig(
        **ENCODER, vocab_size=200, max_position_embeddings=40, id2label=names, label2id={v: k for k, v in names.items()}
    )
    saved(transformers.BertForSequenceClassification(config), folder)
    return folder


def test_the_classes_of_pairs_are_those_of_the_reference(folder: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    reference = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = tokenizer(*map(list, zip(*PAIRS)), padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = reference(**batch).logits.softmax(-1)
    for found, row in zip(regard.classify(regard.load(folder), PAIRS), expected):
        assert [found.labels[name] for name in ("no", "yes", "maybe")] == pytest.approx(row.tolist(), abs=1e-4)


def test_a_public_classifier_reads_texts_unless_pairs_are_meant(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
    assert main(["classify", str(folder), "--pairs", str(tmp_path / "pairs.tsv")]) == 0
    labels = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert labels == [one.label for one in regard.classify(regard.load(folder), PAIRS)]
    assert regard.classify(regard.load(folder), ["a lantern"])[0].label in ("no", "yes", "maybe")
    assert main(["similarity", str(folder), "a", "b"]) == 2
    assert "which cannot compare two texts; use: regard classify" in capsys.readouterr().err
