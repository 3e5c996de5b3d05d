"""Pinned numbers: what tiny runs of every recipe learn, say and look at. A change that should change nothing is held
to them.

    python tests/goldens.py --check [NAME …]        what differs from tests/goldens/NAME.json
    python tests/goldens.py --write [NAME …]        pin what the code does now
    python tests/goldens.py --exact OUT.json        every value to the last bit, of this code on this machine
    python tests/goldens.py --compare A.json B.json    what differs between two of those
    … --device cuda                                 the same on a GPU, pinned in tests/goldens/cuda/

All texts are made up here, by a seeded generator, in the formats of the public sets. Modules go by their order, not by
their names, so that renaming them changes no pinned value.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from encoded import MASKED_LINES
from made_up import (
    GERMAN,
    GREEK,
    compared,
    dictionary,
    digits,
    in_language,
    music,
    opinions,
    questions,
    sentences,
    tabbed,
    tagged_columns,
    verses,
)
from regard import (
    Penalty,
    Run,
    align,
    answer,
    caption,
    classify,
    embed,
    fill,
    generate,
    load,
    look,
    record,
    score,
    translate,
)
from regard.config import override
from regard.recipes import KINDS, RECIPES, find_recipe
from regard.recording import attentions
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs import neighbours
from regard.verbs.embedding import cosines
from regard.verbs.labelling import choose, label_sets, rate, similarity
from regard.verbs.tagging import tag

# -- the package: with the imports above, all that knows its names ----------------------------------------------------

FOLDERS = ("REGARD_DATA", "REGARD_CACHE")  # what the environment calls the folders of public data


def train(recipe: Any, out: Path, existing: str = "refuse", init: Any = None, stop: int | None = None) -> list[Any]:
    """The events of a run, to its end or until a step is reported."""
    events, found = iter(Run(recipe, out, existing, init)), []  # type: ignore[arg-type]
    for event in events:
        found.append(event)
        if stop is not None and type(event).__name__ == "Progress" and event.step == stop:
            events.close()  # type: ignore[attr-defined]
    return found


def recipe_of(name: str, settings: Sequence[str]) -> Any:
    return override(find_recipe(name), settings, KINDS)


def continuing(name: str, settings: Sequence[str], run: Path) -> tuple[Any, Any]:
    """The recipe for a model that exists, and that model."""
    return warm_started(find_recipe(name), settings, warm_start_from(run), run)


# -- what is run ------------------------------------------------------------------------------------------------------

EXACT = Penalty(1.0, stop="exact")
HERE = Path(__file__).parent / "goldens"

PLAN = (
    "plan.steps=24 plan.log=1 plan.evaluate=24 plan.batch_tokens=192 plan.rate=4e-2 plan.warmup=4 plan.samples=8 "
    "plan.threads=1 plan.precision=float32"
)
TEN = "plan.steps=10 plan.evaluate=10"  # for what is slow
RECURRENT = "model.width=16 model.embed=8"
# Adam divides by the size of gradients: with its usual epsilon, those of nearly nothing would make noise matter.
KIM = "model.filters=4 model.embed=8 plan.epsilon=1e-3"
STACK = "model.width=16 model.heads=2 model.layers=2 model.inner=32 plan.epsilon=1e-3 plan.rate=2e-2"
NOAM = f"data.vocab=90 {STACK} plan.rate=0.3"
PAIRS = "data.train=pairs.tsv data.valid=valid.tsv data.vocab=80"
LINES = "data.train=lines.txt data.vocab=80"
SCENES = "data.train=40 data.valid=8 data.test=4 data.size=32 model.blocks=2 plan.rate=1e-2"
HARD = "model.decoder=attend model.attention=hard objective=hard"
BOOK = "data=book data.train=book.txt"
WORDS = f"model.width=8 model.embed=8 model.layers=1 {TEN}"
VECTORS = "model.width=8 plan.batch_tokens=200 plan.epochs=none plan.steps=6 plan.rate=0.05 plan.warmup=0"
CHARACTERS = "model.width=8 model.cells=12 model.kernels=1,3 model.filters=8,8 model.embed=4 plan.epsilon=1e-3"
GPT = f"model=gpt {STACK} model.context=48"
STORIES = "data.train=60 data.valid=12 data.test=5 data.vocab=600 plan.batch_tokens=512"
DRAWN = "data.train=60 data.valid=12 data.test=4"
CONVOLUTIONS = f"model.width=8 model.embed=8 model.layers=2 model.kernel=3 plan.epsilon=1e-3 {TEN}"
PRETRAIN = "data.train=book.txt data.vocab=80"
MASKED = " ".join(MASKED_LINES)
SMALL = f"model=gpt {STACK} model.context=32 data.vocab=60"
XL = f"{BOOK} {GPT} data.window=24 model.positions=xl"


@dataclass(frozen=True)
class Case:
    """One run: a recipe, its settings, and the texts that its verbs are tried on."""

    recipe: str
    settings: str
    texts: str  # of TEXTS
    after: str | None = None  # the settings of a second run that starts from the first one
    stop: int | None = None  # stopped after this step, and resumed


def _recurrent(settings: str = "", **more: Any) -> Case:
    return Case("translate", f"{PAIRS} {RECURRENT} {settings}", "captions", **more)


def _transformer(settings: str = "", **more: Any) -> Case:
    return Case("translate", f"{PAIRS} model=transformer {STACK} model.context=64 {settings}", "captions", **more)


def _writer(settings: str, **more: Any) -> Case:
    return Case("text", f"{LINES} {settings}", "lines", **more)


CASES: dict[str, Case] = {
    # Every recipe, in small.
    "dates": Case("dates", f"data.train=300 data.valid=20 data.test=5 data.languages=en,de {RECURRENT}", "dates"),
    "sounds": Case("sounds", RECURRENT, "words"),
    "french": Case("french", f"data.train=300 data.valid=20 data.test=5 data.vocab=200 {RECURRENT}", "french"),
    "translate": _recurrent(),
    "multi30k": Case("multi30k", f"data.vocab=90 {STACK}", "captions"),
    "multi30k-de-en": Case("multi30k-de-en", f"data.vocab=80 {RECURRENT}", "german"),
    "multi30k-gnmt": Case("multi30k-gnmt", f"data.vocab=90 {RECURRENT} model.layers=3 {TEN}", "captions"),
    "multi30k-convs2s": Case(
        "multi30k-convs2s", "data.vocab=90 model.width=16 model.channels=12 model.layers=2", "captions"
    ),
    "wmt14": Case("wmt14", NOAM, "captions"),
    "wmt14-big": Case("wmt14-big", NOAM, "captions"),
    "greek": Case("greek", f"data.vocab=80 {RECURRENT}", "greek"),
    "text2text": Case(
        "text2text",
        f"data.train=pairs.tsv data.valid=valid.tsv data.prefix=german: data.vocab=90 {STACK} {TEN}",
        "prefixed",
    ),
    "reply": Case("reply", f"data.train=play.txt data.vocab=90 {STACK} {TEN}", "english"),
    "titles": Case("titles", f"data.train=articles.txt data.least=4 data.vocab=90 {STACK} {TEN}", "english"),
    "text": _writer(RECURRENT),
    "stories": Case("stories", f"{STORIES} {STACK} {TEN}", "lines"),
    "stories-bert": Case(
        "stories", f"model=bert objective=masked metrics=perplexity,filled {STORIES} {STACK} {TEN}", "masks"
    ),
    "bigram": Case("bigram", f"{LINES} plan.steps=10 plan.evaluate=10", "lines"),
    "word2vec": Case("word2vec", f"{LINES} {VECTORS}", "near", stop=3),
    "word2vec-cbow": Case("word2vec", f"model=cbow objective=hierarchical {LINES} {VECTORS}", "near"),
    "glove": Case("glove", f"{LINES} {VECTORS}", "near", stop=3),
    "elmo": Case("elmo", f"{LINES} {TEN} {CHARACTERS}", "both"),
    "context2vec": Case("context2vec", f"{LINES} {TEN} {RECURRENT} model.inner=8 plan.epsilon=1e-3", "masks"),
    "shakespeare": Case("shakespeare", f"{STACK} model.context=32", "running"),
    "shakespeare-cpu": Case("shakespeare-cpu", f"{STACK} model.context=24", "running"),
    "hello": Case("hello", TEN, "running"),
    "ptb": Case("ptb", f"data.window=12 {WORDS}", "lines"),
    "ptb-char": Case("ptb-char", f"data.window=24 {WORDS}", "running"),
    "text8": Case("text8", f"data.window=24 {WORDS}", "running"),
    "wikitext103": Case("wikitext103", f"data.window=12 {WORDS} model.cutoffs=6", "lines"),
    "awd-lstm": Case(
        "awd-lstm", f"data.window=12 {WORDS} model.layers=2 model.hidden=12 plan.rate=5 plan.trigger=0", "lines"
    ),
    "ulmfit": Case(
        "ulmfit", f"data.train=book.txt data.window=12 data.vocab=90 {WORDS} model.layers=2 model.hidden=12", "running"
    ),
    "pretrain": Case("pretrain", f"{PRETRAIN} {STACK} model.context=32", "masks"),
    "pretrain-albert": Case(
        "pretrain",
        f"{PRETRAIN} model=albert objective=masked objective.sentences=order objective.words=true objective.static=2 "
        f"{STACK} model.embed=8 model.context=32 {TEN}",
        "masks",
    ),
    "pretrain-electra": Case(
        "pretrain",
        f"{PRETRAIN} model=electra objective=replaced objective.width=0.5 metrics=accuracy,replaced_recall "
        f"{STACK} model.embed=8 model.context=32 {TEN}",
        "originals",
        stop=4,
    ),
    "pretrain-t5": Case(
        "pretrain",
        f"{PRETRAIN} model=t5 objective=spans metrics=perplexity data.window=24 data.vocab=190 {STACK} {TEN}",
        "gaps",
    ),
    "pretrain-lstm": Case(
        "pretrain",
        f"{PRETRAIN} model=masked-lstm objective=masked metrics=perplexity data.window=24 {RECURRENT} {TEN} "
        "plan.epsilon=1e-3",
        "masks",
    ),
    "masked": Case("pretrain", f"{MASKED} data.tokens=bpe {LINES} {STACK} model.context=32", "masks"),
    "classify": Case("classify", f"data.train=labels.tsv {RECURRENT} model.attention=8 model.hops=2", "opinions"),
    "pair": Case("pair", f"data.train=entailed.tsv {SMALL} {TEN}", "entailed"),
    "similarity": Case("similarity", f"data.train=similar.tsv {SMALL} {TEN}", "similar"),
    "choice": Case("choice", f"data.train=choices.tsv {SMALL} {TEN}", "choices"),
    "pair-gpt": Case("pair", f"data.train=entailed.tsv {SMALL} {TEN} objective.language=0.5", "entailed"),
    "tag": Case(
        "tag", f"data.train=columns.txt {RECURRENT} {KIM} model.character_embed=4 plan.epochs=none {TEN}", "tagged"
    ),
    "tag-pieces": Case(
        "tag",
        f"data.train=columns.txt model=bert {STACK} data.tokens=bpe data.vocab=60 plan.epochs=none {TEN}",
        "tagged",
    ),
    "answer": Case("answer", f"data.train=questions.jsonl data.vocab=80 {STACK} {TEN}", "questions"),
    "made-answers": Case("made-answers", f"{DRAWN} {STACK} {TEN}", "questions"),
    "made-entailment": Case("made-entailment", f"{DRAWN} {STACK} {TEN}", "nothing"),
    "made-choices": Case("made-choices", f"{DRAWN} {STACK} {TEN} plan.batch_tokens=512", "nothing"),
    "embed": Case("embed", f"{PAIRS} {STACK} {TEN} model.context=32 objective.symmetric=true", "related"),
    "scenes": Case("scenes", f"{SCENES} {RECURRENT}", "scenes"),
    "scenes-hard": Case("scenes", f"{SCENES} {RECURRENT} {TEN} {HARD}", "scenes"),
    "multilabel": Case("multilabel", f"data.train=labels.tsv {KIM} {TEN}", "topics"),
    "rate": Case("rate", f"data.train=numbers.tsv {KIM} {TEN}", "numbers"),
    "adding": Case("adding", f"data.length=12 {DRAWN} {CONVOLUTIONS}", "nothing"),
    "copy": Case("copy", f"data.delay=4 {DRAWN} {CONVOLUTIONS}", "nothing"),
    "clips": Case("clips", f"data.size=5 data.frames=6 {DRAWN} {RECURRENT}", "nothing"),
    "clip-captions": Case("clip-captions", f"data.size=5 data.frames=8 {DRAWN} {RECURRENT}", "moves"),
    "mnist": Case("mnist", f"data.pixels=4 {RECURRENT}", "nothing"),
    "smnist": Case("smnist", CONVOLUTIONS, "nothing"),
    "pmnist": Case("pmnist", CONVOLUTIONS, "nothing"),
    "jsb": Case("jsb", f"{CONVOLUTIONS} model.dropout=0.1", "nothing"),
    "nottingham": Case("nottingham", f"model=gpt {STACK} model.positions=relative", "nothing"),
    # Recurrent translators: where the context enters, cells, scores, windows.
    "once": _recurrent("model.decoder=once model.cell=lstm model.layers=2"),
    "every": _recurrent("model.decoder=every model.cell=rnn"),
    "bahdanau-layers": _recurrent("model.decoder=bahdanau model.score=general model.layers=2 model.cell=lstm"),
    "luong-local": _recurrent("model.decoder=luong model.score=dot model.window=local-p model.radius=2"),
    "luong-feeding": _recurrent("model.decoder=luong-feeding model.score=cosine model.layers=2"),
    "luong-location": _recurrent(
        "model.decoder=luong-feeding model.score=location model.window=local-m model.radius=3"
    ),
    # Objectives and plans.
    "scheduled": _recurrent("objective.ratio=0.9 objective.schedule=linear objective.over=40"),
    "scheduled-gpt": _writer(f"{GPT} {TEN} objective.ratio=0.7 objective.schedule=inverse-sigmoid objective.over=12"),
    "professor": _recurrent(f"{TEN} objective=professor objective.width=12 objective.smoothing=0.1"),
    "professor-text": _writer(f"{RECURRENT} {TEN} objective=professor objective.width=12"),
    "accumulate": _recurrent("plan.accumulate=2 plan.batch_tokens=128 plan.optimizer=sgd plan.rate=0.5"),
    "resumed": _recurrent(f"{TEN} model.dropout=0.2", stop=5),
    "continued": _writer(f"{RECURRENT} {TEN}", after=f"{TEN} data.train=other.txt model.dropout=0.0"),
    "continued-transformer": _transformer(
        TEN, after="plan.epsilon=1e-3 plan.rate=2e-2 data.train=valid.tsv data.valid=pairs.tsv"
    ),
    # Language models.
    "text-gpt": _writer(GPT),
    "text-gpt-words": _writer(f"{GPT} data.tokens=word model.windows=0,3 model.positions=relative"),
    "book": Case("text", f"{BOOK} {RECURRENT} data.window=24 data.tokens=char", "running"),
    "book-bytes": Case("text", f"{BOOK} {GPT} data.tokens=byte-bpe data.vocab=290 model.context=24", "running"),
    "book-xl": Case(
        "text", f"{XL} model.norm_place=post model.memory=8 model.clamp=20 model.shared_biases=true", "running"
    ),
    "xl-adaptive": Case(
        "text",
        f"{XL} data.tokens=bpe data.vocab=80 model.softmax=adaptive model.cutoffs=20,40 model.divide=2 "
        "model.projections=1,2",
        "running",
    ),
    # Transformers by their settings.
    "transformer": _transformer(),
    "transformer-joint": _transformer("data.joint=true model.shared=all"),
    "transformer-t5": _transformer(
        "model.positions=t5 model.furthest=20 model.buckets=8 model.norm=rms model.gated=true model.shared=none "
        "model.decoder_layers=1 plan.rate=1e-2"
    ),
    "transformer-post": _transformer(
        f"{TEN} model.norm_place=post model.groups=1 model.score=additive objective.ratio=0.8"
    ),
    "masked-words": Case(
        "pretrain",
        f"{MASKED} {LINES} {STACK} data.tokens=word model.context=32 model.norm_place=pre model.embed=8 "
        "objective.smoothing=0.1",
        "masks",
    ),
}


def measured(name: str, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Everything that is pinned of a case, which is run in an empty folder: whole numbers, floats and texts."""
    case, plan = CASES[name], f"{PLAN} plan.device={device}"
    with _among_texts(folder):
        recipe, out = recipe_of(case.recipe, f"{plan} {case.settings}".split()), folder / "run"
        found = _learnt(train(recipe, out))
        if case.stop is not None:
            out = folder / "stopped"
            halves = [*train(recipe, out, stop=case.stop), *train(None, out, "resume")]
            assert _learnt(halves) == found, "stopped and resumed, a run is another"
        if case.after is not None:
            second, init = continuing(case.recipe, f"{plan} {case.after}".split(), out)
            out = folder / "after"
            found = {"before": found, **_learnt(train(second, out, init=init))}
        model = load(out, device=device, precision="float32")
        return found | VERBS[TEXTS[case.texts].task](model, TEXTS[case.texts])


