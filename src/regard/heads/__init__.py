"""Heads: the output layers that read the features of a body, and the table HEADS of those that settings can name."""

from regard.heads.classify import ClassHead, ClassHeadConfig
from regard.heads.head import HeadConfig

HEADS: dict[str, type[HeadConfig]] = {"class": ClassHeadConfig}

__all__ = ["HEADS", "ClassHead", "ClassHeadConfig", "HeadConfig"]
