"""Out of memory: an error that names the settings to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.errors import UserError
from regard.recipes import Plan


@contextmanager
def within_memory(plan: Plan, device: torch.device) -> Iterator[None]:
    """Turn torch's out-of-memory error inside the block into a UserError with a cure."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        lower = f"lower plan.batch_tokens ({plan.batch_tokens})"
        keep = f"raise plan.accumulate ({plan.accumulate}) in proportion to keep the size of a step"
        raise UserError(f"out of memory on {device}: {lower} and {keep}, or make the model smaller.") from error
