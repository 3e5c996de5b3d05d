"""Small experiments that explain ideas: one module per topic of `regard explain`, each with a function `run`."""

from regard.explain import options
from regard.explain.options import Options
from regard.explain.topic import Result, Topic

__all__ = ["TOPICS", "Options", "Result", "Topic"]

ATTENTION, TRANSFORMER, COMPARISON = "Attention", "The Transformer", "Comparison with other layers"  # groups
RECURRENT, WORDS = "Recurrent encoder–decoders", "Words and their contexts"

TOPICS: dict[str, Topic] = {
    "attention": Topic(
        "attention",
        ATTENTION,
        options.AttentionOptions(),
        "ten seconds",
        (
            *("", "layer=1 head=2 -o attention.html", 'runs/shakespeare "to be or not to be" word=3'),
            *("decoder=bahdanau", "decoder=luong score=general", 'runs/dates "3 mai 2021" word=5'),
        ),
        "attention.md",
        (
            *("attention", "query", "key", "value", "score", "softmax", "weights", "head", "width"),
            *("residual connection", "layer norm", "feed-forward layer"),
        ),
    ),
    "scores": Topic(
        "scores",
        ATTENTION,
        options.ScoresOptions(),
        "a second",
        ("", "keys=8 -o scores.html"),
        "scores.md",
        ("query", "key", "score", "logits", "softmax", "weights", "width"),
    ),
    "scaling": Topic(
        "scaling",
        ATTENTION,
        options.ScalingOptions(),
        "two seconds",
        ("", "keys=512 -o scaling.html"),
        "scaling.md",
        ("query", "key", "logits", "softmax", "weights", "width", "spread", "entropy", "nats", "gradient"),
    ),
    "masking": Topic(
        "masking",
        ATTENTION,
        options.MaskingOptions(),
        "less than a minute",
        ("", "steps=1000 -o masking.html"),
        "masking.md",
        ("mask", "causal", "loss", "entropy", "nats", "attention ahead", "grammatical", "chance", "weights"),
    ),
    "heads": Topic(
        "heads",
        ATTENTION,
        options.HeadsOptions(),
        "about twenty seconds",
        ("-o heads.html", 'runs/shakespeare "to be or not to be"', "models/bert-base-uncased -o heads.html"),
        "attention.md#what-heads-attend-to",
        ("head", "weights", "entropy", "nats", "uniform attention", "chance", "encoder", "causal"),
    ),
    "positions": Topic(
        "positions",
        TRANSFORMER,
        options.PositionsOptions(),
        "less than a minute",
        ("", "length=32 steps=1000 -o positions.html"),
        "positions.md",
        ("positions", "encoder", "state", "attention", "chance", "score"),
    ),
    "residuals": Topic(
        "residuals",
        TRANSFORMER,
        options.ResidualsOptions(),
        "less than a minute",
        ("", "steps=1000 -o residuals.html"),
        "residuals.md",
        ("residual connection", "positions", "state", "head", "weights", "linear probe", "R²", "loss", "chance"),
    ),
    "bottleneck": Topic(
        "bottleneck",
        RECURRENT,
        options.BottleneckOptions(),
        "about half a minute",
        ("", "width=32 steps=1000 -o bottleneck.html"),
        "bottleneck.md",
        ("attention", "encoder", "decoder", "state", "width", "chance"),
    ),
    "forcing": Topic(
        "forcing",
        RECURRENT,
        options.ForcingOptions(),
        "about a minute",
        ("", "seeds=1 steps=300 -o forcing.html", "runs/multi30k-1,runs/multi30k-2,runs/multi30k-3"),
        "teacher-forcing.md#exposure-bias-measured",
        ("teacher forcing", "exposure bias", "decoder", "token", "chance"),
    ),
    "layers": Topic(
        "layers",
        COMPARISON,
        options.LayersOptions(),
        "about ten seconds, on one thread",
        ("", "length=16384 window=64", "length=512 width=512 -o layers.html"),
        "layers.md",
        ("self-attention", "path", "operations", "width", "gradient"),
    ),
    "gradients": Topic(
        "gradients",
        COMPARISON,
        options.GradientsOptions(),
        "15 to 30 seconds",
        ("", "length=80 steps=1000 -o gradients.html"),
        "gradients.md",
        ("gradient", "path", "recall", "chance", "logits", "attention"),
    ),
    "receptive": Topic(
        "receptive",
        COMPARISON,
        options.ReceptiveOptions(),
        "about fifteen seconds",
        ("", "2 4 steps=0", "kernel=3 layers=3 steps=1000 -o receptive.html"),
        "receptive.md",
        ("receptive field", "dilation", "gradient", "chance", "loss"),
    ),
    "filters": Topic(
        "filters",
        COMPARISON,
        options.FiltersOptions(),
        "about half a minute",
        ("-o filters.html", 'runs/scenes,runs/kim,runs/gpt "a line of text" -o filters.html'),
        "filters.md",
        ("filter", "head", "weights", "key", "entropy", "nats", "chance"),
    ),
    "ngrams": Topic(
        "ngrams",
        WORDS,
        options.NgramsOptions(),
        "about ten seconds",
        ("", "book.txt words=12 -o ngrams.html"),
        "bigram.md#beside-an-lstm",
        ("perplexity", "parameters", "chance", "token", "state"),
    ),
    "senses": Topic(
        "senses",
        WORDS,
        options.SensesOptions(),
        "about a minute",
        ("", "steps=800 -o senses.html", "runs/lm,runs/masked", "models/bert-base-uncased,models/gpt2 -o senses.html"),
        "senses.md",
        ("state", "token", "chance", "causal", "width"),
    ),
}
