"""Classify: the label of each text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.data.fields import LabelField
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, batch_of, check_is_list, grouped, record_forced
from regard.verbs.loaded import Loaded


@dataclass(frozen=True)
class Classified:
    """The likeliest label of a text, and the probability of every label, the likeliest first."""

    label: str
    probability: float
    labels: dict[str, float]


@torch.no_grad()
def classify(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Classified]:
    """The labels of texts, in their order."""
    model.expect("classify", "class" in model.module.config.predicts)
    check_is_list(texts)
    labels = model.fields["label"]
    assert isinstance(labels, LabelField)
    pairs = [(list[int](), tokens) for tokens in model.read(texts)]
    record_forced(model, pairs, batch_tokens)
    answers: dict[int, Classified] = {}
    with pause_recording(model.module), model.autocast():
        for rows in grouped([len(tokens) for _, tokens in pairs], batch_tokens):
            batch = batch_of(model, [pairs[row] for row in rows]).to(model.device)
            probabilities = model.module(batch).float().softmax(dim=-1)  # (B, C)
            for row, each in zip(rows, probabilities.tolist()):
                ranked = dict(sorted(zip(labels.names, each), key=lambda item: -item[1]))
                best = next(iter(ranked))
                answers[row] = Classified(best, ranked[best], ranked)
    return [answers[row] for row in range(len(texts))]
