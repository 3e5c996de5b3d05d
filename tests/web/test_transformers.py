"""The engine of a page computes what PyTorch computes: Transformers with random weights over many settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine import NODE, Case, answers
from torch import Tensor

from regard import edit, record
from regard.attention import Memory
from regard.data.fields import InputText, LabelField, LabelsField, MaskedText, TagsField, TargetText
from regard.data.joined import JoinedText
from regard.data.tokenizers import train_tokenizer
from regard.heads import ClassHeadConfig, LabelsHeadConfig, TagHeadConfig
from regard.mask import Mask
from regard.models import BertConfig, GptConfig, HeadedConfig, TransformerConfig
from regard.models.parts import parts, path_of
from regard.recording import attentions, observe, tape_name
from regard.render.formatting import visible
from regard.render.page_data import masked_ranges
from regard.render.view import AttentionView
from regard.tasks import CLASSIFY, LANGUAGE, MASKED, TASKS, TRANSLATE
from regard.verbs.loaded import Loaded
from regard.verbs.looking import look

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed"),
    pytest.mark.slow,
]  # `make journeys` runs it

LOGS, WEIGHTS = 1e-5, 2e-6  # the largest differences from PyTorch in double precision
LINES = ["3 février 2021", "12. März 1999", "2021-02-03", "a b c"]
TEXTS = ["7", "3 février 2021", "12. ?ärz 1999 a b c 2021"]
CHANGES = {"heads", "score", "masks"}
LOOKED = {"text": "3 février 2021", "second": "a b c"}
TOKENS = train_tokenizer("char", LINES, 300)
WITH_MASK = train_tokenizer("char", LINES, 300, mask="[MASK]")
SMALL: dict[str, Any] = {"width": 16, "heads": 4, "layers": 2, "inner": 24, "context": 60}
GPT = GptConfig(vocab=TOKENS.size, **SMALL)
BERT = BertConfig(vocab=WITH_MASK.size, **SMALL)
PAIR = TransformerConfig(source_vocab=TOKENS.size, target_vocab=TOKENS.size, **SMALL)
T5 = replace(
    PAIR, norm="rms", epsilon=1e-6, attention_bias=False, feed_bias=False, score="dot", positions="t5", buckets=8,
    furthest=12, shared="all", scaled=False, readout_scale=0.0, head_width=6,
)  # fmt: skip
MODELS: dict[str, Any] = {
    "gpt": GPT,
    "gpt-post": replace(GPT, norm_place="post", activation="gelu-tanh", scaled=True, tied=False),
    "gpt-windows": replace(GPT, windows=(0, 3), last_norm=False, positions="sinusoidal", layers=3),
    "gpt-relative": replace(GPT, positions="relative", furthest=4, activation="relu"),
    "gpt-t5": replace(GPT, positions="t5", buckets=6, furthest=20, activation="tanh"),
    "gpt-bare": replace(GPT, positions="none", residual=False, layers=1, attention_bias=False, feed_bias=False),
    "gpt-additive": replace(GPT, score="additive", positions="sinusoidal-halves"),
    "gpt-general": replace(GPT, score="general", head_width=6),
    "gpt-cosine": replace(GPT, score="cosine", gated=True, activation="silu"),
    "bert": BERT,
    "roberta": replace(BERT, segments=1, first_position=2, epsilon=1e-5, head_activation="gelu-tanh", tied=False),
    "albert": replace(BERT, embed=8, groups=1, layers=3, activation="gelu-tanh"),
    "albert-groups": replace(BERT, groups=2, group_blocks=2, layers=4, score="dot", windows=(2, 0, 1)),
    "bert-relative": replace(BERT, embed=8, positions="relative", furthest=3, segments=0),
    "bert-pre": replace(BERT, norm_place="pre", embedding_norm=False, positions="t5", norm="rms", furthest=20),
    "class-gpt": HeadedConfig(GPT, ClassHeadConfig(labels=3)),
    "class-concat": HeadedConfig(BERT, ClassHeadConfig(labels=3, pool="concat", hidden="relu", inner=7)),
    "class-mean": HeadedConfig(replace(GPT, positions="t5"), ClassHeadConfig(labels=3, pool="mean", bias=True)),
    "class-electra": HeadedConfig(replace(BERT, embed=8, outputs=("replaced",)), ClassHeadConfig(labels=3)),
    "class-t5": HeadedConfig(T5, ClassHeadConfig(labels=3)),
    "class-pair": HeadedConfig(BERT, ClassHeadConfig(labels=3)),
    "class-pair-one": HeadedConfig(replace(BERT, segments=1), ClassHeadConfig(labels=3)),
    "labels": HeadedConfig(BERT, LabelsHeadConfig(labels=3, pool="max", hidden="none")),
    "tag": HeadedConfig(BERT, TagHeadConfig(labels=3)),
    "tag-gpt": HeadedConfig(GPT, TagHeadConfig(labels=3)),
    "transformer": PAIR,
    "transformer-post": replace(PAIR, norm_place="post", decoder_layers=1, decoder_heads=2, decoder_inner=40),
    "transformer-none": replace(PAIR, shared="none", positions="relative", furthest=5, gated=True, activation="gelu"),
    "transformer-groups": replace(PAIR, groups=1, layers=2, score="additive", positions="learned"),
    "marian": replace(
        PAIR, norm_place="post", shared="all", positions="sinusoidal-halves", activation="silu", readout_bias=True
    ),
    "t5": T5,
    "t5-v1.1": replace(T5, activation="gelu-tanh", gated=True, shared="sides", readout_scale=1.0),
    "quick-gelu": replace(PAIR, activation="gelu-sigmoid", score="cosine", scaled=False, readout_scale=0.5),
}


def loaded(name: str, config: Any, seed: int) -> Loaded:
    """A model with random weights that make attention sharp and norms uneven."""
    torch.manual_seed(seed)
    module = config.build().eval()
    with torch.no_grad():
        for path, one in module.named_parameters():
            if "norm" in path and path.endswith("weight"):
                one.normal_(1.0, 0.2)
            elif "sharpness" not in path:
                one.normal_(0.0, 0.3 if one.dim() == 1 else 1.0 / one.shape[-1] ** 0.5)
    tokenizer = WITH_MASK if isinstance(config.split()[0], BertConfig) else TOKENS
    names = ("a", "b", "c")
    task, fields = {
        "transformer": (TRANSLATE, {"source": InputText(TOKENS), "target": TargetText(TOKENS)}),
        "gpt": (LANGUAGE, {"text": TargetText(tokenizer)}),
        "masked": (MASKED, {"text": MaskedText(tokenizer)}),
        "class": (CLASSIFY, {"text": InputText(tokenizer), "label": LabelField(names)}),
        "class-pair": (TASKS["pair"], {"text": JoinedText(tokenizer), "label": LabelField(names)}),
        "labels": (TASKS["labels"], {"text": InputText(tokenizer), "labels": LabelsField(names)}),
        "tag": (TASKS["tag"], {"text": InputText(tokenizer), "tags": TagsField(names)}),
    }[kind_of(name, config)]
    return Loaded(Path("untrained"), module, torch.device("cpu"), fields, given_task=task)


def kind_of(name: str, config: Any) -> str:
    if isinstance(config, HeadedConfig):
        return "class-pair" if name.startswith("class-pair") else name.partition("-")[0]
    return {GptConfig: "gpt", BertConfig: "masked", TransformerConfig: "transformer"}[type(config)]


def asks_of(name: str, model: Loaded, seed: int) -> list[dict[str, Any]]:
    """Texts of several lengths, read at once and in steps, with changes of heads, another score, and a traced cell."""
    config = model.module.config
    body, kind = config.split()[0], kind_of(name, config)
    more: list[dict[str, Any]] = {
        "transformer": [{"target": "2021-02-03"}, {"limit": 9}],
        "gpt": [{}, {"limit": 5}],
        "masked": [{"hidden": [0, 1]}],
        "class-pair": [{"second": "a b c 2021"}],
    }.get(kind, [{}])
    asks = [{"text": text, "top": 0, **one} for text in TEXTS for one in more]
    plain, there = asks[len(more)], list(dict.fromkeys(parts(model.module).values()))
    if not body.groups:  # `edit` would change all layers that share a module
        for number, part in enumerate(there, seed):
            head = {"part": part, "layer": 0, "head": number % 2, "kind": ("off", "uniform", "one-hot")[number % 3]}
            asks.append({**plain, "heads": [head]})
    if name == "transformer":  # at this step of decoding, the key is not there yet
        asks.append({**asks[len(more) + 1], "cell": {"part": "decoder", "layer": 0, "head": 1, "row": 3, "column": 5}})
    if name == "bert":  # the last one leaves nothing that the first token may look at
        masks: list[dict[str, Any]] = [{"columns": [2, 5]}, {"window": 2}, {"causal": True, "columns": [0]}]
        asks += [{**plain, "masks": one} for one in masks]
    if body.score in ("dot", "scaled_dot"):
        asks.append({**plain, "score": "dot" if body.score == "scaled_dot" else "scaled_dot"})
    return [*asks, *({**plain, "cell": {"part": part, "layer": 0, "head": 1, "row": 3, "column": 2}} for part in there)]


@dataclass
class Found:
    """What PyTorch computes: logits; weights, contexts and norms of values of every part and layer."""

    logits: Tensor
    reads: dict[tuple[str, int], dict[str, Tensor]] = field(default_factory=dict)


@torch.no_grad()
def pytorch(module: Any, source: list[int], tokens: list[int], segments: list[int]) -> Found:
    """The logits and reads of a text that is read at once."""
    contexts, norms, turns = dict[str, Tensor](), dict[str, Tensor](), Counter[str]()

    def seen(path: str, q: Tensor, memory: Memory, mask: Any, q_at: Any, k_at: Any, context: Tensor) -> None:
        name = tape_name(path, attentions(module)[path].shared_by, turns[path])
        turns[path] += 1
        values = memory.values[0]  # (H, Tk, D)
        out = module.get_submodule(path.removesuffix(".read")).out.weight.unflatten(1, (len(values), -1))
        contexts[name], norms[name] = context[0], torch.einsum("ohd,hkd->hko", out, values).norm(dim=-1)

    text = torch.tensor([tokens])
    with record(module) as tape, observe(attentions(module), seen):
        if module.config.causal:
            state = module.start(torch.tensor([source]) if source else None, rows=1, capacity=len(tokens))
            logits = module.readout(module.advance(text, state)[0])
        else:
            logits = module.readout(module.features(text, segments=torch.tensor([segments]) if segments else None))
    of, found = parts(module), Found(logits.reshape(-1, logits.shape[-1]))
    for name in tape:
        there = {"weights": tape[name][0], "contexts": contexts[name], "norms": norms[name]}
        found.reads[of[path_of(name)], tape.layer_number(name) or 0] = there
    return found


def changed(module: Any, change: dict[str, Any]) -> dict[str, Any]:
    """The same change of a head for ``regard.edit``."""
    path = [path for path, part in parts(module).items() if part == change["part"]][change["layer"]]

    def function(weights: Tensor) -> Tensor:
        weights, head = weights.clone(), weights[:, change["head"]]
        weights[:, change["head"]] = {
            "off": torch.zeros_like(head),
            "uniform": head.gt(0) / head.gt(0).sum(-1, keepdim=True),
            "one-hot": torch.zeros_like(head).scatter_(-1, head.argmax(-1, keepdim=True), 1.0),
        }[change["kind"]]
        return weights

    return {path: function}


@contextmanager
def scored(module: Any, score: str | None) -> Iterator[None]:
    """Inside this block the scores of the model, which are products, have the scale of another one."""
    read = {path: module.get_submodule(path.removesuffix(".read")) for path in attentions(module)} if score else {}
    before = {path: one.read.score.scale for path, one in read.items()}
    for one in read.values():
        one.read.score.scale = 1.0 if score == "dot" else one.head_width**-0.5
    yield
    for path, scale in before.items():
        read[path].read.score.scale = scale


@contextmanager
def masked(module: Any, masks: dict[str, Any] | None, length: int) -> Iterator[None]:
    """Inside this block a model that reads both ways has the masks of a question."""
    if not masks:
        yield
        return
    at = torch.arange(length)
    seen = (at[:, None] - at).abs() <= masks.get("window", length)
    seen[:, masks.get("columns", [])] = False
    if masks.get("causal"):
        seen &= at[:, None] >= at
    forward = module.stack.forward
    module.stack.forward = lambda x, real=None: forward(x, real, Mask(pairs=seen))
    yield
    del module.stack.forward


@dataclass
class Compared:
    """One answer of the engine, and the same by PyTorch in single and in double precision."""

    name: str
    case: Case
    ask: dict[str, Any]
    answer: dict[str, Any]
    single: Found
    double: Found


def by_pytorch(model: Loaded, ask: dict[str, Any], answer: dict[str, Any]) -> Found:
    """What PyTorch computes for the tokens that the engine read and predicted."""
    module, source, tokens, segments = model.module, list[int](), answer["source"]["ids"], list[int]()
    if module.config.causal and model.source_tokenizer:
        source, predicted = tokens, [token["id"] for token in answer["tokens"]]
        bos = model.target_tokenizer.special_tokens.bos
        tokens = [bos, *predicted[:-1]]
    elif module.config.causal:
        tokens = tokens[:-1]
    if model.joined_text is not None:
        (array,) = model.read_joined([(ask["text"], ask["second"])])
        assert array[:, 0].tolist() == tokens
        segments = array[:, 1].tolist() if module.config.segment_kinds > 1 else []
    functions = {path: one for change in ask.get("heads", ()) for path, one in changed(module, change).items()}
    with edit(module, functions), scored(module, ask.get("score")), masked(module, ask.get("masks"), len(tokens)):
        found = pytorch(module, source, tokens, segments)
    if model.task.head == "masked":
        found.logits = found.logits[[at for at, token in enumerate(tokens) if token == WITH_MASK.special_tokens.mask]]
    return found


Page = tuple[str, dict[str, Any], AttentionView]  # a case, the engine's answer, what `look` shows


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Compared], list[Page]]:
    """The answers to all questions, and for one question of each case what `look` shows."""
    cases, found, pages = list[Case](), list[Compared](), list[Page]()
    for seed, (name, config) in enumerate(MODELS.items()):
        model = loaded(name, config, seed)
        cases.append(Case(f"{name} {seed}", model, [*asks_of(name, model, seed), LOOKED]))
    for case, messages in zip(cases, answers(cases, tmp_path_factory.mktemp("engine"))):
        for ask, message in zip(case.asks, messages, strict=True):
            assert message["type"] == "answer", (case.name, ask, message)
        text = LOOKED["text"] if case.model.joined_text is None else (LOOKED["text"], LOOKED["second"])
        pages.append((case.name, messages[-1]["answer"], look(case.model, text)))
        given = [(ask, message["answer"]) for ask, message in zip(case.asks[:-1], messages)]
        singles = [by_pytorch(case.model, ask, answer) for ask, answer in given]
        case.model.module.double()
        doubles = [by_pytorch(case.model, ask, answer) for ask, answer in given]
        found += [Compared(case.name, case, *one, a, b) for one, a, b in zip(given, singles, doubles)]
    return found, pages


@pytest.fixture(scope="module")
def compared(everything: tuple[list[Compared], list[Page]]) -> list[Compared]:
    return everything[0]


def test_the_parts_layers_heads_and_masks_are_those_of_look(everything: tuple[list[Compared], list[Page]]) -> None:
    for name, answer, view in everything[1]:
        assert [part["name"] for part in answer["parts"]] == list(view.parts), name
        for part in answer["parts"]:
            for found, layer in zip(part["layers"], view.parts[part["name"]], strict=True):
                assert part["rows"] == [visible(piece) for piece in layer.rows or ()], name
                assert part["columns"] == [visible(piece) for piece in layer.columns or ()], name
                assert (found["number"], found["heads"]) == (layer.number, list(layer.head_numbers)), name
                assert found["masked"] == [masked_ranges(row) for row in layer.visible], name
                weights = np.reshape(found["weights"], layer.weights.shape)
                assert np.abs(weights - layer.weights).max() < 2 * WEIGHTS, name


def test_the_log_probabilities_are_those_of_pytorch(compared: list[Compared]) -> None:
    """PyTorch's own error in single precision is added where the engine is compared with it."""
    for one in compared:
        if one.case.model.task.head == "labels":
            (row,) = one.answer["candidates"]
            found = np.array([[token["score"] for token in sorted(row, key=lambda token: token["id"])]])
            single, double = (each.logits.double().sigmoid().log() for each in (one.single, one.double))
        else:
            found = np.array(one.answer["distributions"])
            single, double = (each.logits.double().log_softmax(-1) for each in (one.single, one.double))
        near(found, double, LOGS, one)
        near(found, single, LOGS + worst(single, double), one)