def _learnt(events: Sequence[Any]) -> dict[str, Any]:
    """What a run tells while it trains, but for what the clock says."""
    by_kind: dict[str, list[Any]] = {}
    for event in events:
        by_kind.setdefault(type(event).__name__, []).append(event)
    start, steps = by_kind["Started"][0], by_kind["Progress"]
    return {
        "start": [start.parameters, start.examples, start.dropped, start.shapes, start.epoch],
        "losses": [step.loss for step in steps[:10]],
        "terms": {
            term: [step.terms[term] for step in steps[:10]] for term in steps[0].terms if len(steps[0].terms) > 1
        },
        "rates": [step.rate for step in steps[:10] if step.rate is not None],
        "norms": [float(step.norm) for step in steps[:10] if step.norm is not None],
        "last": steps[-1].loss,
        "valid": by_kind["Evaluated"][-1].values if "Evaluated" in by_kind else {},  # word vectors have none
    }


# -- what the verbs say -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """What verbs are given: some texts, and for translators a translation of each."""

    task: str
    given: tuple[str, ...]
    targets: tuple[str, ...] = ()


def _of_translator(model: Any, texts: Texts) -> dict[str, Any]:
    pairs = list(zip(texts.given, texts.targets))
    with record(model.module, tuple(attentions(model.module))) as tape:
        score(model, pairs[:1])
    return {
        "greedy": [_translation(one) for one in translate(model, texts.given, limit=12)],
        "beam": [_translation(one) for one in translate(model, texts.given, beam=3, penalty=EXACT, limit=12)],
        "score": _scores(model, pairs),
        "align": [one.links for one in align(model, pairs[:3])] if len(tape) else [],
        "embed": _vectors(model, texts),
        "record": _taped(tape),
        "look": _looked(look(model, texts.given[1], texts.targets[1])),
    }


