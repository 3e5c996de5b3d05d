"""The runs that `make.py` writes: their recipes and settings, and what each is asked. The files that they read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
from regard.render.image_view import png

# -- settings ---------------------------------------------------------------------------------------------------------

STEPS, SAVED = 6, 4  # the length of a run, and the step at which it was stopped
LENGTH = f"plan.steps={STEPS} plan.evaluate={SAVED} plan.log=1 plan.keep=1 plan.threads=1 plan.device=cpu"
# What every trainer reads. The few data of a run are read many times, in tiny batches.
ANY = f"{LENGTH} plan.batch_tokens=96"
# What trainers by gradients read. Adam divides by the size of gradients: with its usual epsilon, the noise of another
# machine would matter.
PLAN = f"{ANY} plan.rate=2e-2 plan.warmup=2 plan.samples=4 plan.precision=float32 plan.epsilon=1e-3"

# Momentum needs half of the room that the two means of Adam need.
SGD = f"{PLAN} plan.optimizer=sgd plan.rate=0.1"

WIDTH = "model.width=8 model.embed=4"
SAME = "model.width=6 model.embed=6 model.layers=1"  # of tied weights
STACK = "model.width=8 model.heads=2 model.layers=1 model.inner=8"
TWO = "model.width=8 model.heads=2 model.layers=2 model.inner=8"
CONVS2S = "model.width=6 model.channels=4 model.context=24"
KIM = "model.filters=3 model.embed=4"
TAGGER = "model.width=8 model.embed=4 model.filters=3 model.character_embed=4"
CHARACTERS = "model.width=4 model.cells=6 model.kernels=1,3 model.filters=4,4 model.embed=4"
CONVOLUTIONS = "model.width=6 model.embed=6 model.layers=2 model.kernel=3"

PAIRS = "data.train=data/pairs.tsv data.valid=data/valid.tsv"
LETTERS = "data.source_tokens=char data.target_tokens=char"
BY_WORD = "data.source_tokens=word data.target_tokens=word"
LINES = "data.train=data/lines.txt data.tokens=word"
BOOK = "data=book data.train=data/book.txt data.tokens=word"
PRETRAIN = "data.train=data/book.txt data.tokens=word"
TUNED = "plan.tune_lm=1 plan.evaluate=2 head.inner=4"
DRAWN = "data.train=24 data.valid=4 data.test=4"
MADE = f"{DRAWN} {STACK} data.tokens=char plan.batch_tokens=512"
NO_EPOCHS = "plan.epochs=none"
VECTORS = f"data.train=data/lines.txt model.width=6 {NO_EPOCHS} plan.batch_tokens=200 plan.rate=0.05 plan.warmup=0"
EMPTY = "metrics= plan.select=loss"

# -- what is asked ----------------------------------------------------------------------------------------------------

CAPTIONS = ("the dog sees a house .", "a small man likes the bird .", "the old dog finds the red house .")
GERMAN_CAPTIONS = in_language(GERMAN, CAPTIONS)


@dataclass(frozen=True)
class Question:
    """Which verbs are asked (see `answers.VERBS`), and what they are given."""

    verb: str
    given: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


TO_GERMAN = Question("translate", CAPTIONS, GERMAN_CAPTIONS)
TO_ENGLISH = Question("translate", GERMAN_CAPTIONS, CAPTIONS)
FROM_GREEK = Question("translate", in_language(GREEK, CAPTIONS), CAPTIONS)
SAME_TEXT = Question("translate", CAPTIONS, CAPTIONS)
PREFIXED = Question("translate", tuple(f"german: {line}" for line in CAPTIONS), GERMAN_CAPTIONS)
DATES = Question("translate", ("March 3, 2021", "3. Mai 1984"), ("2021-03-03", "1984-05-03"))
SOUNDS = Question("translate", ("bad", "late", "monk"), ("B AE D", "L EH T", "M OW N K"))
WRITE = Question("generate", ("the dog", "a small man", "the"))
DETECT = Question("detect", ("the dog sees a man .", "a small man"))
BOTH = Question("both", ("the dog", "a small man"))
MASKS = Question("fill", ("the [MASK] sees a house .", "[MASK] small man likes the bird ."))
GAPS = Question("spans", ("the <extra_id_0> sees", "a <extra_id_0> dog <extra_id_1>"))
OPINIONS = ("the dog is good", "a bad old house", "fine")
CLASSIFY = Question("classify", OPINIONS)
CLASSES = Question("classes", OPINIONS)
LABELS = Question("labels", OPINIONS)
RATE = Question("rate", OPINIONS)
VECTORS_OF = Question("vectors", OPINIONS)
TAG = Question("tag", CAPTIONS)
ANSWER = Question(
    "answer", ("what does the man see?", "what does the dog see?"), ("the man sees a dog.", "the dog sees a man.")
)
PAIR = Question("pair", ("the dog sees a house .\ta dog .", "a small man likes the bird .\tthe man sees a red bird ."))
SIMILARITY = Question("similarity", PAIR.given)
CHOICE = Question("choice", ("the dog sees\ta house .\ta red bird .", "a bird likes the\tman .\tdog ."))
NEAR = Question("neighbours", ("dog", "man - dog + house"))
SCENES = Question("caption", ("a red circle above a blue square", "a small white ring left of a green cross"))
MOVES = Question("caption", ("a square moves right then up", "a cross moves left then down then right"))
NUMBER = Question("number", ("beagda", "uif"))
NOTHING = Question("nothing")


# -- the runs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One run: a recipe, its settings, and what it is asked."""

    recipe: str
    settings: str
    question: Question
    start: str = ""  # from=: a run that is made before this one, or a public directory that `make.py` makes
    stop: int = SAVED  # the step at which the run is stopped
    stage: str = ""  # tuned: it is stopped in its first stage, at that step
    resumes: bool = True  # false: the digest of its data is not that of another machine
    own: bool = False  # with `kinds=`, the parts of a user's own


