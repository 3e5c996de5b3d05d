"""The files that a run reads, known by their contents: a file that was moved or renamed is still the same file.

For each setting of the data that names files, a run stores the path as it was given, where that was, and the SHA-256 of
what is in it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from regard.data.files import PACKED, split_paths
from regard.data.tables import READ_BY_ENDING, ending
from regard.data.text_files import contents_sha256
from regard.errors import UserError
from regard.file_io import RESTORE

T = TypeVar("T")
SETTINGS = ("train", "valid", "test", "images")  # the settings of data, ours and a user's own, that may name files


@dataclass(frozen=True)
class RunFile:
    """A file, or a folder of images, that a run was started with."""

    path: str  # as it was given
    absolute: str  # where that was
    sha256: str  # of what is in it, unpacked; of a folder, empty

    def is_at(self, path: str) -> bool:
        """Whether the same contents are at this path. Those of a folder are not compared."""
        there = Path(os.path.expanduser(path))
        if not self.sha256:
            return there.is_dir()
        return self.is_read_like(path) and there.is_file() and contents_sha256(path) == self.sha256

    def is_read_like(self, path: str) -> bool:
        """Whether a file with this path is read in the same way: tables and questions are read by their ending."""
        return ending(path) == ending(self.path) or not {ending(path), ending(self.path)} & {*READ_BY_ENDING}


RunFiles = Mapping[str, tuple[RunFile, ...]]  # by the name of a setting, such as data.train


def run_files(data: Any, known: Mapping[str, str] = {}) -> dict[str, tuple[RunFile, ...]]:
    """The files that data names by its settings; `known` has digests by path.

    A setting whose value is no path of a file has none.
    """
    given = {name: split_paths(value) for name, value in named_paths(data)}
    there = {name: paths for name, paths in given.items() if all(map(_exists, paths))}
    return {name: tuple(_run_file(path, known.get(path)) for path in paths) for name, paths in there.items()}


def packed_digests(data: Any) -> dict[str, str]:
    """The digests of the packed files that data names, by path. They are for `run_files`, after the data is read.

    A file that grows without measure is refused here, before anything is made of its first lines.
    """
    paths = [path for _, value in named_paths(data) for path in split_paths(value)]
    packed = [path for path in paths if Path(path).suffix in PACKED and os.path.isfile(_absolute(path))]
    return {path: contents_sha256(path) for path in packed}


@contextmanager
def unchanged_files(data: Any) -> Iterator[None]:
    """Refuse files that change inside this block, in which they are read and their digests are computed."""
    before = _file_states(data)
    yield
    after = _file_states(data)
    if changed := [path for path, state in before.items() if after.get(path) != state]:
        raise UserError(f"{changed[0]}: changed while it was read; start again when the file is complete.")


def _file_states(data: Any) -> dict[str, tuple[int, ...]]:
    """What changes with the contents of each file that data names: its time, size and place on the disk."""
    paths = [path for _, value in named_paths(data) for path in split_paths(value) if _exists(path)]
    found = {path: os.stat(_absolute(path)) for path in paths if not os.path.isdir(_absolute(path))}
    return {path: (state.st_mtime_ns, state.st_size, state.st_ino, state.st_dev) for path, state in found.items()}


def _run_file(path: str, known: str | None) -> RunFile:
    return RunFile(path, _absolute(path), "" if os.path.isdir(_absolute(path)) else known or contents_sha256(path))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _exists(path: str) -> bool:
    return os.path.exists(_absolute(path))


def named_paths(data: Any, place: str = "data") -> Iterator[tuple[str, str]]:
    """The settings of data that may name files, and their values."""
    for field in fields(data):
        value, name = getattr(data, field.name), f"{place}.{field.name}"
        if is_dataclass(value):
            yield from named_paths(value, name)
        elif field.name in SETTINGS and isinstance(value, str) and value:
            yield name, value


def located(data: T, files: RunFiles) -> tuple[T, dict[str, tuple[RunFile, ...]]]:
    """The same data, read from where its files are now, and these files; other contents than the run's are refused.

    A file is looked for at the path of the setting, and then, if the run was started with that path, where that was.
    """
    given, paths, found = dict(named_paths(data)), dict[str, str](), dict[str, tuple[RunFile, ...]]()
    for name, stored in files.items():
        if name not in given:
            before = ",".join(file.path for file in stored)
            raise UserError(f"{name}=: the run was started with {before}; name that file, or where it is now.")
        places = [(path, find_file(name, path, file), file) for path, file in _pairs(name, given[name], stored)]
        paths[name] = ",".join(place for _, place, _ in places)
        found[name] = tuple(RunFile(path, _absolute(place), file.sha256) for path, place, file in places)
    return with_paths(data, paths), found


def read_elsewhere(data: Any, there: Any) -> list[str]:
    """Sentences about the files that are not at the path of their setting; `there` is what `located` returned."""
    places = dict(named_paths(there))
    return [f"{name}={path}: read from {places[name]}" for name, path in named_paths(data) if places[name] != path]


def only_as_named(files: RunFiles, names: Collection[str]) -> dict[str, tuple[RunFile, ...]]:
    """The same files; those of these settings are at the path that the setting names, or nowhere."""
    return {
        name: tuple(replace(file, absolute=_absolute(file.path)) for file in several) if name in names else several
        for name, several in files.items()
    }


def _pairs(name: str, value: str, files: tuple[RunFile, ...]) -> list[tuple[str, RunFile]]:
    """The path of each file in the value of a setting. The name of a file that is not there may have a comma, too."""
    before = ",".join(file.path for file in files)
    same = ",".join(part.strip() for part in value.split(",")) == before
    paths = [file.path for file in files] if same else split_paths(value)
    if len(paths) != len(files):
        raise UserError(f"{name}={value}: the run was started with {before}; name as many files.")
    return list(zip(paths, files))


def find_file(name: str, path: str, file: RunFile) -> str:
    """Where a file of a run is now, given its path in a setting."""
    places = [path, file.absolute] if path == file.path and _absolute(path) != file.absolute else [path]
    for place in places:
        if file.is_at(place):
            return place
    cure = f"if it was moved, give {name}=PATH to regard eval, or to regard train --resume, which stores it"
    if there := [place for place in places if _exists(place)]:
        changed = f"the contents of {' and of '.join(there)} are not what the run was started with"
        if forms := [place for place in there if not file.is_read_like(place)]:
            changed = f"{forms[0]} is not read as {file.path} is, because of its ending"
        raise UserError(f"{name}={path}: {changed}; restore it, or {cure}; eval --data measures any other file.")
    what, elsewhere = "file" if file.sha256 else "folder", "".join(f", nor {place}" for place in places[1:])
    raise UserError(f"{name}={path}: no such {what}{elsewhere}; restore it, or {cure}.")


def with_paths(data: T, paths: Mapping[str, str], place: str = "data") -> T:
    """The same data with other values of the settings that name files."""
    changes: dict[str, Any] = {}
    for field in fields(data):  # type: ignore[arg-type]
        value, name = getattr(data, field.name), f"{place}.{field.name}"
        if is_dataclass(value):
            changes[field.name] = with_paths(value, paths, name)
        elif name in paths and paths[name] != value:
            changes[field.name] = paths[name]
    return replace(data, **changes) if changes else data  # type: ignore[type-var]


def digests(files: RunFiles) -> dict[str, list[str]]:
    """The digests of the files of each setting."""
    return {name: [file.sha256 for file in several] for name, several in files.items()}


def files_to_json(files: RunFiles) -> dict[str, Any]:
    """The files of a run as recipe.json stores them."""
    return {name: [vars(file) for file in several] for name, several in files.items()}


def files_from_json(content: Any, path: Path) -> dict[str, tuple[RunFile, ...]]:
    """What `files_to_json` wrote; `path` is its file, for errors."""
    names = {field.name for field in fields(RunFile)}
    rows = [row for several in content.values() for row in several] if _is_table(content) else [None]
    if not all(isinstance(row, dict) and row.keys() == names and _is_text(row.values()) for row in rows):
        raise UserError(f"{path}: files: expected the paths and digests of the data; {RESTORE}.")
    return {name: tuple(RunFile(**row) for row in several) for name, several in content.items()}


def _is_table(content: Any) -> bool:
    return isinstance(content, dict) and all(isinstance(several, list) for several in content.values())


def _is_text(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)
