"""Embed: texts as vectors, computed from the states of the layers of any model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.errors import UserError
from regard.heads import text_vectors
from regard.models import reads_whole
from regard.recording import active_tape
from regard.verbs.forced import BATCH_TOKENS, grouped, padded, reading_axes, record_pass
from regard.verbs.given import pair_list, text_list
from regard.verbs.loaded import Loaded
from regard.verbs.pooling import POOLING_MODES, Pooling, pooling_of
from regard.verbs.words import Vectors, check_layers, embed_words, ends, layer_states, states_of_layers


@dataclass(frozen=True, eq=False)
class Embedded:
    """The vectors of texts, in their order: one per text, or one per token."""

    vectors: Vectors  # (N, width); of tokens: (all of them, width); of all layers: (…, layers, width)
    lengths: NDArray[np.int64]  # (N,) how many vectors each text has


def embed(
    model: Loaded,
    texts: Iterable[str],
    pool: str | None = None,
    normalise: bool | None = None,
    batch_tokens: int = BATCH_TOKENS,
    layers: str = "last",
) -> Embedded:
    """The vector of each text: the mean or maximum of its states (special tokens included), the first, or all of them.

    Arguments that are None follow the pooling that the model was trained with (`regard train embed`), or the settings
    of a `sentence-transformers` directory where the model came from one; otherwise the vector is the mean, not
    normalised. For a translator these are the states of the source. `layers` is last, first (the input embeddings), mix
    (the mean of all layers) or all. An ELMo reads words, without special tokens.
    """
    return gathered(model, texts, chosen(model, pool, normalise), batch_tokens, layers=layers)


def chosen(model: Loaded, pool: str | None = None, normalise: bool | None = None) -> Pooling:
    """The caller's choice; where it is None, that of the model (`own_pooling`). The pool `cls` is `first`."""
    found = own_pooling(model)
    pooling = replace(
        found,
        pool=found.pool if pool is None else POOLING_MODES.get(pool, pool),
        normalise=found.normalise if normalise is None else normalise,
    )
    if pooling.pool == "first" and not reads_whole(model.module.config):
        raise UserError("pool=first: the first state of a language model has read one token only; use mean or max.")
    return pooling


def own_pooling(model: Loaded) -> Pooling:
    """The pooling that a model was trained with, or that its directory defines; the mean if there is neither."""
    head = model.module.config.split()[1]
    if head is None or head.predicts != "vector":
        return pooling_of(model.path)
    return Pooling(head.pool, head.normalise, longest=head.longest)


def cosines(model: Loaded, pairs: Iterable[tuple[str, str]], batch_tokens: int = BATCH_TOKENS) -> list[float]:
    """The cosine of the vectors of the two texts of each pair, from -1 to 1."""
    given = pair_list(pairs, "pairs", "(first, second)")
    texts = list(dict.fromkeys(text for pair in given for text in pair))  # each text is read once
    pooling = chosen(model, normalise=True)
    if pooling.pool == "tokens":
        raise UserError("pool=tokens: a text has several vectors; use mean, max, first or last.")
    vectors = dict(zip(texts, gathered(model, texts, pooling, batch_tokens).vectors.astype(np.float64)))
    return [float(vectors[one] @ vectors[other]) for one, other in given]


@torch.no_grad()
def gathered(
    model: Loaded,
    texts: Iterable[str],
    pooling: Pooling,
    batch_tokens: int = BATCH_TOKENS,
    first: int = 1,
    layers: str = "last",
) -> Embedded:
    """The vectors of texts that are read in batches of about the same length; `first` is the number of the first."""
    texts = text_list(texts)
    check_layers(layers)
    model.expect("embed", not model.reads_images and not model.module.config.reads_words)
    none = np.zeros((0, model.module.config.width), dtype=np.float32)
    found = [none for _ in texts]
    spelled = bool(model.module.config.characters)
    read = _word_states if spelled else _token_states
    for rows, states, real in read(model, texts, pooling, batch_tokens, first, layers):
        pooled = [list(_pooled(layer.float(), real, pooling)) for layer in states]
        for place, row in enumerate(rows):
            vectors = torch.stack([layer[place] for layer in pooled], 1)  # (vectors, layers, width)
            vectors = vectors.flip(0) if model.reads_backward and not spelled else vectors
            found[row] = (vectors if layers == "all" else vectors[:, 0]).cpu().numpy()
    lengths = np.array([len(vectors) for vectors in found], dtype=np.int64)
    return Embedded(model.check_finite(np.concatenate(found or [none])), lengths)


States = tuple[Sequence[int], list[Tensor], Tensor]  # rows, the states (B, T, D) of each layer, what is real (B, T)


def _token_states(
    model: Loaded, texts: Sequence[str], pooling: Pooling, batch_tokens: int, first: int, layers: str
) -> Iterator[States]:
    """The states at the tokens of texts, special tokens included."""
    texts = _as_read(texts, pooling)
    tokens = _read(model, texts, pooling, first)
    if tokens and active_tape(model.module) is not None:
        ids, _, visible = padded(model, tokens)
        items = [reading_axes(model, some, text) for some, text in zip(tokens, texts)]
        most = batch_tokens if len(items) > 1 else np.inf
        record_pass(model, items, ids.shape[1], most, lambda: states_of_layers(model, ids, visible, layers))
    for rows in grouped([len(ids) for ids in tokens], batch_tokens):
        ids, real, visible = padded(model, [tokens[row] for row in rows])
        yield rows, layer_states(model, ids, visible, layers), real


def _word_states(
    model: Loaded, texts: Sequence[str], pooling: Pooling, batch_tokens: int, first: int, layers: str
) -> Iterator[States]:
    """The states at the words of texts, without special tokens, of a model that reads the characters of words."""
    for row, one in enumerate(embed_words(model, texts, layers, 0, batch_tokens, first)):
        states = torch.from_numpy(one.vectors if layers == "all" else one.vectors[:, None])  # (words, layers, width)
        yield [row], [each[None] for each in states.unbind(1)], torch.ones(1, len(states), dtype=torch.bool)


def _as_read(texts: Sequence[str], pooling: Pooling) -> list[str]:
    """The texts as the tokenizer reads them, with what the pooling puts before each."""
    found = [pooling.prefix + text.strip() for text in texts]
    return [text.lower() for text in found] if pooling.lower else found


def _read(model: Loaded, texts: Sequence[str], pooling: Pooling, first: int) -> list[list[int]]:
    """The tokens of texts with the special tokens around them, each within the limit."""
    tokens = model.tokenizer.encode_batch(texts)
    before, after = ends(model)
    limits = [limit for limit in (pooling.longest, model.longest) if limit is not None]
    most = min(limits, default=None) and max(min(limits) - len(before) - len(after), 0)
    return [[*before, *model.cut(ids, most, f"line {number}"), *after] for number, ids in enumerate(tokens, first)]


def _pooled(states: Tensor, real: Tensor, pooling: Pooling) -> Iterator[Tensor]:
    """The vectors of each text of a batch. The vector of a text without tokens is zeros."""
    if pooling.pool == "tokens":
        states = F.normalize(states, dim=-1) if pooling.normalise else states
        yield from (row[there] for row, there in zip(states, real))
    else:
        yield from text_vectors(states, real, pooling.pool, pooling.normalise)[:, None]
