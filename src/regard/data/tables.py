"""Reading tables: CSV, TSV and JSON lines with named columns, and tab-separated files without a header.

The ending of a file selects its reader, before `.gz` or `.xz`: the columns of .csv and .jsonl files have names. Every
other file is tab-separated; its first line is a header if a setting names a column, or if it has a name for each of
several columns. A column without a setting has the name of its key, or another usual name of it.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.data.files import PACKED, iterate_lines
from regard.errors import UserError, nearest

NAMED = (".csv", ".jsonl")  # the endings of files whose columns always have names
SQUAD = ".json"  # the ending of a file of questions in SQuAD's format
READ_BY_ENDING = (*NAMED, SQUAD)
LARGEST = 2**31 - 1  # characters of a cell, instead of the 131,072 that the csv module allows
LISTED = 12  # column names that an error lists
CHECKED = 100  # lines of a file without a header in which more columns than expected are looked for
# Usual names of a column beside its key, in small letters: those of GLUE, SNLI, SQuAD, SWAG and other public sets.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "text": ("sentence", "review", "content", "tweet", "message", "comment"),
    "label": ("class", "category", "sentiment", "gold_label", "is_duplicate"),
    "labels": ("classes", "categories", "tags"),
    "number": ("score", "similarity", "similarity_score", "rating"),
    "first": ("sentence1", "sentence_1", "sentence_a", "text1", "premise", "question1", "anchor"),
    "second": ("sentence2", "sentence_2", "sentence_b", "text2", "hypothesis", "question2", "positive"),
    "source": ("src", "input"),
    "target": ("tgt", "output"),
    "context": ("sent1", "ctx", "question", "passage"),
    "choices": ("endings", "options"),
    "passage": ("context", "paragraph"),
    "image": ("file", "file_name", "filename", "image_name"),
    "caption": ("text", "sentence", "description"),
}
HEADER_WORDS = frozenset((*USUAL_NAMES, *chain.from_iterable(USUAL_NAMES.values())))  # a line of such words is a header


def read_table(
    path: str | Path, columns: Mapping[str, str], lists: Collection[str] = (), header: bool = False
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the records of a table: the line on which a record starts, and its cells by the keys of `columns`.

    `columns` maps each key to the name of its column in the file. If a name is empty, the column has the name of the
    key, or a usual one, see `find_columns`. A file without a header, see `has_names`, has its columns in the order of
    the keys; with `header` every file must have one. Blank records are skipped. A key may have a number, as in
    "choices 1". If its word is in `lists`, a value of a JSON object may be a list, whose items are cells "choices 1",
    "choices 2" and so on.
    """
    path = Path(path)
    if header or has_names(path, columns):
        yield from _json_lines(path, columns, lists) if ending(path) == ".jsonl" else _with_header(path, columns)
        return
    for number, cells in tab_rows(path):
        if len(cells) < len(columns):
            line = "\t".join(cells)
            raise UserError(f"{path}, line {number}: expected {'<TAB>'.join(columns)}, found {_shortened(line)!r}")
        yield number, dict(zip(columns, cells))


def has_names(path: str | Path, columns: Mapping[str, str] | None = None) -> bool:
    """Return whether the columns of a file have names.

    They have by the ending of the file, because a setting names one, or because its first line has a name for each of
    two or more. A single word in the first line of a text is no header.
    """
    columns = columns or {}
    if ending(path) in NAMED or any(columns.values()):
        return True
    return len(columns) > 1 and find_columns(columns, first_cells(path)).keys() == columns.keys()


def first_cells(path: str | Path) -> list[str]:
    """Return the cells of the first line of a file, or the names of the first record of a .jsonl file."""
    path = Path(path)
    if ending(path) == ".jsonl":
        first = next((line for line in iterate_lines(path) if line.strip()), "{}")
        try:
            record = DECODER.decode(first)
        except (ValueError, RecursionError):  # the reader of the file reports this error, with its place
            return []
        return list(record) if isinstance(record, dict) else []
    rows = _csv_rows(path) if ending(path) == ".csv" else tab_rows(path)
    return [cell.strip() for cell in next(rows, (1, []))[1]]


