"""Words from their characters: a convolutional network with highway layers (Kim et al. 2016; Peters et al. 2018)."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.characters import COUNT
from regard.errors import UserError

# The initial bias of the gate of a highway layer: a layer passes most of its input on (Srivastava et al. 2015).
CARRY = -2.0
AT_ONCE = 1024  # words that are encoded together: the outputs of the filters take much more memory than the vectors


class Highway(nn.Module):
    """g ⊙ ReLU(W x + b) + (1 − g) ⊙ x, with the gate g = σ(V x + c) (Srivastava et al. 2015, eq. 3)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.transform = nn.Linear(width, width), nn.Linear(width, width)
        for layer, bias in ((self.gate, CARRY), (self.transform, 0.0)):
            nn.init.normal_(layer.weight, std=sqrt(1 / width))
            nn.init.constant_(layer.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class CharacterEncoder(nn.Module):
    """The vectors of words from their characters (``regard.data.characters``): (…, C) ids → (…, width).

    Filters read n neighbouring characters; each gives its maximum over the word. Highway layers and a projection
    follow. ``filters`` has pairs: the characters that a filter reads, and the number of such filters. Every character
    counts, also the padding of a word. Without a ``width`` there is no projection.
    """

    def __init__(
        self,
        width: int = 0,
        filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128)),
        embed: int = 16,
        highways: int = 1,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if not filters or min(min(pair) for pair in filters) < 1:
            raise UserError(f"filters={filters}: give pairs of characters and filters, at least 1, such as 3:64")
        total = sum(number for _, number in filters)
        self.width, self.activation = width or total, {"relu": torch.relu, "tanh": torch.tanh}[activation]
        self.characters = nn.Embedding(COUNT, embed, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(embed, number, size) for size, number in filters)
        self.highways = nn.ModuleList(Highway(total) for _ in range(highways))
        self.projection = nn.Linear(total, width) if width and width != total else None
        nn.init.uniform_(self.characters.weight[1:], -1.0, 1.0)
        for layer in self.filters:
            nn.init.uniform_(layer.weight, -0.05, 0.05)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=sqrt(1 / total))
            nn.init.zeros_(self.projection.bias)

    def forward(self, characters: Tensor) -> Tensor:
        parts = characters.flatten(0, -2).split(AT_ONCE)
        return torch.cat([self._encode(part) for part in parts]).unflatten(0, characters.shape[:-1])

    def _encode(self, words: Tensor) -> Tensor:
        """The vectors (N, width) of the characters (N, C) of words."""
        x = self.characters(words).transpose(1, 2)  # (N, embed, C)
        x = F.pad(x, (0, max(max(layer.kernel_size[0] for layer in self.filters) - x.shape[2], 0)))  # type: ignore[index]
        # The activation is monotonic, so it may follow the maximum.
        x = self.activation(torch.cat([layer(x).amax(2) for layer in self.filters], 1))
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x)
