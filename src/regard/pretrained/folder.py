"""A directory of the `transformers` library: config.json, safetensors, tokenizer files; read and written."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint import load_tensors, read_json
from regard.errors import UserError, nearest
from regard.layers.init import SkipInit
from regard.models import Model, ModelConfig
from regard.pretrained.names import Line, to_ours, told
from regard.pretrained.public import Given, Public
from regard.pretrained.types import PUBLIC

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = "pytorch_model.bin"


def is_public(path: Path) -> bool:
    """Whether a directory is a public checkpoint, and not a run of ours."""
    return (path / "config.json").is_file()


def read_settings(path: Path) -> dict[str, Any]:
    """What config.json holds; its type must be one that is known here."""
    settings = read_json(path / "config.json")
    if not isinstance(settings, dict):
        raise UserError(f"{path / 'config.json'}: should be an object of settings; restore the file.")
    kind = settings.get("model_type")
    if kind not in PUBLIC:
        raise UserError(
            f"{path / 'config.json'}: model_type={kind}: no such type is known.{nearest(str(kind), PUBLIC)}"
        )
    return settings


def read_model(path: Path, settings: Mapping[str, Any], allow_pickle: bool = False) -> Model:
    """The model of a public checkpoint with all of its weights: none missing, none left over, none of another shape."""
    public = PUBLIC[settings["model_type"]].set_to(settings)
    tensors = public.normal(read_weights(path, allow_pickle))
    config = _read_config(public, Given(path / "config.json", settings), frozenset(tensors))
    lines = public.lines(config)
    ours = to_ours(lines, tensors, path)
    with SkipInit():
        model = config.build()
    _check_shapes(model, ours, lines, path)
    model.load_state_dict(ours)
    return model


def _read_config(public: Public, given: Given, names: frozenset[str]) -> ModelConfig:
    try:
        return public.read(given, names)
    except UserError as error:  # of our settings, which do not know the file that they came from
        if str(error).startswith(str(given.path)):
            raise
        raise UserError(f"{given.path}: {public.reworded(str(error))}; restore the file.") from error


def read_weights(path: Path, allow_pickle: bool = False) -> dict[str, Tensor]:
    """All tensors of a checkpoint, in float32: one safetensors file, or several and their index."""
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
    """Weights of a pickle: only where the user says so, and then only tensors, never code."""
    if not allowed:
        raise UserError(
            f"{path}: pickled weights can run code when they are opened; use a checkpoint with {WEIGHTS}, "
            "or say --allow-pickle (allow_pickle=True in Python) to read nothing but tensors from it."
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # what it says of odd files is said below
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"{path}: damaged, or holds more than tensors; use a checkpoint with {WEIGHTS}.") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"{path}: should hold tensors by name; use another checkpoint.")
    return found


def _check_shapes(model: Model, ours: Mapping[str, Tensor], lines: Sequence[Line], path: Path) -> None:
    theirs = {line.ours: " + ".join(line.theirs) for line in lines}
    for name, tensor in model.state_dict().items():
        assert name in ours, f"the table of names has no line for {name}"
        if ours[name].shape != tensor.shape:
            found, wanted = told(ours[name].shape), told(tensor.shape)
            raise UserError(
                f"{path}: {theirs[name]} is {found}, but by config.json it should be {wanted}; "
                "they do not belong together."
            )
    assert len(ours) == len(model.state_dict()), f"the model has no {set(ours) - set(model.state_dict())}"
