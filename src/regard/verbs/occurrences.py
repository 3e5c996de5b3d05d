"""The occurrences of a word in texts, their vectors in context, and the nearest of them.

An occurrence is a whole word of a text. Its vector in a layer is the mean over its tokens, of which a word of a
sub-word tokenizer has several.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.characters import words_characters
from regard.errors import UserError
from regard.models.facts import GivesLayers
from regard.recording import pause_recording
from regard.report.sections import MarkedText
from regard.verbs.forced import BATCH_TOKENS, grouped, padded
from regard.verbs.given import text_list
from regard.verbs.loaded import Loaded
from regard.verbs.neighbours import Neighbour, nearest_rows, unit_vectors, word_table
from regard.verbs.words import embed_words, ends

MOST = 5000  # occurrences that are compared, at most
WORDS_AT_ONCE = 1000  # words whose characters are read at a time
MARKED = re.compile(r"\*([^*]+)\*")


@dataclass(frozen=True)
class Occurrence(MarkedText):
    """A word of a text: the text from `start` to `end`."""

    @property
    def word(self) -> str:
        return self.text[self.start : self.end]


def marked_occurrence(text: str) -> Occurrence:
    """The occurrence that a text marks with asterisks: "let's *play* chess"."""
    found = MARKED.findall(text)
    if len(found) != 1 or found[0].strip() != found[0]:
        raise UserError(f'"{text[:60]}": mark one word with asterisks, such as "let\'s *play* chess".')
    start = text.index("*")
    return Occurrence(MARKED.sub(r"\1", text), start, start + len(found[0]))


def occurrences_of(word: str, texts: Sequence[str]) -> list[Occurrence]:
    """All places of texts where the word stands alone, in upper or lower case."""
    whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    return [Occurrence(text, match.start(), match.end()) for text in texts for match in whole.finditer(text)]


@torch.no_grad()
def occurrence_layers(model: Loaded, occurrences: Sequence[Occurrence]) -> tuple[Tensor, ...]:
    """The vectors (N, D) of N occurrences in every layer, the input embeddings first; of a translator, in its encoder.

    A text that is longer than the context is cut around the word.
    """
    model.expect("give vectors of words", not model.reads_images)
    if model.module.config.characters:
        return _word_layers(model, occurrences)
    before, after = ends(model)
    most = None if model.longest is None else model.longest - len(before) - len(after)
    ids, places = zip(*(_tokens(model, one, most) for one in occurrences)) if occurrences else ((), ())
    lines = [[*before, *tokens, *after] for tokens in ids]
    found: list[tuple[Tensor, ...]] = [()] * len(lines)
    for rows in grouped([len(line) for line in lines], BATCH_TOKENS):
        tokens, _, visible = padded(model, [lines[row] for row in rows])
        with pause_recording(model.module), model.autocast():
            layers = cast(GivesLayers, model.module).layers(tokens, visible)
        for at, row in enumerate(rows):
            first, last = (len(before) + place for place in places[row])
            found[row] = tuple(layer[at, first:last].float().mean(0).cpu() for layer in layers)
    return tuple(model.check_finite(torch.stack(each)) for each in zip(*found))


def _word_layers(model: Loaded, occurrences: Sequence[Occurrence]) -> tuple[Tensor, ...]:
    """The same of a model that reads the characters of words, which are the parts of a text between spaces."""
    rows = []
    lines = embed_words(model, [one.text for one in occurrences], "all")
    for one, line in zip(occurrences, lines):
        places = [at for at, (start, end) in enumerate(line.spans) if start < one.end and one.start < end]
        rows.append(torch.from_numpy(line.vectors[places]).mean(0))  # (layers, D); "new york" is two words
    return torch.stack(rows, 1).unbind(0)


def _tokens(model: Loaded, one: Occurrence, most: int | None) -> tuple[list[int], tuple[int, int]]:
    """The ids of the text around a word, and the first and the last place of the word among them, the last excluded."""
    encode, before = model.tokenizer.in_direction("forward").encode, one.text[: one.start]
    before = before if model.tokenizer.kind == "char" else before.rstrip()  # else a space is a part of the next token
    ids, first, last = encode(one.text), len(encode(before)), len(encode(one.text[: one.end]))
    if first >= last:
        raise UserError(f'"{one.word}": the tokenizer of {model.path} has no token for it in "{one.text[:60]}".')
    if most is not None and len(ids) > most:
        start = min(max(0, (first + last - most) // 2), len(ids) - most)
        ids, first, last = ids[start : start + most], first - start, last - start
    if model.reads_backward:
        ids, first, last = ids[::-1], len(ids) - last, len(ids) - first
    return ids, (first, last)


@dataclass(frozen=True)
class NearOccurrence:
    """An occurrence that is near another one: the cosine of their vectors."""

    occurrence: Occurrence
    cosine: float


def nearest_occurrences(
    query: Tensor, vectors: Tensor, occurrences: Sequence[Occurrence], top: int
) -> list[NearOccurrence]:
    """The occurrences whose vectors (N, D) have the largest cosine with the query (D,)."""
    best = nearest_rows(unit_vectors(vectors), query.numpy(), top)
    return [NearOccurrence(occurrences[at], cosine) for at, cosine in best]


def project(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The coordinates (N, 2) of vectors (N, D) on their first principal components, and their parts of the variance.

    The sign of an axis is arbitrary; here the coordinate with the largest absolute value is positive.
    """
    centred = vectors.double() - vectors.double().mean(0)
    left, values, _ = torch.linalg.svd(centred, full_matrices=False)
    variance = values.square() / values.square().sum().clamp(min=1e-30)
    found, parts = (F.pad(each, (0, max(0, 2 - len(values))))[..., :2] for each in (left * values, variance))
    largest = found.gather(0, found.abs().argmax(0, keepdim=True))
    return found * torch.where(largest < 0, -1.0, 1.0), parts