def find_columns(columns: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the name of each key's column among the names of a file; a key without a column is left out.

    The column has the name that `columns` gives to the key. If that is empty, it has the name of the key; if there is
    none, it has a usual name of it, in small or capital letters; of several usual names none is chosen.
    """
    found = {}
    for key, name in columns.items():
        word = key.partition(" ")[0]
        usual = (word, *USUAL_NAMES.get(word, ()))
        if (name or word) in names:
            found[key] = name or word
        elif not name and len(others := [one for one in names if one.strip().lower() in usual]) == 1:
            found[key] = others[0]
    return found


def table_warnings(path: str | Path, columns: Mapping[str, str]) -> Iterator[str]:
    """Yield what is probably wrong in a file without a header: a first line of column names, columns not read."""
    if has_names(path, columns):
        return
    rows = [cells for _, cells in islice(tab_rows(path), CHECKED)]
    first = {cell.strip().lower(): cell.strip() for cell in rows[0][: len(columns)]} if rows else {}
    others = (cell for name, cell in first.items() if name not in columns)
    names: dict[str, list[str]] = {}  # of one setting; that of choices has several columns, "choices 1" and so on
    for key in columns:
        names.setdefault(key.partition(" ")[0], []).append(first.get(key) or next(others, "COLUMN"))
    if first and (HEADER_WORDS.issuperset(first) or _names_columns(rows)):
        named = " ".join(f"data.{key}={','.join(some)}" for key, some in names.items())
        yield f"{path}: its first line looks like a header and is read as an example; give the names: {named}"
    most = max(map(len, rows), default=0)
    if most > len(columns):
        read = f"only the first {len(columns)} are read, as {'<TAB>'.join(columns)}"
        cure = f"add a header and name its columns: {' '.join(f'data.{key}=COLUMN' for key in names)}"
        yield f"{path}: lines have {most} columns, and {read}; to choose others, {cure}"


def _names_columns(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of rows label<TAB>text has names: one word in each cell, and a label that no other row has.

    The other rows have labels that repeat, and texts of several words.
    """
    first, (labels, texts) = rows[0][:2], ([row[place] for row in rows[1:] if len(row) > 1] for place in (0, 1))
    classes = 0 < 2 * len(set(labels)) <= len(labels) and 10 * sum(" " in one.strip() for one in texts) >= 9 * len(
        texts
    )
    return classes and first[0] not in labels and all(cell.strip().isidentifier() for cell in first)


def ending(path: str | Path) -> str:
    """Return the ending of a file name, without that of a compressed file: ".csv" for "train.csv.gz"."""
    path = Path(path)
    return (path.with_suffix("") if path.suffix in PACKED else path).suffix.lower()


# -- CSV and TSV ------------------------------------------------------------------------------------------------------


def _with_header(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the records below a header; every record has as many cells as the header."""
    rows = _csv_rows(path) if ending(path) == ".csv" else tab_rows(path)
    first, cells = next(rows, (1, []))
    header = [cell.strip() for cell in cells]
    where = f"{path}, line {first} (the header)"
    if ending(path) == ".csv" and len(header) == 1 and "\t" in header[0]:
        named = " ".join(f"data.{key}={name or key}" for key, name in columns.items())
        raise UserError(f"{where}: tabs separate its columns; rename the file to .tsv and name the columns: {named}")
    for name, count in Counter(header).items():
        if name and count > 1:
            raise UserError(f'{where}: {count} columns have the name "{_shortened(name)}"; give each its own name.')
    names = find_columns(columns, header)
    _check_columns(where, columns, names, header)
    places = {key: header.index(names[key]) for key in columns}
    for number, cells in rows:
        if len(cells) != len(header):
            cure = "put a cell that contains a delimiter in double quotes"
            cure = cure if ending(path) == ".csv" else "a cell of this format cannot contain a tab: remove the tab"
            cure = cure if len(cells) > len(header) else "give the row a cell for every column"
            raise UserError(f"{path}, line {number}: expected {len(header)} cells, found {len(cells)}; {cure}.")
        yield number, {key: cells[place] for key, place in places.items()}


def tab_rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells between the tabs of every line that is not blank, with its number. Quotes are text."""
    for number, line in enumerate(iterate_lines(path), 1):
        if line.strip():
            yield number, line.split("\t")


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of every row that is not blank, with the line on which the row starts.

    The delimiter is a comma, or a semicolon if the header has semicolons and no comma.
    """
    lines = iterate_lines(path)
    opening: list[str] = []  # blank lines and the first line of the header
    for line in lines:
        opening.append(line)
        if line.strip():
            break
    unquoted = re.sub(r'"[^"]*"', "", opening[-1]) if opening else ""
    delimiter = ";" if ";" in unquoted and "," not in unquoted else ","
    reader = csv.reader((f"{line}\n" for line in chain(opening, lines)), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        limit = csv.field_size_limit(LARGEST)  # a setting of the process: changed for this row only
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            found = "a quoted cell has no end"
            cure = 'put the whole cell in double quotes and write each quote inside it twice ("")'
            if str(error).startswith("new-line"):
                found = "a carriage return outside quotes"
                cure = r"put the cell in double quotes, or save the file with \n at the end of each line"
            elif "expected after" in str(error):
                found = "text after the closing quote of a cell"
            raise UserError(f"{path}, line {start}: {found}; {cure}.") from error
        finally:
            csv.field_size_limit(limit)
        if any(cell.strip() for cell in cells):
            yield start, cells


# -- JSON lines -------------------------------------------------------------------------------------------------------


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_not_json)  # numbers as they are written
NO_TEXT = re.compile("[\0\ud800-\udfff]")  # what an escape can write but a UTF-8 text cannot have


def _json_lines(path: Path, columns: Mapping[str, str], lists: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the records of a file with one JSON object on each line."""
    names: dict[str, str] = {}
    cure = 'write one object on each line, such as {"text": "a fine day"}'
    for number, line in enumerate(iterate_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = DECODER.decode(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: invalid JSON ({error.msg}, character {error.colno}); {cure}.") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: invalid JSON ({error}); {cure}.") from error
        if not isinstance(record, dict):
            raise UserError(f"{where}: {_kind(record)} instead of a JSON object; {cure}.")
        if not names or not all(name in record for name in names.values()):
            names = find_columns(columns, record)
            _check_columns(where, columns, names, record)
        cells: dict[str, str] = {}
        for key in columns:
            name, (word, _, first) = names[key], key.partition(" ")
            many = record.get(name) if word in lists else None
            if isinstance(many, list):
                for place, value in enumerate(many, int(first)):
                    cells[f"{word} {place}"] = _json_cell(where, {name: value}, word, name)
            else:
                cells[key] = _json_cell(where, record, word, name)
        yield number, cells


def _json_cell(where: str, record: dict[str, Any], key: str, name: str) -> str:
    """Return a value of a JSON object as text: a text as it is, a number, true or false as JSON writes it."""
    value = record[name]
    if isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str):
        cure = 'one text such as "sport|politics"' if key == "labels" else "a text or a number"
        raise UserError(f'{where}: "{name}" is {_kind(value)}; give {cure}.')
    check_text(where, name, value)
    return value


def check_text(where: str, name: str, value: str) -> None:
    """Refuse a text of a JSON file that no UTF-8 file could have."""
    if NO_TEXT.search(value):
        raise UserError(rf'{where}: "{name}" has \u0000 or half of a surrogate pair, which is no text; remove it.')


def _kind(value: object) -> str:
    """Return the kind of a JSON value, for an error."""
    return {dict: "an object", list: "a list", type(None): "null"}.get(type(value), "a single value")


# -- errors -----------------------------------------------------------------------------------------------------------


def _check_columns(where: str, columns: Mapping[str, str], found: Mapping[str, str], names: Iterable[str]) -> None:
    """Refuse columns that do not exist: the error has those that exist, and the one with the nearest name."""
    missing = {key: name or key.partition(" ")[0] for key, name in columns.items() if key not in found}
    if not missing:
        return
    there = [_shortened(name) for name in names if name]
    listed = ", ".join(f'"{name}"' for name in there[:LISTED]) + (", …" if len(there) > LISTED else "")
    settings = " ".join(dict.fromkeys(f"data.{key.partition(' ')[0]}=COLUMN" for key in missing))
    how = f"name {'one' if len(missing) == 1 else 'them'} with {settings}"
    if any(key.startswith("{") for key in missing):
        how = "correct the template"
    elif sum(len(name.split()) > 3 or name.replace(".", "", 1).isdigit() for name in there) > 1:
        how = "the line looks like an example: add a line with the names of the columns before it"
    close = nearest(next(iter(missing.values())), there).partition(" Known: ")[0]
    lacking = " or ".join(f'"{name}"' for name in missing.values())
    raise UserError(f"{where}: no column {lacking}; {how}. Columns: {listed or 'none'}.{close}")


def _shortened(text: str) -> str:
    """Return a text as an error can quote it: on one line, and short."""
    text = text.replace("\n", " ")
    return text if len(text) <= 40 else text[:39] + "…"
