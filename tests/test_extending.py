"""A user's package adds a field, a corpus, a task with a new target shape, a body, a head and a metric of its own.

Nothing here edits the library: everything goes through `kinds=`. The task is to count the vowels of a word: a text in,
five numbers out.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard
from regard import Attention, Corpus, Memory, Plan, Recipe, Run
from regard.cli import main
from regard.config import to_json
from regard.data.batches import Batch
from regard.data.fields import Field, InputText
from regard.data.flat import Lengths, Rows
from regard.file_io import read_json, write_json
from regard.heads import HeadConfig
from regard.metrics import Metric
from regard.models import Facts, HeadedConfig
from regard.objectives.objective import Objective, Sums
from regard.recipes import change, find_recipe, with_kinds
from regard.scores import Dot
from regard.tasks import Task
from regard.training.events import Evaluated, Progress

VOWELS = "aeiou"


# -- a field: a vector of numbers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vector:
    """A vector of numbers of one length."""

    length: int
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @classmethod
    def fit(cls, values: Iterable[Sequence[float]], name: str, data: Any) -> Self:
        return cls(len(next(iter(values))))

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(read_json(path)["length"])

    def save(self, path: Path) -> None:
        write_json(path, {"length": self.length})

    @property
    def size(self) -> int:
        return self.length

    def encode(self, values: Sequence[Sequence[float]]) -> list[Sequence[float]]:
        return list(values)


# -- a corpus ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    text: str
    vowels: tuple[float, ...]


@dataclass(frozen=True)
class Words:
    """Random words, and how often each vowel is in them."""

    tasks: ClassVar[tuple[str, ...]] = ("vowels",)

    count: int = 300  # words to learn from
    seed: int = 1
    tokens: str = "char"  # what a word is split into

    def load(self) -> Corpus:
        dice = random.Random(self.seed)
        words = ["".join(dice.choices("abcdefghiou", k=dice.randint(2, 9))) for _ in range(self.count + 60)]
        examples = [Word(word, tuple(float(word.count(vowel)) for vowel in VOWELS)) for word in words]
        return Corpus(examples[60:], examples[:30], examples[30:60])


# -- a task: a text in, a vector out ----------------------------------------------------------------------------------


def collate(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    lengths = rows.lengths("text")
    targets = np.stack([row["vowels"] if len(row["vowels"]) else np.full(5, np.nan, np.float32) for row in rows])
    return Batch(
        fields={"tokens": rows.padded("text", widths["text"]), "targets": torch.from_numpy(targets)},
        real={"tokens": rows.real("text", widths["text"])},
        counts={"tokens": int(lengths.sum()), "targets": int((lengths > 0).sum())},
    )


def widths(lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
    return {"text": lengths["text"]}


# -- what is minimised, and a metric ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Squares(Objective):
    """The squared error of each number."""

    weights: ClassVar[Mapping[str, float]] = {"nll": 1.0}
    heads: ClassVar[tuple[str, ...]] = ("vowel-counts",)

    def count(self, batch: Batch) -> dict[str, int]:
        return {"nll": batch.counts["targets"]}

    def __call__(
        self, model: nn.Module, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        there = ~batch["targets"].isnan()
        error = torch.where(there, model(batch) - batch["targets"].nan_to_num(), 0.0)
        return {"nll": error.square().sum(), "absolute": error.abs().sum() / 5}, None


def mean_error(sums: Mapping[str, float], counts: Mapping[str, int]) -> float:
    return sums["absolute"] / counts["nll"]


VOWEL_TASK = Task(
    name="vowels",
    verb="count",
    fields={"text": InputText, "vowels": Vector},
    widths=widths,
    collate=collate,
    head="vowel-counts",
    objective=Squares,
    metrics=("mean_error",),
)


# -- a body with its head ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolConfig(Facts):
    """Attention of one learnt query over the embeddings of a text, and a linear layer."""

    causal: ClassVar[bool] = False
    reads_source: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("vowel-counts",)
    one_per_text: ClassVar[bool] = True
    attention_rows: ClassVar[tuple[str, ...]] = ("pooled",)
    sizes: ClassVar[Mapping[str, str]] = {"vocab": "text", "outputs": "vowels"}
    longest: ClassVar[int | None] = None

    vocab: int = 0  # 0: taken from the tokenizer
    outputs: int = 0  # 0: taken from the data
    width: int = 16  # of the embeddings

    @property
    def token_vocab(self) -> int:
        return self.vocab

    def build(self) -> "Pool":
        return Pool(self)


class Pool(nn.Module):
    def __init__(self, config: PoolConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.query = nn.Parameter(torch.randn(1, config.width))
        self.attention = Attention(Dot())
        self.out = nn.Linear(2 * config.width, config.outputs)

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        return self.embedding(tokens)

    def readout(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        there = torch.ones(features.shape[:2], dtype=torch.bool) if real is None else real
        pooled = self.attention(self.query.expand(len(features), -1, -1), Memory(features, features, real))[:, 0]
        total = (features * there[:, :, None]).sum(dim=1)
        return self.out(torch.cat([pooled, total], dim=-1))

    def forward(self, batch: Batch) -> Tensor:
        return self.readout(self.features(batch["tokens"]), batch.real["tokens"])


# -- all of it, in tables ---------------------------------------------------------------------------------------------


def vowels() -> Recipe:
    return Recipe(
        name="vowels",
        title="how often each vowel is in a word",
        data=Words(),
        model=PoolConfig(),
        objective=Squares(),
        plan=Plan(steps=60, batch_tokens=256, rate=3e-2, warmup=5, evaluate=20, log=1, device="cpu", threads=1),
        metrics=("mean_error",),
    )


MINE = {
    "recipe": {"vowels": vowels},
    "data": {"spellings": Words},
    "model": {"pool": PoolConfig},
    "objective": {"squares": Squares},
    "task": {"vowels": VOWEL_TASK},
    "metric": {"mean_error": Metric("mean error", "sums", mean_error, lower_is_better=True)},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    out = tmp_path_factory.mktemp("runs") / "vowels"
    return out, list(Run(vowels(), out, kinds=MINE))


def test_it_trains_and_is_evaluated_by_its_own_metric(trained: tuple[Path, list[Any]]) -> None:
    _, events = trained
    losses = [event.loss for event in events if isinstance(event, Progress)]
    errors = [event.values["mean_error"] for event in events if isinstance(event, Evaluated)]
    assert losses[-1] < losses[0] / 10
    assert errors[-1] < errors[0] < 1.0


def test_it_resumes_bit_for_bit(trained: tuple[Path, list[Any]], tmp_path: Path) -> None:
    _, events = trained
    out, stopped = tmp_path / "run", Run(vowels(), tmp_path / "run", kinds=MINE)
    for event in stopped:
        if isinstance(event, Evaluated) and event.step == 20:
            break
    resumed = list(Run(None, out, "resume", kinds=MINE))
    whole = {event.step: event.loss for event in events if isinstance(event, Progress)}
    again = {event.step: event.loss for event in resumed if isinstance(event, Progress)}
    assert max(again) == 60
    assert again == {step: whole[step] for step in again}


def test_it_is_examined_with_its_parts(trained: tuple[Path, list[Any]]) -> None:
    model = regard.load(trained[0], "cpu", kinds=MINE)
    (found,) = (each for each in regard.doctor(model) if each.check == "resumed")
    assert (found.status, found.note) == ("passed", "")


def test_parts_that_one_command_is_given_are_unknown_to_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "vowels"], kinds=MINE) == 0
    assert main(["show", "vowels"]) != 0
    assert "vowels" in capsys.readouterr().err


def test_it_is_loaded_with_its_fields(trained: tuple[Path, list[Any]]) -> None:
    out, _ = trained
    model = regard.load(out, "cpu", kinds=MINE)
    assert model.task is VOWEL_TASK
    assert model.fields["vowels"] == Vector(5)
    assert "vowels, Pool of" in repr(model)
    with pytest.raises(regard.UserError, match=r"cannot translate; use: regard count"):
        regard.translate(model, ["hoi"])


def test_its_steps_are_averaged(trained: tuple[Path, list[Any]], tmp_path: Path) -> None:
    out, _ = trained
    with pytest.raises(regard.UserError, match="no public checkpoint type has such a model"):
        regard.export(regard.load(out, "cpu", kinds=MINE), tmp_path / "out", average=1)


def test_its_attention_can_be_looked_at(trained: tuple[Path, list[Any]]) -> None:
    out, _ = trained
    view = regard.look(regard.load(out, "cpu", kinds=MINE), "beagda")
    assert list(view.columns) == list("beagda")
    assert list(view.rows) == ["pooled"]
    assert "<svg" in view.svg()


def test_the_command_line_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["show"], kinds=MINE) == 0
    assert main(["show", "vowels", "--example"], kinds=MINE) == 0
    assert "how often each vowel is in a word" in capsys.readouterr().out
    assert main(["train", "vowels", "plan.steps=20", "model.width=8"], kinds=MINE) == 0
    assert (tmp_path / "runs/vowels/report.html").is_file()
    assert "mean error" in capsys.readouterr().out
    assert main(["eval", "runs/vowels", "--json"], kinds=MINE) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["mean_error"] < 2.0
    assert main(["look", "runs/vowels", "oui", "-o", "look.html"], kinds=MINE) == 0
    assert main(["train", "vowels", "--resume"], kinds=MINE) == 0


def test_a_kind_may_have_the_name_of_one_of_ours(capsys: Any) -> None:
    """A recipe of ours whose model has lost its name is listed by its class. It cannot be saved, and so not trained."""
    kinds = {"model": {"elmo": PoolConfig}}
    assert main(["show"], kinds=kinds) == 0
    assert main(["show", "elmo"], kinds=kinds) == 0
    assert "model=ElmoConfig" in capsys.readouterr().out
    with pytest.raises(regard.UserError, match="ElmoConfig: has no name in the tables of kinds; if a kind of your own"):
        to_json(find_recipe("elmo"), with_kinds(kinds))


def test_without_its_tables_it_is_refused_by_name(trained: tuple[Path, list[Any]]) -> None:
    out, _ = trained
    with pytest.raises(regard.UserError, match=r"data\.kind: .*'spellings'"):
        regard.load(out, "cpu")


def test_parts_that_do_not_go_together_are_refused_by_name(tmp_path: Path) -> None:
    wrong = replace(vowels(), model=regard.MODELS["gpt"]())
    with pytest.raises(regard.UserError, match=r"model=gpt: does not fit data=spellings; use model=pool\."):
        Run(wrong, tmp_path / "run", kinds=MINE)


# -- a head, on a body of ours ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VectorHeadConfig(HeadConfig):
    """The sum of the states of a text, and a linear layer."""

    predicts: ClassVar[str] = "vowel-counts"
    one_per_text: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = {"outputs": "vowels"}

    outputs: int = 0  # 0: taken from the data

    def build(self, body: Facts) -> "VectorHead":
        return VectorHead(body.width, self.outputs)


class VectorHead(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, outputs)

    def forward(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        there = torch.ones(features.shape[:2], dtype=torch.bool) if real is None else real
        return self.out((features * there[:, :, None]).sum(dim=1))


HEADED = {**MINE, "head": {"vowel-counts": VectorHeadConfig}}
SMALL = [*("model.width=16", "model.heads=2", "model.layers=1", "model.inner=32"), "model.dropout=0", "plan.rate=3e-3"]


@pytest.mark.parametrize(
    "body", ["bert", "gpt", *(pytest.param(body, marks=pytest.mark.slow) for body in ("lstmn", "structured"))]
)
def test_a_head_of_its_own_reads_a_body_of_ours(body: str, tmp_path: Path) -> None:
    small = SMALL if body in ("bert", "gpt") else ["model.width=16", "model.embed=8", "model.dropout=0"]
    kinds = with_kinds(HEADED)
    recipe = change(vowels(), [f"model={body}", *small], kinds)
    events = list(Run(recipe, tmp_path / "run", kinds=HEADED))
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert losses[-1] < losses[0] / 2
    model = regard.load(tmp_path / "run", "cpu", kinds=HEADED)
    assert model.module.config == HeadedConfig(model.module.config.body, VectorHeadConfig(5))
    assert not any("readout" in name or "masked" in name for name, _ in model.module.named_parameters())
    assert bool(regard.look(model, "beagda").layers) == (body != "structured")

    stopped = Run(recipe, tmp_path / "cut", kinds=HEADED)
    for event in stopped:
        if isinstance(event, Evaluated) and event.step == 20:
            break
    list(Run(None, tmp_path / "cut", "resume", kinds=HEADED))
    whole, again = (tmp_path / run / "steps/000060/weights.safetensors" for run in ("run", "cut"))
    assert whole.read_bytes() == again.read_bytes()


def test_a_head_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    wrong = replace(vowels(), model=regard.MODELS["seq2seq"](), head=VectorHeadConfig())
    names = (
        "rnn",
        "lstm",
        "gru",
        "elmo",
        "tcn",
        "lstmn",
        "structured",
        "kim",
        "bilstm",
        "transformer",
        "gpt",
        "bert",
        "context2vec",
        "masked-lstm",
    )
    bodies = " or ".join(f"model={name}" for name in names)
    message = rf"model=seq2seq: does not fit data=spellings; use {bodies}\."
    with pytest.raises(regard.UserError, match=message):
        Run(wrong, tmp_path / "run", kinds=HEADED)


def test_the_field_is_one() -> None:
    field: type[Field] = Vector
    assert field.fit([(1.0, 2.0)], "vowels", Words()).size == 2
