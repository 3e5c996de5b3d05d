"""Public corpora, fetched from their own homes: only when asked, checked, and never half there."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from regard.data.files import cache_folder, find_data
from regard.errors import UserError

CURE = ", or add --download"  # what else to do about a file that has a home
CHUNK = 2**18
PATIENCE = 60  # seconds without a byte


@dataclass(frozen=True)
class Home:
    """Where a file comes from, and what it must be."""

    url: str
    sha256: str | None = None  # None: nobody has told us; then the file's own is noted beside it


@dataclass(frozen=True)
class Arrival:
    """A file on its way, or here."""

    name: str  # its path in the folder
    url: str
    bytes: int  # so far
    total: int | None  # None where the server does not say
    sha256: str | None = None  # of a file that is here now


Progress = Callable[[Arrival], object]

_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
_WMT14 = "https://nlp.stanford.edu/projects/nmt/data/wmt14.en-de"

# The checksums of Multi30k and Shakespeare were taken from copies of these repositories. Those of WMT 14 are not known:
# each file's is noted in a .sha256 beside it when it arrives, for a person to compare.
HOMES: dict[str, Home] = {
    "tinyshakespeare/input.txt": Home(_SHAKESPEARE, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
    **{
        f"multi30k/{name}.gz": Home(f"{_MULTI30K}/{name}.gz", sha256)
        for name, sha256 in {
            "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
            "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
            "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
            "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
            "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            "test_2016_flickr.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
        }.items()
    },
    **{
        f"wmt14/{part}.{language}": Home(f"{_WMT14}/{part}.{language}")
        for part in ("train", "newstest2013", "newstest2014")
        for language in ("en", "de")
    },
}


def download(data: object, progress: Progress = lambda arrival: None, homes: Mapping[str, Home] = HOMES) -> list[Path]:
    """Fetch what of the data's `files` is not there yet; where each of them lies."""
    names: tuple[str, ...] = getattr(data, "files", ())
    if not names:
        raise UserError(f"--download: {type(data).__name__} is not read from public files; leave --download out.")
    return [_present(name) or fetch(name, _home(name, homes), progress) for name in names]


def fetch(name: str, home: Home, progress: Progress = lambda arrival: None) -> Path:
    """One file from its home into the cache folder: written aside, checked, then renamed."""
    path = cache_folder() / name
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sha256 = _receive(name, home, aside, progress)
        if home.sha256 and sha256 != home.sha256:
            cure = "try again; if it stays so, the file has changed at its home"
            raise UserError(f"{home.url}: its SHA-256 is {sha256}, expected {home.sha256}; {cure}.")
        if home.sha256 is None:
            path.with_name(f"{path.name}.sha256").write_text(f"{sha256}  {path.name}\n", encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        cure = "choose another folder with REGARD_CACHE=FOLDER"
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); {cure}.") from error
    finally:
        with suppress(OSError):
            aside.unlink()
    progress(Arrival(name, home.url, path.stat().st_size, path.stat().st_size, sha256))
    return path


def _receive(name: str, home: Home, aside: Path, progress: Progress) -> str:
    """Write what the server sends; its SHA-256."""
    found, count = hashlib.sha256(), 0
    with aside.open("wb") as file:
        try:
            with urllib.request.urlopen(home.url, timeout=PATIENCE) as answer:
                length = answer.headers.get("Content-Length")
                total = int(length) if length else None
                while chunk := answer.read(CHUNK):
                    found.update(chunk)
                    file.write(chunk)
                    count += len(chunk)
                    progress(Arrival(name, home.url, count, total))
        except urllib.error.HTTPError as error:
            raise _unreachable(name, home, f"the server says {error.code} {error.reason}") from error
        except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
            raise _unreachable(name, home, str(getattr(error, "reason", "") or error or "no answer")) from error
        if total is not None and count != total:
            raise _unreachable(name, home, f"{count} of {total} bytes came")
        file.flush()
        os.fsync(file.fileno())
    return found.hexdigest()


def _unreachable(name: str, home: Home, why: str) -> UserError:
    cure = f"try again, or put the file at {cache_folder() / name} yourself"
    return UserError(f"{home.url}: cannot be fetched ({why}); {cure}.")


def _present(name: str) -> Path | None:
    try:
        return find_data(name)
    except UserError:
        return None


def _home(name: str, homes: Mapping[str, Home]) -> Home:
    if name not in homes:
        raise UserError(f"{name}: has no public home that is known here; put it into the folder REGARD_DATA names.")
    return homes[name]
