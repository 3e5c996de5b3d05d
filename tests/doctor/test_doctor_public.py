"""Models of `transformers`: as plain modules, and as directories. Runs of our own, and the command."""

import json
import math
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.checks import CHECKS, DOES_NOT_APPLY, FAILED, PASSED, Calls, Finding, doctor
from regard.cli import main
from regard.models import Lstmn
from tiny_public import bert, gpt2, saved, transformers, wordpiece


def by_status(findings: list[Finding], status: str) -> list[str]:
    return [found.check for found in findings if found.status == status]


# -- plain modules ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cached:
    """A cache of transformers, which changes in place, as a state."""

    cache: Any

    def select(self, rows: Tensor) -> "Cached":
        self.cache.batch_select_indices(rows)
        return self


def logits(module: Any, tokens: Tensor, real: Tensor) -> Tensor:
    return module(input_ids=tokens, attention_mask=real.long()).logits


def step(module: Any, tokens: Tensor, state: Cached) -> tuple[Tensor, Cached]:
    out = module(input_ids=tokens[:, None], past_key_values=state.cache, use_cache=True)
    return out.logits[:, -1], Cached(out.past_key_values)


def translated(module: Any, tokens: Tensor, real: Tensor, source: Tensor, source_real: Tensor) -> Tensor:
    return module(
        input_ids=source,
        attention_mask=source_real.long(),
        decoder_input_ids=tokens,
        decoder_attention_mask=real.long(),
    ).logits


ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
MARIAN = {
    **{"vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 32},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20},
    **{"pad_token_id": 39, "decoder_start_token_id": 39, "eos_token_id": 0},
}


def make_gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    )


def start(module: nn.Module, rows: int, capacity: int) -> Cached:
    return Cached(transformers.DynamicCache())


PLAIN: dict[str, tuple[Callable[[], nn.Module], Calls]] = {
    "gpt2": (make_gpt2, Calls(logits, 40, causal=True, start=start, step=step, build=make_gpt2)),
    "bert": (
        lambda: transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=40, **ENCODER)),
        Calls(logits, 40),
    ),
    "bert-class": (
        lambda: transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=40, **ENCODER)),
        Calls(logits, 40, one_per_text=True),
    ),
    "roberta": (
        lambda: transformers.RobertaForMaskedLM(transformers.RobertaConfig(vocab_size=40, **ENCODER)),
        Calls(logits, 40),
    ),
    "marian": (
        lambda: transformers.MarianMTModel(transformers.MarianConfig(**MARIAN)),
        Calls(translated, 40, source_vocab=40, causal=True),
    ),
    "t5": (
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=40, d_model=16, d_kv=4, d_ff=20, num_layers=1, num_heads=2)
        ),
        Calls(translated, 40, source_vocab=40, causal=True),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_models_of_transformers_as_plain_modules(name: str) -> None:
    build, calls = PLAIN[name]
    findings = doctor(build(), replace(calls, padding_values=()))
    assert by_status(findings, FAILED) == []
    assert all(found.error <= 1e-9 for found in findings if found.error is not None and found.check != "beam")
    skipped = [*([] if calls.causal else ["future"]), *([] if calls.step else ["cached", "beam"])]
    assert by_status(findings, DOES_NOT_APPLY) == ["tokenizer", *skipped, "counted", "resumed"]


def test_a_plain_module_multiplies_its_padding_by_zero() -> None:
    """The attention of torch computes 0 · NaN; ours leaves padding out."""
    build, calls = PLAIN["bert"]
    findings = {found.check: found for found in doctor(build(), calls)}
    assert by_status([*findings.values()], FAILED) == ["padding"]
    assert findings["padding"].error == math.inf
    assert findings["padding"].note.startswith("embeddings of padding that are nan change ")


# -- directories and runs ---------------------------------------------------------------------------------------------


def encoder(folder: Path) -> Any:
    """A BERT without an output layer, as a sentence encoder is saved."""
    wordpiece(folder)
    config = transformers.BertConfig(vocab_size=200, max_position_embeddings=40, **ENCODER)
    return saved(transformers.BertModel(config), folder)


def discriminator(folder: Path) -> Any:
    wordpiece(folder)
    config = transformers.ElectraConfig(vocab_size=200, max_position_embeddings=40, embedding_size=8, **ENCODER)
    return saved(transformers.ElectraForPreTraining(config), folder)


@pytest.mark.parametrize("make", [gpt2, bert, encoder, discriminator])
def test_directories_of_transformers(make: Callable[[Path], Any], tmp_path: Path) -> None:
    make(tmp_path / "public")
    findings = doctor(regard.load(tmp_path / "public", device="cpu"))
    assert by_status(findings, FAILED) == []
    assert "tokenizer" in by_status(findings, PASSED)
    assert by_status(findings, DOES_NOT_APPLY)[-1] == "resumed"


PAIRS = "ab ba\txy yx\nabc cab\txyz zxy\nbca\tyzx\ncc\tzz\n"


def test_a_run_is_resumed_on_a_file_of_the_user(translator: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    model = regard.load(translator(), device="cpu")
    assert by_status(doctor(model, data=str(tmp_path / "pairs.tsv")), PASSED) == list(CHECKS)
    findings = {found.check: found for found in doctor(model)}  # the recipe names no file
    assert by_status([*findings.values()], DOES_NOT_APPLY) == ["resumed"]
    assert "cannot train here: data.train" in findings["resumed"].note


@pytest.mark.parametrize("run", ["language", "classifier"])
def test_runs_of_other_tasks(run: str, request: pytest.FixtureRequest) -> None:
    findings = doctor(regard.load(request.getfixturevalue(run), device="cpu"))
    assert by_status(findings, FAILED) == []
    assert "tokenizer" in by_status(findings, PASSED)


def test_the_command(language: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["doctor", str(language)]) == 0
    text = capsys.readouterr().out
    assert f"{language}: 12 checks passed, 0 failed, 1 do not apply" in " ".join(text.split())
    assert "Later tokens do not change earlier outputs" in text
    assert main(["doctor", str(language), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == []
    assert [each["check"] for each in found["checks"]] == list(CHECKS)
    assert set(found["checks"][0]) == {"check", "claim", "did", "status", "error", "bound", "note"}


def test_a_directory_that_cannot_be_loaded(
    language: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(language, tmp_path / "run")
    next(run.glob("steps/*/weights.safetensors")).write_bytes(b"")
    assert main(["doctor", str(run), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == ["loaded"]
    assert "weights.safetensors" in found["checks"][0]["note"]
    assert [each["check"] for each in found["checks"][1:]] == list(CHECKS)
    assert main(["doctor", str(tmp_path / "nothing")]) == 2


def test_a_failure_exits_with_1(
    language: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lstmn, "step", lambda self, tokens, state: (torch.zeros(len(tokens), self.config.vocab), state))
    assert main(["doctor", str(language), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["cached"]


def test_a_model_of_several_labels_for_each_text(tmp_path: Path) -> None:
    stored = Path(__file__).parents[1] / "kept/format-2/stored/multilabel.zip"
    with zipfile.ZipFile(stored) as packed:
        packed.extractall(tmp_path)
    findings = doctor(regard.load(tmp_path / "runs/multilabel", device="cpu"))
    assert by_status(findings, FAILED) == []
    assert {"counted", "accumulated"} <= {*by_status(findings, PASSED)}
