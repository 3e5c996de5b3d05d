"""How what we say of a batch is compared with what the reference says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from references import BODY, VOCAB, Case, with_source
from torch import Tensor

import regard

LENGTHS, SOURCES = (7, 4, 1), (5, 9, 2)  # of the rows of a batch, and of what they translate


@dataclass(frozen=True)
class Said:
    """What a model says of a batch. A model without a head says no logits."""

    states: Tensor  # (B, T, width)
    logits: Tensor | None  # (B, T, V)


@torch.no_grad()
def said(
    model: Any,
    tokens: Tensor,
    real: Tensor | None = None,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    segments: Tensor | None = None,
    positions: Tensor | None = None,
) -> Said:
    """What the reference says, in its words for things."""
    if source is None:
        given = {"input_ids": tokens, "attention_mask": real, "token_type_ids": segments, "position_ids": positions}
    else:
        given = {"decoder_input_ids": tokens, "decoder_attention_mask": real}
        given |= {"input_ids": source, "attention_mask": source_real}
    given = {name: value.long() for name, value in given.items() if value is not None}
    found = model(**given, output_hidden_states=True)
    states = found.get("decoder_hidden_states", found.get("hidden_states"))[-1]
    return Said(states, found.get("logits", found.get("prediction_logits")))


@dataclass(frozen=True)
class Rows:
    """A batch of rows of several lengths, padded on one side."""

    tokens: Tensor  # (B, T)
    real: Tensor  # (B, T)

    def alone(self, row: int) -> Tensor:
        """One row without its padding, (1, length)."""
        return self.tokens[row][self.real[row]][None]


def rows(lengths: tuple[int, ...], side: str, pad: int | None, seed: int) -> Rows:
    """Random tokens, none of them padding or a mark of any type."""
    torch.manual_seed(seed)
    longest = max(lengths)
    real = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    if side == "left":
        real = real.flip(1)
    tokens = torch.randint(3, VOCAB - 1, real.shape)
    return Rows(tokens.where(real, torch.tensor(0 if pad is None else pad)), real)


def batch(case: Case, reference: Any, side: str) -> tuple[Rows, Rows | None]:
    """Rows to read, and sources of other lengths where the type has them."""
    pad = reference.config.pad_token_id
    return rows(LENGTHS, side, pad, 1), rows(SOURCES, side, pad, 2) if with_source(case) else None


def sources(source: Rows | None) -> dict[str, Tensor]:
    return {} if source is None else {"source": source.tokens, "source_real": source.real}


def ours(case: Case, model: regard.Loaded, *given: Tensor, **named: Tensor) -> Said:
    """What we say of a batch."""
    logits = None if case.auto == BODY else model.logits(*given, **named)
    return Said(model.states(*given, **named), logits)


def alone(reference: Any, batch: Rows, source: Rows | None) -> list[Said]:
    """What the reference says of each row by itself, where there is no padding."""
    given = [{} if source is None else {"source": source.alone(row)} for row in range(len(batch.tokens))]
    return [said(reference, batch.alone(row), **one) for row, one in enumerate(given)]


def close(found: Said, expected: Said, real: Tensor) -> None:
    """Equal to 1e-4 wherever there is something to read."""
    torch.testing.assert_close(found.states[real], expected.states[real], atol=1e-4, rtol=0)
    if expected.logits is not None:
        assert found.logits is not None
        torch.testing.assert_close(found.logits[real], expected.logits[real], atol=1e-4, rtol=0)


def close_to_each(found: Said, expected: list[Said], real: Tensor) -> None:
    for row, one in enumerate(expected):
        mine = Said(
            found.states[row][real[row]][None], None if found.logits is None else found.logits[row][real[row]][None]
        )
        close(mine, one, torch.ones(mine.states.shape[:2], dtype=torch.bool))
