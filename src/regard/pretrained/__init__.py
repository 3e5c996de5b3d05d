"""Public checkpoints, in and out: one table of names for each type, read both ways."""

from regard.pretrained.folder import is_public, read_model, read_settings
from regard.pretrained.types import PUBLIC
from regard.pretrained.write import write_model

__all__ = ["PUBLIC", "is_public", "read_model", "read_settings", "write_model"]
