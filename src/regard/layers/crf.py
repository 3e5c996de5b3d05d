"""Linear-chain conditional random field (Lafferty et al. 2001; Lample et al. 2016, §2.2): tags that depend on their
neighbours.

The score of the tags y₁ … y_T of a text is start(y₁) + Σ emission(t, y_t) + Σ transition(y_t, y_t₊₁) + end(y_T). Their
probability is exp(score) / Z, where Z sums exp(score) over all sequences of tags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.entities import continues, may_follow, names_entities, split_tag
from regard.layers.recurrent import real_first
from regard.scores import at_least_float32

FORBIDDEN = -1e4  # the score of what cannot be; finite, so that no gradient is NaN


class LinearChain(nn.Module):
    """The scores of the transitions between tags, with the forward and backward algorithms and Viterbi's.

    `names` are the tags. If they are those of a scheme (`regard.entities`), `best` gives only sequences that are legal
    in it. All is computed in float32 or better, and padding may be anywhere. The scores are 0 at first: the tags of the
    words are then independent, and have the softmax of the emissions as their probabilities.
    """

    start_legal: Tensor
    end_legal: Tensor
    legal: Tensor
    continued: Tensor

    def __init__(self, labels: int, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))  # [i, j]: from tag i to tag j
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))
        # Whether tag j may follow tag i; the last row is the start of a text, the last column its end.
        legal = torch.ones(labels + 1, labels + 1, dtype=torch.bool)
        continued = torch.zeros(labels, labels, dtype=torch.bool)  # whether tag j continues the entity of tag i
        if names_entities(names):
            scheme = "bioes" if any(split_tag(name)[0] in ("E", "S") for name in names) else "iob2"
            around: list[str | None] = [*names, None]
            legal = torch.tensor([[may_follow(one, other, scheme) for other in around] for one in around])
            continued = torch.tensor([[continues(one, other) for other in names] for one in names])
        self.register_buffer("continued", continued, persistent=False)
        for name, part in (("legal", legal[:-1, :-1]), ("start_legal", legal[-1, :-1]), ("end_legal", legal[:-1, -1])):
            self.register_buffer(name, part, persistent=False)

    def log_partition(self, emissions: Tensor, real: Tensor | None = None) -> Tensor:
        """log Z (B,) of the emissions (B, T, L), by the forward algorithm. Of a text without words it is 0."""
        emissions, real, _ = _real_first(emissions, real)
        last = self._forward_sums(emissions, real)[-1]
        return torch.logsumexp(last + at_least_float32(self.end), dim=1).masked_fill(~real[:, 0], 0.0)

    def log_probability(self, emissions: Tensor, allowed: Tensor, real: Tensor | None = None) -> Tensor:
        """The log-probability (B,) that the tag of every place is one of those `allowed` (B, T, L) there."""
        emissions = at_least_float32(emissions)
        both = torch.cat([emissions.masked_fill(~allowed, FORBIDDEN), emissions])
        some, whole = self.log_partition(both, None if real is None else real.repeat(2, 1)).chunk(2)
        return some - whole

    def entity_log_probability(
        self, emissions: Tensor, tags: Tensor, spans: Tensor, real: Tensor | None = None
    ) -> Tensor:
        """The log-probability (N,) of entities: their words have these tags, and no word beside continues the entity.

        `tags` (B, T) are the tags of the words. A row of `spans` (N, 3) is an entity: the number of its text, of its
        first word, and of the word after its last one; padding does not count. The forward and backward sums are
        computed once for all entities, in float64: those of a long text are large.
        """
        emissions, real, order = _real_first(emissions.double(), real)
        tags, (row, first, after) = tags.gather(1, order), spans.unbind(1)
        transitions, start, end = (one.double() for one in (self.transitions, self.start, self.end))
        forward, backward = self._forward_sums(emissions, real), self._backward_sums(emissions, real)
        whole = torch.logsumexp(forward[-1] + end, dim=1)[row]
        # The words of the entity: the score of its tags.
        chosen = emissions.gather(2, tags[..., None]).squeeze(2)
        path = (chosen + F.pad(transitions[tags[:, :-1], tags[:, 1:]], (1, 0))).cumsum(1)
        inside = path[row, after - 1] - path[row, first] + chosen[row, first]
        # The words before: all sequences of tags whose last one the entity does not continue.
        tag = tags[row, first]
        sums = torch.stack(forward, 1)[row, (first - 1).clamp(min=0)] + transitions.T[tag]
        before = torch.logsumexp(sums.masked_fill(self.continued.T[tag], -math.inf), dim=1)
        before = torch.where(first > 0, before, start[tag])
        # The words after: all sequences of tags whose first one does not continue the entity.
        tag, place = tags[row, after - 1], after.clamp(max=emissions.shape[1] - 1)
        sums = transitions[tag] + emissions[row, place] + torch.stack(backward, 1)[row, place]
        beyond = torch.logsumexp(sums.masked_fill(self.continued[tag], -math.inf), dim=1)
        beyond = torch.where(after < real.sum(1)[row], beyond, end[tag])
        return before + inside + beyond - whole

    def best(self, emissions: Tensor, real: Tensor | None = None) -> Tensor:
        """The tags (B, T) of the best legal sequence, by Viterbi's algorithm; those of padding are arbitrary."""
        emissions, real, order = _real_first(emissions, real)
        transitions = at_least_float32(self.transitions).masked_fill(~self.legal, FORBIDDEN)
        start = at_least_float32(self.start).masked_fill(~self.start_legal, FORBIDDEN)
        end = at_least_float32(self.end).masked_fill(~self.end_legal, FORBIDDEN)
        same = torch.arange(len(start), device=start.device).expand(len(emissions), -1)
        score, before = start + emissions[:, 0], []
        for place in range(1, emissions.shape[1]):
            best, tag = (score[:, :, None] + transitions).max(dim=1)  # for each next tag, the best tag here
            score = torch.where(real[:, place, None], best + emissions[:, place], score)
            before.append(torch.where(real[:, place, None], tag, same))
        tags = [(score + end).argmax(dim=1)]
        for step in reversed(before):
            tags.append(step.gather(1, tags[-1][:, None])[:, 0])
        return torch.stack(tags[::-1], dim=1).gather(1, order.argsort(1))

    def _forward_sums(self, emissions: Tensor, real: Tensor) -> list[Tensor]:
        """At each place, for each tag (B, L): log of the sum over all tags before, with the emission of the place."""
        transitions, start = at_least_float32(self.transitions), at_least_float32(self.start)
        sums = [start + emissions[:, 0]]
        for place in range(1, emissions.shape[1]):
            after = torch.logsumexp(sums[-1][:, :, None] + transitions, dim=1) + emissions[:, place]
            sums.append(torch.where(real[:, place, None], after, sums[-1]))
        return sums

    def _backward_sums(self, emissions: Tensor, real: Tensor) -> list[Tensor]:
        """At each place, for each tag (B, L): log of the sum over all tags after, without the emission of the place."""
        transitions, end = at_least_float32(self.transitions), at_least_float32(self.end)
        sums = [end.to(emissions.dtype).expand(len(emissions), -1)]
        for place in range(emissions.shape[1] - 1, 0, -1):
            before = torch.logsumexp(transitions + (emissions[:, place] + sums[-1])[:, None], dim=2)
            sums.append(torch.where(real[:, place, None], before, sums[-1]))
        return sums[::-1]


def _real_first(emissions: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The emissions in float32 or better, with the real places of each row first; what is real; and the order."""
    if real is None:
        real = torch.ones(emissions.shape[:2], dtype=torch.bool, device=emissions.device)
    order = real_first(real)
    return at_least_float32(emissions).take_along_dim(order[..., None], dim=1), real.gather(1, order), order
