"""`regard export`: a trained model for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli import options
from regard.cli.console import notice
from regard.cli.lines import print_line


def export(
    run: options.Run,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", callback=options.writable, help="The directory to write; of word vectors, the file."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            help="transformers, sentence-transformers, ctranslate2 or elmo; of word vectors, word2vec or glove."
        ),
    ] = "transformers",
    average: Annotated[
        int, typer.Option(min=0, help="Average the weights of so many of the run's newest steps; 0: none.")
    ] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what was exported to OUT before.")] = False,
    json: options.Json = False,
    download: options.Download = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Write a model as other tools read it: config.json, weights, tokenizer files.

    The `transformers` library opens the directory with from_pretrained and gets the same numbers.
    `sentence-transformers` opens a model that reads a text whole, with the pooling of `regard embed`. `ctranslate2` is
    for translation Transformers, and takes that package. `elmo` writes an ELMo in its public form, options.json and
    lm_weights.hdf5, without its output layer; it takes the package h5py. Word vectors are written as one file, which
    gensim reads: with --to word2vec as text, or binary if the name ends in .bin; with --to glove as text without a
    first line. A name that ends in .gz gives a compressed file.

    \b
    Examples:
      regard export runs/multi30k multi30k-hf
      regard export runs/shakespeare/steps/005000 shakespeare-hf
      regard export runs/multi30k multi30k-ct2 --to ctranslate2 --average 5
      regard export runs/embed vectors-st --to sentence-transformers
      regard export runs/elmo elmo --to elmo
      regard export runs/word2vec vectors.bin --to word2vec
      regard export runs/glove vectors.txt.gz --to glove
    """
    from regard.verbs import export as write

    done = write(options.opened(run, "cpu", download=download, allow_pickle=allow_pickle), out, to, average, overwrite)
    note = f", {done.averaged} steps averaged" if done.averaged else ""
    files = "" if done.files == (done.path.name,) else f"; {', '.join(done.files)}"
    print_line(vars(done) if json else f"wrote {done.path}: {done.kind}{note}{files}")
    if done.left_out:
        notice(f"{run} also has {', '.join(done.left_out)}, which no export writes; copy what you need")
