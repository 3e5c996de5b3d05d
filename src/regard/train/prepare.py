"""From a recipe to everything that training needs: corpus, tokenizers, batches, the model with its sizes."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from regard.data.batches import FRAMES, Batches, Pair, encode_examples
from regard.data.example import Corpus, Example
from regard.data.shapes import LENGTHS
from regard.data.tokenizers import SPACE, Tokenizer, train_tokenizer
from regard.device import choose_device
from regard.errors import UserError
from regard.layers.embedding import start_embedding
from regard.models import ModelConfig, Seq2Seq
from regard.objectives import Judged
from regard.recipes import Recipe
from regard.stored import read_tokenizers

UNBOUNDED = 100_000  # tokens of a corpus that sets no limit: every character or phoneme there is


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a recipe comes to on this machine."""

    recipe: Recipe  # as it was given
    config: ModelConfig  # the model's, with the sizes of the tokenizers
    source_tokenizer: Tokenizer | None  # None for a language model
    target_tokenizer: Tokenizer  # of a classifier: its labels
    corpus: Corpus
    batches: Batches  # of the training examples
    device: torch.device
    digest: str  # of the training examples, to know them again

    def build(self) -> Judged:
        """The model and its objective, on the device, with the first weights that the seed says."""
        torch.manual_seed(self.recipe.plan.seed)
        return Judged(self.config.build(), self.recipe.objective).to(self.device)

    def start_vectors(self, judged: Judged) -> None:
        """Give the source embedding the word vectors that `model.embedding` names, if it names any."""
        if isinstance(judged.model, Seq2Seq) and (path := judged.model.config.embedding):
            assert self.source_tokenizer is not None
            start_embedding(judged.model.source_embedding, path, _words(self.source_tokenizer))


def prepare(recipe: Recipe, folder: Path | None = None) -> Prepared:
    """Load the corpus and make or, from a saved step, read the tokenizers."""
    device = choose_device(recipe.plan.device)
    corpus = _normal(recipe.data.load(), recipe.task)
    if not corpus.train:
        raise UserError(f"data: {recipe.name} has no training examples; set data.train.")
    source, target = _tokenizers(recipe, corpus.train) if folder is None else read_tokenizers(folder)
    config = _sized(recipe.model, source, target)
    pairs = encode_examples(corpus.train, source, target)
    plan = recipe.plan
    batches = Batches(pairs, plan.batch_tokens, plan.seed, limit=_limit(config, recipe.task), frame=FRAMES[recipe.task])
    return Prepared(recipe, config, source, target, corpus, batches, device, _digest(pairs))


def _tokenizers(recipe: Recipe, examples: Sequence[Example]) -> tuple[Tokenizer | None, Tokenizer]:
    """What the corpus is cut into. One of pairs says so for each side, one of texts for the text."""
    data = recipe.data
    most: int = getattr(data, "vocab", UNBOUNDED)
    both: str = getattr(data, "tokens", "")
    source_kind, target_kind = getattr(data, "source_tokens", both), getattr(data, "target_tokens", both)
    sources, targets = ([example.source for example in examples], [example.target for example in examples])
    match recipe.task:
        case "language":
            return None, train_tokenizer(target_kind, targets, most)
        case "classify":
            return train_tokenizer(source_kind, sources, most), train_tokenizer("word", targets, UNBOUNDED)
        case _:
            return train_tokenizer(source_kind, sources, most), train_tokenizer(target_kind, targets, most)


def _words(tokenizer: Tokenizer) -> list[str]:
    """What each token is called in a file of word vectors.

    Of sub-words, only one that begins a word may be a word of the file, which has no '▁' before it. What goes on with a
    word is none, however it is spelt; punctuation always stands alone.
    """
    pieces = tokenizer.pieces(range(tokenizer.size))
    if tokenizer.kind != "bpe":
        return pieces
    nothing = " "  # which no file has a vector of
    return [nothing if piece[:1].isalnum() else piece.removeprefix(SPACE) or nothing for piece in pieces]


def _sized(config: ModelConfig, source: Tokenizer | None, target: Tokenizer) -> ModelConfig:
    """The model's settings with every vocabulary that was left at 0 taken from its tokenizer."""
    sizes: dict[str, Any] = {"target_vocab": target.size, "labels": target.size, "vocab": (source or target).size}
    sizes |= {"source_vocab": source.size} if source else {}
    for field in fields(config):
        given = getattr(config, field.name)
        if field.name in sizes and given not in (0, sizes[field.name]):
            raise UserError(f"model.{field.name}={given}: the data has {sizes[field.name]}; leave it at 0.")
    return replace(config, **{field.name: sizes[field.name] for field in fields(config) if field.name in sizes})


def _limit(config: ModelConfig, task: str) -> int | None:
    """The longest examples: those whose length, rounded up as batches do, the model can still read."""
    most = config.longest
    if most is None:
        return None
    if task == "translate" and most < LENGTHS[0]:
        raise UserError(f"model.capacity={most}: batches are padded to {LENGTHS[0]} tokens; give that or more.")
    rounded = max((length for length in LENGTHS if length <= most), default=most)
    return rounded - 1 if task == "language" else rounded  # there the beginning takes a place


def _normal(corpus: Corpus, task: str) -> Corpus:
    """The corpus as it stands, or, of texts with classes, each class as one word: its tokenizer cuts at spaces."""
    if task != "classify":
        return corpus
    return Corpus(*(list(map(one_label, part)) for part in (corpus.train, corpus.valid, corpus.test)))


def one_label(example: Example) -> Example:
    """The example with its class written as one word."""
    return replace(example, target="_".join(example.target.split()))


def _digest(pairs: Iterable[Pair]) -> str:
    found = hashlib.sha256()
    for pair in pairs:
        found.update(repr(pair).encode())
    return found.hexdigest()
