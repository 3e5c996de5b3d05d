"""Two language models of one text, one that reads it forward and one that reads it backward (Peters et al. 2018, §3.1).

Both predict the next token in their direction. They share the embedding of the tokens and the output layer, and have
other layers of their own. The loss is −Σ (log p(xₜ | x₁ … xₜ₋₁) + log p(xₜ | xₜ₊₁ … x_T)) over the targets of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from regard.config import Table
from regard.data.batches import IGNORED, Batch
from regard.data.example import Direction
from regard.layers.checks import refuse
from regard.layers.recurrent import last_first
from regard.models.facts import Facts, Model, SharesFacts, of_body

States = tuple[Any, Any]  # of the forward and the backward model
Layers = tuple[Tensor, ...]


class Directed(Facts):
    """The facts of a language model whose config has the setting `direction`."""

    causal: ClassVar[bool] = True
    predicts: ClassVar[tuple[str, ...]] = ("next",)

    def directed(self) -> Any:
        return TwoDirectionsConfig(self) if self.direction == "both" else self


@dataclass(frozen=True)
class TwoDirectionsConfig(SharesFacts):
    """Two models of one config, one for each direction.

    The model is not causal: a state of it has read the tokens on both sides.
    """

    causal: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("both",)
    takes_head: ClassVar[bool] = True
    direction: ClassVar[Direction] = "both"

    body: Annotated[Any, Table("model")]  # the config of a language model with `direction` both

    learns_by = of_body("learns_by")
    sizes = of_body("sizes")
    tied = of_body("tied")
    carries = of_body("carries")

    @property
    def width(self) -> int:
        return 2 * self.body.width

    @property
    def input_embedding(self) -> str:
        return f"onward.{self.body.input_embedding}"

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(f"{half}.{path}" for half in ("onward", "returning") for path in group)
            for group in self.body.layer_groups
        )

    def with_output(self, name: str) -> TwoDirectionsConfig:
        return replace(self, body=self.body.with_output(name))

    def resized(self, width: int) -> TwoDirectionsConfig:
        return replace(self, body=self.body.resized(width // 2))

    def split(self) -> tuple[Any, Any]:
        return self.body, None

    def with_sizes(self, sizes: Mapping[str, int], padded: bool = False) -> TwoDirectionsConfig:
        return replace(self, body=self.body.with_sizes(sizes, padded))

    def build(self) -> TwoDirections:
        return TwoDirections(self)

    def build_body(self) -> TwoDirections:
        return TwoDirections(self, readout=False)


class TwoDirections(Model):
    """A causal model that reads a text forward, and one that reads it backward. Without ``readout`` it is a body."""

    def __init__(self, config: TwoDirectionsConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        one, other = (replace(config.body, direction=direction) for direction in ("forward", "backward"))
        vocab = config.token_vocab if readout else 0
        self.register_buffer("frequency", torch.zeros(vocab, dtype=torch.long))  # of each token in the training text
        self.frequency: Tensor
        self.onward: Any = one.build() if readout else one.build_body()
        self.returning: Any = other.build() if readout else other.build_body()
        layers = dict(self.onward.named_modules())
        for path in (one.input_embedding, one.output_layer):
            if path in layers:  # a model of counts has neither layer; a tied output layer has no path of its own
                parent, _, name = path.rpartition(".")
                setattr(self.returning.get_submodule(parent), name, layers[path])

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The states (B, T, 2 · width) at tokens (B, T): of the forward model, then of the backward model.

        The first has read the token and those before it, the second the token and those after it.
        """
        refuse("positions", positions)
        return self._joined(tokens, real, lambda half, ids, there: (half.features(ids, there, segments),))[0]

    def layers(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The states (B, T, 2 · D) of every layer: of the forward model, then of the backward model."""
        refuse("positions", positions)
        return self._joined(tokens, real, lambda half, ids, there: half.layers(ids, there, segments))

    def advance_layers(self, tokens: Tensor, state: States, real: Tensor | None = None) -> tuple[Layers, States]:
        """The states of every layer at tokens that follow those before, and the state of each model after them.

        Each model carries its own state: the backward model has read the first token of the texts before when it reads
        the last token of these.
        """
        after: list[Any] = []

        def read(half: Any, ids: Tensor, there: Tensor | None) -> Layers:
            found, ended = half.advance_layers(ids, state[len(after)], there)
            after.append(ended)
            return found

        layers = self._joined(tokens, real, read)
        return layers, (after[0], after[1])

    def start_segments(self, rows: int) -> States:
        """The states of both models before the first segment of training."""
        return self.onward.start_segments(rows), self.returning.start_segments(rows)

    def _joined(
        self, tokens: Tensor, real: Tensor | None, read: Callable[[Any, Tensor, Tensor | None], Layers]
    ) -> Layers:
        """The states that both models give, side by side; the backward model reads the last real token first."""
        if self.config.characters:  # both models read the same words, so that their characters are encoded once
            tokens = self.onward.get_submodule(self.onward.config.input_embedding)(tokens)
        real_now = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device) if real is None else real
        order = last_first(real_now)
        back = tokens.take_along_dim(order.reshape(*order.shape, *[1] * (tokens.dim() - 2)), dim=1)
        back_real = None if real is None else real.take_along_dim(order, dim=1)
        ahead, behind = read(self.onward, tokens, real), read(self.returning, back, back_real)
        undo = order.argsort(1)[..., None]
        return tuple(torch.cat([one, two.take_along_dim(undo, dim=1)], -1) for one, two in zip(ahead, behind))

    def readout(self, features: Tensor) -> Tensor:
        """The logits (…, 2 · V) of features (…, 2 · width): of the token after, then of the token before."""
        ahead, behind = features.chunk(2, dim=-1)
        return torch.cat([self.onward.readout(ahead), self.returning.readout(behind)], -1)

    def forward(self, batch: Batch) -> Tensor:
        return self.readout(self.features(batch["tokens"], batch.visible("tokens")))

    def halves(self, batch: Batch) -> list[tuple[Any, Batch]]:
        """Each model with the batch that it reads, for a batch of tokens and the tokens after them."""
        return [(self.onward, batch), (self.returning, from_the_end(batch))]

    def count_batch(self, batch: Batch) -> None:
        """Count the tokens of a batch of the training text."""
        add_targets(self.frequency, batch)

    def combined(self, ahead: Tensor, behind: Tensor) -> Tensor:
        """log (p(x | before) · p(x | after) / p(x)) of each token x, from both log-probabilities (…, V).

        Normalised, it is p(x | before, after) if both sides are independent given x. p(x) is the token's frequency in
        the training text, plus one.
        """
        return ahead + behind - (self.frequency + 1.0).log()

    def add(self, tokens: Tensor, targets: Tensor) -> None:
        """Count the pairs of tokens and targets in both orders, if the models count (`regard.objectives.Counting`)."""
        self.onward.add(tokens, targets)
        self.returning.add(targets, tokens.masked_fill(targets == IGNORED, IGNORED))
        self.config = replace(self.config, body=replace(self.onward.config, direction="both"))


def from_the_end(batch: Batch) -> Batch:
    """The batch of the same texts read backward: a model reads the targets, the last one first, and predicts tokens."""
    tokens, targets = batch["tokens"], batch["targets"]
    order = last_first(batch.real["tokens"])
    real = batch.real["tokens"].take_along_dim(order, dim=1)
    read, predicted = (each.take_along_dim(order, dim=1) for each in (targets, tokens))
    fields = {"tokens": read.clamp_min(0), "targets": predicted.masked_fill(~real | (read == IGNORED), IGNORED)}
    return replace(batch, fields={**batch.fields, **fields}, real={**batch.real, "tokens": real})


def add_targets(frequency: Tensor, batch: Batch) -> None:
    """Add to `frequency` (V,) how often each id is a target of a batch; IGNORED does not count.

    A body has no output layer, so its frequencies are empty and nothing is added.
    """
    if len(frequency):
        targets = batch["targets"]
        frequency += torch.bincount(targets[targets != IGNORED].to(frequency.device), minlength=len(frequency))
