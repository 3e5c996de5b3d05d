"""Special tokens: the ids that are not text, and where they stand around a text.

Every tokenizer has its own: ours number them 0 to 3, BERT puts [CLS] before a text and [SEP] after it, a Marian decoder
starts from the padding token and its sentences end with id 0. The special tokens are stored with the tokenizer, so that
no model and no verb needs to know an id.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a vocabulary; None where the vocabulary has no such token."""

    pad: int
    bos: int | None  # what a decoder reads before its first token
    eos: int | None  # what a decoder produces after its last token
    unk: int | None = None
    mask: int | None = None  # replaces a token that a model has to fill in
    # Around an input: a text that an encoder reads whole, or the prompt of a language model ([CLS] and [SEP] of BERT).
    prefix: int | None = None
    suffix: int | None = None

    def wrap_input(self, ids: list[int]) -> list[int]:
        """The ids of an input: prefix, text, suffix."""
        return [*_present(self.prefix), *ids, *_present(self.suffix)]

    def wrap_target(self, ids: list[int]) -> list[int]:
        """The ids of a target: bos, text, eos. A decoder reads all but the last and predicts all but the first."""
        return [*_present(self.bos), *ids, *_present(self.eos)]

    @property
    def ids(self) -> tuple[int, ...]:
        """All special tokens but `unk`, which stands for some token of a text."""
        found = {self.pad, self.bos, self.eos, self.mask, self.prefix, self.suffix}
        return tuple(sorted(token for token in found if token is not None))

    @property
    def forbidden(self) -> tuple[int, ...]:
        """The tokens that decoding must never produce: all special tokens but `eos`."""
        found = {self.pad, self.bos, self.mask, self.unk} - {self.eos, None}
        return tuple(sorted(token for token in found if token is not None))


def _present(token: int | None) -> list[int]:
    return [] if token is None else [token]
