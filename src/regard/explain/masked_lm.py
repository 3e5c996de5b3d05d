"""A toy task of masked language modelling, and a small encoder that learns it (Devlin et al. 2019, §3.1).

"yesterday the dog barked , the bird sang ." Every word can be predicted from a few others: the animal and its sound
from each other, the tense from the first word, and the determiner ("the", "which" or "every") from the final
punctuation mark. So we know what the heads must attend to, but not which head attends to what.
"""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.batches import IGNORED
from regard.explain.experiment import TinyTransformer, train
from regard.explain.topic import Report, no_report
from regard.layers.transformer import Shape
from regard.recording import record

TIMES = ("let", "today", "yesterday")
SOUNDS: dict[str, tuple[str, str, str]] = {  # the verb of each animal, one form for each of TIMES
    "dog": ("bark", "barks", "barked"),
    "cat": ("purr", "purrs", "purred"),
    "bird": ("sing", "sings", "sang"),
    "horse": ("neigh", "neighs", "neighed"),
    "frog": ("croak", "croaks", "croaked"),
    "bee": ("buzz", "buzzes", "buzzed"),
    "owl": ("hoot", "hoots", "hooted"),
    "duck": ("quack", "quacks", "quacked"),
}
DETERMINERS = {".": "the", "?": "which", "!": "every"}  # by the final punctuation mark
COMMA, MASK = ",", "<mask>"
ANIMALS = (2, 3, 4)  # possible numbers of animals in a sentence
VOCABULARY = (
    *(MASK, COMMA, *TIMES, *DETERMINERS, *DETERMINERS.values(), *SOUNDS),
    *(form for forms in SOUNDS.values() for form in forms),
)
IDS = {word: at for at, word in enumerate(VOCABULARY)}
SHAPE = Shape(
    width=64, heads=8, layers=2, inner=128, context=32, norm_place="pre", dropout=0.0, positions="relative", furthest=16
)
ROWS, RATE = 48, 5e-3
MASKED = 0.3  # of the words of a batch
TextWeights = tuple[dict[str, Tensor], Sequence[bool]]  # weights (H, T, T) by layer; which words are separators


def sentence(rng: random.Random, animals: int) -> list[str]:
    """A random sentence: a time, some animals with their sounds, a punctuation mark."""
    time, punctuation = rng.randrange(len(TIMES)), rng.choice(list(DETERMINERS))
    words = [TIMES[time]]
    for animal in rng.choices(list(SOUNDS), k=animals):
        words += [DETERMINERS[punctuation], animal, SOUNDS[animal][time], COMMA]
    return [*words[:-1], punctuation]


def sample_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sentences with some words masked, (B, T), and as targets the masked words; other positions are ignored."""
    rng = random.Random(int(torch.randint(2**62, (), generator=generator)))
    animals = rng.choice(ANIMALS)  # the same in all sentences of a batch, so that they are equally long
    tokens = torch.tensor([[IDS[word] for word in sentence(rng, animals)] for _ in range(ROWS)])
    masked = torch.rand(tokens.shape, generator=generator) < MASKED
    return tokens.masked_fill(masked, IDS[MASK]), tokens.masked_fill(~masked, IGNORED)


def train_encoder(steps: int, seed: int, report: Report = no_report) -> TinyTransformer:
    """Trains a small encoder to predict masked words."""
    torch.manual_seed(seed)
    network = TinyTransformer(SHAPE, len(VOCABULARY))
    train("encoder", network, sample_batch, steps, seed, RATE, report)
    return network.eval()


@torch.no_grad()
def mask_each_word(network: TinyTransformer, words: list[str]) -> tuple[TextWeights, float]:
    """Masks each word of a sentence in turn: the attention from the masked position, and the accuracy."""
    tokens = torch.tensor([[IDS[word] for word in words]])
    masked = tokens.repeat(len(words), 1).fill_diagonal_(IDS[MASK])  # (T, T): word t is masked in row t
    with record(network) as tape:
        correct = network(masked).argmax(dim=-1).diagonal() == tokens[0]
    at = torch.arange(len(words))
    weights = {name: tape[name][at, :, at].movedim(0, 1) for name in tape}  # (T, H, T, T) → (H, T, T)
    return (weights, [word == COMMA or word in DETERMINERS for word in words]), correct.float().mean().item()
