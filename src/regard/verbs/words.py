"""The vectors of the words of texts: the states of any layer of any model, the mean of a word's pieces."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.characters import sentence_characters
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError, nearest
from regard.layers.mix import equal_width
from regard.models import reads_whole
from regard.models.facts import ReadsSource
from regard.recording import pause_recording
from regard.tensor_tree import tensors, with_tensors
from regard.verbs.forced import BATCH_TOKENS, grouped, padded
from regard.verbs.given import text_list
from regard.verbs.loaded import Loaded

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
LAYERS = ("last", "first", "mix", "all", "cove")


@dataclass(frozen=True, eq=False)
class EmbeddedWords:
    """The words of a text, which are its parts between spaces, and their vectors."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]  # the first character of each word in the text, and the one after its last
    vectors: Vectors  # (words, width); of all layers (words, layers, width)


@dataclass(frozen=True, eq=False)
class ReadText:
    """A text as a model reads it: ids (T,) or characters (T, C), and the word of each place; -1: of none."""

    ids: Ids
    owners: Ids


def embed_words(
    model: Loaded,
    texts: Iterable[str],
    layers: str = "last",
    carry: int = 0,
    batch_tokens: int = BATCH_TOKENS,
    first: int = 1,
) -> list[EmbeddedWords]:
    """The vectors of the words of each text: the mean of the states of a word's pieces.

    `layers` is last; first, the input embeddings; mix, the mean of all layers (a scalar mix with equal weights); or
    all; cove is the embedding and the last state of a translator. Layers of another width than the last are left out of
    mix and all. An ELMo reads the characters of a word, so that no word is unknown. With `carry=n` it reads n texts at
    a time, in order, and each of them starts from the state that the text n places before left, in each direction;
    else every text starts from zeros. `first` is the number of the first text in error messages.
    """
    return list(chain.from_iterable(iterate_words(model, [texts], layers, carry, batch_tokens, first)))


def iterate_words(
    model: Loaded,
    parts: Iterable[Iterable[str]],
    layers: str = "last",
    carry: int = 0,
    batch_tokens: int = BATCH_TOKENS,
    first: int = 1,
) -> Iterator[list[EmbeddedWords]]:
    """`embed_words` of texts that arrive in parts: the vectors of each part. With `carry=n` a part has n texts."""
    check_layers(layers)
    config, module = model.module.config, cast(Any, model.module)
    model.expect("embed", not model.reads_images and not config.reads_words)
    if carry < 0 or (carry and not (config.characters and config.carries)):
        why = "give 1 or more" if carry < 0 else "only an ELMo carries its state from text to text; leave it out"
        raise UserError(f"--carry {carry} (in Python: carry): {why}.")
    given: Iterator[list[str]] = map(text_list, parts)
    state = None
    if carry:
        rest, state = chain.from_iterable(given), module.start_segments(carry)
        given = iter(lambda: list(islice(rest, carry)), [])
    for texts in given:
        spans = [[one.span() for one in re.finditer(r"\S+", text)] for text in texts]
        split = [[text[start:end] for start, end in places] for text, places in zip(texts, spans)]
        read = (
            [_spelled(model, words) for words in split] if config.characters else _tokenized(model, texts, split, first)
        )
        found: dict[int, Vectors] = {}
        for rows in [range(len(texts))] if carry else grouped([len(each.ids) for each in read], batch_tokens):
            vectors, state = _vectors(model, [read[row] for row in rows], layers, state)
            found |= zip(rows, vectors)
        results = []
        for number, words in enumerate(split):
            kept = sorted(set(read[number].owners.tolist()) - {-1})  # words beyond the model's limit have no vector
            places = tuple(spans[number][word] for word in kept)
            results.append(EmbeddedWords(tuple(words[word] for word in kept), places, found[number]))
        yield results
        first += len(texts)


def check_layers(layers: str) -> None:
    """Refuse a choice of layers that is none of LAYERS."""
    if layers not in LAYERS:
        raise UserError(f"--layers {layers} (in Python: layers): no such choice.{nearest(layers, LAYERS)}")


@torch.no_grad()
def layer_states(model: Loaded, tokens: Tensor, real: Tensor | None, layers: str) -> list[Tensor]:
    """The states of `states_of_layers`, without recording attention."""
    with pause_recording(model.module):
        return states_of_layers(model, tokens, real, layers)


@torch.no_grad()
def states_of_layers(model: Loaded, tokens: Tensor, real: Tensor | None, layers: str) -> list[Tensor]:
    """The chosen layers: one tensor of states (B, T, D), or those of all layers; of the source, if there is one."""
    module: Any = model.module
    with model.autocast():
        if layers == "cove":
            return [cove_states(model, tokens, real)]
        if layers != "last":
            return chosen_layers(module.layers(tokens, real), layers)
        return [module.encode(tokens, real) if module.config.reads_source else model.states(tokens, real)]


