"""Model directories of the `transformers` library, read and written: config.json and model.safetensors."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import format_value
from regard.errors import UserError
from regard.file_io import check_finite, load_tensors, read_json, read_object, save_tensors, write_json
from regard.layers.init import SkipInit, empty_weights
from regard.layers.transformer import Shape
from regard.models import MODELS, Headed, Model, ModelConfig, Transformer, TransformerConfig
from regard.pretrained.bert import ALBERT, BERT, DISTILBERT, ELECTRA, ROBERTA, XLM_ROBERTA
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, without_outputs
from regard.pretrained.convert import (
    add_segment,
    fold_statistics,
    move_positions,
    to_public_form,
    without_statistics,
)
from regard.pretrained.gpt import GPT2, OPENAI_GPT
from regard.pretrained.marian import MARIAN, PEGASUS
from regard.pretrained.t5 import T5
from regard.pretrained.weight_table import format_shape, to_ours, to_theirs

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
GENERATION = "generation_config"  # the settings of generation: a file of this name, and a key of the settings read
PICKLED = "pytorch_model.bin"

# All types of public checkpoints that can be read and written, by the `model_type` of their config.json.
CHECKPOINT_TYPES: dict[str, CheckpointType] = {
    "gpt2": GPT2,
    "openai-gpt": OPENAI_GPT,
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
DROPPED = {  # types that were read and written once: why they are not any more, and the cure
    "transfo-xl": "directories of Transformer-XL are not read and written any more, because transformers 5 has no such "
    "class to check them with; Regard trains Transformer-XL itself: model=gpt model.positions=xl model.memory=N",
}


def is_public(path: Path) -> bool:
    """Whether a directory is a public checkpoint, and not a run of ours."""
    return (path / "config.json").is_file()


# -- reading ----------------------------------------------------------------------------------------------------------


def read_settings(path: Path) -> dict[str, Any]:
    """The content of config.json, whose model_type must be one of CHECKPOINT_TYPES, and of generation_config.json."""
    settings = read_object(path / "config.json")
    if settings.get("model_type") is None and (path / "model.bin").is_file():
        cure = "open the run or the checkpoint that it was exported from"
        raise UserError(f"{path}: a directory of CTranslate2, which is written here but not opened; {cure}.")
    check_type(settings.get("model_type"), path / "config.json")
    generation = path / f"{GENERATION}.json"
    return settings | ({GENERATION: read_object(generation)} if generation.is_file() else {})


def check_type(kind: object, place: Path) -> None:
    """Refuse a model_type that is none of CHECKPOINT_TYPES; the error names the place where it was found."""
    if isinstance(kind, str) and kind in DROPPED:
        raise UserError(f"{place}: model_type={kind}: {DROPPED[kind]}.")
    if not isinstance(kind, str) or kind not in CHECKPOINT_TYPES:
        found = "has no model_type" if kind is None else f"model_type={kind!s:.40}: this type is not supported"
        raise UserError(f"{place}: {found}; the types that open: {', '.join(CHECKPOINT_TYPES)}.")


def read_model(path: Path, settings: Mapping[str, Any], allow_pickle: bool = False) -> Model:
    """The model of a public checkpoint. Missing tensors, extra tensors and other shapes raise a UserError."""
    return build_model(path, settings, read_weights(path, allow_pickle))


def convert_module(module: nn.Module, tokenizer: Any, place: Path) -> tuple[Model, dict[str, Any]]:
    """Our model of a `transformers` model in memory, and its settings. ``place`` is an empty directory.

    The settings and the tokenizer are written there in their files and read again; the weights are not.
    """
    name = Path(type(module).__name__)
    config: Any = getattr(module, "config", None)
    if not hasattr(config, "model_type"):
        raise UserError(f"{name}: is no model of transformers; give one, or the directory of a model.")
    check_type(config.model_type, name)
    if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
        raise UserError(f"tokenizer: a {type(tokenizer).__name__} is none of transformers; give an AutoTokenizer.")
    for file, part in (("config", config), (GENERATION, getattr(module, GENERATION, None))):
        if part is not None:
            part.to_json_file(place / f"{file}.json")
    if tokenizer is not None:
        tokenizer.save_pretrained(place)
    settings = read_settings(place) | {"architectures": [str(name)]}
    return build_model(name, settings, as_float32(module.state_dict())), settings


def build_model(path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    """The model with the settings and tensors of a public checkpoint; errors name ``path``."""
    checkpoint_type = CHECKPOINT_TYPES[settings["model_type"]].for_classes(settings).with_settings(settings)
    tensors = checkpoint_type.normalized(tensors)
    reader = ConfigReader(path / "config.json", settings)
    try:
        config, unused = checkpoint_type.read_model_config(reader, frozenset(tensors))
        expected = empty_weights(config, len(tensors))  # before memory is allocated for the model
    except UserError as error:  # from our config, whose message does not name the file
        if str(error).startswith(str(reader.path)):
            raise
        raise UserError(f"{reader.path}: {checkpoint_type.in_file_names(str(error))}; restore the file.") from error
    weight_table = checkpoint_type.model_weight_table(config)
    tensors = {name: tensor for name, tensor in tensors.items() if name not in unused}
    check_finite(tensors, path, "download or export the model again")
    ours = to_ours(weight_table, tensors, path) | without_statistics(expected)
    theirs = {entry.ours: " + ".join(entry.theirs) for entry in weight_table}
    for name, tensor in expected.items():
        assert name in ours, f"the weight table has no entry for {name}"
        if ours[name].shape != tensor.shape or not ours[name].is_floating_point():
            found = f"{format_shape(ours[name].shape)} of {ours[name].dtype}".removesuffix(" of torch.float32")
            raise UserError(
                f"{path}: {theirs[name]} is {found}, but by config.json it should be {format_shape(tensor.shape)}; "
                "they do not belong together."
            )
    with SkipInit():
        model = config.build()
    model.load_state_dict(ours)
    return model


def read_weights(path: Path, allow_pickle: bool = False) -> dict[str, Tensor]:
    """All tensors of a checkpoint, in float32: from one safetensors file, several with an index, or a pickle."""
    if (path / WEIGHTS).is_file():
        tensors = load_tensors(path / WEIGHTS)
    elif (path / INDEX).is_file():
        index = read_json(path / INDEX)
        places = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
            raise UserError(f"{path / INDEX}: should have a weight_map of tensors to files; restore the file.")
        tensors = {}
        for file in sorted(set(places.values())):
            if Path(file).name != file:
                raise UserError(f"{path / INDEX}: {file} is outside the directory; restore the file.")
            tensors |= load_tensors(path / file)
    elif (path / PICKLED).is_file():
        tensors = _read_pickle(path / PICKLED, allow_pickle)
    else:
        raise UserError(f"{path}: has no {WEIGHTS}; download or export the checkpoint again.")
    return as_float32(tensors)


def as_float32(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, those of floats in float32."""
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def _read_pickle(path: Path, allowed: bool) -> dict[str, Tensor]:
    """Weights from a pickle: only if the user allows it, and then only tensors, never code."""
    if not allowed:
        raise UserError(
            f"{path}: pickled weights can run code when they are opened; use a checkpoint with {WEIGHTS}, "
            "or add --allow-pickle (in Python: allow_pickle=True) to read nothing but tensors from it."
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # the errors below cover them
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"{path}: damaged, or holds more than tensors; use a checkpoint with {WEIGHTS}.") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"{path}: should hold tensors by name; use another checkpoint.")
    return found


