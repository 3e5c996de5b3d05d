"""Corpora that are read from files: the user's own, and public ones in the folder of REGARD_DATA.

Each is a frozen dataclass whose `load` returns a `Corpus`. A corpus without fixed parts is split by hashes of its
texts: the same files always give the same parts, in any order of their lines.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, ClassVar

from regard.data.download import CURE
from regard.data.example import (
    Captioned,
    Choice,
    Corpus,
    LabelledPair,
    LabelledText,
    MultiLabelledText,
    Pair,
    Parts,
    Question,
    RatedPair,
    RelatedTexts,
    Text,
    Tokens,
)
from regard.data.files import (
    JoinedPairs,
    find_data,
    hash_text,
    iterate_lines,
    open_parallel,
    read_parallel,
    read_text,
    split_paths,
)
from regard.data.tables import has_names, read_table, table_warnings
from regard.errors import UserError

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
HELD_OUT = 0.02  # the part of the training examples that becomes the validation set if no validation set is given
HELD_OUT_MOST = 2000  # the most examples of that part


@dataclass(frozen=True)
class OwnFiles:
    """The files of a user's own examples: tables with `columns`, of which a row becomes an `example`."""

    train: str = ""  # the file of the training examples
    valid: str = ""  # the file of the validation examples; if empty, 2 % of the training examples are held out
    test: str = ""  # the file of the test examples; may be empty

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a file: the key of each, and its name; an example that lacks one of them is left out."""
        return {}

    def load(self) -> Corpus:
        return load_files(self.train, self.valid, self.test, self.read, self.columns)

    def read(self, path: str) -> list[Any]:
        """The examples of a file."""
        return [
            self.example({key: cell.strip() for key, cell in row.items()}, f"{path}, line {line}")
            for line, row in read_table(path, self.columns)
        ]

    def example(self, row: Mapping[str, str], where: str) -> Any:
        """The example of a row, given its cells by the keys of the columns."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pairs(OwnFiles):
    """Your own pairs: a table of sources and targets, source<TAB>target, or two parallel files "src.txt,tgt.txt"."""

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    source: str = ""  # the column of the sources, for a file with a header; if empty, "source" or a usual name of it
    target: str = ""  # the column of the targets, for a file with a header; if empty, "target" or a usual name of it
    source_tokens: Tokens = "bpe"  # the kind of tokens of the sources
    target_tokens: Tokens = "bpe"  # the kind of tokens of the targets
    vocab: int = 8000  # the largest size of the vocabulary of either side
    joint: bool = False  # one vocabulary for both sides, learnt from both

    @property
    def columns(self) -> dict[str, str]:
        return {"source": self.source, "target": self.target}

    def read(self, path: str) -> list[Any]:
        return list(read_pairs(path, self.source, self.target))


@dataclass(frozen=True)
class Lines(OwnFiles):
    """Your own text for a language model: each line of a file, or each cell of a column, is an example."""

    tasks: ClassVar[tuple[str, ...]] = ("language", "two-way language", "masked", "replaced", "infill", "context")

    text: str = ""  # the column of the texts, for a file with a header; if empty, "text" or a usual name of it
    tokens: Tokens = "char"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary
    tokenizer: str = ""  # a run, or a public checkpoint, whose tokenizer is used; empty: one is trained on the lines

    def read(self, path: str) -> list[Any]:
        columns = {"text": self.text}
        named = has_names(path, columns)
        texts = (row["text"] for _, row in read_table(path, columns)) if named else iterate_lines(path)
        return [Text(text) for text in texts if text.strip()]


@dataclass(frozen=True)
class Multi30k:
    """Captions of pictures in several languages (Elliott et al. 2016), in $REGARD_DATA/multi30k."""

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    source: str = "de"  # the language of the sources: de, en or fr
    target: str = "en"  # the language of the targets
    source_tokens: Tokens = "bpe"  # the kind of tokens of the sources
    target_tokens: Tokens = "bpe"  # the kind of tokens of the targets
    vocab: int = 8000  # the largest size of the vocabulary of either side
    joint: bool = False  # one vocabulary for both sides, learnt from both

    @property
    def files(self) -> tuple[str, ...]:
        parts, languages = ("train", "val", "test_2016_flickr"), (self.source, self.target)
        return tuple(f"multi30k/{part}.{language}.gz" for part in parts for language in languages)

    def load(self) -> Corpus:
        paths = [find_data(name, CURE) for name in self.files]
        train, valid, test = (read_parallel(*pair) for pair in zip(paths[::2], paths[1::2]))
        return Corpus(train, valid, test)


