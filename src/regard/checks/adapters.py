"""How the checks call the models of this library, with their tokenizers and training data where they are loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.checkpoint import resolve
from regard.checks.learning import STEPS
from regard.checks.subject import SAMPLES, Calls
from regard.data.batches import IGNORED, Batch
from regard.data.characters import words_characters
from regard.data.conll import Conll
from regard.data.fields import TextField
from regard.data.files import iterate_lines
from regard.data.joined import PADDING
from regard.data.labelled import Labelled, MultiLabelled, Rated
from regard.data.related import RelatedPairs
from regard.data.sources import Lines, OwnFiles, Pairs
from regard.data.squad import Questions
from regard.data.streams import Book
from regard.data.text_pairs import Choices
from regard.errors import UserError
from regard.models import Facts
from regard.objectives.objective import Trainer
from regard.tasks import task_of
from regard.training.prepare import Prepared, prepare
from regard.verbs.loaded import Loaded
from regard.verbs.numbers import Inputs

# How a user's file is read, by the head of the task; other files are lines.
FILES: dict[str, Any] = {
    "target": Pairs,
    "class": Labelled,
    "labels": MultiLabelled,
    "number": Rated,
    "tag": Conll,
    "vector": RelatedPairs,
    "choice": Choices,
    "span": Questions,
}
OWN_FILES = (OwnFiles, Book)  # data that is read from files of the user
BATCH_TOKENS = 2048  # at most, of the training steps of a check
WORDS = 64  # words of a model without a vocabulary
MOST_LINES = 1000  # of a file that a tokenizer is tried on


def model_calls(config: Facts) -> Calls:
    """How a model of this library, or one whose config declares the same facts, is called."""

    words = None  # of a model without a vocabulary, which reads characters: the word of an id is its number
    if config.characters and not config.token_vocab:
        words = torch.from_numpy(words_characters(map(str, range(WORDS)), config.characters))

    def logits(module: Any, tokens: Tensor, *texts: Tensor) -> Tensor:
        inputs = Inputs(tokens if words is None else words.to(tokens.device)[tokens], *texts)
        try:
            return inputs.logits(module)
        except UserError:  # an encoder without an output layer
            return inputs.states(module)

    def squares(module: Any, tokens: Tensor, real: Tensor, *source: Tensor) -> tuple[Tensor, int]:
        """A loss of a model that predicts nothing."""
        return logits(module, tokens, real, *source)[real].square().sum(), int(real.sum())

    def start(module: Any, rows: int, capacity: int, *source: Tensor) -> Any:
        return module.start(*(source or (None,)), rows=rows, capacity=capacity)

    def step(module: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        return module.step(tokens, state)

    def loss(module: Any, tokens: Tensor, real: Tensor, *source: Tensor) -> tuple[Tensor, int]:
        """The loss of the model's task."""
        objective = task_of(config).objective()
        if words is not None:
            return squares(module, tokens, real)
        if objective.compares_rows:  # such a loss is no sum over rows; any function of a row does here
            return logits(module, tokens, real)[:, 0].square().sum(), len(tokens)
        batch = _with_targets(config, tokens, real, source, lambda: logits(module, tokens, real).shape[-1])
        try:
            sums, _ = objective(module, batch, 0)
        except UserError:  # the model has no output layer of its task
            return squares(module, tokens, real, *source)
        total = sum((weight * sums[term] for term, weight in objective.weights.items()), tokens.new_zeros(()).double())
        return total, batch.counts["targets"]

    return Calls(
        logits=logits,
        vocab=config.token_vocab if words is None else WORDS,
        numbers=config.numbers,
        source_vocab=config.source_vocab,
        source_shape=config.source_shape,
        causal=config.causal,
        one_per_text=config.one_per_text,
        longest=config.longest,
        left_padding=True,
        start=start if config.causal else None,
        step=step if config.causal else None,
        loss=loss,
        build=config.build,
    )


