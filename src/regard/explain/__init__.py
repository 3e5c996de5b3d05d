"""Small experiments that explain ideas: one module per topic of `regard explain`, each with a function `run`."""

from regard.explain import attention, gradients, heads, layers, masking, positions, residuals, scaling
from regard.explain.topic import Options, Result, Topic

__all__ = ["TOPICS", "Options", "Result", "Topic"]

TOPICS: dict[str, Topic] = {
    "attention": attention.TOPIC,
    "scaling": scaling.TOPIC,
    "masking": masking.TOPIC,
    "heads": heads.TOPIC,
    "positions": positions.TOPIC,
    "residuals": residuals.TOPIC,
    "layers": layers.TOPIC,
    "gradients": gradients.TOPIC,
}
