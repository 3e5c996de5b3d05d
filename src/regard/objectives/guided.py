"""Guided alignment: teacher forcing whose attention to the source follows gold links (Chen et al. 2016)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.alignment import alignment_layer
from regard.attention import MultiHead
from regard.data.batches import Batch
from regard.data.corruption import TokenLinks, token_links
from regard.data.fields import Field
from regard.errors import UserError
from regard.models.parts import path_of, source_reads
from regard.objectives.loss import token_loss
from regard.objectives.objective import Objective, Sums, check_weight
from regard.objectives.sequence import check_smoothing, forced
from regard.recording import watch


@runtime_checkable
class TrainsAlignment(Protocol):
    """An objective that trains attention weights to align. Alignments are then taken from these weights."""

    @property
    def align_layer(self) -> int | None:
        """The number of the attention to the source, from 0; None: the one that alignments are taken from."""

    @property
    def align_heads(self) -> tuple[int, ...]:
        """The heads whose mean aligns; empty: all heads."""


@dataclass(frozen=True)
class GuidedAlignment(Objective):
    """Teacher forcing, and attention weights that follow the gold links of the data."""

    alignment: float = 0.5  # the weight of the alignment term
    align_layer: int | None = None  # the layer whose attention follows the links, from 0; none: the layer of alignments
    align_heads: tuple[int, ...] = ()  # the heads whose mean follows the links, from 0; empty: all heads
    smoothing: float = 0.0  # label smoothing: the weight that is spread over the vocabulary
    heads: ClassVar[tuple[str, ...]] = ("target",)
    needs: ClassVar[tuple[str, ...]] = ("alignment",)

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        check_weight("alignment", self.alignment, 0.5)

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, "alignment": self.alignment}

    def modules(self, model: nn.Module, fields: Mapping[str, Field]) -> None:
        """No modules. Refuses a model that does not have the attention that should follow the links."""
        name = self._attention(model)
        owner = model.get_submodule(path_of(name).rpartition(".")[0])
        heads = owner.heads if isinstance(owner, MultiHead) else 1
        if not all(0 <= head < heads for head in self.align_heads):
            given = ",".join(map(str, self.align_heads))
            there = f"heads 0 to {heads - 1}" if heads > 1 else "only head 0"
            raise UserError(f"objective.align_heads={given}: {name} has {there}; leave it out for all heads.")

    def corruption(self, fields: Mapping[str, Field]) -> TokenLinks:
        return token_links(fields)

    def count(self, batch: Batch) -> dict[str, int]:
        return {"nll": batch.counts["targets"], "alignment": batch.counts["alignment"]}

    def sums(self, model: Any, batch: Batch) -> Sums:
        name = self._attention(model)
        with watch(model, path_of(name)) as watched:
            features, _ = forced(model, batch)
        weights = watched.weights[name]  # (B, [H,] T, Ts)
        if weights.dim() == 4:
            heads = self.align_heads or range(weights.shape[1])
            weights = torch.stack([weights[:, head] for head in heads]).mean(dim=0)  # (B, T, Ts)
        return {
            "nll": token_loss(model, features, batch["targets"], self.smoothing),
            "alignment": alignment_loss(weights, batch["alignment"]),
        }

    def _attention(self, model: nn.Module) -> str:
        """The name of the attention that follows the links."""
        names = source_reads(model)
        if not names:
            raise UserError("objective=guided: the model has no attention to a source; set model.decoder=bahdanau.")
        layer = alignment_layer(len(names)) if self.align_layer is None else self.align_layer
        if not 0 <= layer < len(names):
            there = f"layers 0 to {len(names) - 1} attend" if len(names) > 1 else "only layer 0 attends"
            raise UserError(f"objective.align_layer={layer}: {there} to the source; give one of them, or leave it out.")
        return names[layer]


def alignment_loss(weights: Tensor, gold: Tensor) -> Tensor:
    """The sum of the cross-entropy -Σ gold · log(weights) of all targets, (B, T, Ts) each (Chen et al. 2016).

    The rows of ``gold`` sum to 1, or to 0 for a target without links. A weight of 0 counts as the smallest number.
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    return -(gold * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum()