def _of_writer(model: Any, texts: Texts) -> dict[str, Any]:
    with record(model.module, tuple(attentions(model.module))) as tape:
        score(model, texts.given[:1])
    drawn = generate(model, texts.given, temperature=0.8, top_k=20, top_p=0.95, seed=3, limit=10)
    return {
        "greedy": [_written(one) for one in generate(model, texts.given, limit=10)],
        "beam": [_written(one) for one in generate(model, texts.given, beam=3, penalty=EXACT, limit=8)],
        "sample": [_written(one) for one in drawn],
        "score": _scores(model, texts.given),
        "embed": _vectors(model, texts),
        "record": _taped(tape),
        "look": _looked(look(model, texts.given[1])),
    }


def _of_captioner(model: Any, texts: Texts) -> dict[str, Any]:
    drawn = replace(model.recipe.data, train=1, valid=1, test=len(texts.given), seed=5)
    images = [one.image for one in drawn.load().test]
    with record(model.module) as tape:
        caption(model, images[:1], targets=texts.given[:1])
    found = caption(model, images, targets=texts.given)
    return {
        "greedy": [[one.text, one.logp, one.ended] for one in caption(model, images, limit=12)],
        "beam": [[one.text, one.score, one.ended] for one in caption(model, images, 3, EXACT, limit=12)],
        "score": [[one.logp, one.logps.tolist()] for one in found],
        "record": _taped(tape),
        "look": [] if found[1].weights is None else found[1].weights.tolist(),
    }


