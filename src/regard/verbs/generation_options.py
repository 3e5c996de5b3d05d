"""Options of generation: greedy, sampling, or beam search."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch

from regard.decode import Penalty, Sampler, check_size
from regard.device import check_seed
from regard.errors import UserError

LIMIT = 128  # tokens of a continuation, by default


@dataclass(frozen=True)
class GenerationOptions:
    """Greedy decoding if the temperature is 0, sampling if it is above 0, beam search if the beam is above 1."""

    temperature: float = 0.0
    top_k: int | None = None  # sample from the k likeliest tokens only
    top_p: float | None = None  # sample from the fewest likeliest tokens whose probabilities sum to p
    seed: int = 0
    limit: int = LIMIT  # the most tokens of a continuation
    beam: int = 1
    penalty: Penalty = Penalty(1.0)  # noqa: RUF009  beam search ranks by the mean log-probability of the tokens

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"temperature={self.temperature}: give 0 (greedy), or a number above it.")
        Sampler(self.temperature or 1.0, self.top_k, self.top_p)  # refuses values that cannot be used
        for name in ("top_k", "top_p"):
            if self.temperature == 0 and (value := getattr(self, name)) is not None:
                cure = "give a temperature too, such as 1"
                raise UserError(f"{name}={value} with temperature=0: greedy decoding does not sample; {cure}.")
        check_seed(self.seed)
        if self.limit < 1:
            raise UserError(f"limit={self.limit}: allow at least 1 token.")
        check_size(self.beam)
        if self.beam > 1 and self.temperature:
            raise UserError(
                f"beam={self.beam} with temperature={self.temperature}: beam search does not sample; give one of them."
            )

    def sampler(self, prompts: Sequence[int], turn: int, device: torch.device) -> Sampler:
        """The sampler of these prompts: the draws of a prompt depend on the seed, its number and the turn only."""
        states = (np.random.SeedSequence((self.seed, index, turn)).generate_state(1, np.uint64) for index in prompts)
        generators = [torch.Generator(device).manual_seed(int(state[0]) >> 1) for state in states]
        return Sampler(self.temperature, self.top_k, self.top_p, generators)
