"""Metrics: how good a model is, one literal table.

Rates are fractions from 0 to 1 (an error rate may exceed 1), and so is ROUGE; BLEU and chrF are from 0 to 100, as in
sacreBLEU.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.alignment import aer, chance_accuracy, correct_targets, links_from
from regard.answer_scores import exact, mean_score, word_f1
from regard.class_scores import Flags, macro_average, micro_average, weighted_average
from regard.entities import OUTSIDE, entity_scores, names_entities
from regard.errors import UserError

Format = Literal["percent", "points", "digits"]
Floats = NDArray[np.floating[Any]]
References = Sequence[tuple[str, ...]]  # for each output, the accepted references


@dataclass(frozen=True)
class Metric:
    """A measure of the quality of a model.

    `compute` gets what the metric needs:
    sums     (sums, counts): what the objective adds up over all examples, and how many there are of each term
    answers  (texts, references): what the model generates, and for each example the texts that are accepted
    weights  (weights, links): attention weights (target units, source units) of each example, and its gold links
    predictions  (found, gold): numbers (N,) of the N examples, or which of C classes each has, (N, C)
    regions  (weights, regions): attention weights (words, cells of the image) of each example, and its gold regions
    tags     (found, gold): the tags of the words of each example, by name
    spans    (texts, references): the answer to each question, empty for no answer, and the texts that are accepted

    It returns a number, a `Bleu` (a number and how it was computed), or None where the metric does not exist.
    """

    title: str  # the heading of its column
    needs: Literal["sums", "answers", "weights", "regions", "predictions", "tags", "spans"]
    compute: Callable[[Any, Any], Any]
    lower_is_better: bool = False
    format: Format = "digits"
    sums: tuple[str, ...] = ()  # the sums that it needs beside the terms of the loss (`Objective.measures`)
    heads: tuple[str, ...] = ()  # the heads whose predictions it is for; empty: any
    correlation: bool = False  # at most 1, and negative where it is worse than chance

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Where an axis of its values begins and ends, at least: of a share at 0 and 1. None: the values decide."""
        if self.correlation or self.format == "percent":
            return 0.0, 1.0
        return (0.0 if self.format == "points" else None), None

    def show(self, value: float | None, deviation: float | None = None) -> str:
        """The value as people read it, and its standard deviation over several runs if it is given."""
        if value is None:
            return "–"
        scale, unit = (100, " %") if self.format == "percent" else (1, "")
        if deviation is None:
            return f"{value:.4g}" if self.format == "digits" else f"{scale * value:.2f}{unit.strip()}"
        if self.format == "digits":
            return f"{value:.4g} ± {deviation:.1g}"
        return f"{scale * value:.2f} ± {scale * deviation:.2f}{unit}"


def _alignment(weights: Any, links: Any) -> float | None:
    """How often a target unit with gold links looks most at a source unit that is linked to it."""
    found = [correct_targets(table, gold) for table, gold in zip(weights, links)]
    targets = sum(count for _, count in found)
    return sum(right for right, _ in found) / targets if targets else None


def _chance(weights: Any, links: Any) -> float | None:
    """What `alignment` would be if every target unit looked at a random source unit."""
    counts = [correct_targets(table, gold)[1] for table, gold in zip(weights, links)]
    hits = (count * chance_accuracy(gold, table.shape[1]) for count, table, gold in zip(counts, weights, links))
    return sum(hits, 0.0) / sum(counts) if sum(counts) else None


def _alignment_error(weights: Any, links: Any) -> float:
    return aer(links, links, [links_from(table) for table in weights]).aer


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


# -- captions, which have several references --------------------------------------------------------------------------

# Words in lower case, without punctuation; "dog's" is two words, "tri-coloured" is one.
CAPTION_WORD = re.compile(r"\w+(?:-\w+)*|'\w+")
LONGEST_NGRAM = 4
SIGMA = 6.0  # of CIDEr-D's penalty for a difference in length

Ngram = tuple[str, ...]


def caption_words(text: str) -> list[str]:
    """The words of a caption as metrics of captions compare them: in lower case, without punctuation."""
    return CAPTION_WORD.findall(text.lower().replace("’", "'"))


