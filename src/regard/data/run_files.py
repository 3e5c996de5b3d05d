"""The files that a run reads, known by their contents: a file that was moved or renamed is still the same file.

For each setting of the data that names files, a run stores the path as it was given, where that was, and the SHA-256 of
what is in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from regard.data.files import split_paths
from regard.data.tables import NAMED, ending
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
        same_form = ending(path) == ending(self.path) or not {ending(path), ending(self.path)} & {*NAMED}
        return same_form and there.is_file() and contents_sha256(path) == self.sha256


RunFiles = Mapping[str, tuple[RunFile, ...]]  # by the name of a setting, such as data.train


def run_files(data: Any) -> dict[str, tuple[RunFile, ...]]:
    """The files that data names by its settings. A setting whose value is no path of a file has none."""
    given = {name: split_paths(value) for name, value in named_paths(data)}
    return {name: tuple(map(_run_file, paths)) for name, paths in given.items() if all(map(_exists, paths))}


def _run_file(path: str) -> RunFile:
    there = Path(os.path.expanduser(path))
    return RunFile(path, os.path.abspath(there), "" if there.is_dir() else contents_sha256(path))


def _exists(path: str) -> bool:
    return os.path.exists(os.path.expanduser(path))


def named_paths(data: Any, place: str = "data") -> Iterator[tuple[str, str]]:
    """The settings of data that may name files, and their values."""
    for field in fields(data):
        value, name = getattr(data, field.name), f"{place}.{field.name}"
        if is_dataclass(value):
            yield from named_paths(value, name)
        elif field.name in SETTINGS and isinstance(value, str) and value:
            yield name, value


def located(data: T, files: RunFiles) -> T:
    """The same data, read from where its files are now; other contents than those of the run are refused.

    A file is looked for at the path of the setting, and then, if the run was started with that path, where that was.
    """
    given = dict(named_paths(data))
    if missing := [name for name in files if name not in given]:
        before = ",".join(file.path for file in files[missing[0]])
        raise UserError(f"{missing[0]}=: the run was started with {before}; name that file, or where it is now.")
    found = {
        name: ",".join(_place(name, path, file) for path, file in _pairs(name, given[name], several))
        for name, several in files.items()
    }
    return _with_paths(data, found)


def moved(files: RunFiles, data: Any, found: Any) -> dict[str, tuple[RunFile, ...]]:
    """The files of a run whose data is now given like `data`, and was found like `found` by `located`."""
    given, places = dict(named_paths(data)), dict(named_paths(found))
    return {
        name: tuple(
            RunFile(path, os.path.abspath(os.path.expanduser(place)), file.sha256)
            for (path, file), (place, _) in zip(_pairs(name, given[name], several), _pairs(name, places[name], several))
        )
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


def _place(name: str, path: str, file: RunFile) -> str:
    places = [path]
    if path == file.path and os.path.abspath(os.path.expanduser(path)) != file.absolute:
        places.append(file.absolute)
    for place in places:
        if file.is_at(place):
            return place
    cure = f"if it was moved, give {name}=PATH to eval, or to train --resume, which stores it"
    if there := [place for place in places if _exists(place)]:
        changed = f"the contents of {' and of '.join(there)} are not what the run was started with"
        raise UserError(f"{name}={path}: {changed}; restore them, or {cure}.")
    elsewhere = "".join(f", nor {place}" for place in places[1:])
    raise UserError(f"{name}={path}: no such file{elsewhere}; restore it, or {cure}.")


def _with_paths(data: T, paths: Mapping[str, str], place: str = "data") -> T:
    changes: dict[str, Any] = {}
    for field in fields(data):  # type: ignore[arg-type]
        value, name = getattr(data, field.name), f"{place}.{field.name}"
        if is_dataclass(value):
            changes[field.name] = _with_paths(value, paths, name)
        elif name in paths and paths[name] != value:
            changes[field.name] = paths[name]
    return replace(data, **changes) if changes else data  # type: ignore[type-var]


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
