"""Masked language modelling: predict masked tokens of a text from the tokens on both sides.

The settings make the objectives of three papers. BERT (Devlin et al. 2019) also asks whether the second part of a text
follows the first (`sentences=next`), ALBERT (Lan et al. 2020) whether two parts are in their order (`sentences=order`);
RoBERTa (Liu et al. 2019) masks full texts, with other masks each time, and asks nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import IGNORED, Batch, Corruption
from regard.data.boundaries import sentence_ends, word_bounds
from regard.data.corruption import Composed, MaskTokens, SentencePairs, masked_count
from regard.data.fields import Field, TextField
from regard.errors import UserError
from regard.objectives.loss import cross_entropy, token_loss
from regard.objectives.objective import HasReadout, Objective, Sums
from regard.objectives.sequence import check_part, check_smoothing

AT_ONCE = 1024  # places whose logits of the whole vocabulary are in memory together, in an evaluation


class BidirectionalModel(HasReadout, Protocol):
    """A model that attends to a text in both directions."""

    config: Any

    def features(self, tokens: Tensor, real: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """The features of every token of a text, (B, T) → (B, T, W). `real` is None if there is no padding."""
        ...


@dataclass(frozen=True)
class MaskedTokens(Objective):
    """Predict some tokens of a text from all the others (Devlin et al. 2019, section 3.1 and appendix A.1)."""

    part: float = 0.15  # the fraction of a text's tokens that is predicted, rounded up; special tokens count
    smoothing: float = 0.0  # label smoothing: the weight that is spread over the vocabulary
    kept: float = 0.1  # the fraction of these tokens that is not replaced
    random: float = 0.1  # the fraction of these tokens that is replaced by a random token; the rest is masked
    words: bool = False  # whether all tokens of a word are predicted together (whole-word masking)
    static: int = 0  # number of masks of a text, from which one is drawn each time (10 in BERT); 0: always new ones
    # Another question, about two parts of a text. next: does the second follow the first; order: are they in order.
    sentences: Literal["none", "next", "order"] = "none"
    heads: ClassVar[tuple[str, ...]] = ("masked",)
    measures: ClassVar[tuple[str, ...]] = ("sentences_right", "filled")

    def __post_init__(self) -> None:
        for name in ("part", "kept", "random"):
            check_part(name, getattr(self, name))
        check_smoothing(self.smoothing)
        if self.part == 0:
            raise UserError("objective.part=0.0: no token would be predicted; give more than 0, such as 0.15.")
        if self.kept + self.random > 1:
            raise UserError(
                f"objective.kept={self.kept} and objective.random={self.random}: their sum is above 1; "
                "give a sum of at most 1, such as 0.2."
            )
        if self.static < 0:
            raise UserError(
                f"objective.static={self.static}: give 1 or more masks of a text, or 0 for always new ones."
            )

    @property
    def weights(self) -> Mapping[str, float]:
        return {"nll": 1.0} if self.sentences == "none" else {"nll": 1.0, "sentences": 1.0}

    def corruption(self, fields: Mapping[str, Field]) -> Corruption:
        text = fields["text"]
        assert isinstance(text, TextField)
        tokenizer, special = text.tokenizer, text.tokenizer.special_tokens
        if special.mask is None:
            cure = "start from a model whose tokenizer has one, or leave data.tokenizer out"
            raise UserError(f"the tokenizer has no mask token; {cure}.")
        masks = MaskTokens(
            mask=special.mask,
            vocab=text.size,
            special=special.ids,
            fraction=self.part,
            kept=self.kept,
            random=self.random,
            words=word_bounds(tokenizer) if self.words else None,
            static=self.static,
        )
        if self.sentences == "none":
            return masks
        return Composed((SentencePairs(special, sentence_ends(tokenizer), self.sentences), masks))

    def evaluated(self) -> "MaskedTokens":
        """The same question, with the masks that all models are evaluated with."""
        return MaskedTokens(sentences=self.sentences)

    def modules(self, model: Any, fields: Mapping[str, Field]) -> None:
        """No modules. Refuses a question about sentences to a model without the output layer for it."""
        if self.sentences != "none" and not model.config.predicts_sentences:
            cure = "set model.outputs=masked,pooled,next (model=bert), or objective.sentences=none"
            raise UserError(f"objective.sentences={self.sentences}: the model has no output layer for it; {cure}.")

    def count(self, batch: Batch) -> dict[str, int]:
        return {name: batch.counts["next" if name == "sentences" else "targets"] for name in self.weights}

    def sums(self, model: BidirectionalModel, batch: Batch) -> Sums:
        """The loss of the masked places, and of the question about sentences."""
        targets = batch["targets"]  # (B, T)
        places = masked_places(targets, self.part)  # (B, K)
        segments = batch.fields.get("segments") if model.config.segment_kinds > 1 else None
        features = model.features(batch["tokens"], batch.visible("tokens"), segments)  # (B, T, W)
        some = features.gather(1, places[:, :, None].expand(-1, -1, features.shape[-1]))  # (B, K, W)
        masked = targets.gather(1, places)  # (B, K)
        sums = {"nll": token_loss(model, some, masked, self.smoothing)}
        if not torch.is_grad_enabled():  # an evaluation: how many tokens are found, some at a time
            parts = zip(some.flatten(0, 1).split(AT_ONCE), masked.flatten().split(AT_ONCE))
            sums["filled"] = torch.stack([(model.readout(x).argmax(-1) == y).sum() for x, y in parts]).sum()
        if self.sentences != "none":
            answers: Tensor = model.follows(features)  # type: ignore[attr-defined]
            sums["sentences"] = cross_entropy(answers, batch["next"])
            sums["sentences_right"] = (answers.argmax(1) == batch["next"]).sum()
        return sums


def masked_places(targets: Tensor, part: float) -> Tensor:
    """The masked places (B, K) of texts, given their targets (B, T): only these are projected to the vocabulary.

    Every row gives the same number of places, some with an IGNORED target, so that shapes depend only on the width of
    the batch and no synchronisation is needed.
    """
    most = max(1, int(masked_count(np.array([targets.shape[1]]), part)[0]))
    return (targets != IGNORED).int().topk(most, dim=1).indices