def caption_bleu(order: int) -> Callable[[Sequence[str], References], Bleu]:
    """Corpus BLEU of n-grams up to an order, without smoothing, of the words of captions (Papineni et al. 2002)."""

    def score(hyps: Sequence[str], refs: References) -> Bleu:
        from sacrebleu.metrics.bleu import BLEU

        metric = BLEU(tokenize="none", max_ngram_order=order, smooth_method="none", force=True)
        words = [" ".join(caption_words(hyp)) for hyp in hyps]
        return _corpus_score(metric, words, [tuple(" ".join(caption_words(ref)) for ref in one) for one in refs])

    return score


def cider(hyps: Sequence[str], refs: References) -> float:
    """The mean of `caption_ciders`."""
    found = caption_ciders(hyps, refs)
    return sum(found) / max(len(found), 1)


def caption_ciders(hyps: Sequence[str], refs: References) -> list[float]:
    """CIDEr-D of each caption (Vedantam et al. 2015): the similarity of its n-grams with those of the references.

    Rare n-grams count more: an n-gram is as frequent as the number of images that have it in a reference. The results
    are from 0 to 10.
    """
    _check_lengths(hyps, refs)
    images = Counter(ngram for one in refs for ngram in {ngram for ref in one for ngram in chain(*_ngrams(ref))})

    def vectors(text: str) -> list[tuple[dict[Ngram, float], float]]:
        """For each n, the tf-idf of the n-grams and their norm. As in the authors' code, tf is the count itself."""
        found = []
        for counts in _ngrams(text):
            tf_idf = {ngram: count * math.log(len(hyps) / max(images[ngram], 1)) for ngram, count in counts.items()}
            found.append((tf_idf, math.hypot(*tf_idf.values())))
        return found

    found = []
    for hyp, one in zip(hyps, refs):
        output, total = vectors(hyp), 0.0
        for ref in one:
            cosines = 0.0
            for (a, a_norm), (b, b_norm) in zip(output, vectors(ref)):
                product = sum(min(weight, b[ngram]) * b[ngram] for ngram, weight in a.items() if ngram in b)
                cosines += product / (a_norm * b_norm) if product else 0.0
            difference = len(caption_words(hyp)) - len(caption_words(ref))
            total += math.exp(-(difference**2) / (2 * SIGMA**2)) * cosines / LONGEST_NGRAM / len(one)
        found.append(10 * total)
    return found


def _ngrams(text: str) -> list[Counter[Ngram]]:
    """For n from 1 to 4, how often a caption has each n-gram."""
    words = caption_words(text)
    orders = range(1, LONGEST_NGRAM + 1)
    return [Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1)) for n in orders]


# -- ROUGE ------------------------------------------------------------------------------------------------------------