def _translator(settings: str, **more: object) -> Case:
    return Case("translate", f"{PLAN} {PAIRS} {BY_WORD} {settings}", TO_GERMAN, **more)  # type: ignore[arg-type]


def _seq2seq(settings: str, **more: object) -> Case:
    return _translator(f"{WIDTH} {settings}", **more)


def _transformer(settings: str, **more: object) -> Case:
    return _translator(f"model=transformer {STACK} model.context=24 {settings}", **more)


def _lines(settings: str, question: Question = WRITE, **more: object) -> Case:
    return Case("text", f"{PLAN} {LINES} {settings}", question, **more)  # type: ignore[arg-type]


def _book(settings: str, **more: object) -> Case:
    return Case("text", f"{PLAN} {BOOK} data.window=12 {settings}", WRITE, **more)  # type: ignore[arg-type]


def _pretrained(model: str, settings: str, question: Question = MASKS, **more: object) -> Case:
    return Case("pretrain", f"model={model} {PLAN} {PRETRAIN} {settings}", question, **more)  # type: ignore[arg-type]


def _small(recipe: str, file: str, settings: str, question: Question, **more: object) -> Case:
    given = f"{PLAN} data.train=data/{file} data.tokens=word"
    return Case(recipe, f"{given} {settings}", question, **more)  # type: ignore[arg-type]


GPT = f"model=gpt {STACK} model.context=32"
BERT = f"model=bert {STACK} model.context=32"
XL = f"model=gpt {TWO} model.positions=xl model.context=24"