# The parts of the training pairs of WMT 14, English and French, and the archives of statmt.org that contain them.
FRENCH_PARTS = {
    "europarl-v7.fr-en": "training-parallel-europarl-v7.tgz",
    "commoncrawl.fr-en": "training-parallel-commoncrawl.tgz",
    "undoc.2000.fr-en": "training-parallel-un.tgz",
    "news-commentary-v9.fr-en": "training-parallel-nc-v9.tgz",
    "giga-fren.release2.fixed": "training-giga-fren.tar",
}


@dataclass(frozen=True)
class Wmt14:
    """News and parliament, English and German or French (Bojar et al. 2014), in $REGARD_DATA/wmt14.

    German: the files are `train`, `newstest2013` (validation) and `newstest2014` (test), each with the ending of a
    language. --download fetches the files that Luong et al. 2015 prepared. In those, spaces separate words and
    punctuation, so BLEU on them is tokenised BLEU, which cannot be compared with BLEU on plain text.

    French: the unpacked files of statmt.org/wmt14 with their own names, in the folder wmt14/fr-en: five training
    corpora, `newstest2013` and `newstest2014-fren`. They are plain text.

    The training pairs, 4.5 million or 40 million, stay on the disk; a pair is read when it is used.
    """

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    source: str = "en"  # the language of the sources: en, de or fr
    target: str = "de"  # the language of the targets; one of the two is en
    source_tokens: Tokens = "bpe"  # the kind of tokens of the sources
    target_tokens: Tokens = "bpe"  # the kind of tokens of the targets
    vocab: int = 37_000  # the largest size of the vocabulary of either side
    joint: bool = True  # one vocabulary for both sides, learnt from both

    @property
    def files(self) -> tuple[str, ...]:
        languages = (self.source, self.target)
        if "fr" not in languages:
            parts = ("train", "newstest2013", "newstest2014")
            return tuple(f"wmt14/{part}.{language}" for part in parts for language in languages)
        pairs = [f"{part}.{language}" for part in (*FRENCH_PARTS, "newstest2013") for language in languages]
        test = [f"newstest2014-fren-{side}.{language}.sgm" for side, language in zip(("src", "ref"), languages)]
        return tuple(f"wmt14/fr-en/{name}" for name in (*pairs, *test))

    def load(self) -> Corpus:
        if sorted((self.source, self.target)) not in (["de", "en"], ["en", "fr"]):
            pair = f"data.source={self.source} data.target={self.target}"
            raise UserError(f"{pair}: WMT 14 has English with German or French here; give en and de, or en and fr.")
        if "fr" not in (self.source, self.target):
            paths = [find_data(name, CURE) for name in self.files]
            train = open_parallel(paths[0], paths[1])
            return Corpus(train, read_parallel(paths[2], paths[3]), read_parallel(paths[4], paths[5]))
        archives = [archive for archive in (*FRENCH_PARTS.values(), "dev.tgz", "test-full.tgz") for _ in range(2)]
        paths = [
            find_data(name, f", unpacked from {archive} of statmt.org/wmt14")
            for name, archive in zip(self.files, archives)
        ]
        *parts, valid, test = zip(paths[::2], paths[1::2])
        return Corpus(
            JoinedPairs([open_parallel(*pair) for pair in parts]), read_parallel(*valid), _read_segments(*test)
        )