def cove_states(model: Loaded, tokens: Tensor, real: Tensor | None) -> Tensor:
    """CoVe (McCann et al. 2017, eq. 3): [embedding(w); encoder(w)] of each token w of a translator's source (B, T).

    The embedding is what the encoder reads, without positions: a Transformer multiplies the rows of its table by a
    scale. In the paper these are GloVe's vectors, which `model.embedding=FILE` gives a translator here. The states are
    those of the encoder's last layer.
    """
    config = model.module.config
    model.expect("embed --as cove", config.reads_source and not model.reads_images)
    embedding = model.module.get_submodule(config.input_embedding)
    assert isinstance(embedding, nn.Embedding)
    states = cast(ReadsSource, model.module).encode(tokens, real)
    embedded = embedding(tokens) * config.embedding_scale
    return torch.cat([embedded.to(states.dtype), states], dim=-1)


def chosen_layers(states: Sequence[Tensor], layers: str) -> list[Tensor]:
    """Of the states of every layer: the last, the first, their mean (mix), or all that are as wide as the last."""
    match layers:
        case "first":
            return [states[0]]
        case "mix":
            return [torch.stack(equal_width(states)).mean(0)]
        case "all":
            return list(equal_width(states))
        case _:
            return [states[-1]]


def ends(model: Loaded) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text that is embedded."""
    if not reads_whole(model.module.config):
        return model.opening, []
    special = model.tokenizer.special_tokens
    return [] if special.prefix is None else [special.prefix], [] if special.suffix is None else [special.suffix]


def _spelled(model: Loaded, words: Sequence[str]) -> ReadText:
    """The characters of words between the two ends of a sentence, which belong to no word, in the model's direction."""
    order = slice(None, None, -1 if model.reads_backward else None)
    characters = sentence_characters(words, model.module.config.characters)
    return ReadText(characters[order], np.array([-1, *range(len(words)), -1][order]))


def _tokenized(model: Loaded, texts: Sequence[str], split: Sequence[Sequence[str]], first: int) -> list[ReadText]:
    """The tokens of texts with special tokens around them, each within the model's limit."""
    before, after = ends(model)
    most = None if model.longest is None else max(model.longest - len(before) - len(after), 0)
    found = []
    tokens = model.tokenizer.encode_batch([text.strip() for text in texts])
    for number, (ids, words) in enumerate(zip(tokens, split)):
        owners = _owners(model.tokenizer, ids, words, first + number)
        kept = model.cut(list(range(len(ids))), most, f"line {first + number}")
        all_ids = [*before, *(ids[place] for place in kept), *after]
        all_owners = [-1] * len(before) + [owners[place] for place in kept] + [-1] * len(after)
        found.append(ReadText(np.array(all_ids, np.int64), np.array(all_owners, np.int64)))
    return found


def _owners(tokenizer: Tokenizer, ids: list[int], words: Sequence[str], number: int) -> list[int]:
    """The word of each token, -1 for tokens without one.

    The decoded text has the words of the text, unless the tokenizer changes spaces: one that adds spaces around
    punctuation, or a token over two words. Then each word is encoded alone; the result must be the tokens of the text.
    """
    owners = tokenizer.words(ids)
    if {*owners} - {-1} == set(range(len(words))):
        return owners
    order = slice(None, None, -1 if tokenizer.reads_backward else None)
    encoded = tokenizer.encode_words(words)
    if [token for tokens in encoded for token in tokens] == ids[order]:
        return [word for word, tokens in enumerate(encoded) for _ in tokens][order]
    raise UserError(
        f"line {number}: the tokenizer joins words, so that they have no vectors of their own; embed lines."
    )


def _vectors(model: Loaded, read: Sequence[ReadText], layers: str, state: Any) -> tuple[list[Vectors], Any]:
    """The vectors of the words of texts that are read at once, from a state on, and the state after them.

    Without a state, texts start from zeros, and there is none after them.
    """
    ids, real, visible = padded(model, [each.ids for each in read])
    if state is None:
        states = layer_states(model, ids, visible, layers)
    else:
        state = with_tensors(state, (tensor[: len(read)] for tensor in tensors(state)))  # the last texts may be fewer
        with torch.no_grad(), model.autocast():
            every, state = cast(Any, model.module).advance_layers(ids, state, real)
        states = chosen_layers(every, layers)
    stacked = torch.stack(states, 2).float().cpu()  # (B, T, layers, D)
    vectors = [
        model.check_finite(_by_word(each[places], text.owners).numpy())
        for each, places, text in zip(stacked, real.cpu(), read)
    ]
    return vectors if layers == "all" else [each[:, 0] for each in vectors], state


def _by_word(states: Tensor, owners: Ids) -> Tensor:
    """The mean of the states (T, layers, D) of each word: (words, layers, D)."""
    inside = torch.from_numpy(owners >= 0)
    _, word, count = torch.from_numpy(owners)[inside].unique(return_inverse=True, return_counts=True)
    total = states.new_zeros(len(count), *states.shape[1:]).index_add_(0, word, states[inside])
    return total / count[:, None, None]
