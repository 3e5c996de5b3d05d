"""Why a language model needs a causal mask: without one it learns to copy the next word from its input.

Two networks that differ only in the mask are trained to predict the next word at every position of a sentence. The one
without a mask can see the next word: its loss falls to almost 0, far below the entropy of the language. But at
generation there is no next word to copy.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from regard.explain.experiment import IGNORE_INDEX, Experiment, TinyTransformer
from regard.explain.grammar import (
    PAD,
    VOCABULARY,
    entropy_per_token,
    generate_sentences,
    is_grammatical,
    sample_batch,
    train_language_model,
)
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.recording import record

MASKS = {"causal mask": CAUSAL, "no mask": EVERYTHING}


@dataclass(frozen=True)
class NetworkResult:
    """One of the two networks: its loss and the sentences that it generates."""

    name: str
    loss: float  # on test sentences with the mask of training, in nats per token
    causal_loss: float  # the same with the causal mask, as at generation
    future_attention: float  # part of the attention that goes to later positions
    grammatical: float  # part of the generated sentences that the grammar allows
    examples: list[str]
    weights: list[list[float]]  # (Tq, Tk) for one sentence, mean over heads and layers


@dataclass(frozen=True)
class Masking:
    """Both networks, and the lowest loss that a causal model can reach."""

    entropy: float  # of the grammar, in nats per token
    sentence: list[str]  # the sentence of `NetworkResult.weights`
    networks: list[NetworkResult]


def run(steps: int = 240, count: int = 200, seed: int = 1) -> Experiment[Masking]:
    """Trains both networks, tests them on the same sentences, and generates ``count`` sentences with each."""
    networks = []
    for name, mask in MASKS.items():
        network, _ = yield from train_language_model(name, mask, steps, seed)
        networks.append(_evaluate(name, network, count, seed))
    tokens, _ = sample_batch(torch.Generator().manual_seed(seed), rows=1)
    words = [VOCABULARY[token] for token in tokens[0].tolist()]
    return Masking(entropy_per_token(), [word for word in words if word != PAD], networks)


@torch.no_grad()
def _evaluate(name: str, network: TinyTransformer, count: int, seed: int) -> NetworkResult:
    tokens, targets = sample_batch(torch.Generator().manual_seed(2**40 + seed), rows=512)

    def loss(mask: Mask) -> float:
        logits = network.readout(network.states(tokens, mask))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE_INDEX).item()

    example, _ = sample_batch(torch.Generator().manual_seed(seed), rows=1)
    with record(network) as tape:
        network(example)
    weights = torch.stack([tape[layer] for layer in tape]).mean(dim=(0, 1, 2))  # (layers, 1, H, T, T) → (T, T)
    sentences = generate_sentences(network, count, seed)
    return NetworkResult(
        name,
        loss(network.mask),
        loss(CAUSAL),
        future_attention=(weights.triu(1).sum() / weights.sum()).item(),
        grammatical=sum(map(is_grammatical, sentences)) / len(sentences),
        examples=[" ".join(words) for words in sentences[:6]],
        weights=weights.tolist(),
    )
