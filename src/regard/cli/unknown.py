"""Words that a vocabulary lacks: how many a model has been given is said once, when all is answered."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.verbs import Loaded


@dataclass(eq=False)
class Unknown:
    """The unknown tokens among those that a model has read, by the number of their text."""

    model: "Loaded"
    found: dict[int, int] = field(default_factory=dict)

    def count(self, tokens: Sequence[Sequence[int]], first: int = 1) -> None:
        """More texts as the model reads them; `first` is the number of the first."""
        mark = self.model.tokenizer.marks.unknown
        counts = {number: text.count(mark) for number, text in enumerate(tokens, first)} if mark is not None else {}
        self.found |= {number: many for number, many in counts.items() if many}

    def tell(self) -> None:
        """One line on standard error, where there were any."""
        mark, many = self.model.tokenizer.marks.unknown, sum(self.found.values())
        if many and mark is not None:
            others = f" and {len(self.found) - 1:,} more" if len(self.found) > 1 else ""
            where = f"line {min(self.found)}{others}"
            what = f"{many:,} {'token' if many == 1 else 'tokens'} of {where}"
            name = self.model.tokenizer.pieces([mark])[0]
            print(f"{what}: not in this model's vocabulary, and read as {name}", file=sys.stderr)
