"""`regard embed`: lines in, vectors out."""

import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import options
from regard.cli.lines import Lines, chunks, count_unknown, numbered, print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.verbs import Loaded
    from regard.verbs.pooling import Pooling

TOGETHER = 4096  # lines that are sorted by length and embedded together: more lines give less padding


def embed(
    run: options.Run,
    file: options.File = "-",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", callback=options.writable_file, help="Write the .npz here, not to standard output."
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="mean, max, cls (first), last: one vector a line; tokens: one a token. Default: the model's, or mean."
        ),
    ] = None,
    normalise: Annotated[
        bool | None,
        typer.Option(
            "--normalise/--no-normalise",
            "--normalize/--no-normalize",
            help="Vectors of length one. Default: the model's own.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--as", help="cove: of a translator, the embedding of each token and the state of its encoder."),
    ] = None,
    layers: Annotated[
        str, typer.Option(help="last; first (the embeddings); mix (the mean of all layers); or all: one vector each.")
    ] = "last",
    words: Annotated[
        bool, typer.Option("--words", help="One vector for each word, with its place in the line.")
    ] = False,
    carry: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="ELMo: read N lines at a time, each from the state after the line N before it; 0: from zeros.",
        ),
    ] = 0,
    json: options.Json = False,
    *,
    reading: options.Reading,
) -> None:
    """Turn every line, or every word, into a vector: the mean or maximum of the model's states, the first, or all.

    Works with every model; of a translator these are the states of the source. A model of `regard train embed` and the
    directory of a sentence-transformers model have settings of pooling, which are the default. The .npz holds
    `vectors`, float32, in the order of the lines; with --pool tokens also `lengths`, how many of them each line has.
    The special tokens around a line count as tokens. A blank line has a vector like any other.

    With --words every word between spaces has a vector: the mean of the states of its pieces. The .npz then has
    `vectors`, `lengths` (words of each line) and `offsets` (first character of a word, and the one after its last);
    --json prints each word with `start` and `end`. With --layers all, a vector of each layer.

    With --as cove a vector is the embedding of a token and then its state in the encoder of a translator (CoVe, McCann
    et al. 2017); without --pool and --words, each token has one.

    \b
    Examples:
      regard embed bert/ < lines.txt > out.npz
      regard embed bert/ lines.txt --pool cls --normalize -o out.npz
      regard embed runs/translate --pool tokens < lines.txt > out.npz
      regard embed runs/translate --as cove --words < lines.txt > out.npz
      regard embed hf:sentence-transformers/all-MiniLM-L6-v2 --download --json < lines.txt
      regard embed elmo/ --words --layers all --carry 3 < lines.txt > words.npz
    """
    from regard.verbs.embedding import chosen
    from regard.verbs.words import check_layers

    if out is None and not json and sys.stdout.isatty():
        raise UserError("embed: vectors are binary, and this is a terminal; give > out.npz, --out out.npz or --json.")
    if form is not None and (form != "cove" or layers != "last"):
        raise UserError(f"--as {form}: give --as cove, without --layers.")
    if layers == "cove":
        raise UserError("--layers cove: is no layer; give --as cove.")
    layers, pool = form or layers, "tokens" if form and pool is None and not words else pool
    check_layers(layers)
    if words and (pool is not None or normalise is not None):
        raise UserError("--words: has no pooling and no normalisation; leave --pool and --normalise out.")
    if carry and not words:
        raise UserError(f"--carry {carry}: works with --words only; add --words, or leave it out.")
    model = reading.open(run)
    given = chunks(file) if json else chunks(file, TOGETHER, prints=file == "-")
    if not model.module.config.characters:  # no word is unknown to a model that reads characters
        given = count_unknown(model, given)
    if words:
        _words(model, given, layers, carry, reading.batch_tokens, json, out)
        return
    _lines(model, given, chosen(model, pool, normalise), layers, reading.batch_tokens, json, out)


def _lines(
    model: "Loaded",
    given: Iterable[Lines],
    pooling: "Pooling",
    layers: str,
    batch_tokens: int,
    json: bool,
    out: Path | None,
) -> None:
    """The vectors of all lines, or of their tokens, as JSON or as one .npz."""
    from regard.verbs.embedding import gathered

    parts = []
    for first, lines in given:
        part = gathered(model, lines, pooling, batch_tokens, first, layers)
        if not json:
            parts.append(part)
            continue
        for number, (length, end) in enumerate(zip(part.lengths, part.lengths.cumsum()), first):
            vectors = part.vectors[end - length : end]
            found = {"vectors": vectors} if pooling.pool == "tokens" else {"vector": vectors[0]}
            print_line(numbered(number, found))
    if not json:
        arrays = {"vectors": [part.vectors for part in parts]}
        _write(arrays | ({"lengths": [part.lengths for part in parts]} if pooling.pool == "tokens" else {}), out)


def _words(
    model: "Loaded", given: Iterable[Lines], layers: str, carry: int, batch_tokens: int, json: bool, out: Path | None
) -> None:
    """The vectors of the words of all lines, as JSON or as one .npz."""
    import numpy as np

    from regard.verbs.words import embed_words, iterate_words

    found, numbers = [], count(1)
    for part in iterate_words(model, (lines for _, lines in given), layers, carry, batch_tokens):
        for line, number in zip(part, numbers):
            if json:
                name = "vectors" if layers == "all" else "vector"
                each = zip(line.words, line.spans, line.vectors)
                shown = [{"word": word, "start": at, "end": end, name: vector} for word, (at, end), vector in each]
                print_line(numbered(number, {"words": shown} if shown else None), digits=9)
            else:
                found.append(line)
        sys.stdout.flush()
    if not json:
        lengths = [np.array([len(line.words) for line in found], np.int64)]
        some = found or embed_words(model, [""], layers)  # without lines, the arrays have their widths too
        spans = [np.array(line.spans, np.int64).reshape(-1, 2) for line in some]
        _write({"vectors": [line.vectors for line in some], "lengths": lengths, "offsets": spans}, out)


def _write(parts: "dict[str, list[Any]]", out: Path | None) -> None:
    """One .npz of all lines, in its file or on standard output: the arrays of each name, joined."""
    import numpy as np

    from regard.file_io import as_user_error, atomic_write

    arrays: dict[str, Any] = {name: np.concatenate(part) for name, part in parts.items()}
    if out is None:
        np.savez(sys.stdout.buffer, allow_pickle=False, **arrays)
        return
    with as_user_error(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as whole:
        np.savez(whole, allow_pickle=False, **arrays)
