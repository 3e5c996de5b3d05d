"""How good a model is: the metrics of the one table (`regard.metrics`), on examples."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch

from regard.alignment import merge
from regard.data.batches import Batch, Corruption, Row, Rows, collate
from regard.data.example import Pair, Unit
from regard.data.streams import RunningText, encode_running, in_order, window_of
from regard.errors import UserError
from regard.metrics import Bleu, Metric
from regard.verbs.forced import BATCH_TOKENS, Floats, forced, grouped
from regard.verbs.loaded import IdPair, Loaded
from regard.verbs.search import translate

WITH = {"alignment": ("chance",)}  # metrics that are reported together with others


@dataclass(frozen=True)
class Scores:
    """Metrics by name; a note says how one was computed, so that others can compare."""

    values: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __or__(self, other: "Scores") -> "Scores":
        return Scores(self.values | other.values, self.notes | other.notes)


def evaluate(
    model: Loaded,
    examples: Sequence[Any],
    metrics: Collection[str],
    beam: int = 1,
    penalty: float = 1.0,
    batch_tokens: int = BATCH_TOKENS,
) -> Scores:
    """The metrics that were asked for, of those that the model and the examples allow.

    `alignment` comes with `chance`; neither of them nor `aer` exists where the model has no attention to a source, or
    the examples have no links between units that its tokens make up.
    """
    if not examples:
        raise UserError("there are no examples to evaluate the model on; give at least one.")
    names = [each for name in model.metrics if name in metrics for each in (name, *WITH.get(name, ()))]
    wanted = {name: model.metrics[name] for name in names}
    scores = Scores()
    if sums := _needing("sums", wanted):
        scores |= _computed(sums, *_sums(model, examples, batch_tokens))
    if answers := _needing("answers", wanted):
        texts = translate(
            model,
            [example.source for example in examples],
            beam,
            penalty=penalty,
            align=False,
            batch_tokens=batch_tokens,
        )
        references = [(example.target, *example.others) for example in examples]
        scores |= _computed(answers, [each.text for each in texts], references)
    if weights := _needing("weights", wanted):
        linked = [example for example in examples if _comparable(model, example)]
        tables = _attention(model, linked, batch_tokens) if linked else None
        if tables is not None:
            scores |= _computed(weights, tables, [example.links for example in linked])
    return scores


def _needing(what: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if metric.needs == what}


def _computed(metrics: Mapping[str, Metric], *given: Any) -> Scores:
    found = {name: metric.compute(*given) for name, metric in metrics.items()}
    values = {name: one.score if isinstance(one, Bleu) else one for name, one in found.items() if one is not None}
    return Scores(values, {name: one.signature for name, one in found.items() if isinstance(one, Bleu)})


@torch.no_grad()
def _sums(model: Loaded, examples: Sequence[Any], batch_tokens: int) -> tuple[dict[str, float], dict[str, int]]:
    """What the task's plain objective adds up over all examples, and how many there are of each of its terms.

    What a corruption masks is the same at every evaluation.
    """
    objective = model.task.objective()
    sums, counts = dict[str, float](), dict[str, int]()
    for batch in _batches(model, examples, batch_tokens, objective.corruption(model.fields)):
        for name, number in objective.count(batch).items():  # before the batch moves: no device has to be waited for
            counts[name] = counts.get(name, 0) + number
        with model.autocast():
            found = objective(model.module, batch.to(model.device), 0)
        for name, value in found.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    if not counts or not any(counts.values()):
        raise UserError("the examples have nothing to predict: a text needs two tokens; give longer ones.")
    return sums, counts


def _batches(
    model: Loaded, examples: Sequence[Any], batch_tokens: int, corruption: Corruption | None
) -> Iterator[Batch]:
    """Every target once: windows of a running text one after the other, else examples of one length together."""
    if (field := running_text(model)) is not None:
        assert model.recipe is not None
        text, _ = encode_running(field.tokenizer, examples)
        yield from in_order(text, window_of(model.recipe.data, model.longest), batch_tokens)
        return
    rows = encoded(model, examples)
    lengths = [max(map(len, row.values())) for row in rows]
    for number, group in zip(count(), grouped(lengths, batch_tokens)):
        some = Rows.of([rows[place] for place in group])
        random = np.random.default_rng((0, number))
        yield collate(some if corruption is None else corruption(some, random), model.task)


def running_text(model: Loaded) -> RunningText | None:
    """The text field of a model that was trained on running text."""
    text = model.fields.get("text")
    return text if isinstance(text, RunningText) else None


def _attention(model: Loaded, examples: Sequence[Pair], batch_tokens: int) -> list[Floats] | None:
    """The attention weights between the linked units of each example; None for a model without attention."""
    pairs = id_pairs(model, examples)
    tables = [look.weights for look in forced(model, pairs, batch_tokens)]
    if any(table is None for table in tables):
        return None
    return [
        _units(model, example.unit, pair, table[:-1])  # without the row of eos
        for example, pair, table in zip(examples, pairs, tables)
        if table is not None
    ]


def _comparable(model: Loaded, example: Any) -> bool:
    """Whether an example has links between units that tokens make up: words always, characters if tokens are."""
    if getattr(example, "links", None) is None or model.source_tokenizer is None:
        return False
    return example.unit == "word" or {model.source_tokenizer.kind, model.target_tokenizer.kind} == {"char"}


def _units(model: Loaded, unit: Unit, pair: IdPair, weights: Floats) -> Floats:
    """Weights (Tq, Tk) between the units that are linked: characters, which are the tokens, or words."""
    if unit == "char":
        return weights
    assert model.source_tokenizer is not None
    return merge(weights, model.target_tokenizer.words(pair[1]), model.source_tokenizer.words(pair[0]))


def truncated(model: Loaded, examples: Sequence[Any]) -> int:
    """How many of the examples are longer than the model can read, so that only their beginnings are evaluated."""
    if running_text(model) is not None or model.longest is None:
        return 0
    whole, cut = model.encode(examples), encoded(model, examples)
    return sum(any(len(a[name]) != len(b[name]) for name in a) for a, b in zip(whole, cut))


def encoded(model: Loaded, examples: Sequence[Any]) -> list[Row]:
    """The rows of examples, none longer than the model can read: the end of a long text is cut off."""
    return model.encode(examples, longest=model.longest)


def id_pairs(model: Loaded, examples: Sequence[Pair]) -> list[IdPair]:
    """The ids of sources and targets without special tokens, no longer than the model can read with them."""
    source, target = model.source_tokenizer, model.target_tokenizer
    assert source is not None
    pairs = zip(
        source.encode_batch([example.source for example in examples]),
        target.encode_batch([example.target for example in examples]),
    )
    if model.longest is None:
        return list(pairs)
    read = model.longest - len(source.special_tokens.wrap_input([]))
    say = model.longest - len(target.special_tokens.wrap_target([])) + 1
    return [(a[:read], b[:say]) for a, b in pairs]
