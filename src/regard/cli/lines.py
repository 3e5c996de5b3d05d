"""Reads lines of input as they arrive, and prints lines of output."""

import json
import math
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import chain, islice
from pathlib import Path
from queue import Queue
from typing import IO, TYPE_CHECKING, Any, TypeVar

from regard.cli.console import counted, many, notice
from regard.errors import CONTROL, UserError, escape_controls

if TYPE_CHECKING:
    from regard.data.tokenizers import Tokenizer
    from regard.verbs import Loaded

AHEAD = 512  # the most lines of a chunk
T = TypeVar("T")
Lines = tuple[int, list[str]]  # the number of the first line, and the lines


def chunks(file: str, size: int = AHEAD, bar: bool = True, prints: bool = True) -> Iterator[Lines]:
    """The lines of a file, or of standard input (-), in chunks, each with the number of its first line.

    A bar shows the lines that are done, see `counted`. Lines of standard input are yielded as they arrive, unless a
    `size` is given.
    """
    refuse_text(file)
    path, total = Path(os.path.expanduser(file)), None
    if file == "-" or path.is_fifo():  # <(command) of a shell is a pipe
        arrived = _arriving(_standard_input() if file == "-" else path.open("rb"))
        arrived = arrived if size == AHEAD else _regrouped(arrived, size)
    else:
        from regard.data.files import PACKED, iterate_lines

        blank = _blank(path)
        rest = iter([""] * blank) if blank else iterate_lines(path)
        total = None if path.suffix in PACKED else _count(path)
        arrived = iter(lambda: list(islice(rest, size)), [])
    first = 1
    with counted("lines", total, prints) if bar else nullcontext(lambda more: None) as count:
        for lines in arrived:
            yield first, lines
            first += len(lines)
            count(len(lines))


def refuse_text(file: str, option: str = "") -> None:
    """Refuse a text in the place of a file: a name with spaces that no file has."""
    if len(file.split()) > 1 and not os.path.exists(os.path.expanduser(file)):
        given = f"give it on standard input{option and f' with {option} -'}: echo TEXT | regard …"
        raise UserError(f"{file[:60]}{'…' * (len(file) > 60)}: no such file; if this is a text, {given}")


def _regrouped(arrived: Iterable[list[str]], size: int) -> Iterator[list[str]]:
    """The same lines in chunks of at least this many; the last one may have fewer."""
    held: list[str] = []
    for lines in arrived:
        held += lines
        if len(held) >= size:
            yield held
            held = []
    yield held


def _count(path: Path) -> int:
    """The number of lines of a file."""
    from regard.data.files import opened

    with opened(path) as lines:
        return sum(1 for _ in lines)


def _blank(path: Path) -> int:
    """The number of lines of a file if all of them are blank, else 0."""
    from regard.data.files import opened

    count = 0
    if not path.is_file():
        return 0
    with opened(path) as lines:
        for line in lines:
            if line.strip():
                return 0
            count += 1
    return count


