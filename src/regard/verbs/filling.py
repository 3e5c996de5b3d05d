"""Fill: the likeliest tokens at each [MASK] of a text (Devlin et al. 2019, section 3.1).

A masked language model reads the whole text. A language model has no mask token: one that reads forward predicts the
token from the text before [MASK], one that reads backward from the text after it. A model of both directions joins the
two: p(x | before, after) ∝ p(x | before) · p(x | after) / p(x), see `TwoDirections.combined`. context2vec reads both
sides and not the word between them, so that any token may stand for [MASK]. T5 fills in spans (`verbs/infilling.py`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor

from regard.data.fields import MASK
from regard.data.tokenizers import WORDS, Tokenizer
from regard.errors import UserError
from regard.layers.recurrent import last_first
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, batch_of, grouped, padded, record_forced
from regard.verbs.given import text_list
from regard.verbs.infilling import Filled, Guess, can_infill, infill
from regard.verbs.loaded import LONG_CURE, Loaded


@torch.no_grad()
def fill(
    model: Loaded, texts: Iterable[str], top: int = 5, batch_tokens: int = BATCH_TOKENS, first: int = 1
) -> list[Filled]:
    """The `top` likeliest tokens for every mask of every text; `first` is the number of the first text.

    A language model fills one [MASK] of each text; see the module for how. A model of hidden spans fills each with a
    span of any length, by a beam search.
    """
    model.expect("fill", can_fill(model))
    texts = text_list(texts)
    if top < 1:
        raise UserError(f"top={top}: give 1 or more.")
    if can_infill(model):
        return infill(model, texts, top, batch_tokens, first)
    if not model.predicts("masked"):
        return _fill_from_context(model, texts, top, batch_tokens, first)
    tokens = model.read(texts, range(first, first + len(texts)))
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
            states = model.states(batch["tokens"], batch.visible("tokens"))[places]  # (N, width)
            with model.autocast():  # logits are computed for the masks only
                logits = cast(Any, model.module).product(states).logits().float()  # (N, V)
            found = iter(_ranked(model, logits.softmax(dim=-1), top))
            for row, count in zip(rows, places.sum(dim=1).tolist()):
                guesses = list(islice(found, count))
                answers[row] = Filled(_written(model.tokenizer, texts[row], tokens[row], guesses), guesses)
    return [answers[row] for row in range(len(texts))]


def can_fill(model: Loaded) -> bool:
    """Whether the model fills masks: a masked language model, a language model, context2vec, or a model of spans."""
    return can_infill(model) or (
        any(model.predicts(head) for head in ("masked", "next", "both", "context"))
        and not model.module.config.reads_source
    )


def _fill_from_context(model: Loaded, texts: Sequence[str], top: int, batch_tokens: int, first: int) -> list[Filled]:
    """The likeliest tokens of a language model for the mask of each text."""
    there = [row for row, text in enumerate(texts) if text.strip()]
    sides: list[tuple[str, str]] = []
    for row in there:
        before, *after = texts[row].strip().split(MASK)
        if len(after) != 1:
            found = f"no {MASK} in {texts[row][:60]!r}" if not after else f"{len(after)} times {MASK}"
            raise UserError(f"line {first + row}: {found}; a language model fills one {MASK} of a line: write one.")
        sides.append((before, after[0]))
    lines, module = [first + row for row in there], cast(Any, model.module)
    if model.predicts("context"):
        logps: Tensor = module.readout(context_vectors(model, sides, batch_tokens)).float()  # (N, V)
    else:
        by_side = [
            _context_logps(half, [pair[half.reads_backward] for pair in sides], batch_tokens, lines)
            for half in model.halves or (model,)
        ]
        logps = module.combined(*by_side) if model.halves else by_side[0]
    logps[:, _specials(model)] = -torch.inf
    guesses = _ranked(model, logps.softmax(dim=-1), top)
    answers = {row: Filled("", []) for row in range(len(texts))}
    for row, (left, right), best in zip(there, sides, guesses):
        answers[row] = Filled(left + best[0].text + right, [best])
    return [answers[row] for row in range(len(texts))]


@torch.no_grad()
def context_vectors(model: Loaded, sides: Sequence[tuple[str, str]], batch_tokens: int = BATCH_TOKENS) -> Tensor:
    """The vectors (N, width) of the contexts between two sides, of a model that predicts a word from its context."""
    special, found = model.tokenizer.special_tokens, torch.zeros(len(sides), model.module.config.width)
    befores, afters = (model.tokenizer.encode_batch(list(texts)) for texts in zip(*sides)) if sides else ([], [])
    lines = [special.wrap_target([*before, 0, *after]) for before, after in zip(befores, afters)]  # 0: it is not read
    opening = len(model.opening)
    for rows in grouped([len(ids) for ids in lines], batch_tokens):
        ids, _, visible = padded(model, [lines[row] for row in rows])
        places = torch.tensor([opening + len(befores[row]) for row in rows], device=model.device)
        with pause_recording(model.module):
            states = model.states(ids, visible)
        found[rows] = states.take_along_dim(places[:, None, None], dim=1)[:, 0].float().cpu()
    return model.check_finite(found).to(next(model.module.parameters()))


def _context_logps(model: Loaded, sides: Sequence[str], batch_tokens: int, lines: Sequence[int]) -> Tensor:
    """The log-probabilities (N, V) of the token next to each side, which is read up to the mask.

    A space next to the mask is removed from a side if the tokenizer makes it a part of the masked token. Without
    any token to read, all are equally likely.
    """
    kind, stripped = model.tokenizer.kind, sides
    if model.reads_backward and kind in (*WORDS, "bpe"):
        stripped = [side.lstrip() for side in sides]
    elif not model.reads_backward and kind != "char":
        stripped = [side.rstrip() for side in sides]
    tokens = [
        [*model.opening, *model.fit_context(ids, f"line {line}")]
        for ids, line in zip(model.tokenizer.encode_batch(stripped), lines)
    ]
    found = torch.zeros(len(sides), model.module.config.token_vocab, device=model.device)
    module: Any = model.module
    read = [row for row, ids in enumerate(tokens) if ids]
    for group in grouped([len(tokens[row]) for row in read], batch_tokens):
        rows = [read[at] for at in group]
        ids, real, visible = padded(model, [tokens[row] for row in rows])
        with pause_recording(model.module), model.autocast():
            states = model.states(ids, visible)
            last = states.take_along_dim((real.sum(1) - 1)[:, None, None], dim=1)[:, 0]
            found[rows] = module.readout(last).float().log_softmax(dim=-1)
    return found


def _specials(model: Loaded) -> list[int]:
    """The ids that are no part of a text: special tokens, the end included."""
    return sorted({*model.forbidden, *model.target_tokenizer.special_tokens.ids})


def mask_of(model: Loaded) -> str:
    """The text of the mask of this model: its token, or [MASK] for a language model, which has no such token."""
    if not model.predicts("masked"):
        return MASK
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


def _ranked(model: Loaded, probabilities: Tensor, top: int) -> list[list[Guess]]:
    """The `top` likeliest tokens of each row of probabilities (N, V)."""
    tokenizer = model.tokenizer
    spelt = min(tokenizer.size, probabilities.shape[-1])  # a vocabulary may be padded to a round number
    best, tokens = probabilities[:, :spelt].topk(min(top, spelt), dim=-1)
    return [
        [  # the text of a special token is empty: it is shown by its piece
            Guess(tokenizer.decode([token]).strip() or piece, piece, token, chance)
            for token, piece, chance in zip(row, tokenizer.pieces(row), chances)
        ]
        for row, chances in zip(tokens.tolist(), model.check_finite(best).tolist())
    ]


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


@dataclass(frozen=True)
class FillAccuracy:
    """How often the likeliest token is the true one, over all tokens of texts that have a token on both sides."""

    tokens: int
    right: dict[str, int]  # by what the token is predicted from

    @property
    def accuracy(self) -> dict[str, float]:
        return {name: count / max(self.tokens, 1) for name, count in self.right.items()}


@torch.no_grad()
def fill_accuracy(model: Loaded, texts: Sequence[Sequence[int]], batch_tokens: int = BATCH_TOKENS) -> FillAccuracy:
    """The accuracy of `fill` at every token of texts but the first and the last, each masked in turn.

    Texts are ids in reading order, special tokens included; these, the unknown word and the end of a line among them,
    are not masked, because `fill` never predicts them. A model of both directions is measured from each side, from
    both, and by the product p(x | before) · p(x | after) alone, which is not divided by p(x).
    """
    model.expect("eval --fill", any(model.predicts(head) for head in ("next", "both")) and can_fill(model))
    halves, specials, count = model.halves or (model,), _specials(model), 0
    right: Counter[str] = Counter()
    for rows in grouped([len(ids) for ids in texts], batch_tokens):
        ids, real, _ = padded(model, [texts[row] for row in rows])
        lengths = real.sum(1).tolist()
        states = []
        for half in halves:
            order = last_first(real) if half.reads_backward else torch.arange(ids.shape[1], device=ids.device)[None]
            states.append(half.states(ids.take_along_dim(order, dim=1), real))  # (B, T, width), in its own order
        for row, length in enumerate(lengths):
            if length < 3:
                continue
            logps = {
                SIDES[half.reads_backward]: _inner_logps(half, each[row, : length - 2])
                for half, each in zip(halves, states)
            }
            if len(logps) == 2:
                sides = tuple(logps.values())
                logps |= {"both": cast(Any, model.module).combined(*sides), "product": sides[0] + sides[1]}
            true = ids[row, 1 : length - 1]
            for found in logps.values():
                model.check_finite(found.gather(1, true[:, None]))
            counted = ~torch.isin(true, torch.tensor(specials, device=true.device))
            for name, found in logps.items():
                found[:, specials] = -torch.inf
                right[name] += int(((found.argmax(-1) == true) & counted).sum())
            count += int(counted.sum())
    return FillAccuracy(count, dict(right))


SIDES = ("before", "after")  # what a model predicts from: reading forward, and backward


def _inner_logps(model: Loaded, states: Tensor) -> Tensor:
    """The log-probabilities (T − 2, V) of the inner tokens of a text, in reading order, from the states before them."""
    module: Any = model.module
    with model.autocast():
        found: Tensor = module.readout(states).float().log_softmax(dim=-1)
    return found.flip(0) if model.reads_backward else found
