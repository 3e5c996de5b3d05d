"""The shop window: every name is there, nothing heavy is loaded before it is asked for, functions win over modules."""

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
    assert len(regard.__all__) < 60
    assert set(regard.__all__) == {*regard.HOMES, "scores"}
    assert dir(regard) == sorted(regard.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = regard.nothing


@pytest.mark.parametrize(
    "before",
    [
        "import regard.view.page, regard.record, regard.train.loop",
        "from regard import view; regard.load; regard.AttentionView",
    ],
)
def test_functions_win_over_the_modules_of_their_name(before: str) -> None:
    names = "regard.view.__name__, regard.record.__name__, regard.train.__name__, type(regard.view).__name__"
    code = f"import regard; {before}\nfrom regard.view.files import write\nprint({names}, regard.scores.Dot.__name__)"
    assert python(code) == "view record train function Dot"


def test_torch_waits_until_it_is_needed() -> None:
    assert python("import sys, regard, regard.cli; print('torch' in sys.modules)") == "False"
