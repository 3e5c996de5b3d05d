"""Recipes for language models: of your own text, of characters, and of public running text."""

from dataclasses import replace

from regard.data.running_corpora import Hello, Ptb, PtbChar, Text8, WikiText2, WikiText103
from regard.data.sources import Lines
from regard.data.stories import Stories
from regard.data.streams import Book, Shakespeare
from regard.models import BigramConfig, Context2vecConfig, ElmoConfig, GptConfig, LstmnConfig, RecurrentLmConfig
from regard.objectives import ContextSampling, Counting, RegularisedActivations, TeacherForcing
from regard.recipes.recipe import Plan, Recipe

# The dropout of AWD-LSTM (Merity et al. 2018), and the same embeddings in the first and the last layer.
AWD = RecurrentLmConfig(tied=True, embedding_dropout=0.1, variational=True)


def text() -> Recipe:
    """A language model of your own lines, an LSTM with attention to its earlier states: `data.train=FILE`.

    `model=gpt` trains a Transformer instead; `data=book` reads the file as one running text.
    """
    return Recipe(
        name="text",
        title="a language model of your own text",
        data=Lines(),
        model=LstmnConfig(),
        objective=TeacherForcing(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=2e-3, evaluate=200),
        metrics=("perplexity",),
    )


def bigram() -> Recipe:
    """A bigram language model of your own lines, by counting: `data.train=FILE`.

    `regard score RUN --tokens` prints each probability with its counts. `model.smoothing=interpolated` mixes in the
    probabilities of single words. `data=book data.window=256` reads the file as one running text.
    """
    return Recipe(
        name="bigram",
        title="a bigram language model of your own text, by counting",
        data=Lines(tokens="word"),
        model=BigramConfig(),
        objective=Counting(),
        plan=Plan(steps=10, batch_tokens=65_536, evaluate=10, log=1),
        metrics=("perplexity",),
    )


# By the name of the model: the settings of `stories` that follow from it.
SMALL_STACK = ("model.width=64", "model.heads=2", "model.layers=4", "model.inner=256", "model.context=128")
STORIES: dict[str, tuple[str, ...]] = {
    "gpt": (*SMALL_STACK, "model.dropout=0"),
    "bert": (
        *(*SMALL_STACK, "model.dropout=0", "model.attention_dropout=0", "model.segments=0", "model.neighbours=true"),
        *(
            "objective=masked",
            "objective.part=0.4",
            "metrics=perplexity,filled",
            "model.norm_place=pre",
            "plan.steps=8000",
        ),
    ),
}


def stories() -> Recipe:
    """A small GPT of short stories from a story grammar, in some minutes on a CPU, without a download.

    Names, things and places come back later in a story, so attention has something to find. `model=bert` trains a
    masked model instead, for `regard fill`.
    """
    return Recipe(
        name="stories",
        title="a small GPT of short made stories",
        data=Stories(),
        model=GptConfig(width=64, heads=2, layers=4, inner=256, context=128, dropout=0.0),
        objective=TeacherForcing(),
        plan=Plan(steps=3500, batch_tokens=2048, rate=4e-3, schedule="linear", warmup=100, evaluate=500),
        metrics=("perplexity",),
    )


def elmo() -> Recipe:
    """ELMo of your own lines (Peters et al. 2018): words read by characters, both directions: `data.train=FILE`.

    `regard embed RUN --words --layers all` gives the vectors of words. `objective.sampled=8192` makes training with a
    large vocabulary faster. `data=book data.order=contiguous` reads the file as one running text, with carried states.
    """
    return Recipe(
        name="elmo",
        title="words in context from both directions, by characters (ELMo)",
        data=Lines(tokens="word", vocab=50_000),
        model=ElmoConfig(),
        objective=TeacherForcing(),
        plan=Plan(steps=3000, batch_tokens=2048, rate=2e-3, evaluate=300),
        metrics=("perplexity", "forward", "backward"),
    )


