"""Code outside the models reads facts: no line there recognises a model by its class or a task by its name."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import regard
import regard.models
from regard import verbs
from regard.cli.train import next_commands
from regard.data.batches import Batch
from regard.data.example import Text
from regard.data.fields import Field, InputText, LabelField, TargetText
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.errors import UserError
from regard.models import MODELS, SIZES, Facts
from regard.recipes import find_recipe
from regard.report.run import Outcome
from regard.report.samples import samples
from regard.tasks import TASKS
from regard.training.evaluate import Scores
from regard.training.events import Finished
from regard.verbs import Loaded

ROOT = Path(regard.__file__).parent
FREE = ("models", "tasks.py", "pretrained", "heads.py")  # the parts that may recognise a model
FAMILIES = {
    name
    for name, value in vars(regard.models).items()
    if isinstance(value, type | UnionType) and name not in ("Facts", "Model")
}
WORDS = {word for task in TASKS.values() for word in (task.name, task.verb)} | {"language", "fill"}
CALLED = ("config", "module", "model")  # the names of variables that hold a model or its config


def _last(node: ast.AST) -> str:
    """The last word of a dotted name; empty for any other expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_task(node: ast.AST) -> bool:
    """Whether an expression is a task, or the name or verb of one."""
    if isinstance(node, ast.Attribute) and node.attr in ("name", "verb"):
        return _last(node.value) == "task"
    return _last(node) == "task"


def _is_word(node: ast.AST) -> bool:
    """Whether an expression is the name or verb of a task, as a literal, or a collection of such."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_is_word, node.elts))
    return isinstance(node, ast.Constant) and node.value in WORDS


def _is_family(node: ast.AST) -> bool:
    """Whether an expression mentions a class of models or configs."""
    return any(_last(part) in FAMILIES for part in ast.walk(node))


def _compares(node: ast.Compare) -> bool:
    operands = [node.left, *node.comparators]
    if any(isinstance(one, ast.Call) and _last(one.func) == "type" for one in operands):
        return any(map(_is_family, operands))
    if isinstance(node.ops[0], ast.Is | ast.IsNot):
        return False
    named = any(_last(one) in ("task", "verb", "name") for one in operands)
    return any(map(_is_task, operands)) or (named and any(map(_is_word, operands)))


def _calls(node: ast.Call) -> bool:
    function, arguments = _last(node.func), node.args
    if function in ("isinstance", "issubclass"):
        return _is_family(arguments[1])
    return (function == "hasattr" or (function == "getattr" and len(arguments) > 2)) and _last(arguments[0]) in CALLED


def recognising(source: str) -> set[int]:
    """The numbers of the lines that compare a task, or test the class or the attributes of a model."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            wrong = _compares(node)
        elif isinstance(node, ast.Call):
            wrong = _calls(node)
        elif isinstance(node, ast.Match):
            wrong = _is_task(node.subject)
        elif isinstance(node, ast.MatchValue):
            wrong = _is_word(node.value)
        else:
            wrong = isinstance(node, ast.MatchClass) and _is_family(node.cls)
        found |= {node.lineno} if wrong else set()
    return found


def _files() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if name.parts[0] not in FREE:
            yield str(name), path.read_text(encoding="utf-8")


def test_no_line_recognises_a_model_or_a_task() -> None:
    found = {name: lines for name, text in _files() if (lines := sorted(recognising(text)))}
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "x = model.task == 'tag'",
        "x = module.task != other",
        "x = task in ('translate', 'language')",
        "x = loaded.task.name not in names",
        "x = self.model.task.verb == 'tag'",
        "x = recipe.name == 'translate'",
        "x = 'generate' == verb",
        "match model.task:\n    case other: pass",
        "match kind:\n    case 'translate' | 'x': pass",
        "match model:\n    case Gpt(): pass",
        "match model:\n    case models.GptConfig() as config: pass",
        "x = isinstance(module, Gpt)",
        "x = isinstance(module, nn.Linear | models.Transformer)",
        "x = issubclass(kind, (int, BertConfig))",
        "x = isinstance(config, ModelConfig)",
        "x = type(config) is Seq2SeqConfig",
        "x = LstmnConfig == type(config)",
        "x = hasattr(config, 'capacity')",
        "x = hasattr(model.module, 'product')",
        "x = getattr(model.config, 'memory', 0)",
    ],
)
def test_a_line_that_recognises_is_found(line: str) -> None:
    assert recognising(line)


