"""Fill in spans with a model that generates the hidden spans of a text: T5 (Raffel et al. 2020, section 3.1.4).

The text has a sentinel, <extra_id_0>, <extra_id_1> …, or [MASK] in the place of each span. The model generates each
sentinel with its span: "The [MASK] walks in [MASK] park" → "<extra_id_0> cute dog <extra_id_1> the <extra_id_2>".
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from regard.data.detokenize import SPACE
from regard.data.fields import MASK
from regard.data.tokenizers import WORDS, Tokenizer, sentinel
from regard.errors import UserError
from regard.verbs.given import text_list
from regard.verbs.loaded import Loaded
from regard.verbs.search import Translation, translate

GAP = re.compile(rf"{re.escape(MASK)}|<extra_id_\d+>")


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


def can_infill(model: Loaded) -> bool:
    """Whether the model generates the hidden spans of a text: it has a source, and sentinels that stand for them."""
    source = model.source_tokenizer
    return model.predicts("target") and source is not None and bool(source.special_tokens.sentinels)


def infill(model: Loaded, texts: Iterable[str], top: int, batch_tokens: int | None, first: int) -> list[Filled]:
    """The best spans for the masks of each text, by a beam search with a beam of `top`; a beam of 1 is greedy."""
    gapped = [with_sentinels(model, text, number) for number, text in enumerate(text_list(texts), first)]
    found: list[list[Translation]] = [[] for _ in gapped]
    for one in translate(model, gapped, beam=top, nbest=top, align=False, batch_tokens=batch_tokens):
        found[one.line].append(one)
    return [_filled(model, text, answers) for text, answers in zip(gapped, found)]


def with_sentinels(model: Loaded, text: str, number: int) -> str:
    """The text with the sentinels in order in the place of [MASK]; refuses a text without a gap, unless it is blank."""
    gaps, most = GAP.findall(text), len(model.tokenizer.special_tokens.sentinels) - 1
    if not text.strip():
        return ""
    if not gaps:
        cure = f"write {MASK} or {sentinel(0)} where a span is to be found"
        raise UserError(f"line {number}: no {MASK} in {text[:60]!r}; {cure}.")
    if len(gaps) > most:
        raise UserError(f"line {number}: {len(gaps)} times {MASK}, but the model can fill in {most}; write fewer.")
    if MASK not in gaps and gaps != [sentinel(place) for place in range(len(gaps))]:
        cure = f"write {sentinel(0)}, {sentinel(1)} … in this order, or {MASK}"
        raise UserError(f"line {number}: {gaps[0]} … are not the sentinels in their order; {cure}.")
    if MASK in gaps and {*gaps} != {MASK}:
        raise UserError(f"line {number}: has {MASK} and {sentinel(0)}; write one of the two kinds.")
    numbers = iter(range(len(gaps)))
    return GAP.sub(lambda _: sentinel(next(numbers)), text.strip())


def _filled(model: Loaded, text: str, answers: Sequence[Translation]) -> Filled:
    """The text with the spans of the best answer, and the different spans of all answers for each gap."""
    tokenizer, gaps = model.target_tokenizer, len(GAP.findall(text))
    spans = [dict(reversed([*_spans(tokenizer, answer)])) for answer in answers]  # of a repeated sentinel, the first
    masks: list[list[Guess]] = []
    for gap in range(gaps):
        # An answer may leave out a span. Answers with the same span for this gap differ at others.
        guesses = {one.text: one for answer in reversed(spans) if (one := answer.get(gap))}
        best = spans[0].get(gap, Guess("", "", -1, 0.0))
        masks.append([best, *(one for one in reversed(guesses.values()) if one.text != best.text)])
    before, *rest = GAP.split(text)
    for (guess, *_), after in zip(masks, rest):
        inside = tokenizer.kind not in ("char", *WORDS) and not guess.piece.startswith(SPACE)
        before = (before.rstrip() if inside else before) + guess.text + after
    return Filled(before, masks)


def _spans(tokenizer: Tokenizer, answer: Translation) -> Iterator[tuple[int, Guess]]:
    """The spans of an answer by the number of their sentinel. The probability counts the token that ends the span."""
    marks = {token: number for number, token in enumerate(tokenizer.special_tokens.sentinels)}
    places = [place for place, token in enumerate(answer.tokens) if token in marks]
    for start, end in zip(places, [*places[1:], len(answer.tokens)]):
        ids = answer.tokens[start + 1 : end]
        logp = float(answer.logps[start + 1 : end + 1].sum())
        piece = (" " if tokenizer.kind in WORDS else "").join(tokenizer.pieces(ids))
        text = tokenizer.decode(ids).strip()
        yield marks[answer.tokens[start]], Guess(text, piece, ids[0] if ids else -1, math.exp(logp))
