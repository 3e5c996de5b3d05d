"""Why a language model must not see ahead: without a mask it learns to copy its answer from its input.

Two networks, alike in all but the mask, learn to say the next word of every word of a sentence. The one that sees the
whole sentence sees the answer: its loss goes to nothing, far below what the language allows. When it is to write, there
is nothing to copy from.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from regard.explain.sentences import PAD, VOCABULARY, allowed, batch, floor
from regard.explain.small import IGNORED, Experiment, Reader
from regard.explain.speaking import says, taught
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.recording import record

MASKS = {"causal mask": CAUSAL, "no mask": EVERYTHING}


@dataclass(frozen=True)
class Told:
    """One of the two networks: how well it seemed to learn, and what it says."""

    name: str
    loss: float  # of the next word, as it was trained; nats
    honest: float  # … with the future hidden, as when it writes
    ahead: float  # how much of its attention goes to words that come later
    right: float  # sentences it says that the grammar allows
    examples: list[str]
    weights: list[list[float]]  # (Tq, Tk) of a sentence, mean over heads and layers


@dataclass(frozen=True)
class Masking:
    """Both networks, and the least loss that an honest one can have."""

    floor: float
    sentence: list[str]  # whose weights are shown
    told: list[Told]


def masking(steps: int = 240, count: int = 200, seed: int = 1) -> Experiment[Masking]:
    """Trains both, tests both on the same sentences, and lets both write."""
    found = []
    for name, mask in MASKS.items():
        network, _ = yield from taught(name, mask, steps, seed)
        found.append(_told(name, network, count, seed))
    words, _ = _sample(seed)
    return Masking(floor(), words, found)


def _sample(seed: int) -> tuple[list[str], torch.Tensor]:
    """A sentence as it is read, the beginning included."""
    tokens, _ = batch(torch.Generator().manual_seed(seed), rows=1)
    words = [VOCABULARY[token] for token in tokens[0].tolist()]
    return [word for word in words if word != PAD], tokens


@torch.no_grad()
def _told(name: str, network: Reader, count: int, seed: int) -> Told:
    tokens, targets = batch(torch.Generator().manual_seed(2**40 + seed), rows=512)

    def loss(mask: Mask) -> float:
        logits = network.readout(network.states(tokens, mask))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED).item()

    with record(network) as tape:
        network(_sample(seed)[1])
    weights = torch.stack([tape[one] for one in tape]).mean(dim=(0, 1, 2))  # (layers, 1, H, T, T) → (T, T)
    said = says(network, count, seed)
    return Told(
        name,
        loss(network.mask),
        loss(CAUSAL),
        ahead=(weights.triu(1).sum() / weights.sum()).item(),
        right=sum(map(allowed, said)) / len(said),
        examples=[" ".join(words) for words in said[:6]],
        weights=weights.tolist(),
    )
