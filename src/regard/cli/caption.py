"""`regard caption`: captions of images, and the attention to the image at each word."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.console import SafeConsole, notice
from regard.cli.lines import UnknownCounter, print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.verbs import Loaded
    from regard.verbs.search import Search


def caption(
    run: options.Run,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE…", help="Image files: JPEG, PNG or WebP.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write .html; one image also .svg or .npz.")] = None,
    target: Annotated[str | None, typer.Option(help="Show this caption instead of the model's own.")] = None,
    beam: options.Beam = 1,
    penalty: options.Penalty = 1.0,
    limit: Annotated[int | None, typer.Option(min=1, help="The most tokens of a caption; else 60.")] = None,
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
) -> None:
    """Describe images, and show where the model looked at each word.

    Of one image, the terminal shows the caption and a grid for each word: the darker a cell, the more of it was read.
    Of several images, each has one line: its name, a tab, its caption. The HTML is one file that opens offline: the
    image under each word's weights, as a grid or smooth, with a slider for their opacity; the arrow keys step through
    the words. --json has the words, the grid and the weights of each word, row by row.

    \b
    Examples:
      regard caption runs/flickr8k dog.jpg
      regard caption runs/flickr8k dog.jpg --beam 3 -o dog.html
      regard caption runs/flickr8k photos/*.jpg --json > captions.jsonl
    """
    from regard.decode import Penalty
    from regard.verbs.search import Search

    search = Search(beam, 1, Penalty(penalty), limit)  # refuses wrong options before the model is loaded
    print_captions(options.opened(run, device, precision), images, search, target, out, json)


def print_captions(
    model: "Loaded", images: Sequence[Path], search: "Search", target: str | None, out: Path | None, json: bool
) -> None:
    """Print the captions of images, or the attention of a given caption, and write them to a file."""
    from regard import verbs
    from regard.file_io import write_file
    from regard.render.image_view import ImageView, images_html
    from regard.verbs.captioning import AT_ONCE

    if out is not None and out.suffix.lower() != ".html":
        if len(images) > 1:
            raise UserError(f"-o {out}: several images are written as one page; end the name in .html.")
        if out.suffix.lower() not in (".svg", ".npz"):
            raise UserError(f"-o {out}: end the name in .html, .svg or .npz.")
    model.expect("caption", model.reads_images)
    if target is not None:
        unknown = UnknownCounter()
        unknown.count(model.target_tokenizer, model.target_tokenizer.encode_batch([target]), first=1)
        unknown.report()
    views: list[ImageView] = []
    for first in range(0, len(images), AT_ONCE):  # a batch at a time, so that its captions are printed at once
        some = images[first : first + AT_ONCE]
        targets = None if target is None else [target] * len(some)
        for one in verbs.caption(model, some, search.beam, search.penalty, search.limit, targets):
            if json:
                scores = {"score": one.score, "logp": one.logp, "ended": one.ended}
                looked = {"words": one.words, "grid": one.grid, "weights": one.weights}
                print_line({"image": str(one.image), "caption": one.text, **scores, **looked})
            elif len(images) > 1:
                print_line(str(one.image), one.text)
            else:
                SafeConsole().print(one.view.text())
            if out is not None:
                views.append(one.view)
        sys.stdout.flush()
    if out is not None:
        if len(views) == 1:
            views[0].save(out)
        else:
            write_file(out, images_html(views))
        notice(f"wrote {out}")
