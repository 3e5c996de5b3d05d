"""Compares our outputs for a batch with those of the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from references import VOCAB, Case, with_source
from torch import Tensor

import regard

LENGTHS, SOURCES = (7, 4, 1), (5, 9, 2)  # lengths of the rows of a batch, and of their sources


@dataclass(frozen=True)
class Outputs:
    """The outputs of a model for a batch. A model without a head has no logits."""

    states: Tensor  # (B, T, width)
    logits: Tensor | None  # (B, T, V)


@torch.no_grad()
def reference_outputs(
    model: Any,
    tokens: Tensor,
    real: Tensor | None = None,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    segments: Tensor | None = None,
    positions: Tensor | None = None,
) -> Outputs:
    """The outputs of the reference."""
    if source is None:
        given = {"input_ids": tokens, "attention_mask": real, "token_type_ids": segments, "position_ids": positions}
    else:
        given = {"decoder_input_ids": tokens, "decoder_attention_mask": real}
        given |= {"input_ids": source, "attention_mask": source_real}
    given = {name: value.long() for name, value in given.items() if value is not None}
    found = model(**given, output_hidden_states=True)
    states = found.get("decoder_hidden_states", found.get("hidden_states"))[-1]
    return Outputs(states, found.get("logits", found.get("prediction_logits")))


@dataclass(frozen=True)
class Rows:
    """A batch of rows of several lengths, padded on one side."""

    tokens: Tensor  # (B, T)
    real: Tensor  # (B, T)

    def alone(self, row: int) -> Tensor:
        """One row without its padding, (1, length)."""
        return self.tokens[row][self.real[row]][None]


def rows(lengths: tuple[int, ...], side: str, pad: int | None, seed: int) -> Rows:
    """Random tokens, none of them padding or a special token of any type."""
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


def our_outputs(case: Case, model: regard.Loaded, *given: Tensor, **named: Tensor) -> Outputs:
    """Our outputs for a batch."""
    logits = None if case.is_body else model.logits(*given, **named)
    return Outputs(model.states(*given, **named), logits)


def alone(reference: Any, batch: Rows, source: Rows | None) -> list[Outputs]:
    """The outputs of the reference for each row by itself, without padding."""
    given = [{} if source is None else {"source": source.alone(row)} for row in range(len(batch.tokens))]
    return [reference_outputs(reference, batch.alone(row), **one) for row, one in enumerate(given)]


def close(found: Outputs, expected: Outputs, real: Tensor) -> None:
    """Check that the outputs are equal to 1e-4 at all positions that are not padding."""
    torch.testing.assert_close(found.states[real], expected.states[real], atol=1e-4, rtol=0)
    if expected.logits is not None:
        assert found.logits is not None
        torch.testing.assert_close(found.logits[real], expected.logits[real], atol=1e-4, rtol=0)


def close_to_each(found: Outputs, expected: list[Outputs], real: Tensor) -> None:
    for row, one in enumerate(expected):
        row_outputs = Outputs(
            found.states[row][real[row]][None], None if found.logits is None else found.logits[row][real[row]][None]
        )
        close(row_outputs, one, torch.ones(row_outputs.states.shape[:2], dtype=torch.bool))
