"""Every type of public checkpoint that is read and written here, by the name its config.json has for it."""

from dataclasses import fields

from regard.errors import UserError
from regard.models import MODELS, ModelConfig
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


def type_of(config: ModelConfig) -> str:
    """The type that a model can be written as: the first that reads back as the same model."""
    differences = {}
    for kind, public in PUBLIC.items():
        if type(config) is public.config:
            back = public.back(config)
            if back == config:
                return kind
            differences[kind] = [
                f"{one.name}={getattr(config, one.name)}"
                for one in fields(config)
                if getattr(config, one.name) != getattr(back, one.name)
            ]
    if not differences:
        name = next(name for name, kind in MODELS.items() if kind is type(config))
        raise UserError(
            f"model={name}: no public type of checkpoint has such a model; only Transformers can be exported"
        )
    nearest = min(differences, key=lambda kind: len(differences[kind]))
    lacking = ", ".join(f"model.{setting}" for setting in differences[nearest])
    raise UserError(f"no public type has this model: {nearest}, the nearest, has no {lacking}; train one without")
