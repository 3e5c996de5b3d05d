"""Objectives: what training minimises. A model does not compute its own loss."""

from regard.objectives.captioning import Captioning, HardAttention
from regard.objectives.classify import Classification, Recall
from regard.objectives.context import ContextSampling
from regard.objectives.counting import Counting
from regard.objectives.glove import GloveSquares
from regard.objectives.guided import GuidedAlignment
from regard.objectives.masked import MaskedTokens
from regard.objectives.numbers import BinaryAnswers, Regression
from regard.objectives.objective import LossModule, Objective
from regard.objectives.professor import ProfessorForcing
from regard.objectives.regularised import RegularisedActivations
from regard.objectives.replaced import ReplacedTokens
from regard.objectives.sequence import Exposure, TeacherForcing, exposure
from regard.objectives.spans import SpanCorruption
from regard.objectives.word_pairs import HierarchicalSoftmax, NegativeSampling

__all__ = [
    "BinaryAnswers",
    "Captioning",
    "Classification",
    "ContextSampling",
    "Counting",
    "Exposure",
    "GloveSquares",
    "GuidedAlignment",
    "HardAttention",
    "HierarchicalSoftmax",
    "LossModule",
    "MaskedTokens",
    "NegativeSampling",
    "Objective",
    "ProfessorForcing",
    "Recall",
    "Regression",
    "RegularisedActivations",
    "ReplacedTokens",
    "SpanCorruption",
    "TeacherForcing",
    "exposure",
]
