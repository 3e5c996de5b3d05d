"""Score and align: what a model makes of sentences that are given."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.alignment import Link, links_from, merge
from regard.data.batches import Pair
from regard.errors import UserError
from regard.train.metrics import perplexity
from regard.verbs.forced import BATCH_TOKENS, Floats, forced
from regard.verbs.loaded import Loaded

Text = str | tuple[str, str]  # a line for a language model, source and target for a translator


@dataclass(frozen=True, eq=False)
class Scored:
    """How likely a model finds a text: natural logarithms, the end of the sentence included."""

    pieces: list[str]  # of the target, the end included
    logps: Floats  # (T + 1,) of each piece
    total: float
    perplexity: float


@dataclass(frozen=True, eq=False)
class Aligned:
    """Which source unit stands behind which target unit of a given pair."""

    source: list[str]  # the units: words, or the pieces that the model sees
    target: list[str]
    weights: Floats  # (target units, source units)
    links: list[Link]  # (source unit, target unit), in order


def score(model: Loaded, texts: Sequence[Text], batch_tokens: int = BATCH_TOKENS) -> list[Scored]:
    """The log-probability of each text: of a target given its source, or of a line alone for a language model."""
    model.expect("score", "translate", "language")
    pairs = _encoded(model, texts)
    answers = []
    for (source, target), look in zip(pairs, forced(model, pairs, batch_tokens)):
        total = float(look.logps.sum())
        pieces = model.captions(source, target)[1]
        answers.append(Scored(pieces, look.logps, total, perplexity(total, len(pieces))))
    return answers


def align(
    model: Loaded,
    pairs: Sequence[tuple[str, str]],
    unit: str = "word",
    method: str = "argmax",
    batch_tokens: int = BATCH_TOKENS,
) -> list[Aligned]:
    """The alignment of given pairs, read off the attention while the model is made to say each target.

    `unit` is "word" (pieces are merged) or "piece"; `method` how links are read off weights, "argmax" or "mutual".
    """
    model.expect("align", "translate")
    if unit not in ("word", "piece"):
        raise UserError(f'unit="{unit}": align by "word" or by "piece".')
    encoded = _encoded(model, pairs)
    answers = []
    for texts, pair, look in zip(pairs, encoded, forced(model, encoded, batch_tokens)):
        if look.weights is None:
            raise UserError(f"{model.path}: this model has no attention to align by; train model.decoder=bahdanau.")
        weights, units = look.weights[:-1], model.captions(*pair)  # without the look at the end
        source, target = units[0], units[1][:-1]
        if unit == "word":
            weights, source, target = _by_word(model, pair, texts, weights)
        answers.append(Aligned(source, target, weights, sorted(links_from(weights, method))))
    return answers


def _by_word(
    model: Loaded, pair: Pair, texts: tuple[str, str], weights: Floats
) -> tuple[Floats, list[str], list[str]]:
    assert model.source_tokenizer is not None
    merged = merge(weights, model.target_tokenizer.words(pair[1]), model.source_tokenizer.words(pair[0]))
    return merged, texts[0].split(), texts[1].split()


def _encoded(model: Loaded, texts: Sequence[Text]) -> list[Pair]:
    """The ids of both sides; every text must have as many sides as the model."""
    speaks = model.source_tokenizer is None
    for number, text in enumerate(texts, 1):
        if isinstance(text, str) != speaks:
            wanted = "a line of text" if speaks else "a pair (source, target)"
            raise UserError(f"text {number}: this model scores {wanted}, found {text!r:.60}.")
    if speaks:
        return [([], target) for target in model.read_targets([str(text) for text in texts])]
    sources, targets = zip(*texts) if texts else ((), ())
    return list(zip(model.read(sources), model.read_targets(targets)))