@pytest.mark.parametrize(
    "line",
    [
        "x = 'masked' in config.predicts",
        "x = TABLE.get(model.task.verb)",
        "x = config.causal and not config.reads_source",
        "x = getattr(config, name)",
        "x = isinstance(part, nn.Linear)",
        "x = {Seq2SeqConfig: 1}.get(type(config))",
        "x = task is None",
        "x = name == 'dates'",
        "for task in TASKS: pass",
    ],
)
def test_a_line_that_reads_facts_is_not(line: str) -> None:
    assert not recognising(line)


@pytest.mark.parametrize("config", [*(make() for make in MODELS.values()), *SIZES.values()])
def test_facts_are_true_of_the_model(config: Any) -> None:
    with torch.device("meta"):
        sizes = {"vocab": 8, "source_vocab": 8, "target_vocab": 8, "labels": 8, "image": 8}
        sized = type(config)(**{name: 8 for name in sizes if name in {one.name for one in fields(config)}})
        module = sized.build()
    assert set(config.predicts) <= {task.head for task in TASKS.values()}
    if config.causal:
        arguments = inspect.signature(module.advance).parameters
        assert "real" in arguments or not config.takes_padding
        assert "positions" in arguments or not config.takes_positions
        assert config.takes_padding or not config.takes_positions
        assert hasattr(module, "start_segments") or not config.carries
    else:
        assert list(inspect.signature(module.features).parameters)[:4] == ["tokens", "real", "segments", "positions"]
        assert ("real" in inspect.signature(module.readout).parameters) == config.one_per_text
    assert not config.reads_source or list(inspect.signature(module.encode).parameters)[:2] == ["source", "source_real"]
    if config.takes_head:
        body = sized.build_body()
        assert list(inspect.signature(body.features).parameters)[:4] == ["tokens", "real", "segments", "positions"]
        assert len(body.state_dict()) <= len(module.state_dict())
    paths = [path for group in sized.layer_groups for path in group]
    names = [name for name, _ in module.named_parameters()]
    assert len(set(paths)) == len(paths)
    names = [name for name in names if paths and "readout" not in name]  # a model that is counted has no layers
    assert all(any(f"{name}.".startswith(f"{path}.") for path in paths) for name in names)
    assert config.resized(config.width) == config
    assert config.resized(2 * config.width).width in (config.width, 2 * config.width)


# -- a model from outside the library ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatedConfig(Facts):
    """A language model without attention."""

    causal: ClassVar[bool] = True
    reads_source: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("next",)
    longest: ClassVar[int | None] = None
    token_vocab: int = 0
    width: int = 8

    def build(self) -> "Gated":
        return Gated(self)


class Gated(nn.Module):
    """One gated recurrent layer. Its state is its last hidden vector."""

    def __init__(self, config: GatedConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.token_vocab, config.width)
        self.rnn = nn.GRU(config.width, config.width, batch_first=True)
        self.out = nn.Linear(config.width, config.token_vocab)

    def start(self, source: Any = None, source_real: Any = None, rows: int = 1, capacity: int = 0) -> "Last":
        return Last(torch.zeros(1, rows, self.config.width))

    def advance(self, tokens: Tensor, state: "Last") -> tuple[Tensor, "Last"]:
        features, last = self.rnn(self.embedding(tokens), state.last)
        return features, Last(last)

    def readout(self, features: Tensor) -> Tensor:
        return self.out(features)

    def step(self, tokens: Tensor, state: "Last") -> tuple[Tensor, "Last"]:
        features, state = self.advance(tokens[:, None], state)
        return self.readout(features[:, 0]), state


@dataclass(frozen=True, eq=False)
class Last:
    """A state."""

    last: Tensor

    def select(self, rows: Tensor) -> "Last":
        return Last(self.last[:, rows])


