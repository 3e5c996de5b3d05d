"""How good a model is: its loss, what it says against what it should say, where it looks against where it should."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from regard.alignment import aer, chance, inside, links_from, merge
from regard.data.batches import Batch, Pair, collate, encode_examples
from regard.data.example import Example, Unit
from regard.data.streams import Running, encode_again, encode_running, in_order, joined, window_of
from regard.data.text_files import TextExamples
from regard.device import seed_noise
from regard.errors import UserError
from regard.metrics import References, bleu, chrf, exact_match, perplexity, phoneme_error, word_error
from regard.objectives import Labelling, MaskedTokens, Objective, TeacherForcing
from regard.training.prepare import one_label
from regard.verbs.forced import BATCH_TOKENS, Floats, forced, frame_of, grouped
from regard.verbs.loaded import Loaded
from regard.verbs.search import translate

# What a model of each task is judged by, whatever it was trained on: the plain likelihood of the targets.
PLAIN: dict[str, Objective] = {
    "translate": TeacherForcing(),
    "language": TeacherForcing(),
    "fill": MaskedTokens(),
    "classify": Labelling(penalty=0.0),
}
TEXTS = {"exact": exact_match, "word_error": word_error, "phoneme_error": phoneme_error}
CORPUS = {"bleu": bleu, "chrf": chrf}
LIKELIHOODS = {"loss", "perplexity", "accuracy"}
LOOKS = {"alignment", "aer"}


@dataclass(frozen=True)
class Scores:
    """Measures by name; a note says how one was computed, so that others can compare."""

    values: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __or__(self, other: "Scores") -> "Scores":
        return Scores(self.values | other.values, self.notes | other.notes)


def evaluate(
    model: Loaded,
    examples: Sequence[Example],
    metrics: Collection[str],
    beam: int = 1,
    penalty: float = 1.0,
    batch_tokens: int = BATCH_TOKENS,
) -> Scores:
    """The measures that were asked for, of those that the model and the examples allow.

    `alignment` comes with `chance`; neither it nor `aer` exists where the model has no attention, or the examples no
    links that its tokens could be held against.
    """
    if not examples:
        raise UserError("there are no examples to judge the model by; give at least one.")
    wanted, scores = set(metrics), Scores()
    if wanted & LIKELIHOODS:
        found = _likelihood(model, examples, batch_tokens)
        scores |= Scores({name: value for name, value in found.items() if name in wanted})
    if wanted & (TEXTS.keys() | CORPUS.keys()):
        sources = [example.source for example in examples]
        said = translate(model, sources, beam, penalty=penalty, align=False, batch_tokens=batch_tokens)
        accepted = [(example.target, *example.others) for example in examples]
        scores |= _compared([each.text for each in said], accepted, wanted)
    if wanted & LOOKS:
        found = _looks(model, [example for example in examples if _comparable(model, example)], batch_tokens)
        scores |= Scores({name: value for name, value in found.items() if name in {*wanted, "chance"}})
    return scores


@torch.no_grad()
def _likelihood(model: Loaded, examples: Sequence[Example], batch_tokens: int) -> dict[str, float]:
    """Mean loss per target, its exponential, and for classes how often the likeliest is right."""
    task = model.module.task
    objective = PLAIN[task]
    total, right, count = 0.0, 0, 0
    for number, batch in enumerate(_batches(model, examples, batch_tokens)):
        count += objective.count(batch)["nll"]  # before it moves: nobody waits for the device
        batch = batch.to(model.device)
        with model.autocast(), _same_noise(model.device, number):
            total += float(objective(model.module, batch, 0)["nll"])
            if task == "classify":
                right += int((model.module(batch).argmax(dim=-1) == batch.targets).sum())
    if not count:
        raise UserError("the examples to judge the model by say nothing: a text needs two tokens; give a longer one.")
    found = {"loss": total / count, "perplexity": perplexity(-total, count)}
    return found | ({"accuracy": right / count} if task == "classify" else {})


def _batches(model: Loaded, examples: Sequence[Example], batch_tokens: int) -> Iterator[Batch]:
    """Every target once: of running text in windows side by side, else with the examples of one length together."""
    if data := _running(model):
        if isinstance(examples, TextExamples):
            text, _ = encode_running(model.target_tokenizer, examples)
        else:
            text = encode_again(model.target_tokenizer, joined(examples))
        yield from in_order(text, window_of(data, model.longest), batch_tokens)
        return
    pairs = encoded(model, examples)
    for rows in grouped([max(map(len, pair)) + 1 for pair in pairs], batch_tokens):
        yield collate([pairs[row] for row in rows], frame_of(model))


def _running(model: Loaded) -> Running | None:
    """The data of a model that was trained on running text."""
    data = model.recipe.data if model.recipe else None
    return data if isinstance(data, Running) else None


@contextmanager
def _same_noise(device: torch.device, number: int) -> Iterator[None]:
    """What an objective draws, such as the tokens it hides, is the same at every evaluation, and disturbs no one."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_noise(0, 0, number)
        yield


