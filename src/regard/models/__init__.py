"""The model families, one file each; the table MODELS of their configs; and SIZES, the published models by name."""

from dataclasses import replace

from regard.models.bert import Bert, BertConfig
from regard.models.bigram import Bigram, BigramConfig
from regard.models.bilstm import BiLstm, BiLstmConfig
from regard.models.captioner import Captioner, CaptionerConfig
from regard.models.context2vec import Context2vec, Context2vecConfig
from regard.models.convs2s import ConvS2s, ConvS2sConfig
from regard.models.directions import TwoDirections, TwoDirectionsConfig
from regard.models.elmo import Elmo, ElmoConfig
from regard.models.facts import Facts, Model, reads_whole
from regard.models.gnmt import Gnmt, GnmtConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.headed import Headed, HeadedConfig
from regard.models.kim import Kim, KimConfig
from regard.models.lstmn import Lstmn, LstmnConfig
from regard.models.masked_lstm import MaskedLstm, MaskedLstmConfig
from regard.models.recurrent_lm import RecurrentLm, RecurrentLmConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.sizes import SIZES, T5
from regard.models.structured import Structured, StructuredConfig
from regard.models.tcn import Tcn, TcnConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.word_vectors import CbowConfig, GloveConfig, SkipgramConfig, WordVectors, WordVectorsConfig

ModelConfig = Facts  # the config of any model
MODELS: dict[str, type[ModelConfig]] = {
    "seq2seq": Seq2SeqConfig,
    "gnmt": GnmtConfig,
    "convs2s": ConvS2sConfig,
    "bigram": BigramConfig,
    "recurrent": RecurrentLmConfig,
    "elmo": ElmoConfig,
    "tcn": TcnConfig,
    "lstmn": LstmnConfig,
    "structured": StructuredConfig,
    "kim": KimConfig,
    "bilstm": BiLstmConfig,
    "transformer": TransformerConfig,
    "gpt": GptConfig,
    "bert": BertConfig,
    "captioner": CaptionerConfig,
    "context2vec": Context2vecConfig,
    "masked-lstm": MaskedLstmConfig,
    "cbow": CbowConfig,
    "skipgram": SkipgramConfig,
    "glove": GloveConfig,
}
CELLS: dict[str, RecurrentLmConfig] = {  # recurrent language models by the name of their cell
    "rnn": RecurrentLmConfig(cell="rnn"),
    "lstm": RecurrentLmConfig(cell="lstm"),
    "gru": RecurrentLmConfig(cell="gru"),
}
# Families of pre-trained models by the names of their papers, at a size that a laptop trains; SIZES has the published.
FAMILIES: dict[str, BertConfig | GptConfig | TransformerConfig] = {
    "roberta": BertConfig(context=128, segments=1, epsilon=1e-5, first_position=2),
    "albert": BertConfig(
        context=128,
        embed=128,
        groups=1,
        activation="gelu-tanh",
        dropout=0.0,
        outputs=("masked", "pooled", "next"),
    ),
    "electra": BertConfig(context=128, embed=128, outputs=("replaced",)),
    # Without T5's scale of the logits: the embeddings then start small, and AdamW changes them faster for their size.
    "t5": replace(T5, source_vocab=0, target_vocab=0, width=256, heads=4, layers=4, inner=1024, readout_scale=1.0),
    "transformer-xl": GptConfig(positions="xl", memory=128, attention_bias=False),
}

# fmt: off
__all__ = [
    "CELLS", "FAMILIES", "MODELS", "SIZES", "Bert", "BertConfig", "BiLstm", "BiLstmConfig", "Bigram", "BigramConfig",
    "Captioner", "CaptionerConfig", "CbowConfig", "Context2vec", "Context2vecConfig", "ConvS2s", "ConvS2sConfig",
    "Elmo", "ElmoConfig", "Facts", "GloveConfig", "Gnmt", "GnmtConfig", "Gpt", "GptConfig", "Headed", "HeadedConfig",
    "Kim", "KimConfig", "Lstmn", "LstmnConfig", "MaskedLstm", "MaskedLstmConfig", "Model", "ModelConfig", "RecurrentLm",
    "RecurrentLmConfig", "Seq2Seq", "Seq2SeqConfig", "SkipgramConfig", "Structured", "StructuredConfig", "Tcn",
    "TcnConfig", "Transformer", "TransformerConfig", "TwoDirections", "TwoDirectionsConfig", "WordVectors",
    "WordVectorsConfig", "reads_whole",
]
# fmt: on
