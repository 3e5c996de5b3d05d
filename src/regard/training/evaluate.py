"""Evaluation of a model: the metrics of `regard.metrics`, computed on examples."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from regard.alignment import merge
from regard.data.batches import Batch, Corruption, collate
from regard.data.example import Pair, Unit
from regard.data.flat import Row, Rows
from regard.data.streams import RunningText, contiguous, encode_running, in_order, window_of
from regard.errors import UserError
from regard.metrics import Bleu, Metric
from regard.training.parallel import Share, share_alone
from regard.verbs.forced import BATCH_TOKENS, Floats, forced, grouped
from regard.verbs.loaded import IdPair, Loaded
from regard.verbs.parts import aligning
from regard.verbs.search import translate

N = TypeVar("N", int, float, Tensor)

WITH = {"alignment": ("chance",)}  # metrics that are reported together with others


@dataclass(frozen=True)
class Scores:
    """The values of metrics by name, and notes on how some were computed, such as sacreBLEU's signature."""

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
    share: Share = share_alone,
) -> Scores:
    """Those of the named metrics that can be computed for the model and the examples; `share` divides the batches.

    `alignment` is reported together with `chance`. Both, and `aer`, need a model with attention to a source, and
    examples with links between words, or between characters if these are the model's tokens.
    """
    if not examples:
        raise UserError("there are no examples to evaluate the model on; give at least one.")
    names = [each for name in model.metrics if name in metrics for each in (name, *WITH.get(name, ()))]
    wanted = {name: model.metrics[name] for name in names}
    scores = Scores()
    if sums := _metrics_needing("sums", wanted):
        scores |= _compute(sums, *_sum_terms(model, examples, batch_tokens, share))
    if answers := _metrics_needing("answers", wanted):
        texts = _translations(model, [example.source for example in examples], beam, penalty, batch_tokens, share)
        scores |= _compute(answers, texts, [(example.target, *example.others) for example in examples])
    if weights := _metrics_needing("weights", wanted):
        linked = [example for example in examples if _has_comparable_links(model, example)]
        tables = _attention(model, linked, batch_tokens, share) if linked else None
        if tables is not None:
            scores |= _compute(weights, tables, [example.links for example in linked])
    return scores


def _metrics_needing(what: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if metric.needs == what}


def _compute(metrics: Mapping[str, Metric], *given: Any) -> Scores:
    found = {name: metric.compute(*given) for name, metric in metrics.items()}
    values = {name: one.score if isinstance(one, Bleu) else one for name, one in found.items() if one is not None}
    return Scores(values, {name: one.signature for name, one in found.items() if isinstance(one, Bleu)})


def _sum_terms(
    model: Loaded, examples: Sequence[Any], batch_tokens: int, share: Share
) -> tuple[dict[str, float], dict[str, int]]:
    """The sums of the objective's terms over all examples, and the count of each term.

    The sums of the lanes are added in the order of the lanes, whichever rank computed them. A corruption masks the same
    tokens at every evaluation.
    """
    objective = model.task.objective()

    @torch.no_grad()
    def work(lane: Iterable[Batch]) -> tuple[dict[str, float], dict[str, int]]:
        sums, counts, state = dict[str, Tensor](), dict[str, int](), None
        for batch in lane:  # the sums stay on the device until the end of the lane: no synchronisation
            counts = _added(counts, objective.count(batch))
            with model.autocast():
                found, state = objective(model.module, batch.to(model.device), 0, state=state)
            sums = _added(sums, {name: value.double() for name, value in found.items()})
        return {name: float(value) for name, value in sums.items()}, counts

    sums, counts = dict[str, float](), dict[str, int]()
    lanes = _lanes(model, examples, batch_tokens, objective.corruption(model.fields))
    for found, number in share(lanes, work):
        sums, counts = _added(sums, found), _added(counts, number)
    if not counts or not any(counts.values()):
        raise UserError("the examples have nothing to predict: a text needs two tokens; give longer ones.")
    return sums, counts


def _added(totals: Mapping[str, N], more: Mapping[str, N]) -> dict[str, N]:
    return {name: totals.get(name, 0) + value for name, value in more.items()}