def _standard_input() -> IO[bytes]:
    """A separate reader of standard input for the thread that waits for lines.

    At exit Python takes the lock of sys.stdin's reader; a thread that still waits with it would be fatal.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed; send it lines, or name a FILE.")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (AttributeError, OSError):  # standard input is replaced by a buffer in memory
        return sys.stdin.buffer


def _arriving(stream: IO[bytes]) -> Iterator[list[str]]:
    """Chunks of lines, read by a thread. A chunk is all lines that have arrived: no line waits for a later one."""
    queue: Queue[str | Exception | None] = Queue(AHEAD)  # None is the end

    def read() -> None:
        try:
            for number, line in enumerate(stream, 1):
                queue.put(_decoded(line, number))
            queue.put(None)
        except Exception as error:  # raised again by the reader of the queue
            queue.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        items = [queue.get()]
        while len(items) < AHEAD and not queue.empty():  # this is the only reader of the queue
            items.append(queue.get())
        if lines := [item for item in items if isinstance(item, str)]:
            yield lines
        if isinstance(items[-1], Exception):
            raise items[-1]
        if items[-1] is None:
            return


def _decoded(line: bytes, number: int) -> str:
    from regard.data.files import not_utf8

    if b"\0" in line:
        raise UserError(f"standard input, line {number}: a zero byte, so this is no UTF-8 text; give lines of text.")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise not_utf8(Path("standard input"), number, line[error.start]) from error


@dataclass(frozen=True)
class Chunk:
    """Lines that a model reads together."""

    numbers: Sequence[int]  # the number of each line in its file
    lines: list[str]
    texts: list[Any]  # the lines that are not blank, or their pairs (source, target)

    def print_answers(
        self, answers: Sequence[T], json: bool, cells: Callable[[T], Sequence[str]], between: str = "\t"
    ) -> None:
        """Print the answer to each text, as JSON or by its `cells`. A blank line is answered by a blank line."""
        rest = iter(answers)
        for number, line in zip(self.numbers, self.lines):
            answer = next(rest) if line.strip() else None
            if json:
                print_line(numbered(number, answer))
            else:
                print_line(*([] if answer is None else cells(answer)), between=between)


def text_chunks(model: "Loaded", file: str, paired: bool = False, column: str | None = None) -> Iterator[Chunk]:
    """The lines of a file for a model: texts, or pairs source<TAB>target. A line that is too long is refused.

    With `column`, a file may be a table: its texts are the cells of the column of this name or, if it is empty, of the
    column with a usual name. The unknown tokens are reported at the end.
    """
    from regard.verbs.forced import fit_target

    unknown = UnknownCounter()
    rows = None if column is None else _table_rows({"text": column}, file)
    given = _numbered(chunks(file)) if rows is None else ((at, ["\t".join(row) for row in found]) for at, found in rows)
    for numbers, lines in given:
        there = [(number, line) for number, line in zip(numbers, lines) if line.strip()]
        texts = [_pair(line, number) if paired else line for number, line in there]
        sources = [line.partition("\t")[0] for line in lines] if paired else lines
        unknown.count(model.tokenizer, model.read(sources, numbers), numbers)
        if paired:
            targets = [line.partition("\t")[2].partition("\t")[0].strip() for line in lines]
            encoded = model.target_tokenizer.encode_batch(targets)
            for number, ids in zip(numbers, encoded):
                fit_target(model, ids, f"line {number}")
            unknown.count(model.target_tokenizer, encoded, numbers)
        yield Chunk(numbers, lines, texts)
        sys.stdout.flush()
    unknown.report()


def part_chunks(model: "Loaded", file: str) -> Iterator[Chunk]:
    """The texts of several parts of a file for a model. A text that is too long is refused.

    The unknown tokens are reported at the end.
    """
    from regard.verbs.labelling import checked_parts

    unknown = UnknownCounter()
    for numbers, rows in _table_rows(model.part_columns, file):
        there = [(number, cells) for number, cells in zip(numbers, rows) if cells]
        for number, cells in there:
            parts = checked_parts(model, cells, f"line {number}")
            if model.joined_text is not None:
                model.read_joined([model.joined_value(parts)], number)
        tokens = [list(chain.from_iterable(model.tokenizer.encode_batch(cells))) for cells in rows]
        unknown.count(model.tokenizer, tokens, numbers)
        yield Chunk(numbers, ["\t".join(cells) for cells in rows], [tuple(cells) for _, cells in there])
        sys.stdout.flush()
    unknown.report()


def _numbered(given: Iterable[Lines]) -> Iterator[tuple[Sequence[int], list[str]]]:
    """The chunks of lines with the number of each line."""
    return ((range(first, first + len(lines)), lines) for first, lines in given)


def _table_rows(columns: Mapping[str, str], file: str) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
    """The cells of each line of a file, or of each record of a .csv or .jsonl file, with the lines they start on.

    A table has the columns that the model was trained on. The first line of a file of lines is a header if it has two
    or more cells and among them the names of all columns. A blank line has no cells.
    """
    from regard.data.tables import NAMED, ending, find_columns, first_cells, read_table
    from regard.data.text_pairs import with_choices

    places = None
    if ending(file) in NAMED:
        columns = with_choices(columns, first_cells(file))
        records = list(read_table(file, columns, lists=("choices",)))
        for at in range(0, len(records), AHEAD):
            some = records[at : at + AHEAD]
            yield [line for line, _ in some], [[cell.strip() for cell in row.values()] for _, row in some]
        return
    for first, lines in chunks(file):
        rows = [[cell.strip() for cell in line.split("\t")] if line.strip() else [] for line in lines]
        names = find_columns(with_choices(columns, rows[0]), rows[0]) if first == 1 and len(rows[0]) > 1 else {}
        if names.keys() >= columns.keys():
            places, first, rows = [rows[0].index(name) for name in names.values()], 2, rows[1:]
        if places is not None:
            rows = [[row[place] for place in places if place < len(row)] for row in rows]
        yield range(first, first + len(rows)), rows


def _pair(line: str, number: int) -> tuple[str, str]:
    """The source and the target of a line source<TAB>target."""
    source, _, rest = line.partition("\t")
    source, target = source.strip(), rest.partition("\t")[0].strip()
    if not (source and target):
        raise UserError(f"line {number}: expected source<TAB>target, found {line[:40]!r}")
    return source, target


def count_unknown(model: "Loaded", given: Iterable[Lines], without: str = "") -> Iterator[Lines]:
    """The given chunks of lines. Unknown tokens are reported at the end, except in the part `without` of a line."""
    unknown = UnknownCounter()
    for first, lines in given:
        texts = [line.replace(without, "") for line in lines] if without else lines
        unknown.count(model.tokenizer, model.tokenizer.encode_batch(texts), range(first, first + len(lines)))
        yield first, lines
        sys.stdout.flush()
    unknown.report()


@dataclass(eq=False)
class UnknownCounter:
    """The number of tokens in each text that are not in a model's vocabulary, by the number of the text."""

    found: Counter[int] = field(default_factory=Counter)
    name: str = ""  # the piece of the unknown token

    def count(self, tokenizer: "Tokenizer", tokens: Sequence[Sequence[int]], numbers: Sequence[int]) -> None:
        """Count the unknown tokens of more texts, given the number of each."""
        if (mark := tokenizer.special_tokens.unk) is None:
            return
        if found := {number: unknown for number, text in zip(numbers, tokens) if (unknown := text.count(mark))}:
            self.found.update(found)
            self.name = tokenizer.pieces([mark])[0]

    def report(self) -> None:
        """Print one line on standard error if there were any."""
        if total := self.found.total():
            lines = f"line {min(self.found)}"
            where = lines if len(self.found) == 1 else f"{len(self.found):,} lines, first in {lines}"
            notice(
                f"{many(total, 'token', 'tokens')} in {where}: not in this model's vocabulary, and read as {self.name}"
            )


