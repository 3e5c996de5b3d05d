"""Published results on the same data, each with how it was computed."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.data.sources import Multi30k
from regard.recipes import Recipe


@dataclass(frozen=True)
class Published:
    """A column of published results by rung."""

    measure: str  # the name of the metric
    figures: Mapping[str, float]
    note: str  # the data, the model and the source


MULTI30K = {
    ("en", "de"): Published(
        "tokenised BPE BLEU",
        {"additive": 38.0, "transformer sinusoidal": 41.0},
        "Published, test2016: tokenised BPE BLEU, which is not sacreBLEU. About 38 for recurrent networks "
        "with attention; 41.0 for Transformer-Tiny, 4 layers of width 128 (Wu et al. 2021).",
    ),
    ("de", "en"): Published(
        "tutorial's own BLEU",
        {"no attention": 20.6, "additive": 28.3, "transformer learned": 36.5},
        "Published, test2016: a tutorial series, ten epochs each, a BLEU of its own, which is not sacreBLEU. GRU 20.6 "
        "(LSTM 13.8), GRU with additive attention 28.3, Transformer of 9M parameters 36.5.",
    ),
}


def published(recipe: Recipe) -> Published | None:
    """The published results for the data of a recipe; None if there are none that can be compared."""
    data = recipe.data
    return MULTI30K.get((data.source, data.target)) if isinstance(data, Multi30k) else None
