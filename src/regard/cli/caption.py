"""`regard caption`: captions of images, and the attention to the image at each word."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.console import SafeConsole, notice
from regard.cli.lines import print_line
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
    if out is not None and out.suffix.lower() != ".html" and len(images) > 1:
        raise UserError(f"-o {out}: several images are written as one page; end the name in .html.")
    print_captions(options.opened(run, device, precision), images, search, target, out, json)


def print_captions(
    model: "Loaded", images: Sequence[Path], search: "Search", target: str | None, out: Path | None, json: bool
) -> None:
    """Print the captions of images, or the attention of a given caption, and write them to a file."""
    from regard import verbs
    from regard.file_io import write_file
    from regard.render.image_view import images_html

    targets = None if target is None else [target] * len(images)
    found = verbs.caption(model, images, search.beam, search.penalty, search.limit, targets)
    for one in found:
        if json:
            scores = {"score": one.score, "logp": one.logp, "ended": one.ended}
            looked = {"words": one.words, "grid": one.grid, "weights": one.weights}
            print_line({"image": str(one.image), "caption": one.text, **scores, **looked})
        elif len(found) > 1:
            print_line(str(one.image), one.text)
        else:
            SafeConsole().print(one.view.text())
    if out is not None:
        if len(found) == 1:
            found[0].view.save(out)
        else:
            write_file(out, images_html([one.view for one in found]))
        notice(f"wrote {out}")
