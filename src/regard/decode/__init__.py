"""Decoding: one `stream` and one `beam` for every model that can take a step."""

from regard.decode.beam_search import Hypotheses, Penalty, beam, check_size
from regard.decode.cuda_graph import CapturedDecoder
from regard.decode.fast_layers import with_onednn
from regard.decode.sample import Pick, Sampler, collect, greedy, stream
from regard.decode.state import PAD, Advancing, Decoder, State

# fmt: off
__all__ = [
    "PAD", "Advancing", "CapturedDecoder", "Decoder", "Hypotheses", "Penalty", "Pick", "Sampler", "State", "beam",
    "check_size", "collect", "greedy", "stream", "with_onednn",
]
# fmt: on
