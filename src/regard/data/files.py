"""Files of text: read whole, checked, and refused with a reason."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.data.example import Pair
from regard.errors import UserError


def read_text(path: str | Path) -> str:
    """A UTF-8 text file as it stands, compressed by gzip (.gz) or xz (.xz) or not."""
    path = Path(path).expanduser()
    with opened(path) as file:
        data = file.read()
    if not data.strip():
        raise UserError(f"{path}: the file is empty; give one with some text in it.")
    if (zero := data.find(b"\0")) >= 0:
        raise UserError(f"{path}: byte {zero} is zero, so this is a binary file or UTF-16; save it as UTF-8 text.")
    try:
        return data.decode("utf-8-sig")  # a byte order mark is no part of the text
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise not_utf8(path, line, data[error.start]) from error


def read_lines(path: str | Path) -> list[str]:
    r"""The lines of a text file, without their ends.

    Only \n and \r\n end a line: the rarer separators of Unicode may stand inside a sentence, and parallel files must
    keep in step.
    """
    return [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]


def read_pairs(path: str | Path) -> list[Pair]:
    """Pairs of source and target, stripped: a tab between them on each line, or two parallel files "src.txt,tgt.txt".

    Of a line with tabs the first two columns count; blank lines are skipped. Parallel files give one pair per line.
    """
    names = str(path).split(",")
    if len(names) == 1 or Path(path).expanduser().exists():  # a name may have a comma in it
        return [Pair(source, target) for _, (source, target, *_) in read_columns(path, "source", "target")]
    if len(names) != 2:
        raise UserError(f"{path}: {len(names)} files; give one file with tabs, or two parallel ones: src.txt,tgt.txt")
    return read_parallel(names[0].strip(), names[1].strip())


def read_parallel(source_path: str | Path, target_path: str | Path) -> list[Pair]:
    """The pairs of two files that correspond line for line, stripped."""
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        counts = f"{source_path} has {len(sources)} lines, {target_path} has {len(targets)}"
        raise UserError(f"{counts}; parallel files must correspond line for line.")
    return [Pair(source.strip(), target.strip()) for source, target in zip(sources, targets)]


def read_columns(path: str | Path, *names: str) -> list[tuple[int, list[str]]]:
    """The line numbers and stripped columns of a file with tabs; each line that is not blank needs one per name."""
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        columns = [column.strip() for column in line.split("\t")]
        if not any(columns):
            continue
        if len(columns) < len(names):
            raise UserError(f"{path}, line {number}: expected {'<TAB>'.join(names)}, found {_shortened(line)}")
        rows.append((number, columns))
    return rows


def data_folder() -> Path | None:
    """Where corpora that are not made here lie: the folder that REGARD_DATA names, if it is set."""
    return _named("REGARD_DATA")


def cache_folder() -> Path:
    """Where what is fetched goes: the folder that REGARD_CACHE names, or else REGARD_DATA, or else ~/.cache/regard."""
    return _named("REGARD_CACHE") or data_folder() or Path("~/.cache/regard").expanduser()


def find_data(name: str, cure: str = "") -> Path:
    """A file of the data folder or of what was fetched, by its path inside it, packed (.gz) or not."""
    folders = [folder for folder in (data_folder(), cache_folder()) if folder is not None]
    plain = name.removesuffix(".gz")
    for path in (folder / each for folder in folders for each in (name, plain, f"{plain}.gz")):
        if path.is_file():
            return path
    if data_folder() is None:
        raise UserError(f"{name}: not found, as REGARD_DATA is not set; set it to the folder that holds {name}{cure}")
    now = f"set REGARD_DATA (now {folders[0]}) to the folder that holds {name}{cure}"
    raise UserError(f"{folders[0] / name}: not found; {now}")


def _named(variable: str) -> Path | None:
    """The folder that a variable of the environment names, if it is set."""
    folder = os.environ.get(variable)
    return Path(folder).expanduser() if folder else None


@contextmanager
def opened(path: Path) -> Iterator[gzip.GzipFile | lzma.LZMAFile | io.BufferedReader]:
    """A file to be read bit by bit, decompressed where its name says so, and refused with a reason if it cannot be."""
    try:
        with _open(path) as file:
            yield file
    except (UserError, UnicodeError):  # what is in the file is for the reader to judge
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check its name and folder.") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; give a file in it.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path}: damaged, or not {path.suffix[1:]} at all ({error}); fetch it again.") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); check its name and permissions.") from error


def _open(path: Path) -> gzip.GzipFile | lzma.LZMAFile | io.BufferedReader:
    match path.suffix:
        case ".gz":
            return gzip.open(path)
        case ".xz":
            return lzma.open(path)
        case _:
            return path.open("rb")


def not_utf8(path: Path, line: int, byte: int) -> UserError:
    """What to say of a byte that no UTF-8 text has there."""
    cure = "convert it, for example with: iconv -f latin1 -t utf-8"
    return UserError(f"{path}, line {line}: not UTF-8 (byte {byte:#04x}); {cure}")


def _shortened(line: str) -> str:
    """A line as an error can quote it."""
    return repr(line if len(line) <= 40 else line[:39] + "…")
