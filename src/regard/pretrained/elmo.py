"""ELMo in its public form: a directory with options.json and one file *weights.hdf5 (Peters et al. 2018).

The files have the character encoder and the LSTM layers of both directions, and no output layer. A matrix is stored as
inputs × outputs. The gates of an LSTM are in the order input, new, forget, output. The row of the padding of a sentence
is not among the character vectors. One table of names serves reading and writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.characters import COUNT
from regard.errors import UserError
from regard.file_io import as_user_error, check_finite, read_object, write_json
from regard.layers.init import SkipInit, empty_weights
from regard.models.directions import TwoDirections, TwoDirectionsConfig
from regard.models.elmo import ElmoConfig
from regard.pretrained.checkpoint_type import ConfigReader
from regard.pretrained.weight_table import format_shape

OPTIONS, WEIGHTS, SUFFIX = "options.json", "lm_weights.hdf5", "weights.hdf5"
CURE = "download or export the model again"
MOST_CHARACTERS = 1000  # of a word: each word of a text takes the memory of so many


@dataclass(frozen=True)
class Entry:
    """A dataset of the file, and the weights of ours that are made of it, side by side after a transposition."""

    theirs: str
    ours: tuple[str, ...]
    read: Callable[[Tensor], Tensor] = lambda tensor: tensor
    write: Callable[[Tensor], Tensor] = lambda tensor: tensor


def is_elmo(path: Path) -> bool:
    """Whether a directory has ELMo's options; one without weights is one, too, so that an error can name the file."""
    return (path / OPTIONS).is_file() and not (path / "config.json").is_file()


def read_elmo(path: Path) -> TwoDirections:
    """The model of a directory. Damaged files, other names and other shapes raise a UserError."""
    config, file = TwoDirectionsConfig(_read_config(path / OPTIONS)), _weights_file(path)
    ours: dict[str, Tensor] = {}
    with _opened(file) as datasets:
        try:
            expected = empty_weights(config, len(datasets))
        except UserError as error:
            raise UserError(f"{path / OPTIONS}: {error}; {CURE}.") from error
        for entry in _table(config.body):
            sizes = [expected[name].shape for name in entry.ours]
            wanted = entry.write(torch.cat([torch.empty(size, device="meta") for size in sizes], dim=-1)).shape
            tensor = _tensor(datasets, entry.theirs, wanted, file)
            parts = entry.read(tensor).split([size[-1] for size in sizes], dim=-1)
            ours |= {name: part.contiguous() for name, part in zip(entry.ours, parts)}
        if datasets:
            raise UserError(f"{file}: has {min(datasets)}, which is no weight of a model with this {OPTIONS}; {CURE}.")
    check_finite(ours, file, CURE)
    with SkipInit():
        model = config.build()
    model.load_state_dict({**model.state_dict(), **ours})
    return model


@contextmanager
def _opened(file: Path) -> Iterator[dict[str, Any]]:
    """The datasets of an HDF5 file by name. Links to other files are not among them."""
    h5py, found = _h5py(), dict[str, Any]()
    try:
        with h5py.File(file, "r") as opened:
            opened.visititems(lambda name, one: found.update({name: one} if isinstance(one, h5py.Dataset) else {}))
            yield found
    except UserError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError) as error:  # h5py has no exception of its own for damaged files
        raise UserError(f"{file}: is no HDF5 file, or is damaged ({str(error)[:80]}); {CURE}.") from error


def _tensor(datasets: dict[str, Any], name: str, shape: Sequence[int], file: Path) -> Tensor:
    """One dataset of the file in float32, which is then no longer among the datasets."""
    if name not in datasets:
        raise UserError(f"{file}: has no {name}, which a model with this {OPTIONS} has; {CURE}.")
    data = datasets.pop(name)
    if tuple(data.shape or ()) != tuple(shape) or data.dtype.kind != "f":
        have = f"{format_shape(data.shape or ())} of {data.dtype}"
        raise UserError(f"{file}: {name} is {have}, but by {OPTIONS} it should be {format_shape(shape)}; {CURE}.")
    if data.external or data.is_virtual:
        raise UserError(f"{file}: {name} is in another file, which is not read; {CURE}.")
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite
        return torch.from_numpy(data[...].astype(np.float32))


def _weights_file(path: Path) -> Path:
    found = sorted(one for one in path.glob(f"*{SUFFIX}") if one.is_file())  # a pipe or a device may never end
    if len(found) != 1:
        have = f"{len(found)} files" if found else "no file"
        raise UserError(f"{path}: has {have} *{SUFFIX} beside {OPTIONS}; put exactly one there.")
    return found[0]


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UserError("the public form of ELMo needs the package h5py: pip install regard[elmo]") from error
    return h5py


