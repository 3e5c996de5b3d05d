"""Initial embeddings from pretrained word vectors: files of word2vec and GloVe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.vector_files import vector_rows
from regard.errors import UserError


def load_vectors(path: str | Path, words: Sequence[str], width: int, setting: str = "embed") -> tuple[Tensor, Tensor]:
    """The vectors (N, width) of N words, and which of them (N,) the file has; the others are zeros.

    The file has one of the formats of `regard.data.vector_files`. It is read word by word, and only the numbers of the
    given words are parsed. ``setting`` is the name of the setting that is the width.
    """
    path = Path(os.path.expanduser(path))
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    vectors, found = torch.zeros(len(words), width), torch.zeros(len(words), dtype=torch.bool)
    for number, row in enumerate(vector_rows(path)):
        if not number and (given := row.width) != width:
            raise UserError(
                f"model.{setting}={width}: the vectors of {path} have {given} numbers; set model.{setting}={given}"
            )
        if row.word in places:
            rows = places.pop(row.word)
            vectors[rows] = torch.from_numpy(row.vector())
            found[rows] = True
    return vectors, found


def init_embedding(
    embedding: nn.Embedding, path: str | Path, pieces: Sequence[str], setting: str = "embed", scale: float = 1.0
) -> int:
    """Copies the vectors of a file into the rows of an embedding, and returns how many pieces the file has.

    Rows of pieces that the file does not have, and the row of padding, are not changed. The vectors are divided by
    ``scale``, the number by which the model multiplies its embedding: what the model reads is the vector of the file.
    """
    assert len(pieces) == embedding.num_embeddings
    vectors, found = load_vectors(path, pieces, embedding.embedding_dim, setting)
    if embedding.padding_idx is not None:
        found[embedding.padding_idx] = False
    if not found.any():
        raise UserError(f"{path}: has none of the {len(pieces)} pieces of the vocabulary; check its language")
    with torch.no_grad():
        embedding.weight[found.to(embedding.weight.device)] = (vectors[found] / scale).to(embedding.weight)
    return int(found.sum())
