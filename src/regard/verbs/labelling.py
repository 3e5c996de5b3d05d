"""Classify: the label of each text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.data.batches import collate
from regard.data.tokenizers import SPECIALS
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, check_is_list, frame_of, grouped
from regard.verbs.loaded import Loaded
from regard.verbs.record_forced import record_forced


@dataclass(frozen=True)
class Classified:
    """The likeliest label of a text, and how likely each is, the likeliest first."""

    label: str
    probability: float
    labels: dict[str, float]


@torch.no_grad()
def classify(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Classified]:
    """The labels of texts, in their order."""
    model.expect("classify", "classify")
    check_is_list(texts)
    pairs = [(tokens, [0]) for tokens in model.read(texts)]  # a label stands there, whichever
    record_forced(model, pairs, batch_tokens)
    answers: dict[int, Classified] = {}
    with pause_recording(model.module), model.autocast():
        for rows in grouped([len(tokens) for tokens, _ in pairs], batch_tokens):
            batch = collate([pairs[row] for row in rows], frame_of(model)).to(model.device)
            chances = model.module(batch).float()[:, len(SPECIALS) :].softmax(dim=-1)  # (B, C): marks are no labels
            answers |= {row: _told(model, likely) for row, likely in zip(rows, chances.tolist())}
    return [answers[row] for row in range(len(texts))]


def _told(model: Loaded, chances: list[float]) -> Classified:
    labels = model.target_tokenizer.pieces(range(len(SPECIALS), len(SPECIALS) + len(chances)))
    ranked = dict(sorted(zip(labels, chances), key=lambda item: -item[1]))
    best = next(iter(ranked))
    return Classified(best, ranked[best], ranked)