def _of_filler(model: Any, texts: Texts) -> dict[str, Any]:
    with record(model.module, tuple(attentions(model.module))) as tape:
        fill(model, texts.given[:1])
    found = fill(model, texts.given, top=3)
    return {
        "fill": [[one.text, [[guess.probability for guess in mask] for mask in one.masks]] for one in found],
        "best": [[mask[0].token for mask in one.masks] for one in found],
        "embed": _vectors(model, texts),
        "record": _taped(tape),
        "look": _looked(look(model, texts.given[1])),
    }


def _of_answers(model: Any, texts: Texts) -> dict[str, Any]:
    pairs = list(zip(texts.given, texts.targets))
    with record(model.module, tuple(attentions(model.module))) as tape:
        answer(model, pairs[:1])
    return {
        "classify": [[one.probability, one.no_answer or 0.0] for one in answer(model, pairs)],
        "record": _taped(tape),
        "look": _looked(look(model, pairs[1])),
    }


def _of_classifier(model: Any, texts: Texts) -> dict[str, Any]:
    with record(model.module, tuple(attentions(model.module))) as tape:
        classify(model, texts.given[:1])
    found = classify(model, texts.given)
    return {
        "classify": [[one.label, dict(sorted(one.labels.items()))] for one in found],
        "embed": _vectors(model, texts),
        "record": _taped(tape),
        "look": _looked(look(model, texts.given[1])),
    }