@dataclass(frozen=True)
class GreekEnglish:
    """The New Testament, Greek and English, with words aligned by hand, in $REGARD_DATA/align_bible.

    Of twenty verses one is for validation and one for the test, chosen by the hash of the verse number.
    """

    tasks: ClassVar[tuple[str, ...]] = ("translate", "aligned")

    source_tokens: Tokens = "bpe"  # the kind of tokens of the sources
    target_tokens: Tokens = "bpe"  # the kind of tokens of the targets
    vocab: int = 8000  # the largest size of the vocabulary of either side

    def load(self) -> Corpus:
        path = find_data("align_bible/grc-eng.SBLGNT-BSB.manual.tsv.gz")
        train, valid, test = list[Pair](), list[Pair](), list[Pair]()
        for number, row in read_table(path, dict.fromkeys(("id", "source", "target", "links"), "")):
            name, source, target, links = (cell.strip() for cell in row.values())
            try:
                pairs = (link.split("-") for link in links.split())
                gold = frozenset((int(i), int(j)) for i, j in pairs)
            except ValueError as error:
                raise UserError(f'{path}, line {number}: links must read "0-0 1-2 …", found {links[:40]!r}') from error
            part = {0: valid, 1: test}.get(hash_text(name) % 20, train)
            part.append(Pair(source, target, links=gold))
        return Corpus(train, valid, test)


def _read_segments(source: Path, target: Path) -> list[Pair]:
    """Return the pairs of two test files of WMT, in which each sentence is `<seg id="1">text</seg>`."""
    sides = [
        [" ".join(unescape(text).split()) for text in SEGMENT.findall(read_text(path))] for path in (source, target)
    ]
    counts = [len(side) for side in sides]
    if not counts[0] or counts[0] != counts[1]:
        sizes = f"{source} has {counts[0]} segments, {target} has {counts[1]}"
        raise UserError(f"{sizes}; give the two files of one test set, with a <seg> for each sentence.")
    return [Pair(one, other) for one, other in zip(*sides)]


def read_pairs(path: str | Path, source: str = "", target: str = "") -> list[Pair]:
    """Return the pairs of a table, of source<TAB>target, or of two parallel files "src.txt,tgt.txt"; all stripped.

    `source` and `target` name the columns of a table. Parallel files give one pair per line.
    """
    names = split_paths(path)
    if len(names) == 1:
        rows = read_table(path, {"source": source, "target": target})
        return [Pair(row["source"].strip(), row["target"].strip()) for _, row in rows]
    if len(names) != 2:
        raise UserError(f"{path}: {len(names)} files; give one file of pairs, or two parallel files: src.txt,tgt.txt")
    for key, column in {"source": source, "target": target}.items():
        if column:
            found = f"data.{key}={column}: {path} are two parallel files, which have no columns"
            raise UserError(f"{found}; leave data.{key} out, or give one .csv, .tsv or .jsonl file.")
    for name in names:
        if has_names(name):
            raise UserError(f"{name}: a table is no parallel file; give one table with both columns.")
    return read_parallel(*names)


