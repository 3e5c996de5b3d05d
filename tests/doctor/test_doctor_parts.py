"""The parts of the checks: their texts, their measure, their notes, and how models of this library are called."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_doctor_broken import (
    CALLS,
    VOCAB,
    CountsPadding,
    Forgets,
    Learner,
    MultipliesPadding,
    Sound,
    not_finite,
    own_count,
    padded_count,
    padded_sum,
)
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.checks import CHECKS, DOES_NOT_APPLY, FAILED, PASSED, Calls, Finding, doctor, findings_table, refused
from regard.checks.adapters import loaded_calls, model_calls
from regard.checks.subject import SAMPLES, CheckResult, Subject, Texts, difference
from regard.errors import UserError
from regard.models import BertConfig, GptConfig, ModelConfig, Seq2SeqConfig, StructuredConfig


def check(name: str, module: nn.Module, calls: Calls = CALLS) -> CheckResult:
    torch.manual_seed(0)
    return CHECKS[name](Subject.copy_of(module, calls))


def test_texts_are_selected_padded_filled_and_masked_with_their_sources() -> None:
    yes = torch.tensor([[True, True], [True, False]])
    texts = Texts(torch.tensor([[1, 2], [3, 9]]), yes, torch.tensor([[4, 5], [6, 9]]), yes)
    padded = texts.pad(1, 2, 7)
    assert padded.tokens.tolist() == [[7, 1, 2, 7, 7], [7, 3, 9, 7, 7]]
    assert padded.real.tolist() == [[False, True, True, False, False], [False, True, False, False, False]]
    assert padded.source is not None
    assert padded.source.tolist() == [[7, 4, 5, 7, 7], [7, 6, 9, 7, 7]]
    assert torch.equal(padded.real, padded.source_real)  # type: ignore[arg-type]
    assert [each.tolist() for each in texts.fill(0)[::2]] == [[[1, 2], [3, 0]], [[4, 5], [6, 0]]]  # type: ignore[union-attr]
    assert [each.tolist() for each in texts.select([1, 1])] == [  # type: ignore[union-attr]
        [[3, 9]] * 2, [[True, False]] * 2, [[6, 9]] * 2, [[True, False]] * 2,
    ]  # fmt: skip
    masked = texts.mask(torch.tensor([[True], [False]]))
    assert [each.tolist() for each in masked[1::2]] == [[[True, True], [False, False]]] * 2  # type: ignore[union-attr]
    assert torch.equal(masked.tokens, texts.tokens)
    alone = Texts(texts.tokens, yes)
    assert alone.pad(0, 1, 7).fill(0).mask(yes.new_ones(2, 3)).select([0])[2:] == (None, None)


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.2),  # in units of the largest expected number
        ([0.1, 0.2], [0.1, 0.5], 0.3),  # which is at least 1
        ([1.0, -8.0], [1.0, 8.0], 2.0),
        ([math.inf, 1.0], [math.inf, 2.0], 0.5),
        ([math.inf], [-math.inf], math.inf),
        ([math.inf], [1.0], math.inf),
        ([1.0], [math.inf], math.inf),
        ([math.nan], [math.nan], math.inf),
        ([math.nan], [1.0], math.inf),
        ([1.0], [1.0, 1.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_the_size_of_an_error(found: list[float], expected: list[float], error: float) -> None:
    assert difference(torch.tensor(found), torch.tensor(expected)) == pytest.approx(error)


def test_random_texts_leave_out_special_tokens_and_padding() -> None:
    subject = Subject.copy_of(Sound(), CALLS)
    whole, ragged, other = subject.texts(), subject.texts(ragged=True), subject.texts(seed=1)
    assert (subject.dtype, subject.bound) == (torch.float64, 1e-6)
    assert replace(subject, dtype=torch.float32).bound == 1e-4
    assert whole.tokens.shape == (3, 6)
    assert whole.real.all()
    assert ragged.real.sum(dim=1).tolist() == [6, 3, 1]
    assert all(torch.equal(row, row.sort(descending=True).values) for row in ragged.real)
    assert (ragged.tokens[~ragged.real] == subject.filler).all()
    assert torch.equal(ragged.tokens[ragged.real], whole.tokens[ragged.real])
    assert (int(whole.tokens.min()) >= 5, int(whole.tokens.max()) < subject.filler) == (True, True)
    assert subject.filler == VOCAB - 1
    assert not torch.equal(other.tokens, whole.tokens)
    assert subject.ids(4).tolist() == [5, 6, 7, 8]
    small = replace(subject, calls=replace(CALLS, vocab=30, source_vocab=8, longest=5))
    assert (small.filler, small.ids(4).tolist(), small.texts().tokens.shape) == (7, [3, 4, 5, 6], (3, 3))
    assert small.texts().source is not None
    assert not torch.equal(small.texts().tokens, small.texts().source)  # type: ignore[arg-type]


class CountsPlaces(Sound):
    """Adds the place of each token in the batch, padding included."""

    def changed(self, logits: Tensor, tokens: Tensor) -> Tensor:
        return logits + torch.arange(tokens.shape[1])[:, None]


class ReadsPadding(Sound):
    """Adds the last id of each text, padding included."""

    def changed(self, logits: Tensor, tokens: Tensor) -> Tensor:
        return logits + tokens[:, -1:, None]


class LooksAhead(Sound):
    """The third output depends on the fifth token."""

    def changed(self, logits: Tensor, tokens: Tensor) -> Tensor:
        return logits + F.pad(tokens[:, 4:5], (2, tokens.shape[1] - 3))[..., None]


class EmptyIsInfinite(Sound):
    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        return super().forward(tokens, real) + 1 / real.any(1).double()[:, None, None] - 1


class CountsTexts(Sound):
    """Adds the number of texts that are not empty."""

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        return super().forward(tokens, real) + real.any(1).sum()


class ForgetsSoon(Sound):
    def step(self, tokens: Tensor, state: Any) -> Any:
        return super().step(tokens, replace(state, states=state.states[:, :0]))


WHOLE = replace(CALLS, start=None, step=None)
LEFT = replace(WHOLE, left_padding=True)


@pytest.mark.parametrize(
    ("name", "build", "calls", "note"),
    [
        ("weights", not_finite, CALLS, "key.weight: use an earlier step"),
        ("future", LooksAhead, WHOLE, "outputs before position 4 change"),
        ("padding", CountsPlaces, LEFT, "places of padding before the texts change the outputs: give every layer"),
        ("padding", CountsPlaces, WHOLE, None),
        ("padding", ReadsPadding, WHOLE, "other ids in the padding change the outputs: give every layer"),
        ("padding", CountsPadding, WHOLE, "more places of padding after the texts change the outputs: give every"),
        ("padding", MultipliesPadding, WHOLE, "embeddings of padding that are nan change the outputs: 0 × NaN"),
        ("padding", MultipliesPadding, replace(WHOLE, padding_values=()), None),
        ("padding", MultipliesPadding, replace(WHOLE, padding_values=(3.0,)), None),
        ("empty", EmptyIsInfinite, WHOLE, "the softmax of a row that is masked everywhere, or a mean over 0 tokens"),
        ("empty", CountsTexts, WHOLE, "the other texts of the batch"),
        ("cached", Forgets, CALLS, "outputs differ from step 3 on"),
        ("cached", ForgetsSoon, CALLS, "outputs differ from step 1 on"),
        ("counted", Sound, replace(CALLS, loss=padded_count), "the count of the loss: 18, and 24 with more padding"),
        ("counted", Sound, replace(CALLS, loss=padded_sum), "the sum of the loss: leave out the places where"),
        ("accumulated", Sound, replace(CALLS, loss=own_count), "the count of the loss: 8 in the batch, 9 in"),
        ("accumulated", Sound, replace(CALLS, loss=None), None),
    ],
)  # fmt: skip
def test_a_failed_check_names_the_place_to_look_at(
    name: str, build: Callable[[], nn.Module], calls: Calls, note: str | None
) -> None:
    module = build()
    found = CHECKS[name](Subject(module, module, calls)) if name == "weights" else check(name, module, calls)
    assert (found.status, note in found.note if note else not found.note) == (FAILED if note else PASSED, True), found


def test_the_number_of_weights_that_are_not_finite_and_three_names() -> None:
    module = Sound()
    for part in (module.query, module.key, module.value, module.out):
        part.weight.data[0, :2] = torch.tensor([math.nan, -math.inf])
    found = CHECKS["weights"](Subject(module, module, CALLS))
    assert (found.error, found.note.partition(":")[0]) == (8, "query.weight, key.weight, value.weight")


def test_an_embedding_with_another_number_of_rows_is_not_that_of_the_tokens() -> None:
    found = check("padding", MultipliesPadding(), replace(WHOLE, vocab=VOCAB - 1))
    assert found.status == PASSED
    assert found.note == "no nn.Embedding has `vocab` rows, so none was set to NaN"


@pytest.mark.parametrize(
    ("ids", "past", "note"),
    [
        ({"tokens": [0, VOCAB - 1]}, 0, ""),
        ({"tokens": []}, 0, ""),
        ({"tokens": [0, VOCAB + 2]}, 3, f"the tokenizer of `tokens`: ids 0 to {VOCAB + 2}, but the model has 0 to 15"),
        ({"tokens": [-2, 3]}, 2, "the tokenizer of `tokens`: ids -2 to 3, but the model has 0 to 15"),
        ({"source": [9], "tokens": [16]}, 2, "the tokenizer of `source`: ids 9 to 9, but the model has 0 to 7"),
        ({"source": [8], "tokens": [19]}, 4, "the tokenizer of `tokens`: ids 19 to 19, but the model has 0 to 15"),
    ],
)
def test_ids_past_the_vocabulary(ids: dict[str, list[int]], past: int, note: str) -> None:
    encode = {name: (lambda text, found=found: found) for name, found in ids.items()}
    module, calls = Sound(), replace(CALLS, source_vocab=8, encode=encode, texts=("one", "two"))
    found = CHECKS["tokenizer"](Subject(module, module, calls))
    assert found == (FAILED if past else PASSED, past, 0, note)


class LearnsNothing(Learner):
    def steps(self, start: int) -> Any:
        return iter(())


def refuses() -> Any:
    raise UserError("no data")


def test_a_training_that_cannot_be_resumed_does_not_apply() -> None:
    for trainer, note in ((LearnsNothing, "4 steps of training change no weight"), (refuses, "train here: no data")):
        found = check("resumed", Sound(), replace(CALLS, trainer=trainer))
        assert (found.status, note in found.note) == (DOES_NOT_APPLY, True)
    frozen = replace(CALLS, loss=lambda module, tokens, real: (torch.zeros(()), 1))
    assert "no weights that learn" in check("accumulated", Sound(), frozen).note


def test_the_findings_as_a_table_and_those_of_a_directory_that_cannot_be_loaded() -> None:
    found = [
        Finding("a", "A claim", "What was done.", PASSED, 0.00123, 1e-6, ""),
        Finding("b", "B", "Done.", FAILED, math.inf, 0.0, "look there"),
        Finding("c", "C", "Done.", DOES_NOT_APPLY, None, None, "why"),
    ]
    table = findings_table("T", found)
    assert table.rows == [
        ["A claim", PASSED, "0.001", "1e-06", "What was done."],
        ["B", FAILED, "not finite", "0", "look there"],
        ["C", DOES_NOT_APPLY, "", "", "why"],
    ]
    assert (table.title, table.columns[2:4]) == ("T", ["error", "bound"])
    first, *rest = refused(UserError("gone"))
    assert (first.check, first.status, first.note) == ("loaded", FAILED, "gone")
    assert [each.check for each in rest] == list(CHECKS)
    assert {(each.status, each.note) for each in rest} == {(DOES_NOT_APPLY, "the model cannot be loaded")}


def test_the_calls_of_a_loaded_model(translator: Callable[..., Path], language: Path, tmp_path: Path) -> None:
    model = regard.load(translator())
    calls = loaded_calls(model)
    assert list(calls.encode) == ["source", "tokens"]
    for name, tokenizer, vocab in (
        ("source", model.tokenizer, calls.source_vocab),
        ("tokens", model.target_tokenizer, calls.vocab),
    ):
        text = "ab" if name == "source" else "xy"
        ids = list(calls.encode[name](text))
        special = list(tokenizer.special_tokens.ids)
        assert ids == [*special, tokenizer.size - 1, *tokenizer.encode(text)]
        assert vocab == tokenizer.size
    assert calls.texts == SAMPLES
    assert (calls.causal, calls.one_per_text, calls.left_padding) == (True, False, True)
    (tmp_path / "data.txt").write_text("\n".join(str(at) for at in range(1200)), encoding="utf-8")
    given = loaded_calls(regard.load(language), str(tmp_path / "data.txt"))
    assert (list(given.encode), given.source_vocab) == (["tokens"], 0)
    assert list(given.texts) == [str(at) for at in range(1000)]
    with pytest.raises(UserError, match="calls: a loaded model has its own"):
        doctor(model, calls)


TOKENS, REAL = torch.tensor([[6, 7, 8], [9, 5, 15]]), torch.tensor([[True, True, True], [True, True, False]])
TINY = {"width": 8, "heads": 2, "layers": 1, "inner": 8, "context": 8, "dropout": 0.0}


def test_the_loss_of_a_model_is_that_of_its_task() -> None:
    """Of the next token, of the first token of a masked text, and of a class; each a sum, with its count."""
    gpt = GptConfig(vocab=16, **TINY)  # type: ignore[arg-type]
    bert = BertConfig(vocab=16, **TINY)  # type: ignore[arg-type]
    structured = StructuredConfig(vocab=16, labels=2, width=8, embed=8, hops=2, attention=6)
    cases: list[tuple[ModelConfig, Tensor, int]] = [
        (gpt, TOKENS[:, 1:][REAL[:, 1:]], 3),
        (bert, TOKENS[:, 0], 2),
        (structured, TOKENS[:, 0] % 2, 2),
    ]
    for config, targets, count in cases:
        module, calls = config.build().eval(), model_calls(config)
        assert calls.loss is not None
        logits = calls.logits(module, TOKENS, REAL)
        logits = logits[:, :-1][REAL[:, 1:]] if config is gpt else logits if config is structured else logits[:, 0]
        total, counted = calls.loss(module, TOKENS, REAL)
        assert counted == count, config
        if config is not structured:  # which adds a penalty
            assert total.item() == pytest.approx(F.cross_entropy(logits, targets, reduction="sum").item(), rel=1e-4)
        assert (calls.start is None, calls.causal) == (config is not gpt, config is gpt)
        assert calls.one_per_text == (config is structured)
    source = Seq2SeqConfig(source_vocab=20, target_vocab=16, width=8, embed=8, capacity=8, dropout=0.0)
    assert (model_calls(source).vocab, model_calls(source).source_vocab) == (16, 20)


def test_frozen_weights_are_examined_and_a_model_of_counts_is_not_resumed(bigram: Path) -> None:
    found = check("accumulated", Sound().requires_grad_(False))
    assert found.status == PASSED
    counts = regard.load(bigram)
    module = counts.module
    resumed = CHECKS["resumed"](Subject(module, module, loaded_calls(counts)))
    assert (resumed.status, "a model that counts grows as it learns" in resumed.note) == (DOES_NOT_APPLY, True)
