"""Photographs with captions: Flickr8k (Hodosh et al. 2013), in $REGARD_DATA/flickr8k, or images of your own.

Two layouts are read. The public distribution has a folder of JPEG files, `Flickr8k.token.txt`, and a list of images for
each part. The other layout has, for each part, `images.PART.tar` and `captions.PART.tsv.gz` with lines
image<TAB>caption. Images stay packed: a tar file is read by the names of its members, and nothing is extracted.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from regard.data.example import Captioned, Corpus, Tokens
from regard.data.files import find_data, iterate_lines, opened
from regard.data.sources import load_files
from regard.data.tables import NAMED, ending, read_table
from regard.errors import UserError
from regard.metrics import caption_words

FOLDER = "flickr8k"
LISTS = {  # of the public distribution: the images of each part
    "train": "Flickr_8k.trainImages.txt",
    "dev": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
LONGEST_NAME = 255  # bytes of a file name
IMAGE_FOLDERS = ("Flicker8k_Dataset", "Flickr8k_Dataset", "Images")  # the first is the spelling of the distribution


@dataclass(frozen=True)
class Flickr8k:
    """Photographs with five captions each (Hodosh et al. 2013), in $REGARD_DATA/flickr8k; or images of your own.

    Captions are in lower case and without punctuation. A training example has one caption, and the five examples of an
    image share its features; an example of the other parts has all five.
    """

    tasks: ClassVar[tuple[str, ...]] = ("caption-features",)

    train: str = ""  # your own captions: lines image<TAB>caption, or a .csv or .jsonl file; if empty, Flickr8k is read
    valid: str = ""  # the same for validation; if empty, 2 % of your images are held out
    test: str = ""  # the same for the test; may be empty
    images: str = ""  # the folder of your images; if empty, the folder of each file of captions
    target_tokens: Tokens = "word"  # the kind of tokens of the captions
    vocab: int = 5000  # the largest size of the vocabulary

    def load(self) -> Corpus:
        if self.train:
            corpus = load_files(self.train, self.valid, self.test, self._read_own, {})
        else:
            train, valid = read_part("train"), read_part("dev")
            for name, part in (("train", train), ("dev", valid)):
                if not part:
                    raise UserError(f"{FOLDER}: no image with a caption in the part {name}; fetch the data again.")
            # The test images are often kept apart.
            corpus = Corpus(train, valid, read_part("test") if _find("test") else [])
        every = [Captioned(one.image, caption) for one in corpus.train for caption in (one.target, *one.others)]
        return replace(corpus, train=every)

    def _read_own(self, path: str) -> list[Captioned]:
        """The images of a file of captions with all their captions."""
        folder = Path(os.path.expanduser(self.images or Path(path).parent))
        wanted = _captions(Path(path))
        return [
            Captioned(_in_folder(name, folder, place), first, tuple(others))
            for name, (place, (first, *others)) in wanted.items()
        ]


def _find(part: str) -> Path | None:
    """The captions of a part, or its list of images in the public distribution; None if neither is there."""
    for name in (f"captions.{part}.tsv.gz", LISTS[part]):
        with suppress(UserError):
            return find_data(f"{FOLDER}/{name}")
    return None


def read_part(part: str) -> list[Captioned]:
    """The images of a part with all their captions."""
    found = _find(part) or find_data(f"{FOLDER}/captions.{part}.tsv.gz")  # which raises the error
    if found.name == LISTS[part]:
        return _read_distribution(found)
    wanted = _captions(found)
    content = read_tar(find_data(f"{FOLDER}/images.{part}.tar"), {name: place for name, (place, _) in wanted.items()})
    return [Captioned(content[name], first, tuple(others)) for name, (_, (first, *others)) in wanted.items()]


def _read_distribution(names: Path) -> list[Captioned]:
    """The images of a list of the public distribution; each is a file that is read when it is used."""
    tokens = names.with_name("Flickr8k.token.txt")
    wanted = _captions(tokens)
    folders = [names.parent / each for each in IMAGE_FOLDERS]
    folder = next((each for each in folders if each.is_dir()), folders[0])
    examples = []
    for number, line in enumerate(iterate_lines(names), 1):
        name, place = line.strip(), f"{names}, line {number}"
        if not name:
            continue
        if name not in wanted:
            raise UserError(f"{place}: {name:.60} has no caption in {tokens.name}; add one, or delete the line.")
        first, *others = wanted[name][1]
        examples.append(Captioned(_in_folder(name, folder, place), first, tuple(others)))
    return examples


def _captions(path: Path) -> Mapping[str, tuple[str, list[str]]]:
    """The captions of each image of a file, and the place of its first line.

    An image may have the number of the caption: "image.jpg#0".
    """
    found: dict[str, tuple[str, list[str]]] = {}
    for place, name, caption in _caption_rows(path):
        if words := caption_words(caption):
            name = re.sub(r"(?<=.)#\d+$", "", name)
            found.setdefault(name, (place, []))[1].append(" ".join(words))
    return found


def _caption_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """The place, the image and the caption of each line image<TAB>caption, or of each record of a table."""
    if ending(path) in NAMED:
        for number, row in read_table(path, {"image": "", "caption": ""}):
            yield f"{path}, line {number}", row["image"].strip(), row["caption"]
        return
    for number, line in enumerate(iterate_lines(path), 1):
        name, tab, caption = line.partition("\t")
        if line.strip() and (not tab or not name.strip()):
            found = f"not image<TAB>caption, found {line[:40]!r}"
            cure = "mend the line, or give a .csv file with the columns image and caption"
            raise UserError(f"{path}, line {number}: {found}; {cure}.")
        yield f"{path}, line {number}", name, caption


def _in_folder(name: str, folder: Path, place: str) -> str:
    """The path of an image in a folder. A name that is a path, which could lead out of the folder, is refused."""
    if Path(name).name != name or len(name.encode()) > LONGEST_NAME:
        raise UserError(f"{place}: {name!r:.60} is no plain file name; give the name of an image in the folder.")
    if not (folder / name).is_file():
        raise UserError(f"{place}: names {name:.60}, which is not in {folder}; add the image, or delete the line.")
    return str(folder / name)


def read_tar(path: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    """The content of the wanted members of a tar file; `wanted` has the place at which each is named."""
    found = dict(_members(path, wanted))
    for name, place in wanted.items():
        if name not in found:
            raise UserError(f"{place}: names {name:.60}, which is not in {path}; add the image, or delete the line.")
    return found


def _members(path: Path, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """The plain files of an uncompressed tar file that are wanted, by name; nothing is written to the disk."""
    size = path.stat().st_size
    with opened(path) as file:
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    if member.size < 0:  # the next member would be this one again
                        raise tarfile.ReadError("a member has a negative size")
                    name = member.name.removeprefix("./")
                    if name in wanted and member.isreg() and not member.issparse() and member.size <= size:
                        content = tar.extractfile(member)
                        assert content is not None
                        data = content.read()
                        if len(data) != member.size:
                            raise tarfile.ReadError("unexpected end of data")
                        yield name, data
        except UserError:  # of a packed file that grows too much
            raise
        except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, RecursionError) as error:
            raise UserError(f"{path}: damaged, or not a tar file ({error!s:.80}); fetch it again.") from error