def _lanes(
    model: Loaded, examples: Sequence[Any], batch_tokens: int, corruption: Corruption | None
) -> Iterator[Iterable[Batch]]:
    """Batches that have every target once: windows of a running text in order, or examples grouped by length.

    A lane has the batches that are read one after the other. It has many batches if the model carries a state on
    contiguous text, else one.
    """
    if (field := running_text(model)) is not None:
        assert model.recipe is not None
        data = model.recipe.data
        (text, _), window = encode_running(field.tokenizer, examples), window_of(data, model.longest)
        if data.order == "contiguous" and model.module.config.carries:
            yield from contiguous(text, window)
        else:
            yield from ([batch] for batch in in_order(text, window, batch_tokens))
        return
    rows = encoded(model, examples)
    axes = model.task.widths({name: np.array([len(row[name]) for row in rows]) for name in rows[0]})
    lengths = [max(len(row[name]) for name in axes) for row in rows]
    for number, group in zip(count(), grouped(lengths, batch_tokens)):
        some = Rows.of([rows[place] for place in group])
        random = np.random.default_rng((0, number))
        yield [collate(some if corruption is None else corruption(some, random), model.task)]


def running_text(model: Loaded) -> RunningText | None:
    """The text field of a model that was trained on running text."""
    text = model.fields.get("text")
    return text if isinstance(text, RunningText) else None


def _translations(
    model: Loaded, sources: Sequence[str], beam: int, penalty: float, batch_tokens: int, share: Share
) -> list[str]:
    """The text of the best target of each source."""

    def work(group: list[int]) -> list[str]:
        some = [sources[place] for place in group]
        best = translate(model, some, beam, penalty=penalty, align=False, batch_tokens=batch_tokens)
        return [one.text for one in best]

    groups = list(grouped([len(ids) for ids in model.read(sources)], batch_tokens // beam))
    return _in_place(groups, share(groups, work))


def _attention(model: Loaded, examples: Sequence[Pair], batch_tokens: int, share: Share) -> list[Floats] | None:
    """The attention weights between the linked units of each example; None for a model without attention."""
    if aligning(model) is None:
        return None
    pairs = id_pairs(model, examples)

    def work(group: list[int]) -> list[list[list[float]]]:
        tables = [look.weights for look in forced(model, [pairs[place] for place in group], batch_tokens)]
        return [
            _merge_units(model, examples[place].unit, pairs[place], table[:-1]).tolist()  # without the row of eos
            for place, table in zip(group, tables)
            if table is not None
        ]

    groups = list(grouped([max(len(source), len(target) + 1) for source, target in pairs], batch_tokens))
    return [np.array(table) for table in _in_place(groups, share(groups, work))]


def _in_place(groups: Sequence[Sequence[int]], results: Sequence[Sequence[Any]]) -> list[Any]:
    """The results of the rows of all groups, in the order of the rows."""
    found = {row: one for group, some in zip(groups, results) for row, one in zip(group, some)}
    return [found[row] for row in sorted(found)]


def _has_comparable_links(model: Loaded, example: Any) -> bool:
    """Whether an example has links that can be compared: between words, or between characters if these are tokens."""
    if getattr(example, "links", None) is None or model.source_tokenizer is None:
        return False
    return example.unit == "word" or {model.source_tokenizer.kind, model.target_tokenizer.kind} == {"char"}


def _merge_units(model: Loaded, unit: Unit, pair: IdPair, weights: Floats) -> Floats:
    """Attention weights (Tq, Tk) between the linked units: tokens if these are characters, or words."""
    if unit == "char":
        return weights
    assert model.source_tokenizer is not None
    return merge(weights, model.target_tokenizer.words(pair[1]), model.source_tokenizer.words(pair[0]))


def truncated(model: Loaded, examples: Sequence[Any]) -> int:
    """The number of examples that are longer than the model's context, of which only the beginning is evaluated."""
    if running_text(model) is not None or model.longest is None:
        return 0
    full, shortened = model.encode(examples), encoded(model, examples)
    return sum(any(len(a[name]) != len(b[name]) for name in a) for a, b in zip(full, shortened))


def encoded(model: Loaded, examples: Sequence[Any]) -> list[Row]:
    """The rows of examples, truncated to the model's context."""
    return model.encode(examples, longest=model.longest)


def id_pairs(model: Loaded, examples: Sequence[Pair]) -> list[IdPair]:
    """The ids of sources and targets without special tokens, truncated so that these still fit in the context."""
    source, target = model.source_tokenizer, model.target_tokenizer
    assert source is not None
    pairs = zip(
        source.encode_batch([example.source for example in examples]),
        target.encode_batch([example.target for example in examples]),
    )
    if model.longest is None:
        return list(pairs)
    source_limit = model.longest - len(source.special_tokens.wrap_input([]))
    target_limit = model.longest - len(target.special_tokens.wrap_target([])) + 1
    return [(a[:source_limit], b[:target_limit]) for a, b in pairs]
