"""A toy grammar of English, and small language models that are trained on its sentences.

Subject and verb agree in number, even if another noun stands between them: "the dogs behind a tree sleep .". Every
sentence has exactly one derivation, so its probability is known, and so is the lowest loss that a model can reach: the
entropy of the grammar.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.data.batches import IGNORED
from regard.data.example import Corpus, LabelledText, Tokens
from regard.decode.sample import Sampler, collect, stream
from regard.explain.experiment import Prefix, TinyTransformer, train
from regard.explain.topic import Report, no_report
from regard.layers.transformer import Shape
from regard.mask import Mask

Words = tuple[str, ...]
NUMBERS: Words = ("singular", "plural")


def _words(text: str) -> Words:
    return tuple(text.split())


DETERMINERS = {"singular": _words("the a every"), "plural": _words("the some many")}
ADJECTIVES = _words("small old happy green quiet")
NOUNS = {"singular": _words("dog cat bird child tree boat"), "plural": _words("dogs cats birds children trees boats")}
PREPOSITIONS = _words("near behind under")
INTRANSITIVE_VERBS = {"singular": _words("sleeps waits sings falls"), "plural": _words("sleep wait sing fall")}
TRANSITIVE_VERBS = {"singular": _words("sees likes follows"), "plural": _words("see like follow")}
ADVERBS = _words("quietly today again")
PAD, BOS, EOS = "<pad>", "<begin>", "<end>"
LISTS = (
    *((PAD, BOS, EOS, "."), *DETERMINERS.values(), ADJECTIVES, *NOUNS.values(), PREPOSITIONS),
    *(*INTRANSITIVE_VERBS.values(), *TRANSITIVE_VERBS.values(), ADVERBS),
)
VOCABULARY = tuple(dict.fromkeys(word for words in LISTS for word in words))
IDS = {word: at for at, word in enumerate(VOCABULARY)}
SHAPE = Shape(
    width=64, heads=4, layers=2, inner=128, context=32, norm_place="post", dropout=0.0, positions="sinusoidal"
)


@dataclass
class SentenceSampler:
    """Draws random sentences; ``logp`` is the log-probability of the last one."""

    rng: random.Random
    logp: float = 0.0

    def sentence(self) -> list[str]:
        """noun phrase, [preposition, noun phrase], verb, [adverb or object], full stop"""
        self.logp = 0.0
        number = self._choose(NUMBERS)
        words = self._noun_phrase(number)
        if self._flip_coin():
            words += [self._choose(PREPOSITIONS), *self._noun_phrase(self._choose(NUMBERS))]
        if self._flip_coin():
            words += [self._choose(TRANSITIVE_VERBS[number]), *self._noun_phrase(self._choose(NUMBERS))]
        else:
            words += [self._choose(INTRANSITIVE_VERBS[number])]
            words += [self._choose(ADVERBS)] if self._flip_coin() else []
        return [*words, "."]

    def _noun_phrase(self, number: str) -> list[str]:
        adjective = [self._choose(ADJECTIVES)] if self._flip_coin() else []
        return [self._choose(DETERMINERS[number]), *adjective, self._choose(NOUNS[number])]

    def _choose(self, words: Words) -> str:
        self.logp -= math.log(len(words))
        return self.rng.choice(words)

    def _flip_coin(self) -> bool:
        self.logp -= math.log(2)
        return self.rng.random() < 0.5


@dataclass(frozen=True)
class Sentences:
    """Sentences of the toy grammar; the class is the number of the subject, which is also that of the verb."""

    tasks: ClassVar[tuple[str, ...]] = ("classify", "language")

    train: int = 2000  # number of training sentences
    valid: int = 200  # number of validation sentences
    seed: int = 1  # random seed of the sentences
    tokens: Tokens = "word"  # the kind of tokens
    vocab: int = 100  # the largest size of the vocabulary

    def load(self) -> Corpus:
        sampler, singular = SentenceSampler(random.Random(self.seed)), NUMBERS[0]
        verbs = {*INTRANSITIVE_VERBS[singular], *TRANSITIVE_VERBS[singular]}
        lines = [sampler.sentence() for _ in range(self.train + self.valid)]
        examples = [LabelledText(" ".join(words), NUMBERS[verbs.isdisjoint(words)]) for words in lines]
        return Corpus(examples[: self.train], examples[self.train :])


def is_grammatical(words: Sequence[str]) -> bool:
    """True if the grammar can produce this sentence."""
    rest = list(words)
    numbers = _parse_noun_phrase(rest)
    if numbers and rest and rest[0] in PREPOSITIONS:
        rest.pop(0)
        numbers = numbers if _parse_noun_phrase(rest) else []
    if not numbers or not rest:
        return False
    verb = rest.pop(0)
    if any(verb in TRANSITIVE_VERBS[number] for number in numbers):
        return bool(_parse_noun_phrase(rest)) and rest == ["."]
    if any(verb in INTRANSITIVE_VERBS[number] for number in numbers):
        return rest == ["."] or (len(rest) == 2 and rest[0] in ADVERBS and rest[1] == ".")
    return False


def _parse_noun_phrase(rest: list[str]) -> list[str]:
    """Removes a noun phrase from the front of a list of words; returns the grammatical numbers that it can have."""
    if not rest:
        return []
    determiner = rest.pop(0)
    if rest and rest[0] in ADJECTIVES:
        rest.pop(0)
    noun = rest.pop(0) if rest else ""
    return [number for number in NUMBERS if determiner in DETERMINERS[number] and noun in NOUNS[number]]


def encode(words: Sequence[str]) -> list[int]:
    return [IDS[word] for word in words]


def padded(sentences: Sequence[Sequence[str]]) -> Tensor:
    """Sentences as tokens (B, T), between <begin> and <end>."""
    lines = [torch.tensor([IDS[BOS], *encode(words), IDS[EOS]]) for words in sentences]
    return pad_sequence(lines, batch_first=True, padding_value=IDS[PAD])


def next_words(sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
    """Sentences as input tokens, (B, T), and the next token at every position; padding is ignored."""
    tokens = padded(sentences)
    return tokens[:, :-1], tokens[:, 1:].masked_fill(tokens[:, 1:] == IDS[PAD], IGNORED)


def sample_batch(generator: torch.Generator, rows: int = 48) -> tuple[Tensor, Tensor]:
    """Random sentences as input tokens and their next tokens."""
    sampler = SentenceSampler(random.Random(int(torch.randint(2**62, (), generator=generator))))
    return next_words([sampler.sentence() for _ in range(rows)])


def entropy_per_token(sentences: int = 5000, seed: int = 0) -> float:
    """The entropy of the grammar in nats per token, estimated from samples: the lowest loss of a causal model."""
    sampler, logp, tokens = SentenceSampler(random.Random(seed)), 0.0, 0
    for _ in range(sentences):
        tokens += len(sampler.sentence()) + 1  # the end token counts too
        logp += sampler.logp
    return -logp / tokens


def train_language_model(
    name: str, mask: Mask, steps: int, seed: int, report: Report = no_report
) -> tuple[TinyTransformer, float]:
    """Trains a small Transformer with this mask to predict the next word; returns it and its final training loss."""
    torch.manual_seed(seed)
    network = TinyTransformer(SHAPE, len(VOCABULARY), mask)
    loss = train(name, network, sample_batch, steps, seed, report=report)
    return network.eval(), loss


def generate_sentences(network: TinyTransformer, count: int, seed: int, longest: int = 20) -> list[list[str]]:
    """Samples sentences from a network, word by word, until the end token or ``longest`` words.

    The tokens <begin> and <pad> are never generated.
    """
    sampler, prompt = Sampler(generator=torch.Generator().manual_seed(seed)), torch.full((count,), IDS[BOS])
    nothing = Prefix(prompt[:, None][:, :0])
    tokens, _ = collect(stream(network, nothing, prompt, sampler, longest, IDS[EOS], forbid=(IDS[BOS], IDS[PAD])))
    sentences = [[VOCABULARY[token] for token in row] for row in tokens.tolist()]
    return [words[: words.index(EOS)] if EOS in words else words for words in sentences]
