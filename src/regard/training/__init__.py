"""Training: the loop as a generator, and runs in a directory around it."""

from regard.objectives.objective import Step
from regard.training.loop import Diverged, train

__all__ = ["Diverged", "Step", "train"]
