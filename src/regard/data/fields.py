"""Fields: how a column of the examples becomes numbers, and back.

A task names its fields by column: ``{"source": InputText, "target": TargetText}``. A field is fitted to the training
examples, saved with the run as ``fields/NAME.json``, and loaded with the model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from regard.data.batches import IGNORED
from regard.data.example import Direction, Unit
from regard.data.flat import Flat, FlatBuilder, Values, id_type
from regard.data.public_tokenizers import unpack_tokenizer
from regard.data.text_files import Report
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.entities import complete, names_entities
from regard.errors import UserError
from regard.file_io import RESTORE, read_json, write_text

MANY = 20  # so many classes are never too many
AT_ONCE = 500  # examples that are encoded at a time: lists of Python numbers take twenty times the memory of an array
UNBOUNDED = 100_000  # tokens, for data without a limit of its own: every character or phoneme there is
SENTINELS = 100  # tokens that stand for hidden spans, as many as T5 has
MASK = "[MASK]"  # how a masked token is written in a text

Alignment = tuple[Unit, frozenset[tuple[int, int]]]  # what the links join, and the links (source unit, target unit)


class Field(Protocol):
    """A column of the examples as numbers."""

    @classmethod
    def fit(cls, values: Iterable[Any], name: str, data: Any) -> Self:
        """The field of the column `name`, learnt from its values; `data`, the corpus, has the settings."""
        ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        ...

    def save(self, path: Path) -> None:
        """Write the field as one JSON file."""
        ...

    @property
    def size(self) -> int:
        """How many different values there are: the vocabulary, or the classes; 0 if that is not a number."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the arrays that hold the encoded values."""
        ...

    def encode(self, values: Sequence[Any]) -> Sequence[ArrayLike]:
        """The numbers of each value: ids, or whatever the field's input layer reads."""
        ...


Checks = Mapping[str, Callable[[Any], bool]]  # names → whether a value may have the name


class StoredField:
    """A field with a few settings, which are saved as one JSON object."""

    # The names of the settings in the file, in their order, and what each value must be.
    stored: ClassVar[Checks]
    content: ClassVar[str]  # what the file has, for messages

    @classmethod
    def load(cls, path: Path) -> Self:
        found = read_json(path)
        values = [found.get(name, "") if isinstance(found, dict) else "" for name in cls.stored]
        if not all(fits(value) for fits, value in zip(cls.stored.values(), values)):
            raise UserError(f"{path}: not {cls.content}; {RESTORE}.")
        return cls(*values)

    def save(self, path: Path) -> None:
        settings: Any = self
        values = (getattr(self, one.name) for one in dataclass_fields(settings))
        write_text(path, json.dumps(dict(zip(self.stored, values))) + "\n")


@dataclass(frozen=True, eq=False)
class TextField:
    """A text as the ids of a tokenizer."""

    tokenizer: Tokenizer
    mask: ClassVar[str | None] = None  # how a masked token is written, for fields that have one
    sentinels: ClassVar[int] = 0  # the number of tokens that stand for hidden spans, for fields that have them
    shares: ClassVar[str] = ""  # the field whose tokenizer this one has, too; empty: none
    running: ClassVar[bool] = False  # whether all examples together are one text, which is read in windows

    @classmethod
    def fit(cls, values: Iterable[str], name: str, data: Any) -> Self:
        """Train the tokenizer that `data.NAME_tokens` or `data.tokens` names, with at most `data.vocab` tokens."""
        kind, vocab = _token_kind(data, name), getattr(data, "vocab", UNBOUNDED)
        return cls(train_tokenizer(kind, values, vocab, mask=cls.mask, sentinels=cls.sentinels))

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(read_tokenizer(path))

    def save(self, path: Path) -> None:
        self.tokenizer.save(path)

    @property
    def size(self) -> int:
        return self.tokenizer.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return id_type(self.size)

    def wrap(self, ids: list[int]) -> list[int]:
        """The ids with the special tokens of this field around them."""
        return ids

    def room(self, longest: int) -> int:
        """How many ids of a text fit into the longest text that a model reads."""
        return longest - len(self.wrap([]))

    def encode(self, values: Sequence[str]) -> list[list[int]]:
        return [self.wrap(ids) for ids in self.tokenizer.encode_batch(values)]

    def shortened(self, values: Sequence[str], longest: int) -> Sequence[ArrayLike]:
        """What `encode` gives for texts that are cut where they have more than `longest` tokens."""
        return [self.wrap(ids[: self.room(longest)]) for ids in self.tokenizer.encode_batch(values)]

    def arrays(self, texts: Sequence[str], ids: Sequence[list[int]]) -> Sequence[ArrayLike]:
        """What `encode` gives for texts whose ids are known, and may have been cut."""
        return [self.wrap(one) for one in ids]


