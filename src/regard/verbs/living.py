"""The model of a page that computes: its settings, tokenizers and weights, for the engine in `web/src/engine`.

Only what the engine reads is in it: no path, no data, no state of training. A model that the engine does not compute
stays a picture, and `Still` says why.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import to_json
from regard.data.batches import Batch, collate
from regard.data.detokenize import ConcatDetokenizer
from regard.data.fields import LabelField
from regard.data.joined import inputs_of
from regard.data.tokenizers import KINDS as OUR_KINDS
from regard.data.tokenizers import WORDS, Tokenizer
from regard.data.word_pieces import PieceText
from regard.models import reads_whole
from regard.models.parts import parts
from regard.recording import pause_recording
from regard.render.view_data import CHAINS, NO_ATTENTION, caption
from regard.verbs.forced import batch_of, joined_rows
from regard.verbs.loaded import Loaded
from regard.verbs.search import translate

MOST_PARAMETERS = 5_000_000  # of a model that a page computes
MOST_EXACT = 8_000_000  # bytes of float32; larger weights are embedded in float16
PREDICTS = ("target", "next", "masked", "class", "labels", "tag")  # what the engine can show
PLAIN = {"softmax": ("plain",), "numbers": (0,), "direction": ("forward",)}
POSITIONS = ("none", "sinusoidal", "sinusoidal-halves", "learned", "t5", "relative")
# Each family that the engine computes, and the values that it supports of those settings of which it has not all.
FAMILIES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "seq2seq": {},
    "recurrent": PLAIN,
    "structured": {},
    "transformer": {"positions": POSITIONS},
    "gpt": {**PLAIN, "positions": POSITIONS},
    "bert": {"positions": POSITIONS},
}
HEADS: Mapping[str, Mapping[str, Sequence[Any]]] = {"class": {}, "labels": {}, "tag": {}}  # the same of heads


@dataclass(frozen=True, eq=False)
class LiveModel:
    """A model for the engine: `data` is the `LiveModel` of web/src/data.ts, `weights` are the bytes of its tensors.

    `difference` is the largest difference of log-probabilities that float16 weights make on the texts of the page.
    """

    data: Mapping[str, Any]
    weights: bytes
    difference: float | None = None  # None: the weights are exact

    def base64(self) -> str:
        """The weights as text."""
        return base64.b64encode(self.weights).decode("ascii")

    @property
    def about(self) -> str:
        """The weights in words."""
        size = f"{len(self.weights) / 1e6:.1f} MB"
        if self.difference is None:
            return f"{self.data['parameters']:,} parameters in float32, {size}"
        change = f"log-probabilities on the texts of the page differ by at most {self.difference:.1g}"
        return f"{self.data['parameters']:,} parameters in float16, {size}: {change}"


@dataclass(frozen=True)
class Still:
    """Why a page does not compute."""

    why: str


def live_model(model: Loaded, texts: Sequence[str | tuple[str, ...]] = ()) -> LiveModel | Still:
    """The model for a page, or the reason why the page stays still.

    The effect of float16 weights is measured on `texts`, those of the page; a text of two parts is a tuple.
    """
    body, head = _settings(model)
    if why := _reason(model, body, head):
        return Still(why)
    tensors = _tensors(model)
    exact = 4 * sum(tensor.numel() for tensor in tensors.values()) <= MOST_EXACT
    difference = None if exact else _difference(model, texts)
    if difference is not None and not isfinite(difference):
        return Still("some of its weights are too large for float16")
    index, weights = _packed(tensors, np.dtype("<f4" if exact else "<f2"))
    data = {
        "family": body.pop("kind"),
        "config": body,
        "head": None if head is None else {"name": head.pop("kind"), "config": head},
        "predicts": model.task.head,
        "tokenizer": _tokenizer(model.target_tokenizer, model.forbidden),
        "source": None if model.source_tokenizer is None else _tokenizer(model.source_tokenizer, ()),
        "names": _names(model),
        "threshold": model.module.config.threshold,
        "pairs": model.joined_text is not None,
        **_limits(model),
        **_words(model),
        "tensors": index,
        "dtype": "float32" if exact else "float16",
        "parameters": model.parameter_count,
    }
    return LiveModel(data, weights, difference)


def computes(model: Loaded) -> bool:
    """Whether a page can compute this model."""
    return not _reason(model, *_settings(model))


def _settings(model: Loaded) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The settings of the model, or of the body and of the head above it, whose settings depend on the body."""
    config: Any = model.module.config
    whole = to_json(config, model.kinds)
    if whole["kind"] == "headed":
        body, head = whole["body"], to_json(config.head.for_body(config.body), model.kinds)
    else:
        body, head = whole, None
    body.pop("embedding", None)  # the path of a file, from which training started
    return body, head


def _reason(model: Loaded, body: Mapping[str, Any], head: Mapping[str, Any] | None) -> str:
    """Why the engine does not compute a model; empty: it does."""
    family, has = body["kind"], "the engine of a page has no"
    if model.long == "window":
        return "a page keeps the beginning of a text that is too long, and long=window its end"
    if model.parameter_count > MOST_PARAMETERS:
        most = f"a page computes models of up to {MOST_PARAMETERS:,}"
        return f"{model.parameter_count:,} parameters; {most}"
    if family not in FAMILIES:
        return f"{has} {family}"
    if head is not None and head["kind"] not in HEADS:
        return f"{has} head {head['kind']}"
    for settings, supported in ((body, FAMILIES[family]), (head or {}, HEADS.get((head or {}).get("kind", ""), {}))):
        for name, values in supported.items():
            if settings[name] not in values:
                return f"{has} {name}={settings[name]}"
    if model.task.head not in PREDICTS or not model.predicts(model.task.head):
        return f"{has} output of {model.kind}"
    if model.joined_text is not None and (why := _unlike_a_pair(model)):
        return f"{has} {why}"
    for tokenizer in {id(one): one for one in (model.source_tokenizer, model.target_tokenizer) if one}.values():
        if tokenizer.kind not in OUR_KINDS:
            return f"{has} public tokenizer ({tokenizer.kind})"
        if tokenizer.special_tokens.sentinels:
            return f"{has} tokens of hidden spans"
    split = [each for each in model.fields.values() if isinstance(each, PieceText) and each.tokenizer.kind not in WORDS]
    if model.task.head == "tag" and split:
        return f"{has} tags of words that are read in pieces ({split[0].tokenizer.kind})"
    return ""


