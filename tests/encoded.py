"""Encoded corpora for tests: columns, rows and batches of ids, and fields of tokenizers that exist."""

from collections.abc import Sequence

import numpy as np

from regard.data.batches import Batch, collate
from regard.data.fields import Field
from regard.data.flat import Columns, Flat, FlatBuilder, Row
from regard.data.joined import PADDING
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


def joined_columns(examples: Sequence[tuple[Ids, int]]) -> Columns:
    """The columns of the tasks "pair" and "choice", with one text for each example: all of it is in segment 0."""
    builder = FlatBuilder(np.dtype(np.int32))
    builder.add([[[token, 0] for token in ids] for ids, _ in examples])
    return {"text": builder.build(), "label": flat([[label] for _, label in examples])}


def answer_columns(examples: Sequence[tuple[Ids, tuple[int, int]]]) -> Columns:
    """The columns of the task "answer": all tokens but the first are the passage, and two places are the answer."""
    builder = FlatBuilder(np.dtype(np.int32))
    for ids, (first, last) in examples:
        places = range(len(ids))
        builder.add([[[ids[at], 0, 4 * (at > 0) + (at == first > 0) + 2 * (at == last > 0)] for at in places]])
    return {"text": builder.build(), "answered": flat([[int(first > 0)] for _, (first, _) in examples])}


def tagged_columns(examples: Sequence[tuple[Ids, Ids]]) -> Columns:
    """The columns of the task "tag"."""
    return {"text": flat([ids for ids, _ in examples]), "tags": flat([tags for _, tags in examples])}


def related_columns(groups: Sequence[Sequence[Ids]], numbers: Sequence[Sequence[float]] = ()) -> Columns:
    """The columns of the task "embed": groups of texts that are read one by one, with the numbers of each group."""
    texts, known = FlatBuilder(np.dtype(np.int32)), FlatBuilder(np.dtype(np.float32))
    for group in groups:
        array = np.full((max(map(len, group)), len(group)), PADDING)
        for place, ids in enumerate(group):
            array[: len(ids), place] = ids
        texts.add([array])
    known.add(numbers or [[np.nan, 1.0]] * len(groups))
    return {"text": texts.build(), "number": known.build()}


def rows_of(columns: Columns) -> list[Row]:
    """Every example as a row."""
    count = len(next(iter(columns.values())))
    return [{name: column[example] for name, column in columns.items()} for example in range(count)]


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
