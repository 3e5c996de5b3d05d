"""Encoded corpora for tests: columns, rows and batches of ids, and fields of tokenizers that exist."""

from collections.abc import Sequence

import numpy as np

from regard.data.batches import Batch, collate, one_row
from regard.data.fields import Field
from regard.data.flat import Columns, Flat, FlatBuilder, Row
from regard.data.tokenizers import OUR_SPECIAL_TOKENS, SpecialTokens, Tokenizer
from regard.tasks import TASKS, Task

Ids = Sequence[int]
# Settings of the recipe `pretrain`: a masked language model of lines, without a question about sentences.
MASKED_LINES = ("data=lines", "model=bert", "model.segments=0", "objective=masked", "metrics=perplexity")


def flat(lists: Sequence[Ids]) -> Flat:
    builder = FlatBuilder(np.dtype(np.uint32))
    builder.add(lists)
    return builder.build()


def pair_columns(
    pairs: Sequence[tuple[Ids, Ids]],
    source: SpecialTokens = OUR_SPECIAL_TOKENS,
    target: SpecialTokens = OUR_SPECIAL_TOKENS,
) -> Columns:
    """The columns of the task "translate"."""
    return {
        "source": flat([source.wrap_input(list(ids)) for ids, _ in pairs]),
        "target": flat([target.wrap_target(list(ids)) for _, ids in pairs]),
    }


def text_columns(texts: Sequence[Ids], special: SpecialTokens = OUR_SPECIAL_TOKENS) -> Columns:
    """The column of the task "language"."""
    return {"text": flat([special.wrap_target(list(ids)) for ids in texts])}


def whole_columns(texts: Sequence[Ids], special: SpecialTokens = OUR_SPECIAL_TOKENS) -> Columns:
    """The column of the task "masked"."""
    return {"text": flat([special.wrap_input(list(ids)) for ids in texts])}


def labelled_columns(examples: Sequence[tuple[Ids, int]]) -> Columns:
    """The columns of the task "classify"."""
    return {"text": flat([ids for ids, _ in examples]), "label": flat([[label] for _, label in examples])}


def tagged_columns(examples: Sequence[tuple[Ids, Ids]]) -> Columns:
    """The columns of the task "tag"."""
    return {"text": flat([ids for ids, _ in examples]), "tags": flat([tags for _, tags in examples])}


def rows_of(columns: Columns) -> list[Row]:
    """Every example as a row."""
    count = len(next(iter(columns.values())))
    return [row for example in range(count) for row in one_row(columns, example)]


def pair_batch(pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
    """One narrow batch of pairs."""
    return collate(rows_of(pair_columns(pairs)), TASKS["translate"])


def text_batch(texts: Sequence[Ids], special: SpecialTokens = OUR_SPECIAL_TOKENS) -> Batch:
    """One narrow batch for a language model."""
    return collate(rows_of(text_columns(texts, special)), TASKS["language"])


def labelled_batch(examples: Sequence[tuple[Ids, int]]) -> Batch:
    """One narrow batch for a classifier."""
    return collate(rows_of(labelled_columns(examples)), TASKS["classify"])


def fields_for(task: Task, *tokenizers: Tokenizer) -> dict[str, Field]:
    """The fields of a task whose columns are all texts, with these tokenizers."""
    return {name: kind(tokenizer) for (name, kind), tokenizer in zip(task.fields.items(), tokenizers)}  # type: ignore[call-arg]
