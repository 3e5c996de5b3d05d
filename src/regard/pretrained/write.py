"""A model of ours as a directory that the `transformers` library opens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.checkpoint import save_tensors, write_json
from regard.models import Model, Transformer
from regard.pretrained.folder import WEIGHTS
from regard.pretrained.names import to_theirs
from regard.pretrained.sinusoids import as_public
from regard.pretrained.types import PUBLIC, lost, type_of


def write_model(model: Model, folder: Path, kept: Mapping[str, Any], kind: str | None = None) -> str:
    """config.json and model.safetensors, in a folder that is there; the type that they are of.

    ``kept`` are settings of the checkpoint it came from that mean nothing to the network, such as special tokens;
    ``kind`` is the type that it came as.
    """
    if isinstance(model, Transformer):
        model = as_public(model)
    if kind is None or type(model.config) is not PUBLIC[kind].config or lost(kind, model.config):
        kind = type_of(model.config)  # several may have it: XLM-RoBERTa is RoBERTa by another name
    public = PUBLIC[kind]
    write_json(folder / "config.json", {**kept, **public.write(model.config), "dtype": "float32"})
    tensors = {**to_theirs(public.lines(model.config), model.state_dict()), **public.constants(model.config)}
    for name in kept.get("architectures") or ():
        if name in public.bodies:  # without a head before, and again
            tensors |= public.bodies[name](model.config)
    save_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    return kind