def _read_config(path: Path) -> ElmoConfig:
    """Our settings of an options.json."""
    options = read_object(path)
    parts = {name: options.get(name) for name in ("lstm", "char_cnn")}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise UserError(f"{path}: has no settings {name}; only models that read characters are supported.")
    read = ConfigReader(path, {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()})  # type: ignore[union-attr]
    read.expect({"char_cnn.n_characters": COUNT} if read.get("char_cnn.n_characters") != COUNT - 1 else {})
    filters = read.get("char_cnn.filters")
    if not isinstance(filters, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(size) is int for size in pair) for pair in filters
    ):
        raise read.invalid("char_cnn.filters", "a list of pairs of whole numbers")
    embedding = read.get("char_cnn.embedding")
    width = ConfigReader(path, embedding if isinstance(embedding, dict) else {}).size("dim")
    try:
        return ElmoConfig(
            width=read.size("lstm.projection_dim"),
            cells=read.size("lstm.dim"),
            layers=read.integer("lstm.n_layers", 1, least=1),
            skip=read.boolean("lstm.use_skip_connections"),
            cell_clip=_clip(read, "lstm.cell_clip"),
            state_clip=_clip(read, "lstm.proj_clip"),
            characters=read.size("char_cnn.max_characters_per_token", most=MOST_CHARACTERS),
            embed=width,
            kernels=tuple(kernel for kernel, _ in filters),
            filters=tuple(count for _, count in filters),
            highways=0 if read.get("char_cnn.n_highway") is None else read.integer("char_cnn.n_highway"),
            activation=read.activation("char_cnn.activation"),
            output=False,
        )
    except UserError as error:
        if str(error).startswith(str(path)):
            raise
        raise UserError(f"{path}: {error}; restore the file.") from error


def _clip(read: ConfigReader, name: str) -> float:
    """A limit; without one, 0."""
    if read.get(name) is None:
        return 0.0
    if not 0 < (limit := read.number(name)) <= torch.finfo(torch.float32).max:
        raise read.invalid(name, "above 0 and a number of float32, or null")
    return limit


def _options(config: ElmoConfig) -> dict[str, Any]:
    """The options.json of our settings."""
    return {
        "lstm": {
            "use_skip_connections": config.skip,
            "projection_dim": config.width,
            "cell_clip": config.cell_clip or None,
            "proj_clip": config.state_clip or None,
            "dim": config.cells,
            "n_layers": config.layers,
        },
        "char_cnn": {
            "activation": config.activation,
            "filters": [list(pair) for pair in zip(config.kernels, config.filters)],
            "n_highway": config.highways,
            "embedding": {"dim": config.embed},
            "n_characters": COUNT,
            "max_characters_per_token": config.characters,
        },
    }


def write_elmo(model: Any, folder: Path) -> str:
    """Write options.json and the weights of a model into a folder; the output layer has no place there."""
    if not isinstance(model, TwoDirections) or not isinstance(model.config.body, ElmoConfig):
        raise UserError("--to elmo: this model is no ELMo in both directions; use another format, or train one: elmo.")
    write_json(folder / OPTIONS, _options(model.config.body))
    state = {name: tensor.detach().float().cpu() for name, tensor in model.state_dict().items()}
    with as_user_error(folder), _h5py().File(folder / WEIGHTS, "w") as file:
        for entry in _table(model.config.body):
            joined = torch.cat([state[name] for name in entry.ours], dim=-1)
            file.create_dataset(entry.theirs, data=np.ascontiguousarray(entry.write(joined).numpy()))
    return "elmo"


def _table(config: ElmoConfig) -> list[Entry]:
    """All datasets of a file."""
    encoder = "onward.embedding.encoder"
    table = f"{encoder}.characters.weight"  # its first row, that of padding, is missing there
    entries = [Entry("char_embed", (table,), lambda w: F.pad(w, (0, 0, 1, 0)), lambda w: w[1:])]
    for number in range(len(config.kernels)):
        weight, bias = (f"{encoder}.filters.{number}.{part}" for part in ("weight", "bias"))
        entries += [  # (filters, embed, kernel) here, (1, kernel, embed, filters) there
            Entry(
                f"CNN/W_cnn_{number}", (weight,), lambda w: w[0].permute(2, 1, 0), lambda w: w.permute(2, 1, 0)[None]
            ),
            Entry(f"CNN/b_cnn_{number}", (bias,)),
        ]
    for number in range(config.highways):
        for theirs, ours in (("carry", "gate"), ("transform", "transform")):
            own, place = f"{encoder}.highways.{number}.{ours}", f"CNN_high_{number}"
            entries += [_matrix(f"{place}/W_{theirs}", f"{own}.weight"), Entry(f"{place}/b_{theirs}", (f"{own}.bias",))]
    if sum(config.filters) != config.width:
        own = f"{encoder}.projection"
        entries += [_matrix("CNN_proj/W_proj", f"{own}.weight"), Entry("CNN_proj/b_proj", (f"{own}.bias",))]
    for direction, half in enumerate(("onward", "returning")):
        for depth in range(config.layers):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"
            own = f"{half}.lstms.{depth}.lstm"
            both = (f"{own}.weight_ih_l0", f"{own}.weight_hh_l0")  # (4 · cells, inputs + width)
            entries.append(Entry(f"{place}/W_0", both, lambda w: _gates(w.T), lambda w: _gates(w).T))
            entries.append(Entry(f"{place}/B", (f"{own}.bias_ih_l0",), _gates, _gates))
            if config.width < config.cells:
                entries.append(_matrix(f"{place}/W_P_0", f"{own}.weight_hr_l0"))
    return entries


def _matrix(theirs: str, ours: str) -> Entry:
    return Entry(theirs, (ours,), lambda tensor: tensor.T, lambda tensor: tensor.T)


def _gates(stacked: Tensor) -> Tensor:
    """The gates of an LSTM in the other order: input, new, forget, output ↔ input, forget, new, output."""
    first, second, third, last = stacked.chunk(4)
    return torch.cat([first, third, second, last])
