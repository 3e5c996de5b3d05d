"""Replaced token detection, ELECTRA (Clark et al. 2020): which tokens of a text were replaced by a small generator?

The generator is a masked language model. It reads the text with some tokens masked, and the masked places get tokens
that are sampled from its predictions. The model reads this text, and tells for each token whether it is the original.
Both learn at the same time from the same batch; no gradient passes through the sampled tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch
from regard.data.corruption import MaskAndDraw
from regard.data.fields import Field, TextField
from regard.errors import UserError
from regard.heads import MaskedHead
from regard.layers.init import init_weights, neighbour_heads
from regard.layers.product import Product
from regard.layers.tokens import real_positions
from regard.layers.transformer import Stack
from regard.models.bert import Bert, BertConfig
from regard.objectives.loss import product_loss
from regard.objectives.masked import MaskedTokens, masked_places
from regard.objectives.objective import Objective, Sums
from regard.scores import at_least_float32

AT_ONCE = 1024  # places whose tokens are sampled at a time: each needs the probabilities of the whole vocabulary


class Replaced(NamedTuple):
    """A text with tokens of a generator, and what the generator predicted."""

    text: Tensor  # (B, T) what the model reads
    product: Product  # the logits (B, K, V) of the masked places
    masked: Tensor  # (B, K) the original tokens of these; IGNORED where a row has fewer


@dataclass(frozen=True)
class ReplacedTokens(Objective):
    """Tell which tokens of a text were replaced by tokens of a generator, a small BERT that is trained beside it.

    A sampled token that is equal to the original one counts as original. The generator has the embeddings of the
    model; it is saved with the state of the optimiser and is no part of the model.
    """

    part: float = 0.15  # the fraction of a text's tokens that the generator predicts, rounded up; special tokens count
    places: Literal["all", "masked"] = "all"  # the places of the loss: all, or only those that the generator fills
    weight: float = 50.0  # the weight of the model's loss; that of the generator's loss is 1
    width: float = 0.25  # the width of the generator, as a fraction of the model's; so are its heads and inner width
    layers: int = 0  # the number of blocks of the generator; 0: as many as the model has
    heads: ClassVar[tuple[str, ...]] = ("replaced",)
    measures: ClassVar[tuple[str, ...]] = ("right", "replaced", "flagged", "detected")
    needs_own: ClassVar[bool] = True

    def __post_init__(self) -> None:
        MaskedTokens(part=self.part)  # checks it
        if not 0 < self.weight < float("inf"):
            raise UserError(f"objective.weight={self.weight}: give a number above 0, such as 50.")
        if not 0 < self.width <= 1:
            raise UserError(f"objective.width={self.width}: give a fraction above 0, at most 1, such as 0.25.")
        if self.layers < 0:
            raise UserError(f"objective.layers={self.layers}: give 1 or more, or 0 for as many as the model has.")

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": self.weight, "generator": 1.0}

    def modules(self, model: Bert, fields: Mapping[str, Field]) -> nn.Module:
        return Generator(self.generator(model.config), model.config.embed or model.config.width)

    def generator(self, config: BertConfig) -> BertConfig:
        """The config of the generator of a model: narrower, with heads of about the same width.

        A model with `neighbours` has a generator with two heads or more, for the token before and the token after.
        """
        heads = max(2 if config.neighbours else 1, round(config.heads * self.width))
        return replace(
            config,
            heads=heads,
            width=max(1, round(config.width * self.width / heads)) * heads,
            inner=max(1, round(config.inner * self.width)),
            layers=self.layers or config.layers,
            groups=0 if self.layers else config.groups,
            group_blocks=1 if self.layers else config.group_blocks,
            outputs=("masked",),
            tied=True,
        )

    def corruption(self, fields: Mapping[str, Field]) -> MaskAndDraw:
        text = fields["text"]
        assert isinstance(text, TextField)
        if text.tokenizer.special_tokens.mask is None:
            cure = "start from a model, or give data.tokenizer, with one"
            raise UserError(f"the tokenizer has no mask token, which objective=replaced needs; {cure}.")
        return MaskAndDraw(MaskedTokens(self.part, kept=0.0, random=0.0).corruption(fields))

    def count(self, batch: Batch) -> dict[str, int]:
        counted = batch.counts["tokens" if self.places == "all" else "targets"]
        return {"nll": counted, "generator": batch.counts["targets"]}

    def __call__(
        self, model: Bert, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        """The losses of the model and of the generator."""
        assert model.replaced is not None
        targets, real, segments = batch["targets"], batch.visible("tokens"), batch.fields.get("segments")
        text, product, masked = self.replace(model, batch, own)
        logits = at_least_float32(model.replaced(model.features(text, real, segments)))  # (B, T)
        replaced = (targets != IGNORED) & (text != targets)
        counted = batch.real["tokens"] if self.places == "all" else targets != IGNORED
        flagged = (logits > 0) & counted
        losses = F.binary_cross_entropy_with_logits(logits, replaced.to(logits), counted.to(logits), reduction="sum")
        sums = {
            "nll": losses,
            "generator": product_loss(product, masked),
            "right": ((flagged == replaced) & counted).sum(),
            "replaced": replaced.sum(),
            "flagged": flagged.sum(),
            "detected": (flagged & replaced).sum(),
        }
        return sums, None

    def replace(self, model: Bert, batch: Batch, own: nn.Module | None) -> Replaced:
        """The text of a batch with tokens of the generator in the masked places."""
        if not isinstance(own, Generator):
            raise UserError("this ELECTRA has no generator, which an evaluation needs; name a run of ELECTRA.")
        tokens, targets = batch["tokens"], batch["targets"]  # (B, T)
        places = masked_places(targets, self.part)  # (B, K)
        masked = targets.gather(1, places)
        product = own(model, tokens, places, batch.visible("tokens"), batch.fields.get("segments"))
        sampled = sample(product, batch["draws"].gather(1, places))
        shown = torch.where(masked == IGNORED, tokens.gather(1, places), sampled)
        return Replaced(tokens.scatter(1, places, shown), product, masked)


class Generator(nn.Module):
    """A small masked language model on the embeddings of another model, which are projected to its width.

    The embeddings are an argument and no part of this module: their weights are trained, clipped and saved once.
    """

    def __init__(self, config: BertConfig, embed: int) -> None:
        super().__init__()
        self.project = nn.Linear(embed, config.width)
        self.stack = Stack(config, causal=False)
        self.masked = MaskedHead(config, embed)
        init_weights(self, config.initial)
        if config.neighbours:
            neighbour_heads(self.stack.layers[0].attention, embed, self.project)

    def forward(
        self, model: Bert, tokens: Tensor, places: Tensor, real: Tensor | None, segments: Tensor | None = None
    ) -> Product:
        """The logits (B, K, V) of some places (B, K) of a text, as an uncomputed matrix product."""
        positions = real_positions(tokens, real) + model.config.first_position
        states = self.stack(self.project(model.embedding.vectors(tokens, positions, segments)), real)  # (B, T, W)
        some = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[-1]))  # (B, K, W)
        return Product(self.masked(some), model.embedding.tokens.weight, self.masked.bias)


@torch.no_grad()
def sample(product: Product, draws: Tensor) -> Tensor:
    """A token (B, K) for each number from 0 to 1: the first one up to which the probabilities sum to more than it.

    If the numbers are uniform, each token is sampled with its probability, which is the softmax of the logits.
    """
    x, found = product.x.flatten(0, 1), list[Tensor]()
    for some, number in zip(x.split(AT_ONCE), draws.flatten().split(AT_ONCE)):
        logits = at_least_float32(product._replace(x=some).logits())
        up_to = logits.softmax(dim=-1).cumsum(dim=-1)  # (N, V)
        wanted = number[:, None].to(up_to) * up_to[:, -1:]  # rounding leaves the last sum a little beside 1
        found.append(torch.searchsorted(up_to, wanted, right=True).clamp_max(up_to.shape[-1] - 1)[:, 0])
    return torch.cat(found).view(draws.shape)