def _compared(said: list[str], accepted: References, wanted: Collection[str]) -> Scores:
    """Measures of what was said against what may be said."""
    values = {name: measure(said, accepted) for name, measure in TEXTS.items() if name in wanted}
    scores = {name: measure(said, accepted) for name, measure in CORPUS.items() if name in wanted}
    values |= {name: score.score for name, score in scores.items()}
    return Scores(values, {name: score.signature for name, score in scores.items()})


def _looks(model: Loaded, examples: Sequence[Example], batch_tokens: int) -> dict[str, float]:
    """Where the model looks to say the true targets, against where they come from."""
    pairs = encoded(model, examples)
    tables = [look.weights for look in forced(model, pairs, batch_tokens)]
    if any(table is None for table in tables) or not tables:
        return {}
    right = looking = 0
    lucky, golds, proposed = 0.0, [], []
    for example, pair, table in zip(examples, pairs, tables):
        assert table is not None
        assert example.links is not None
        weights = _units(model, example.unit, pair, table[:-1])  # without the look at the end
        hits, targets = inside(weights, example.links)
        right, looking = right + hits, looking + targets
        lucky += targets * chance(example.links, weights.shape[1])
        golds.append(example.links)
        proposed.append(links_from(weights))
    measured = {"aer": aer(golds, golds, proposed).aer}
    return measured | ({"alignment": right / looking, "chance": lucky / looking} if looking else {})


def _comparable(model: Loaded, example: Example) -> bool:
    """Whether an example has links, and between what tokens make up: words always, characters only if tokens are."""
    if example.links is None or model.source_tokenizer is None:
        return False
    kinds = {model.source_tokenizer.kind, model.target_tokenizer.kind}
    return example.unit == "word" or kinds == {"char"}


def _units(model: Loaded, unit: Unit, pair: Pair, weights: Floats) -> Floats:
    """Weights (Tq, Tk) between the units that are linked: characters, which are the tokens, or words."""
    if unit == "char":
        return weights
    assert model.source_tokenizer is not None
    return merge(weights, model.target_tokenizer.words(pair[1]), model.source_tokenizer.words(pair[0]))


def truncated(model: Loaded, examples: Sequence[Example]) -> int:
    """How many of the examples are longer than the model can read, so that they are judged by their beginnings."""
    if _running(model):
        return 0
    return sum(pair != cut for pair, cut in zip(_whole(model, examples), encoded(model, examples)))


def encoded(model: Loaded, examples: Sequence[Example]) -> list[Pair]:
    """The ids of both sides, no longer than the model can read with their special tokens."""
    pairs, frame, most = _whole(model, examples), frame_of(model), model.longest
    if most is None:
        return pairs
    before, after = map(len, frame.sides(([], [])))
    return [(source[: most - before], target[: most - after + frame.shift]) for source, target in pairs]


def _whole(model: Loaded, examples: Sequence[Example]) -> list[Pair]:
    """The ids of both sides, however many."""
    labelled = [one_label(example) for example in examples] if model.module.task == "classify" else examples
    return encode_examples(labelled, model.source_tokenizer, model.target_tokenizer)
