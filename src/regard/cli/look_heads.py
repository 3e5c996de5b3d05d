"""`regard look --off` and `--rank-heads`: what a model says without some of its heads."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING

from regard.cli.console import SafeConsole, counted, grid
from regard.cli.lines import print_line

if TYPE_CHECKING:
    from regard.report.sections import Cell
    from regard.verbs import Ablation, Loaded, Said

MOST_PLACES = 4  # masks whose candidates the terminal shows


def print_ablation(model: "Loaded", text: str | tuple[str, str], heads: Sequence[str], beam: int, json: bool) -> None:
    """Print the answer with some heads changed beside the original one."""
    from regard.verbs import ablate

    found = ablate(model, text, heads, beam)
    if json:
        print_line(vars(found))
        return
    console = SafeConsole()
    console.print(found.sentence, style="bold", highlight=False, markup=False)
    if found.deltas and found.kind not in ("class", "choice"):
        columns, rows = _token_table(found)
        console.print("", grid("", columns, rows), f"sum of Δ log p: {shown(found.delta)}", highlight=False)
    places = list(zip(found.before.places, found.after.places)) if found.kind not in ("tag", "replaced") else []
    for number, (before, after) in enumerate(places[:MOST_PLACES] if len(places) <= MOST_PLACES else [], 1):
        rows = [
            [one.piece, f"{one.probability:.4f}", other.piece, f"{other.probability:.4f}"]
            for one, other in zip(before, after)
        ]
        title = {"next": "The next token", "masked": f"Mask {number}"}.get(found.kind, "The answer")
        console.print("", grid(title, ["original", "p", "changed", "p "], rows))


def shown(number: float) -> str:
    """A number with four decimals, without a sign of zero."""
    text = f"{number:.4f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _token_table(found: "Ablation") -> tuple[list[str], list[list["Cell"]]]:
    """The tokens of the original answer with their log-probabilities, and those of the new answer beside them."""
    before, after = found.before, found.after
    numbers = list(zip(before.logps, after.logps, found.deltas))
    own = found.kind == "masked" and before.pieces != found.pieces  # hidden tokens, and what the model finds for each
    columns = [*(["token", "original"] if own else ["original"]), *(["changed"] if after.pieces else [])]
    rows: list[list[Cell]] = []
    for at, to in _aligned(found.kind, before if after.pieces and not own else None, found):
        piece = "" if at is None else found.pieces[at]
        new = "" if to is None or not after.pieces else after.pieces[to]
        old = before.pieces[at] if own and at is not None else piece
        cells: list[Cell] = [piece, old] if own else [piece]
        if after.pieces:
            cells.append(new if new == old else f"≠ {new}".strip())
        rows.append([*cells, *(["", "", ""] if at is None else [shown(one) for one in numbers[at]])])
    return [*columns, "log p", "changed log p", "Δ log p"], rows


def _aligned(kind: str, before: "Said | None", found: "Ablation") -> Iterator[tuple[int | None, int | None]]:
    """Pairs of places in the original answer and the new one: those of equal tokens, and of tokens between them."""
    if kind != "target" or before is None:
        yield from ((at, at) for at in range(len(found.pieces)))
        return
    matcher = SequenceMatcher(None, found.pieces, found.after.pieces, autojunk=False)
    for _, first, last, new_first, new_last in matcher.get_opcodes():
        yield from zip_longest(range(first, last), range(new_first, new_last))


def print_ranking(model: "Loaded", text: str | tuple[str, str], json: bool) -> None:
    """Print all heads, each switched off alone, by the damage to the original answer."""
    from regard.verbs import rank_heads
    from regard.verbs.head_changes import heads_of

    with counted("heads", len(heads_of(model)), prints=False) as report:
        found = rank_heads(model, text, report=report)
    if json:
        for one in found:
            print_line(vars(one))
        return
    what = "Δ number" if model.task.head == "number" else "Δ log p"
    rows: list[list[Cell]] = [[one.name, shown(one.delta), "changes" if one.changed else "stays"] for one in found]
    SafeConsole().print(grid("Each head off alone, the most damage first", ["head", what, "answer"], rows))
