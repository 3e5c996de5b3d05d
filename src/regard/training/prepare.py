"""From a recipe to everything that training needs: corpus, tokenizers, batches, the model with its sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from regard.data.batches import Batches, Frame, extra, frame_for
from regard.data.example import Corpus, Example
from regard.data.large import Compact, Encoded
from regard.data.shapes import LENGTHS
from regard.data.spelling import SPACE
from regard.data.streams import Running, Windows, encode_running, encode_sample, tokenizer_sample, unmarked, window_of
from regard.data.text_files import Report
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.device import choose_device
from regard.errors import UserError
from regard.layers.embedding import init_embedding
from regard.models import BertConfig, ModelConfig, Seq2Seq
from regard.objectives import LossModule, ProfessorForcing
from regard.recipes import Recipe
from regard.stored import read_tokenizers
from regard.training.warm_start import WarmStart

UNBOUNDED = 100_000  # tokens of a corpus that sets no limit: every character or phoneme there is
MASK = "[MASK]"  # how a token that is to be filled in is written


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a recipe comes to on this machine."""

    recipe: Recipe  # as it was given, but for what a model that exists already and the tokenizers decide
    config: ModelConfig  # the model's, with the sizes of the tokenizers
    source_tokenizer: Tokenizer | None  # None for a model of one text
    target_tokenizer: Tokenizer  # of a classifier: its labels
    corpus: Corpus
    batches: Batches | Windows  # of the training examples
    device: torch.device
    digest: str  # of the training examples, to know them again
    encoded: float = 1.0  # how much of the training text the batches are of: less than all only for an estimate

    def build(self) -> LossModule:
        """The model and its objective, on the device, with the first weights that the seed says."""
        if self.recipe.plan.threads:
            torch.set_num_threads(self.recipe.plan.threads)
        torch.manual_seed(self.recipe.plan.seed)
        return LossModule(self.config.build(), self.recipe.objective).to(self.device)

    def init_embeddings(self, loss_module: LossModule) -> None:
        """Give the source embedding the word vectors that `model.embedding` names, if it names any."""
        if isinstance(loss_module.model, Seq2Seq) and (path := loss_module.model.config.embedding):
            assert self.source_tokenizer is not None
            init_embedding(loss_module.model.source_embedding, path, _words(self.source_tokenizer))


def prepare(
    recipe: Recipe,
    folder: Path | None = None,
    given: WarmStart | None = None,
    report: Report | None = None,
    whole: bool = True,
) -> Prepared:
    """Load the corpus; learn the tokenizers, read those of a saved step, or take those of a model that is given.

    `report` is called while a large text is worked on. Without `whole`, only a sample of a large text is encoded.
    """
    device = choose_device(recipe.plan.device)
    if given:
        recipe = replace(recipe, model=given.config)  # which refuses a model that the data is not for
    running = isinstance(recipe.data, Running)
    corpus = recipe.data.load(report) if isinstance(recipe.data, Running) else _normal(recipe.data.load(), recipe.task)
    if not corpus.train:
        raise UserError(f"data: {recipe.name} has no training examples; set data.train.")
    if given:
        source, target = given.source_tokenizer, given.target_tokenizer
        config = _with_mask(given.config, target)
        recipe = replace(recipe, model=config)
    else:
        source, target = read_tokenizers(folder) if folder else _tokenizers(recipe, corpus.train, report)
        config = _sized(recipe.model, source, target, padded=folder is not None)
    if running:
        target = unmarked(target)
    if isinstance(recipe.objective, ProfessorForcing) and target.special_tokens.eos is not None:
        recipe = replace(recipe, objective=replace(recipe.objective, end=target.special_tokens.eos))
    if isinstance(recipe.data, Running):
        ids, found, encoded = _encoded_text(corpus.train, target, report, whole)
        window, plan = window_of(recipe.data, config.longest), recipe.plan
        windows = Windows(ids, window, plan.batch_tokens, plan.seed)
        return Prepared(recipe, config, source, target, corpus, windows, device, found, encoded)
    batches, found = _batches(recipe, corpus.train, config, source, target)
    return Prepared(recipe, config, source, target, corpus, batches, device, found)


def _encoded_text(
    examples: Sequence[Example], tokenizer: Tokenizer, report: Report | None, whole: bool
) -> tuple[Compact, str, float]:
    """The ids of running text, a hash of them, and how much of the text they are."""
    if not whole and (sample := encode_sample(tokenizer, examples)):
        return sample[0], "", sample[1]
    ids, found = encode_running(tokenizer, examples, report)
    return ids, found, 1.0


