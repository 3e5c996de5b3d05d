"""Gold alignment as a field: links between the units of a source and of its target, and between their tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from regard.checkpoint import read_json, write_text
from regard.data.batches import Row, Rows
from regard.data.example import Unit
from regard.data.fields import Field, TextField
from regard.data.flat import Lengths, Values
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError

Alignment = tuple[Unit, frozenset[tuple[int, int]]]  # what the links join, and the links (source unit, target unit)


@dataclass(frozen=True)
class LinkField:
    """The gold links of a pair: source unit, target unit, source unit, target unit … A pair may have none."""

    unit: Unit  # what the links join
    size: ClassVar[int] = 0
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    @classmethod
    def fit(cls, values: Iterable[Alignment | None], name: str, data: Any) -> Self:
        units = sorted({value[0] for value in values if value is not None})
        if len(units) != 1:
            found = f"links between {'s and between '.join(units)}s" if units else "no example with gold links"
            raise UserError(
                f"data: the training data has {found}; use data with one kind of links, or objective=teacher."
            )
        return cls(units[0])

    @classmethod
    def load(cls, path: Path) -> Self:
        content = read_json(path)
        unit = content.get("unit") if isinstance(content, dict) else None
        if unit not in ("char", "word"):
            raise UserError(f"{path}: not the links of a run; restore the file or use another checkpoint.")
        return cls(unit)

    def save(self, path: Path) -> None:
        write_text(path, json.dumps({"unit": self.unit}) + "\n")

    def encode(self, values: Sequence[Alignment | None]) -> list[list[int]]:
        for value in values:
            if value is not None and value[0] != self.unit:
                raise UserError(f"data: links between {value[0]}s, but training had links between {self.unit}s.")
        return [[] if value is None else [n for link in sorted(value[1]) for n in link] for value in values]


@dataclass(frozen=True, eq=False)
class TokenLinks:
    """Adds the links between tokens to the rows of a batch, as the field ``token_links``.

    A token has the links of its word, or of its character. A link is two numbers: the index of the target token among
    the predicted ones, and the index of the source token, special tokens included.
    """

    unit: Unit
    source: Tokenizer
    target: Tokenizer

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """The lengths stay as they are."""
        return lengths

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        return rows.with_field("token_links", [self._links(row) for row in rows])

    def _links(self, row: Row) -> Values:
        links = row["alignment"].reshape(-1, 2)
        if not len(links):
            return np.zeros(0, np.int64)
        source, target = self.source.special_tokens, self.target.special_tokens
        columns = self._units(self.source, row["source"], source.prefix, source.suffix)
        units = self._units(self.target, row["target"], target.bos, target.eos)[1:]
        linked = np.zeros((max(units.max(initial=-1), links[:, 1].max()) + 2, links[:, 0].max() + 2), bool)
        linked[links[:, 1], links[:, 0]] = True  # the last row and the last column are of tokens without a unit
        columns = np.where(columns < linked.shape[1] - 1, columns, -1)
        return np.argwhere(linked[np.ix_(units, columns)]).reshape(-1)

    def _units(self, tokenizer: Tokenizer, ids: Values, first: int | None, last: int | None) -> Values:
        """The unit of each token; -1 for special tokens, and for spaces between words."""
        text = ids[int(first is not None) : len(ids) - int(last is not None)].tolist()
        units = range(len(text)) if self.unit == "char" else tokenizer.words(text)
        return np.array([*[-1] * (first is not None), *units, *[-1] * (last is not None)], np.int64)


def token_links(fields: Mapping[str, Field]) -> TokenLinks:
    """How the links of a task become links between the tokens of its source and target."""
    links, source, target = fields["alignment"], fields["source"], fields["target"]
    assert isinstance(links, LinkField)
    assert isinstance(source, TextField)
    assert isinstance(target, TextField)
    for name, field in (("source", source), ("target", target)):
        if links.unit == "char" and field.tokenizer.kind != "char":
            raise UserError(
                f"data.{name}_tokens={field.tokenizer.kind}: the links of the data join characters; "
                f"set data.{name}_tokens=char, or objective=teacher."
            )
    return TokenLinks(links.unit, source.tokenizer, target.tokenizer)
