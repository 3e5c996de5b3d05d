"""Training: the loop as a generator, and runs in a directory around it."""

from regard.training.loop import Diverged, Step, train

__all__ = ["Diverged", "Step", "train"]
