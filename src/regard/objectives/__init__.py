"""Objectives: what training minimises. A model does not compute its own loss."""

from regard.objectives.captioning import Captioning, HardAttention
from regard.objectives.classify import BinaryAnswers, Classification, Recall, Regression, SpanAnswers
from regard.objectives.context import ContextSampling
from regard.objectives.contrastive import Contrastive
from regard.objectives.counting import Counting
from regard.objectives.glove import GloveSquares
from regard.objectives.guided import GuidedAlignment
from regard.objectives.masked import MaskedTokens
from regard.objectives.objective import LossModule, Objective
from regard.objectives.professor import ProfessorForcing
from regard.objectives.replaced import ReplacedTokens
from regard.objectives.sequence import Exposure, RegularisedActivations, TeacherForcing, exposure
from regard.objectives.spans import SpanCorruption
from regard.objectives.word_pairs import HierarchicalSoftmax, NegativeSampling

# The names of objectives in settings and in recipe.json.
OBJECTIVES: dict[str, type[Objective]] = {
    "teacher": TeacherForcing,
    "regularised": RegularisedActivations,
    "counts": Counting,
    "professor": ProfessorForcing,
    "guided": GuidedAlignment,
    "masked": MaskedTokens,
    "replaced": ReplacedTokens,
    "spans": SpanCorruption,
    "classify": Classification,
    "regression": Regression,
    "binary": BinaryAnswers,
    "recall": Recall,
    "answer": SpanAnswers,
    "contrastive": Contrastive,
    "captioning": Captioning,
    "hard": HardAttention,
    "context": ContextSampling,
    "negative": NegativeSampling,
    "hierarchical": HierarchicalSoftmax,
    "glove": GloveSquares,
}

# fmt: off
__all__ = [
    "OBJECTIVES", "BinaryAnswers", "Captioning", "Classification", "ContextSampling", "Contrastive", "Counting",
    "Exposure", "GloveSquares", "GuidedAlignment", "HardAttention", "HierarchicalSoftmax", "LossModule", "MaskedTokens",
    "NegativeSampling", "Objective", "ProfessorForcing", "Recall", "Regression", "RegularisedActivations",
    "ReplacedTokens", "SpanAnswers", "SpanCorruption", "TeacherForcing", "exposure",
]
# fmt: on
