"""Captioners: the gate of the context, and the mean of the cells that starts the decoder."""

import torch
from torch import Tensor

from regard.models import CaptionerConfig

FRAMES = CaptionerConfig(image=5, target_vocab=9, encoder="frames", grid=6, width=8, embed=4, dropout=0.0)


def test_a_closed_gate_hides_the_image() -> None:
    torch.manual_seed(1)
    model = FRAMES.build().double().eval()
    torch.nn.init.zeros_(model.bridge.weight)  # so that the image has no other way to the decoder
    images, tokens = torch.randn(2, 6, 5, dtype=torch.float64), torch.tensor([[1, 4, 5]] * 2)

    def features(bias: float) -> Tensor:
        torch.nn.init.constant_(model.decoder.gate.bias, bias)
        found, _ = model.advance(tokens, model.start(images))
        return found

    closed, opened = features(-1e3), features(1e3)
    assert torch.equal(closed[0], closed[1])
    assert not torch.allclose(opened[0], opened[1])


def test_the_mean_is_that_of_the_real_cells() -> None:
    torch.manual_seed(1)
    encoder = FRAMES.build().encoder.double().eval()
    source, real = torch.randn(2, 6, 5, dtype=torch.float64), torch.ones(2, 6, dtype=torch.bool)
    real[1, 4:] = False
    found = encoder(source, real)
    torch.testing.assert_close(found.summary[0], encoder(source[:1]).summary[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(found.summary[1], encoder(source[1:, :4]).summary[0], atol=1e-12, rtol=0)