VERBS: dict[str, Callable[[Any, Texts], dict[str, Any]]] = {
    "translate": _of_translator,
    "language": _of_writer,
    "detect": lambda model, texts: {"score": _scores(model, texts.given), "look": _looked(look(model, texts.given[1]))},
    "both": lambda model, texts: {"score": _scores(model, texts.given), "embed": _vectors(model, texts)},
    "caption": _of_captioner,
    "fill": _of_filler,
    "classify": _of_classifier,
    "labels": lambda model, texts: {
        "classify": [[one.given, dict(sorted(one.labels.items()))] for one in label_sets(model, texts.given)]
    },
    "tag": lambda model, texts: {
        "tag": [
            [one.tags, [[e.type, e.start, e.end, e.probability] for e in one.entities]]
            for one in tag(model, texts.given)
        ]
    },
    "answer": _of_answers,
    "vectors": lambda model, texts: {
        "embed": _vectors(model, texts),
        "cosines": cosines(model, list(pairwise(texts.given))),
        "look": _looked(look(model, texts.given[1])),
    },
    "rate": lambda model, texts: {"classify": [one.number for one in rate(model, texts.given)]},
    "pair": lambda model, texts: {
        "classify": [dict(sorted(one.labels.items())) for one in classify(model, _parts(texts))],
        "look": _looked(look(model, _parts(texts)[1])),
    },
    "similarity": lambda model, texts: {"classify": [one.number for one in similarity(model, _parts(texts))]},
    "choice": lambda model, texts: {"classify": [one.probabilities for one in choose(model, _parts(texts))]},
    "near": lambda model, texts: {
        "near": [[*neighbour] for word in texts.given for neighbour in neighbours(model, word, 3)]
    },
    "nothing": lambda model, texts: {},  # a model of numbers has no verb but eval
}


