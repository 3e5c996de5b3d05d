"""One file per family, one literal table."""

from regard.models.lstmn import Lstmn, LstmnConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.structured import Structured, StructuredConfig

ModelConfig = Seq2SeqConfig | LstmnConfig | StructuredConfig
Model = Seq2Seq | Lstmn | Structured
MODELS: dict[str, type[ModelConfig]] = {"seq2seq": Seq2SeqConfig, "lstmn": LstmnConfig, "structured": StructuredConfig}

__all__ = [
    "MODELS",
    "Lstmn",
    "LstmnConfig",
    "Model",
    "ModelConfig",
    "Seq2Seq",
    "Seq2SeqConfig",
    "Structured",
    "StructuredConfig",
]
