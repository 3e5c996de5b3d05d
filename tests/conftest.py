"""Tiny runs of every task, with the weights that a seed gives them: enough for every verb and command."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from regard.data.fields import InputText, LabelField, TargetText
from regard.data.labelled import Labelled
from regard.data.sources import Lines, Pairs
from regard.data.tokenizers import train_tokenizer
from regard.models import BigramConfig, KimConfig, LstmnConfig, Seq2SeqConfig, StructuredConfig
from regard.objectives import Classification, Counting, TeacherForcing
from regard.recipes import Plan, Recipe
from saved import save_run

torch.set_num_threads(1)
if not torch.accelerator.is_available():  # torch.manual_seed formats the stack three times for devices that are absent
    torch.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))
# A busy machine may take any time for an example, or to make one.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


@pytest.fixture(autouse=True)
def _seed() -> None:
    """The same numbers at every run: a test that fails does so again."""
    torch.manual_seed(1)


SOURCES = ["ab ba", "abc cab", "bca", "a b c", "cc"]
TARGETS = ["xy yx", "xyz zxy", "yzx", "x y z", "zz"]


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the run of a tiny translator; settings of its model, and `tokens`, may be given."""
    made: dict[str, Path] = {}

    def make(tokens: str = "char", **settings: object) -> Path:
        name = f"{tokens} {settings}"
        if name not in made:
            source, target = (train_tokenizer(tokens, lines, 40) for lines in (SOURCES, TARGETS))
            sizes = {"source_vocab": source.size, "target_vocab": target.size, "width": 16, "embed": 8, "capacity": 32}
            config = Seq2SeqConfig(**{**sizes, "dropout": 0.0, **settings})  # type: ignore[arg-type]
            recipe = Recipe("tiny", "a tiny translator", Pairs(), config, TeacherForcing(), Plan(), ("exact",))
            fields = {"source": InputText(source), "target": TargetText(target)}
            made[name] = save_run(tmp_path_factory.mktemp("runs") / "tiny", recipe, config, fields)
        return made[name]

    return make


@pytest.fixture(scope="session")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a tiny language model."""
    tokenizer = train_tokenizer("char", SOURCES, 40)
    config = LstmnConfig(vocab=tokenizer.size, width=12, embed=8, context=32)
    recipe = Recipe("tiny", "a tiny language model", Lines(), config, TeacherForcing(), Plan(), ("perplexity",))
    return save_run(tmp_path_factory.mktemp("runs") / "language", recipe, config, {"text": TargetText(tokenizer)})


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a tiny classifier of texts as good or bad."""
    text, label = InputText(train_tokenizer("word", SOURCES, 40)), LabelField(("bad", "good"))
    config = StructuredConfig(vocab=text.size, labels=label.size, width=12, embed=8, hops=2, attention=6)
    recipe = Recipe("tiny", "a tiny classifier", Labelled(), config, Classification(), Plan(), ("accuracy",))
    return save_run(tmp_path_factory.mktemp("runs") / "classifier", recipe, config, {"text": text, "label": label})


@pytest.fixture(scope="session")
def kim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a tiny classifier with filters over n-grams."""
    text, label = InputText(train_tokenizer("word", SOURCES, 40)), LabelField(("bad", "good", "ugly"), (1, 2, 3))
    config = KimConfig(vocab=text.size, labels=label.size, kernels=(2, 3), filters=3, embed=4)
    recipe = Recipe("tiny", "a tiny Kim", Labelled(), config, Classification(), Plan(), ("accuracy",))
    return save_run(tmp_path_factory.mktemp("runs") / "kim", recipe, config, {"text": text, "label": label})


@pytest.fixture(scope="session")
def bigram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a bigram model that has counted nothing."""
    tokenizer = train_tokenizer("char", SOURCES, 40)
    config = BigramConfig(vocab=tokenizer.size)
    recipe = Recipe("tiny", "a tiny bigram model", Lines(), config, Counting(), Plan(), ("perplexity",))
    return save_run(tmp_path_factory.mktemp("runs") / "bigram", recipe, config, {"text": TargetText(tokenizer)})