@dataclass(frozen=True)
class OccurrenceNeighbours:
    """The nearest occurrences of a word to one of them, and the nearest words to its static vector."""

    query: Occurrence
    near: list[NearOccurrence]  # by the vectors of the last layer
    static: list[Neighbour]  # by its static vector; empty if the word has none
    occurrences: list[Occurrence]  # all that were found in the texts
    points: list[tuple[float, float]]  # the first two principal components of the query and of all occurrences
    variance: list[float]  # the part of the variance that each of the two components has
    in_context: bool  # whether the vectors depend on the sentence; False: the model has its word vectors alone


def occurrence_neighbours(model: Loaded, query: str, texts: Iterable[str], top: int = 10) -> OccurrenceNeighbours:
    """The occurrences in texts that are nearest to the word that a query marks with asterisks."""
    one, texts = marked_occurrence(query), text_list(texts)
    found = [each for each in occurrences_of(one.word, texts) if each != one][:MOST]
    if not found:
        raise UserError(f'"{one.word}": the texts do not have this word; give --text FILE with sentences that have it.')
    layers = occurrence_layers(model, [one, *found])
    vectors = layers[-1]
    near = nearest_occurrences(vectors[0], vectors[1:], found, top)
    points, variance = (each.tolist() for each in project(vectors))
    static = static_neighbours(model, one.word, texts, top)
    return OccurrenceNeighbours(one, near, static, found, points, variance, in_context=len(layers) > 1)


@torch.no_grad()
def static_neighbours(model: Loaded, word: str, texts: Sequence[str], top: int) -> list[Neighbour]:
    """The words whose static vectors are nearest to that of a word; none if the word has no such vector.

    Of a model of word vectors these are `neighbours`; of a model that reads characters, words of the texts; of another
    model, the rows of its input embedding.
    """
    embedding, special = cast(Any, model.module.get_submodule(model.module.config.input_embedding)), tuple[int, ...]()
    if model.task.head == "words":
        table = word_table(model)
        place, words, vectors = table.place(word), table.words, table.vectors
    elif longest := model.module.config.characters:
        place, words = 0, list(dict.fromkeys([word, *(one for text in texts for one in text.split())]))
        spelled = torch.from_numpy(words_characters(words, longest)).to(model.device)
        vectors = unit_vectors(torch.cat([embedding(some[None])[0] for some in spelled.split(WORDS_AT_ONCE)]))
    else:
        ids = model.tokenizer.encode(word)
        if len(ids) != 1 or model.tokenizer.unknown(word):
            return []
        place, words, special = ids[0], model.tokenizer.display_names, model.tokenizer.special_tokens.ids
        vectors = unit_vectors(embedding.weight[: len(words)])
    if place is None:
        return []
    best = nearest_rows(vectors, vectors[place], top, [place, *special])
    return [Neighbour(words[at], cosine) for at, cosine in best]
