"""Reading text files: decompression, UTF-8, lines, and an error with a cure for a file that cannot be read."""

from __future__ import annotations

import codecs
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

PACKED = (".gz", ".xz")  # the endings of compressed files


def read_text(path: str | Path) -> str:
    """Return the whole text of a UTF-8 file, which may be compressed (.gz or .xz)."""
    return "".join(_decoded(Path(path).expanduser()))


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a text file without their line ends."""
    return list(iterate_lines(path))


def iterate_lines(path: str | Path) -> Iterator[str]:
    r"""Yield the lines of a text file without their line ends; the file is never in memory as a whole.

    Only \n and \r\n end a line. Other line separators of Unicode can occur inside a sentence, and to split there would
    shift the lines of parallel files.
    """
    return (line.removesuffix("\n").removesuffix("\r") for line in _decoded(Path(path).expanduser()))


def read_parallel(source_path: str | Path, target_path: str | Path) -> list[Pair]:
    """Return the pairs of two parallel files: line n of one and line n of the other, both stripped."""
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        counts = f"{source_path} has {len(sources)} lines, {target_path} has {len(targets)}"
        raise UserError(f"{counts}; parallel files must correspond line for line.")
    return [Pair(source.strip(), target.strip()) for source, target in zip(sources, targets)]


def data_folder() -> Path | None:
    """Return the folder of public corpora: the value of REGARD_DATA, or None if it is not set."""
    return _folder("REGARD_DATA")


def cache_folder() -> Path:
    """Return the folder for downloads: the value of REGARD_CACHE, else of REGARD_DATA, else ~/.cache/regard."""
    return _folder("REGARD_CACHE") or data_folder() or Path("~/.cache/regard").expanduser()


def find_data(name: str, cure: str = "") -> Path:
    """Return the path of a file in the data folder or the download folder, compressed with gzip or not."""
    folders = [folder for folder in (data_folder(), cache_folder()) if folder is not None]
    plain = name.removesuffix(".gz")
    for path in (folder / each for folder in folders for each in (name, plain, f"{plain}.gz")):
        if path.is_file():
            return path
    if data_folder() is None:
        raise UserError(f"{name}: not found, as REGARD_DATA is not set; set it to the folder that holds {name}{cure}")
    now = f"set REGARD_DATA (now {folders[0]}) to the folder that holds {name}{cure}"
    raise UserError(f"{folders[0] / name}: not found; {now}")


def _folder(variable: str) -> Path | None:
    """Return the folder in an environment variable, or None if the variable is not set."""
    folder = os.environ.get(variable)
    return Path(folder).expanduser() if folder else None


@contextmanager
def opened(path: Path) -> Iterator[gzip.GzipFile | lzma.LZMAFile | io.BufferedReader]:
    """Open a file for reading bytes, decompressed according to its ending; raise a UserError if that fails."""
    try:
        with _open(path) as file:
            yield file
    except (UserError, UnicodeError):  # errors about the content come from the code inside the with block
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
    """Return the error for a byte that is not valid UTF-8."""
    cure = "convert it, for example with: iconv -f latin1 -t utf-8"
    return UserError(f"{path}, line {line}: not UTF-8 (byte {byte:#04x}); {cure}")


def _decoded(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their line ends; raise a UserError if the file is empty, binary or not UTF-8."""
    blank, offset = True, 0  # are all lines so far blank? At which byte does the line start?
    with opened(path) as file:
        for number, data in enumerate(file, 1):
            if (zero := data.find(b"\0")) >= 0:
                found = f"byte {offset + zero} is zero, so this is a binary file or UTF-16"
                raise UserError(f"{path}: {found}; save it as UTF-8 text.")
            text = data.removeprefix(codecs.BOM_UTF8) if number == 1 else data
            blank = blank and not text.strip()
            offset += len(data)
            try:
                line = text.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8(path, number, text[error.start]) from error
            yield line
    if blank:
        raise UserError(f"{path}: the file is empty; give one with some text in it.")
