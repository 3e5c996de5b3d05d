"""Linear-chain conditional random field (Lafferty et al. 2001; Lample et al. 2016, §2.2): tags that depend on their
neighbours.

The score of the tags y₁ … y_T of a text is start(y₁) + Σ emission(t, y_t) + Σ transition(y_t, y_t₊₁) + end(y_T). Their
probability is exp(score) / Z, where Z sums exp(score) over all sequences of tags.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.entities import may_follow, names_entities, split_tag
from regard.layers.recurrent import real_first
from regard.scores import at_least_float32

FORBIDDEN = -1e4  # the score of what cannot be; finite, so that no gradient is NaN


class LinearChain(nn.Module):
    """The scores of the transitions between tags, with the forward algorithm and Viterbi's.

    `names` are the tags. If they are those of a scheme (`regard.entities`), `best` gives only sequences that are legal
    in it. All is computed in float32 or better, and padding may be anywhere.
    """

    start_legal: Tensor
    end_legal: Tensor
    legal: Tensor

    def __init__(self, labels: int, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))  # [i, j]: from tag i to tag j
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))
        # Whether tag j may follow tag i; the last row is the start of a text, the last column its end.
        legal = torch.ones(labels + 1, labels + 1, dtype=torch.bool)
        if names_entities(names):
            scheme = "bioes" if any(split_tag(name)[0] in ("E", "S") for name in names) else "iob2"
            around: list[str | None] = [*names, None]
            legal = torch.tensor([[may_follow(one, other, scheme) for other in around] for one in around])
        for name, part in (("legal", legal[:-1, :-1]), ("start_legal", legal[-1, :-1]), ("end_legal", legal[:-1, -1])):
            self.register_buffer(name, part, persistent=False)

    def log_partition(self, emissions: Tensor, real: Tensor | None = None) -> Tensor:
        """log Z (B,) of the emissions (B, T, L), by the forward algorithm. Of a text without words it is 0."""
        emissions, real, _ = _real_first(emissions, real)
        transitions, start, end = (at_least_float32(one) for one in (self.transitions, self.start, self.end))
        alpha = start + emissions[:, 0]  # (B, L): log of the sum over all tags before, for each tag at this place
        for place in range(1, emissions.shape[1]):
            after = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emissions[:, place]
            alpha = torch.where(real[:, place, None], after, alpha)
        return torch.logsumexp(alpha + end, dim=1).masked_fill(~real[:, 0], 0.0)

    def log_probability(self, emissions: Tensor, allowed: Tensor, real: Tensor | None = None) -> Tensor:
        """The log-probability (B,) that the tag of every place is one of those `allowed` (B, T, L) there."""
        emissions = at_least_float32(emissions)
        both = torch.cat([emissions.masked_fill(~allowed, FORBIDDEN), emissions])
        some, whole = self.log_partition(both, None if real is None else real.repeat(2, 1)).chunk(2)
        return some - whole

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


def _real_first(emissions: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The emissions in float32 or better, with the real places of each row first; what is real; and the order."""
    if real is None:
        real = torch.ones(emissions.shape[:2], dtype=torch.bool, device=emissions.device)
    order = real_first(real)
    return at_least_float32(emissions).take_along_dim(order[..., None], dim=1), real.gather(1, order), order
