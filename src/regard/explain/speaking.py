"""A small Transformer that learns the language of ``sentences``, through a mask of one's choice."""

import torch
from torch import Tensor

from regard.explain.sentences import BEGIN, END, IDS, PAD, VOCABULARY, batch
from regard.explain.small import Experiment, Reader, learn
from regard.layers.transformer import Shape
from regard.mask import Mask

SHAPE = Shape(
    width=64, heads=4, layers=2, inner=128, context=32, norm_place="post", dropout=0.0, positions="sinusoidal"
)


def taught(what: str, mask: Mask, steps: int, seed: int) -> Experiment[tuple[Reader, float]]:
    """A network that was taught to say the next word, and its last loss in training."""
    torch.manual_seed(seed)
    network = Reader(SHAPE, len(VOCABULARY), mask)
    loss = yield from learn(what, network, batch, steps, seed)
    return network.eval(), loss


@torch.no_grad()
def says(network: Reader, count: int, seed: int, longest: int = 20) -> list[list[str]]:
    """Sentences drawn from a network, word after word; each ends where it says so, or is cut.

    Two marks are no words, and are never said: the beginning and the padding.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens, unsaid = torch.full((count, 1), IDS[BEGIN]), torch.tensor([IDS[BEGIN], IDS[PAD]])
    for _ in range(longest):
        logits = network(tokens)[:, -1].index_fill(1, unsaid, -torch.inf)
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)], dim=1)
    return [_words(row) for row in tokens[:, 1:]]


def _words(row: Tensor) -> list[str]:
    """What was said before the end."""
    words = [VOCABULARY[token] for token in row.tolist()]
    return words[: words.index(END)] if END in words else words
