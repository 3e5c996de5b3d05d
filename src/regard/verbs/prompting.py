"""Classification with a prompt: a language model ranks the words of each label by their log-probability.

The model is not trained for it. The prompt may show some examples with their labels before the text ("shots"), as
GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020) are used. A model with a source, such as T5, reads the prompt
as the source, and the words of a label are the target.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decode.state import DropsSentences
from regard.errors import UserError
from regard.recording import pause_recording
from regard.tensor_tree import copied
from regard.verbs.forced import BATCH_TOKENS, Floats, token_logps
from regard.verbs.given import text_list
from regard.verbs.loaded import Loaded

TEXT, LABEL = "{text}", "{label}"
EXAMPLE = r'"Review: {text}\nSentiment: {label}"'  # of a template, for messages
CONTENT_FREE = ("N/A", "[MASK]", "")  # texts without content, for the calibration (Zhao et al. 2021, section 5)


@dataclass(frozen=True)
class Prompt:
    """A template such as "Review: {text}\\nSentiment: {label}", the words of each label, and examples to show."""

    template: str
    words: Mapping[str, str]  # label → its words
    shots: Sequence[tuple[str, str]] = ()  # texts and their labels

    def __post_init__(self) -> None:
        for part in (TEXT, LABEL):
            if (count := self.template.count(part)) != 1:
                found = f"has no {part}" if not count else f"has {part} {count} times"
                raise UserError(f"--prompt {self.template!r:.60}: {found}; give it once, as in {EXAMPLE}.")
        if self.template.index(LABEL) < self.template.index(TEXT):
            why = f"{LABEL} is before {TEXT}, but a model predicts a label after it has read the text"
            raise UserError(f"--prompt {self.template!r:.60}: {why}; change the order, as in {EXAMPLE}.")
        for label, words in self.words.items():
            if not words.strip():
                raise UserError(f"--labels: the label {label!r:.40} has no words; give some, such as good={label}.")
        if len(self.words) < 2:
            raise UserError(f"--labels: {len(self.words)} label to choose from; give two or more.")

    def context(self, text: str, shots: int) -> str:
        """What the model reads: the last `shots` examples, then the text, up to the place of its label.

        A space before the label belongs to the label, because most tokenizers join it to the word after it.
        """
        shown = [self._filled(*example) for example in self.shots[len(self.shots) - shots :]]
        between = "\n\n" if "\n" in self.template else "\n"
        return between.join([*shown, self._before(text).rstrip(" ")])

    def answer(self, label: str) -> str:
        """What the model must predict after the context: the words of a label, with the space before them."""
        before = self._before("")
        return " " * (len(before) - len(before.rstrip(" "))) + self.words[label]

    def _before(self, text: str) -> str:
        return self.template.partition(LABEL)[0].replace(TEXT, text.strip())

    def _filled(self, text: str, label: str) -> str:
        return self._before(text) + self.words[label] + self.template.partition(LABEL)[2]


@dataclass(frozen=True, eq=False)
class Ranked:
    """The scores of all labels for each text; the label with the highest score is the answer."""

    labels: tuple[str, ...]
    scores: Floats  # (N, C)
    shots: list[int]  # the number of examples that each prompt has: fewer than asked for where the context is full
    cut: int  # prompts that lost their beginning, because they do not fit into the context without examples
    first: str  # the prompt of the first text

    @property
    def best(self) -> list[str]:
        """The answer for each text."""
        return [self.labels[place] for place in self.scores.argmax(1)]


def draw_shots(examples: Sequence[tuple[str, str]], count: int, seed: int) -> list[tuple[str, str]]:
    """So many of the examples (text, label), drawn at random and shuffled; of each class as many as of the others.

    If a class has too few, the others have more.
    """
    if count > len(examples):
        raise UserError(f"--shots {count}: there are {len(examples)} training examples; give at most this number.")
    rng, classes = random.Random(seed), dict[str, list[tuple[str, str]]]()
    for example in rng.sample(list(examples), len(examples)):
        classes.setdefault(example[1], []).append(example)
    in_turn = [one for turn in zip_longest(*classes.values()) for one in turn if one is not None]
    return rng.sample(in_turn[:count], count)


def rank_labels(
    model: Loaded,
    texts: Iterable[str],
    prompt: Prompt,
    per_token: bool = False,
    calibrate: bool = False,
    batch_tokens: int = BATCH_TOKENS,
) -> Ranked:
    """Rank the labels of each text by the log-probability of their words after the prompt.

    `per_token` divides the log-probability by the number of tokens, so that labels of different lengths compete
    evenly. `calibrate` divides the probability of each label by its probability for texts without content, such as
    "N/A": what the model prefers whatever the text is (Zhao et al. 2021). A prompt that is longer than the context gets
    fewer examples. What all prompts begin with, the examples, is read once, and its state is kept (the KV cache).
    """
    texts = text_list(texts)
    heads = model.task.head in ("next", "target") and model.predicts(model.task.head)
    model.expect("rank labels", heads and not model.reads_images and not model.reads_backward)
    if not texts:
        raise UserError("there are no texts to rank labels for; give at least one.")
    inputs = [*texts, *(CONTENT_FREE if calibrate else ())]
    rows = _rows(model, prompt, inputs)
    rank = _target_logps if model.source_tokenizer else _next_logps
    logps = model.check_finite(np.array(rank(model, rows, batch_tokens)))  # (N, C)
    if per_token:
        logps = logps / [[len(answer) for answer in row.answers] for row in rows]
    if calibrate:
        shares = torch.from_numpy(logps).log_softmax(1)
        prior = shares[len(texts) :].exp().mean(0)
        logps = (shares[: len(texts)] - prior.log()).numpy()
    of_texts = rows[: len(texts)]
    return Ranked(
        tuple(prompt.words),
        logps,
        [row.shots for row in of_texts],
        sum(row.cut for row in of_texts),
        prompt.context(texts[0], of_texts[0].shots),
    )


@dataclass(frozen=True)
class _Row:
    """The tokens of a prompt, and of the words of each label after it."""

    context: list[int]
    answers: tuple[tuple[int, ...], ...]
    shots: int
    cut: bool


def _rows(model: Loaded, prompt: Prompt, texts: Sequence[str]) -> list[_Row]:
    """The tokens of all prompts, each with as many examples as the model's context has room for."""
    encode = _encode_sources if model.source_tokenizer else _encode_texts
    answers = [_readable(model, prompt.answer(label)) for label in prompt.words]
    found: dict[int, _Row] = {}
    for shots in range(len(prompt.shots), -1, -1):
        left = [place for place in range(len(texts)) if place not in found]
        contexts = [_readable(model, prompt.context(texts[place], shots)) for place in left]
        for place, (context, tokens) in zip(left, encode(model, contexts, answers)):
            room = _room(model, context, tokens)
            if not context or room < 1:
                why = "has no token before the label" if room > 0 else "leaves no room for a text in the context"
                raise UserError(f"--prompt {prompt.template!r:.60}: {why}; give another template or labels.")
            if len(context) <= room or shots == 0:
                found[place] = _Row(context[-room:], tokens, shots, len(context) > room)
        if len(found) == len(texts):
            break
    _check_answers(model, prompt, found[0].answers)
    return [found[place] for place in range(len(texts))]


