"""Counts the tokens that are not in a model's vocabulary, and reports them once at the end of a command."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.data.tokenizers import Tokenizer
    from regard.verbs import Loaded


@dataclass(eq=False)
class Unknown:
    """The number of unknown tokens in each text, by the number of the text."""

    model: "Loaded"
    found: Counter[int] = field(default_factory=Counter)
    name: str = ""  # the piece of the unknown token

    def count(self, tokens: Sequence[Sequence[int]], first: int = 1) -> None:
        """Count the tokens of more texts; `first` is the number of the first."""
        self._count(self.model.tokenizer, tokens, first)

    def count_targets(self, lines: Sequence[str], first: int = 1) -> None:
        """Count the tokens of the targets of lines source<TAB>target."""
        tokenizer = self.model.target_tokenizer
        self._count(tokenizer, tokenizer.encode_batch([line.partition("\t")[2].strip() for line in lines]), first)

    def report(self) -> None:
        """Print one line on standard error if there were any."""
        if many := self.found.total():
            lines = f"line {min(self.found)}"
            where = lines if len(self.found) == 1 else f"{len(self.found):,} lines, first in {lines}"
            what = f"{many:,} {'token' if many == 1 else 'tokens'} in {where}"
            print(f"{what}: not in this model's vocabulary, and read as {self.name}", file=sys.stderr)

    def _count(self, tokenizer: "Tokenizer", tokens: Sequence[Sequence[int]], first: int) -> None:
        if (mark := tokenizer.special_tokens.unk) is None:
            return
        if found := {number: many for number, text in enumerate(tokens, first) if (many := text.count(mark))}:
            self.found.update(found)
            self.name = tokenizer.pieces([mark])[0]
