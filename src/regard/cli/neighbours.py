"""`regard neighbours`: the words nearest to a word, or to a sum of words."""

from typing import Annotated

import typer

from regard.cli import options
from regard.cli.console import SafeConsole, grid
from regard.cli.lines import print_line
from regard.errors import UserError


def neighbours(
    run: options.Run,
    question: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="A word, or words with + and - between them.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many words to show.")] = 10,
    json: options.Json = False,
    device: options.Device = "auto",
) -> None:
    """The words nearest to a word, by the cosine of their vectors.

    DIR is a run of word2vec or glove, or a file of vectors: word2vec's text or binary format or GloVe's, compressed
    (.gz) or not. Words with + and - between them are added: king - man + woman is near queen if the vectors have learnt
    it. The words of the question are no answers. A word that has no vector is looked up in lower case; else the nearest
    spellings are offered.

    \b
    Examples:
      regard neighbours runs/word2vec river
      regard neighbours runs/glove king - man + woman --top 5
      regard neighbours vectors.txt.gz paris - france + italy --json
    """
    from regard import verbs

    if not question:
        raise UserError(f"neighbours: give a word, such as: regard neighbours {run} river")
    found = verbs.neighbours(options.opened(run, device), question, top)
    if json:
        print_line({"question": " ".join(question), "neighbours": [one._asdict() for one in found]})
        return
    rows = [[one.word, f"{one.cosine:.3f}"] for one in found]
    SafeConsole().print(grid(f"Nearest to {' '.join(question)}", ["word", "cosine"], rows))
