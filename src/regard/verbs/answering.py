"""Answer: the span of a passage that answers a question."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.answers import IN_PASSAGE, AnsweredField, AnswerText, windows
from regard.data.batches import collate
from regard.data.example import Question
from regard.errors import UserError
from regard.recording import active_tape, pause_recording
from regard.verbs.forced import BATCH_TOKENS, Floats, in_batches, joined_axes, record_rows
from regard.verbs.given import part_list
from regard.verbs.loaded import Loaded

LONGEST_ANSWER = 30  # tokens, as in BERT's script for SQuAD
SENTENCE_END = re.compile(r"[.!?]['\"”’)\]]*\s+|\n+")

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Span:
    """The characters `start` to `end` − 1 of a passage, and the probability that they are the answer."""

    text: str
    probability: float
    start: int
    end: int
    sentence: str  # the sentence, or sentences, of the passage that the span is in


@dataclass(frozen=True)
class Answered:
    """The answer to a question, and the likeliest spans. An empty text, without a place, is "no answer".

    The probabilities of all spans, and of no answer if the model was trained for that, add up to 1.
    """

    text: str
    probability: float
    start: int | None
    end: int | None
    sentence: str
    spans: tuple[Span, ...]  # the likeliest first
    no_answer: float | None  # its probability; None: the model was not trained to give no answer


def answer(
    model: Loaded,
    questions: Iterable[tuple[str, str]],
    top: int = 1,
    threshold: float | None = None,
    longest: int = LONGEST_ANSWER,
    batch_tokens: int = BATCH_TOKENS,
) -> list[Answered]:
    """The answers to questions, each given as (question, passage), in their order.

    A long passage is read in overlapping windows, and the best span of all windows is the answer. No answer is given if
    its probability is at least `threshold`; without a threshold, if it is likelier than every span. A public checkpoint
    gives no answer only with a threshold: its files do not say whether it was trained for that. `longest` is the most
    tokens of an answer, and `top` the number of spans. If the caller records the model, item i of the tape is window i
    of all passages.
    """
    model.expect("answer questions", model.predicts("span"))
    given = part_list(questions, "questions")
    if threshold is not None and not 0 <= threshold <= 1:
        raise UserError(f"threshold={threshold}: give a probability from 0 to 1.")
    for number, one in enumerate(given, 1):
        if isinstance(one, str) or len(one) != 2 or not one[0].strip() or not one[1].strip():
            found = "a question or a passage is missing" if len(one) == 2 else f"{one!r:.60} is no question"
            raise UserError(f"line {number}: {found}; give (question, passage), both with some text.")
    asked = [Question(question.strip(), passage) for question, passage in given]
    field = model.fields.get("answered")
    trained = field.unanswered > 0 if isinstance(field, AnsweredField) else threshold is not None
    if threshold is not None and not trained:
        cure = "leave the threshold out, or train with questions that have no answer"
        raise UserError(f"threshold={threshold}: {model.path} was not trained to give no answer; {cure}.")
    spans = _all_spans(model, asked, longest, batch_tokens)
    return [_answered(one.passage, scores, top, threshold, trained) for one, scores in zip(asked, spans)]


class _Scores(NamedTuple):
    """The spans of a passage, (N,) each: characters and scores; and the score of no answer."""

    starts: Numbers
    ends: Numbers
    scores: Floats
    none: float


def _answered(passage: str, found: _Scores, top: int, threshold: float | None, trained: bool) -> Answered:
    """The answer from the scores of all spans of a passage."""
    scores = np.append(found.scores, found.none if trained else -np.inf)
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    *likely, none = probabilities.tolist()
    spans = []
    for place in np.argsort(-found.scores, kind="stable")[: max(top, 1)].tolist():
        start, end = int(found.starts[place]), int(found.ends[place])
        spans.append(Span(passage[start:end], likely[place], start, end, sentence_around(passage, start, end)))
    best = spans[0] if spans else None
    if best is None or (trained and none >= (best.probability if threshold is None else threshold)):
        return Answered("", none if trained else 0.0, None, None, "", tuple(spans), none if trained else None)
    return Answered(
        best.text, best.probability, best.start, best.end, best.sentence, tuple(spans), none if trained else None
    )


def sentence_around(passage: str, start: int, end: int) -> str:
    """The sentence of a passage that has the characters `start` to `end` − 1."""
    first = max((one.end() for one in SENTENCE_END.finditer(passage, 0, start)), default=0)
    after = SENTENCE_END.search(passage, max(end - 1, start))
    return passage[first : after.end() if after else len(passage)].strip()


def _all_spans(model: Loaded, asked: Sequence[Question], longest: int, batch_tokens: int) -> list[_Scores]:
    """The scores of all spans of each passage, from all its windows; of equal spans, the better score."""
    pieces = list(windows(model.fields, asked, model.data, model.longest))
    outputs = iter(_window_spans(model, [one for some in pieces for one in some], longest, batch_tokens))
    found = []
    for some in pieces:
        starts, ends, scores, none = zip(*(next(outputs) for _ in some))
        joined = _Scores(np.concatenate(starts), np.concatenate(ends), np.concatenate(scores), min(none))
        if len(some) > 1:
            order = np.lexsort((-joined.scores, joined.ends, joined.starts))
            places = np.stack([joined.starts[order], joined.ends[order]])
            new = np.append(True, (places[:, 1:] != places[:, :-1]).any(0))
            kept = order[new]
            joined = _Scores(joined.starts[kept], joined.ends[kept], joined.scores[kept], joined.none)
        found.append(joined)
    return found


@torch.no_grad()
def _window_spans(model: Loaded, asked: Sequence[Question], longest: int, batch_tokens: int) -> list[_Scores]:
    """The scores of all spans of passages that fit into a model: logit of the first token + logit of the last."""
    field = model.fields["text"]
    assert isinstance(field, AnswerText)
    rows = model.encode(asked, model.longest)
    places = field.tokenizer.offsets([one.passage for one in asked])
    if active_tape(model.module) is not None:
        items = [axes for one, row in zip(asked, rows) for axes in joined_axes(model, one.text[:2], row["text"])]
        record_rows(model, rows, items, batch_tokens)

    def read(group: list[int]) -> Iterator[_Scores]:
        batch = collate([rows[place] for place in group], model.task).to(model.device)
        with model.autocast():
            logits = model.module(batch).float().cpu().numpy()  # (B, T, 2)
        for place, one in zip(group, logits):
            tokens = np.flatnonzero(rows[place]["text"][:, 2] & IN_PASSAGE)
            inside, none = model.check_finite(one[tokens]), model.check_finite(one[0])
            yield _spans(asked[place], np.array(places[place][: len(tokens)]), inside, none, longest)

    with pause_recording(model.module):
        return in_batches([len(row["text"]) for row in rows], batch_tokens, read)


def _spans(asked: Question, places: Numbers, logits: Floats, none: Floats, longest: int) -> _Scores:
    """The spans of at most `longest` tokens; `places` (T, 2) has the characters of each token, `logits` (T, 2)."""
    places = places.reshape(-1, 2)
    texts = [asked.passage[start:end] for start, end in places]
    starts = np.array([start + len(text) - len(text.lstrip()) for (start, _), text in zip(places, texts)], np.int64)
    ends = np.array([end - len(text) + len(text.rstrip()) for (_, end), text in zip(places, texts)], np.int64)
    first = np.arange(len(places))[:, None]
    last = first + np.arange(longest)
    words = np.array([bool(text.strip()) for text in texts], bool)
    inside = last < len(places)
    last = np.where(inside, last, 0)
    first, last = (np.broadcast_to(one, inside.shape)[inside & words[first] & words[last]] for one in (first, last))
    return _Scores(
        asked.begin + starts[first],
        asked.begin + ends[last],
        logits[first, 0] + logits[last, 1],
        float(none.sum()),
    )
