"""The n-grams that the filters of a convolutional classifier respond to: in one text, and in many."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Group
from rich.text import Text as Line
from torch import Tensor

from regard.data.batches import collate
from regard.data.fields import LabelField
from regard.errors import UserError
from regard.file_io import write_file
from regard.render.formatting import format_number
from regard.render.html import save_report
from regard.render.svg import matrix_svg
from regard.render.terminal import MatrixText
from regard.render.view_data import Answer, Floats, Matrix
from regard.report.sections import Cell, Gallery, Section, Table, Text
from regard.verbs.forced import BATCH_TOKENS, axes, grouped, joined_axes, joined_rows, text_rows
from regard.verbs.given import part_list, text_list
from regard.verbs.labelling import joined_values
from regard.verbs.loaded import Loaded
from regard.verbs.predicted import predicted

SHOWN = 16  # filters of a text that are drawn
EXPLAINED = (
    "A filter reads n tokens at a time and gives each such n-gram a number, its feature, which is 0 or more. Of a text "
    "only the largest feature of each filter counts (max over time), so one n-gram wins each filter."
)


@dataclass(frozen=True)
class Ngram:
    """An n-gram and the feature that a filter gives it."""

    filter: int  # from 0, over all sizes
    pieces: tuple[str, ...]  # the tokens of the n-gram; fewer than the filter's size at an end of the text
    feature: float
    start: int = 0  # the place of its first token in the text

    @property
    def text(self) -> str:
        return " ".join(self.pieces)


@dataclass(frozen=True, eq=False)
class FilterView:
    """What the filters of a model find in one text."""

    text: str
    pieces: tuple[str, ...]  # the T tokens
    sizes: tuple[int, ...]  # the n of each of the F filters
    features: Floats  # (T, F), of the n-gram around each token
    output: str  # the class, label or number whose effects are given
    effects: Floats  # (F,) what each filter adds to the output; for a class or label, to its logit
    about: str  # which model this is
    answer: Answer | None = None  # what the model predicts for the text

    @property
    def winners(self) -> list[Ngram]:
        """The n-gram with the largest feature of each filter."""
        places = enumerate(self.features.argmax(0).tolist())
        return [ngram_at(self.pieces, self.features, self.sizes, at, number) for number, at in places]

    @property
    def ranked(self) -> list[int]:
        """The filters by the size of their effects, the largest first."""
        return [int(number) for number in np.argsort(-np.abs(self.effects), kind="stable")]

    def matrix(self, most: int = SHOWN) -> Matrix:
        """Filters × tokens. A cell is the largest feature of the filter's n-grams that have the token."""
        shown = self.ranked[:most]
        cells = np.zeros((len(shown), len(self.pieces)), np.float32)
        for row, number in enumerate(shown):
            size = self.sizes[number]
            for at, feature in enumerate(self.features[:, number]):
                first = at - (size - 1) // 2
                inside = cells[row, max(first, 0) : first + size]
                np.maximum(inside, feature, out=inside)
        label = f"{len(shown)} of {len(self.sizes)} filters, by their effect on {self.output}"
        names = [f"#{number}" for number in shown]
        return Matrix(self.text, label, names, self.pieces, cells, "filters")

    def table(self, most: int | None = SHOWN) -> Table:
        """The n-gram that won each filter, its feature and its effect. None: all filters; a page folds most of them."""
        winners, rows = self.winners, list[list[Cell]]()
        for number in self.ranked[:most]:
            one, effect = winners[number], float(self.effects[number])
            numbers = map(format_number, (one.feature, effect))
            rows.append([f"#{number}", self.sizes[number], one.text if one.feature else "–", *numbers])
        note = f"The effect is what the filter adds to {self.output}. –: no n-gram has a feature above 0."
        if any(len(one.pieces) < size for one, size in zip(winners, self.sizes)):
            note += " An n-gram at an end of the text has fewer tokens: the rest of its window is padding."
        if others := len(self.sizes) - len(rows):
            note += f" --json has the other {others:,} filters too."
        columns = ["filter", "n", "n-gram", "feature", "effect"]
        return Table("The n-gram that won each filter", columns, rows, note, first=SHOWN if most is None else None)

    def to_json(self) -> dict[str, Any]:
        """The features of all tokens, and the winner and effect of each filter."""
        winners = [
            {"filter": one.filter, "size": size, "ngram": one.text, "start": one.start, "feature": one.feature}
            for one, size in zip(self.winners, self.sizes)
        ]
        for winner, effect in zip(winners, self.effects.tolist()):
            winner["effect"] = effect
        return {
            "title": self.text,
            "pieces": self.pieces,
            "output": self.output,
            "winners": winners,
            "features": self.features,
            **({"answer": self.answer.numbers} if self.answer else {}),
        }

    def show(self) -> Group:
        """The picture for a terminal, and the prediction of the model."""
        return Group(MatrixText(self.matrix()), *([Line(self.answer.sentence)] if self.answer else []))

    def save(self, path: str | Path) -> Path:
        """Write an .html page or an .svg picture, by the ending of the name."""
        suffix = Path(path).suffix.lower()
        if suffix == ".svg":
            return write_file(path, matrix_svg(self.matrix()))
        if suffix != ".html":
            raise UserError(f"{path}: filters are written as .html or .svg; end the name so.")
        answer = f"{self.answer.sentence}\n\n" if self.answer else ""
        sections: list[Section] = [
            Text(f"{answer}{EXPLAINED} {self.about}", "What is shown", "classify.md"),
            Gallery("Filters and tokens", [self]),
            self.table(None),
        ]
        return save_report(Path(path), self.text, sections)


