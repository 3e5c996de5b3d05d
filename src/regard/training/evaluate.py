"""Evaluation of a model: the metrics of `regard.metrics` on examples, and how a run selects its best step."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.alignment import merge
from regard.class_scores import Flags
from regard.data.batches import Batch, Corruption, collate
from regard.data.example import Corpus, Pair
from regard.data.fields import running_field
from regard.data.flat import Row, Rows, Values
from regard.data.streams import RunningText, contiguous, encode_running, in_order, rows_in_order, window_of
from regard.decode import Penalty
from regard.decode.beam_search import check_size
from regard.errors import UserError
from regard.metrics import Bleu, Metric
from regard.recipes import Recipe
from regard.stored import TRAINER, check_weights, stored_training
from regard.tasks import Task
from regard.training.folder import RunState
from regard.training.loop import OWN
from regard.training.parallel import ALONE, Share
from regard.verbs.answering import answer
from regard.verbs.captioning import AT_ONCE, caption
from regard.verbs.forced import BATCH_TOKENS, Floats, aligning, forced, grouped
from regard.verbs.loaded import Loaded
from regard.verbs.search import translate
from regard.verbs.tagging import word_tags

N = TypeVar("N", int, float, Tensor)

# The fields that a task must have for a metric, by what the metric needs.
METRIC_FIELDS = {
    "sums": set[str](),
    "answers": {"target"},
    "weights": {"source", "target"},
    "regions": {"image", "target"},
    "predictions": set[str](),
    "tags": {"text", "tags"},
    "spans": {"text"},
}
CHEAP = ("sums", "predictions", "tags", "spans")  # what metrics need if they need one forward pass and no decoding
QUESTIONS = 128  # that are answered at a time
TOGETHER = 128  # rows in their order that are corrupted together, so that what is masked does not depend on batches
TOKEN_HEADS = ("target", "next", "masked")  # what a model predicts, if it predicts tokens
WITH = {"alignment": ("chance",), "pointing": ("pointing_chance",)}  # metrics that are reported together with others


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
    penalty: Penalty | float = 1.0,
    batch_tokens: int = BATCH_TOKENS,
    share: Share = ALONE.share,
) -> Scores:
    """Those of the named metrics that can be computed for the model and the examples; `share` divides the batches.

    `alignment` is reported together with `chance`. Both, and `aer`, need a model with attention to a source, and
    examples with links between words, or between characters if these are the model's tokens. `pointing` and its chance
    need a model with attention to an image, and captions with regions.
    """
    if not examples:
        raise UserError("there are no examples to evaluate the model on; give at least one.")
    names = [each for name in model.metrics if name in metrics for each in (name, *WITH.get(name, ()))]
    wanted = {name: model.metrics[name] for name in names}
    needed = {metric.needs for metric in wanted.values()}
    given: dict[str, tuple[Any, Any]] = {}  # what metrics need → the arguments of `Metric.compute`
    if "sums" in needed:
        given["sums"] = _sum_terms(model, examples, batch_tokens, share)
    if "answers" in needed:
        search = _captions if model.reads_images else _translations
        texts = search(model, examples, beam, penalty, batch_tokens, share)
        given["answers"] = texts, [(example.target, *example.others) for example in examples]
    if "weights" in needed:
        linked = [example for example in examples if _has_comparable_links(model, example)]
        if linked and aligning(model) is not None:
            given["weights"] = _attention(model, linked, batch_tokens, share), [example.links for example in linked]
    if "predictions" in needed:
        given["predictions"] = predictions(model, examples, batch_tokens, share)
    if "tags" in needed:
        given["tags"] = _tags(model, examples, batch_tokens, share), [example.tags for example in examples]
    if "spans" in needed:
        accepted = [tuple(text for text, _ in example.answers) for example in examples]
        given["spans"] = _answers(model, examples, batch_tokens, share), accepted
    if "regions" in needed:
        named = [example for example in examples if getattr(example, "regions", ())]
        if named and aligning(model) is not None:
            given["regions"] = _image_attention(model, named, share), [example.regions for example in named]
    found = {name: metric.compute(*given[metric.needs]) for name, metric in wanted.items() if metric.needs in given}
    values = {name: one.score if isinstance(one, Bleu) else one for name, one in found.items() if one is not None}
    return Scores(values, {name: one.signature for name, one in found.items() if isinstance(one, Bleu)})


def _sum_terms(
    model: Loaded, examples: Sequence[Any], batch_tokens: int, share: Share
) -> tuple[dict[str, float], dict[str, int]]:
    """The sums of the objective's terms over all examples, and the count of each term.

    The sums of the lanes are added in the order of the lanes, whichever rank computed them. A corruption masks the same
    tokens at every evaluation, whatever the size of a batch.
    """
    objective = (None if model.recipe is None else model.recipe.objective.evaluated()) or model.task.objective()
    own = (model.own or own_module(model)) if objective.needs_own else None

    @torch.no_grad()
    def work(lane: Iterable[Batch]) -> tuple[dict[str, float], dict[str, int]]:
        sums, counts, state = dict[str, Tensor](), dict[str, int](), None
        for batch in lane:  # the sums stay on the device until the end of the lane: no synchronisation
            counts = _added(counts, objective.count(batch))
            with model.autocast():
                found, state = objective(model.module, batch.to(model.device), 0, own, state)
            sums = _added(sums, {name: value.double() for name, value in found.items()})
        return {name: float(value) for name, value in sums.items()}, counts

    sums, counts = dict[str, float](), dict[str, int]()
    lanes = _lanes(model, examples, batch_tokens, objective.corruption(model.fields))
    for found, number in share(lanes, work):
        sums, counts = _added(sums, found), _added(counts, number)
    model.check_finite([-value for value in sums.values()])  # −loss: a model that counts may have an infinite one
    if not any(counts.values()):
        if objective.compares_rows:
            raise UserError(
                f"no pair has another one, of other texts, in its batch of {batch_tokens} tokens, and so nothing to be "
                "compared with; give shorter texts, or a larger batch."
            )
        raise UserError("the examples have nothing to predict: a text needs two tokens; give longer ones.")
    return sums, counts


def own_module(model: Loaded) -> nn.Module | None:
    """What the objective trained beside the model, as the step of its run has it; None for a public checkpoint."""
    if model.recipe is None:
        return None
    own: nn.Module | None = model.recipe.objective.modules(model.module, model.fields)
    if own is not None:
        step = model.path / "steps" / f"{model.step:06d}"
        step = step if step.is_dir() else model.path  # the path of a run, or of a step
        tensors = stored_training(step, model.recipe.objective, model.kinds)
        found = {name: value for name, value in tensors.items() if name.startswith(OWN)}
        check_weights({f"{OWN}{name}": value for name, value in own.state_dict().items()}, found, step / TRAINER)
        own.load_state_dict({name.removeprefix(OWN): value for name, value in found.items()})
    return own and own.to(next(model.module.parameters())).eval()


def predictions(
    model: Loaded, examples: Sequence[Any], batch_tokens: int = BATCH_TOKENS, share: Share = ALONE.share
) -> tuple[Any, Any]:
    """What a model with one prediction per example finds, and what is right.

    Both are numbers (N,), or which of the C classes each example has, (N, C).
    """
    return decided(model, *outputs(model, examples, batch_tokens, share))


def decided(model: Loaded, found: Floats, targets: Values) -> tuple[Any, Any]:
    """The predictions that follow from the outputs of a model, and what is right, as in `predictions`."""
    return PREDICTIONS[model.task.head](found, targets, model.module.config.threshold)


def outputs(
    model: Loaded, examples: Sequence[Any], batch_tokens: int = BATCH_TOKENS, share: Share = ALONE.share
) -> tuple[Floats, Values]:
    """The outputs of a model with one prediction per example, numbers (N,) or logits (N, C), and the targets."""
    rows = encoded(model, examples)
    lengths = [max(map(_places, row.values())) for row in rows]

    @torch.no_grad()
    def work(group: list[int]) -> list[list[list[float]]]:
        batch = collate([rows[place] for place in group], model.task)
        with model.autocast():
            found = model.check_finite(model.module(batch.to(model.device)).float().cpu())
        right = batch["targets"]
        if model.task.objective.compares_rows:  # an output is a vector of each text; the texts of a pair are compared
            first, second, *_ = found.unflatten(0, (len(right), -1)).unbind(1)
            found, right = torch.cosine_similarity(first, second), batch["numbers"]
        return [list(pair) for pair in zip(found.tolist(), right.tolist())]

    found, targets = zip(*_shared(grouped(lengths, batch_tokens), work, share))
    return np.array(found), np.array(targets)


def _tags(model: Loaded, examples: Sequence[Any], batch_tokens: int, share: Share) -> list[list[str]]:
    """The tags that a model finds for the words of each example."""
    texts = [example.text for example in examples]

    def work(group: list[int]) -> list[list[str]]:
        return word_tags(model, [texts[place] for place in group], batch_tokens)

    return _shared(grouped([len(text.split()) for text in texts], batch_tokens), work, share)


def _answers(model: Loaded, examples: Sequence[Any], batch_tokens: int, share: Share) -> list[str]:
    """The text that a model finds for the question of each example; empty: no answer."""

    def work(group: range) -> list[str]:
        some = [(examples[place].question, examples[place].passage) for place in group]
        return [one.text for one in answer(model, some, batch_tokens=batch_tokens)]

    return _shared(_in_turn(len(examples), QUESTIONS), work, share)


def _one_class(logits: Floats, classes: Values, threshold: float) -> tuple[Flags, Flags]:
    names = np.arange(logits.shape[1])
    return logits.argmax(1)[:, None] == names, classes[:, None] == names


# By the head: the predictions and the right answers from the outputs of the model, the targets and the threshold.
PREDICTIONS: dict[str, Callable[[Any, Any, float], tuple[Any, Any]]] = {
    "class": _one_class,
    "choice": _one_class,
    "labels": lambda logits, classes, threshold: (logits >= math.log(threshold / (1 - threshold)), classes > 0.5),
    "number": lambda numbers, targets, threshold: (numbers, targets),
    "vector": lambda numbers, gold, threshold: (numbers[~np.isnan(gold)], gold[~np.isnan(gold)]),
}


def _added(totals: Mapping[str, N], more: Mapping[str, N]) -> dict[str, N]:
    return {name: totals.get(name, 0) + value for name, value in more.items()}


def _lanes(
    model: Loaded, examples: Sequence[Any], batch_tokens: int, corruption: Corruption | None
) -> Iterator[Iterable[Batch]]:
    """Batches that have every target once: windows of a running text in order, or examples grouped by length.

    A lane has the batches that are read one after the other. It has many batches if the model carries a state on
    contiguous text, else one.
    """
    task, window = model.task, 0
    name, field = running_field(model.fields) or ("", None)
    if field is not None:
        assert model.recipe is not None
        data = model.recipe.data
        (text, _), window = encode_running(field.tokenizer, examples), window_of(data, model.longest)
    if isinstance(field, RunningText):
        if data.order == "contiguous" and model.module.config.carries:
            yield from contiguous(text, window)
        else:
            yield from ([batch] for batch in in_order(text, window, batch_tokens))
        return
    if field is not None:
        windows = _corrupted(rows_in_order(text, field, task, corruption, window, TOGETHER, name), corruption)
        count = max(1, batch_tokens // window)
        yield from ([collate(some, task)] for some in iter(lambda: list(islice(windows, count)), []))
        return
    every = model.encode(pieces(model, examples), longest=_longest_before(model, corruption))
    parts = (Rows.of(every[first : first + TOGETHER]) for first in range(0, len(every), TOGETHER))
    rows = list(_corrupted(parts, corruption))
    axes = task.widths({name: np.array([len(row[name]) for row in rows]) for name in rows[0]})
    lengths = [max(_places(row[name]) for name in axes) for row in rows]
    yield from ([collate([rows[place] for place in group], task)] for group in grouped(lengths, batch_tokens))


def _longest_before(model: Loaded, corruption: Corruption | None) -> int | None:
    """The most places of a row that fit in the model's context after a corruption, which may add special tokens."""
    if corruption is None or model.longest is None:
        return model.longest
    before = {name: np.array([model.longest]) for name in model.fields}
    after = corruption.lengths(before)
    added = (int(after[name][0]) - model.longest for name in before if name in after)
    return model.longest - max(0, max(added, default=0))