class InputText(TextField):
    """A text that a model reads whole: between prefix and suffix, where its tokenizer has them."""

    def wrap(self, ids: list[int]) -> list[int]:
        return self.tokenizer.special_tokens.wrap_input(ids)


class MaskedText(InputText):
    """A text that a model reads whole, with a token that masks others."""

    mask = MASK


class TargetText(TextField):
    """A text that a model generates: between bos and eos, where its tokenizer has them."""

    def wrap(self, ids: list[int]) -> list[int]:
        return self.tokenizer.special_tokens.wrap_target(ids)

    def room(self, longest: int) -> int:
        """One more than special tokens leave: a model never reads the last token of a text that it generates."""
        return super().room(longest) + 1


class SpanSource(InputText):
    """A text that a model reads with some spans hidden, each by a sentinel."""

    sentinels = SENTINELS


class SpanTarget(TargetText):
    """The hidden spans of a text, which a model generates. A corruption makes them, so that examples have none."""

    shares = "source"

    def encode(self, values: Sequence[str]) -> list[list[int]]:
        return [[] for _ in values]


@dataclass(frozen=True)
class LabelField:
    """One of several classes, by name."""

    names: tuple[str, ...]
    counts: tuple[int, ...] = ()  # how often each class occurs in the training examples; empty: not known

    def __post_init__(self) -> None:
        for name in self.names:
            if not isinstance(name, str) or not name.strip():
                raise UserError(f"the class name {name!r:.40} is no text; give each class a name.")
        for name, count in Counter(self.names).items():
            if count > 1:
                raise UserError(f"{count} classes have the name {name!r:.40}; give each class its own name.")

    @classmethod
    def fit(cls, values: Iterable[str], name: str, data: Any) -> Self:
        names = Counter(value.strip() for value in values)
        count = names.total()
        if len(names) < 2:
            raise UserError(f"data.{name}: all texts have the class {min(names, default='')!r:.40}; give two or more.")
        if len(names) > max(MANY, count // 2):
            found = f"{count:,} texts have {len(names):,} classes, such as {min(names)!r:.40}"
            raise UserError(f"data.{name}: {found}; name the columns of the file with data.text= and data.{name}=")
        return cls(*_counted(names))

    @classmethod
    def load(cls, path: Path) -> Self:
        content = read_json(path)
        names = content.get("labels") if isinstance(content, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{path}: not the labels of a run; {RESTORE}.")
        counts = content.get("counts", [])  # runs before this setting have none
        whole = isinstance(counts, list) and all(type(count) is int and count >= 0 for count in counts)
        if not whole or len(counts) not in (0, len(names)):
            raise UserError(f"{path}: the counts are not those of the labels; {RESTORE}.")
        try:
            return cls(tuple(names), tuple(counts))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        content = {"labels": self.names, **({"counts": self.counts} if self.counts else {})}
        write_text(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def dtype(self) -> np.dtype[Any]:
        return id_type(self.size)

    def encode(self, values: Sequence[str]) -> list[list[int]]:
        ids = {name: number for number, name in enumerate(self.names)}
        for value in values:
            if value.strip() not in ids:
                known = ", ".join(f"{name:.20}" for name in self.names[:8]) + (", …" if len(self.names) > 8 else "")
                raise UserError(f"label {value!r:.60}: not a class of the training examples; use one of {known}.")
        return [[ids[value.strip()]] for value in values]

    def counted(self, values: Iterable[Any]) -> Self:
        """The same classes, with their counts in other examples."""
        counts = np.zeros(self.size, np.int64)
        for ids in self.encode(list(values)):
            np.add.at(counts, ids, 1)
        return replace(self, counts=tuple(counts.tolist()))


class TagsField(LabelField):
    """A class for each place of a sequence, by name."""

    @classmethod
    def fit(cls, values: Iterable[Sequence[str]], name: str, data: Any) -> Self:
        names = Counter[str]()
        for tags in values:
            names.update(tags)
        if len(names) < 2:
            raise UserError(f"data.{name}: all places have the class {min(names, default='')!r:.40}; give two or more.")
        return cls(*_counted(names))

    def encode(self, values: Sequence[Sequence[str]]) -> list[list[int]]:
        ids = {name: number for number, name in enumerate(self.names)}
        try:
            return [[ids[tag] for tag in tags] for tags in values]
        except KeyError:  # an unknown class, or one with spaces around it
            return [[number for (number,) in super(TagsField, self).encode(tags)] for tags in values]


class EntityTags(TagsField):
    """A tag for each word, by name.

    The tags of a scheme of entities (`regard.entities`) are complete: each type has all letters of the scheme. A tag
    that the training examples do not have is IGNORED: it counts for nothing in the loss, and as a mistake elsewhere.
    """

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    @classmethod
    def fit(cls, values: Iterable[Sequence[str]], name: str, data: Any) -> Self:
        field = super().fit(values, name, data)
        if not names_entities(field.names):
            return field
        counts, names = dict(zip(field.names, field.counts)), complete(field.names)
        return cls(tuple(names), tuple(counts.get(tag, 0) for tag in names))

    def encode(self, values: Sequence[Sequence[str]]) -> list[list[int]]:
        ids = {name: number for number, name in enumerate(self.names)}
        return [[ids.get(tag, IGNORED) for tag in tags] for tags in values]

    def counted(self, values: Iterable[Any]) -> Self:
        counts = Counter(tag for tags in values for tag in tags)
        return replace(self, counts=tuple(counts[name] for name in self.names))


class LabelsField(LabelField):
    """Several of the classes, by name: a number 0 or 1 for each class."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @classmethod
    def fit(cls, values: Iterable[Sequence[str]], name: str, data: Any) -> Self:
        names = Counter(label.strip() for labels in values for label in labels)
        if not names:
            raise UserError(f"data.{name}: no text has a label; name the column of the labels with data.{name}=COLUMN")
        return cls(*_counted(names))

    def encode(self, values: Sequence[Sequence[str]]) -> list[Values]:  # type: ignore[override]
        """Arrays (1, size) of 0 and 1."""
        found = [np.zeros((1, self.size), np.float32) for _ in values]
        numbers = iter(super().encode([label for labels in values for label in labels]))
        for array, labels in zip(found, values):
            array[0, [next(numbers)[0] for _ in labels]] = 1.0
        return found

    def counted(self, values: Iterable[Any]) -> Self:
        counts = np.sum(self.encode(list(values)), axis=(0, 1))
        return replace(self, counts=tuple(map(int, counts)))


def _counted(names: Counter[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names in order, and how often each occurs."""
    ranked = sorted(names.items())
    return tuple(name for name, _ in ranked), tuple(count for _, count in ranked)


@dataclass(frozen=True)
class NumbersField(StoredField):
    """A sequence of numbers, or of vectors of numbers: pixels, notes, measurements."""

    size: int  # numbers at each step
    stored: ClassVar[Checks] = {"numbers": lambda size: type(size) is int and size >= 1}
    content = "the numbers of a run"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @classmethod
    def fit(cls, values: Iterable[ArrayLike], name: str, data: Any) -> Self:
        sizes = {_steps(value).shape[1] for value in values}
        if len(sizes) != 1:
            found = " and ".join(map(str, sorted(sizes))) or "no"
            raise UserError(f"data: the steps of {name} have {found} numbers; give every step as many.")
        return cls(sizes.pop())

    def encode(self, values: Sequence[ArrayLike]) -> list[Values]:
        """Arrays (T, size)."""
        found = [_steps(value) for value in values]
        for one in found:
            if one.shape[1] != self.size:
                raise UserError(f"data: a step has {one.shape[1]} numbers, but in training {self.size}; give as many.")
            if not np.isfinite(one).all():
                raise UserError("data: a number is NaN or infinite; give finite numbers.")
        return found


class NumberField(NumbersField):
    """One number for each example, such as a rating."""

    @classmethod
    def fit(cls, values: Iterable[ArrayLike], name: str, data: Any) -> Self:
        return cls(1)

    def encode(self, values: Sequence[ArrayLike]) -> list[Values]:
        found = [np.array([value], np.float32) for value in values]
        if not all(np.isfinite(one).all() for one in found):
            raise UserError("data: a number is NaN or infinite; give finite numbers.")
        return found


def _steps(value: ArrayLike) -> Values:
    """Numbers as an array (T, numbers of a step)."""
    array = np.asarray(value, np.float32)
    return array[:, None] if array.ndim == 1 else array


@dataclass(frozen=True)
class LinkField(StoredField):
    """The gold links of a pair: source unit, target unit, source unit, target unit … A pair may have none."""

    unit: Unit  # what the links join
    stored: ClassVar[Checks] = {"unit": lambda unit: unit in ("char", "word")}
    content = "the links of a run"
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

    def encode(self, values: Sequence[Alignment | None]) -> list[list[int]]:
        for value in values:
            if value is not None and value[0] != self.unit:
                raise UserError(f"data: links between {value[0]}s, but training had links between {self.unit}s.")
        return [[] if value is None else [n for link in sorted(value[1]) for n in link] for value in values]


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer that `Tokenizer.save` wrote."""
    return unpack(read_json(path), path)


def unpack(content: Any, path: Path) -> Tokenizer:
    """The tokenizer of parsed JSON: one of ours, or a public one with the files it came from."""
    if isinstance(content, dict) and "files" in content:
        return unpack_tokenizer(content, path)
    return Tokenizer.parse(json.dumps(content), path)


def fit_fields(kinds: Mapping[str, type[Field]], examples: Iterable[Any], data: Any) -> dict[str, Field]:
    """The fields of a task, fitted to the training examples. With `data.joint`, all texts share one tokenizer."""
    texts = [name for name, kind in kinds.items() if issubclass(kind, TextField)]
    joint: Tokenizer | None = None
    if texts and getattr(data, "joint", False):
        tokens = {name: _token_kind(data, name) for name in texts}
        if len(set(tokens.values())) > 1:
            stated = " and ".join(f"data.{name}_tokens={kind}" for name, kind in tokens.items())
            raise UserError(f"data.joint=true: one vocabulary needs one kind of tokens, but {stated}; make them equal.")
        values = (getattr(example, name) for name in texts for example in examples)
        joint = train_tokenizer(tokens[texts[0]], values, getattr(data, "vocab", UNBOUNDED))
    fields: dict[str, Field] = {}
    for name, kind in kinds.items():
        if joint is not None and issubclass(kind, TextField):
            fields[name] = kind(joint)
        elif issubclass(kind, TextField) and isinstance(shared := fields.get(kind.shares), TextField):
            fields[name] = kind(shared.tokenizer)
        else:
            fields[name] = kind.fit((getattr(example, name) for example in examples), name, data)
    return fields


def running_field(fields: Mapping[str, Field]) -> tuple[str, TextField] | None:
    """The name and the field of the running text of a task; None if its examples are texts of their own."""
    texts = ((name, each) for name, each in fields.items() if isinstance(each, TextField) and each.running)
    return next(texts, None)


def in_direction(fields: Mapping[str, Field], direction: Direction) -> dict[str, Field]:
    """The fields of a model that reads texts in this direction, see `Tokenizer.in_direction`."""
    return {
        name: replace(each, tokenizer=each.tokenizer.in_direction(direction)) if isinstance(each, TextField) else each
        for name, each in fields.items()
    }


def _token_kind(data: Any, name: str) -> str:
    """The kind of tokens of a column: a setting of its own, or the one of all columns."""
    return str(getattr(data, f"{name}_tokens", None) or data.tokens)


def encode(
    fields: Mapping[str, Field], examples: Sequence[Any], report: Report | None = None, cut: Mapping[str, int] = {}
) -> dict[str, Flat]:
    """Every column of the examples in one flat array; `report` is called after every few hundred examples.

    `cut` has the most tokens of texts that are cut if they are longer, by the name of their field.
    """
    builders = {name: FlatBuilder(field.dtype) for name, field in fields.items()}
    for at in range(0, len(examples), AT_ONCE):
        some = examples[at : at + AT_ONCE]
        for name, field in fields.items():
            values = [getattr(example, name) for example in some]
            if name in cut and isinstance(field, TextField):
                builders[name].add(field.shortened(values, cut[name]))
            else:
                builders[name].add(field.encode(values))
        if report is not None:
            done = sum(builder.bytes for builder in builders.values())
            report("encoding the examples", done, done * len(examples) // (at + len(some)))
    return {name: builder.build() for name, builder in builders.items()}
