"""What causal models share: the step of decoding, teacher forcing, and the states of a whole text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.data.batches import Batch
from regard.layers.checks import refuse
from regard.layers.product import Logits, Product, Readout
from regard.layers.recurrent import real_first
from regard.models.facts import Facts
from regard.models.layered import Layered
from regard.taps import add_layer, inner_layers


class Causal(Layered):
    """A model that predicts the next token. A subclass has three methods.

    ``start(source=None, source_real=None, rows=None, capacity=None)`` gives the state before the first token: of a
    source (B, Ts), or of ``rows`` rows if the model reads no source; ``capacity`` is the most tokens of a KV cache.
    ``advance(tokens, state)`` reads tokens (R, T) from a state on: features (R, T, width) and the state after them. So
    teacher forcing reads all tokens at once and decoding one at a time, with the same method. ``product(features)``
    gives the logits, not computed yet; by default they are those of a linear layer, ``readout_``, after dropout.
    """

    config: Any
    start: Callable[..., Any]
    advance: Callable[..., tuple[Tensor, Any]]
    readout_: Any  # the output layer; None in a body under another head

    def __init__(self) -> None:
        super().__init__()
        self.output = Readout()

    def readout(self, features: Tensor) -> Tensor:
        """The logits (…, V) of features (…, width)."""
        return self.output(self.product(features))

    def product(self, features: Tensor) -> Logits:
        """The logits of features (…, width) as an uncomputed matrix product."""
        return Product(self.drop(features), self.readout_.weight, self.readout_.bias)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads one token per row, (R,): the logits of the next one, (R, V), and the state after it."""
        features, state = self.advance(tokens[:, None], state)
        return self.readout(features[:, 0]), state

    def forward(self, batch: Batch) -> Tensor:
        """Teacher forcing: the logits (B, T, V) of every position, given the tokens before it."""
        rows, length = batch["tokens"].shape
        state = self.start(batch.fields.get("source"), batch.real.get("source"), rows, length)
        return self.readout(self.advance(batch["tokens"], state)[0])

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The state of every token of a whole text, (B, T) → (B, T, width), given the tokens before it."""
        return causal_features(self, tokens, real, segments=segments, positions=positions)


class LanguageModel(Causal):
    """A causal model without a source. A subclass has ``initial(rows, capacity)``, the state before the first token."""

    initial: Callable[[int, int | None], Any]

    def start(
        self,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        rows: int | None = None,
        capacity: int | None = None,
    ) -> Any:
        """The state before the first token. All causal models have these arguments; the first two are not used here."""
        return self.initial(rows or 1, capacity)

    def start_segments(self, rows: int) -> Any:
        """The state before the first segment of training, of a model that carries its state from one to the next."""
        return self.start(rows=rows)


def causal_features(
    model: Any,
    tokens: Tensor,
    real: Tensor | None = None,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    segments: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """The states (B, T, width) of a causal model at tokens (B, T), or numbers (B, T, N), that it reads at once.

    Padding may be on any side.
    """
    config: Facts = model.config
    refuse("segments", segments)
    with inner_layers():  # those of an encoder
        state = model.start(source, source_real, rows=tokens.shape[0], capacity=tokens.shape[1])
    if config.takes_positions:
        return model.advance(tokens, state, real, positions)[0]
    refuse("positions", positions)
    if real is None:
        return model.advance(tokens, state)[0]
    order = real_first(real)  # the real tokens are read first, so that no token follows padding; all padding is 0
    places, back = order.reshape(*order.shape, *[1] * (tokens.dim() - 2)), order.argsort(1)[..., None]
    tokens = tokens.masked_fill(~real.reshape(places.shape), 0).take_along_dim(places, dim=1)
    with inner_layers() as found:
        states: Tensor = model.advance(tokens, state)[0]
    for each in found:
        add_layer(each.take_along_dim(back, dim=1))
    return states.take_along_dim(back, dim=1)
