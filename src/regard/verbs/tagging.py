"""Tag: the tags of the words of texts, and the entities that they name."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from regard.data.batches import collate
from regard.data.fields import TagsField, TextField
from regard.data.flat import Values
from regard.data.word_pieces import PieceText
from regard.entities import Entity, entities, names_entities
from regard.errors import UserError
from regard.heads import best_tags, tag_sequences
from regard.layers.crf import LinearChain
from regard.recording import active_tape, pause_recording
from regard.verbs.forced import (
    BATCH_TOKENS,
    grouped,
    in_batches,
    input_rows,
    reading_axes,
    record_rows,
)
from regard.verbs.given import listed, text_list
from regard.verbs.loaded import Loaded

ALL = slice(None)  # all words of a text
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
    probability: float  # that all words of the entity have their tags, and no word beside continues it


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


def tag(model: Loaded, texts: Iterable[str], batch_tokens: int = BATCH_TOKENS) -> list[Tagged]:
    """The words, tags and entities of raw texts, with the places of entities in the text; in the order of the texts."""
    texts = text_list(texts)
    return _tagged(model, texts, [split_words(text) for text in texts], batch_tokens)


def tag_words(model: Loaded, sentences: Iterable[Iterable[str]], batch_tokens: int = BATCH_TOKENS) -> list[Tagged]:
    """The tags and entities of sentences that are given as words. The text of a sentence has spaces between them."""
    given = [text_list(words, f"sentences[{at}]") for at, words in enumerate(listed(sentences, "sentences"))]
    spans = []
    for number, words in enumerate(given, 1):
        if wrong := [word for word in words if word.split() != [word]]:
            found = f"sentence {number}: the word {wrong[0]!r:.40} is empty or has white space"
            raise UserError(f"{found}; give words without, or a text to tag(…).")
        ends = [end - 1 for end in accumulate(len(word) + 1 for word in words)]
        spans.append([(end - len(word), end) for word, end in zip(words, ends)])
    return _tagged(model, [" ".join(words) for words in given], spans, batch_tokens)


def word_tags(model: Loaded, texts: Iterable[str], batch_tokens: int = BATCH_TOKENS) -> list[list[str]]:
    """The tag of each word of texts whose words are separated by spaces."""
    given = text_list(texts)
    found = {row: tags for batch in _batches(model, given, batch_tokens) for row, tags in zip(batch.rows, batch.tags)}
    return [found[row] for row in range(len(given))]


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
    """Some of the texts, by number, and the tags of their words; the logits (B, W, L) and the best tags (B, W)."""

    rows: list[int]
    tags: list[list[str]]
    logits: Tensor
    best: Tensor
    real: Tensor


@torch.no_grad()
def _batches(model: Loaded, texts: Sequence[str], batch_tokens: int) -> Iterator[_Batch]:
    """The texts in batches of about the same length, with their best tags."""
    model.expect("tag", model.predicts("tag") and not model.module.config.numbers)
    names, found = tag_names(model), _word_logits(model, texts, batch_tokens)
    lengths = [len(one) for one in found]
    for rows in grouped(lengths, batch_tokens):
        logits = pad_sequence([found[row] for row in rows], batch_first=True)
        logits = F.pad(logits, (0, 0, 0, 1)) if not logits.shape[1] else logits  # texts without words
        real = torch.arange(logits.shape[1], device=logits.device) < torch.tensor(
            [[lengths[row]] for row in rows], device=logits.device
        )
        best = best_tags(model.module, model.check_finite(logits), real)
        tags = [[names[tag] for tag in some[: lengths[row]]] for row, some in zip(rows, best.tolist())]
        yield _Batch(rows, tags, logits, best, real)


def _ids(field: TextField, array: Values) -> list[int]:
    """The ids of the tokens of a text; a `PieceText` has others in its array where no word begins."""
    ids = np.where(array < 0, ~array, array) if isinstance(field, PieceText) else array
    return list(ids.tolist())


def _word_logits(model: Loaded, texts: Sequence[str], batch_tokens: int) -> list[Tensor]:
    """The logits (W, L) of the words of each text; a text that is longer than the model reads is read in windows."""
    name, field = next((name, each) for name, each in model.fields.items() if isinstance(each, TextField))
    arrays, kept, owners = list[Values](), list[slice](), list[int]()
    for number, array in enumerate(field.encode([text.strip() for text in texts])):
        whole = np.asarray(array, np.int64)
        for part, keep in field.windows(whole, model.longest) if isinstance(field, PieceText) else [(whole, ALL)]:
            arrays.append(part)
            kept.append(keep)
            owners.append(number)

    rows = input_rows(model, name, arrays)
    if not model.module.config.reads_words and active_tape(model.module) is not None:
        windows = Counter(owners)  # a text that is too long is read in several
        items = [
            reading_axes(model, _ids(field, one), texts[owner] if windows[owner] == 1 else "")
            for owner, one in zip(owners, arrays)
        ]
        record_rows(model, rows, items, batch_tokens)

    def read(group: list[int]) -> Sequence[Tensor]:
        batch = collate([rows[place] for place in group], model.task).to(model.device)
        logits, words = model.module(batch), batch.fields.get("words", batch.real["tokens"])
        return logits[words].split(words.sum(1).tolist())

    with pause_recording(model.module), model.autocast():
        found = in_batches(list(map(len, arrays)), batch_tokens, read)
    parts = list[list[Tensor]]([] for _ in texts)
    for owner, logits, keep in zip(owners, found, kept):
        parts[owner].append(logits[keep])
    return [torch.cat(some) for some in parts]


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
