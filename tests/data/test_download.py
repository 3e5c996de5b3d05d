"""Fetching: from a server of our own, whole or not at all, and only what is missing."""

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

from regard.cli.fetch import fetch_data
from regard.data.download import HOMES, Arrival, Home, download, fetch
from regard.data.files import find_data
from regard.data.sources import Multi30k, Pairs, Wmt14
from regard.data.streams import Shakespeare
from regard.errors import UserError

TEXT = b"To fetch, or not to fetch.\n" * 40_000
SHA256 = hashlib.sha256(TEXT).hexdigest()


@dataclass
class Served:
    """What the server has seen."""

    url: str = ""
    asked: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """`/cut` ends too early, `/long` does not say its length, `/gone` is not there."""

    def __init__(self, served: Served, *given: object) -> None:
        self.served = served
        super().__init__(*given)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
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


def test_a_file_comes_whole_with_its_progress(server: Served, cache: Path) -> None:
    told: list[Arrival] = []
    path = fetch("set/a.txt", Home(f"{server.url}/a", SHA256), told.append)
    assert path == cache / "set" / "a.txt" == find_data("set/a.txt")
    assert path.read_bytes() == TEXT
    assert inside(cache) == ["set/a.txt"]
    assert [arrival.bytes for arrival in told] == sorted(arrival.bytes for arrival in told)
    assert len(told) > 2
    assert {arrival.total for arrival in told} == {len(TEXT)}
    assert (told[0].sha256, told[-1].sha256, told[-1].bytes) == (None, SHA256, len(TEXT))


def test_an_unknown_checksum_is_noted_beside_the_file(server: Served, cache: Path) -> None:
    fetch("set/a.txt", Home(f"{server.url}/long"))
    assert inside(cache) == ["set/a.txt", "set/a.txt.sha256"]
    assert (cache / "set" / "a.txt.sha256").read_text() == f"{SHA256}  a.txt\n"


@pytest.mark.parametrize(
    ("path", "sha256", "says"),
    [
        ("gone", SHA256, "the server says 404"),
        ("cut", None, f"1000 of {len(TEXT)} bytes came"),
        ("a", "0" * 64, f"its SHA-256 is {SHA256}, expected 0000.*try again"),
    ],
)
def test_what_does_not_come_whole_is_not_there(
    server: Served, cache: Path, path: str, sha256: str | None, says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        fetch("set/a.txt", Home(f"{server.url}/{path}", sha256))
    assert f"{server.url}/{path}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert inside(cache) == []


def test_no_server_at_all(cache: Path) -> None:
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:1/a: cannot be fetched .* put the file at .*set/a\.txt"):
        fetch("set/a.txt", Home("http://127.0.0.1:1/a"))
    assert inside(cache) == []


def test_a_folder_that_cannot_be_written(server: Served, cache: Path) -> None:
    cache.write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"cannot be written .*REGARD_CACHE=FOLDER"):
        fetch("set/a.txt", Home(f"{server.url}/a"))


def test_only_what_is_missing_is_fetched(server: Served, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = {name: Home(f"{server.url}/{name}", SHA256) for name in Multi30k().files}
    (cache / "multi30k").mkdir(parents=True)
    (cache / "multi30k" / "val.de.gz").write_bytes(b"here")
    paths = download(Multi30k(), homes=homes)
    assert [path.relative_to(cache).as_posix() for path in paths] == list(Multi30k().files)
    assert len(server.asked) == 5
    assert "/multi30k/val.de.gz" not in server.asked
    assert download(Multi30k(), homes=homes) == paths
    assert len(server.asked) == 5
    # What lies in the data folder is there, and without REGARD_CACHE that is also where files go.
    monkeypatch.setenv("REGARD_DATA", str(cache))
    monkeypatch.delenv("REGARD_CACHE")
    assert download(Multi30k(), homes=homes) == paths
    assert fetch("set/a.txt", Home(f"{server.url}/a")) == cache / "set" / "a.txt"


def test_data_without_a_home_is_refused() -> None:
    with pytest.raises(UserError, match="--download: Pairs is not read from public files"):
        download(Pairs())
    with pytest.raises(UserError, match=r"multi30k/train\.xx\.gz: has no public home"):
        download(Multi30k(source="xx"))


def test_every_file_of_the_public_sets_has_a_home() -> None:
    for data in (Shakespeare(), Wmt14(), Multi30k(), Multi30k(source="fr")):
        assert set(data.files) <= HOMES.keys()
    for name, home in HOMES.items():
        assert home.url.startswith("https://")
        assert home.url.endswith(name.rpartition("/")[2])
        assert home.sha256 is None or len(home.sha256) == 64


def test_a_person_sees_what_came(server: Served, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOMES, "tinyshakespeare/input.txt", Home(f"{server.url}/a", SHA256))
    console = Console(file=io.StringIO(), width=40)
    fetch_data(Shakespeare(), console)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert f"tinyshakespeare/input.txt: {len(TEXT):,} bytes from {server.url}/a, SHA-256 {SHA256}, as it should" in told
    assert Shakespeare().load().train[0].text.startswith("To fetch")
    fetch_data(Shakespeare(), console)
    assert server.asked == ["/a"]
