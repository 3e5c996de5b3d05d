"""The outputs of Transformer-XL are those of the reference.

`transformers` 4.57 made the files: tiny random models, with the weights under our names, and what its class gave for
two segments of text. Later versions do not have the class. Its memory starts with zeros, which are given here.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.layers.segment_memory import SegmentStates
from regard.models import GptConfig

FILES = Path(__file__).parent / "transformer_xl"
SHARED = GptConfig(
    vocab=24,
    width=8,
    heads=2,
    layers=3,
    inner=12,
    activation="relu",
    norm_place="post",
    attention_bias=False,
    positions="xl",
    scaled=True,
    memory=5,
    shared_biases=True,
    softmax="adaptive",
)
PLAIN = replace(SHARED, layers=2, shared_biases=False)
CASES = {
    "shared": SHARED,
    "prenorm": replace(PLAIN, norm_place="pre", last_norm=False, epsilon=1e-3),
    # As the published model.
    "published": replace(PLAIN, windows=(4,), clamp=3, cutoffs=(6, 14), divide=2, projections=(0,)),
}


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_two_segments(name: str) -> None:
    tensors, model = load_file(FILES / f"{name}.safetensors"), CASES[name].build().eval()
    model.load_state_dict({key.removeprefix("weights."): tensors[key] for key in tensors if "weights." in key})
    config = CASES[name]
    state = SegmentStates(config.memory, (torch.zeros(2, config.memory, config.width),) * config.layers)
    for segment in ("", "second."):
        features, state = model.advance(tensors[f"{segment}tokens"], state)
        torch.testing.assert_close(features, tensors[f"{segment}states"], atol=1e-5, rtol=0)
        torch.testing.assert_close(model.readout(features), tensors[f"{segment}logits"], atol=1e-5, rtol=0)
        for number, states in enumerate(state.layers):
            torch.testing.assert_close(states, tensors[f"{segment}mems.{number}"].transpose(0, 1), atol=1e-5, rtol=0)
