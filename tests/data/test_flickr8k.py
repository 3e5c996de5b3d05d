"""Flickr8k in both layouts, made here from a few tiny images; files with faults."""

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from regard.data.flickr8k import Flickr8k
from regard.data.images import read_image
from regard.errors import UserError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

CAPTIONS = ("A red dog runs .", "A dog", "The Dog's ball !", "a tri-coloured dog", "A dog , running")
WORDS = ["a red dog runs", "a dog", "the dog 's ball", "a tri-coloured dog", "a dog running"]


def picture(kind: str, colour: tuple[int, int, int] = (200, 20, 30)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (12, 10), colour).save(file, kind)
    return file.getvalue()


def write_tar(path: Path, members: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_captions(folder: Path, part: str, *names: str) -> None:
    lines = [f"{name}\t{caption}\n" for name in names for caption in CAPTIONS]
    (folder / f"captions.{part}.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    (tmp_path / "flickr8k").mkdir()
    return tmp_path / "flickr8k"


@pytest.fixture
def packed(folder: Path) -> Path:
    """The layout with tar files: two training images, one for validation."""
    write_tar(folder / "images.train.tar", {"1.webp": picture("WEBP"), "2.webp": picture("WEBP", (9, 9, 9))})
    write_tar(folder / "images.dev.tar", {"./3.webp": picture("WEBP"), "other.txt": b"not wanted"})
    write_captions(folder, "train", "1.webp", "2.webp")
    write_captions(folder, "dev", "3.webp")
    return folder


def test_packed_images_have_their_captions(packed: Path) -> None:
    corpus = Flickr8k().load()
    assert [one.target for one in corpus.train] == WORDS * 2
    assert all(one.image is corpus.train[0].image for one in corpus.train[:5])  # so that features are stored once
    assert (read_image(corpus.train[5].image, 4) == 9).all()
    (valid,) = corpus.valid
    assert [valid.target, *valid.others] == WORDS
    assert np.abs(read_image(valid.image, 4).astype(int) - (200, 20, 30)).max() < 9
    assert not corpus.test
    assert sorted(each.name for each in packed.iterdir()) == [  # nothing was extracted
        "captions.dev.tsv.gz",
        "captions.train.tsv.gz",
        "images.dev.tar",
        "images.train.tar",
    ]


def test_the_public_distribution_is_read(folder: Path) -> None:
    (folder / "Flicker8k_Dataset").mkdir()
    for name in ("1.jpg", "2.jpg"):
        (folder / "Flicker8k_Dataset" / name).write_bytes(picture("JPEG"))
    lines = [
        f"{name}#{k}\t{caption}" for name in ("1.jpg", "2.jpg", "gone.jpg.1") for k, caption in enumerate(CAPTIONS)
    ]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines))
    for part, name in (("train", "1.jpg"), ("dev", "2.jpg"), ("test", "2.jpg")):
        (folder / f"Flickr_8k.{part}Images.txt").write_text(f"{name}\n")
    corpus = Flickr8k().load()
    assert [one.target for one in corpus.train] == WORDS
    assert corpus.train[0].image == str(folder / "Flicker8k_Dataset/1.jpg")
    assert len(corpus.valid[0].others) == len(corpus.test[0].others) == 4
    (folder / "Flicker8k_Dataset/2.jpg").unlink()
    with pytest.raises(UserError, match=r"devImages\.txt, line 1: names 2\.jpg, which is not in .*; add the image"):
        Flickr8k().load()
    (folder / "Flickr_8k.devImages.txt").write_text("9.jpg\n")
    with pytest.raises(UserError, match=r"line 1: 9\.jpg has no caption in Flickr8k\.token\.txt"):
        Flickr8k().load()


