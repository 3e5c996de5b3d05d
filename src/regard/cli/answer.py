"""`regard answer`: questions and passages in, spans of the passages out."""

from typing import Annotated

import typer

from regard.cli import options
from regard.cli.lines import chunks, print_line, refuse_text
from regard.errors import UserError

FileOfQuestions = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE", help="Questions with passages: .jsonl, .csv or .tsv with these columns, or SQuAD's .json."
    ),
]
QuestionOption = Annotated[
    list[str] | None, typer.Option("--question", "-q", help="A question about --passage; may be repeated.")
]
Passage = Annotated[
    str | None, typer.Option("--passage", "-p", help="The text file that has the answer; -: standard input.")
]
Top = Annotated[int, typer.Option(min=1, help="The number of spans for each question, the likeliest first.")]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Give no answer if its probability is at least this. Default: if it is likelier than every span."
    ),
]
Longest = Annotated[int, typer.Option(min=1, help="The largest number of tokens of an answer.")]

NONE = "(no answer)"


def answer(
    run: options.Run,
    file: FileOfQuestions = None,
    question: QuestionOption = None,
    passage: Passage = None,
    top: Top = 1,
    threshold: Threshold = None,
    longest: Longest = 30,
    json: options.Json = False,
    batch_tokens: options.BatchTokens = 8192,
    *,
    opening: options.Opening,
) -> None:
    """Answer questions about passages: answer, probability, first and last character, and the sentence around it.

    The first character of a passage has the number 0, and the second number is that of the character after the answer.
    A long passage is read in windows that overlap. If the model was trained with questions that have no answer, it may
    give none. --top prints several lines for each question. --json prints one object for each question, with the
    probability of no answer.

    \b
    Examples:
      regard train answer data.train=train-v2.0.json --out runs/answer
      regard answer runs/answer --question "Who wrote it?" --passage article.txt
      regard answer runs/answer -q "Who wrote it?" -q "When?" -p article.txt --top 3
      regard answer runs/answer questions.jsonl --json > answers.jsonl
    """
    from regard.data.files import read_text
    from regard.render.formatting import format_number
    from regard.verbs.answering import answer as answers

    if (file is None) == (question is None) or (question is None) != (passage is None):
        raise UserError("give --question TEXT and --passage FILE, or a FILE of questions with their passages.")
    model = opening.open(run)
    model.expect("answer questions", model.predicts("span"))
    if question is not None and passage is not None:
        refuse_text(passage, "--passage")
        text = "\n".join(line for _, lines in chunks("-") for line in lines) if passage == "-" else read_text(passage)
        if not text.strip():
            raise UserError(f"--passage {passage}: it has no text; give a file that has the answer.")
        asked = [(one, text) for one in question]
    else:
        asked = _questions(str(file), model.part_columns)
    found = answers(model, asked, top, threshold, longest, batch_tokens)
    for number, (one, (text, _)) in enumerate(zip(found, asked), 1):
        if json:
            print_line({"line": number, "question": text, **vars(one)})
            continue
        if one.start is None:
            print_line(NONE, format_number(one.probability))
        for span in one.spans[: top - (one.start is None)]:
            print_line(span.text, format_number(span.probability), str(span.start), str(span.end), span.sentence)


def _questions(file: str, columns: dict[str, str]) -> list[tuple[str, str]]:
    """The questions of a file, each with its passage. The answers of SQuAD's format are not read."""
    from regard.data.squad import is_squad, read_squad
    from regard.data.tables import read_table

    if is_squad(file):
        return [(one.question, one.passage) for one in read_squad(file)]
    found = []
    for line, row in read_table(file, columns, header=True):
        if not row["question"].strip() or not row["passage"].strip():
            raise UserError(f"{file}, line {line}: the question or the passage is empty; give both.")
        found.append((row["question"], row["passage"]))
    return found