def _room(model: Loaded, context: Sequence[int], answers: Sequence[Sequence[int]]) -> int:
    """The most tokens of a context: the last token of an answer is predicted and not read."""
    if model.longest is None:
        return len(context)
    around = len(model.tokenizer.wrap_input([])) if model.source_tokenizer else max(map(len, answers)) - 1
    return model.longest - around


def _readable(model: Loaded, text: str) -> str:
    """The text as the model reads it: one that was trained on single lines does not know the end of a line."""
    return text.replace("\n", " ") if model.tokenizer.unknown("\n") else text


def _encode_texts(
    model: Loaded, contexts: Sequence[str], answers: Sequence[str]
) -> list[tuple[list[int], tuple[tuple[int, ...], ...]]]:
    """The tokens of each context, and of the answers after it.

    The whole texts are encoded. If a token is over the end of a context, it belongs to the answers.
    """
    wholes = model.tokenizer.encode_batch([text + answer for text in contexts for answer in ("", *answers)])
    found, count = [], len(answers) + 1
    for at in range(0, len(wholes), count):
        some = wholes[at : at + count]
        shared = _shared(some)
        found.append(([*model.opening, *some[0][:shared]], tuple(tuple(ids[shared:]) for ids in some[1:])))
    return found


def _encode_sources(
    model: Loaded, contexts: Sequence[str], answers: Sequence[str]
) -> list[tuple[list[int], tuple[tuple[int, ...], ...]]]:
    """The tokens of each source, and of the targets."""
    sources = model.tokenizer.encode_batch(list(contexts))
    targets = tuple(tuple(ids) for ids in model.target_tokenizer.encode_batch([one.strip() for one in answers]))
    return [(ids, targets) for ids in sources]


