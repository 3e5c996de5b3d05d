"""Fast implementations: attention for ``scores.py``, cross-entropy for ``objectives/loss.py``, decoding steps."""

import importlib.util
from functools import cache

import torch


@cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton kernels can run on this device: on an NVIDIA GPU that Triton supports, if it is installed."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and importlib.util.find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (8, 0)  # the oldest that Triton supports
    )


def next_power_of_2(size: int) -> int:
    """The smallest power of two that is no less than ``size``."""
    return 1 << (size - 1).bit_length()
