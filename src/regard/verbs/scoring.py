"""Score and align: log-probabilities and alignments of given sentences."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import torch
from torch.nn import functional as F

from regard.alignment import Link, links_from, merge
from regard.errors import UserError, nearest
from regard.metrics import perplexity
from regard.recording import pause_recording
from regard.verbs.forced import (
    BATCH_TOKENS,
    Floats,
    batch_of,
    fit_target,
    forced,
    grouped,
    in_batches,
    padded,
    record_forced,
    token_logps,
)
from regard.verbs.given import part_list, text_list
from regard.verbs.loaded import IdPair, Loaded

UNITS = ("auto", "word", "piece")
Text = str | tuple[str, str]  # a line for a language model, source and target for a translator


@dataclass(frozen=True, eq=False)
class Scored:
    """The log-probability of a text (natural logarithm), the end of the sentence included.

    The pieces are in reading order. A model that reads backward predicts each from those after it; the beginning of the
    sentence is its last prediction.
    """

    pieces: list[str]  # of the target, the end included; of a model that reads backward, the beginning
    logps: Floats  # (T + 1,) of each piece
    total: float
    perplexity: float
    formulas: list[str] | None = None  # of a model that counts: each probability with its counts
    backward: "Scored | None" = None  # of a model of both directions: by the one that reads backward


@dataclass(frozen=True, eq=False)
class Units:
    """The words or the pieces of a pair, and the attention weights between them."""

    source: list[str]
    target: list[str]
    weights: Floats  # (target units, source units)


@dataclass(frozen=True, eq=False)
class Aligned:
    """Which source unit each target unit of a pair is aligned to. `source`, `target` and `weights` are of that unit."""

    unit: str  # what is linked: "word", or "piece", a token of the model
    links: list[Link]  # (source unit, target unit), in order
    words: Units
    pieces: Units

    @property
    def source(self) -> list[str]:
        return self._linked.source

    @property
    def target(self) -> list[str]:
        return self._linked.target

    @property
    def weights(self) -> Floats:
        return self._linked.weights

    @property
    def _linked(self) -> Units:
        return self.words if self.unit == "word" else self.pieces


def can_score(model: Loaded) -> bool:
    """Whether the model gives a text a probability: it generates text, or tells which tokens were replaced."""
    generates = model.module.config.causal and not model.reads_images
    return generates or bool(model.halves) or model.predicts("replaced")


def score(model: Loaded, texts: Iterable[Text], batch_tokens: int = BATCH_TOKENS) -> list[Scored]:
    """The log-probability of each text: of a target given its source, or of a line alone for a language model.

    A detector of replaced tokens (ELECTRA) gives the log-probability that each token is the original one.
    """
    model.expect("score", can_score(model))
    if model.predicts("replaced"):
        return _originals(model, texts, batch_tokens)
    if model.halves:
        texts = part_list(texts)
        ahead, behind = (score(half, texts, batch_tokens) for half in model.halves)
        return [replace(one, backward=other) for one, other in zip(ahead, behind)]
    pairs = _encoded(model, texts)
    record_forced(model, pairs, batch_tokens)
    answers = []
    for (_, target), logps in zip(pairs, token_logps(model, pairs, batch_tokens)):
        total = sum(map(float, logps), 0.0)  # in double precision
        ids = model.target_tokenizer.special_tokens.wrap_target(target)
        pieces = model.target_tokenizer.pieces(ids[1:])
        formulas = _formulas(model, ids) if model.module.config.learns_by == "counts" else None
        if model.reads_backward:
            pieces, logps, formulas = pieces[::-1], logps[::-1], formulas and formulas[::-1]
        answers.append(Scored(pieces, logps, total, perplexity(total, len(pieces)), formulas))
    return answers


@torch.no_grad()
def _originals(model: Loaded, texts: Iterable[Text], batch_tokens: int) -> list[Scored]:
    """The log-probability of each token that it was not replaced, given the whole text."""
    pairs = _encoded(model, texts)
    record_forced(model, pairs, batch_tokens)
    module, first = cast(Any, model.module), model.tokenizer.special_tokens.wrap_input([-1]).index(-1)

    def read(rows: list[int]) -> Iterator[Scored]:
        batch = batch_of(model, [pairs[row] for row in rows]).to(model.device)
        with pause_recording(module), model.autocast():
            logits = module.replaced(model.states(batch["tokens"], batch.visible("tokens")))  # (B, T)
        for row, logps in zip(rows, F.logsigmoid(-model.check_finite(logits.float().cpu())).numpy()):
            ids = pairs[row][1]
            own = logps[first : first + len(ids)]
            total = sum(map(float, own), 0.0)
            yield Scored(model.tokenizer.pieces(ids), own, total, perplexity(total, len(ids)))

    return in_batches([len(ids) for _, ids in pairs], batch_tokens, read)


@dataclass(frozen=True)
class LastWords:
    """How well a language model predicts the last word of texts (Paperno et al. 2016)."""

    texts: int
    right: int  # texts whose last word is the likeliest token by token, given the text before it
    nats: float  # −Σ ln p of all tokens of the last words

    @property
    def accuracy(self) -> float:
        return self.right / self.texts

    @property
    def perplexity(self) -> float:
        """Of a word: exp of the mean of −ln p(word | the text before it), as Radford et al. 2019 report it."""
        return perplexity(-self.nats, self.texts)


@torch.no_grad()
def last_words(model: Loaded, texts: Iterable[str], batch_tokens: int = BATCH_TOKENS) -> LastWords:
    """The accuracy and the perplexity of the last word of each text, given the text before it.

    A word is right if each of its tokens, the space before it included, is the likeliest one. A text that is longer
    than the context loses its beginning. All words count: there is no list of words that are left out. To a model that
    was trained on single lines, a line break is an unknown character; it reads a space instead.
    """
    model.expect("eval --last-word", model.task.head == "next" and not model.reads_backward)
    texts = text_list(texts)
    if model.tokenizer.unknown("\n"):
        texts = [" ".join(text.split()) for text in texts]
    rows = [_last_word(model, text, number) for number, text in enumerate(texts, 1)]
    module: Any = model.module
    right, nats, unk = 0, 0.0, model.tokenizer.special_tokens.unk
    for group in grouped([len(ids) for ids, _ in rows], batch_tokens):
        ids, _, visible = padded(model, [rows[at][0][:-1] for at in group])
        with pause_recording(model.module), model.autocast():
            states = model.states(ids, visible)
        for row, at in enumerate(group):
            whole, count = rows[at]
            with model.autocast():
                logits = module.readout(states[row, len(whole) - 1 - count : len(whole) - 1]).float()
            true = torch.tensor(whole[-count:], device=model.device)
            right += bool((logits.argmax(-1) == true).all()) and unk not in whole[-count:]
            nats -= float(logits.log_softmax(-1).gather(1, true[:, None]).double().sum())
    model.check_finite([-nats])
    return LastWords(len(rows), right, nats)


def _last_word(model: Loaded, text: str, number: int) -> tuple[list[int], int]:
    """The ids of a text, and how many of them belong to its last word."""
    before, space, word = text.strip().rpartition(" ")
    context, whole = model.tokenizer.encode_batch([before, before + space + word])
    same = next((at for at, (one, other) in enumerate(zip(context, whole)) if one != other), len(context))
    ids, count = [*model.opening, *whole], len(whole) - same
    if model.longest is not None:
        ids = ids[-(model.longest + 1) :]  # the last token is predicted and not read
    if not before.strip() or not 0 < count < len(ids):
        raise UserError(f"line {number}: {text[:60]!r} has no text before its last word; give longer texts.")
    return ids, count


def _formulas(model: Loaded, ids: list[int]) -> list[str]:
    """P(v | u) of every pair of adjacent tokens, written with its counts."""
    module: Any = model.module
    named = zip(ids, model.target_tokenizer.pieces(ids))
    return [f"P({after} | {before}) = {module.formula(u, v)}" for (u, before), (v, after) in pairwise(named)]


def align(
    model: Loaded,
    pairs: Iterable[tuple[str, str]],
    unit: str = "auto",
    method: str = "argmax",
    batch_tokens: int = BATCH_TOKENS,
    layer: int | None = None,
) -> list[Aligned]:
    """The alignment of given pairs, taken from the attention weights of teacher forcing.

    `unit` is what is linked: "word" (pieces are merged), "piece", or "auto": pieces where the model reads characters,
    else words. `method` is how links follow from weights: "argmax" or "mutual". The weights are the mean over the heads
    of one layer: `layer`, or by default the layer that aligns best (`alignment_layer`).
    """
    model.expect("align", model.module.config.source_vocab > 0)
    encoded = _encoded(model, pairs, "pairs")
    record_forced(model, encoded, batch_tokens)
    looks = forced(model, encoded, batch_tokens, layer)
    return [aligned(model, pair, look.weights, unit, method) for pair, look in zip(encoded, looks)]


def aligned(model: Loaded, pair: IdPair, weights: Floats | None, unit: str = "auto", method: str = "argmax") -> Aligned:
    """The links that follow from the weights (T, Ts) of a pair's pieces; row T + 1, of the end, is left out."""
    if unit not in UNITS:
        raise UserError(f'unit="{unit}": no such unit.{nearest(unit, UNITS)}')
    if weights is None:
        raise UserError(f"{model.path}: no attention to align by; train a model with model.decoder=bahdanau.")
    assert model.source_tokenizer is not None
    sides = list(zip((model.source_tokenizer, model.target_tokenizer), pair))
    weights = weights[: len(pair[1])]
    source, target = (tokenizer.pieces(tokens) for tokenizer, tokens in sides)
    pieces = Units(source, target, weights)
    source, target = (tokenizer.decode(tokens).split() for tokenizer, tokens in sides)
    source_words, target_words = (tokenizer.words(tokens) for tokenizer, tokens in sides)
    words = Units(source, target, merge(weights, target_words, source_words))
    if unit == "auto":
        unit = "piece" if model.source_tokenizer.kind == "char" else "word"
    linked = words if unit == "word" else pieces
    return Aligned(unit, sorted(links_from(linked.weights, method)), words, pieces)


def _encoded(model: Loaded, texts: Iterable[Text], name: str = "texts") -> list[IdPair]:
    """The ids of source and target; a model without a source reads lines, and its sources are empty."""
    given, lines = part_list(texts, name), model.source_tokenizer is None
    for number, text in enumerate(given, 1):
        if isinstance(text, str) != lines or (not lines and len(text) != 2):
            wanted = "a line of text" if lines else "a pair (source, target)"
            raise UserError(f"text {number}: this model scores {wanted}, found {text!r:.60}.")
    if lines:
        return [([], line) for line in model.read(given)]
    sources, targets = zip(*given) if given else ((), ())
    read = model.read(sources)
    encoded = model.target_tokenizer.encode_batch([text.strip() for text in targets])
    return list(zip(read, [fit_target(model, ids, f"text {number}") for number, ids in enumerate(encoded, 1)]))
