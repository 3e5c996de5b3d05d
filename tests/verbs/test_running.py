"""The perplexity of a running text: equal to a loop over the text that is written out here."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import UserError, load
from regard.cli import main
from regard.data.example import Text
from regard.data.fields import TargetText
from regard.data.tokenizers import train_tokenizer
from regard.models import GptConfig, RecurrentLmConfig
from regard.verbs import Loaded
from regard.verbs import running as module
from regard.verbs.running import score_running
from tiny_public import CONTEXT, LINES, bert, gpt2

TEXT = "\n".join(LINES * 2)
ABC = "abc cab bca\na b c cc " * 3


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("gpt2")
    return folder, gpt2(folder)


@torch.no_grad()
def sliding(reference: Any, ids: list[int], stride: int) -> tuple[float, int]:
    """The loss of ids in windows of the whole context, each with the targets that the windows before did not have."""
    nats, count, seen = 0.0, 0, 1  # nothing predicts the first token
    for begin in range(0, len(ids), stride):
        end = min(begin + CONTEXT, len(ids))
        logps = reference(torch.tensor([ids[begin:end]])).logits[0].log_softmax(-1)
        for place in range(seen, end):
            nats -= float(logps[place - 1 - begin, ids[place]])
            count += 1
        seen = end
        if end == len(ids):
            break
    return nats, count


@pytest.mark.parametrize("stride", [None, 7, CONTEXT - 1])
def test_windows_are_those_of_the_reference(public: tuple[Path, Any], stride: int | None) -> None:
    model = load(public[0], device="cpu")
    ids = model.tokenizer.encode(TEXT)
    assert len(ids) > 2 * CONTEXT
    nats, count = sliding(public[1], ids, stride or CONTEXT // 2)
    for budget in (CONTEXT, 5 * CONTEXT):
        found = score_running(model, [Text(TEXT)], stride, batch_tokens=budget)
        assert (found.tokens, found.window, found.stride) == (count, CONTEXT, stride or CONTEXT // 2)
        assert found.tokens == len(ids) - 1
        assert found.nats == pytest.approx(nats, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(nats / (len(ids) - 1)), rel=1e-4)
    assert found.bits_per_byte == pytest.approx(nats / math.log(2) / len(TEXT.encode()), rel=1e-4)
    assert found.word_perplexity == pytest.approx(math.exp(nats / len(TEXT.split())), rel=1e-4)
    assert 2**found.bits_per_word == pytest.approx(found.word_perplexity)


def test_a_text_within_the_context_is_one_window(public: tuple[Path, Any]) -> None:
    model = load(public[0], device="cpu")
    ids = model.tokenizer.encode(LINES[0])
    assert len(ids) < CONTEXT
    logps = model.logits(torch.tensor([ids])).log_softmax(-1)[0]
    nats = -sum(float(logps[at, token]) for at, token in enumerate(ids[1:]))
    assert score_running(model, [Text(LINES[0])]).nats == pytest.approx(nats, rel=1e-5)


def test_words_go_on_in_the_next_example(public: tuple[Path, Any]) -> None:
    model = load(public[0], device="cpu")
    whole = score_running(model, [Text("the grey heron stood")])
    parts = [Text("the gr"), Text(""), Text("ey"), Text(" heron "), Text("stood")]
    assert score_running(model, parts) == whole
    assert (whole.words, whole.bytes) == (4, 20)


def ours(config: Any) -> Loaded:
    """A model of ours with random weights; its text begins with bos."""
    torch.manual_seed(0)
    network = config.build().eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    tokenizer = train_tokenizer("char", [ABC], 40)
    return Loaded(Path("memory"), network, torch.device("cpu"), {"text": TargetText(tokenizer)})


VOCAB = train_tokenizer("char", [ABC], 40).size
XL: dict[str, Any] = {"positions": "xl", "memory": 6, "attention_bias": False, "dropout": 0.0}


@pytest.mark.parametrize(
    "config",
    [
        RecurrentLmConfig(vocab=VOCAB, width=12, embed=8, layers=1),
        GptConfig(vocab=VOCAB, width=12, heads=2, layers=2, inner=16, **XL),
    ],
    ids=["lstm", "xl"],
)
@torch.no_grad()
def test_a_state_is_carried_through_the_text(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 5)
    model: Any = ours(config)
    ids = [*model.opening, *model.tokenizer.encode(ABC)]
    assert model.opening
    nats, state = 0.0, model.module.start_segments(1)
    for at in range(0, len(ids) - 1, 5):
        tokens = torch.tensor([ids[at : min(at + 5, len(ids) - 1)]])
        features, state = model.module.advance(tokens, state)
        logps = model.module.readout(features)[0].log_softmax(-1)
        nats -= sum(float(logps[place, ids[at + place + 1]]) for place in range(tokens.shape[1]))
    found = score_running(model, [Text(ABC)])
    assert (found.tokens, found.stride, found.unknown) == (len(ABC), None, 0)
    assert found.nats == pytest.approx(nats, rel=1e-5)
    if isinstance(config, RecurrentLmConfig):  # its segments change nothing
        monkeypatch.setattr(module, "WINDOW", 512)
        assert score_running(model, [Text(ABC)]).nats == pytest.approx(nats, rel=1e-5)
    with pytest.raises(UserError, match="--stride 3: this model carries its state"):
        score_running(model, [Text(ABC)], stride=3)


def test_unlimited_positions_have_windows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 8)
    model = ours(GptConfig(vocab=VOCAB, width=12, heads=2, layers=1, inner=16, positions="none"))
    assert model.longest is None
    found = score_running(model, [Text(ABC + "ß")])
    assert (found.window, found.stride, found.unknown, found.tokens) == (8, 4, 1, len(ABC) + 1)


def test_what_cannot_be_measured(public: tuple[Path, Any], tmp_path: Path) -> None:
    model = load(public[0], device="cpu")
    for stride in (0, CONTEXT):
        with pytest.raises(UserError, match=rf"--stride {stride}: a window has 40 tokens; give 1 to 39"):
            score_running(model, [Text(TEXT)], stride)
    with pytest.raises(UserError, match="the text has 0 tokens"):
        score_running(model, [])
    bert(tmp_path)
    with pytest.raises(UserError, match="this is a masked language model, which cannot eval --running"):
        score_running(load(tmp_path, device="cpu"), [Text(TEXT)])


def test_the_command(public: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    given = ["eval", str(public[0]), "--data", str(file), "--device", "cpu", "--running"]
    assert main([*given, "--stride", "7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = score_running(load(public[0], device="cpu"), [Text(TEXT)], 7)
    assert found["nats"] == pytest.approx(expected.nats, rel=1e-5)
    assert found["scores"]["bits_per_byte"] == pytest.approx(expected.bits_per_byte, rel=1e-5)
    assert main(given) == 0
    assert "perplexity of a word" in capsys.readouterr().out
    for wrong, told in (
        (["eval", str(public[0]), "--running"], "give --data FILE"),
        ([*given, "--by-length"], "--by-length: is not for --running"),
        ([*given[:-1], "--stride", "7"], "--stride 7: is for --running"),
    ):
        assert main(wrong) == 2
        assert told in capsys.readouterr().err