# -- writing ----------------------------------------------------------------------------------------------------------


def write_model(model: Model, folder: Path, kept: Mapping[str, Any], kind: str | None = None) -> str:
    """Write config.json and model.safetensors into an existing folder; return the checkpoint type.

    ``kept`` are settings of the original checkpoint that do not change the network, such as special tokens; ``kind`` is
    the type of the original checkpoint.
    """
    if isinstance(model, Transformer):
        model = to_public_form(model)
    if isinstance(model, Headed):
        model = add_segment(fold_statistics(model))
    model = move_positions(model, kept.get("pad_token_id"))
    body, head = model.config.split()
    fits = kind is not None and CHECKPOINT_TYPES[kind].for_config(body) is not None
    if kind is None or not fits or unsupported_settings(kind, model.config):
        kind = find_type(model.config)  # keep the original type if it fits: XLM-RoBERTa also reads back as RoBERTa
    checkpoint_type = CHECKPOINT_TYPES[kind].for_config(body)
    assert checkpoint_type is not None
    body = body if head is None else without_outputs(body)
    settings = {**kept, **checkpoint_type.write_config(body), "dtype": "float32"}
    tensors = {
        **to_theirs(checkpoint_type.model_weight_table(model.config), model.state_dict()),
        **checkpoint_type.constants(body, kept.get("architectures") or ()),
    }
    if head is not None:
        public_head = checkpoint_type.heads[head.predicts]
        settings |= public_head.write_config(head, kept)
        tensors = public_head.in_file(tensors)
    write_json(folder / "config.json", settings)
    save_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    return kind


