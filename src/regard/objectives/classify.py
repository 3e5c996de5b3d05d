"""Objectives of heads: classes of texts, places or choices; numbers; independent answers; spans of passages.

The loss of the next token may be added (`objective.language`), as in GPT's fine-tuning (Radford et al. 2018, §3.2,
eq. 5).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch
from regard.data.fields import Field, LabelField
from regard.errors import UserError
from regard.heads import best_tags, tag_sequences
from regard.models.headed import Texts, texts_of
from regard.objectives.loss import cross_entropy, token_loss
from regard.objectives.objective import Objective, Sums, check_weight
from regard.objectives.sequence import check_smoothing
from regard.recording import watch


@dataclass(frozen=True)
class Classification(Objective):
    """Predict the class of a text, or of each place of it, or which of several texts is right.

    If the model has several hops, a penalty makes them attend to different tokens. A head that scores whole sequences
    of tags (`head=crf`) has the loss −log p(all tags of a text); a place whose target is IGNORED may have any tag.
    """

    penalty: float = 0.01  # weight of ‖A Aᵀ − I‖², for the attention A (hops, T) of the hops (Lin et al. 2017, eq. 8)
    smoothing: float = 0.0  # label smoothing: the weight that is spread over all classes
    # weights of the classes in the loss: balanced (a rare class counts more), or a number for each class, in order
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = "none"
    language: float = 0.0  # weight of the loss of the next token of the text, for a causal body (Radford et al. 2018)
    heads: ClassVar[tuple[str, ...]] = ("class", "tag", "choice")
    measures: ClassVar[tuple[str, ...]] = ("right",)

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        check_weight("language", self.language, 0.5)
        check_weight("penalty", self.penalty, 0.01)
        if isinstance(self.class_weights, tuple) and not all(0 < one < float("inf") for one in self.class_weights):
            stated = ",".join(map(str, self.class_weights))
            raise UserError(f"objective.class_weights={stated}: give a number above 0 for each class.")

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, "overlap": self.penalty, **({"language": self.language} if self.language else {})}

    def count(self, batch: Batch) -> dict[str, int]:
        return super().count(batch) | ({"language": count_next_tokens(batch)} if self.language else {})

    def modules(self, model: Any, fields: Mapping[str, Field]) -> nn.Module | None:
        """The weights of the classes, if there are any. They are not trained."""
        changed = self.smoothing or self.class_weights != "none"
        if changed and model.config.tag_sequences:
            stated = "objective.smoothing" if self.smoothing else "objective.class_weights"
            raise UserError(f"{stated}: a head that scores whole sequences of tags has no such setting; use head=tag.")
        if self.language:
            check_predicts_next(model)
        if self.class_weights == "none":
            return None
        labels = next((each for each in fields.values() if isinstance(each, LabelField)), None)
        if labels is None:
            raise UserError("objective.class_weights: these examples have no classes; leave it out.")
        return ClassWeights(self.class_weights, labels)

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        targets, language = batch["targets"], {}
        if self.language:
            logits, language["language"] = logits_and_language(model, batch)
            overlap = torch.zeros(targets.shape, device=targets.device)
        elif model.config.attention_rows:  # hops: the queries of the one attention of the model
            with watch(model) as watched:
                logits = model(batch)  # (B, labels), or (B, T, labels)
            *_, hops = (watched.weights[name] for name in watched.weights)  # (B, hops, T)
            shared = hops @ hops.mT  # (B, hops, hops)
            overlap = (shared - torch.eye(shared.shape[-1], device=shared.device)).square().sum(dim=(1, 2))
        else:
            logits, overlap = model(batch), torch.zeros(targets.shape, device=targets.device)
        found = logits.argmax(dim=-1)
        if (chain := tag_sequences(model)) is not None:
            real: Tensor | None = batch.fields.get("words", batch.visible("tokens"))
            allowed = (targets[..., None] == torch.arange(logits.shape[-1], device=targets.device)) | (
                targets == IGNORED
            )[..., None]
            nll = -chain.log_probability(logits, allowed, real).sum()
            if not model.training:  # a search takes a step for each place
                found = best_tags(model, logits, real)
        else:
            weights = own.weights if isinstance(own, ClassWeights) else None
            nll = cross_entropy(logits.flatten(0, -2), targets.flatten(), self.smoothing, weights)
        sums = {
            "nll": nll,
            "overlap": overlap.masked_fill(targets == IGNORED, 0.0).sum(),
            "right": (found == targets).sum(),
            **language,
        }
        return sums, None


class ClassWeights(nn.Module):
    """The weight of each class in the loss. Over the training examples, the weights have the mean 1.

    Balanced weights are examples / (classes · examples of the class): each class has the same total (King & Zeng 2001).
    """

    weights: Tensor

    def __init__(self, stated: Literal["balanced"] | tuple[float, ...], labels: LabelField) -> None:
        super().__init__()
        if not labels.counts:
            raise UserError("objective.class_weights: the classes of this run have no counts; start another run.")
        if isinstance(stated, tuple) and len(stated) != labels.size:
            names = ", ".join(f"{name:.20}" for name in labels.names[:8]) + (", …" if labels.size > 8 else "")
            shown = ",".join(f"{one:g}" for one in stated)
            found = f"{len(stated)} numbers for {labels.size} classes"
            raise UserError(f"objective.class_weights={shown}: {found}; give one for each, in this order: {names}.")
        counts = torch.tensor(labels.counts, dtype=torch.float32).clamp(min=1)
        weights = torch.tensor(stated) if isinstance(stated, tuple) else 1 / counts
        self.register_buffer("weights", weights * counts.sum() / (weights * counts).sum())


@dataclass(frozen=True)
class Recall(Objective):
    """Predict the class of each place, of which most are blank, as in copy memory. The blank class is the first one.

    The loss counts all places. The accuracy of the other places is measured too.
    """

    heads: ClassVar[tuple[str, ...]] = ("tag",)
    measures: ClassVar[tuple[str, ...]] = ("right", "recalled", "recallable")

    def sums(self, model: Any, batch: Batch) -> Sums:
        targets = batch["targets"]  # (B, T)
        logits, recallable = model(batch), targets > 0
        right = logits.argmax(dim=-1) == targets
        return {
            "nll": cross_entropy(logits.flatten(0, -2), targets.flatten()),
            "right": right.sum(),
            "recalled": (right & recallable).sum(),
            "recallable": recallable.sum(),
        }


@dataclass(frozen=True)
class SpanAnswers(Objective):
    """Predict the first and the last token of an answer (Devlin et al. 2019, §4.2).

    The loss is the mean of two cross-entropies, as in BERT's code; the paper has their sum. Each is over the tokens of
    the passage and the first token of the input, which stands for "no answer" (§4.3).
    """

    heads: ClassVar[tuple[str, ...]] = ("span",)
    measures: ClassVar[tuple[str, ...]] = ("right",)

    def sums(self, model: Any, batch: Batch) -> Sums:
        logits = model(batch).masked_fill(~batch["allowed"][..., None], -math.inf)  # (B, T, 2)
        targets = batch["targets"]  # (B, 2)
        nll = cross_entropy(logits.mT.flatten(0, 1), targets.flatten()) / 2
        return {"nll": nll, "right": (logits.argmax(1) == targets).all(-1).sum()}


@dataclass(frozen=True)
class Regression(Objective):
    """Predict a number. The loss is the squared error.

    It is the negative log-likelihood of a normal distribution with variance ½, without its constant.
    """

    language: float = 0.0  # weight of the loss of the next token of the text, for a causal body (Radford et al. 2018)
    heads: ClassVar[tuple[str, ...]] = ("number",)
    measures: ClassVar[tuple[str, ...]] = ("squared",)

    def __post_init__(self) -> None:
        check_weight("language", self.language, 0.5)

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, **({"language": self.language} if self.language else {})}

    def count(self, batch: Batch) -> dict[str, int]:
        return super().count(batch) | ({"language": count_next_tokens(batch)} if self.language else {})

    def modules(self, model: Any, fields: Mapping[str, Field]) -> None:
        if self.language:
            check_predicts_next(model)

    def sums(self, model: Any, batch: Batch) -> Sums:
        targets, sums = batch["targets"], {}  # (B,), NaN: counts for nothing
        if self.language:
            numbers, sums["language"] = logits_and_language(model, batch)
        else:
            numbers = model(batch)
        error = numbers - targets  # in float32 or better, as the targets are
        total = error.masked_fill(targets.isnan(), 0.0).square().sum()
        return {"nll": total, "squared": total.detach(), **sums}


@dataclass(frozen=True)
class BinaryAnswers(Objective):
    """Predict several independent yes-or-no answers: the labels of a text, or at each place the keys of a piano.

    The loss of a text or place is the sum of the binary cross-entropies of its answers, in nats.
    """

    heads: ClassVar[tuple[str, ...]] = ("keys", "labels")

    def sums(self, model: Any, batch: Batch) -> Sums:
        targets = batch["targets"]  # (B, labels) or (B, T, keys) of 0 and 1, NaN: counts for nothing
        padding = targets.isnan()
        logits = model(batch)
        precise = torch.promote_types(logits.dtype, targets.dtype)
        logits, targets = (each.to(precise).masked_fill(padding, 0.0) for each in (logits, targets))
        nll = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return {"nll": torch.sum(nll.masked_fill(padding, 0.0))}


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