def _parts(texts: Texts) -> list[Any]:
    """The parts of each text, between tabs."""
    return [tuple(text.split("\t")) for text in texts.given]


def _translation(one: Any) -> list[Any]:
    return [one.text, one.tokens, one.ended, one.score]


def _written(one: Any) -> list[Any]:
    return [one.text, one.tokens, one.ended, float(one.logps.sum())]


def _scores(model: Any, texts: Sequence[Any]) -> list[Any]:
    """The log-probability of each text, and of every piece of the first."""
    found = score(model, texts)
    return [[one.total for one in found], found[0].logps.tolist(), found[0].pieces]


def _vectors(model: Any, texts: Texts) -> list[list[float]]:
    """The first numbers of the vectors of two texts."""
    return embed(model, texts.given[:2]).vectors[:, :4].tolist()


def _taped(tape: Any) -> list[Any]:
    """Of every module that looked, in order: the shape of its weights, and the last row of each head."""
    tables = [tape[name] for name in tape]
    return [[list(table.shape), table[0, ..., -1, :].tolist()] for table in tables]


def _looked(seen: Any) -> list[Any]:
    """Of every layer of a picture: its part, what it is captioned with, and some rows of its first head."""
    return [
        [layer.part, list(layer.rows or seen.rows), list(layer.columns or seen.columns), layer.weights[0, :5].tolist()]
        for layer in seen.layers
    ]


# -- made-up texts ----------------------------------------------------------------------------------------------------

CAPTIONS = (
    "the dog sees a house .",
    "a small man likes the bird .",
    "the old dog finds the red house .",
    "a bird sees the man .",
    "the man finds a small red bird .",
)


TEXTS: dict[str, Texts] = {
    "nothing": Texts("nothing", ()),
    "near": Texts("near", ("dog", "the", "man - dog + house")),
    "captions": Texts("translate", CAPTIONS, in_language(GERMAN, CAPTIONS)),
    "english": Texts("translate", CAPTIONS, CAPTIONS),
    "prefixed": Texts("translate", tuple(f"german: {line}" for line in CAPTIONS), in_language(GERMAN, CAPTIONS)),
    "german": Texts("translate", in_language(GERMAN, CAPTIONS), CAPTIONS),
    "greek": Texts("translate", in_language(GREEK, CAPTIONS), CAPTIONS),
    "dates": Texts(
        "translate",
        ("March 3, 2021", "3. Mai 1984", "Dec 24, 1999", "17. Juli 2030", "Friday, June 7, 1968"),
        ("2021-03-03", "1984-05-03", "1999-12-24", "2030-07-17", "1968-06-07"),
    ),
    "french": Texts(
        "translate",
        ("Marie n'est pas malade .", "Le chat est vert.", "L'accord a été signé en mai 1990 .", "Paul lit .", "Oui"),
        ("Marie is not ill .", "The cat is green .", "The agreement was signed in May 1990 .", "Paul reads .", "Yes"),
    ),
    "words": Texts(
        "translate", ("bad", "late", "monk", "radio", "tin"), ("B AE D", "L EH T", "M OW N K", "R AE D", "T IY N")
    ),
    "moves": Texts("caption", ("a square moves right then up", "a cross moves left then down then right")),
    "scenes": Texts("caption", ("a red circle above a blue square", "a small white ring left of a green cross")),
    "both": Texts("both", ("the dog", "a small man", "the", "a bird sees", "an unseen word")),
    "originals": Texts("detect", ("the dog", "a small man", "the", "a bird sees", "the man likes the")),
    "lines": Texts("language", ("the dog", "a small man", "the", "a bird sees", "the man likes the")),
    "running": Texts("language", ("the dog", "a small man", "the", "a bird sees\n", "the man likes the")),
    "gaps": Texts("fill", ("the <extra_id_0> sees", "a <extra_id_0> dog <extra_id_1>", "<extra_id_0>")),
    "masks": Texts(
        "fill",
        tuple(line.replace(word, "[MASK]", 1) for line, word in zip(CAPTIONS, ("dog", "a", "the", "sees", "man"))),
    ),
    "tagged": Texts("tag", CAPTIONS),
    "questions": Texts(
        "answer", ("what does the man see?", "what does the dog see?"), ("the man sees a dog.", "the dog sees a man.")
    ),
    "entailed": Texts(
        "pair", ("the dog sees a house .\ta dog .", "a small man likes the bird .\tthe man sees a red bird .")
    ),
    "similar": Texts("similarity", ("the dog sees a house .\ta dog .", "a bird\tthe bird likes a house .")),
    "choices": Texts("choice", ("the dog sees\ta house .\ta red bird .", "a bird likes the\tman .\tdog .")),
    **{
        name: Texts(verb, ("the dog is good", "a bad old house", "fine", "the bird is sad and bad", "a fine man"))
        for name, verb in (("opinions", "classify"), ("topics", "labels"), ("numbers", "rate"), ("related", "vectors"))
    },
}