def look_filters(model: Loaded, text: str | tuple[str, ...]) -> FilterView:
    """The features of all filters at all tokens of a text, and what each filter adds to the model's answer.

    The effect of a filter is its feature times the derivative of the output by it. Above the filters Kim's network is
    linear, so the effects and the bias of the output layer add up to the output. A model of pairs reads a text of two
    parts, (first, second).
    """
    if isinstance(text, str) and not text.strip():
        raise UserError('the text to look at is empty; give one, such as "a fine day".')
    (found,) = _features(model, [text], BATCH_TOKENS)
    _, pieces, features = found
    states = torch.from_numpy(features)[None].to(model.device).requires_grad_()
    module: Any = model.module
    outputs = module.readout(states)[0]
    at = int(outputs.argmax()) if outputs.dim() else None
    (gradient,) = torch.autograd.grad(outputs if at is None else outputs[at], states)
    effects = (gradient * states).sum(dim=(0, 1)).detach().cpu().numpy()
    classes = next((each.names for each in model.fields.values() if isinstance(each, LabelField)), ())
    output = "the number" if at is None else f"the logit of “{classes[at]}”"
    title, answer = text if isinstance(text, str) else " · ".join(text), predicted(model, text)
    return FilterView(title, pieces, model.module.config.filter_sizes, features, output, effects, model.about, answer)


def strongest_ngrams(
    model: Loaded, texts: Iterable[Any], top: int = 5, batch_tokens: int = BATCH_TOKENS
) -> list[list[Ngram]]:
    """For each filter, the `top` different n-grams of the texts with the largest features, the largest first.

    An n-gram with a feature of 0 is left out: the filter does not respond to it.
    """
    sizes = model.module.config.filter_sizes
    best: list[dict[tuple[str, ...], Ngram]] = [{} for _ in sizes]
    least = np.zeros(len(sizes), np.float32)  # of each filter: the feature that a new n-gram must exceed
    for _, pieces, features in _features(model, part_list(texts), batch_tokens):
        for at, number in np.argwhere(features > least).tolist():
            one, found = ngram_at(pieces, features, sizes, at, number), best[number]
            if one.pieces not in found or one.feature > found[one.pieces].feature:
                found[one.pieces] = one
            if len(found) > top:
                del found[min(found.values(), key=lambda each: each.feature).pieces]
            if len(found) == top:
                least[number] = min(each.feature for each in found.values())
    return [sorted(found.values(), key=lambda each: -each.feature) for found in best]


def ngram_table(found: Sequence[Sequence[Ngram]], sizes: Sequence[int]) -> Table:
    """A row for each filter: its strongest n-grams, with their features."""
    rows: list[list[Cell]] = [
        [f"#{number}", size, " · ".join(f"{one.text} ({one.feature:.2f})" for one in ngrams) or "–"]
        for number, (size, ngrams) in enumerate(zip(sizes, found))
    ]
    return Table("The strongest n-grams of each filter", ["filter", "n", "n-grams and their features"], rows)


def ngram_at(pieces: Sequence[str], features: Floats, sizes: Sequence[int], at: int, number: int) -> Ngram:
    """The n-gram of a filter around the token at a place."""
    first = at - (sizes[number] - 1) // 2
    start = max(first, 0)
    return Ngram(number, tuple(pieces[start : first + sizes[number]]), float(features[at, number]), start)


@torch.no_grad()
def _features(model: Loaded, texts: Sequence[Any], batch_tokens: int) -> Iterator[tuple[int, tuple[str, ...], Floats]]:
    """Of each text: its number, its tokens, and the features (T, F) of the filters. The order is that of batches."""
    if not model.module.config.filter_sizes:
        raise UserError(f"{model.path}: this model has no filters over n-grams; use a run with model=kim.")
    if model.joined_text is None:
        lines = text_list(texts)
        ids = model.read(lines)
        rows = text_rows(model, lines, ids)
        named = [axes(model, ([], one), ("", text)) for one, text in zip(ids, lines)]
    else:
        values = joined_values(model, texts)
        arrays = model.read_joined(values)
        rows = joined_rows(model, arrays)
        named = [joined_axes(model, value, array)[0] for value, array in zip(values, arrays)]
    pieces = [next(iter(one.values())).columns for one in named]
    module: Any = model.module
    for group in grouped([len(one) for one in pieces], batch_tokens):
        batch = collate([rows[number] for number in group], model.task).to(model.device)
        real = batch.real["tokens"]
        found: Tensor = module.features(batch["tokens"], real).float().cpu()
        for number, features, there in zip(group, found, real.cpu()):
            yield number, tuple(pieces[number]), model.check_finite(features[there].numpy())
