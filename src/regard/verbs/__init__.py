"""What a person does with a trained model."""

from regard.verbs.judged import Aligned, Scored, align, aligned, score
from regard.verbs.labelling import Classified, classify
from regard.verbs.loaded import Loaded, load
from regard.verbs.looking import look, view
from regard.verbs.search import Translation, translate

__all__ = [
    "Aligned",
    "Classified",
    "Loaded",
    "Scored",
    "Translation",
    "align",
    "aligned",
    "classify",
    "load",
    "look",
    "score",
    "translate",
    "view",
]
