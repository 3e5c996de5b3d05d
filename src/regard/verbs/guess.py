"""What `fill` gives: candidates for the masks of a text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Guess:
    """A candidate for a mask: a token, or a span of tokens."""

    text: str  # decoded
    piece: str  # as in the vocabulary: ## continues a word, ▁ is a space
    token: int  # of a span, its first token; -1: the span is empty
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest candidate at every mask, and the candidates for every mask.

    Tokens are chosen independently for each mask, spans together. A blank text has no masks and stays blank.
    """

    text: str
    masks: list[list[Guess]]  # the likeliest first
