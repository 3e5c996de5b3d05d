"""Exact match and F1 of answers, as the script of SQuAD 2.0 counts them (Rajpurkar et al. 2018)."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """An answer as answers are compared: in lower case, without punctuation and articles, with single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact(answer: str, accepted: str) -> float:
    """1 if both answers are the same after normalisation, else 0."""
    return float(normalized(answer) == normalized(accepted))


def word_f1(answer: str, accepted: str) -> float:
    """The F1 of the words of an answer. If one of the two answers has no words, it is 1 if the other has none."""
    found, gold = normalized(answer).split(), normalized(accepted).split()
    if not found or not gold:
        return float(found == gold)
    hits = (Counter(found) & Counter(gold)).total()
    return 2 * hits / (len(found) + len(gold))


def mean_score(
    score: Callable[[str, str], float], answers: Sequence[str], accepted: Sequence[Sequence[str]]
) -> float | None:
    """The mean over questions of the best score of an answer with one of the accepted answers.

    The empty text is "no answer". A question without an accepted answer accepts only that. Accepted answers that have
    no words, such as "the", do not count.
    """
    scores = []
    for answer, texts in zip(answers, accepted, strict=True):
        golds = [text for text in texts if normalized(text)] or [""]
        scores.append(max(score(answer, gold) for gold in golds))
    return sum(scores) / len(scores) if scores else None