def _batches(
    recipe: Recipe, examples: Sequence[Example], config: ModelConfig, source: Tokenizer | None, target: Tokenizer
) -> tuple[Batches, str]:
    """The batches of the training examples, and what tells these examples from others."""
    budget, seed = recipe.plan.batch_tokens, recipe.plan.seed
    pairs, frame = Encoded(examples, source, target), frame_for(recipe.task, source, target)
    return Batches(pairs, budget, seed, limit=_limit(config, recipe.task, frame), frame=frame), pairs.digest


def _tokenizers(
    recipe: Recipe, examples: Sequence[Example], report: Report | None
) -> tuple[Tokenizer | None, Tokenizer]:
    """What the corpus is cut into. One of pairs says so for each side, one of texts for the text."""
    data = recipe.data
    most: int = getattr(data, "vocab", UNBOUNDED)
    both: str = getattr(data, "tokens", "")
    source_kind, target_kind = getattr(data, "source_tokens", both), getattr(data, "target_tokens", both)
    sources, targets = (example.source for example in examples), (example.target for example in examples)
    match recipe.task:
        case "language":
            texts = tokenizer_sample(data, examples, report) if isinstance(data, Running) else targets
            return None, train_tokenizer(target_kind, texts, most)
        case "fill":
            return None, train_tokenizer(target_kind, targets, most, mask=MASK)
        case "classify":
            return train_tokenizer(source_kind, sources, most), train_tokenizer("word", targets, UNBOUNDED)
    if not getattr(data, "joint", False):
        return train_tokenizer(source_kind, sources, most), train_tokenizer(target_kind, targets, most)
    if source_kind != target_kind:
        raise UserError(
            f"data.joint=true: sources are cut into {source_kind} and targets into {target_kind}; "
            "give data.source_tokens and data.target_tokens the same value."
        )
    one = train_tokenizer(target_kind, chain(sources, targets), most)
    return one, one


def _words(tokenizer: Tokenizer) -> list[str]:
    """What each token is called in a file of word vectors.

    Of sub-words, only one that begins a word may be a word of the file, which has no '▁' before it. What goes on with a
    word is none, however it is spelt; punctuation always stands alone.
    """
    pieces = tokenizer.pieces(range(tokenizer.size))
    if tokenizer.kind not in ("bpe", "byte-bpe"):
        return pieces
    nothing = " "  # which no file has a vector of
    return [nothing if piece[:1].isalnum() else piece.removeprefix(SPACE) or nothing for piece in pieces]


def _sized(config: ModelConfig, source: Tokenizer | None, target: Tokenizer, padded: bool) -> ModelConfig:
    """The model's settings with everything that was left open taken from its tokenizers.

    A vocabulary that came with weights may be `padded`: larger than the tokenizer's.
    """
    sizes: dict[str, Any] = {"target_vocab": target.size, "labels": target.size, "vocab": (source or target).size}
    sizes |= {"source_vocab": source.size} if source else {}
    sizes = {field.name: sizes[field.name] for field in fields(config) if field.name in sizes}
    for name, size in sizes.items():
        stated = getattr(config, name)
        if stated not in (0, size) and not (padded and stated > size):
            raise UserError(f"model.{name}={stated}: the data has {size}; leave it at 0.")
        sizes[name] = max(stated, size)
    return _with_mask(replace(config, **sizes), target)


def _with_mask(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """The settings of a model that fills gaps, with what hides a token and what is never hidden; others as they are."""
    if not isinstance(config, BertConfig):
        return config
    if "masked" not in config.outputs:
        told = ",".join(config.outputs) or "none"
        raise UserError(f"model.outputs={told}: nothing there says which token stands at a place; it must have masked.")
    special_tokens = tokenizer.special_tokens
    if special_tokens.mask is None:
        raise UserError("the tokenizer has no mask to hide tokens with; start from a model whose tokenizer has one.")
    return replace(config, mask=special_tokens.mask, specials=special_tokens.ids)


def _limit(config: ModelConfig, task: str, frame: Frame) -> int | None:
    """The most tokens of an example: with its special tokens, and rounded up as batches do, the model can read it."""
    most = config.longest
    if most is None:
        return None
    if task == "translate" and most < LENGTHS[0]:
        name = "capacity" if hasattr(config, "capacity") else "context"
        raise UserError(f"model.{name}={most}: batches are padded to {LENGTHS[0]} tokens; give that or more.")
    rounded = max((length for length in LENGTHS if length <= most), default=most)
    return rounded - extra(frame)


def _normal(corpus: Corpus, task: str) -> Corpus:
    """The corpus as it stands, or, of texts with classes, each class as one word: its tokenizer cuts at spaces."""
    if task != "classify":
        return corpus
    return Corpus(*(list(map(one_label, part)) for part in (corpus.train, corpus.valid, corpus.test)))


def one_label(example: Example) -> Example:
    """The example with its class written as one word."""
    return replace(example, target="_".join(example.target.split()))