def numbered(line: int, answer: object | None) -> dict[str, Any]:
    """The object that --json prints for a line: its number, and the names and values of its answer.

    A blank line has no answer, None, so that its object has the number alone. Values that are None are left out.
    """
    found = {} if answer is None else answer if isinstance(answer, Mapping) else vars(answer)
    return {"line": line} | {name: value for name, value in found.items() if value is not None}


def print_line(*cells: str | Mapping[str, Any], between: str = "\t", keep: str = "", digits: int = 7) -> None:
    """Print cells as one line, an object as JSON. Line ends and other control characters of texts are escaped.

    The characters in `keep` are not. Numbers have so many digits; nine are a float32 exactly.
    """
    print(
        between.join(escape_controls(cell, keep) if isinstance(cell, str) else to_json(cell, digits) for cell in cells)
    )


def to_json(value: Mapping[str, Any], digits: int = 7) -> str:
    """JSON on one line, with null for numbers that are not finite; it cannot control a terminal."""
    text = json.dumps(plain(value, digits), ensure_ascii=False, allow_nan=False)
    return CONTROL.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


def plain(value: Any, digits: int = 7) -> Any:
    """A value that JSON can hold: dataclasses as objects, arrays as lists, floats with so many digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), digits) for field in fields(value)}
    if hasattr(value, "tolist"):
        return plain(value.tolist(), digits)
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(item, digits) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def program() -> str:
    """The command that starts this program: its name, or its path if it is not on the PATH (a fresh .venv)."""
    name = "regard"
    if shutil.which(name):
        return name
    return os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).name == name else f"{sys.executable} -m {name}"
