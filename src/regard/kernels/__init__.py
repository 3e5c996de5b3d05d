"""Fast routes behind ``Score``: only ``scores.py`` imports them, and ``objectives/loss.py`` its cross-entropy."""