def _with_targets(
    config: Facts, tokens: Tensor, real: Tensor, source: Sequence[Tensor], outputs: Callable[[], int]
) -> Batch:
    """A batch with targets of the model's task: the next or first token, a class, labels, numbers, tags or a span.

    `outputs` is called for the number of outputs of a place, if each has a target of its own.
    """
    answers = (tokens.sum(-1) > 0).long() if config.numbers else tokens % 2  # (B, T) of 0 and 1
    head = task_of(config).head
    if head == "labels":
        targets = answers[:, :1].double().expand(-1, outputs())
    elif config.one_per_text:
        targets = answers[:, 0].double() if head == "number" else answers[:, 0]
    elif config.causal:
        targets = F.pad(tokens[:, 1:].masked_fill(~real[:, 1:], IGNORED), (0, 1), value=IGNORED)
    elif head == "tag":
        targets = answers.masked_fill(~real, IGNORED)
    elif head == "span":
        places = torch.arange(answers.shape[1], device=answers.device)
        targets = (answers * places).masked_fill(~real, 0).amax(1)[:, None].expand(-1, 2)
    elif head == "keys":
        targets = answers.double().masked_fill(~real, math.nan)[..., None].expand(-1, -1, outputs())
    else:
        targets = tokens.clone()
        targets[:, 1:] = IGNORED
    if head == "choice":  # each text is compared with the same text in the other order
        segments = torch.where(real, 0, PADDING)
        texts = {"tokens": (tokens, tokens.flip(1)), "segments": (segments, segments.flip(1))}
        fields = {"targets": targets, **{name: torch.stack(both, -1) for name, both in texts.items()}}
    else:
        fields = dict(zip(("tokens", "targets", "source"), (tokens, targets, *source))) | {"allowed": real}
    counted = targets[..., 0] if head in ("keys", "span") else targets
    counts = {"tokens": int(real.sum()), "targets": int(((counted != IGNORED) & ~counted.isnan()).sum())}
    return Batch(fields, dict(zip(("tokens", "source"), (real, *source[1:]))), counts)


def loaded_calls(loaded: Loaded, data: str | None = None) -> Calls:
    """How a loaded model is called; `data`, a file, replaces the recipe's examples and the sample texts."""
    return replace(
        model_calls(loaded.module.config),
        encode=_encoders(loaded),
        texts=SAMPLES if data is None else list(islice(iterate_lines(data), MOST_LINES)),
        trainer=None if loaded.recipe is None else _trainer(loaded, data),
    )


def _encoders(loaded: Loaded) -> dict[str, Callable[[str], Sequence[int]]]:
    """The encoding of each input, with all special tokens and the last id of the tokenizer."""
    texts = [each for each in loaded.fields.values() if isinstance(each, TextField)]

    def encoder(field: TextField) -> Callable[[str], Sequence[int]]:
        always = [*field.tokenizer.special_tokens.ids, field.tokenizer.size - 1]
        return lambda text: [*always, *field.tokenizer.encode(text)]

    names = ("source", "tokens") if len(texts) > 1 else ("tokens",)
    return {name: encoder(field) for name, field in zip(names, texts)}


def _trainer(loaded: Loaded, data: str | None) -> Callable[[], Trainer]:
    """New trainers of the run's recipe, with short and small steps on a CPU."""

    @cache
    def prepared() -> Prepared:
        recipe = loaded.recipe
        assert recipe is not None
        if recipe.model.learns_by == "counts":
            raise UserError("a model that counts grows as it learns, and the check loads into one of the same size")
        corpus = loaded.located_data if data is None else recipe.data
        if data is not None:
            own = isinstance(corpus, OWN_FILES)  # the recipe reads files of the user already
            corpus = replace(corpus if own else FILES.get(loaded.task.head, Lines)(), train=data, valid=data, test="")
        plan = replace(
            recipe.plan,
            steps=STEPS,
            warmup=0,
            epochs=None,
            minutes=None,
            batch_tokens=min(recipe.plan.batch_tokens, BATCH_TOKENS),
            device="cpu",
            precision="float32",
            threads=0,
            compile=False,
        )
        return prepare(replace(recipe, data=corpus, plan=plan), resolve(loaded.path), kinds=loaded.kinds, whole=False)

    return lambda: prepared().trainer()