def hold_out(examples: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the examples without a validation set, and that set: 2 %, at most 2,000, at least one.

    Examples with equal texts are all in the same part. Of each class, at least one example is not held out; if that is
    not possible, the validation set is empty.
    """
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for example in examples:
        groups[_text(example)].append(example)
    room = min(max(round(HELD_OUT * len(examples)), 1), HELD_OUT_MOST)
    held: set[str] = set()
    left = _classes(examples)  # of the examples that are not held out
    texts = sorted(groups, key=hash_text)
    for text in texts:
        if len(groups[text]) <= room and _leaves_each(left, classes := _classes(groups[text])):
            held.add(text)
            room -= len(groups[text])
            left -= classes
        if not room:
            break
    if not held:  # every text occurs too often: take the rarest
        possible = [text for text in texts if _leaves_each(left, _classes(groups[text]))]
        held = set(sorted(possible, key=lambda text: len(groups[text]))[:1])
    kept = [example for example in examples if _text(example) not in held]
    return kept, [example for example in examples if _text(example) in held]


def _classes(examples: list[Any]) -> Counter[str]:
    """Return how many examples each class, or each of several labels, has; empty if the examples have no classes."""
    kinds = (LabelledText, LabelledPair, MultiLabelledText)
    labelled = (example for example in examples if isinstance(example, kinds))
    return Counter(
        label for one in labelled for label in (one.labels if isinstance(one, MultiLabelledText) else (one.label,))
    )


def _leaves_each(left: Counter[str], classes: Counter[str]) -> bool:
    """Return whether each class has an example left if these are held out."""
    return all(left[name] > count for name, count in classes.items())


def load_files(
    train: str, valid: str, test: str, read: Callable[[str], list[Any]], columns: Mapping[str, str]
) -> Corpus:
    """Return the corpus of three files; without a validation file, some training examples are held out.

    An example is left out if one of its `columns` is empty; the warnings of the corpus have the number of these.
    """
    if not train:
        raise UserError("data.train is not set; name the training file with data.train=FILE")
    settings = {"train": train, "valid": valid, "test": test}
    parts: dict[str, list[Any]] = {name: [] for name in settings}
    warnings: list[str] = []
    for name, path in settings.items():
        if not path:
            continue
        examples = read(path)
        parts[name] = [one for one in examples if _complete(one, columns)]
        if not parts[name]:
            raise UserError(f"data.{name}={path}: no complete example; give a file with at least one.")
        if columns and len(split_paths(path)) == 1:
            warnings += table_warnings(path, columns)
        if left := len(examples) - len(parts[name]):
            lacking = f"{left} of {len(examples)} examples have no {' or no '.join(columns)} and are left out"
            warnings.append(f"{path}: {lacking}; complete them if they matter.")
    if doubt := _label_doubt(parts["train"], columns):
        warnings.append(f"data.train={train}: {doubt}")
    if not valid:
        classes = _classes(parts["train"])
        parts["train"], parts["valid"] = hold_out(parts["train"])
        if not parts["valid"]:
            rare = min(classes, key=lambda name: classes[name])
            found = f"each text is the only one of its class, such as {rare!r:.40}, and none can be held out"
            more = f" ({doubt})" if doubt else ""
            raise UserError(f"data.train={train}: {found}; add examples, or give data.valid=FILE{more}")
    if not parts["train"]:
        raise UserError(
            f"data.train={train}: too few different examples to hold some out; add some, or give data.valid=FILE"
        )
    return Corpus(**parts, warnings=tuple(dict.fromkeys(warnings)))


def _complete(example: Any, columns: Mapping[str, str]) -> bool:
    """Return whether an example has a value in each of its columns."""
    if isinstance(example, LabelledPair | RatedPair | Choice):
        target = example.number if isinstance(example, RatedPair) else example.label
        return target not in ("", None) and _no_part_is_empty(example.text)
    return not any(getattr(example, column) in ("", None) for column in columns)


def _no_part_is_empty(text: Parts) -> bool:
    return all(part if isinstance(part, str) else _no_part_is_empty(part) for part in text)


def _label_doubt(examples: list[Any], columns: Mapping[str, str]) -> str:
    """Return what is probably wrong: the columns are swapped, or nearly each text has its own class; else nothing."""
    classes, texts = _classes(examples), {_text(example) for example in examples}
    if not classes or "label" not in columns:
        return ""
    named = " ".join(f"data.{key}=…" for key in columns)
    cure = f"a file without a header has {'<TAB>'.join(columns)}; with a header, name the columns: {named}"
    words = [sum(len(text.split()) for text in each) / len(each) for each in (classes, texts)]
    if len(classes) > 2 * len(texts) or words[0] > max(3, 2 * words[1]):
        found = f"the labels are longer or more varied than the texts ({len(classes)} labels, {len(texts)} texts)"
        return f"{found}, so the columns may be swapped; {cure}"
    if len(classes) > max(2, len(examples) / 2):
        found = f"{len(classes)} classes in {len(examples)} examples, so most classes have one text"
        return f"{found}; check which column has the labels: {cure}"
    return ""


def _text(example: Any) -> str:
    """Return the input of an example: examples with equal inputs stay together."""
    if isinstance(example, Captioned):
        return str(example.image)
    if isinstance(example, Question):
        return example.passage
    if isinstance(example, RelatedTexts):
        return example.first
    text = example.source if isinstance(example, Pair) else example.text
    return text if isinstance(text, str) else json.dumps(text)