def context2vec() -> Recipe:
    """Vectors of words and of their contexts, context2vec (Melamud et al. 2016): `data.train=FILE`.

    `regard eval RUN --substitution` measures how well the context of a word ranks its substitutes.
    """
    return Recipe(
        name="context2vec",
        title="vectors of words and of their contexts",
        data=Lines(tokens="word", vocab=30_000),
        model=Context2vecConfig(),
        objective=ContextSampling(),
        plan=Plan(steps=5000, batch_tokens=4096, rate=1e-3, schedule="linear", evaluate=500),
        metrics=(),
    )


def shakespeare() -> Recipe:
    """Shakespeare by characters: a GPT of 10.7 million parameters, three minutes on a GPU.

    `data.train=FILE` reads a text of your own instead.
    """
    return Recipe(
        name="shakespeare",
        title="Shakespeare by characters, 10.7M parameters",
        data=Shakespeare(),
        model=GptConfig(
            width=384,
            heads=6,
            layers=6,
            inner=4 * 384,
            context=256,
            attention_bias=False,
            feed_bias=False,
            dropout=0.2,
            attention_dropout=0.2,
        ),
        objective=TeacherForcing(),
        plan=Plan(steps=5000, batch_tokens=64 * 256, rate=1e-3, warmup=100, betas=(0.9, 0.99), decay=0.1, evaluate=250),
        metrics=("perplexity",),
    )


def shakespeare_cpu() -> Recipe:
    """Shakespeare by characters: a GPT of 0.8 million parameters, some minutes on a CPU.

    `data.train=FILE` reads a text of your own instead.
    """
    large = shakespeare()
    sizes = {"width": 128, "heads": 4, "layers": 4, "inner": 4 * 128, "context": 64}
    return replace(
        large,
        name="shakespeare-cpu",
        title="Shakespeare by characters, 0.8M parameters",
        model=replace(large.model, **sizes, dropout=0.0, attention_dropout=0.0),
        plan=replace(large.plan, steps=2000, batch_tokens=12 * 64),
    )


# By the name of the model: a cell with gates in `hello` is as small as its RNN.
HELLO_CELLS = dict.fromkeys(
    ("rnn", "lstm", "gru"), ("model.width=3", "model.embed=4", "model.layers=1", "model.dropout=0")
)


def hello() -> Recipe:
    """The word "hello": a recurrent network of three units reads h, e, l, l and predicts e, l, l, o, in seconds.

    At the end, every state and every probability is printed (Karpathy 2015). `model=lstm` and `model=gru` train cells
    with gates, and print these too.
    """
    return Recipe(
        name="hello",
        title="four letters, three hidden units: every state and probability",
        data=Hello(),
        model=RecurrentLmConfig(cell="rnn", width=3, embed=4, layers=1, dropout=0.0),
        objective=TeacherForcing(),
        plan=Plan(
            steps=400, batch_tokens=4, rate=2e-2, schedule="constant", warmup=0, decay=0.0, log=100, evaluate=200
        ),
        metrics=("perplexity",),
    )


def ptb() -> Recipe:
    """The Penn Treebank by words: an LSTM of 13 million parameters with tied weights and the dropout of AWD-LSTM."""
    return Recipe(
        name="ptb",
        title="the Penn Treebank by words, an LSTM",
        data=Ptb(),
        model=replace(AWD, width=650, embed=650, dropout=0.5, input_dropout=0.4, hidden_dropout=0.3, weight_drop=0.4),
        objective=TeacherForcing(),
        # 60 epochs
        plan=Plan(steps=20_000, batch_tokens=40 * 70, rate=3e-3, warmup=500, decay=0.05, clip=0.25, evaluate=1000),
        metrics=("perplexity",),
    )


def ptb_char() -> Recipe:
    """The Penn Treebank by characters: an LSTM of 3 million parameters, as large as in Bai et al. 2018."""
    base = ptb()
    return replace(
        base,
        name="ptb-char",
        title="the Penn Treebank by characters, an LSTM",
        data=PtbChar(),
        model=RecurrentLmConfig(width=480, embed=128, layers=2, dropout=0.1, weight_drop=0.2, variational=True),
        plan=Plan(steps=25_000, batch_tokens=64 * 150, rate=3e-3, warmup=500, decay=0.05, clip=0.25, evaluate=1000),
    )


