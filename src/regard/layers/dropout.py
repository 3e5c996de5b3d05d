"""Kinds of dropout that torch does not have."""

from torch import Tensor
from torch.nn import functional as F


def dropout_mask(like: Tensor, shape: tuple[int, ...], dropout: float) -> Tensor:
    """A mask of dropout, to be multiplied with: 0 with the probability ``dropout``, else 1 / (1 − dropout)."""
    return F.dropout(like.new_ones(shape), dropout)


def drop(x: Tensor, dropout: float, training: bool, variational: bool) -> Tensor:
    """Dropout of x (B, T, width), variational or of each number. Features (N, width) of single tokens have no rows."""
    return (variational_dropout if variational and x.dim() == 3 else F.dropout)(x, dropout, training)


def variational_dropout(x: Tensor, dropout: float, training: bool) -> Tensor:
    """Dropout of whole features of a text (B, T, width): one mask for all T places (Gal & Ghahramani 2016)."""
    return x * dropout_mask(x, (len(x), 1, x.shape[-1]), dropout) if training and dropout else x


def embedding_dropout(x: Tensor, tokens: Tensor, vocab: int, dropout: float, training: bool) -> Tensor:
    """Dropout of whole words: the embeddings x (B, T, width) of a word are zero wherever it occurs in the batch.

    Gal & Ghahramani 2016; Merity et al. 2018, §4.3. The output layer of a tied model uses all words.
    """
    return x * dropout_mask(x, (vocab,), dropout)[tokens][..., None] if training and dropout else x
