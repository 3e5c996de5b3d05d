"""The public names: each can be imported, no name is also a module, and torch is not loaded before it is needed."""

import pkgutil
import subprocess
import sys

import pytest

import regard


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_every_name_can_be_had() -> None:
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    assert len(regard.__all__) <= 66
    assert set(regard.__all__) == {*regard.HOMES, "scores"}
    assert dir(regard) == sorted(regard.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = regard.nothing


def test_no_name_is_both_a_module_and_a_function() -> None:
    modules = {module.name for module in pkgutil.iter_modules(regard.__path__)}
    assert modules & set(regard.__all__) == {"scores"}
    assert type(regard) is type(sys), "an ordinary module"


def test_torch_waits_until_it_is_needed() -> None:
    assert python("import sys, regard, regard.cli; print('torch' in sys.modules)") == "False"
