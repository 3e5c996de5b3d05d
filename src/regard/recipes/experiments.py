"""Recipes: one function per experiment, and the table of their names."""

from collections.abc import Callable
from dataclasses import replace

from regard.data.dates import Dates
from regard.data.flickr8k import Flickr8k
from regard.data.labelled import Labelled, MultiLabelled, Rated
from regard.data.running_corpora import Hello, Ptb, PtbChar, Text8, WikiText103
from regard.data.scenes import Scenes
from regard.data.sounds import Sounds
from regard.data.sources import GreekEnglish, Lines, Multi30k, Pairs, Wmt14
from regard.data.streams import Shakespeare
from regard.models import (
    SIZES,
    BertConfig,
    BigramConfig,
    CaptionerConfig,
    ConvS2sConfig,
    GnmtConfig,
    GptConfig,
    KimConfig,
    LstmnConfig,
    RecurrentLmConfig,
    Seq2SeqConfig,
    StructuredConfig,
    TransformerConfig,
)
from regard.objectives import (
    BinaryAnswers,
    Captioning,
    Classification,
    Counting,
    MaskedTokens,
    Regression,
    TeacherForcing,
)
from regard.recipes.recipe import Plan, Recipe, without_vocabularies
from regard.recipes.sequences import (
    adding,
    clip_captions,
    clips,
    copy,
    jsb,
    nottingham,
    permuted_mnist,
    sequential_mnist,
)

# -- Without files of your own ----------------------------------------------------------------------------------------


def dates() -> Recipe:
    """Dates written in many languages → ISO 8601, in a minute on a CPU."""
    return Recipe(
        name="dates",
        title="dates in 24 languages to ISO 8601",
        data=Dates(),
        model=Seq2SeqConfig(width=128, embed=64, decoder="luong", capacity=64, dropout=0.0),
        objective=TeacherForcing(),
        plan=Plan(
            steps=450,
            batch_tokens=2048,
            rate=4e-3,
            schedule="linear",
            warmup=50,
            decay=0.0,
            evaluate=150,
            samples=300,
            select="exact",
        ),
        metrics=("exact", "alignment"),
    )


def sounds() -> Recipe:
    """Letters → phonemes: the pronunciation of English words (CMU dictionary)."""
    return Recipe(
        name="sounds",
        title="English spelling to phonemes (CMUdict, without stress)",
        data=Sounds(),
        model=Seq2SeqConfig(width=512, embed=256, layers=2, capacity=64, dropout=0.3),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(
            steps=8000, batch_tokens=8192, rate=1e-3, warmup=400, evaluate=500, samples=2000, select="word_error"
        ),
        metrics=("word_error", "phoneme_error"),
    )


# -- Translation ------------------------------------------------------------------------------------------------------


def translate() -> Recipe:
    """Your own pairs: `data.train=pairs.tsv`, or two parallel files `data.train=src.txt,tgt.txt`.

    A table has the columns `data.source` and `data.target`. `model=transformer` trains a Transformer instead.
    """
    return Recipe(
        name="translate",
        title="pairs of your own",
        data=Pairs(),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.2),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=10_000, batch_tokens=4096, rate=1e-3, warmup=500, evaluate=500, patience=5),
        metrics=("bleu", "exact"),
    )


def multi30k() -> Recipe:
    """English → German captions of pictures (Multi30k), with a small Transformer (Vaswani et al. 2017).

    29,000 pairs are few: the dropout is high, and the source, the target and the output layer share one embedding.
    """
    return Recipe(
        name="multi30k",
        title="English to German captions (Multi30k)",
        data=Multi30k(source="en", target="de", vocab=8000, joint=True),
        model=TransformerConfig(
            width=256,
            heads=4,
            layers=3,
            inner=1024,
            shared="all",
            context=256,
            dropout=0.35,
            attention_dropout=0.1,
            feed_dropout=0.2,
        ),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(
            steps=5000,
            batch_tokens=8192,
            rate=1e-3,
            schedule="cosine",
            warmup=1000,
            betas=(0.9, 0.98),
            epsilon=1e-9,
            decay=0.0,
            evaluate=500,
            samples=1014,
            select="bleu",
        ),
        metrics=("bleu",),
    )


def wmt14() -> Recipe:
    """English → German news (WMT 14), the base Transformer of Vaswani et al. 2017, section 5.

    `data.target=fr data.vocab=32000` translates to French.
    """
    return Recipe(
        name="wmt14",
        title="English to German news (WMT 14), Transformer base",
        data=Wmt14(),
        model=without_vocabularies(SIZES["transformer-base"]),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(
            steps=100_000,
            batch_tokens=25_000,
            rate=1.0,  # a factor: the rate has a maximum of 7e-4
            schedule="noam",
            warmup=4000,
            optimizer="adam",
            betas=(0.9, 0.98),
            epsilon=1e-9,
            clip=0.0,
            evaluate=5000,
            samples=3000,
            keep=5,  # the last checkpoints are averaged
            log=100,
            select="bleu",
        ),
        metrics=("bleu",),
    )