def _made() -> dict[str, str | bytes]:
    """Every file that a case reads, by its path; what ends in .gz is to be packed."""
    files: dict[str, str | bytes] = {
        "pairs.tsv": tabbed([english := sentences(1, 120), in_language(GERMAN, english)]),
        "valid.tsv": tabbed([english := sentences(2, 16), in_language(GERMAN, english)]),
        "lines.txt": "\n".join(sentences(3, 160)),
        "other.txt": "\n".join(sentences(4, 80)),
        "book.txt": "\n".join(sentences(5, 120)),
        "labels.tsv": opinions(6, 200),
        "questions.jsonl": questions(60),
        "columns.txt": tagged_columns(23, 120),
        "entailed.tsv": compared(24, 120, ("yes", "no")),
        "similar.tsv": compared(25, 120, ("2.5", "-1", "0")),
        "choices.tsv": compared(26, 120, ("0", "1"), choices=2),
        "numbers.tsv": opinions(6, 200).replace("good\t", "2.5\t").replace("bad\t", "-1\t").replace("neither\t", "0\t"),
        "play.txt": "\n".join(f"{'AB'[at % 2]}:\n{line}\n" for at, line in enumerate(sentences(24, 80))),
        "articles.txt": "\n".join(f" = {line.split()[1]} = \n \n {line} . \n" for line in sentences(25, 80)),
        "tinyshakespeare/input.txt": "\n".join(sentences(7, 120)),
        "text8/text8": " ".join(sentences(14, 160)),
        "cmudict/cmudict.dict": dictionary(8, 300),
        "align_bible/grc-eng.SBLGNT-BSB.manual.tsv.gz": verses(9, 200),
    }
    for part, seed, count in (("train", 15, 120), ("valid", 16, 24), ("test", 17, 8)):
        lines = "".join(f" {line} \n" for line in sentences(seed, count))
        files |= {f"ptb/ptb.{part}.txt.gz": lines}
        files |= {f"{corpus}/wiki.{part}.tokens": lines for corpus in ("wikitext2", "wikitext-103")}
    for part, seed, count in (("train", 21, 60), ("t10k", 22, 6)):
        images, labels = digits(seed, count)
        files |= {f"mnist/{part}-images-idx3-ubyte.gz": images, f"mnist/{part}-labels-idx1-ubyte.gz": labels}
    files |= {f"polymusic/{name}.mat": music(23, (30, 6, 2)) for name in ("JSB_Chorales", "Nottingham")}
    for folder, parts, end in (
        ("multi30k", ("train", "val", "test_2016_flickr"), ".gz"),
        ("wmt14", ("train", "newstest2013", "newstest2014"), ""),
    ):
        for part, seed, count in zip(parts, (11, 12, 13), (120, 16, 4)):
            english = sentences(seed, count)
            for language, lines in (("en", english), ("de", in_language(GERMAN, english))):
                files[f"{folder}/{part}.{language}{end}"] = "\n".join(lines) + "\n"
    return files


