"""Loading a Transformer from a directory, and a tokenized text with the attention weights of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import UserError
from regard.layers.transformer import Block
from regard.models import reads_whole
from regard.models.parts import parts
from regard.recording import record
from regard.render import AttentionView, Layer
from regard.verbs import Loaded, load


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text as tokens of a model, with its special tokens."""

    model: Loaded
    tokens: list[int]

    @property
    def pieces(self) -> list[str]:
        return self.model.tokenizer.pieces(self.tokens)

    @cached_property
    def words(self) -> list[int]:
        """The index of each token's word; -1 for special tokens and spaces."""
        return self.model.tokenizer.words(self.tokens)

    @property
    def separators(self) -> list[bool]:
        """For each token, whether it is a special token or only punctuation."""
        special = self.model.tokenizer.special_tokens
        special_tokens = {*special.ids, special.unk}
        return [
            token in special_tokens or not any(character.isalnum() for character in piece)
            for token, piece in zip(self.tokens, self.pieces)
        ]

    def forward(self) -> None:
        """Runs the model once on the text, up to its last states: a model without an output layer has no logits.

        For a translator the text is the source, and the target is only <bos>.
        """
        tokens = torch.tensor([self.tokens])
        if not self.model.module.config.reads_source:
            self.model.states(tokens)
            return
        begin = self.model.target_tokenizer.special_tokens.bos
        self.model.states(torch.tensor([[0 if begin is None else begin]]), source=tokens)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The self-attention weights of the text, (H, T, T) by layer."""
        whose = "encoder" if self.model.module.config.reads_source else None  # the decoder has read only <bos>
        paths = [path for path, part in parts(self.model.module).items() if whose in (part, None)]
        with record(self.model.module, paths) as tape:
            self.forward()
        return {name: tape[name][0] for name in tape}

    def lines_from(self, title: str, layer: str, head: int, word: int) -> AttentionView:
        """A picture of the weights of one head from the tokens of one word, without punctuation after it."""
        of_word = [one == word and not separator for one, separator in zip(self.words, self.separators)]
        from_word = torch.tensor(of_word)[:, None]  # (T, 1)
        weights = (self.weights[layer][[head]] * from_word).float().numpy()
        return AttentionView(title, self.pieces, self.pieces, [Layer(layer, weights, kept_heads=(head,))])


def load_transformer(run: str) -> Loaded:
    """Loads the model of a directory; raises UserError if it has no Transformer blocks."""
    return expect_transformer(load(run, "cpu"), run)


def expect_transformer(model: Loaded, run: str) -> Loaded:
    """The model itself; raises UserError if it has no Transformer blocks."""
    if not any(isinstance(part, Block) for part in model.module.modules()):
        raise UserError(
            f"{run}: a {type(model.module).__name__} has no Transformer blocks; give another model, or none."
        )
    return model


def tokenize_sentence(model: Loaded, words: Sequence[str], needed: Sequence[int]) -> TokenizedText | None:
    """The tokenized words with a full stop; None if they are too long, or if a needed word cannot be recovered."""
    sentence = " ".join(words) + "."
    longest, (tokens,) = model.longest, model.tokenizer.encode_batch([sentence])
    if longest is not None and len(tokens) + len(model.tokenizer.special_tokens.wrap_input([])) + 1 > longest:
        return None
    text = tokenize(model, sentence)
    read = [""] * (max(text.words, default=-1) + 1)
    for word, piece in zip(text.words, model.tokenizer.detokenizer(text.tokens)):
        if word >= 0:
            read[word] += piece.decode("utf-8", errors="replace").strip()
    if len(read) < len(words):
        return None
    return text if all(read[at].rstrip(".").lower() == words[at].lower() for at in needed) else None


def tokenize(model: Loaded, text: str) -> TokenizedText:
    """Tokenizes a text for a model; raises UserError if the text is empty."""
    if not text.strip():
        raise UserError(f'TEXT is empty; for example: regard explain attention {model.path} "a line of text"')
    (tokens,) = model.read([text])
    special_tokens = model.tokenizer.special_tokens
    if reads_whole(model.module.config):
        return TokenizedText(model, special_tokens.wrap_input(tokens))
    return TokenizedText(model, [*([] if special_tokens.bos is None else [special_tokens.bos]), *tokens])