def test_the_weights_contexts_and_norms_are_those_of_pytorch(compared: list[Compared]) -> None:
    for one in compared:
        layers = {(part["name"], own["number"] or 0): own for part in one.answer["parts"] for own in part["layers"]}
        assert layers.keys() == one.single.reads.keys(), one.name
        for place, single in one.single.reads.items():
            double, found = one.double.reads[place], layers[place]
            for kind, limit in (("weights", WEIGHTS), ("contexts", LOGS), ("norms", LOGS)):
                if found[kind] is not None:
                    exact = np.reshape(found[kind], single[kind].shape)
                    near(exact, double[kind], limit, one, place, kind)
                    near(exact, single[kind], limit + worst(single[kind], double[kind]), one, place, kind)


def test_changes_of_heads_other_scores_and_masks_change_the_weights(compared: list[Compared]) -> None:
    plain = {(one.name, one.ask["text"]): weights_of(one) for one in compared if not CHANGES & one.ask.keys()}
    others = [one for one in compared if CHANGES & one.ask.keys()]
    assert len(others) > 60
    for one in others:
        assert weights_of(one) != plain[one.name, one.ask["text"]], (one.name, one.ask)


def test_every_line_of_a_trace_follows_from_those_above(compared: list[Compared]) -> None:
    traced = [one for one in compared if "cell" in one.ask]
    assert len(traced) > 40
    for one in traced:
        recompute(one)