def _corrupted(parts: Iterable[Rows], corruption: Corruption | None) -> Iterator[Row]:
    """The rows of all parts, each part corrupted with its number as the seed."""
    for number, part in enumerate(parts):
        yield from part if corruption is None else corruption(part, np.random.default_rng((0, number)))


def _places(array: Values) -> int:
    """The places of a field of a row: of an array (T,) or (T, numbers), or of several texts, (T, texts, numbers)."""
    return array[..., 0].size if array.ndim > 1 else len(array)


def evaluation_batches(model: Loaded, examples: Sequence[Any], batch_tokens: int = BATCH_TOKENS) -> Iterator[Batch]:
    """Batches that have every target once, each read without a carried state."""
    return (batch for lane in _lanes(model, examples, batch_tokens, None) for batch in lane)


def _captions(
    model: Loaded, examples: Sequence[Any], beam: int, penalty: Penalty | float, batch_tokens: int, share: Share
) -> list[str]:
    """The text of the best caption of each image."""

    def work(group: range) -> list[str]:
        images = [examples[place].image for place in group]
        return [one.text for one in caption(model, images, beam, penalty, align=False)]

    return _shared(_in_turn(len(examples), AT_ONCE), work, share)


def _image_attention(model: Loaded, examples: Sequence[Any], share: Share) -> list[Floats]:
    """The attention weights (words, rows, columns) of each word of the caption of each example."""

    def work(group: range) -> list[list[list[list[float]]]]:
        some = [examples[place] for place in group]
        found = caption(model, [one.image for one in some], targets=[one.target for one in some])
        return [one.weights.reshape(-1, *one.grid).tolist() for one in found if one.weights is not None]

    return [np.array(table) for table in _shared(_in_turn(len(examples), AT_ONCE), work, share)]


