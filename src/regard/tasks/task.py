"""What a task is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.batches import Batch, one_row
from regard.data.fields import Field
from regard.data.flat import Columns, Lengths, Row, Rows

Widths = Callable[[Mapping[str, Lengths]], Mapping[str, Lengths]]
Collate = Callable[[Rows, Mapping[str, int], np.random.Generator], Batch]


@dataclass(frozen=True)
class Task:
    """What a model is trained to do, as data. No other code compares the name of a task.

    `rows` gives the rows of an example (mostly one), `widths` the length of each axis of a batch from the lengths of
    the fields, and `collate` a batch from rows that are padded to these widths.
    """

    name: str
    verb: str  # the command that uses a trained model
    fields: Mapping[str, type[Field]]  # the columns that it needs, and what each becomes
    widths: Widths
    collate: Collate
    head: str  # what the model must predict; the configs of models list in `predicts` what they can
    objective: type[Any]  # what is minimised unless a recipe names another objective, and what the loss is measured by
    metrics: tuple[str, ...]  # what is reported beside the loss unless a recipe says otherwise
    rows: Callable[[Columns, int], list[Row]] = one_row
