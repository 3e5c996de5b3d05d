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
    images: Annotated[
        list[Path] | None, typer.Argument(metavar="IMAGE…", help="Image files: JPEG, PNG or WebP.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", callback=options.writable_file, help="Write .html; one image also .svg or .npz."),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Show this caption instead of the model's own.")] = None,
    beam: options.Beam = 1,
    penalty: options.Penalty = 1.0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="The largest number of tokens of a caption. Default: 60.")
    ] = None,
    extremes: Annotated[
        int | None,
        typer.Option(min=1, help="Without images: the N best and N worst captions of the recipe's data, by CIDEr-D."),
    ] = None,
    split: options.Split = None,
    beside: Annotated[
        Path | None, typer.Option(help="With --extremes: another captioner, whose captions are shown below.")
    ] = None,
    json: options.Json = False,
    *,
    opening: options.Opening,
) -> None:
    """Describe images, and show where the model looked at each word.

    For one image, the terminal shows the caption and a grid for each word: the darker a cell, the more of it was read.
    With several images, each has one line: its name, a tab, its caption. The HTML is one file that opens offline: the
    image under each word's weights, as a grid or smooth, with a slider for their opacity; the arrow keys step through
    the words. --json has the words, the grid and the weights of each word, row by row.

    \b
    Examples:
      regard caption runs/flickr8k dog.jpg
      regard caption runs/flickr8k dog.jpg --beam 3 -o dog.html
      regard caption runs/flickr8k photos/*.jpg --json > captions.jsonl
      regard caption runs/soft --extremes 8 --split valid --beside runs/hard -o extremes.html
    """
    from regard.decode import Penalty
    from regard.verbs.search import Search

    search = Search(beam, 1, Penalty(penalty), limit)  # refuses wrong options before the model is loaded
    if extremes is None:
        if not images:
            raise UserError("IMAGE: give one or more image files; or --extremes 8 for images of the recipe's own data.")
        if split is not None or beside is not None:
            raise UserError("--split and --beside: are for the recipe's own data; give --extremes 8, too.")
        print_captions(opening.open(run), images, search, target, out, json)
        return
    if images or target is not None:
        raise UserError(f"--extremes {extremes}: describes the recipe's own data; leave out IMAGE and --target.")
    if out is None or out.suffix.lower() != ".html":
        raise UserError(f"--extremes {extremes}: is written as a page; give its name, as in: -o extremes.html")
    models = [opening.open(each) for each in (run, beside) if each is not None]
    _write_extremes(models, split, extremes, search, out, json)


def _write_extremes(
    models: "Sequence[Loaded]", split: str | None, count: int, search: "Search", out: Path, json: bool
) -> None:
    """Write the page of the best and the worst captions, and print the measures of all captions."""
    from regard.render.html import save_report
    from regard.render.terminal import sections_text
    from regard.report.captions import extreme_captions

    for model in models:
        model.expect("caption", model.reads_images)
    part, examples = models[0].examples(split)
    found = extreme_captions(models, part, examples, count, search)
    save_report(out, "The best and the worst captions", found.sections())
    if json:
        print_line({**found.numbers, "page": str(out)})
    else:
        SafeConsole().print(sections_text([found.table()]))
    notice(f"wrote {out}")


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
        unknown.count(model.target_tokenizer, model.target_tokenizer.encode_batch([target]), [1])
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