ROUGE_WORD = re.compile(r"[a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """The words that ROUGE compares, as the package rouge-score finds them without its stemmer.

    They are the runs of the letters a to z and of digits, in lower case: other letters and punctuation end a word.
    """
    return ROUGE_WORD.findall(text.lower())


def rouge(order: int) -> Callable[[Sequence[str], References], float]:
    """ROUGE-N, or ROUGE-L with order 0 (Lin 2004): F1 of the n-grams, or of the longest common subsequence of words.

    The result is the mean over the outputs. If an output has several references, the one with the best F1 counts.
    """

    def f1(hyp: list[str], ref: list[str]) -> float:
        if order:
            given, gold = (Counter(zip(*(words[at:] for at in range(order)))) for words in (hyp, ref))
            hits, found, wanted = (given & gold).total(), given.total(), gold.total()
        else:
            hits, found, wanted = common_length(hyp, ref), len(hyp), len(ref)
        return 2 * hits / (found + wanted) if hits else 0.0

    def score(hyps: Sequence[str], refs: References) -> float:
        _check_lengths(hyps, refs)
        best = [max(f1(rouge_words(hyp), rouge_words(ref)) for ref in accepted) for hyp, accepted in zip(hyps, refs)]
        return sum(best) / max(len(best), 1)

    return score


def common_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The length of the longest common subsequence of two sequences."""
    above = [0] * (len(b) + 1)  # of a[:i] and each b[:j]
    for left in a:
        row = [0]
        for j, right in enumerate(b):
            row.append(above[j] + 1 if left == right else max(above[j + 1], row[j]))
        above = row
    return above[-1]


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


def pearson(found: Floats, gold: Floats) -> float | None:
    """Pearson's correlation of two series (N,); None if one of them is constant or empty, NaN if a number is NaN."""
    if not len(gold) or np.ptp(found) == 0 or np.ptp(gold) == 0:  # rounding may make the variance positive
        return None
    centred = [np.asarray(one, np.float64) - np.mean(one) for one in (found, gold)]
    x, y = (one / np.abs(one).max() for one in centred)  # so that no square overflows or becomes 0
    return float(x @ y) / math.sqrt(float((x @ x) * (y @ y)))


def spearman(found: Floats, gold: Floats) -> float | None:
    """Spearman's rank correlation: Pearson's of the ranks; equal numbers share the mean of their ranks."""
    return pearson(_ranks(found), _ranks(gold))


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return np.where(np.isnan(values), np.nan, ranks)


def text_spearman(hyps: Sequence[str], refs: References) -> float | None:
    """Spearman's correlation of numbers that a model writes as text, such as "3.8", with those of the references.

    An output that is no number has a lower rank than all numbers. The references must be numbers, else None.
    """
    _check_lengths(hyps, refs)
    found, gold = ([_number(text) for text in texts] for texts in (hyps, [accepted[0] for accepted in refs]))
    if not gold or None in gold:
        return None
    return spearman(np.array([-math.inf if one is None else one for one in found]), np.array(gold, np.float64))


def _number(text: str) -> float | None:
    """The finite number that a text is; None if it is something else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def matthews(found: Flags, gold: Flags) -> float:
    """Matthews correlation of one class per example, (N, C) each, from -1 to 1 (for C > 2, Gorodkin 2004).

    With the number of examples s, of right ones c, and of examples t and predictions p of each class:
    (c·s − Σ t·p) / √((s² − Σ p²)(s² − Σ t²)). As in scikit-learn it is 0 if all predictions, or all examples, have the
    same class.
    """
    right, total = int((found & gold).sum()), len(gold)
    predicted, support = found.sum(0).astype(np.float64), gold.sum(0).astype(np.float64)
    scale = (total**2 - predicted @ predicted) * (total**2 - support @ support)
    return float((right * total - predicted @ support) / math.sqrt(scale)) if scale > 0 else 0.0


def _check_lengths(hyps: Sequence[Any], refs: Sequence[Any]) -> None:
    if len(hyps) != len(refs):
        raise UserError(f"{len(hyps)} outputs but {len(refs)} references; give as many of each.")


def _pointing(weights: Any, regions: Any) -> float | None:
    """How often the centre of the cell with the greatest weight of a word is inside the region that the word names."""
    found = [hit[row.argmax()] for table, gold in zip(weights, regions) for row, hit in _named(table, gold)]
    return sum(map(float, found)) / len(found) if found else None


def _pointing_chance(weights: Any, regions: Any) -> float | None:
    """What `pointing` would be if every word looked at a random cell."""
    found = [hit.mean() for table, gold in zip(weights, regions) for _, hit in _named(table, gold)]
    return sum(map(float, found)) / len(found) if found else None


def _named(table: Any, regions: Any) -> Iterator[tuple[Any, Any]]:
    """For each word with a region its weights (cells,), and which cells have their centre in the region.

    The table has the weights of each word, (words, rows, columns). Words that it does not have are left out.
    """
    down, across = ((np.arange(count) + 0.5) / count for count in table.shape[1:])
    for region in regions:
        if region.word < len(table):
            left, top, right, bottom = region.box
            rows, columns = (down > top) & (down < bottom), (across > left) & (across < right)
            yield table[region.word].ravel(), np.outer(rows, columns).ravel()


def _entity_score(place: int) -> Callable[[Any, Any], float | None]:
    """Precision, recall or F1 (0, 1 or 2) of all entities of tagged sentences; None for other tags."""

    def score(found: Any, gold: Any) -> float | None:
        names = {OUTSIDE, *chain.from_iterable(gold)}
        return float(entity_scores(found, gold)[""][place]) if names == {OUTSIDE} or names_entities(names) else None

    return score


def _per_target(name: str) -> Callable[[Any, Any], float | None]:
    """A sum divided by the number of targets; None for objectives that do not add it up."""
    return lambda sums, counts: sums[name] / counts["nll"] if name in sums else None


METRICS: dict[str, Metric] = {
    "loss": Metric("loss", "sums", lambda sums, counts: float(sums["nll"] / counts["nll"]), lower_is_better=True),
    "perplexity": Metric(
        "perplexity", "sums", lambda sums, counts: perplexity(-sums["nll"], counts["nll"]), lower_is_better=True
    ),
    **{
        name: Metric(
            f"{name} perplexity",
            "sums",
            lambda sums, counts, name=name: perplexity(-sums[name], counts["nll"]) if name in sums else None,  # type: ignore[misc]
            lower_is_better=True,
            sums=("forward", "backward"),
            heads=("both",),
        )
        for name in ("forward", "backward")
    },
    "accuracy": Metric("accuracy", "sums", _per_target("right"), format="percent", sums=("right",)),
    **{
        f"replaced_{name}": Metric(
            f"{name} of replaced tokens",
            "sums",
            lambda sums, counts, of=of: sums["detected"] / max(sums[of], 1),  # type: ignore[misc]
            format="percent",
            sums=("detected", of),
            heads=("replaced",),
        )
        for name, of in (("precision", "flagged"), ("recall", "replaced"))
    },
    "sentences": Metric(
        "sentence accuracy",
        "sums",
        lambda sums, counts: sums["sentences_right"] / counts["sentences"] if counts.get("sentences") else None,
        format="percent",
        sums=("sentences_right",),
        heads=("masked",),
    ),
    "filled": Metric(
        "masked tokens found", "sums", _per_target("filled"), format="percent", sums=("filled",), heads=("masked",)
    ),
    "recalled": Metric(
        "recalled",
        "sums",
        lambda sums, counts: sums["recalled"] / sums["recallable"] if sums["recallable"] else None,
        format="percent",
        sums=("recalled", "recallable"),
    ),
    "mse": Metric("mean squared error", "sums", _per_target("squared"), lower_is_better=True, sums=("squared",)),
    **{
        f"f1_{name}": Metric(
            f"F1, {name}",
            "predictions",
            lambda found, gold, average=average: float(average(found, gold).f1[0]),  # type: ignore[misc]
            format="percent",
            heads=("class", "labels"),
        )
        for name, average in (("micro", micro_average), ("macro", macro_average), ("weighted", weighted_average))
    },
    "matthews": Metric("Matthews correlation", "predictions", matthews, heads=("class",), correlation=True),
    **{
        f"entity_{name.lower()}": Metric(
            f"entity {name}", "tags", _entity_score(place), format="percent", heads=("tag",)
        )
        for place, name in ((2, "F1"), (0, "precision"), (1, "recall"))
    },
    **{
        name: Metric(
            title,
            "spans",
            lambda found, gold, score=score: mean_score(score, found, gold),  # type: ignore[misc]
            format="percent",
            heads=("span",),
        )
        for name, title, score in (("em", "exact answers", exact), ("answer_f1", "answer F1", word_f1))
    },
    "pearson": Metric("Pearson", "predictions", pearson, heads=("number", "vector"), correlation=True),
    "spearman": Metric("Spearman", "predictions", spearman, heads=("number", "vector"), correlation=True),
    "exact": Metric("exact match", "answers", exact_match, format="percent"),
    "bleu": Metric("BLEU", "answers", bleu, format="points"),
    "chrf": Metric("chrF", "answers", chrf, format="points"),
    **{
        f"rouge{name}": Metric(f"ROUGE-{name}", "answers", rouge(order), format="percent")
        for name, order in (("1", 1), ("2", 2), ("L", 0))
    },
    "text_spearman": Metric("Spearman, of text", "answers", text_spearman, correlation=True),
    "word_error": Metric("word error", "answers", word_error, lower_is_better=True, format="percent"),
    "phoneme_error": Metric("phoneme error", "answers", phoneme_error, lower_is_better=True, format="percent"),
    "alignment": Metric("alignment", "weights", _alignment, format="percent"),
    "chance": Metric("(by chance)", "weights", _chance, format="percent"),
    **{
        f"bleu{order}": Metric(f"BLEU-{order}", "answers", caption_bleu(order), format="points")
        for order in range(1, LONGEST_NGRAM + 1)
    },
    "cider": Metric("CIDEr-D", "answers", cider),
    "pointing": Metric("pointing", "regions", _pointing, format="percent"),
    "pointing_chance": Metric("(pointing by chance)", "regions", _pointing_chance, format="percent"),
    "aer": Metric("alignment error rate", "weights", _alignment_error, lower_is_better=True, format="percent"),
}
