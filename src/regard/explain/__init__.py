"""Small experiments that explain ideas: one module per topic of `regard explain`, each with a function `run`."""

from regard.explain import options
from regard.explain.options import Options
from regard.explain.topic import Result, Topic

__all__ = ["TOPICS", "Options", "Result", "Topic"]

ATTENTION, TRANSFORMER, COMPARISON = "Attention", "The Transformer", "Comparison with other layers"  # groups

TOPICS: dict[str, Topic] = {
    "attention": Topic(
        "attention",
        ATTENTION,
        options.AttentionOptions(),
        "ten seconds",
        ("", "layer=1 head=2 -o attention.html", 'runs/shakespeare "to be or not to be" word=3'),
    ),
    "scores": Topic("scores", ATTENTION, options.ScoresOptions(), "a second", ("", "keys=8 -o scores.html")),
    "scaling": Topic("scaling", ATTENTION, options.ScalingOptions(), "two seconds", ("", "keys=512 -o scaling.html")),
    "masking": Topic(
        "masking", ATTENTION, options.MaskingOptions(), "less than a minute", ("", "steps=1000 -o masking.html")
    ),
    "heads": Topic(
        "heads",
        ATTENTION,
        options.HeadsOptions(),
        "about twenty seconds",
        ("-o heads.html", 'runs/shakespeare "to be or not to be"', "models/bert-base-uncased -o heads.html"),
    ),
    "positions": Topic(
        "positions",
        TRANSFORMER,
        options.PositionsOptions(),
        "less than a minute",
        ("", "length=32 steps=1000 -o positions.html"),
    ),
    "residuals": Topic(
        "residuals", TRANSFORMER, options.ResidualsOptions(), "less than a minute", ("", "steps=1000 -o residuals.html")
    ),
    "layers": Topic(
        "layers",
        COMPARISON,
        options.LayersOptions(),
        "about ten seconds, on one thread",
        ("", "length=16384 window=64", "length=512 width=512 -o layers.html"),
    ),
    "gradients": Topic(
        "gradients",
        COMPARISON,
        options.GradientsOptions(),
        "15 to 30 seconds",
        ("", "length=80 steps=1000 -o gradients.html"),
    ),
}
