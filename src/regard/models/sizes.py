"""The published models by name, with the settings of their papers or public checkpoints.

>>> from regard.models import SIZES
>>> SIZES["bert-base"].layers, SIZES["bert-base"].width, SIZES["bert-base"].heads
(12, 768, 12)
"""

from __future__ import annotations

from dataclasses import replace

from regard.models.bert import BertConfig
from regard.models.convs2s import ConvS2sConfig
from regard.models.gnmt import GnmtConfig
from regard.models.gpt import GptConfig
from regard.models.transformer import TransformerConfig

# Vaswani et al. 2017, table 3; norms after each residual sum.
BASE = TransformerConfig(
    width=512, heads=8, layers=6, inner=2048, norm_place="post", shared="all", dropout=0.1, context=1024
)

# Wu et al. 2016, §8.2 to 8.4: 8 layers of 1024 units, 32,000 word pieces.
GNMT = GnmtConfig(source_vocab=32000, target_vocab=32000, width=1024, embed=1024, layers=8, capacity=1024, dropout=0.2)

# Gehring et al. 2017, §5.1, English to German, as in the authors' public configuration (fconv_wmt_en_de). Its decoder
# projects its output to 512 numbers, this one to the width of the embeddings.
CONVS2S = ConvS2sConfig(
    source_vocab=40000,
    target_vocab=40000,
    width=768,
    layers=15,
    channels=(*(512,) * 9, *(1024,) * 4, 2048),
    kernels=(*(3,) * 13, 1),
    context=1024,
    dropout=0.1,
)

# Radford et al. 2018, §4.1; 2019, table 2; Brown et al. 2020, table 2.1.
GPT = GptConfig(
    vocab=40478, width=768, heads=12, layers=12, inner=3072, activation="gelu-tanh", norm_place="post", context=512
)
GPT2 = replace(GPT, vocab=50257, norm_place="pre", context=1024)
GPT3 = replace(GPT2, context=2048, windows=(0, 128))

# Dai et al. 2019, table 1, the large model as published; clusters as in Baevski & Auli 2019, §4.
XL = GptConfig(
    vocab=267735,
    width=1024,
    heads=16,
    head_width=64,
    layers=18,
    inner=4096,
    activation="relu",
    norm_place="post",
    attention_bias=False,
    positions="xl",
    windows=(1599,),
    feed_dropout=0.1,
    output_dropout=0.1,
    scaled=True,
    memory=1600,
    clamp=1000,
    softmax="adaptive",
    cutoffs=(20000, 40000, 200000),
    divide=4,
    projections=(0,),
)

# Devlin et al. 2019, §3; Liu et al. 2019; Lan et al. 2020, table 1; Clark et al. 2020, table 6; Sanh et al. 2019.
BERT = BertConfig(
    vocab=30522, width=768, heads=12, layers=12, inner=3072, outputs=("masked", "pooled", "next"), attention_dropout=0.1
)
ROBERTA = replace(BERT, vocab=50265, segments=1, epsilon=1e-5, first_position=2, outputs=("masked",))
ALBERT = replace(BERT, vocab=30000, embed=128, groups=1, activation="gelu-tanh", dropout=0.0, attention_dropout=0.0)
ELECTRA = replace(BERT, embed=128, width=256, heads=4, inner=1024, outputs=("replaced",))

# Raffel et al. 2020, §3.1.1 (v1.0), and the later models with gated feed-forward layers (v1.1).
T5 = TransformerConfig(
    source_vocab=32128,
    target_vocab=32128,
    width=512,
    heads=8,
    head_width=64,
    layers=6,
    inner=2048,
    activation="relu",
    norm="rms",
    epsilon=1e-6,
    attention_bias=False,
    feed_bias=False,
    score="dot",
    positions="t5",
    shared="all",
    scaled=False,
    readout_scale=0.0,
)
T5_V11 = replace(
    T5, activation="gelu-tanh", gated=True, inner=1024, heads=6, layers=8, shared="sides", readout_scale=1.0
)

SIZES: dict[str, GnmtConfig | ConvS2sConfig | TransformerConfig | GptConfig | BertConfig] = {
    "gnmt-8": GNMT,
    "convs2s-en-de": CONVS2S,
    "transformer-base": BASE,
    "transformer-big": replace(BASE, width=1024, heads=16, inner=4096, dropout=0.3),
    "marian-base": replace(
        BASE, positions="sinusoidal-halves", activation="silu", readout_bias=True, context=512, epsilon=1e-5
    ),
    "gpt1": GPT,
    "gpt2": GPT2,
    "gpt2-medium": replace(GPT2, width=1024, heads=16, layers=24, inner=4096),
    "gpt2-large": replace(GPT2, width=1280, heads=20, layers=36, inner=5120),
    "gpt2-xl": replace(GPT2, width=1600, heads=25, layers=48, inner=6400),
    "gpt3-small": GPT3,
    "gpt3": replace(GPT3, width=12288, heads=96, layers=96, inner=49152),
    "transformer-xl-large": XL,
    "bert-base": BERT,
    "bert-large": replace(BERT, width=1024, heads=16, layers=24, inner=4096),
    "distilbert-base": replace(BERT, layers=6, segments=0, outputs=("masked",)),
    "roberta-base": ROBERTA,
    "roberta-large": replace(ROBERTA, width=1024, heads=16, layers=24, inner=4096),
    "xlm-roberta-base": replace(ROBERTA, vocab=250002),
    "albert-base": ALBERT,
    "albert-xxlarge": replace(ALBERT, width=4096, heads=64, inner=16384),
    "electra-small": ELECTRA,
    "electra-base": replace(ELECTRA, embed=0, width=768, heads=12, inner=3072),
    "t5-small": T5,
    "t5-base": replace(T5, width=768, heads=12, layers=12, inner=3072),
    "t5-large": replace(T5, width=1024, heads=16, layers=24, inner=4096),
    "t5-v1.1-small": T5_V11,
    "t5-v1.1-base": replace(T5_V11, width=768, heads=12, layers=12, inner=2048),
}
