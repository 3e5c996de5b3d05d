"""Embed: texts as vectors, computed from the states of the last layer of any model."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.flat import pad_ids
from regard.errors import UserError
from regard.models import reads_whole
from regard.models.facts import ReadsSource
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, check_is_list, grouped
from regard.verbs.loaded import LONG_CURE, Loaded
from regard.verbs.pooling import POOLING_MODES, Pooling, pooling_of

Vectors = NDArray[np.float32]
States = Callable[[Loaded, Tensor, Tensor | None], Tensor]  # of a model, tokens (B, T) and `real`: vectors (B, T, D)


@dataclass(frozen=True, eq=False)
class Embedded:
    """The vectors of texts, in their order: one per text, or one per token."""

    vectors: Vectors  # (N, width); of tokens: (all of them, width)
    lengths: NDArray[np.int64]  # (N,) how many vectors each text has


def embed(
    model: Loaded,
    texts: Sequence[str],
    pool: str | None = None,
    normalise: bool | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Embedded:
    """The vector of each text: the mean or maximum of its states (special tokens included), the first, or all of them.

    Arguments that are None follow the settings of a `sentence-transformers` directory where the model came from one;
    otherwise the vector is the mean, not normalised. For a translator these are the states of the source.
    """
    return gathered(model, texts, chosen(model, pool, normalise), batch_tokens)


def chosen(model: Loaded, pool: str | None = None, normalise: bool | None = None) -> Pooling:
    """The caller's choice; where it is None, the setting of the model's directory. The pool `cls` is `first`."""
    found = pooling_of(model.path)
    pooling = replace(
        found,
        pool=found.pool if pool is None else POOLING_MODES.get(pool, pool),
        normalise=found.normalise if normalise is None else normalise,
    )
    if pooling.pool == "first" and not reads_whole(model.module.config):
        raise UserError("pool=first: the first state of a language model has read one token only; use mean or max.")
    return pooling


def last_states(model: Loaded, tokens: Tensor, real: Tensor | None) -> Tensor:
    """The states (B, T, width) of the last layer, of the source where the model reads one."""
    if tokens.shape[1] == 0:
        return torch.zeros(len(tokens), 0, model.module.config.width, device=model.device)
    if model.module.config.reads_source:
        return cast(ReadsSource, model.module).encode(tokens, real)
    return model.states(tokens, real)


@torch.no_grad()
def gathered(
    model: Loaded,
    texts: Sequence[str],
    pooling: Pooling,
    batch_tokens: int = BATCH_TOKENS,
    first: int = 1,
    states_of: States = last_states,
) -> Embedded:
    """The vectors of texts that are read in batches of about the same length; `first` is the number of the first."""
    check_is_list(texts)
    model.expect("embed", not model.reads_images)
    tokens = _read(model, texts, pooling, first)
    none = states_of(model, torch.zeros(0, 0, dtype=torch.long, device=model.device), None).flatten(0, 1)
    found: list[Vectors] = [none.float().cpu().numpy() for _ in texts]
    for rows in grouped([len(ids) for ids in tokens], batch_tokens):
        ids, there = pad_ids([tokens[row] for row in rows])
        real = torch.from_numpy(there).to(model.device)
        visible = None if there.all() else real  # a mask that forbids nothing is none
        with pause_recording(model.module), model.autocast():
            states = states_of(model, torch.from_numpy(ids).to(model.device), visible)  # (B, T, D)
        for row, vectors in zip(rows, _pooled(states.float(), real, pooling)):
            found[row] = vectors.flip(0).cpu().numpy() if model.reads_backward else vectors.cpu().numpy()
    lengths = np.array([len(vectors) for vectors in found], dtype=np.int64)
    return Embedded(np.concatenate([none.float().cpu().numpy(), *found]), lengths)


def _read(model: Loaded, texts: Sequence[str], pooling: Pooling, first: int) -> list[list[int]]:
    """The tokens of texts with the special tokens around them, each within the limit."""
    stripped = [pooling.prefix + text.strip() for text in texts]
    tokens = model.tokenizer.encode_batch([text.lower() for text in stripped] if pooling.lower else stripped)
    if not reads_whole(model.module.config):
        before, after = model.opening, list[int]()
    else:
        special_tokens = model.tokenizer.special_tokens
        before = [] if special_tokens.prefix is None else [special_tokens.prefix]
        after = [] if special_tokens.suffix is None else [special_tokens.suffix]
    limits = [limit for limit in (pooling.longest, model.longest) if limit is not None]
    most = min(limits, default=None) and max(min(limits) - len(before) - len(after), 0)
    return [[*before, *_cut(model, ids, most, number), *after] for number, ids in enumerate(tokens, first)]


def _cut(model: Loaded, tokens: list[int], most: int | None, number: int) -> list[int]:
    """At most `most` tokens; `model.long` decides whether the rest is cut or refused."""
    if most is None or len(tokens) <= most:
        return tokens
    if model.long == "error":
        raise UserError(f"line {number}: {len(tokens)} tokens, but at most {most} are read; {LONG_CURE}")
    return tokens[:most] if model.long == "truncate" else tokens[len(tokens) - most :]


def _pooled(states: Tensor, real: Tensor, pooling: Pooling) -> Iterator[Tensor]:
    """The vectors of each text of a batch. The vector of a text without tokens is zeros."""
    if pooling.normalise and pooling.pool == "tokens":
        states = F.normalize(states, dim=-1)
    if pooling.pool == "tokens":
        yield from (row[there] for row, there in zip(states, real))
        return
    if pooling.pool == "first":
        pooled = (states * real[..., None])[:, :1].sum(dim=1)
    elif pooling.pool == "max":
        pooled = states.masked_fill(~real[..., None], -math.inf).amax(dim=1) if real.shape[1] else states.sum(dim=1)
        pooled = pooled.masked_fill(~real.any(dim=1)[:, None], 0.0)
    else:
        kept = real[..., None].float()
        pooled = (states * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)  # (B, width)
    pooled = F.normalize(pooled, dim=-1) if pooling.normalise else pooled
    yield from pooled[:, None]