@dataclass(frozen=True)
class MeanConfig(Facts):
    """A classifier of the mean of embeddings."""

    causal: ClassVar[bool] = False
    reads_source: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("class",)
    one_per_text: ClassVar[bool] = True
    longest: ClassVar[int | None] = None
    token_vocab: int = 0
    labels: int = 0
    width: int = 8

    def build(self) -> "Mean":
        return Mean(self)


class Mean(nn.Module):
    """The mean of embeddings, and a linear layer."""

    def __init__(self, config: MeanConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.token_vocab, config.width)
        self.out = nn.Linear(config.width, config.labels)

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        return self.embedding(tokens)

    def readout(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        real = torch.ones(features.shape[:2]) if real is None else real
        return self.out((features * real[..., None]).sum(1) / real.sum(1, keepdim=True))

    def forward(self, batch: Batch) -> Tensor:
        return self.readout(self.features(batch["tokens"], batch.real["tokens"]), batch.real["tokens"])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("word", ["the dog sees the cat", "the cat sees a bird"], 100)


def loaded(config: Any, **fields: Field) -> Loaded:
    torch.manual_seed(1)
    return Loaded(Path("mine"), config.build().eval(), torch.device("cpu"), fields)


def test_a_causal_model_from_outside_works_with_the_verbs(tokenizer: Tokenizer) -> None:
    model = loaded(GatedConfig(tokenizer.size), text=TargetText(tokenizer))
    texts = ["the dog", "the cat sees a bird", "a"]
    together = verbs.generate(model, texts, limit=5)
    assert [one.tokens for one in together] == [verbs.generate(model, [text], limit=5)[0].tokens for text in texts]
    scored = verbs.score(model, texts)
    assert all(torch.tensor(one.logps).isfinite().all() for one in scored)
    alone = [verbs.score(model, [text])[0].total for text in texts]
    assert [one.total for one in scored] == pytest.approx(alone)
    assert verbs.embed(model, texts).vectors.shape == (3, 8)
    assert len(verbs.look(model, "the dog sees").frames) == 4  # three words and the end
    tokens = torch.tensor([[0, 0, 5, 6], [7, 5, 6, 4]])  # padding before the text
    found = model.logits(tokens, real=tokens > 0)
    assert torch.allclose(found[0, 2:], model.logits(tokens[:1, 2:])[0], atol=1e-6)
    with pytest.raises(UserError, match="positions: this model has none"):
        model.states(tokens, positions=tokens)
    (filled,) = verbs.fill(model, ["the dog [MASK]"], top=1)
    assert filled.text == f"the dog {filled.masks[0][0].text}"
    with pytest.raises(UserError, match="this is a language model, which cannot classify; use: regard generate mine"):
        verbs.classify(model, texts)


def test_a_classifier_from_outside_works_with_the_verbs(tokenizer: Tokenizer) -> None:
    text, label = InputText(tokenizer), LabelField(("bad", "good"))
    model = loaded(MeanConfig(tokenizer.size, label.size), text=text, label=label)
    texts = ["the dog", "the cat sees a bird"]
    assert {one.label for one in verbs.classify(model, texts)} <= {"good", "bad"}
    assert not verbs.look(model, "the dog").layers
    assert verbs.embed(model, texts, pool="first").vectors.shape == (2, 8)
    with pytest.raises(UserError, match="a classifier, which cannot translate; use: regard classify"):
        verbs.translate(model, texts)


def test_a_task_from_outside_has_defaults(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "tagging", replace(TASKS["language"], name="tagging", verb="tag", head="tags"))
    monkeypatch.setattr(GatedConfig, "predicts", ("tags",))
    model = loaded(GatedConfig(tokenizer.size), text=TargetText(tokenizer))
    assert repr(model).startswith("<Loaded mine: a model of the task tagging, Gated of ")
    assert samples(model, ["the dog"], seed=1) == []
    recipe, finished = find_recipe("text"), Finished(1, "steps", 1, 1.0, 1.0)
    outcome = Outcome("x", Path("run"), recipe, model, "test", [Text("the dog")], Scores({}, {}), finished)
    assert [line.partition("regard ")[2] for line in next_commands(outcome, [])] == [
        "tag run",
        "eval run",
    ]