def recompute(one: Compared) -> None:
    """Computes the lines of a trace again, as a reader of the page does with a calculator."""
    if one.name.startswith("transformer ") and one.ask["cell"]["column"] > one.ask["cell"]["row"]:
        assert one.answer["trace"]["lines"] == []
        return
    written = [(line["name"], np.array(line["values"], float)) for line in one.answer["trace"]["lines"]]
    lines, names, at = dict(written), [name for name, _ in written], one.ask["cell"]["column"]
    compared = [values for _, values in written[: names.index("Σ")]]
    if "tanh" in names:
        q, k, both, bent, v, product = compared[-6:]
        same(q + k, both, one)
        same(np.tanh(both), bent, one)
        same(v * bent, product, one)
    else:
        q, k, product = compared[-3:]
        same(q * k, product, one)
    total = lines["Σ"]
    same(product.sum(), total, one)
    scale = next((name for name in names if name[:2] in ("÷ ", "× ")), None)
    if scale is not None:
        number = float(scale[3:] if "√" in scale else scale[2:])
        total = total / math.sqrt(number) if "√" in scale else total * number
        same(total, lines[scale], one)
    if "bias" in names:
        total = total + lines["bias"]
        same(total, lines["+ bias"], one)
    same(total, lines["logits"][at], one)
    seen = lines.get("mask", lines["logits"])
    powers = np.exp(seen - seen.max())
    same(powers / powers.sum(), lines["softmax"], one)
    same(lines["softmax"][at] * lines["v"], lines["weight · v"], one)
    same(lines["weight · v"] + lines["the other keys"], lines["Σ over keys"], one)
    part, number, head, row = (one.ask["cell"][name] for name in ("part", "layer", "head", "row"))
    double = one.double.reads[part, number]
    same(double["contexts"][head, row].numpy(), lines["Σ over keys"], one, 1e-5)
    module = next(path for path, each in parts(one.case.model.module).items() if each == part)
    out = one.case.model.module.get_submodule(module.removesuffix(".read")).out.weight.detach()
    wide = double["contexts"].shape[-1]
    same(out[:, head * wide : (head + 1) * wide].numpy() @ lines["Σ over keys"], lines["W^O"], one)


def weights_of(one: Compared) -> list[Any]:
    return [layer["weights"] for part in one.answer["parts"] for layer in part["layers"]]


def worst(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b).abs().max())


def same(found: Any, line: Any, one: Compared, limit: float = 2e-6) -> None:
    difference = np.max(np.abs(found - line))
    assert difference < limit * max(1.0, float(np.max(np.abs(line)))), (one.name, one.ask, difference)


def near(found: Any, known: Tensor, limit: float, one: Compared, *where: Any) -> None:
    assert np.shape(found) == known.shape, (one.name, one.ask, *where)
    difference = worst(known, torch.tensor(found, dtype=torch.double)) if known.numel() else 0.0
    assert difference < limit, (one.name, one.ask, *where, difference)