@contextmanager
def _among_texts(folder: Path) -> Iterator[None]:
    """Inside, the made-up files are here and are all the data there is."""
    for name, text in _made().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    before, here = {name: os.environ.get(name) for name in FOLDERS}, Path.cwd()
    os.environ.update(dict.fromkeys(FOLDERS, str(folder)))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


# -- pinned and compared ----------------------------------------------------------------------------------------------

SHARP = ("losses", "terms", "rates", "valid")  # held to these tolerances, all else to the looser ones
TOLERANCE, LOOSE = (2e-4, 2e-5), (2e-4, 1e-3)  # relative, absolute
PLACES = ("record", "look", "embed", "fill", "classify")  # weights and probabilities: decimals instead of digits


def pinned_at(name: str, device: str = "cpu") -> Path:
    """Where the pinned values of a case are."""
    return (HERE if device == "cpu" else HERE / device) / f"{name}.json"


def pinned(name: str, device: str = "cpu") -> Any:
    return json.loads(pinned_at(name, device).read_text(encoding="utf-8"))


def shortened(value: Any, place: tuple[str, ...] = ()) -> Any:
    """The values as they are pinned: seven digits, or five decimals where they are weights."""
    if isinstance(value, float):
        return round(value, 5) if set(place) & set(PLACES) else float(f"{value:.7g}")
    return _within(value, shortened, place)


def exact(value: Any, place: tuple[str, ...] = ()) -> Any:
    """The values to the last bit."""
    return value.hex() if isinstance(value, float) else _within(value, exact, place)


def _within(value: Any, change: Callable[..., Any], place: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {str(name): change(one, (*place, str(name))) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [change(one, place) for one in value]
    assert value is None or isinstance(value, int | str), f"{place}: {value!r} is nothing to pin"
    return str(value) if isinstance(value, str) else value  # special and unknown tokens are texts of their own types


def differences(was: Any, now: Any, place: tuple[str, ...] = ()) -> list[str]:
    """Where two results differ by more than machines do, in words."""
    if isinstance(was, dict) and isinstance(now, dict):
        odd = [f"{_path(place)}: {name} is in one of them only" for name in sorted(was.keys() ^ now.keys())]
        return odd + [line for name in was if name in now for line in differences(was[name], now[name], (*place, name))]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        both = enumerate(zip(was, now))
        return [line for at, (one, other) in both for line in differences(one, other, (*place, str(at)))]
    if isinstance(was, float) and isinstance(now, float):
        relative, absolute = TOLERANCE if set(place) & set(SHARP) else LOOSE
        same = abs(was - now) <= absolute + relative * abs(was)
    else:
        same = was == now and type(was) is type(now)
    return [] if same else [f"{_path(place)}: was {was!r}, is {now!r}"]


def _path(place: tuple[str, ...]) -> str:
    return ".".join(place) or "all"


def _find(names: Sequence[str], device: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of these names, or all, each run in a folder of its own."""
    torch.set_num_threads(1)
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            yield name, measured(name, Path(folder), device)


def main() -> int:
    """Write, check, dump or compare; the number of differences decides the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true")
    todo.add_argument("--check", action="store_true")
    todo.add_argument("--exact", type=Path, metavar="OUT.json")
    todo.add_argument("--compare", type=Path, nargs=2, metavar=("A.json", "B.json"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    if unknown := set(given.names) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")

    lines: list[str] = []
    if given.compare:
        lines = differences(*(json.loads(path.read_text(encoding="utf-8")) for path in given.compare))
    elif given.exact:
        values = {name: exact(found) for name, found in _find(given.names, given.device)}
        given.exact.write_text(json.dumps(values, ensure_ascii=False, indent=0), encoding="utf-8")
    else:
        for name, found in _find(given.names, given.device):
            path = pinned_at(name, given.device)
            if given.write:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_told(shortened(found)), encoding="utf-8")
            elif path.is_file():
                lines += differences(pinned(name, given.device), shortened(found), (name,))
            else:
                lines.append(f"{name}: nothing is pinned in {path}")
    print(*lines, sep="\n", end="\n" if lines else "")
    print(f"done: {len(lines)} differences")  # so that a check that was killed cannot be taken for one that passed
    return min(len(lines), 1)


def _told(found: Mapping[str, Any]) -> str:
    """JSON with a line for each part."""
    parts = [f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in found.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


WITHOUT = {"flickr8k"}  # needs the weights of a frozen network
assert CASES.keys() >= RECIPES.keys() - WITHOUT, "a recipe without a case"

if __name__ == "__main__":
    sys.exit(main())