def wmt14_big() -> Recipe:
    """English → German news (WMT 14), the big Transformer of Vaswani et al. 2017, section 5."""
    base = wmt14()
    return replace(
        base,
        name="wmt14-big",
        title="English to German news (WMT 14), Transformer big",
        model=without_vocabularies(SIZES["transformer-big"]),
        plan=replace(base.plan, steps=300_000, keep=20),
    )


def multi30k_de_en() -> Recipe:
    """German → English captions of pictures (Multi30k), with the model of Bahdanau et al. 2015."""
    return Recipe(
        name="multi30k-de-en",
        title="German to English captions (Multi30k)",
        data=Multi30k(source="de", target="en", vocab=4000),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.5),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=6000, batch_tokens=4096, rate=1e-3, warmup=500, evaluate=500, samples=1014, select="bleu"),
        metrics=("bleu",),
    )


def multi30k_gnmt() -> Recipe:
    """English → German captions of pictures (Multi30k), with deep residual LSTMs: a small GNMT (Wu et al. 2016)."""
    base = multi30k()
    return replace(
        base,
        name="multi30k-gnmt",
        title="English to German captions (Multi30k), GNMT",
        model=GnmtConfig(width=256, embed=128, layers=4, dropout=0.3),
        plan=replace(base.plan, warmup=500, betas=(0.9, 0.999), epsilon=1e-8, decay=0.01),
    )


def multi30k_convs2s() -> Recipe:
    """English → German captions of pictures (Multi30k), with convolutions: a small ConvS2S (Gehring et al. 2017)."""
    base = multi30k()
    return replace(
        base,
        name="multi30k-convs2s",
        title="English to German captions (Multi30k), ConvS2S",
        model=ConvS2sConfig(width=256, layers=4, channels=(256,), dropout=0.3),
        plan=replace(base.plan, epsilon=1e-8),
    )


def greek() -> Recipe:
    """Greek → English New Testament; its attention is compared with an alignment made by hand."""
    return Recipe(
        name="greek",
        title="Greek to English New Testament, aligned by hand",
        data=GreekEnglish(),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.3),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=4000, batch_tokens=8192, rate=1e-3, warmup=300, evaluate=400, select="aer"),
        metrics=("bleu", "aer", "alignment"),
    )


# -- Your own text ----------------------------------------------------------------------------------------------------


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


def masked() -> Recipe:
    """A masked language model of your own lines, BERT (Devlin et al. 2019): `data.train=FILE`."""
    return Recipe(
        name="masked",
        title="fill in the gaps of your own text",
        data=Lines(tokens="bpe"),
        model=BertConfig(segments=0, context=256),
        objective=MaskedTokens(),
        plan=Plan(steps=10_000, batch_tokens=8192, rate=5e-4, warmup=500, schedule="linear", evaluate=500),
        metrics=("perplexity",),
    )


def classify() -> Recipe:
    """A classifier of your own texts that shows its attention weights (Lin et al. 2017): `data.train=FILE`.

    The file is a table with the columns `data.text` and `data.label`, or has label<TAB>text on each line. `model=kim`
    trains Kim's convolutional network instead, and `model=bert` or `model=gpt` a Transformer; `from=DIR` starts from a
    model that was trained on other text. `objective.class_weights=balanced` gives rare classes more weight.
    """
    return Recipe(
        name="classify",
        title="a classifier of your own texts",
        data=Labelled(),
        model=StructuredConfig(),
        objective=Classification(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5, select="accuracy"),
        metrics=("accuracy",),
    )


def multilabel() -> Recipe:
    """A classifier that gives each of your own texts any number of labels: `data.train=FILE`.

    The file is a table with the columns `data.text` and `data.labels`, or has labels<TAB>text on each line. A cell has
    the labels of its text, separated by |, as in "sport|politics". `head.threshold` is the probability from which a
    label is given.
    """
    return Recipe(
        name="multilabel",
        title="several labels for each of your own texts",
        data=MultiLabelled(),
        model=KimConfig(),
        objective=BinaryAnswers(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5, select="f1_micro"),
        metrics=("f1_micro", "f1_macro"),
    )


def rate() -> Recipe:
    """A number for each of your own texts, such as a rating: `data.train=FILE`.

    The file is a table with the columns `data.text` and `data.number`, or has number<TAB>text on each line.
    """
    return Recipe(
        name="rate",
        title="a number for each of your own texts (regression)",
        data=Rated(),
        model=KimConfig(),
        objective=Regression(),
        plan=Plan(steps=2000, batch_tokens=4096, rate=1e-3, evaluate=200, patience=5),
        metrics=("mse", "pearson", "spearman"),
    )


