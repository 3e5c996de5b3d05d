"""Checkpoints of the hub: downloads only on request, only needed files, and clear errors."""

import builtins
from pathlib import Path
from typing import Any

import pytest

from regard import UserError, load, look
from regard.cli import main
from regard.pretrained.hub import resolve_hub_path
from untrained import save_untrained

huggingface_hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The arguments of `snapshot_download`, replaced here by a function that returns a folder with a config.json."""
    arguments: dict[str, Any] = {}
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")

    def fake_download(name: str, **how: Any) -> str:
        arguments.update(how, name=name)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake_download)
    return arguments


def test_a_path_is_returned_unchanged() -> None:
    assert resolve_hub_path("runs/dates") == Path("runs/dates")
    assert resolve_hub_path(Path("hf")) == Path("hf")


def test_nothing_is_downloaded_by_default(requested: dict[str, Any], tmp_path: Path) -> None:
    assert resolve_hub_path("hf:someone/small") == tmp_path
    assert (requested["name"], requested["local_files_only"], requested["revision"]) == ("someone/small", True, None)
    assert "pytorch_model.bin" not in requested["allow_patterns"]
    assert not any(pattern.endswith((".py", ".bin", ".pkl", "*")) for pattern in requested["allow_patterns"])


def test_load_takes_a_name_too(requested: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="has no model_type"):  # what the hub gave has an empty config.json
        load("hf:someone/small")
    assert requested["local_files_only"]
    with pytest.raises(UserError, match="has no model_type"):
        load("hf:someone/small", download=True, allow_pickle=True)
    assert not requested["local_files_only"]
    assert "pytorch_model.bin" in requested["allow_patterns"]


def test_a_page_has_the_name_of_the_hub_and_not_the_folder_of_its_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = save_untrained("tag", tmp_path)
    monkeypatch.setattr("regard.verbs.loaded.resolve_hub_path", lambda *given: run)
    model = load("hf:someone/small")
    assert (model.path, model.name) == (run, "hf:someone/small")
    assert "hf:someone/small" in model.about
    assert str(tmp_path) not in look(model, "a c").html()


@pytest.mark.parametrize(
    ("words", "fetched"),
    [(["heads", "hf:someone/small"], 1), (["senses", "models=hf:someone/small,hf:someone/other"], 2)],
)
def test_explain_fetches_only_with_download(
    words: list[str], fetched: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offline: list[bool] = []
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")

    def fake_download(name: str, local_files_only: bool, **how: Any) -> str:
        offline.append(local_files_only)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake_download)
    assert main(["explain", *words]) == 2  # what the hub gave has an empty config.json
    assert offline == [True]
    assert main(["explain", *words, "--download"]) == 2
    assert offline[1:] == [False] * fetched + [True]  # the topic then reads what is on this machine


def test_download_fetches(requested: dict[str, Any]) -> None:
    resolve_hub_path(Path("hf:someone/small@v2"), download=True, allow_pickle=True)
    assert (requested["name"], requested["local_files_only"], requested["revision"]) == ("someone/small", False, "v2")
    assert "pytorch_model.bin" in requested["allow_patterns"]


def test_not_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"hf:someone/small: is not on this machine; add --download"):
        resolve_hub_path("hf:someone/small")
    with pytest.raises(UserError, match=r"hf:a/b/c: not a valid name; give hf:OWNER/NAME"):
        resolve_hub_path("hf:a/b/c")


def test_no_network_and_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> str:
        raise ConnectionError("no route to the hub.\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=r"hf:x/y: cannot be fetched \(no route to the hub\)\.$"):
        resolve_hub_path("hf:x/y", download=True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(UserError, match=r"has no config\.json"):
        resolve_hub_path("hf:x/y")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'regard\[hub\]'"):
        resolve_hub_path("hf:x/y")
