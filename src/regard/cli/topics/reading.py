"""A Transformer that the user names, and a text as it reads it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import UserError

if TYPE_CHECKING:
    from regard.verbs.loaded import Loaded


@dataclass(frozen=True, eq=False)
class Reading:
    """A text in a model's own pieces, the marks around it included."""

    model: "Loaded"
    tokens: list[int]
    pieces: list[str]

    def play(self) -> None:
        """The model reads it once. A translator has it as its source, and is about to begin."""
        import torch

        tokens = torch.tensor([self.tokens])
        if self.model.module.task != "translate":
            self.model.logits(tokens)
            return
        begin = self.model.target_tokenizer.marks.begin
        self.model.logits(torch.tensor([[0 if begin is None else begin]]), source=tokens)

    @property
    def separators(self) -> list[bool]:
        """Which pieces are marks, or nothing but punctuation."""
        marks = vars(self.model.tokenizer.marks).values()
        return [
            token in marks or not any(character.isalnum() for character in piece)
            for token, piece in zip(self.tokens, self.pieces)
        ]


def read(run: Path, text: str) -> Reading:
    """Loads the model and cuts the text; refuses what is no Transformer, and a text of nothing."""
    from regard.layers.transformer import Block
    from regard.verbs import load

    model = load(run, "cpu")
    if not any(isinstance(part, Block) for part in model.module.modules()):
        raise UserError(
            f"{run}: a {type(model.module).__name__} has no Transformer blocks; name another model, or none."
        )
    if not text.strip():
        raise UserError(f'TEXT: nothing to read; for example: regard explain attention {run} "a line of text"')
    marks, (tokens,) = model.tokenizer.marks, model.read([text])
    if model.module.task == "language":
        tokens = [*([] if marks.begin is None else [marks.begin]), *tokens]
    else:
        tokens = marks.framed(tokens)
    return Reading(model, tokens, model.tokenizer.pieces(tokens))
