"""What a run has on disk, read back: its recipe, and the tokenizers and weights of a step."""

from pathlib import Path

import torch
from torch import nn

from regard.checkpoint import load_tensors, read_json
from regard.config import from_json
from regard.data.public_tokenizers import unpack_tokenizer
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.recipes import KINDS, Recipe


def stored_recipe(run: Path) -> Recipe:
    """The recipe that a run was started with."""
    recipe = from_json(read_json(run / "recipe.json"), KINDS)
    if not isinstance(recipe, Recipe):
        raise UserError(f"{run / 'recipe.json'}: not a recipe; restore the file or start another run.")
    return recipe


def read_tokenizers(folder: Path) -> tuple[Tokenizer | None, Tokenizer]:
    """The tokenizers of a saved step: of what is read, if anything is, and of what is said."""
    source = folder / "source.json"
    return read_tokenizer(source) if source.exists() else None, read_tokenizer(folder / "target.json")


def read_tokenizer(path: Path) -> Tokenizer:
    """What `Tokenizer.save` wrote: one of ours, or a public one with the files it came from."""
    content = read_json(path)
    return unpack_tokenizer(content, path) if isinstance(content, dict) and "files" in content else Tokenizer.load(path)


def load_weights(module: nn.Module, path: Path) -> None:
    """Fill a module with the weights of a file, which must be all of its own and no others."""
    tensors = load_tensors(path)
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise UserError(
                f"{path}: {name} is {_told(found.get(name))}, but the model's is {_told(expected.get(name))}; "
                "give the model the settings of the run that the weights are from."
            )
    module.load_state_dict(tensors)


def _told(shape: torch.Size | None) -> str:
    return "absent" if shape is None else "×".join(map(str, shape)) or "one number"
