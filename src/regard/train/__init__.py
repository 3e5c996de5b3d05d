"""Training: the plan, the loop as a generator, and the measures."""

from regard.train.loop import Diverged, Step, train
from regard.train.plan import Plan

__all__ = ["Diverged", "Plan", "Step", "train"]
