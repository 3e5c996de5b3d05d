"""Teacher forcing with activation regularisation, the objective of AWD-LSTM (Merity et al. 2018, §4.5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import UserError
from regard.layers.product import Product
from regard.objectives.loss import product_loss
from regard.objectives.objective import CausalModel, Objective, ReadsBothWays, Sums, both_ways, carried, check_weight
from regard.objectives.sequence import forced
from regard.scores import at_least_float32


@dataclass(frozen=True)
class RegularisedActivations(Objective):
    """Teacher forcing, with a penalty on large states and on states that differ from one token to the next.

    The states hₜ are those of the last layer. AR is ar · mean (m ⊙ hₜ)², with the dropout mask m of the output layer.
    TAR is tar · mean (hₜ₊₁ − hₜ)².
    """

    ar: float = 2.0  # weight of activation regularisation: the mean square of the states, after dropout
    tar: float = 1.0  # weight of temporal activation regularisation: of the change of the states from token to token
    carries: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("next", "both")

    def __post_init__(self) -> None:
        check_weight("ar", self.ar, 2)
        check_weight("tar", self.tar, 1)

    @property
    def weights(self) -> Mapping[str, float]:
        return {"nll": 1.0, "ar": self.ar, "tar": self.tar}

    def count(self, batch: Batch) -> dict[str, int]:
        real = batch.real["tokens"]
        pairs = int((real[:, 1:] & real[:, :-1]).sum())
        return {"nll": batch.counts["targets"], "ar": int(real.sum()), "tar": pairs}

    def __call__(
        self, model: CausalModel, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, Any]:
        if isinstance(model, ReadsBothWays):
            one, other, after = both_ways(self, model, batch, step, state)
            return {name: (one[name] + other[name]) / 2 for name in self.weights}, after
        features, after = forced(model, batch, state)
        product: Any = model.product(features)  # type: ignore[attr-defined]
        if not isinstance(product, Product):
            raise UserError("objective=regularised: the model has an adaptive softmax; set model.softmax=plain.")
        penalties = regularisation(product.x, features, batch.real["tokens"])
        return {"nll": product_loss(product, batch["targets"]), **penalties}, carried(model, batch, after)


def regularisation(dropped: Tensor, states: Tensor, real: Tensor) -> dict[str, Tensor]:
    """The sums of both penalties over the tokens that are real, (B, T), given states (B, T, width)."""
    dropped, states = at_least_float32(dropped), at_least_float32(states)
    change = (states[:, 1:] - states[:, :-1]).square().mean(-1)
    return {
        "ar": (dropped.square().mean(-1) * real).sum(),
        "tar": (change * (real[:, 1:] & real[:, :-1])).sum(),
    }
