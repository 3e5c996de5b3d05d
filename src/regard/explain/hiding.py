"""Sentences in which a hidden word can be found by a look at its neighbours, the first word or the last mark.

"yesterday the dog barked , the bird sang ." Who makes which sound is told by the word before or the next; when, by the
first word; and whether it is "the", "which" or "every", by the mark at the end. A small encoder learns to fill in what
is hidden, as BERT does (Devlin et al. 2019, §3.1): what its heads are for is known, which of them does what is not.
"""

import random

import torch
from torch import Tensor

from regard.explain.heads import Text
from regard.explain.small import IGNORED, Experiment, Reader, learn
from regard.layers.transformer import Shape
from regard.recording import record

TIMES = ("let", "today", "yesterday")
SOUNDS: dict[str, tuple[str, str, str]] = {  # of each animal, by the time
    "dog": ("bark", "barks", "barked"),
    "cat": ("purr", "purrs", "purred"),
    "bird": ("sing", "sings", "sang"),
    "horse": ("neigh", "neighs", "neighed"),
    "frog": ("croak", "croaks", "croaked"),
    "bee": ("buzz", "buzzes", "buzzed"),
    "owl": ("hoot", "hoots", "hooted"),
    "duck": ("quack", "quacks", "quacked"),
}
DETERMINERS = {".": "the", "?": "which", "!": "every"}  # by the mark at the end
COMMA, HIDDEN = ",", "<hidden>"
ANIMALS = (2, 3, 4)  # in a sentence
VOCABULARY = (
    *(HIDDEN, COMMA, *TIMES, *DETERMINERS, *DETERMINERS.values(), *SOUNDS),
    *(form for forms in SOUNDS.values() for form in forms),
)
IDS = {word: at for at, word in enumerate(VOCABULARY)}
SHAPE = Shape(
    width=64, heads=8, layers=2, inner=128, context=32, norm_place="pre", dropout=0.0, positions="relative", furthest=16
)
ROWS, SHARE, RATE = 48, 0.3, 5e-3  # of a batch; of its words, hidden


def sentence(dice: random.Random, animals: int) -> list[str]:
    """A time, so many animals with their sounds, a mark."""
    time, mark = dice.randrange(len(TIMES)), dice.choice(list(DETERMINERS))
    words = [TIMES[time]]
    for animal in dice.choices(list(SOUNDS), k=animals):
        words += [DETERMINERS[mark], animal, SOUNDS[animal][time], COMMA]
    return [*words[:-1], mark]


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sentences with some of their words hidden, (B, T), and there the words; nothing else counts."""
    dice = random.Random(int(torch.randint(2**62, (), generator=generator)))
    animals = dice.choice(ANIMALS)  # the same in all lines: they are then equally long
    tokens = torch.tensor([[IDS[word] for word in sentence(dice, animals)] for _ in range(ROWS)])
    hidden = torch.rand(tokens.shape, generator=generator) < SHARE
    return tokens.masked_fill(hidden, IDS[HIDDEN]), tokens.masked_fill(~hidden, IGNORED)


def taught(steps: int, seed: int) -> Experiment[Reader]:
    """A network that was taught to fill in hidden words."""
    torch.manual_seed(seed)
    network = Reader(SHAPE, len(VOCABULARY))
    yield from learn("learns to fill in words", network, batch, steps, seed, RATE)
    return network.eval()


@torch.no_grad()
def asked(network: Reader, words: list[str]) -> tuple[Text, float]:
    """Every word of a sentence hidden in turn: where it looks from there, and how many words are found."""
    tokens = torch.tensor([[IDS[word] for word in words]])
    turns = tokens.repeat(len(words), 1).fill_diagonal_(IDS[HIDDEN])  # (T, T): word t is hidden in row t
    with record(network) as tape:
        found = network(turns).argmax(dim=-1).diagonal() == tokens[0]
    at = torch.arange(len(words))
    weights = {name: tape[name][at, :, at].movedim(0, 1) for name in tape}  # (T, H, T, T) → (H, T, T)
    return (weights, [word == COMMA or word in DETERMINERS for word in words]), found.float().mean().item()
