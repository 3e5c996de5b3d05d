"""Public checkpoints, read and written: one weight table for each type serves both directions."""

from regard.pretrained.folder import CHECKPOINT_TYPES, is_public, read_model, read_settings, write_model

__all__ = ["CHECKPOINT_TYPES", "is_public", "read_model", "read_settings", "write_model"]
