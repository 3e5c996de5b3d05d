"""Some heads of one layer, as lines and as matrices."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.render.report import Gallery, LineGallery, Section
from regard.render.view import AttentionView
from regard.render.view_data import Floats, Layer

TOGETHER = (1, 2, 8)  # heads in one picture


@dataclass(frozen=True, eq=False)
class Drawing:
    """The heads of one layer, looking from pieces at pieces."""

    layer: str
    pieces: Sequence[str]
    weights: Floats  # (H, T, T)
    asking: Sequence[int]  # the pieces whose lines are drawn: with eight heads, those of all are a thicket

    def sections(self, order: Sequence[int]) -> list[Section]:
        """One head, two and eight, in this order, where there are so many."""
        counts = sorted({min(count, len(order)) for count in TOGETHER})
        asked = np.isin(np.arange(len(self.pieces)), self.asking)[:, None]  # (T, 1)
        together = [
            self._view(f"{count} heads" if count > 1 else "1 head", order[:count], self.weights * asked)
            for count in counts
        ]
        alone = [self._view(f"head {head}", [head], self.weights) for head in order[: counts[-1]]]
        whose = "all words" if asked.all() else f"“{''.join(self.pieces[at] for at in self.asking).strip('▁Ġ ')}”"
        return [
            LineGallery(f"Heads of {self.layer} as lines: from {whose} on the left to what is looked at", together),
            Gallery("The same heads as matrices", alone),
        ]

    def _view(self, title: str, heads: Sequence[int], weights: Floats) -> AttentionView:
        return AttentionView(
            title, self.pieces, self.pieces, [Layer(self.layer, weights[list(heads)], kept_heads=tuple(heads))]
        )
