"""A Transformer that the user names, and a text as it reads it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.verbs.loaded import Loaded


@dataclass(frozen=True, eq=False)
class Reading:
    """A text in a model's own pieces, the special tokens around it included."""

    model: "Loaded"
    tokens: list[int]

    @property
    def pieces(self) -> list[str]:
        return self.model.tokenizer.pieces(self.tokens)

    @cached_property
    def words(self) -> list[int]:
        """Of each piece the word it is part of; -1 for special tokens and spaces."""
        return self.model.tokenizer.words(self.tokens)

    @property
    def separators(self) -> list[bool]:
        """Which pieces are special tokens, or nothing but punctuation."""
        special_tokens = vars(self.model.tokenizer.special_tokens).values()
        return [
            token in special_tokens or not any(character.isalnum() for character in piece)
            for token, piece in zip(self.tokens, self.pieces)
        ]

    def play(self) -> None:
        """The model reads it once. A translator has it as its source, and is about to begin."""
        import torch

        tokens = torch.tensor([self.tokens])
        if not self.model.module.config.reads_source:
            self.model.logits(tokens)
            return
        begin = self.model.target_tokenizer.special_tokens.bos
        self.model.logits(torch.tensor([[0 if begin is None else begin]]), source=tokens)

    @cached_property
    def weights(self) -> "dict[str, Tensor]":
        """Where the text looks at itself, (H, T, T) by layer; what is remembered from before it is left out."""
        from regard.recording import record
        from regard.verbs.parts import parts

        whose = "encoder" if self.model.module.config.reads_source else None  # the decoder has nothing to say yet
        paths = [path for path, part in parts(self.model.module).items() if whose in (part, None)]
        with record(self.model.module, paths) as tape:
            self.play()
        return {name: tape[name][0][..., -len(self.tokens) :] for name in tape}


def opened(run: Path) -> "Loaded":
    """The model of a directory; refuses what is no Transformer."""
    from regard.layers.transformer import Block
    from regard.verbs import load

    model = load(run, "cpu")
    if not any(isinstance(part, Block) for part in model.module.modules()):
        raise UserError(
            f"{run}: a {type(model.module).__name__} has no Transformer blocks; name another model, or none."
        )
    return model


def read(model: "Loaded", text: str) -> Reading:
    """Cuts a text as the model would; refuses one of nothing."""
    from regard.models import reads_whole

    if not text.strip():
        raise UserError(f'TEXT: nothing to read; for example: regard explain attention {model.path} "a line of text"')
    (tokens,) = model.read([text])
    special_tokens = model.tokenizer.special_tokens
    if reads_whole(model.module.config):
        return Reading(model, special_tokens.wrap_input(tokens))
    return Reading(model, [*([] if special_tokens.bos is None else [special_tokens.bos]), *tokens])