def _unlike_a_pair(model: Loaded) -> str:
    """How a model that joins texts differs from one that reads two texts in one order; empty: it does not."""
    if len(model.part_columns) != 2:
        return "joined texts of one part"
    return "pairs of texts in both orders" if len(inputs_of(model.joined_value(("a", "b")))) > 1 else ""


def _tensors(model: Loaded) -> dict[str, Tensor]:
    """The tensors of the state that are numbers with a fraction."""
    return {name: tensor for name, tensor in model.module.state_dict().items() if tensor.is_floating_point()}


def _packed(tensors: Mapping[str, Tensor], dtype: np.dtype[Any]) -> tuple[dict[str, Any], bytes]:
    """The place of each tensor, in numbers, and the bytes, low byte first; what two names share is there once."""
    index, chunks, places, offset = dict[str, Any](), list[bytes](), dict[tuple[int, torch.Size], int](), 0
    for name, tensor in tensors.items():
        key = tensor.data_ptr(), tensor.shape
        if key not in places:
            places[key] = offset
            chunks.append(tensor.detach().float().cpu().numpy().astype(dtype).tobytes())
            offset += tensor.numel()
        index[name] = {"shape": list(tensor.shape), "offset": places[key]}
    return index, b"".join(chunks)


def _batch(model: Loaded, text: str | tuple[str, ...]) -> Batch:
    """A batch of one text, with the target that a translator gives it."""
    if model.joined_text is not None:
        return collate(joined_rows(model, model.read_joined([model.joined_value(text)])), model.task)
    assert isinstance(text, str), "a model of one text"
    if model.source_tokenizer is None:
        return batch_of(model, [([], model.read([text])[0])])
    (best,) = translate(model, [text], align=False)
    return batch_of(model, [(best.source_tokens, best.tokens)])


@torch.no_grad()
def _difference(model: Loaded, texts: Sequence[str | tuple[str, ...]]) -> float:
    """The largest difference of log-probabilities between float32 and float16 weights on these texts.

    Another thread may use the model: it is copied, and the weights of the copy are rounded.
    """
    with pause_recording(model.module):
        batches = [_batch(model, text) for text in texts]
        rounded = replace(model, module=deepcopy(model.module))
        for tensor in _tensors(rounded).values():
            tensor.copy_(tensor.half())
        pairs = zip(_outputs(model, batches), _outputs(rounded, batches))
        return max((float((one - other).abs().max()) for one, other in pairs), default=0.0)


def _outputs(model: Loaded, batches: Sequence[Batch]) -> list[Tensor]:
    """The log-probabilities of each batch, in float32."""
    return [model.module(batch.to(model.device)).float().log_softmax(-1) for batch in batches]


def _names(model: Loaded) -> list[str]:
    """The names of the classes or tags."""
    return next((list(each.names) for each in model.fields.values() if isinstance(each, LabelField)), [])


def _limits(model: Loaded) -> dict[str, Any]:
    """The most tokens of a text or source, and of a target (`Loaded.fit_context`, `search.best_targets`)."""
    config, special = model.module.config, model.tokenizer.special_tokens
    around = len(special.wrap_input([])) if reads_whole(config) else int(special.bos is not None)
    most = config.longest_target
    return {
        "longest": None if config.longest is None else max(config.longest - around, 0),
        "limit": None if most is None else max(1, most - 1),
    }


def _words(model: Loaded) -> dict[str, Any]:
    """What a page says of the parts and steps of this model."""
    config, names = model.module.config, list(dict.fromkeys(parts(model.module).values()))
    chain = CHAINS[config.query] if names else NO_ATTENTION
    return {
        "rows": list(config.attention_rows),
        "chain": [[stage.shows, stage.title, stage.note] for stage in chain],
        "captions": {name: [caption(name), caption(name, "the left", "the right")] for name in ("", *names)},
    }


def _tokenizer(tokenizer: Tokenizer, forbidden: Sequence[int]) -> dict[str, Any]:
    """The `TokenizerData` of web/src/data.ts."""
    state, detokenizer = json.loads(tokenizer.serialize()), tokenizer.detokenizer
    assert isinstance(detokenizer, ConcatDetokenizer), "our own kinds have no other"
    vocab, special = state["model"]["vocab"], tokenizer.special_tokens
    roles = ("pad", "bos", "eos", "unk", "mask", "prefix", "suffix", "separator", "second_segment")
    return {
        "kind": tokenizer.kind,
        "vocab": sorted(vocab, key=vocab.__getitem__),
        "merges": state["model"].get("merges", []),
        "display": list(tokenizer.display_names),
        "surfaces": [surface.decode("utf-8", errors="surrogateescape") for surface in detokenizer.surfaces],
        "special": {role: getattr(special, role) for role in roles},
        "forbidden": list(forbidden),
        "direction": tokenizer.direction,
    }
