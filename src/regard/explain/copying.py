"""A small recurrent encoder–decoder that learns to copy random letters, for the topics about recurrent models."""

from typing import cast

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.data.tokenizers import BOS
from regard.explain.experiment import train
from regard.explain.topic import Report, no_report
from regard.models import Seq2SeqConfig
from regard.objectives.objective import CausalModel
from regard.objectives.sequence import mixed

LETTERS = "abcdefgh"
FIRST = 4  # the id of the first letter; the ids before it are special tokens
ROWS, RATE = 32, 1e-2


class Copier(nn.Module):
    """A recurrent encoder–decoder that reads pairs (B, 2, T): the source, and the target shifted to the right."""

    def __init__(self, decoder: str, score: str, width: int) -> None:
        super().__init__()
        vocab = FIRST + len(LETTERS)
        self.model = Seq2SeqConfig(
            *(vocab, vocab, width, width // 2), decoder=decoder, score=score, dropout=0.0
        ).build()

    def forward(self, pairs: Tensor) -> Tensor:
        """The logits of every letter, given the true letters before it: (B, T, vocab)"""
        features, _ = self.model.advance(pairs[:, 1], self.model.start(pairs[:, 0]))
        return self.model.readout(features)

    @torch.no_grad()
    def copies(self, pairs: Tensor) -> Tensor:
        """The letters (B, T) that the network names when it reads its own letters."""
        model = cast(CausalModel, self.model)
        features, _ = mixed(model, Batch({"tokens": pairs[:, 1]}), 0.0, self.model.start(pairs[:, 0]))
        return self.model.readout(features).argmax(dim=-1)


def copy_batch(length: int, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random letters with the shifted target, (B, 2, T), and as targets the same letters, (B, T)."""
    letters = torch.randint(FIRST, FIRST + len(LETTERS), (rows, length), generator=generator)
    return shifted_pairs(letters), letters


def shifted_pairs(letters: Tensor) -> Tensor:
    """Letters (B, T) as a source, and as a target that is shifted to the right behind <bos>: (B, 2, T)"""
    return torch.stack([letters, torch.cat([torch.full_like(letters[:, :1], BOS), letters[:, :-1]], dim=1)], dim=1)


def train_copier(
    name: str, decoder: str, score: str, width: int, longest: int, steps: int, seed: int, report: Report = no_report
) -> Copier:
    """Trains a copier on texts of 2 to ``longest`` letters; all texts of a batch have the same length."""

    def sample(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return copy_batch(int(torch.randint(2, longest + 1, (1,), generator=generator)), ROWS, generator)

    torch.manual_seed(seed)
    network = Copier(decoder, score, width)
    train(name, network, sample, steps, seed, RATE, report)
    return network.eval()
