"""Fast routes behind ``Score``: nothing outside ``scores.py`` imports them."""
