"""Metrics of outputs: exact match, error rates by edit distance, BLEU, chrF, perplexity.

Rates are fractions from 0 to 1 (an error rate may exceed 1); BLEU and chrF are from 0 to 100, as in sacreBLEU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import UserError

References = Sequence[tuple[str, ...]]  # for each output, the accepted references


@dataclass(frozen=True)
class Bleu:
    """A corpus score of sacreBLEU, and its signature: the settings with which it was computed."""

    score: float
    signature: str


def exact_match(hyps: Sequence[str], refs: References) -> float:
    """The fraction of outputs that equal one of their accepted references."""
    _check_lengths(hyps, refs)
    return sum(hyp in accepted for hyp, accepted in zip(hyps, refs)) / max(len(hyps), 1)


def word_error(hyps: Sequence[str], refs: References) -> float:
    """The fraction of words whose pronunciation equals no accepted one; phonemes are separated by spaces: "K AE T"."""
    _check_lengths(hyps, refs)
    wrong = sum(hyp.split() not in [ref.split() for ref in accepted] for hyp, accepted in zip(hyps, refs))
    return wrong / max(len(hyps), 1)


def phoneme_error(hyps: Sequence[str], refs: References) -> float:
    """The edit distance of each word to its nearest accepted pronunciation, summed, over the phonemes of those."""
    _check_lengths(hyps, refs)
    edits = length = 0
    for hyp, accepted in zip(hyps, refs):
        output = hyp.split()
        pronunciations = [ref.split() for ref in accepted]
        distance, phonemes = min((edit_distance(output, one), len(one)) for one in pronunciations)
        edits += distance
        length += phonemes
    return edits / max(length, 1)


def edit_distance(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein 1966)."""
    start, stop = 0, min(len(a), len(b))
    while start < stop and a[start] == b[start]:  # skip the common prefix, which is usually most of both
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
    from sacrebleu.metrics.bleu import BLEU  # imported only when needed

    return _corpus_score(BLEU(), hyps, refs)


def chrf(hyps: Sequence[str], refs: References) -> Bleu:
    """Corpus chrF2, the F-score of character n-grams, by sacreBLEU (Popović 2015)."""
    from sacrebleu.metrics.chrf import CHRF

    return _corpus_score(CHRF(), hyps, refs)


def perplexity(total_logp: float, count: int) -> float:
    """exp of the mean negative natural log-probability of `count` tokens; infinite if that overflows."""
    if count == 0:
        return math.nan
    try:
        return math.exp(-total_logp / count)
    except OverflowError:
        return math.inf


def _corpus_score(metric: Any, hyps: Sequence[str], refs: References) -> Bleu:
    _check_lengths(hyps, refs)
    if not hyps:
        raise UserError("no outputs to score; give at least one line.")
    # In sacreBLEU stream k has the k-th reference of every line, None if a line has fewer.
    streams = [[one[k] if k < len(one) else None for one in refs] for k in range(max(map(len, refs)))]
    score = metric.corpus_score(list(hyps), streams)
    return Bleu(float(score.score), str(metric.get_signature()))


def _check_lengths(hyps: Sequence[Any], refs: Sequence[Any]) -> None:
    if len(hyps) != len(refs):
        raise UserError(f"{len(hyps)} outputs but {len(refs)} references; give as many of each.")
