"""Caption: search for the best description of each image, with the attention to the image at each word."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.alignment import merge
from regard.data.batches import collate
from regard.data.fields import TargetText
from regard.data.flat import Row, Values
from regard.data.images import read_picture
from regard.decode import Penalty
from regard.errors import UserError
from regard.models.parts import path_of
from regard.recording import Axes, active_tape, pause_recording, record
from regard.render.image_view import ImageView
from regard.verbs.forced import Floats, aligning, fit_target, record_rows
from regard.verbs.given import listed, text_list
from regard.verbs.loaded import Loaded
from regard.verbs.search import Search, best_targets

AT_ONCE = 64  # images of a batch
LIMIT = 60  # tokens of a caption
DRAWN = 320 * 320  # the most pixels of an image in a page


@dataclass(frozen=True, eq=False)
class Caption:
    """A description of an image, and where the model looked at each of its words."""

    image: Any  # as given: a path, the content of a file, or an array (H, W, 3)
    text: str
    score: float  # see `Penalty`; the end of the caption, if generated, counts in the length and in logp
    logp: float
    ended: str  # why the search stopped: "end", "limit", or "given" for a caption that was given
    tokens: list[int]  # without the end
    logps: Floats  # (T,), or (T + 1,) with the end
    words: list[str]
    weights: Floats | None  # (words, cells) the mean over the tokens of a word; None without `align` or attention
    grid: tuple[int, int]  # rows and columns of the cells, which are counted row by row
    about: str = ""  # which model it is from

    @cached_property
    def view(self) -> ImageView:
        """The image with the weights of each word over it."""
        name = str(self.image) if isinstance(self.image, str | Path) else ""
        pixels = self.image if isinstance(self.image, np.ndarray) else read_picture(self.image, DRAWN)
        return ImageView(self.text, pixels, self.words, self.weights, self.grid, name, self.about)


@torch.no_grad()
def caption(
    model: Loaded,
    images: Iterable[Any],
    beam: int = 1,
    penalty: Penalty | float = 1.0,
    limit: int | None = None,
    targets: Iterable[str] | None = None,
    align: bool = True,
) -> list[Caption]:
    """The best caption of each image, and with `align` the attention weights of each of its words.

    An image is the path of a file (JPEG, PNG, WebP), the content of one, or a uint8 array (height, width, 3). With
    `targets` these are the captions, and only the weights are computed. While the caller records the model, the tape
    records one pass of teacher forcing over all captions, and nothing of the search.
    """
    model.expect("caption", model.reads_images)
    if isinstance(images, str | bytes | Path) or (isinstance(images, np.ndarray) and images.ndim == 3):
        raise UserError(f"{images!r:.60}: this is one image; pass a list of images.")
    given = listed(images, "images")
    said = None if targets is None else text_list(targets, "targets")
    if said is not None and len(said) != len(given):
        raise UserError(f"targets: {len(said)} captions for {len(given)} images; give one for each.")
    search = Search(beam, 1, penalty if isinstance(penalty, Penalty) else Penalty(penalty), limit)
    found: list[Caption] = []
    for first in range(0, len(given), AT_ONCE):
        some = given[first : first + AT_ONCE]
        pixels = [np.asarray(one) for one in model.fields["image"].encode(some)]
        with pause_recording(model.module), model.autocast():
            if said is None:
                found += _searched(model, some, pixels, search, align)
            else:
                found += _given(model, some, pixels, said[first : first + AT_ONCE])
    _record(model, found)
    return found


def _searched(model: Loaded, images: Sequence[Any], pixels: list[Values], search: Search, align: bool) -> list[Caption]:
    """The best captions of a batch of images."""
    source = torch.from_numpy(np.stack(pixels)).to(model.device)
    best = best_targets(model, source, None, search, search.limit or LIMIT, align)
    return [
        _captioned(model, image, one.tokens, one.weights, (one.score, one.logp, one.ended, one.logps))
        for image, (one, *_) in zip(images, best)
    ]


def _given(model: Loaded, images: Sequence[Any], pixels: list[Values], targets: Sequence[str]) -> list[Caption]:
    """Given captions of a batch of images, by teacher forcing."""
    tokenizer = model.target_tokenizer
    tokens = [fit_target(model, ids, "target") for ids in tokenizer.encode_batch([text.strip() for text in targets])]
    name, batch = aligning(model), collate(_rows(model, pixels, tokens), model.task)
    with record(model.module, () if name is None else (path_of(name),)) as tape:
        logits = model.module(batch.to(model.device)).float().log_softmax(-1).cpu()  # (B, T, V)
    found = []
    for row, (image, ids) in enumerate(zip(images, tokens)):
        said = torch.tensor(tokenizer.special_tokens.wrap_target(ids)[1:])
        logps = logits[row, : len(said)].gather(1, said[:, None])[:, 0].numpy()
        weights = None if name is None else tape[name][row, : len(ids)].numpy()
        total = float(model.check_finite(logps).sum())
        found.append(_captioned(model, image, ids, weights, (total / max(1, len(said)), total, "given", logps)))
    return found


def _captioned(
    model: Loaded, image: Any, tokens: list[int], weights: Floats | None, scores: tuple[float, float, str, Floats]
) -> Caption:
    """A caption with the weights of its words, given those of its tokens, (T, cells)."""
    tokenizer, grid = model.target_tokenizer, model.module.config.source_grid
    assert grid is not None
    text = tokenizer.decode(tokens)
    if weights is not None:
        grid = grid[0], weights.shape[1] // grid[0]  # a clip may have fewer frames than the model can read
        weights = merge(weights, tokenizer.words(tokens), range(weights.shape[1]))
    score, logp, ended, logps = scores
    return Caption(image, text, score, logp, ended, tokens, logps, text.split(), weights, grid, model.about)


def _rows(model: Loaded, pixels: list[Values], tokens: list[list[int]]) -> list[Row]:
    """The rows of images and captions."""
    field = model.fields["target"]
    assert isinstance(field, TargetText)
    return [{"image": one, "target": np.asarray(field.wrap(ids), np.int64)} for one, ids in zip(pixels, tokens)]


def _record(model: Loaded, found: Sequence[Caption]) -> None:
    """One pass of teacher forcing over all captions, with the labels of its rows and cells, if the caller records."""
    if active_tape(model.module) is None or not found:
        return
    pixels = [np.asarray(one) for one in model.fields["image"].encode([one.image for one in found])]
    rows, columns = found[0].grid
    cells = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    items = [{"cross": Axes(model.captions([], one.tokens)[1], cells, "cross")} for one in found]
    record_rows(model, _rows(model, pixels, [one.tokens for one in found]), items, batch_tokens=math.inf)
