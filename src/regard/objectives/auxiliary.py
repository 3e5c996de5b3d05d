"""The auxiliary language-model loss of GPT's fine-tuning (Radford et al. 2018, §3.2, eq. 5)."""

from typing import Any

import torch
from torch import Tensor

from regard.data.batches import IGNORED, Batch
from regard.errors import UserError
from regard.models.headed import Texts, texts_of
from regard.objectives.loss import token_loss


def check_predicts_next(model: Any) -> None:
    """Refuse a model whose body cannot predict the next token of a text.

    Under a head, a body has no output layer of its own: its token embeddings must be its matrix.
    """
    body, head = model.config.split()
    plain = getattr(body, "softmax", "plain") == "plain" and not body.numbers
    if head is None or not (body.causal and body.tied and plain):
        needs = "a causal model under a head whose output layer is its token embedding (model.tied=true)"
        raise UserError(f"objective.language: needs {needs}, such as model=gpt; set it to 0.")


def next_tokens(tokens: Tensor, real: Tensor | None) -> Tensor:
    """The token that follows each place of texts (N, T); IGNORED after the last one and in padding."""
    targets = torch.full_like(tokens, IGNORED)
    targets[:, :-1] = tokens[:, 1:]
    if real is not None:
        targets[:, :-1].masked_fill_(~real[:, 1:], IGNORED)
        targets.masked_fill_(~real, IGNORED)
    return targets


def count_next_tokens(batch: Batch) -> int:
    """The number of tokens that follow another in the texts of a batch on the host."""
    texts = texts_of(batch)
    return int((next_tokens(texts.tokens, texts.real) != IGNORED).sum())


def logits_and_language(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """The logits of a model under a head, and the summed loss of the next token at each place of its texts."""
    texts: Texts = texts_of(batch)
    features = model.features(texts.tokens, texts.real)
    language = token_loss(model.body, features, next_tokens(texts.tokens, texts.real))
    return model.readout(features, texts.real, texts.texts), language
