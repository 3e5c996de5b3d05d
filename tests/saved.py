"""Runs that are saved without training."""

from collections.abc import Mapping
from pathlib import Path

import torch

from regard.checkpoint import save_step, set_pointer
from regard.config import to_json
from regard.data.fields import Field
from regard.file_io import save_tensors, write_json
from regard.models import ModelConfig
from regard.recipes import KINDS, Recipe
from regard.stored import recipe_json


def save_run(run: Path, recipe: Recipe, config: ModelConfig, fields: Mapping[str, Field]) -> Path:
    """A run whose only step holds the model as it is first built."""
    torch.manual_seed(3)
    module = config.build()
    files = {
        "model.json": to_json(config, KINDS),
        "weights.safetensors": lambda path: save_tensors(path, module.state_dict()),
        **{f"fields/{name}.json": field.save for name, field in fields.items()},
    }
    run.mkdir(parents=True)
    write_json(run / "recipe.json", recipe_json(recipe, KINDS))
    save_step(run, 7, files, keep=1)
    set_pointer(run, "best", 7)
    return run
