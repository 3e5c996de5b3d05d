"""Every type of public checkpoint that is read and written here, by the name its config.json has for it."""

from dataclasses import fields, replace

from regard.config import format_value
from regard.errors import UserError
from regard.layers.transformer import Shape
from regard.models import MODELS, ModelConfig, TransformerConfig
from regard.pretrained.albert import ALBERT
from regard.pretrained.bert import BERT, DISTILBERT, ELECTRA
from regard.pretrained.gpt2 import GPT2
from regard.pretrained.marian import MARIAN, PEGASUS
from regard.pretrained.openai_gpt import OPENAI_GPT
from regard.pretrained.public import Public
from regard.pretrained.roberta import ROBERTA, XLM_ROBERTA
from regard.pretrained.t5 import T5
from regard.pretrained.transfo_xl import TRANSFO_XL

PUBLIC: dict[str, Public] = {
    "gpt2": GPT2,
    "openai-gpt": OPENAI_GPT,
    "transfo-xl": TRANSFO_XL,
    "t5": T5,
    "marian": MARIAN,
    "pegasus": PEGASUS,
    "bert": BERT,
    "distilbert": DISTILBERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "albert": ALBERT,
    "electra": ELECTRA,
}


def lost(kind: str, config: ModelConfig) -> list[str]:
    """What of a model a type cannot hold: the settings, as they are, that would be read back as others."""
    whole = spelt_out(config)
    try:
        back = spelt_out(PUBLIC[kind].back(whole))
    except UserError:  # settings that go together only with positions that the type does not have
        return [f"positions={getattr(whole, 'positions', None)}"]
    names = (one.name for one in fields(config) if getattr(whole, one.name) != getattr(back, one.name))
    return [f"{name}={format_value(getattr(config, name))}" for name in names]


def spelt_out(config: ModelConfig) -> ModelConfig:
    """The settings as far as they make a network: those left open spelt out, those that say nothing all alike."""
    if not isinstance(config, Shape):
        return config
    sides = (config, config.decoder) if isinstance(config, TransformerConfig) else (config,)
    even = all(side.heads * side.head == side.width for side in sides)
    plain = replace(config, head_width=0 if even else config.head, dropout=0.0, attention_dropout=0.0, feed_dropout=0.0)
    if plain.positions not in ("t5", "relative"):
        plain = replace(plain, furthest=128, buckets=32)
    if plain.longest is None:
        plain = replace(plain, context=512)
    if isinstance(plain, TransformerConfig):
        other = plain.decoder
        plain = replace(plain, decoder_layers=other.layers, decoder_heads=other.heads, decoder_inner=other.inner)
    return plain


def type_of(config: ModelConfig) -> str:
    """The type that a model can be written as: the first that reads back as the same model."""
    differences: dict[str, list[str]] = {}
    for kind, public in PUBLIC.items():
        if type(config) is public.config:
            differences[kind] = lost(kind, config)
            if not differences[kind]:
                return kind
    if not differences:
        name = next((name for name, kind in MODELS.items() if kind is type(config)), type(config).__name__)
        raise UserError(
            f"model={name}: no public type of checkpoint has such a model; only Transformers can be exported"
        )
    nearest = min(differences, key=lambda kind: len(differences[kind]))
    lacking = ", ".join(f"model.{setting}" for setting in differences[nearest])
    raise UserError(f"no public type has this model: {nearest}, the nearest, has no {lacking}; train one without")
