"""Tag: the tags of the words of texts, and the entities that they name."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.batches import collate
from regard.data.fields import TagsField
from regard.entities import Entity, entities, names_entities
from regard.errors import UserError
from regard.heads import best_tags, tag_sequences
from regard.layers.crf import LinearChain
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, check_is_list, grouped, text_rows
from regard.verbs.loaded import Loaded

# A word of a raw text: an abbreviation with full stops (U.S.), a number with its separators (1,000.50), the 's after a
# name, letters and digits with hyphens, apostrophes, full stops or & between them, or one other character.
WORD = re.compile(
    r"(?:[^\W\d_]\.){2,}|\d+(?:[.,:/]\d+)+|['’]s\b|[^\W_]+(?:(?!['’]s\b)[-'’.&_][^\W_]+)*|[^\w\s]|_", re.UNICODE
)


@dataclass(frozen=True)
class NamedEntity:
    """The characters `start` to `end` − 1 of a text, and the type of what they name."""

    type: str
    text: str
    start: int
    end: int
    probability: float  # that all words of the entity have their tags, and no word beside continues it


@dataclass(frozen=True)
class Tagged:
    """The words of a text, their tags, and the entities."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    entities: tuple[NamedEntity, ...]


def split_words(text: str) -> list[tuple[int, int]]:
    """Where each word of a raw text starts and ends, see WORD. A sentence is not split from the next one."""
    return [one.span() for one in WORD.finditer(text)]


def tag(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Tagged]:
    """The words, tags and entities of raw texts, with the places of entities in the text; in the order of the texts."""
    check_is_list(texts)
    return _tagged(model, texts, [split_words(text) for text in texts], batch_tokens)


def tag_words(model: Loaded, sentences: Sequence[Sequence[str]], batch_tokens: int = BATCH_TOKENS) -> list[Tagged]:
    """The tags and entities of sentences that are given as words. The text of a sentence has spaces between them."""
    spans = []
    for number, words in enumerate(sentences, 1):
        check_is_list(words)
        if wrong := [word for word in words if word.split() != [word]]:
            found = f"sentence {number}: the word {wrong[0]!r:.40} is empty or has white space"
            raise UserError(f"{found}; give words without, or a text to tag(…).")
        ends = [end - 1 for end in accumulate(len(word) + 1 for word in words)]
        spans.append([(end - len(word), end) for word, end in zip(words, ends)])
    return _tagged(model, [" ".join(words) for words in sentences], spans, batch_tokens)


def word_tags(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[list[str]]:
    """The tag of each word of texts whose words are separated by spaces."""
    found = {row: tags for batch in _batches(model, texts, batch_tokens) for row, tags in zip(batch.rows, batch.tags)}
    return [found[row] for row in range(len(texts))]


def _tagged(
    model: Loaded, texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]], batch_tokens: int
) -> list[Tagged]:
    words = [tuple(text[start:end] for start, end in places) for text, places in zip(texts, spans)]
    found: dict[int, Tagged] = {}
    for batch in _batches(model, [" ".join(one) for one in words], batch_tokens):
        for row, tags, named in zip(batch.rows, batch.tags, _entities(model, batch)):
            listed = []
            for one, probability in named:
                start, end = spans[row][one.start][0], spans[row][one.end - 1][1]
                listed.append(NamedEntity(one.type, texts[row][start:end], start, end, probability))
            found[row] = Tagged(words[row], tuple(tags), tuple(listed))
    return [found[row] for row in range(len(texts))]


class _Batch(NamedTuple):
    """Some of the texts, by number, and the tags of their words; the logits (B, T, L) and the best tags (B, T)."""

    rows: list[int]
    tags: list[list[str]]
    logits: Tensor
    best: Tensor
    real: Tensor


@torch.no_grad()
def _batches(model: Loaded, texts: Sequence[str], batch_tokens: int) -> Iterator[_Batch]:
    """The texts in batches of about the same length, with their best tags."""
    model.expect("tag", model.predicts("tag") and not model.module.config.numbers)
    names = tag_names(model)
    inputs = text_rows(model, texts, model.read(texts))
    lengths = [len(row[next(iter(row))]) for row in inputs]
    with pause_recording(model.module):
        for rows in grouped(lengths, batch_tokens):
            batch = collate([inputs[row] for row in rows], model.task).to(model.device)
            real = batch.real["tokens"]
            with model.autocast():
                logits = model.module(batch)
            best = best_tags(model.module, logits, real)
            tags = [[names[tag] for tag in found[: lengths[row]]] for row, found in zip(rows, best.tolist())]
            yield _Batch(rows, tags, logits, best, real)


def tag_names(model: Loaded) -> tuple[str, ...]:
    """The names of the tags of a tagger."""
    return next(each for each in model.fields.values() if isinstance(each, TagsField)).names


@torch.no_grad()
def _entities(model: Loaded, batch: _Batch) -> list[list[tuple[Entity, float]]]:
    """The entities of each text of a batch, with their probabilities."""
    names = tag_names(model)
    found = [entities(tags) for tags in batch.tags] if names_entities(names) else [[] for _ in batch.tags]
    spans = [(text, one.start, one.end) for text, some in enumerate(found) for one in some]
    if not spans:
        return [[] for _ in found]
    device = batch.logits.device
    # Tags that have logits of their own are those of a chain without scores.
    chain = tag_sequences(model.module) or LinearChain(len(names), names).to(device)
    places = torch.tensor(spans, device=device)
    likely = iter(chain.entity_log_probability(batch.logits, batch.best, places, batch.real).exp().tolist())
    return [[(one, min(next(likely), 1.0)) for one in some] for some in found]
