"""The engine of a page in Node, for tests: models of random weights, questions to them, and the answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from regard.data.fields import Field
from regard.models import ModelConfig
from regard.tasks import Task
from regard.verbs.living import LiveModel, live_model
from regard.verbs.loaded import Loaded

HERE = Path(__file__).parent
NODE = shutil.which("node")


@dataclass(frozen=True, eq=False)
class Case:
    """A model of random weights, and the questions to it."""

    name: str
    model: Loaded
    asks: Sequence[dict[str, Any]]
    ranks: Sequence[dict[str, Any]] = ()

    def messages(self) -> list[dict[str, Any]]:
        asks = [{"type": "ask", "ask": ask} for ask in self.asks]
        ranks = [{"type": "rank", "ask": ask, "kind": "off"} for ask in self.ranks]
        return [{**message, "number": number} for number, message in enumerate([*asks, *ranks], 1)]


def untrained(config: ModelConfig, task: Task, fields: dict[str, Field], seed: int, scale: float = 2.0) -> Loaded:
    """A model whose weights are random, and large enough that its attention and answers are uneven."""
    torch.manual_seed(seed)
    module = config.build().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    device = torch.device("cpu")
    return Loaded(Path("untrained"), module, device, fields, given_task=task)


def live(model: Loaded) -> LiveModel:
    """The model of a page, which must compute."""
    found = live_model(model)
    assert isinstance(found, LiveModel), found
    return found


def script() -> str:
    """The engine that the package has, or the one that REGARD_ENGINE names."""
    return os.environ.get("REGARD_ENGINE") or str(files("regard.render").joinpath("built/engine.js"))


def answers(cases: Sequence[Case], folder: Path) -> list[list[dict[str, Any]]]:
    """What the engine answers to the questions of each case, by one process."""
    requests = []
    for case in cases:
        of_page = live(case.model)
        requests.append({"model": of_page.data, "weights": of_page.base64(), "messages": case.messages()})
    given, taken = folder / "requests.json", folder / "answers.json"
    given.write_text(json.dumps(requests))
    assert NODE is not None
    subprocess.run([NODE, str(HERE / "engine.mjs"), script(), str(given), str(taken)], check=True, timeout=120)
    every = json.loads(taken.read_text())
    found = []
    for case, messages in zip(cases, every):
        ready, *rest = messages
        assert ready["type"] == "ready", (case.name, messages[:2])
        found.append([message for message in rest if message["type"] != "ranked" or message["done"] == message["of"]])
    return found
