"""Metrics: how good a model is, one literal table."""

from regard.metrics.table import METRICS, Metric
from regard.metrics.text import Bleu, References, edit_distance, perplexity

__all__ = ["METRICS", "Bleu", "Metric", "References", "edit_distance", "perplexity"]
