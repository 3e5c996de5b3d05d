"""The attention of a rung over one held-out example, as the result of a cell keeps it for the page of the ladder."""

from collections.abc import Sequence
from typing import Any

from regard.data.example import Pair
from regard.errors import UserError
from regard.verbs.loaded import Loaded
from regard.verbs.looking import look

LONGEST = 60  # characters of a source or a target: a page has a picture for each rung


def pictured(model: Loaded, examples: Sequence[Any]) -> dict[str, Any] | None:
    """The weights with which a translator looks at a source while it reads the right target.

    None for other models, for one without attention, and for one that cannot read the example. The example is the first
    that is short, or else the shortest: the same for all rungs of a ladder.
    """
    there = (one for one in examples if isinstance(one, Pair) and one.source.strip() and one.target.strip())
    one = min(there, key=lambda one: max(len(one.source), len(one.target), LONGEST), default=None)
    if one is None:
        return None
    try:
        view = look(model, one.source, one.target)
    except (
        UserError
    ):  # too long for the model, or its weights are not finite: a trained rung has its results all the same
        return None
    if not view.layers:
        return None
    matrix = view.matrix()
    return {
        "source": one.source,
        "target": one.target,
        "part": matrix.part,
        "label": matrix.label,
        "rows": list(matrix.rows),
        "columns": list(matrix.columns),
        "weights": [[round(float(weight), 4) for weight in row] for row in matrix.weights],
    }
