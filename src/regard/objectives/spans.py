"""Span corruption, T5 (Raffel et al. 2020): a model reads a text with hidden spans and generates the spans."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from regard.data.batches import Batch
from regard.data.fields import Field, TextField
from regard.data.span_corruption import CorruptSpans
from regard.data.tokenizers import sentinel
from regard.errors import UserError
from regard.objectives.loss import token_loss
from regard.objectives.objective import CausalModel, Objective, Sums
from regard.objectives.sequence import check_part, check_smoothing, forced


@dataclass(frozen=True)
class SpanCorruption(Objective):
    """Generate the hidden spans of a text (Raffel et al. 2020, section 3.1.4)."""

    part: float = 0.15  # the fraction of a text's tokens that is hidden, rounded
    span: float = 3.0  # the mean number of tokens of a hidden span
    smoothing: float = 0.0  # label smoothing: the weight that is spread over the vocabulary
    heads: ClassVar[tuple[str, ...]] = ("target",)
    makes: ClassVar[tuple[str, ...]] = ("target",)

    def __post_init__(self) -> None:
        check_part("part", self.part)
        check_smoothing(self.smoothing)
        if not 0 < self.part < 1:
            raise UserError(f"objective.part={self.part}: give more than 0 and less than 1, such as 0.15.")
        if not 1 <= self.span < float("inf"):
            raise UserError(f"objective.span={self.span}: give 1 or more, such as 3.")

    def corruption(self, fields: Mapping[str, Field]) -> CorruptSpans:
        source, target = fields["source"], fields["target"]
        assert isinstance(source, TextField)
        assert isinstance(target, TextField)
        special = source.tokenizer.special_tokens
        if len(special.sentinels) < 2:
            names = f"{sentinel(0)}, {sentinel(1)} …"
            cure = "take one that has them, such as that of a T5, or leave from= and data.tokenizer= out to train one"
            raise UserError(f"the tokenizer has no sentinels ({names}), which stand for hidden spans; {cure}.")
        around, of_target = source.wrap([-1]), target.wrap([-1])
        begins, ends = of_target.index(-1), of_target.index(-1) + 1
        return CorruptSpans(
            sentinels=special.sentinels,
            before=around.index(-1),
            after=len(around) - around.index(-1) - 1,
            begin=tuple(of_target[:begins]),
            end=tuple(of_target[ends:]),
            fraction=self.part,
            span=self.span,
        )

    def sums(self, model: CausalModel, batch: Batch) -> Sums:
        features, _ = forced(model, batch)
        return {"nll": token_loss(model, features, batch["targets"], self.smoothing)}
