"""Initial embeddings from pretrained word vectors: word2vec and GloVe text files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.files import opened
from regard.errors import UserError


def load_vectors(path: str | Path, words: Sequence[str], width: int, setting: str = "embed") -> tuple[Tensor, Tensor]:
    """The vectors (N, width) of N words, and which of them (N,) the file has; the others are zeros.

    A line is a word and its numbers, separated by single spaces (Mikolov et al. 2013; Pennington et al. 2014); the
    first line may be "count width". The file may be compressed (.gz or .xz). It is read line by line, and only the
    numbers of the given words are parsed. If a word occurs twice, the first vector is used. Words with a space in them
    are skipped, since no tokenizer has such pieces. ``setting`` is the name of the setting that is the width.
    """
    path = Path(path).expanduser()
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    vectors, found = torch.zeros(len(words), width), torch.zeros(len(words), dtype=torch.bool)
    for number, line in _vector_lines(path, width, setting):
        word, _, rest = line.partition(" ")
        spaces = line.count(" ")
        if spaces < width:
            raise UserError(f"{path}, line {number}: expected a word and {width} numbers, found {spaces} numbers")
        if spaces == width and word in places:
            rows = places.pop(word)
            vectors[rows] = torch.tensor(_numbers(rest, path, number))
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


def _vector_lines(path: Path, width: int, setting: str) -> Iterator[tuple[int, str]]:
    """The lines that have vectors, with their numbers; raises ``UserError`` if the vectors have another width."""
    shown = 0
    for number, line in _lines(path):
        fields = line.split(" ") if not shown else []
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            _check_width(path, int(fields[1]), width, setting)
            continue
        if not shown:
            shown = len(fields) - 1
            _check_width(path, shown, width, setting)
        yield number, line
    if not shown:
        raise UserError(f"{path}: holds no vectors; give a file with a word and its numbers on each line")


def _check_width(path: Path, given: int, width: int, setting: str) -> None:
    if given != width:
        raise UserError(
            f"model.{setting}={width}: the vectors of {path} have {given} numbers; set model.{setting}={given}"
        )


def _numbers(text: str, path: Path, number: int) -> list[float]:
    try:
        values = [float(field) for field in text.split(" ")]
    except ValueError as error:
        raise UserError(f"{path}, line {number}: expected numbers after the word ({error})") from None
    if not all(map(math.isfinite, values)):
        raise UserError(f"{path}, line {number}: a number is not finite")
    return values


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""The lines of a text file that are not blank, with their numbers, one at a time because such files are large.

    Only \n ends a line: some public files have words that are other line separators of Unicode.
    """
    with opened(path) as file:
        try:
            for number, line in enumerate(io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n"), 1):
                if stripped := line.rstrip(" \t\r\n"):
                    yield number, stripped
        except UnicodeDecodeError as error:
            cure = "give the text format, not the binary one"
            raise UserError(f"{path}: not UTF-8 text ({error.reason}); {cure}") from error