CASES: dict[str, Case] = {
    # Recurrent translators: where the context enters, cells, scores, windows; objectives and plans.
    "seq2seq": _seq2seq("model.dropout=0.2", stop=5),  # its best step is not its latest
    "seq2seq-once": _seq2seq("model.decoder=once model.cell=lstm model.layers=2 model.dropout=0"),
    "seq2seq-every": _seq2seq("model.decoder=every model.cell=rnn model.dropout=0"),
    "seq2seq-bahdanau": _seq2seq(
        "model.decoder=bahdanau model.score=general model.layers=2 model.cell=lstm model.dropout=0"
    ),
    "seq2seq-luong-local": _seq2seq(
        "model.decoder=luong model.score=dot model.window=local-p model.radius=2 model.dropout=0"
    ),
    "seq2seq-feeding": _seq2seq(
        "model.decoder=luong-feeding model.score=cosine model.layers=2 model.dropout=0 data.joint=true"
    ),
    "seq2seq-location": _seq2seq(
        "model.decoder=luong-feeding model.score=location model.window=local-m model.radius=3 model.dropout=0"
    ),
    "scheduled": _seq2seq("objective.ratio=0.9 objective.schedule=linear objective.over=40 model.dropout=0"),
    "professor": _seq2seq("objective=professor objective.width=6 objective.smoothing=0.1 model.dropout=0"),
    "sgd-accumulated": _seq2seq("plan.accumulate=2 plan.optimizer=sgd plan.rate=0.2 model.dropout=0"),
    "adam-noam": _transformer("plan.optimizer=adam plan.schedule=noam plan.rate=0.5 plan.betas=0.9,0.98 plan.warmup=3"),
    # Transformers by their settings.
    "transformer": _transformer(""),
    "transformer-tied": _transformer("data.joint=true model.shared=all model.dropout=0"),
    "transformer-t5": _transformer(
        "model.positions=t5 model.furthest=20 model.buckets=8 model.norm=rms model.gated=true model.shared=none "
        "model.decoder_layers=1 model.dropout=0"
    ),
    "transformer-post": _transformer(
        "model.layers=2 model.norm_place=post model.groups=1 model.score=additive model.dropout=0"
    ),
    "gnmt": _translator("model=gnmt model.width=6 model.embed=4 model.layers=3 model.dropout=0"),
    "convs2s": _translator(
        "model=convs2s model.width=6 model.channels=4 model.layers=2 model.context=24 model.dropout=0"
    ),
    # Recipes of pairs.
    "dates": Case("dates", f"{PLAN} data.train=60 data.valid=8 data.test=4 data.languages=en,de {WIDTH}", DATES),
    "sounds": Case("sounds", f"{PLAN} {WIDTH} model.layers=1", SOUNDS),
    "multi30k": Case("multi30k", f"{PLAN} data.vocab=60 {STACK} model.layers=1 model.context=32", TO_GERMAN),
    "multi30k-de-en": Case("multi30k-de-en", f"{SGD} data.vocab=60 {WIDTH}", TO_ENGLISH),
    "multi30k-gnmt": Case("multi30k-gnmt", f"{SGD} {BY_WORD} model.width=4 model.embed=4 model.layers=2", TO_GERMAN),
    "multi30k-convs2s": Case(
        "multi30k-convs2s",
        f"{SGD} {BY_WORD} model.width=6 model.channels=4 model.layers=1 model.context=24",
        TO_GERMAN,
    ),
    "wmt14": Case("wmt14", f"{PLAN} {BY_WORD} {STACK} model.context=32 plan.rate=0.3", TO_GERMAN),
    "wmt14-big": Case("wmt14-big", f"{PLAN} {BY_WORD} {STACK} model.context=32 plan.rate=0.3", TO_GERMAN),
    "greek": Case("greek", f"{PLAN} {BY_WORD} {WIDTH}", FROM_GREEK),
    "guided": Case("greek", f"{PLAN} {BY_WORD} {WIDTH} objective=guided objective.alignment=0.3", FROM_GREEK),
    "text2text": Case("text2text", f"{SGD} {PAIRS} {BY_WORD} data.prefix=german: {STACK} model.dropout=0", PREFIXED),
    "mixture": Case(
        "text2text",
        f"{PLAN} data=mixture {BY_WORD} data.one.train=data/pairs.tsv data.one.valid=data/valid.tsv "
        "data.one.prefix=german: data.two.train=data/labels.tsv data.two.valid=data/labels.tsv data.two.prefix=text: "
        f"{STACK} model.dropout=0",
        PREFIXED,
    ),
    "reply": Case("reply", f"{PLAN} data.train=data/play.txt {BY_WORD} {STACK}", SAME_TEXT),
    "titles": Case("titles", f"{SGD} data.train=data/articles.txt data.least=4 {BY_WORD} {STACK}", SAME_TEXT),
    # Language models of lines.
    "text": _lines(f"{WIDTH} model.context=32"),
    "text-backward": _lines(f"{WIDTH} model.context=32 model.direction=backward"),
    "text-both": _lines(f"model=lstm {SAME} model.direction=both {EMPTY}", BOTH),
    "text-tied": _lines(f"model=lstm {SAME} model.tied=true model.dropout=0"),
    "gru": _lines(f"model=gru {WIDTH} model.layers=1 plan.optimizer=asgd plan.trigger=0 plan.rate=0.5 model.dropout=0"),
    "tcn": _lines(f"model=tcn {CONVOLUTIONS}"),
    "gpt": _lines(f"{GPT} model.windows=0,3 model.positions=relative data.tokens=char"),
    "gpt-both": _lines(f"{GPT} model.direction=both {EMPTY} model.dropout=0", BOTH),
    "bigram": Case("bigram", f"{ANY} {LINES}", WRITE),
    "elmo": Case("elmo", f"{PLAN} {LINES} {CHARACTERS}", BOTH),
    "context2vec": Case("context2vec", f"{PLAN} {LINES} {WIDTH} model.inner=6", MASKS),
    "word2vec": Case("word2vec", f"{ANY} {VECTORS}", NEAR),
    "word2vec-cbow": Case("word2vec", f"model=cbow objective=hierarchical {ANY} {VECTORS}", NEAR),
    "glove": Case("glove", f"{ANY} {VECTORS}", NEAR),
    "begun": _lines(f"{WIDTH} model.context=32", stop=0),  # stopped before its first step
    "finished": _lines(f"{WIDTH} model.context=32", stop=STEPS),
    # Language models of running text.
    "book-lstm": _book(f"model=lstm {WIDTH} model.layers=1 model.dropout=0 data.order=contiguous"),
    "book-bytes": _book(f"{GPT} data.tokens=byte-bpe data.vocab=270 model.context=24 plan.optimizer=sgd"),
    "xl": _book(f"{XL} model.memory=6 data.order=contiguous model.dropout=0"),
    "xl-settings": _book(
        f"{XL} model.norm_place=post model.memory=6 model.memory_zeros=true model.clamp=8 "
        "model.shared_biases=true "
        "model.softmax=adaptive model.cutoffs=4,8 model.divide=2 model.projections=1,2 model.windows=5 "
        "model.scaled=true model.attention_bias=false model.activation=relu data.order=contiguous model.dropout=0"
    ),
    "xl-adaptive": _book(
        f"{XL} model.norm_place=post model.memory=6 model.clamp=8 model.shared_biases=true model.softmax=adaptive "
        "model.cutoffs=4,8 model.divide=2 model.projections=1,2 model.scaled=true model.attention_bias=false "
        "model.activation=relu data.order=contiguous model.dropout=0"
    ),
    "shakespeare": Case("shakespeare", f"{PLAN} {STACK} model.context=16", WRITE),
    "shakespeare-cpu": Case("shakespeare-cpu", f"{PLAN} {STACK} model.context=16", WRITE),
    "hello": Case("hello", f"{PLAN} plan.batch_tokens=4", WRITE),
    "ptb": Case("ptb", f"{PLAN} data.window=12 {SAME}", WRITE),
    "ptb-char": Case("ptb-char", f"{PLAN} data.window=12 {WIDTH} model.layers=1", WRITE),
    "text8": Case("text8", f"{PLAN} data.window=12 {WIDTH} model.layers=1", WRITE),
    "wikitext103": Case("wikitext103", f"{PLAN} data.window=12 {SAME} model.cutoffs=4,8 model.divide=2", WRITE),
    "awd-lstm": Case(
        "awd-lstm",
        f"{PLAN} data.window=12 plan.evaluate=1 {SAME} model.layers=2 model.hidden=5 plan.rate=2 plan.trigger=0",
        WRITE,
    ),
    "ulmfit": Case(
        "ulmfit",
        f"{PLAN} data.train=data/book.txt data.tokens=word data.window=12 {SAME} model.layers=2 model.hidden=5",
        WRITE,
    ),
    # Pre-training.
    "bert": _pretrained("bert", f"{STACK} model.context=32"),
    "roberta": _pretrained("roberta", f"{STACK} model.context=32 data.tokens=bpe data.vocab=50"),
    "albert": _pretrained("albert", f"objective.words=true objective.static=2 {TWO} model.embed=4 model.context=32"),
    "electra": _pretrained("electra", f"objective.width=0.5 {STACK} model.embed=4 model.context=32", DETECT),
    "t5": _pretrained("t5", f"data.window=16 {STACK} model.decoder_layers=1 model.head_width=4", GAPS),
    "masked-lstm": _pretrained("masked-lstm", f"data.window=16 {WIDTH}"),
    "transformer-xl": _pretrained("transformer-xl", f"data.window=12 {STACK} model.memory=6", WRITE),
    # Classes, labels, numbers, tags, pairs, choices, answers, vectors.
    "classify": _small("classify", "labels.tsv", f"{WIDTH} model.attention=4 model.hops=2", CLASSIFY),
    "kim": _small("classify", "labels.tsv", f"model=kim {KIM} objective.class_weights=balanced", CLASSIFY),
    "delimited": Case("classify", f"{PLAN} data=delimited data.train=data/labels.tsv data.tokens=word {GPT}", CLASSES),
    "headed-gpt": _small("classify", "labels.tsv", f"{GPT} objective.language=0.5", CLASSIFY),
    "headed-bert": _small("classify", "labels.tsv", f"{BERT} head.pool=mean head.hidden=tanh", CLASSIFY),
    "headed-lstm": _small("classify", "labels.tsv", f"model=lstm {WIDTH} model.layers=1", CLASSIFY),
    "multilabel": _small("multilabel", "labels.tsv", KIM, LABELS),
    "rate": _small("rate", "numbers.tsv", KIM, RATE),
    "tag": _small("tag", "columns.txt", f"{TAGGER} {NO_EPOCHS}", TAG),
    "tag-pieces": _small("tag", "columns.txt", f"{BERT} data.tokens=bpe data.vocab=50 {NO_EPOCHS}", TAG),
    "pair": _small("pair", "entailed.tsv", BERT, PAIR),
    "similarity": _small("similarity", "similar.tsv", GPT, SIMILARITY),
    "choice": _small("choice", "choices.tsv", BERT, CHOICE),
    "answer": _small("answer", "questions.jsonl", f"{STACK} model.context=32", ANSWER),
    "made-answers": Case("made-answers", f"{SGD} {MADE}", ANSWER),
    "made-entailment": Case("made-entailment", f"{SGD} {MADE}", NOTHING),
    "made-choices": Case("made-choices", f"{SGD} {MADE}", NOTHING),
    "embed": _small("embed", "pairs.tsv", f"{STACK} model.context=32 objective.symmetric=true {EMPTY}", VECTORS_OF),
    # Images, numbers.
    "scenes": Case(
        "scenes", f"{PLAN} data.train=16 data.valid=4 data.test=4 data.size=32 model.blocks=2 {WIDTH}", SCENES
    ),
    "scenes-hard": Case(
        "scenes",
        f"{PLAN} data.train=16 data.valid=4 data.test=4 data.size=32 model.blocks=2 {WIDTH} model.decoder=attend "
        "model.attention=hard objective=hard",
        SCENES,
    ),
    "flickr8k": Case(  # the features of a frozen network, which are numbers with the noise of a machine
        "flickr8k",
        f"{PLAN} data.train=data/photos/train.tsv data.valid=data/photos/valid.tsv model.width=4 model.embed=4 "
        "model.dropout=0 plan.optimizer=sgd",
        Question("caption", ("a red photo", "a dark photo")),
        resumes=False,
    ),
    "clip-captions": Case("clip-captions", f"{SGD} data.size=5 data.frames=8 {DRAWN} {WIDTH}", MOVES),
    "clips": Case("clips", f"{PLAN} data.size=5 data.frames=6 {DRAWN} {WIDTH}", NOTHING),
    "adding": Case("adding", f"{PLAN} data.length=12 {DRAWN} {CONVOLUTIONS}", NOTHING),
    "copy": Case("copy", f"{PLAN} data.delay=4 {DRAWN} {CONVOLUTIONS}", NOTHING),
    "mnist": Case("mnist", f"{PLAN} data.pixels=4 {WIDTH}", NOTHING),
    "smnist": Case("smnist", f"{PLAN} {CONVOLUTIONS}", NOTHING),
    "pmnist": Case("pmnist", f"{PLAN} {CONVOLUTIONS}", NOTHING),
    "jsb": Case("jsb", f"{PLAN} {CONVOLUTIONS} model.dropout=0.1", NOTHING),
    "nottingham": Case("nottingham", f"{PLAN} model=gpt {STACK} model.context=32 model.positions=relative", NOTHING),
    # Runs that start from others.
    "warm": _lines("data.train=data/book.txt model.dropout=0", start="runs/text"),
    "warm-headed": _small("classify", "labels.tsv", f"{NO_EPOCHS} plan.freeze=1", CLASSIFY, start="runs/bert"),
    "warm-t5": _small("classify", "labels.tsv", f"{NO_EPOCHS} head=class", CLASSIFY, start="runs/t5"),
    "features": _small("tag", "columns.txt", f"{TAGGER} {NO_EPOCHS}", TAG, start="runs/text-both"),
    "features-tuned": _small(
        "classify", "labels.tsv", f"model=bilstm {TAGGER} model.tune=true", CLASSES, start="runs/elmo"
    ),
    "features-vectors": _small("tag", "columns.txt", f"{TAGGER} {NO_EPOCHS}", TAG, start="runs/word2vec"),
    "features-cove": _small("tag", "columns.txt", f"{TAGGER} {NO_EPOCHS}", TAG, start="runs/seq2seq"),
    "two-stages": _small("classify", "labels.tsv", f"{TUNED} model.dropout=0", CLASSIFY, start="runs/ulmfit"),
    "first-stage": _small("classify", "labels.tsv", TUNED, CLASSIFY, start="runs/ulmfit", stage="tuned", stop=2),
    "public-bert": Case("classify", f"{PLAN} data.train=data/labels.tsv {NO_EPOCHS}", CLASSIFY, start="public/bert"),
    # Layers by their names.
    "frozen": _small("classify", "labels.tsv", f"{BERT} plan.freeze=body.embedding {NO_EPOCHS}", CLASSIFY),
    # Parts of a user's own.
    "own": Case("vowels", PLAN, NUMBER, own=True),
    "own-headed": Case("vowels", f"{PLAN} {BERT}", NUMBER, own=True),
}


