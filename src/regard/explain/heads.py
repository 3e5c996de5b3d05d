"""What heads do: how much each of them looks at the word before, the next, itself, a separator; how widely, how far.

A table of habits (Clark et al. 2019, §3). What a head is to be compared with is an even mixture, which looks everywhere
alike: the difference is its habit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Head:
    """The habits of one head: means over the words that ask."""

    layer: str
    head: int  # -1: an even mixture of what may be seen
    previous: float  # weight on the word before
    next: float
    itself: float
    first: float  # weight on the first place
    separator: float  # weight on separators and punctuation, all of them together, but for the first place
    entropy: float  # of the weights, in nats
    distance: float  # to what it looks at, on average, in words


HABITS = tuple(field.name for field in fields(Head))[2:]
SHARES = HABITS[:5]  # of the weight
Text = tuple[dict[str, Tensor], Sequence[bool]]  # weights (H, T, T) by layer, and which words are separators


def heads(texts: Iterable[Text]) -> list[Head]:
    """The habits of all heads over some texts, one text after the other; the even mixture comes last."""
    sums: dict[tuple[str, int], Tensor] = {}
    words = 0
    for layers, separators in texts:
        words += len(separators)
        for name, weights in layers.items():
            for head, found in enumerate(_habits(weights, separators)):
                sums[name, head] = sums.get((name, head), torch.zeros(())) + found
        seen = torch.stack([(weights > 0).any(dim=0) for weights in layers.values()]).any(dim=0)[None]  # by any head
        even = seen / seen.sum(dim=-1, keepdim=True)
        sums["even", -1] = sums.get(("even", -1), torch.zeros(())) + _habits(even, separators)[0]
    last = sums.pop(("even", -1))
    means = {**sums, ("even", -1): last}
    return [Head(layer, head, *(total / words).tolist()) for (layer, head), total in means.items()]


def strongest(found: Sequence[Head]) -> dict[str, Head]:
    """Of every share, the head that has most of it; the even mixture, which comes last, is none."""
    return {name: max(found[:-1], key=lambda one: getattr(one, name)) for name in SHARES}


def _habits(weights: Tensor, separators: Sequence[bool]) -> Tensor:
    """(H, T, T) → (H, habits), each summed over the words that ask."""
    at = torch.arange(len(separators))
    apart = at - at[:, None]  # (T, T) how far to the right
    places = (
        apart == -1,
        apart == 1,
        apart == 0,
        (at == 0).expand_as(apart),
        (torch.tensor(separators) & (at > 0)).expand_as(apart),
    )
    on = [(weights * place).sum(dim=(-2, -1)) for place in places]
    entropy = -torch.xlogy(weights, weights).sum(dim=(-2, -1))
    return torch.stack([*on, entropy, (weights * apart.abs()).sum(dim=(-2, -1))], dim=-1)
