"""Masked language modelling: predict masked tokens of a text from the tokens on both sides."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor, nn

from regard.data.batches import IGNORED, Batch
from regard.data.corruption import MaskTokens, masked_count
from regard.data.fields import Field, TextField
from regard.errors import UserError
from regard.objectives.loss import token_loss
from regard.objectives.objective import HasReadout, Objective, Sums
from regard.objectives.sequence import check_part, check_smoothing


class BidirectionalModel(HasReadout, Protocol):
    """A model that attends to a text in both directions."""

    config: Any

    def features(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The features of every token of a text, (B, T) → (B, T, W). `real` is None if there is no padding."""
        ...


@dataclass(frozen=True)
class MaskedTokens(Objective):
    """Predict some tokens of a text from all the others (Devlin et al. 2019, section 3.1 and appendix A.1)."""

    part: float = 0.15  # the fraction of a text's tokens that is predicted, rounded up; special tokens count
    smoothing: float = 0.0  # label smoothing: the weight that is spread over the vocabulary
    kept: float = 0.1  # the fraction of these tokens that is not replaced
    random: float = 0.1  # the fraction of these tokens that is replaced by a random token; the rest is masked
    heads: ClassVar[tuple[str, ...]] = ("masked",)

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

    def corruption(self, fields: Mapping[str, Field]) -> MaskTokens:
        text = fields["text"]
        assert isinstance(text, TextField)
        special = text.tokenizer.special_tokens
        if special.mask is None:
            raise UserError("the tokenizer has no mask token; start from a model whose tokenizer has one.")
        return MaskTokens(special.mask, text.size, special.ids, self.part, self.kept, self.random)

    def __call__(
        self, model: BidirectionalModel, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        """The loss of the masked positions; only these are projected to the vocabulary.

        Every row gives the same number of positions, some with an IGNORED target, so that shapes depend only on the
        width of the batch and no synchronisation is needed.
        """
        targets = batch["targets"]  # (B, T)
        most = max(1, int(masked_count(np.array([targets.shape[1]]), self.part)[0]))
        places = (targets != IGNORED).int().topk(most, dim=1).indices  # (B, K)
        features = model.features(batch["tokens"], batch.visible("tokens"))  # (B, T, W)
        some = features.gather(1, places[:, :, None].expand(-1, -1, features.shape[-1]))  # (B, K, W)
        return {"nll": token_loss(model, some, targets.gather(1, places), self.smoothing)}, None
