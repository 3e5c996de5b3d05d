"""Fast implementations: attention for ``scores.py``, cross-entropy for ``objectives/loss.py``, decoding steps."""