def _shared(texts: Sequence[list[int]]) -> int:
    """The number of tokens that all texts begin with."""
    first, last = min(texts), max(texts)  # in the order of a dictionary: those between begin with the same tokens
    return next((at for at, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))


def _check_answers(model: Loaded, prompt: Prompt, answers: Sequence[tuple[int, ...]]) -> None:
    """Refuse labels that the model cannot tell apart."""
    seen: dict[tuple[int, ...], str] = {}
    for label, answer in zip(prompt.words, answers):
        words = prompt.words[label]
        if not answer or model.target_tokenizer.special_tokens.unk in answer:
            raise UserError(f"--labels {words}={label}: the model does not know the words {words!r:.40}; give others.")
        if answer in seen:
            both = f"{seen[answer]!r:.40} and {label!r:.40}"
            raise UserError(f"--labels: {both} have the same tokens; give each label words of its own.")
        seen[answer] = label


@torch.no_grad()
def _next_logps(model: Loaded, rows: Sequence[_Row], batch_tokens: int) -> list[list[float]]:
    """The log-probability of each answer after the context of each row, by a language model.

    Rows with the same number of examples share them: they are read once. Rows of a batch have the same length, so that
    there is no padding.
    """
    found: dict[int, list[float]] = {}
    module: Any = model.module
    order = sorted(range(len(rows)), key=lambda place: (rows[place].shots, rows[place].cut))
    for _, same in groupby(order, key=lambda place: (rows[place].shots, rows[place].cut)):
        places = list(same)
        contexts = [rows[place].context for place in places]
        shared = min(_shared(contexts), min(map(len, contexts)) - 1)  # each row has a token of its own
        longest = max(len(rows[place].context) + max(map(len, rows[place].answers)) for place in places) - 1
        with pause_recording(module), model.autocast():
            start = model.decoder.start(None, None, 1, longest)
            if shared:
                _, start = model.decoder.advance(torch.tensor([contexts[0][:shared]], device=model.device), start)

        def alike(place: int) -> tuple[int, tuple[tuple[int, ...], ...]]:
            return len(rows[place].context), rows[place].answers

        for (length, answers), some in groupby(sorted(places, key=alike), key=alike):
            group, size = list(some), max(1, batch_tokens // (length + max(map(len, answers))))
            for at in range(0, len(group), size):
                batch = group[at : at + size]
                tokens = torch.tensor([rows[place].context[shared:] for place in batch], device=model.device)
                with pause_recording(module), model.autocast():
                    logps = _answer_logps(model, tokens, _spread(start, len(batch), model.device), answers)
                found |= zip(batch, logps.tolist())
    return [found[place] for place in range(len(rows))]


def _answer_logps(model: Loaded, tokens: Tensor, state: Any, answers: Sequence[tuple[int, ...]]) -> Tensor:
    """The log-probabilities (B, C) of answers after tokens (B, T), which are read from a state on."""
    module: Any = model.module
    features, state = model.decoder.advance(tokens, state)
    first = F.log_softmax(module.readout(features[:, -1]).float(), dim=-1)  # (B, V), of the first token of any answer
    columns = []
    for answer in answers:
        logps, ids = first[:, answer[0]].double(), torch.tensor(answer, device=tokens.device).expand(len(tokens), -1)
        if len(answer) > 1:
            features, _ = model.decoder.advance(ids[:, :-1], copied(state))
            later = F.log_softmax(module.readout(features).float(), dim=-1).gather(2, ids[:, 1:, None])  # (B, n - 1, 1)
            logps = logps + later.double().sum((1, 2))
        columns.append(logps)
    return torch.stack(columns, 1)


def _spread(state: Any, rows: int, device: torch.device) -> Any:
    """So many copies of a state of one row."""
    places = torch.zeros(rows, dtype=torch.long, device=device)
    return state.keep(places, places) if isinstance(state, DropsSentences) else state.select(places)


def _target_logps(model: Loaded, rows: Sequence[_Row], batch_tokens: int) -> list[list[float]]:
    """The log-probability of each answer as the whole target, its end included, by a model with a source."""
    pairs = [(row.context, list(answer)) for row in rows for answer in row.answers]
    logps = [sum(map(float, each)) for each in token_logps(model, pairs, batch_tokens)]
    count = len(rows[0].answers)
    return [logps[at : at + count] for at in range(0, len(logps), count)]
