"""All types of public checkpoints that can be read and written, by the `model_type` of their config.json."""

from dataclasses import fields, replace

from regard.config import format_value
from regard.errors import UserError
from regard.layers.transformer import Shape
from regard.models import MODELS, ModelConfig, TransformerConfig
from regard.pretrained.albert import ALBERT
from regard.pretrained.bert import BERT, DISTILBERT, ELECTRA
from regard.pretrained.checkpoint_type import CheckpointType, without_outputs
from regard.pretrained.gpt2 import GPT2
from regard.pretrained.marian import MARIAN, PEGASUS
from regard.pretrained.openai_gpt import OPENAI_GPT
from regard.pretrained.roberta import ROBERTA, XLM_ROBERTA
from regard.pretrained.t5 import T5
from regard.pretrained.transfo_xl import TRANSFO_XL

CHECKPOINT_TYPES: dict[str, CheckpointType] = {
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


def unsupported_settings(kind: str, config: ModelConfig) -> list[str]:
    """The settings of a model, as name=value, that a checkpoint of this type cannot hold: they would not read back."""
    (body, head), heads = config.split(), CHECKPOINT_TYPES[kind].heads
    lacking: list[str] = []
    if head is not None:
        body = without_outputs(body)
        lacking = heads[head.predicts].unsupported(head) if head.predicts in heads else [f"head={head.predicts}"]
    canonical = canonical_config(body)
    try:
        read_back = canonical_config(CHECKPOINT_TYPES[kind].round_trip(canonical))
    except UserError:  # the type lacks these positions, and the other settings are invalid without them
        return [f"model.positions={getattr(canonical, 'positions', None)}", *lacking]
    names = (one.name for one in fields(body) if getattr(canonical, one.name) != getattr(read_back, one.name))
    return [*(f"model.{name}={format_value(getattr(body, name))}" for name in names), *lacking]


def canonical_config(config: ModelConfig) -> ModelConfig:
    """The config in a form that can be compared: defaults filled in, settings without effect reset."""
    if not isinstance(config, Shape):
        return config
    sides = (config, config.decoder) if isinstance(config, TransformerConfig) else (config,)
    even = all(side.heads * side.head == side.width for side in sides)
    canonical = replace(
        config,
        head_width=0 if even else config.head,
        dropout=0.0,
        attention_dropout=0.0,
        feed_dropout=0.0,
        embedding="",
    )
    if canonical.positions not in ("t5", "relative"):
        canonical = replace(canonical, furthest=128, buckets=32)
    if canonical.longest is None:
        canonical = replace(canonical, context=512)
    if isinstance(canonical, TransformerConfig):
        decoder = canonical.decoder
        canonical = replace(
            canonical, decoder_layers=decoder.layers, decoder_heads=decoder.heads, decoder_inner=decoder.inner
        )
    return canonical


def find_type(config: ModelConfig) -> str:
    """The type that a model can be written as: the first one that reads back as the same config."""
    body, _ = config.split()
    differences: dict[str, list[str]] = {}
    for kind, checkpoint_type in CHECKPOINT_TYPES.items():
        if type(body) is checkpoint_type.config:
            differences[kind] = unsupported_settings(kind, config)
            if not differences[kind]:
                return kind
    if not differences:
        name = next((name for name, kind in MODELS.items() if kind is type(body)), type(body).__name__)
        raise UserError(f"model={name}: no public checkpoint type has such a model; only Transformers can be exported")
    nearest = min(differences, key=lambda kind: len(differences[kind]))
    lacking = ", ".join(differences[nearest])
    raise UserError(f"no public type has this model: {nearest}, the nearest, has no {lacking}; train one without it")
