"""What tiny runs of every recipe learn, say and look at is what it was: see `goldens.py`."""

from pathlib import Path

import pytest
import torch

from goldens import CASES, differences, measured, pinned, pinned_at, shortened

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


SLOW = (
    "ptb-char",
    "text8",
    "wmt14-big",
    "multi30k-de-en",
    "multi30k-gnmt",
    "multi30k-convs2s",
    "greek",
    "shakespeare-cpu",
    "text-gpt-words",
    "professor-text",
    "transformer-joint",
    "transformer-post",
    "continued-transformer",
    "accumulate",
    "scheduled-gpt",
    "bahdanau-layers",
    "luong-location",
    "text",
    "book",
    "scheduled",
    "transformer",
    "sounds",
    "scenes-hard",
    "wmt14",
    "luong-local",
    "xl-adaptive",
    "once",
    "shakespeare",
    "reply",
    "titles",
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES]
)
def test_a_run_is_what_it_was(name: str, device: str, tmp_path: Path) -> None:
    if device != "cpu" and not pinned_at(name, device).is_file():
        pytest.skip(f"nothing is pinned for {device}")
    found = differences(pinned(name, device), shortened(measured(name, tmp_path, device)))
    assert not found, "\n".join([f"{len(found)} values differ:", *found[:20]])
