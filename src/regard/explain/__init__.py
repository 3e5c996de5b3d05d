"""Small experiments that explain ideas: one module per topic of `regard explain`, each with a function `run`."""

from regard.explain.options import (
    AttentionOptions,
    GradientsOptions,
    HeadsOptions,
    LayersOptions,
    MaskingOptions,
    Options,
    PositionsOptions,
    ResidualsOptions,
    ScalingOptions,
)
from regard.explain.topic import Result, Topic

__all__ = ["TOPICS", "Options", "Result", "Topic"]

TOPICS: dict[str, Topic] = {
    "attention": Topic(
        "attention",
        "Attention",
        AttentionOptions(),
        "ten seconds",
        ("", "layer=1 head=2 -o attention.html", 'runs/shakespeare "to be or not to be" word=3'),
    ),
    "scaling": Topic("scaling", "Attention", ScalingOptions(), "two seconds", ("", "keys=512 -o scaling.html")),
    "masking": Topic(
        "masking", "Attention", MaskingOptions(), "less than a minute", ("", "steps=1000 -o masking.html")
    ),
    "heads": Topic(
        "heads",
        "Attention",
        HeadsOptions(),
        "about twenty seconds",
        ("-o heads.html", 'runs/shakespeare "to be or not to be"', "models/bert-base-uncased -o heads.html"),
    ),
    "positions": Topic(
        "positions",
        "The Transformer",
        PositionsOptions(),
        "less than a minute",
        ("", "length=32 steps=1000 -o positions.html"),
    ),
    "residuals": Topic(
        "residuals",
        "The Transformer",
        ResidualsOptions(),
        "less than a minute",
        ("", "steps=1000 -o residuals.html"),
    ),
    "layers": Topic(
        "layers",
        "Comparison with other layers",
        LayersOptions(),
        "about ten seconds, on one thread",
        ("", "length=16384 window=64", "length=512 width=512 -o layers.html"),
    ),
    "gradients": Topic(
        "gradients",
        "Comparison with other layers",
        GradientsOptions(),
        "15 to 30 seconds",
        ("", "length=80 steps=1000 -o gradients.html"),
    ),
}