# -- the ladders ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ladder:
    """A ladder that was stopped: the command, and the one cell of it that is half-trained."""

    command: str
    half: str  # the run of that cell, in the folder of the ladder; what would follow from it is not there yet


# A cell is evaluated at its end only; with asgd, a run has no second and third copy of its weights.
LADDER = (
    "plan.steps=4 plan.evaluate=4 plan.log=1 plan.keep=1 plan.threads=1 plan.device=cpu plan.batch_tokens=96 "
    "plan.precision=float32 plan.optimizer=asgd"
)
PROBE = (
    "probe.train=data/labels.tsv probe.valid=data/labels.tsv probe.labels=24 probe.steps=4 probe.rate=1e-2 "
    "probe.batch_tokens=64"
)
LADDERS: dict[str, Ladder] = {
    # Every kind of attention of a recurrent translator.
    "ladder-dates": Ladder(
        f"dates {LADDER} plan.rate=0.1 data.train=60 data.valid=8 data.test=4 "
        "data.languages=en,de model.width=14 model.embed=6 model.capacity=24 --rungs no-attention,dot,additive "
        "--seeds 1",
        "cells/additive/seed-1",
    ),
    # Families of translators, beside a Transformer; a file of pairs.
    "ladder-families": Ladder(
        f"data/pairs.tsv {LADDER} plan.rate=0.1 data.source_tokens=word data.target_tokens=word model=transformer "
        "model.width=8 model.heads=1 model.layers=1 model.inner=8 model.context=24 model.dropout=0 "
        "--rungs general,convs2s,transformer-learned --seeds 1",
        "cells/transformer-learned/seed-1",
    ),
    # Sequences: two trials, and the cell of the better one.
    "ladder-sequences": Ladder(
        f"sequences copy tcn {LADDER} plan.rate=0.1 data.delay=4 data.train=24 data.valid=4 data.test=4 "
        "--minutes 1000 --trials 2 --seeds 1",
        "cells/copy/tcn/seed-1",
    ),
    # Pre-training and its probe.
    "ladder-pretraining": Ladder(
        f"pretrain gpt roberta {LADDER} plan.rate=0.1 data.train=data/book.txt data.tokens=word model.width=16 "
        f"model.heads=2 model.layers=1 model.inner=16 model.context=24 {PROBE} --seeds 1",
        "cells/roberta/pretrain",
    ),
}


