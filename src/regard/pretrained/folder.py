"""Model directories of the `transformers` library, read and written: config.json and model.safetensors."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint import load_tensors, read_json, save_tensors, write_json
from regard.errors import UserError, nearest
from regard.layers.init import SkipInit
from regard.models import Headed, Model, ModelConfig, Transformer
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, without_outputs
from regard.pretrained.convert import add_segment, to_public_form
from regard.pretrained.types import CHECKPOINT_TYPES, find_type, unsupported_settings
from regard.pretrained.weight_table import WeightEntry, shape_text, to_ours, to_theirs

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = "pytorch_model.bin"


def is_public(path: Path) -> bool:
    """Whether a directory is a public checkpoint, and not a run of ours."""
    return (path / "config.json").is_file()


def read_settings(path: Path) -> dict[str, Any]:
    """The content of config.json, whose model_type must be one of CHECKPOINT_TYPES."""
    settings = read_json(path / "config.json")
    if not isinstance(settings, dict):
        raise UserError(f"{path / 'config.json'}: should be an object of settings; restore the file.")
    kind = settings.get("model_type")
    if kind not in CHECKPOINT_TYPES:
        raise UserError(
            f"{path / 'config.json'}: model_type={kind}: no such type is known.{nearest(str(kind), CHECKPOINT_TYPES)}"
        )
    return settings


def read_model(path: Path, settings: Mapping[str, Any], allow_pickle: bool = False) -> Model:
    """The model of a public checkpoint. Missing tensors, extra tensors and other shapes raise a UserError."""
    checkpoint_type = CHECKPOINT_TYPES[settings["model_type"]].with_settings(settings)
    tensors = checkpoint_type.normalized(read_weights(path, allow_pickle))
    config = _read_config(checkpoint_type, ConfigReader(path / "config.json", settings), frozenset(tensors))
    weight_table = checkpoint_type.model_weight_table(config)
    ours = to_ours(weight_table, tensors, path)
    with SkipInit():
        model = config.build()
    _check_shapes(model, ours, weight_table, path)
    model.load_state_dict(ours)
    return model


def _read_config(checkpoint_type: CheckpointType, reader: ConfigReader, names: frozenset[str]) -> ModelConfig:
    try:
        return checkpoint_type.read_model_config(reader, names)
    except UserError as error:  # from our config, whose message does not name the file
        if str(error).startswith(str(reader.path)):
            raise
        raise UserError(f"{reader.path}: {checkpoint_type.in_file_names(str(error))}; restore the file.") from error


def read_weights(path: Path, allow_pickle: bool = False) -> dict[str, Tensor]:
    """All tensors of a checkpoint, in float32: from one safetensors file, several with an index, or a pickle."""
    if (path / WEIGHTS).is_file():
        tensors = load_tensors(path / WEIGHTS)
    elif (path / INDEX).is_file():
        tensors = _sharded(path)
    elif (path / PICKLED).is_file():
        tensors = _pickled(path / PICKLED, allow_pickle)
    else:
        raise UserError(f"{path}: has no {WEIGHTS}; download or export the checkpoint again.")
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def _sharded(path: Path) -> dict[str, Tensor]:
    index = read_json(path / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise UserError(f"{path / INDEX}: should have a weight_map of tensors to files; restore the file.")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file:
            raise UserError(f"{path / INDEX}: {file} is outside the directory; restore the file.")
        tensors |= load_tensors(path / file)
    return tensors


def _pickled(path: Path, allowed: bool) -> dict[str, Tensor]:
    """Weights from a pickle: only if the user allows it, and then only tensors, never code."""
    if not allowed:
        raise UserError(
            f"{path}: pickled weights can run code when they are opened; use a checkpoint with {WEIGHTS}, "
            "or add --allow-pickle (allow_pickle=True in Python) to read nothing but tensors from it."
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # the errors below cover them
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"{path}: damaged, or holds more than tensors; use a checkpoint with {WEIGHTS}.") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"{path}: should hold tensors by name; use another checkpoint.")
    return found


def _check_shapes(model: Model, ours: Mapping[str, Tensor], weight_table: Sequence[WeightEntry], path: Path) -> None:
    theirs = {entry.ours: " + ".join(entry.theirs) for entry in weight_table}
    for name, tensor in model.state_dict().items():
        assert name in ours, f"the weight table has no entry for {name}"
        if ours[name].shape != tensor.shape:
            found, wanted = shape_text(ours[name].shape), shape_text(tensor.shape)
            raise UserError(
                f"{path}: {theirs[name]} is {found}, but by config.json it should be {wanted}; "
                "they do not belong together."
            )
    assert len(ours) == len(model.state_dict()), f"the model has no {set(ours) - set(model.state_dict())}"


def write_model(model: Model, folder: Path, kept: Mapping[str, Any], kind: str | None = None) -> str:
    """Write config.json and model.safetensors into an existing folder; return the checkpoint type.

    ``kept`` are settings of the original checkpoint that do not change the network, such as special tokens; ``kind`` is
    the type of the original checkpoint.
    """
    if isinstance(model, Transformer):
        model = to_public_form(model)
    if isinstance(model, Headed):
        model = add_segment(model)
    body, head = model.config.split()
    fits = kind is not None and type(body) is CHECKPOINT_TYPES[kind].config
    if kind is None or not fits or unsupported_settings(kind, model.config):
        kind = find_type(model.config)  # keep the original type if it fits: XLM-RoBERTa also reads back as RoBERTa
    checkpoint_type = CHECKPOINT_TYPES[kind]
    body = body if head is None else without_outputs(body)
    settings = {**kept, **checkpoint_type.write_config(body), "dtype": "float32"}
    settings |= {} if head is None else checkpoint_type.heads[head.predicts].write_config(head)
    write_json(folder / "config.json", settings)
    tensors = {
        **to_theirs(checkpoint_type.model_weight_table(model.config), model.state_dict()),
        **checkpoint_type.constants(body),
    }
    for name in kept.get("architectures") or ():
        if name in checkpoint_type.class_constants:
            tensors |= checkpoint_type.class_constants[name](body)
    save_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    return kind
