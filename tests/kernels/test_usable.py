"""Where the Triton kernels are used."""

import importlib.util

import pytest
import torch

from regard.kernels import has_triton


@pytest.mark.parametrize(("capability", "able"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_triton_needs_a_gpu_that_it_supports(
    capability: tuple[int, int], able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert has_triton.__wrapped__(torch.device("cuda", 0)) is able
    assert not has_triton.__wrapped__(torch.device("cpu"))
