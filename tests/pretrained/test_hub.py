"""Checkpoints by name: only with leave, only what is needed, and a clear word where they are not there."""

import builtins
from pathlib import Path
from typing import Any

import pytest

from regard import UserError, load
from regard.pretrained.hub import found

huggingface_hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What the hub is asked for; it answers with a folder that has a config.json."""
    seen: dict[str, Any] = {}
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")

    def answer(name: str, **how: Any) -> str:
        seen.update(how, name=name)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
    return seen


def test_a_path_is_a_path() -> None:
    assert found("runs/dates") == Path("runs/dates")
    assert found(Path("hf")) == Path("hf")


def test_nothing_is_fetched_unasked(asked: dict[str, Any], tmp_path: Path) -> None:
    assert found("hf:someone/small") == tmp_path
    assert (asked["name"], asked["local_files_only"], asked["revision"]) == ("someone/small", True, None)
    assert "pytorch_model.bin" not in asked["allow_patterns"]
    assert not any(pattern.endswith((".py", ".bin", ".pkl", "*")) for pattern in asked["allow_patterns"])


def test_load_takes_a_name_too(asked: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"model_type=None"):  # what the hub gave has an empty config.json
        load("hf:someone/small")
    assert asked["local_files_only"]
    with pytest.raises(UserError, match=r"model_type=None"):
        load("hf:someone/small", download=True, allow_pickle=True)
    assert not asked["local_files_only"]
    assert "pytorch_model.bin" in asked["allow_patterns"]


def test_asked_it_fetches(asked: dict[str, Any]) -> None:
    found(Path("hf:someone/small@v2"), download=True, allow_pickle=True)
    assert (asked["name"], asked["local_files_only"], asked["revision"]) == ("someone/small", False, "v2")
    assert "pytorch_model.bin" in asked["allow_patterns"]


def test_not_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"hf:someone/small: is not on this machine; say --download"):
        found("hf:someone/small")
    with pytest.raises(UserError, match=r"hf:a/b/c: no such name can be; give hf:OWNER/NAME"):
        found("hf:a/b/c")


def test_no_network_and_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> str:
        raise ConnectionError("no route to the hub.\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=r"hf:x/y: cannot be fetched \(no route to the hub\)\.$"):
        found("hf:x/y", download=True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(UserError, match=r"has no config\.json"):
        found("hf:x/y")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'regard\[hub\]'"):
        found("hf:x/y")