def _translations(
    model: Loaded, examples: Sequence[Any], beam: int, penalty: Penalty | float, batch_tokens: int, share: Share
) -> list[str]:
    """The text of the best target of each source."""
    check_size(beam)
    sources = [example.source for example in examples]

    def work(group: list[int]) -> list[str]:
        some = [sources[place] for place in group]
        best = translate(model, some, beam, penalty=penalty, align=False, batch_tokens=batch_tokens)
        return [one.text for one in best]

    return _shared(grouped([len(ids) for ids in model.read(sources)], batch_tokens // beam), work, share)


def _attention(model: Loaded, examples: Sequence[Pair], batch_tokens: int, share: Share) -> list[Floats]:
    """The attention weights (target units, source units) between the linked units of each example.

    Units are tokens if these are characters, else words. Sources and targets are truncated to the model's context.
    """
    source, target = model.source_tokenizer, model.target_tokenizer
    assert source is not None
    sources = source.encode_batch([example.source for example in examples])
    targets = target.encode_batch([example.target for example in examples])
    if model.longest is not None:  # the special tokens must fit in the context too
        source_limit = model.longest - len(source.special_tokens.wrap_input([]))
        target_limit = model.longest - len(target.special_tokens.wrap_target([])) + 1
        sources, targets = [ids[:source_limit] for ids in sources], [ids[:target_limit] for ids in targets]
    pairs = list(zip(sources, targets))

    def work(group: list[int]) -> list[list[list[float]]]:
        tables = []
        for place, look in zip(group, forced(model, [pairs[place] for place in group], batch_tokens)):
            assert look.weights is not None
            table = look.weights[:-1]  # without the row of eos
            if examples[place].unit != "char":
                table = merge(table, target.words(targets[place]), source.words(sources[place]))
            tables.append(table.tolist())
        return tables

    lengths = [max(len(source), len(target) + 1) for source, target in pairs]
    return [np.array(table) for table in _shared(grouped(lengths, batch_tokens), work, share)]


def _shared(groups: Iterable[Sequence[int]], work: Callable[[Any], list[Any]], share: Share) -> list[Any]:
    """What `work` gives for the rows of each group, in the order of the rows; `share` divides the groups."""
    every = list(groups)
    found = {row: one for group, some in zip(every, share(every, work)) for row, one in zip(group, some)}
    return [found[row] for row in sorted(found)]


def _in_turn(count: int, size: int) -> list[range]:
    """The rows in their order, in groups of this size."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def _has_comparable_links(model: Loaded, example: Any) -> bool:
    """Whether an example has links that can be compared: between words, or between characters if these are tokens."""
    if getattr(example, "links", None) is None or model.source_tokenizer is None:
        return False
    return example.unit == "word" or {model.source_tokenizer.kind, model.target_tokenizer.kind} == {"char"}


def task_scores(
    model: Loaded,
    examples: Sequence[Any],
    metrics: Collection[str],
    beam: int = 1,
    penalty: Penalty | float = 1.0,
    batch_tokens: int = BATCH_TOKENS,
) -> dict[str, tuple[int, dict[str, float]]]:
    """Of a corpus with several tasks: by the prefix of a task, the number of its examples and its scores."""
    groups: dict[str, list[Any]] = {}
    for example in examples:
        groups.setdefault(getattr(example, "task", ""), []).append(example)
    if len(groups) < 2:
        return {}
    return {
        name: (len(some), evaluate(model, some, metrics, beam, penalty, batch_tokens).values)
        for name, some in groups.items()
    }


def truncated(model: Loaded, examples: Sequence[Any]) -> int:
    """The number of examples that are longer than the model's context, of which only the beginning is evaluated."""
    if running_field(model.fields) or model.longest is None:
        return 0
    full, shortened = model.encode(pieces(model, examples)), encoded(model, examples)
    return sum(any(len(a[name]) != len(b[name]) for name in a) for a, b in zip(full, shortened))


def encoded(model: Loaded, examples: Sequence[Any]) -> list[Row]:
    """The rows of examples, or of their pieces, truncated to the model's context."""
    return model.encode(pieces(model, examples), longest=model.longest)


def pieces(model: Loaded, examples: Sequence[Any]) -> Sequence[Any]:
    """The examples, or the pieces of all of them if the task cuts long ones."""
    if model.task.pieces is None:
        return examples
    return [one for some in model.task.pieces(model.fields, examples, model.data, model.longest) for one in some]


def check_evaluation(recipe: Recipe, task: Task, corpus: Corpus, metrics: Mapping[str, Metric]) -> None:
    """Refuse a recipe whose steps cannot be evaluated, before anything is trained."""
    plan = recipe.plan
    if not task.validates:
        return
    if not corpus.valid:
        raise UserError("data: there are no validation examples to evaluate a step with; set data.valid.")
    fitting = [
        name
        for name, metric in metrics.items()
        if task.fields.keys() >= METRIC_FIELDS[metric.needs]
        and set(metric.sums) <= set(task.objective.measures)
        and task.head in (metric.heads or (task.head,))
    ]
    why = f"does not fit the task {task.name}"
    for needs, column, what in (("weights", "links", "gold links"), ("regions", "regions", "the regions of words")):
        reads_gold = any(metrics[name].needs == needs and name in fitting for name in recipe.metrics)
        if reads_gold and all(getattr(example, column, None) in (None, ()) for example in corpus.valid):
            fitting = [name for name in fitting if metrics[name].needs != needs]
            why = f"needs {what}, and the validation examples have none"
    for name in recipe.metrics:
        if name not in fitting:
            stated = f"metrics={','.join(recipe.metrics)}"
            raise UserError(f"{stated}: {name} {why}; use metrics that fit: {', '.join(fitting)}.")
    if metrics[plan.select].needs not in CHEAP and not plan.samples:
        raise UserError(f"plan.samples=0: plan.select={plan.select} is measured on samples; give 1 or more.")


@contextmanager
def evaluation_mode(module: nn.Module, compiled: bool) -> Iterator[None]:
    """Inside the block, the module is in evaluation mode and runs uncompiled; then it returns to training mode.

    A program is compiled for one grad mode and few shapes. Evaluation has no gradients and other shapes than training,
    so that each new shape would be compiled again.
    """
    module.eval()
    try:
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        module.train()


def evaluate_step(model: Loaded, valid: Sequence[Any], recipe: Recipe, share: Share = ALONE.share) -> Scores:
    """The loss on all validation examples, and metrics that need decoding on `plan.samples` of them."""
    plan = recipe.plan
    cheap = {name for name in ("loss", *recipe.metrics) if model.metrics[name].needs in CHEAP}
    slow = set(recipe.metrics) - cheap
    stride = max(1, len(valid) // max(1, plan.samples))  # the samples are spread over the file, which may be sorted
    some = valid[::stride][: plan.samples]
    scores = evaluate(model, valid, cheap, batch_tokens=plan.batch_tokens, share=share)
    loss, counted = scores.values["loss"], recipe.objective.learns_by == "counts"
    if counted and model.step >= plan.steps and not math.isfinite(loss):  # earlier, not all of the text is counted
        found = f"the loss of step {model.step} is {loss}, because the counts give a validation token the probability 0"
        raise UserError(f"{found}; give more smoothing, such as model.k=1.")
    if slow and some:
        scores |= evaluate(model, some, slow, batch_tokens=plan.batch_tokens, share=share)
    return scores


def select_best(state: RunState, name: str, metric: Metric, scores: Scores) -> RunState:
    """The state after an evaluation: `best_step` becomes the present step if that is the best so far.

    If the values of two steps are equal, the step with the lower loss is better.
    """
    value, loss, before = scores.values.get(name), scores.values["loss"], state.best
    if value is None or not math.isfinite(value):
        better = False
    elif before is None or state.best_loss is None:
        better = True
    elif value == before:
        better = loss < state.best_loss
    else:
        better = value < before if metric.lower_is_better else value > before
    if not better:
        return replace(state, evaluated=state.step, waited=state.waited + 1)
    return replace(state, evaluated=state.step, best=value, best_loss=loss, best_step=state.step, waited=0)
