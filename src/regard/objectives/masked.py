"""Learning to fill in: some tokens of a text are hidden, and told from what stands on both sides of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import UserError
from regard.objectives.loss import token_loss
from regard.objectives.objective import HasReadout, Sums
from regard.objectives.sequence import check_part, check_smoothing

ROUNDING = 1e-9  # what a product of a length and a part may have too much, in float64, and must not round up by
FRAME = 2  # begin and end stand around every text and are never hidden


class BidirectionalModel(HasReadout, Protocol):
    """A model that reads a text from both sides."""

    config: Any  # config.mask: the id that hides a token; config.specials: ids never hidden; config.vocab

    def features(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """Read tokens (B, T) whole; the features of what stands at each place, (B, T, W). None: nothing is padding."""
        ...


class Hidden(NamedTuple):
    """Some places of each row, as many in every row of a batch, and which of them are to be filled in."""

    at: Tensor  # (B, K), all different within a row
    chosen: Tensor  # (B, K)


@dataclass(frozen=True)
class MaskedTokens:
    """Predict some tokens of a text from all the others (Devlin et al. 2019, section 3.1 and appendix A.1).

    Of the places to fill in most show the mask, some a token drawn at random and some the token itself: a model that
    met masks alone would have nothing to say of texts without any.
    """

    part: float = 0.15  # of a text's tokens is to be filled in; counted with begin and end, rounded up
    smoothing: float = 0.0  # the weight that targets give up to the whole vocabulary
    kept: float = 0.1  # of these places show the token all the same
    random: float = 0.1  # of these places show some other token
    weights: ClassVar[Mapping[str, float]] = {"nll": 1.0}
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("part", "kept", "random"):
            check_part(name, getattr(self, name))
        check_smoothing(self.smoothing)
        if self.part == 0:
            raise UserError("objective.part=0.0: leaves nothing to learn from; give more than 0, such as 0.15.")
        if self.kept + self.random > 1:
            raise UserError(
                f"objective.kept={self.kept} and objective.random={self.random}: together they are more than all; "
                "give a sum of at most 1, such as 0.2."
            )

    def modules(self, model: BidirectionalModel) -> nn.Module | None:
        mask_of(model)
        return None

    def count(self, batch: Batch) -> dict[str, int]:
        """From the lengths of the rows alone: one with special tokens *in* its text may have fewer than it counts."""
        return {"nll": int(self.wanted(batch.real).sum())}

    def __call__(self, model: BidirectionalModel, batch: Batch, step: int, own: nn.Module | None = None) -> Sums:
        hidden = self.choose(batch.tokens, batch.real, model.config.specials)
        tokens = self.hide(batch.tokens, hidden, mask_of(model), model.config.vocab)
        features = model.features(tokens, batch.visible)  # (B, T, W)
        some = features.gather(1, hidden.at[:, :, None].expand(-1, -1, features.shape[-1]))  # (B, K, W)
        return {"nll": token_loss(model, some, batch.targets.gather(1, hidden.at), hidden.chosen, self.smoothing)}

    def wanted(self, real: Tensor) -> Tensor:
        """How many places of each row are to be filled in, (B,): a function of its length alone, on every device."""
        length = real.sum(dim=1)
        share = (length.double() * self.part - ROUNDING).ceil().long()
        return share.minimum(length - FRAME).clamp_min(0)

    def choose(self, tokens: Tensor, real: Tensor, specials: tuple[int, ...]) -> Hidden:
        """Places drawn evenly from those that are real and no special token.

        Every row of a shape gives as many places, of which those past its own number are not chosen: the shapes are
        those of the batch, and nobody waits for the device.
        """
        most = int(self.wanted(torch.ones(1, tokens.shape[1], device="cpu")))  # of a row without padding
        able = real
        for special in specials:  # one by one: as a tensor, they would have to be sent to the device
            able = able & (tokens != special)
        lots = torch.rand(tokens.shape, device=tokens.device).masked_fill(~able, -1.0)  # (B, T)
        drawn = lots.topk(most, dim=1)  # the best first
        rank = torch.arange(drawn.indices.shape[1], device=tokens.device)
        return Hidden(drawn.indices, (rank < self.wanted(real)[:, None]) & (drawn.values >= 0))

    def hide(self, tokens: Tensor, hidden: Hidden, mask: int, vocab: int) -> Tensor:
        """The tokens as they are shown, (B, T)."""
        truth = tokens.gather(1, hidden.at)  # (B, K)
        fate = torch.rand(truth.shape, device=truth.device)
        drawn = torch.randint_like(truth, vocab)
        shown = drawn.where(fate < self.random, torch.full_like(truth, mask))
        shown = truth.where((fate >= 1 - self.kept) | ~hidden.chosen, shown)
        return tokens.scatter(1, hidden.at, shown)


def mask_of(model: BidirectionalModel) -> int:
    """The id that hides a token."""
    mask: int = model.config.mask
    if mask < 0:
        raise UserError(
            f"model.mask={mask}: there is nothing to hide tokens with; "
            "give the id of a mask, or start from a model whose tokenizer has one."
        )
    return mask