def text8() -> Recipe:
    """Wikipedia in lower case by characters (text8): an LSTM of 8 million parameters."""
    base = ptb_char()
    return replace(
        base,
        name="text8",
        title="Wikipedia by characters (text8), an LSTM",
        data=Text8(),
        model=RecurrentLmConfig(width=800, embed=128, layers=2, dropout=0.1),
        plan=replace(base.plan, steps=60_000, batch_tokens=128 * 180, evaluate=3000),
    )


def wikitext103() -> Recipe:
    """Wikipedia by words (WikiText-103): an LSTM with tied weights and an adaptive softmax (Grave et al. 2017)."""
    base = ptb()
    return replace(
        base,
        name="wikitext103",
        title="Wikipedia by words (WikiText-103), an LSTM with an adaptive softmax",
        data=WikiText103(),
        model=RecurrentLmConfig(
            width=1024, embed=1024, tied=True, dropout=0.2, softmax="adaptive", cutoffs=(20_000, 100_000), divide=4
        ),
        plan=Plan(steps=200_000, batch_tokens=64 * 140, warmup=2000, decay=0.0, clip=0.25, evaluate=5000),
    )


def awd_lstm() -> Recipe:
    """WikiText-2 by words: AWD-LSTM of 33 million parameters (Merity et al. 2018), published with a perplexity of 68.6.

    `data=ptb model.input_dropout=0.4 model.hidden_dropout=0.25 plan.batch_tokens=1400 plan.evaluate=663` has the
    published settings for the Penn Treebank: 24 million parameters, a perplexity of 60.0.
    """
    return Recipe(
        name="awd-lstm",
        title="WikiText-2 by words, AWD-LSTM: weight drop, variational dropout, averaged SGD",
        data=WikiText2(spread=0.07),
        model=replace(
            AWD,
            width=400,
            embed=400,
            hidden=1150,
            layers=3,
            dropout=0.4,
            input_dropout=0.65,
            hidden_dropout=0.2,
            weight_drop=0.5,
        ),
        objective=RegularisedActivations(ar=2.0, tar=1.0),
        plan=Plan(
            steps=280_000,  # 750 epochs
            batch_tokens=80 * 70,
            optimizer="asgd",
            trigger=5,
            rate=30.0,
            schedule="constant",
            warmup=0,
            decay=1.2e-6,
            clip=0.25,
            evaluate=372,  # an epoch
        ),
        metrics=("perplexity",),
    )


def ulmfit() -> Recipe:
    """ULMFiT (Howard & Ruder 2018): an AWD-LSTM language model of your own general text, `data.train=FILE`.

    `regard train classify from=runs/ulmfit data.train=FILE` then goes through the further stages of ULMFiT, with the
    settings in `plan.finetune`: it tunes the language model on the texts, then trains the classifier.
    """
    base = awd_lstm()
    return replace(
        base,
        name="ulmfit",
        title="a language model of your own text, for classifiers that start from it (ULMFiT)",
        data=Book(tokens="bpe", vocab=16_000, window=70, order="contiguous", spread=0.07),
        model=replace(
            base.model, dropout=0.1, input_dropout=0.25, hidden_dropout=0.15, embedding_dropout=0.02, weight_drop=0.2
        ),
        plan=Plan(
            steps=10_000,
            batch_tokens=80 * 70,
            rate=2e-3,
            betas=(0.8, 0.99),
            schedule="triangular",
            decay=0.01,
            clip=0.25,
            evaluate=500,
            finetune=(
                *("plan.tune_lm=10", "plan.rate=0.004", "plan.schedule=triangular", f"plan.layer_decay={1 / 2.6:.4f}"),
                *("plan.unfreeze=epoch", "plan.epochs=10", "plan.evaluate=100", "plan.patience=0"),
                *("plan.betas=0.7,0.99", "head.pool=concat", "head.hidden=relu", "head.inner=50", "head.bias=true"),
            ),
        ),
    )