def find_type(config: ModelConfig) -> str:
    """The type that a model can be written as: the first one that reads back as the same config."""
    body, _ = config.split()
    differences: dict[str, dict[str, str]] = {}
    for kind, checkpoint_type in CHECKPOINT_TYPES.items():
        if checkpoint_type.for_config(body) is not None:
            differences[kind] = unsupported_settings(kind, config)
            if not differences[kind]:
                return kind
    if not differences:
        name = next((name for name, kind in MODELS.items() if kind is type(body)), type(body).__name__)
        raise UserError(f"model={name}: no public checkpoint type has such a model; only Transformers can be exported")
    # Of types with as many differences, one with another head: it is easier to train than another body.
    closest = min(differences, key=lambda kind: (len(differences[kind]), -" ".join(differences[kind]).count("head.")))
    lacking, instead = ", ".join(differences[closest]), ", ".join(differences[closest].values())
    found, cure = f"has no {lacking}", "train one without it"
    if all(differences[closest].values()):
        found, cure = f"has {instead}, and this model has {lacking}", f"train one with {instead}"
    raise UserError(f"no public type has this model: {closest}, the nearest, {found}; {cure}")


def unsupported_settings(kind: str, config: ModelConfig) -> dict[str, str]:
    """The settings of a model, as name=value, that a checkpoint of this type cannot hold: they would not read back.

    Each has the setting that the type has instead; empty: none that is known.
    """
    body, head = config.split()
    checkpoint_type = CHECKPOINT_TYPES[kind].for_config(body)
    assert checkpoint_type is not None
    lacking: dict[str, str] = {}
    if head is not None:
        body, heads = without_outputs(body), checkpoint_type.heads
        lacking = heads[head.predicts].unsupported(head) if head.predicts in heads else {f"head={head.predicts}": ""}
    canonical = canonical_config(body)
    try:
        read_back = canonical_config(checkpoint_type.round_trip(canonical))
    except UserError:  # the type lacks these positions, and the other settings are invalid without them
        return {f"model.positions={getattr(canonical, 'positions', None)}": "", **lacking}
    names = (one.name for one in fields(body) if getattr(canonical, one.name) != getattr(read_back, one.name))
    return {**{f"model.{name}={format_value(getattr(body, name))}": "" for name in names}, **lacking}


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
        output_dropout=0.0,
        variational=False,
        embedding="",
    )
    if canonical.positions not in ("t5", "relative"):
        canonical = replace(canonical, furthest=128, buckets=32)
    if canonical.longest is None:
        canonical = replace(canonical, context=512)
    first: dict[str, Any] = {one.name: one.default for one in fields(canonical) if one.name in canonical.first_weights}
    canonical = replace(canonical, **first)
    if isinstance(canonical, TransformerConfig):
        decoder = canonical.decoder
        canonical = replace(
            canonical,
            decoder_layers=decoder.layers,
            decoder_heads=decoder.heads,
            decoder_inner=decoder.inner,
            readout_scale=canonical.readout_factor,
        )
    return canonical
