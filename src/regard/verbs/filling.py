"""Fill: the likeliest tokens at each [MASK] of a text (Devlin et al. 2019, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, batch_of, check_is_list, grouped, record_forced
from regard.verbs.loaded import LONG_CURE, Loaded


@dataclass(frozen=True)
class Guess:
    """A candidate for a mask."""

    text: str  # decoded
    piece: str  # as in the vocabulary: ## continues a word, ▁ is a space
    token: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest token at every mask, each chosen independently, and the candidates for every mask.

    A blank text has no masks and stays blank.
    """

    text: str
    masks: list[list[Guess]]  # the likeliest first


@torch.no_grad()
def fill(
    model: Loaded, texts: Sequence[str], top: int = 5, batch_tokens: int = BATCH_TOKENS, first: int = 1
) -> list[Filled]:
    """The `top` likeliest tokens for every mask of every text; `first` is the number of the first text."""
    model.expect("fill", model.predicts("masked"))
    check_is_list(texts)
    if top < 1:
        raise UserError(f"top={top}: give 1 or more.")
    tokens = model.read(texts, first)
    mask = _mask(model, texts, tokens, first)
    there = [row for row, ids in enumerate(tokens) if ids]
    pairs = {row: (list[int](), tokens[row]) for row in there}
    record_forced(model, list(pairs.values()), batch_tokens)
    answers = {row: Filled("", []) for row in range(len(texts))}
    with pause_recording(model.module):
        for group in grouped([len(tokens[row]) for row in there], batch_tokens):
            rows = [there[at] for at in group]
            batch = batch_of(model, [pairs[row] for row in rows]).to(model.device)
            places = batch["tokens"] == mask  # (B, T)
            found = iter(_guessed(model, model.states(batch["tokens"], batch.visible("tokens"))[places], top))
            for row, count in zip(rows, places.sum(dim=1).tolist()):
                guesses = list(islice(found, count))
                answers[row] = Filled(_written(model.tokenizer, texts[row], tokens[row], guesses), guesses)
    return [answers[row] for row in range(len(texts))]


def mask_of(model: Loaded) -> str:
    """The text of the mask token of this model."""
    if model.tokenizer.special_tokens.mask is None:
        raise UserError(f"{model.path}: its tokenizer has no mask, so there is nothing to fill in.")
    return model.tokenizer.pieces([model.tokenizer.special_tokens.mask])[0]


def _mask(model: Loaded, texts: Sequence[str], tokens: Sequence[list[int]], first: int) -> int:
    """The id of the mask token; refuses a text without one, unless it is blank."""
    name, mask = mask_of(model), model.tokenizer.special_tokens.mask
    assert mask is not None
    for number, (text, ids) in enumerate(zip(texts, tokens), first):
        if text.strip() and mask not in ids:
            if name in text:
                raise UserError(f"line {number}: its {name} is past what the model reads; {LONG_CURE}")
            raise UserError(f"line {number}: no {name} in {text[:60]!r}; write {name} where a token is to be found.")
    return mask


def _guessed(model: Loaded, states: Tensor, top: int) -> list[list[Guess]]:
    """The candidates at positions with these states (N, width); logits are computed for these positions only."""
    module: Any = model.module
    with model.autocast():
        logits = module.product(states).logits().float()  # (N, V)
    spelt = min(model.tokenizer.size, logits.shape[-1])  # a vocabulary may be padded to a round number
    best, tokens = logits.softmax(dim=-1)[:, :spelt].topk(min(top, spelt), dim=-1)
    return [
        [_guess(model.tokenizer, token, chance) for token, chance in zip(row, chances)]
        for row, chances in zip(tokens.tolist(), best.tolist())
    ]


def _guess(tokenizer: Tokenizer, token: int, chance: float) -> Guess:
    """A token as text and as a piece; a special token, whose text is empty, by its piece."""
    (piece,) = tokenizer.pieces([token])
    return Guess(tokenizer.decode([token]).strip() or piece, piece, token, chance)


def _written(tokenizer: Tokenizer, text: str, ids: list[int], guesses: list[list[Guess]]) -> str:
    """The given text with the likeliest token at each mask; a text that was cut is decoded from its tokens."""
    mask = tokenizer.special_tokens.mask
    assert mask is not None
    before, *rest = text.strip().split(tokenizer.pieces([mask])[0])
    if len(rest) != len(guesses):
        best = iter(guesses)
        return tokenizer.decode([next(best)[0].token if token == mask else token for token in ids])
    for (guess, *_), after in zip(guesses, rest):
        inside = guess.piece.startswith("##")  # inside a word: no space before it
        before = (before.rstrip() if inside else before) + guess.text + after
    return before
