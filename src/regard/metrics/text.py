"""How good the outputs are: exact match, error rates by edit distance, BLEU, chrF, perplexity.

Rates are fractions, 0 … 1 (an error rate may pass 1); BLEU and chrF run to 100, as sacreBLEU reports them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import UserError

References = Sequence[tuple[str, ...]]  # for each output, the targets that are accepted


@dataclass(frozen=True)
class Bleu:
    """A corpus score that others can compare with: the number, and the signature that says how it was computed."""

    score: float
    signature: str


def exact_match(hyps: Sequence[str], refs: References) -> float:
    """The part of the outputs that equal one of their accepted references."""
    _paired(hyps, refs)
    return sum(hyp in accepted for hyp, accepted in zip(hyps, refs)) / max(len(hyps), 1)


def word_error(hyps: Sequence[str], refs: References) -> float:
    """The part of the words spoken in none of the accepted ways; phonemes stand apart: "K AE T"."""
    _paired(hyps, refs)
    wrong = sum(hyp.split() not in [ref.split() for ref in accepted] for hyp, accepted in zip(hyps, refs))
    return wrong / max(len(hyps), 1)


def phoneme_error(hyps: Sequence[str], refs: References) -> float:
    """Edits to the nearest accepted way to speak each word, over the phonemes of those nearest ways."""
    _paired(hyps, refs)
    edits = length = 0
    for hyp, accepted in zip(hyps, refs):
        spoken = hyp.split()
        ways = [ref.split() for ref in accepted]
        distance, phonemes = min((edit_distance(spoken, way), len(way)) for way in ways)
        edits += distance
        length += phonemes
    return edits / max(length, 1)


def edit_distance(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein 1966)."""
    start, stop = 0, min(len(a), len(b))
    while start < stop and a[start] == b[start]:  # what both begin with costs nothing, and is most of it
        start += 1
    a, b = a[start:], b[start:]
    above = list(range(len(b) + 1))  # from a[:i] to each b[:j]
    for i, left in enumerate(a, 1):
        row = [i]
        for j, right in enumerate(b):
            row.append(min(above[j] + (left != right), above[j + 1] + 1, row[j] + 1))
        above = row
    return above[-1]


def bleu(hyps: Sequence[str], refs: References) -> Bleu:
    """Corpus BLEU of detokenised, cased text, by sacreBLEU with its default tokeniser, 13a (Post 2018)."""
    from sacrebleu.metrics.bleu import BLEU  # loaded only where a score is asked for

    return _corpus(BLEU(), hyps, refs)


def chrf(hyps: Sequence[str], refs: References) -> Bleu:
    """Corpus chrF2, the F-score of character n-grams, by sacreBLEU (Popović 2015)."""
    from sacrebleu.metrics.chrf import CHRF

    return _corpus(CHRF(), hyps, refs)


def perplexity(total_logp: float, count: int) -> float:
    """exp of the mean negative log-probability (natural) of `count` tokens; infinite where that overflows."""
    if count == 0:
        return math.nan
    try:
        return math.exp(-total_logp / count)
    except OverflowError:
        return math.inf


def _corpus(metric: Any, hyps: Sequence[str], refs: References) -> Bleu:
    _paired(hyps, refs)
    if not hyps:
        raise UserError("no outputs to score; give at least one line.")
    # sacreBLEU wants stream k to hold every line's k-th reference, None where a line has fewer
    streams = [[one[k] if k < len(one) else None for one in refs] for k in range(max(map(len, refs)))]
    score = metric.corpus_score(list(hyps), streams)
    return Bleu(float(score.score), str(metric.get_signature()))


def _paired(hyps: Sequence[Any], refs: Sequence[Any]) -> None:
    if len(hyps) != len(refs):
        raise UserError(f"{len(hyps)} outputs but {len(refs)} references; they must go line by line.")
