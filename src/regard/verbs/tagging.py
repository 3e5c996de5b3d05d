"""Tag: the tags of the words of texts, and the entities that they name."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.batches import collate
from regard.data.fields import TagsField
from regard.entities import Entity, entities
from regard.heads import best_tags, tags_log_probability
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, check_is_list, grouped, text_rows
from regard.verbs.loaded import Loaded

MARK, ZWJ = "\u0300", "\u200d"  # a combining mark, for all of them; the joiner of the parts of an emoji
INSIDE = "\u00ad\u200c"  # a soft hyphen and the zero-width non-joiner, which stand between the letters of a word
LETTERS = rf"[^\W_](?:[^\W_]|{MARK}|{ZWJ})*"  # letters and digits, with the marks of letters
SYMBOL = rf"[^\w\s]{MARK}*"
# A word of a raw text: an abbreviation with full stops (U.S.), a number with its separators (1,000.50), the 's after a
# name, letters and digits with hyphens, apostrophes, full stops or & between them, or one other character or emoji.
WORD = re.compile(
    rf"(?:[^\W\d_]{MARK}*\.){{2,}}|\d+(?:[.,:/]\d+)+|['’]s\b|{LETTERS}(?:(?!['’]s\b)[-'’.&_]{LETTERS})*"
    rf"|{SYMBOL}(?:{ZWJ}{SYMBOL})*|_"
)


@dataclass(frozen=True)
class NamedEntity:
    """The characters `start` to `end` − 1 of a text, and the type of what they name."""

    type: str
    text: str
    start: int
    end: int
    probability: float  # that all words of the entity, and no others, have its tags


@dataclass(frozen=True)
class Tagged:
    """The words of a text, their tags, and the entities."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    entities: tuple[NamedEntity, ...]


def split_words(text: str) -> list[tuple[int, int]]:
    """Where each word of a raw text starts and ends, see WORD. A sentence is not split from the next one."""
    return [one.span() for one in WORD.finditer(text if text.isascii() else "".join(map(_plain, text)))]


def _plain(character: str) -> str:
    """MARK for a combining mark, a space for a character without width, such as a byte order mark; else itself."""
    category = unicodedata.category(character)
    if category.startswith("M") or character in INSIDE:
        return MARK
    return " " if category == "Cf" and character != ZWJ else character


def tag(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Tagged]:
    """The words, tags and entities of raw texts, with the places of entities in the text; in the order of the texts."""
    check_is_list(texts)
    return _tagged(model, texts, [split_words(text) for text in texts], batch_tokens)


def tag_words(model: Loaded, sentences: Sequence[Sequence[str]], batch_tokens: int = BATCH_TOKENS) -> list[Tagged]:
    """The tags and entities of sentences that are given as words. The text of a sentence has spaces between them."""
    spans = []
    for words in sentences:
        check_is_list(words)
        ends = [sum(map(len, words[: place + 1])) + place for place in range(len(words))]
        spans.append([(end - len(word), end) for word, end in zip(words, ends)])
    return _tagged(model, [" ".join(words) for words in sentences], spans, batch_tokens)


def word_tags(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[list[str]]:
    """The tag of each word of texts whose words are separated by spaces."""
    found = {row: tags for row, tags, _ in _sequences(model, texts, batch_tokens)}
    return [found[row] for row in range(len(texts))]


def _tagged(
    model: Loaded, texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]], batch_tokens: int
) -> list[Tagged]:
    words = [tuple(text[start:end] for start, end in places) for text, places in zip(texts, spans)]
    found: dict[int, Tagged] = {}
    for row, tags, named in _sequences(model, [" ".join(one) for one in words], batch_tokens):
        places = [(spans[row][one.start][0], spans[row][one.end - 1][1]) for one, _ in named]
        listed = [
            NamedEntity(one.type, texts[row][start:end], start, end, probability)
            for (one, probability), (start, end) in zip(named, places)
        ]
        found[row] = Tagged(words[row], tuple(tags), tuple(listed))
    return [found[row] for row in range(len(texts))]


@torch.no_grad()
def _sequences(
    model: Loaded, texts: Sequence[str], batch_tokens: int
) -> Iterator[tuple[int, list[str], list[tuple[Entity, float]]]]:
    """For each text its number, the tags of its words, and its entities with their probabilities."""
    model.expect("tag", model.predicts("tag") and not model.module.config.numbers)
    names = next(each for each in model.fields.values() if isinstance(each, TagsField)).names
    inputs = text_rows(model, texts, model.read(texts))
    lengths = [len(row[next(iter(row))]) for row in inputs]
    with pause_recording(model.module):
        for rows in grouped(lengths, batch_tokens):
            batch = collate([inputs[row] for row in rows], model.task).to(model.device)
            real = batch.real["tokens"]
            with model.autocast():
                logits = model.module(batch)  # (B, T, L)
            best = best_tags(model.module, logits, real)
            tags = [[names[tag] for tag in found[: lengths[row]]] for row, found in zip(rows, best.tolist())]
            named = [(place, one) for place, some in enumerate(tags) for one in entities(some)]
            likely = _probabilities(model, logits, best, real, named)
            for place, row in enumerate(rows):
                yield row, tags[place], [(one, p) for (at, one), p in zip(named, likely) if at == place]


def _probabilities(
    model: Loaded, logits: Tensor, best: Tensor, real: Tensor, named: Sequence[tuple[int, Entity]]
) -> list[float]:
    """The probability that the words of each entity have the tags that they have; `named` has the row of each."""
    probabilities: list[float] = []
    for at in range(0, len(named), len(logits)):
        some = named[at : at + len(logits)]
        rows = torch.tensor([row for row, _ in some], device=logits.device)
        allowed = torch.ones((len(some), *logits.shape[1:]), dtype=torch.bool, device=logits.device)
        for number, (row, one) in enumerate(some):
            allowed[number, one.start : one.end] = False
            allowed[number, range(one.start, one.end), best[row, one.start : one.end]] = True
        found = tags_log_probability(model.module, logits[rows], allowed, real[rows])
        probabilities += found.exp().clamp(max=1.0).tolist()
    return probabilities
