"""Downloads from a local server: complete or not at all, and only missing files."""

import hashlib
import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from regard.cli.progress import fetch_data
from regard.data.download import REMOTE_FILES, DownloadProgress, RemoteFile, download, fetch
from regard.data.files import find_data
from regard.data.mnist import Mnist
from regard.data.music import PolyphonicMusic
from regard.data.sources import Multi30k, Pairs, Wmt14
from regard.data.streams import Shakespeare
from regard.errors import UserError

TEXT = b"To fetch, or not to fetch.\n" * 40_000
SHA256 = hashlib.sha256(TEXT).hexdigest()


@dataclass
class Served:
    """The address of the server, and the paths that were requested."""

    url: str = ""
    requested: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """`/cut` is truncated, `/long` sends no length, `/gone` does not exist."""

    def __init__(self, served: Served, *given: object) -> None:
        self.served = served
        super().__init__(*given)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.served.requested.append(self.path)
        if self.path == "/gone":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/long":
            self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT[:1000] if self.path == "/cut" else TEXT)

    def log_message(self, *given: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Served]:
    served = Served()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, served)) as http:
        served.url = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield served
        http.shutdown()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def inside(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_file_is_downloaded_with_its_progress(server: Served, cache: Path) -> None:
    reported: list[DownloadProgress] = []
    path = fetch("set/a.txt", RemoteFile(f"{server.url}/a", SHA256), reported.append)
    assert path == cache / "set" / "a.txt" == find_data("set/a.txt")
    assert path.read_bytes() == TEXT
    assert inside(cache) == ["set/a.txt"]
    assert [progress.bytes for progress in reported] == sorted(progress.bytes for progress in reported)
    assert len(reported) > 2
    assert {progress.total for progress in reported} == {len(TEXT)}
    assert (reported[0].sha256, reported[-1].sha256, reported[-1].bytes) == (None, SHA256, len(TEXT))


def test_an_unknown_checksum_is_written_beside_the_file(server: Served, cache: Path) -> None:
    fetch("set/a.txt", RemoteFile(f"{server.url}/long"))
    assert inside(cache) == ["set/a.txt", "set/a.txt.sha256"]
    assert (cache / "set" / "a.txt.sha256").read_text() == f"{SHA256}  a.txt\n"


@pytest.mark.parametrize(
    ("path", "sha256", "message"),
    [
        ("gone", SHA256, "the server answered 404"),
        ("cut", None, f"received 1000 of {len(TEXT)} bytes"),
        ("a", "0" * 64, f"its SHA-256 is {SHA256}, expected 0000.*try again"),
    ],
)
def test_a_failed_download_leaves_no_file(
    server: Served, cache: Path, path: str, sha256: str | None, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        fetch("set/a.txt", RemoteFile(f"{server.url}/{path}", sha256))
    assert f"{server.url}/{path}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert inside(cache) == []


def test_no_server_at_all(cache: Path) -> None:
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:1/a: cannot be fetched .* put the file at .*set/a\.txt"):
        fetch("set/a.txt", RemoteFile("http://127.0.0.1:1/a"))
    assert inside(cache) == []


def test_a_folder_that_cannot_be_written(server: Served, cache: Path) -> None:
    cache.write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"cannot be written: .*REGARD_CACHE=FOLDER"):
        fetch("set/a.txt", RemoteFile(f"{server.url}/a"))


def test_only_missing_files_are_downloaded(server: Served, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote_files = {name: RemoteFile(f"{server.url}/{name}", SHA256) for name in Multi30k().files}
    (cache / "multi30k").mkdir(parents=True)
    (cache / "multi30k" / "val.de.gz").write_bytes(b"here")
    paths = download(Multi30k(), remote_files=remote_files)
    assert [path.relative_to(cache).as_posix() for path in paths] == list(Multi30k().files)
    assert len(server.requested) == 5
    assert "/multi30k/val.de.gz" not in server.requested
    assert download(Multi30k(), remote_files=remote_files) == paths
    assert len(server.requested) == 5
    # Files in the data folder are found, but none is written there, also without REGARD_CACHE.
    monkeypatch.setenv("REGARD_DATA", str(cache))
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("HOME", str(cache / "home"))
    assert download(Multi30k(), remote_files=remote_files) == paths
    assert fetch("set/a.txt", RemoteFile(f"{server.url}/a")) == cache / "home/.cache/regard/set/a.txt"


def test_a_file_is_searched_in_the_data_folder_first_then_in_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    for folder in (data, cache):
        folder.mkdir()
    monkeypatch.setenv("REGARD_DATA", str(data))
    for name in ("a.txt", "a.txt.gz"):
        other = {"a.txt": "a.txt.gz", "a.txt.gz": "a.txt"}[name]
        best_first = [data / name, data / other, cache / name, cache / other]
        for path in best_first:
            path.write_bytes(b"text")
        for path in best_first:
            assert find_data(name) == path
            path.unlink()
        (data / name).mkdir()  # a folder is no file
        with pytest.raises(UserError) as error:
            find_data(name, "!")
        cure = f"set REGARD_DATA (now {data}) to the folder that holds {name}!"
        assert str(error.value) == f"{data / name}: not found; {cure}"
        (data / name).rmdir()
    monkeypatch.delenv("REGARD_DATA")
    (cache / "a.txt").write_bytes(b"text")
    assert find_data("a.txt") == cache / "a.txt"
    with pytest.raises(UserError, match=r"^b\.txt: not found, as REGARD_DATA is not set; .* holds b\.txt$"):
        find_data("b.txt")


def test_data_without_an_address_is_an_error() -> None:
    with pytest.raises(UserError, match="--download: Pairs is not read from public files"):
        download(Pairs())
    with pytest.raises(UserError, match=r"multi30k/train\.xx\.gz: has no known address"):
        download(Multi30k(source="xx"))


def test_every_file_of_the_public_corpora_has_an_address() -> None:
    music = (PolyphonicMusic("jsb"), PolyphonicMusic("nottingham"), PolyphonicMusic("muse"), PolyphonicMusic("piano"))
    for data in (Shakespeare(), Wmt14(), Multi30k(), Multi30k(source="fr"), Mnist(), *music):
        assert set(data.files) <= REMOTE_FILES.keys()
    for name, remote in REMOTE_FILES.items():
        assert remote.url.startswith("https://")
        assert remote.url.endswith(name.rpartition("/")[2])
        assert remote.sha256 is None or len(remote.sha256) == 64


def test_a_line_is_printed_for_each_complete_file(server: Served, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMOTE_FILES, "tinyshakespeare/input.txt", RemoteFile(f"{server.url}/a", SHA256))
    console = Console(file=io.StringIO(), width=40)
    fetch_data(Shakespeare(), console)
    assert isinstance(console.file, io.StringIO)
    reported = console.file.getvalue()
    assert (
        f"tinyshakespeare/input.txt: {len(TEXT):,} bytes from {server.url}/a, SHA-256 {SHA256}, as expected" in reported
    )
    assert Shakespeare().load().train[0].text.startswith("To fetch")
    fetch_data(Shakespeare(), console)
    assert server.requested == ["/a"]