# What every format after 2 has. Format 2 has all but "frozen", and later changes of a single part show there. These few
# have what a change of the format itself may break: a model alone, under a head, in both directions, as an extractor;
# shared weights, and weights beside the model; a carried state; settings that name layers and other settings; the files
# of several parts of the data; parts of a user's own; a ladder with files of its own.
AGAIN = (
    *("text-tied", "text-both", "features", "frozen", "electra", "glove", "xl", "ulmfit", "two-stages", "mixture"),
    *("own-headed", "ladder-pretraining"),
)


# -- the files that they read -----------------------------------------------------------------------------------------


def files() -> dict[str, str | bytes]:
    """Every file that a run reads, by its path. Those under public/ have the names of public sets: REGARD_DATA."""
    found: dict[str, str | bytes] = {
        "pairs.tsv": tabbed([english := sentences(1, 32), in_language(GERMAN, english)]),
        "valid.tsv": tabbed([english := sentences(2, 6), in_language(GERMAN, english)]),
        "lines.txt": "\n".join(sentences(3, 40)) + "\n",
        "book.txt": "\n".join(sentences(5, 60)) + "\n",
        "labels.tsv": opinions(6, 60),
        "numbers.tsv": opinions(6, 40).replace("good\t", "2.5\t").replace("bad\t", "-1\t").replace("neither\t", "0\t"),
        "questions.jsonl": questions(24),
        "columns.txt": tagged_columns(23, 32),
        "entailed.tsv": compared(24, 40, ("yes", "no")),
        "similar.tsv": compared(25, 40, ("2.5", "-1", "0")),
        "choices.tsv": compared(26, 32, ("0", "1"), choices=2),
        "play.txt": "\n".join(f"{'AB'[at % 2]}:\n{line}\n" for at, line in enumerate(sentences(24, 30))),
        "articles.txt": "\n".join(f" = {line.split()[1]} = \n \n {line} . \n" for line in sentences(25, 30)),
        "public/tinyshakespeare/input.txt": "\n".join(sentences(7, 30)),
        "public/text8/text8": " ".join(sentences(14, 30)),
        "public/cmudict/cmudict.dict": dictionary(8, 120),
        "public/align_bible/grc-eng.SBLGNT-BSB.manual.tsv.gz": verses(9, 80),
    }
    for part, seed, count in (("train", 15, 40), ("valid", 16, 12), ("test", 17, 6)):
        lines = "".join(f" {line} \n" for line in sentences(seed, count))
        found |= {f"public/ptb/ptb.{part}.txt.gz": lines}
        found |= {f"public/{corpus}/wiki.{part}.tokens": lines for corpus in ("wikitext2", "wikitext-103")}
    found |= photos()
    for part, seed, count in (("train", 21, 40), ("t10k", 22, 4)):
        images, labels = digits(seed, count)
        found |= {
            f"public/mnist/{part}-images-idx3-ubyte.gz": images,
            f"public/mnist/{part}-labels-idx1-ubyte.gz": labels,
        }
    found |= {f"public/polymusic/{name}.mat.gz": music(23, (6, 2, 2)) for name in ("JSB_Chorales", "Nottingham")}
    for folder, parts, end in (
        ("multi30k", ("train", "val", "test_2016_flickr"), ".gz"),
        ("wmt14", ("train", "newstest2013", "newstest2014"), ""),
    ):
        for part, seed, count in zip(parts, (11, 12, 13), (32, 6, 4)):
            english = sentences(seed, count)
            for language, lines in (("en", english), ("de", in_language(GERMAN, english))):
                found[f"public/{folder}/{part}.{language}{end}"] = "\n".join(lines) + "\n"
    return found


def photos() -> dict[str, str | bytes]:
    """Images of one colour each, with two captions, and the files of the captions."""
    colours = {"red": (200, 20, 20), "green": (20, 180, 40), "blue": (10, 40, 210), "dark": (20, 20, 20)}
    found: dict[str, str | bytes] = {}
    for part, shades in (("train", (0, 9, 18, 27)), ("valid", (36,))):
        lines = []
        for shade in shades:
            for name, colour in colours.items():
                image = np.full((8, 8, 3), colour, np.uint8) + np.uint8(shade)
                found[f"photos/{name}{shade}.png"] = png(image)
                lines += [f"{name}{shade}.png\ta {name} photo", f"{name}{shade}.png\tthis photo is {name}"]
        found[f"photos/{part}.tsv"] = "\n".join(lines) + "\n"
    return found
