"""Attention, from Bahdanau to BERT: train it, run it, look inside."""