# -- Captions of images -----------------------------------------------------------------------------------------------


def scenes() -> Recipe:
    """Captions of drawn scenes, with attention over the image: some minutes on a CPU, without a download.

    The decoder is Bahdanau's. `model.decoder=attend` is Show, Attend and Tell (Xu et al. 2015); `model.decoder=once` is
    Show and Tell, without attention (Vinyals et al. 2015). `model.attention=hard objective=hard` reads one cell at each
    word.
    """
    return Recipe(
        name="scenes",
        title="captions of drawn scenes",
        data=Scenes(),
        model=CaptionerConfig(width=128, embed=64, decoder="bahdanau", dropout=0.0),
        objective=Captioning(doubly=0.0),
        plan=Plan(
            steps=2500,
            batch_tokens=64 * 24,
            rate=2e-3,
            schedule="linear",
            warmup=100,
            decay=0.0,
            evaluate=250,
            samples=300,
            select="exact",
        ),
        metrics=("exact", "pointing", "bleu4", "cider"),
    )


def flickr8k() -> Recipe:
    """Captions of photographs (Flickr8k), with attention over the features of a frozen EfficientNet-Lite0.

    The soft attention of Xu et al. (2015): an additive score, a gate, the doubly stochastic term. `--beam 3` of `eval`
    and `caption` finds better captions than greedy decoding, by which the best step is chosen.
    """
    return Recipe(
        name="flickr8k",
        title="captions of photographs (Flickr8k)",
        data=Flickr8k(),
        model=CaptionerConfig(encoder="features", width=512, embed=256, decoder="attend", dropout=0.5),
        objective=Captioning(smoothing=0.1),
        plan=Plan(
            steps=6000, batch_tokens=4096, rate=5e-4, warmup=200, evaluate=500, samples=1000, patience=4, select="bleu4"
        ),
        metrics=("bleu4", "cider"),
    )


# -- Language models of characters ------------------------------------------------------------------------------------


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


# -- Recurrent language models of public text -------------------------------------------------------------------------


def hello() -> Recipe:
    """The word "hello": a recurrent network of three units reads h, e, l, l and predicts e, l, l, o, in seconds.

    At the end, every state and every probability is printed (Karpathy 2015).
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
    """The Penn Treebank by words: an LSTM of 13 million parameters with tied weights (Zaremba et al. 2014)."""
    return Recipe(
        name="ptb",
        title="the Penn Treebank by words, an LSTM",
        data=Ptb(window=35),
        model=RecurrentLmConfig(width=650, embed=650, layers=2, tied=True, dropout=0.5),
        objective=TeacherForcing(),
        plan=Plan(
            steps=53_000,  # 40 epochs
            batch_tokens=20 * 35,
            optimizer="sgd",
            rate=2.0,
            schedule="linear",
            warmup=500,
            decay=0.0,
            clip=0.25,
            evaluate=1325,
        ),
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
        model=RecurrentLmConfig(width=600, embed=128, layers=2, dropout=0.2),
        plan=Plan(steps=20_000, batch_tokens=32 * 150, rate=2e-3, warmup=500, decay=1e-6, clip=0.25, evaluate=1000),
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
            width=1024,
            embed=1024,
            layers=2,
            tied=True,
            dropout=0.2,
            softmax="adaptive",
            cutoffs=(20_000, 100_000),
            divide=4,
        ),
        plan=Plan(steps=200_000, batch_tokens=64 * 140, warmup=2000, decay=0.0, clip=0.25, evaluate=5000),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    "dates": dates,
    "sounds": sounds,
    "translate": translate,
    "multi30k": multi30k,
    "multi30k-de-en": multi30k_de_en,
    "multi30k-gnmt": multi30k_gnmt,
    "multi30k-convs2s": multi30k_convs2s,
    "wmt14": wmt14,
    "wmt14-big": wmt14_big,
    "greek": greek,
    "text": text,
    "bigram": bigram,
    "shakespeare": shakespeare,
    "shakespeare-cpu": shakespeare_cpu,
    "masked": masked,
    "classify": classify,
    "scenes": scenes,
    "flickr8k": flickr8k,
    "multilabel": multilabel,
    "rate": rate,
    "adding": adding,
    "copy": copy,
    "smnist": sequential_mnist,
    "pmnist": permuted_mnist,
    "jsb": jsb,
    "nottingham": nottingham,
    "clips": clips,
    "clip-captions": clip_captions,
    "hello": hello,
    "ptb": ptb,
    "ptb-char": ptb_char,
    "text8": text8,
    "wikitext103": wikitext103,
}
