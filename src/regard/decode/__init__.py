"""Decoding: one `stream` and one `beam` for every model that can take a step."""

from regard.decode.beam_search import Hypotheses, beam, check_penalty, check_size
from regard.decode.cuda_graph import CapturedDecoder
from regard.decode.onednn import OneDnnDecoder, onednn_usable
from regard.decode.sample import Pick, Sampler, collect, greedy, stream
from regard.decode.state import PAD, Advancing, Decoder, State

__all__ = [
    "PAD",
    "Advancing",
    "CapturedDecoder",
    "Decoder",
    "Hypotheses",
    "OneDnnDecoder",
    "Pick",
    "Sampler",
    "State",
    "beam",
    "check_penalty",
    "check_size",
    "collect",
    "greedy",
    "onednn_usable",
    "stream",
]