def test_images_of_your_own_are_read(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(picture("PNG"))
    captions, other = tmp_path / "captions.tsv", tmp_path / "other" / "valid.tsv"
    captions.write_text("a.png\tA red dog.\na.png\ta dog\nb.png\ta cat\nc.png\ta cow\n", encoding="utf-8")
    corpus = Flickr8k(train=str(captions)).load()
    assert len(corpus.valid) == 1
    assert not corpus.test
    shown = {(one.image, one.target) for one in corpus.train}
    every = {
        (str(tmp_path / name), caption)
        for name, caption in [("a.png", "a red dog"), ("a.png", "a dog"), ("b.png", "a cat"), ("c.png", "a cow")]
    }
    held = {(one.image, caption) for one in corpus.valid for caption in (one.target, *one.others)}
    assert shown | held == every
    assert not {image for image, _ in shown} & {image for image, _ in held}
    other.parent.mkdir()
    other.write_text("b.png\ta cat\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"valid\.tsv, line 1: names b\.png, which is not in .*other; add the image"):
        Flickr8k(train=str(captions), valid=str(other)).load()
    corpus = Flickr8k(train=str(captions), valid=str(other), images=str(tmp_path)).load()
    assert [(one.image, one.target) for one in corpus.valid] == [(str(tmp_path / "b.png"), "a cat")]
    assert len(corpus.train) == 4


def test_captions_of_your_own_may_be_a_table(tmp_path: Path) -> None:
    for name in ("a 1.png", "b.png"):
        (tmp_path / name).write_bytes(picture("PNG"))
    table = tmp_path / "captions.csv"
    table.write_text('\ufeffid,file_name,Caption\n1,a 1.png,"a dog, and\na cat"\n2,b.png,a cow\n', encoding="utf-8")
    corpus = Flickr8k(train=str(table), valid=str(table)).load()
    assert [(Path(one.image).name, one.target) for one in corpus.train] == [
        ("a 1.png", "a dog and a cat"),
        ("b.png", "a cow"),
    ]
    table.write_text("file_name,caption\nnone.png,a dog\n")
    with pytest.raises(UserError, match=r"captions\.csv, line 2: names none\.png, which is not in"):
        Flickr8k(train=str(table)).load()
    lines = tmp_path / "captions.txt"
    lines.write_text("image,caption\nb.png,a cow\n")
    with pytest.raises(UserError, match=r"line 1: not image<TAB>caption.* give a \.csv file with the columns image"):
        Flickr8k(train=str(lines)).load()


def test_a_path_in_a_list_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "Flicker8k_Dataset").mkdir()
    (tmp_path / "secret.jpg").write_bytes(picture("JPEG"))
    (folder / "Flickr8k.token.txt").write_text("../../secret.jpg#0\tA dog\n")
    (folder / "Flickr_8k.trainImages.txt").write_text("../../secret.jpg\n")
    with pytest.raises(UserError, match="is no plain file name"):
        Flickr8k().load()
    (folder / "Flickr8k.token.txt").write_text(f"{'long' * 99}#0\tA dog\n")
    (folder / "Flickr_8k.trainImages.txt").write_text("long" * 99)
    with pytest.raises(UserError, match="is no plain file name"):
        Flickr8k().load()


def test_captions_that_name_a_missing_image_are_refused(packed: Path) -> None:
    write_captions(packed, "train", "1.webp", "lost.webp")
    with pytest.raises(
        UserError, match=r"captions\.train\.tsv\.gz, line 6: names lost\.webp, which is not in"
    ) as error:
        Flickr8k().load()
    assert "\n" not in str(error.value)


def test_members_that_are_no_plain_files_do_not_count(packed: Path) -> None:
    with tarfile.open(packed / "images.dev.tar", "w") as tar:
        link = tarfile.TarInfo("3.webp")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(UserError, match=r"names 3\.webp, which is not in"):
        Flickr8k().load()


@pytest.mark.parametrize("cut", [0, 600])
def test_a_damaged_tar_file_is_refused(packed: Path, cut: int) -> None:
    path = packed / "images.dev.tar"
    path.write_bytes(path.read_bytes()[:cut] or b"no tar file at all" * 100)
    with pytest.raises(UserError, match=r"images\.dev\.tar: damaged, or not a tar file"):
        Flickr8k().load()


def tar_header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """The header of a member of a tar file; `size` is the field of twelve bytes."""
    fields = f"{name:\0<100}".encode() + b"0000644\0" + b"0000000\0" * 2 + size + b"00000000000\0" + b" " * 8 + kind
    block = bytearray(fields.ljust(257, b"\0") + b"ustar\x0000".ljust(255, b"\0"))
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "members",
    [
        tar_header("other", b"\xff" * 10 + b"\xfe\0"),  # −512 bytes: the next member is this one again
        tar_header("3.webp", b"\x80" + b"\xff" * 11),
        (tar_header("long", b"00000000004\0", b"L") + b"name".ljust(512, b"\0")) * 2000,
        tar_header("long", b"\xff" * 10 + b"\xfe\0", b"L"),
    ],
    ids=["negative", "huge", "nested", "negative name"],
)
def test_a_hostile_tar_file_is_refused(packed: Path, members: bytes) -> None:
    path = packed / "images.dev.tar"
    path.write_bytes(tar_header("first", b"00000000000\0") + members + path.read_bytes())
    with pytest.raises(
        UserError, match=r"images\.dev\.tar: damaged, or not a tar file \([^(]*\); fetch it again"
    ) as error:
        Flickr8k().load()
    assert "\n" not in str(error.value)


def test_blank_lines_are_skipped_and_a_number_sign_may_be_in_a_name(packed: Path) -> None:
    write_tar(packed / "images.dev.tar", {"a#b.webp": picture("WEBP"), "c.webp": picture("WEBP")})
    lines = "a#b.webp\tA dog\n\nc.webp#0\tA cat\nc.webp#1\tA bird\n\n"
    (packed / "captions.dev.tsv.gz").write_bytes(gzip.compress(lines.encode()))
    assert [(one.target, one.others) for one in Flickr8k().load().valid] == [("a dog", ()), ("a cat", ("a bird",))]


def test_lines_without_a_tab_and_missing_files_are_refused(packed: Path) -> None:
    (packed / "captions.dev.tsv.gz").write_bytes(gzip.compress(b"3.webp A dog\n"))
    with pytest.raises(UserError, match=r"captions\.dev\.tsv\.gz, line 1: not image<TAB>caption"):
        Flickr8k().load()
    write_captions(packed, "dev", "3.webp")
    write_captions(packed, "test", "4.webp")  # a part that is there is read, and needs its images
    with pytest.raises(UserError, match=r"images\.test\.tar: not found"):
        Flickr8k().load()
    (packed / "captions.dev.tsv.gz").unlink()
    with pytest.raises(UserError, match=r"captions\.dev\.tsv\.gz: not found"):
        Flickr8k().load()


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA is not set")
def test_the_real_files_are_read() -> None:
    if not (Path(os.environ["REGARD_DATA"]) / "flickr8k").is_dir():
        pytest.skip("REGARD_DATA has no flickr8k")
    corpus = Flickr8k().load()
    assert (len(corpus.train), len(corpus.valid)) == (30_000, 1000)
    assert read_image(corpus.valid[0].image, 224).shape == (224, 224, 3)
