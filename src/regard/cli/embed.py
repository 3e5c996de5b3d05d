"""`regard embed`: lines in, vectors out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.lines import chunks, count_unknown, print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.verbs import Embedded

TOGETHER = 4096  # lines that are sorted by length and embedded together: more lines give less padding


def embed(
    run: options.Run,
    file: options.File = "-",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the .npz here, not to standard output.")
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="mean, max or cls (first): one vector a line; tokens: one a token. Default: the model's own, or mean."
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
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    batch_tokens: options.BatchTokens = 8192,
    long: options.Long = "error",
    download: options.Download = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Turn every line into a vector: the mean or maximum of the model's last states, the first of them, or all.

    Works with every model; of a translator these are the states of the source. The directory of a
    sentence-transformers model has settings of pooling, which are the default. The .npz holds
    `vectors`, float32, in the order of the lines; with --pool tokens also `lengths`, how many of them each line has.
    The special tokens around a line count as tokens. A blank line has a vector like any other.
    With --as cove a vector is the embedding of a token and then its state in the encoder of a translator (CoVe, McCann
    et al. 2017); without --pool, each token has one.

    \b
    Examples:
      regard embed bert/ < lines.txt > out.npz
      regard embed bert/ lines.txt --pool cls --normalize -o out.npz
      regard embed runs/translate --pool tokens < lines.txt > out.npz
      regard embed runs/translate --as cove < lines.txt > out.npz
      regard embed hf:sentence-transformers/all-MiniLM-L6-v2 --download --json < lines.txt
    """
    from regard.verbs.cove import cove_states
    from regard.verbs.embedding import chosen, gathered, last_states

    if form not in (None, "cove"):
        raise UserError(f"--as {form}: no such form of vectors; give --as cove, or leave it out.")
    if out is None and not json and sys.stdout.isatty():
        raise UserError("embed: vectors are binary, and this is a terminal; give > out.npz, --out out.npz or --json.")
    model = options.opened(run, device, precision, long, download, allow_pickle)
    pooling = chosen(model, pool or ("tokens" if form else None), normalise)
    states_of = cove_states if form else last_states
    parts = []
    for first, lines in count_unknown(model, chunks(file) if json else chunks(file, TOGETHER, prints=file == "-")):
        part = gathered(model, lines, pooling, batch_tokens, first, states_of)
        if json:
            ends = part.lengths.cumsum()
            for number, (length, end) in enumerate(zip(part.lengths, ends), first):
                vectors = part.vectors[end - length : end]
                found = {"vectors": vectors} if pooling.pool == "tokens" else {"vector": vectors[0]}
                print_line({"line": number, **found})
        else:
            parts.append(part)
    if not json:
        _write(parts, pooling.pool, out)


def _write(parts: "list[Embedded]", pool: str, out: Path | None) -> None:
    """One .npz of all lines, in its file or on standard output."""
    import numpy as np

    from regard.file_io import as_user_error, atomic_write

    arrays = {"vectors": np.concatenate([part.vectors for part in parts])}
    if pool == "tokens":
        arrays["lengths"] = np.concatenate([part.lengths for part in parts])
    if out is None:
        np.savez(sys.stdout.buffer, allow_pickle=False, **arrays)
        return
    with as_user_error(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as whole:
        np.savez(whole, allow_pickle=False, **arrays)
