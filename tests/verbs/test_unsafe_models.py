"""Models that cannot be right are refused in one line: NaN, sizes that do not fit, tokenizers of another model."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import UserError, export, load
from regard.data.fields import TargetText
from regard.data.tokenizers import train_tokenizer
from tiny_public import bert

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public")
    bert(folder)
    return folder


def changed(run: Path, copy: Path, name: str, change: Callable[[Path], object]) -> Path:
    """A copy of a run in which one file of its step is changed; its manifest has the new fingerprint."""
    shutil.copytree(run, copy)
    step = copy / "steps" / "000007"
    change(step / name)
    data, manifest = (step / name).read_bytes(), json.loads((step / "manifest.json").read_text())
    manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (step / "manifest.json").write_text(json.dumps(manifest))
    return copy


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        found = load_file(path)
        change(found)
        save_file(found, path, {"format": "pt"})

    return write


def settings(**values: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


def spoil(found: dict[str, torch.Tensor], value: float, dtype: torch.dtype = torch.float32) -> str:
    """Put a number into the third tensor; the tensor's name."""
    name = sorted(name for name, tensor in found.items() if tensor.is_floating_point())[2]
    found[name] = found[name].to(dtype)
    found[name].view(-1)[-1] = value
    return name


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_run_whose_weights_are_not_finite(language: Path, tmp_path: Path, value: float) -> None:
    run = changed(language, tmp_path / "run", "weights.safetensors", tensors(lambda found: spoil(found, value)))
    name = sorted(load_file(run / "steps/000007/weights.safetensors"))[2]
    with pytest.raises(UserError, match=rf"{name}: 1 of its [\d,]+ numbers are NaN or infinite; use another"):
        load(run)


@pytest.mark.parametrize(("dtype", "value"), [(torch.float64, 1e300), (torch.float8_e4m3fn, NAN)])
def test_a_run_whose_weights_are_not_finite_in_float32(
    language: Path, tmp_path: Path, dtype: torch.dtype, value: float
) -> None:
    spoiled = tensors(lambda found: spoil(found, value, dtype))
    with pytest.raises(UserError, match=r"1 of its .* numbers are NaN or infinite"):
        load(changed(language, tmp_path / "run", "weights.safetensors", spoiled))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_public_checkpoint_whose_weights_are_not_finite(public: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    folder = shutil.copytree(public, tmp_path / "public")
    tensors(lambda found: spoil(found, NAN, dtype))(folder / "model.safetensors")
    name = sorted(load_file(folder / "model.safetensors"))[2]
    with pytest.raises(UserError, match=f"{name}: 1 of its .* numbers are NaN"):
        load(folder)


def test_large_weights_are_finite(public: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(public, tmp_path / "public")
    tensors(lambda found: found["bert.embeddings.position_embeddings.weight"].fill_(3e38))(folder / "model.safetensors")
    load(folder)  # their sum is infinite, but each number is finite


def test_a_model_with_nan_is_not_exported(public: Path, tmp_path: Path) -> None:
    model = load(public, precision="float32")
    with torch.no_grad():
        next(model.module.parameters()).view(-1)[0] = NAN
    with pytest.raises(UserError, match="NaN"):
        export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("width", [-3, 0, 2**40, 2**70, 13])
def test_sizes_of_a_run_that_its_weights_do_not_have(language: Path, tmp_path: Path, width: int) -> None:
    run = changed(language, tmp_path / "run", "model.json", settings(width=width))
    with pytest.raises(UserError, match=r"model\.json|the model's is"):
        load(run)


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10**9},
        {"vocab_size": 10**15},
        {"max_position_embeddings": 10**18},
        {"intermediate_size": 2**63},
    ],
)
def test_sizes_of_a_public_checkpoint_that_its_weights_do_not_have(
    public: Path, tmp_path: Path, values: dict[str, int]
) -> None:
    folder = shutil.copytree(public, tmp_path / "public")
    settings(**values)(folder / "config.json")
    with pytest.raises(UserError, match=r"config\.json"):
        load(folder)


def test_weights_that_are_whole_numbers(public: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(public, tmp_path / "public")
    name = "bert.embeddings.LayerNorm.weight"
    tensors(lambda found: found.update({name: found[name].long()}))(folder / "model.safetensors")
    with pytest.raises(UserError, match=f"{name} is 16 of torch.int64"):
        load(folder)


def test_the_tokenizer_of_another_run(language: Path, tmp_path: Path) -> None:
    other = TargetText(train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz"], 40))
    run = changed(language, tmp_path / "run", "fields/text.json", other.save)
    with pytest.raises(UserError, match=r"text.json: the tokenizer has 30 ids, but the model's vocabulary"):
        load(run)


def test_counts_that_are_no_counts(bigram: Path, tmp_path: Path) -> None:
    load(bigram)
    floats = tensors(lambda found: found.update(first=torch.full_like(found["first"], NAN, dtype=torch.float32)))
    with pytest.raises(UserError, match="first has numbers of type float32, but the model's are int64"):
        load(changed(bigram, tmp_path / "nan", "weights.safetensors", floats))
    minus = tensors(lambda found: found["first"].sub_(1))
    with pytest.raises(UserError, match="first has negative counts"):
        load(changed(bigram, tmp_path / "negative", "weights.safetensors", minus))


def test_python_files_of_a_checkpoint_are_not_run(public: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(public, tmp_path / "public")
    (folder / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    settings(auto_map={"AutoModel": "modeling.Model", "AutoConfig": "modeling.Config"})(folder / "config.json")
    load(folder)
    assert not (tmp_path / "ran").exists()
