"""The engine of the pages computes what PyTorch computes: Transformers with random weights over many settings."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import edit, record
from regard.attention import Memory
from regard.config import to_json
from regard.heads import ClassHeadConfig, LabelsHeadConfig, TagHeadConfig
from regard.models import BertConfig, GptConfig, HeadedConfig, TransformerConfig
from regard.models.parts import parts, path_of
from regard.recipes import KINDS
from regard.recording import attentions, observe, tape_name

LOGS, WEIGHTS = 1e-5, 2e-6  # the largest differences from PyTorch in double precision
WEB = Path(__file__).parents[2] / "web"
ESBUILD = WEB / "node_modules" / ".bin" / "esbuild"
SMALL = {"width": 16, "heads": 4, "layers": 2, "inner": 24, "context": 40}
GPT = GptConfig(vocab=19, **SMALL)
BERT = BertConfig(vocab=19, **SMALL)
PAIR = TransformerConfig(source_vocab=17, target_vocab=19, **SMALL)
T5 = replace(
    PAIR, source_vocab=19, norm="rms", epsilon=1e-6, attention_bias=False, feed_bias=False, score="dot",
    positions="t5", buckets=8, furthest=12, shared="all", scaled=False, readout_scale=0.0, head_width=6,
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
    "bert-pre": replace(
        BERT, norm_place="pre", embedding_norm=False, positions="t5", norm="rms", buckets=8, furthest=9
    ),
    "class": HeadedConfig(BERT, ClassHeadConfig(labels=3)),
    "class-gpt": HeadedConfig(GPT, ClassHeadConfig(labels=5)),
    "class-concat": HeadedConfig(BERT, ClassHeadConfig(labels=3, pool="concat", hidden="relu", inner=7)),
    "class-mean": HeadedConfig(replace(GPT, positions="t5"), ClassHeadConfig(labels=3, pool="mean", bias=True)),
    "class-electra": HeadedConfig(replace(BERT, outputs=("replaced",)), ClassHeadConfig(labels=3)),
    "class-pair": HeadedConfig(replace(T5, source_vocab=19), ClassHeadConfig(labels=2)),
    "labels": HeadedConfig(BERT, LabelsHeadConfig(labels=4, pool="max", hidden="none")),
    "tag": HeadedConfig(BERT, TagHeadConfig(labels=4)),
    "tag-gpt": HeadedConfig(GPT, TagHeadConfig(labels=4)),
    "transformer": PAIR,
    "transformer-post": replace(PAIR, norm_place="post", decoder_layers=1, decoder_heads=2, decoder_inner=40),
    "transformer-none": replace(PAIR, shared="none", positions="relative", furthest=5, gated=True, activation="gelu"),
    "transformer-shared": replace(PAIR, groups=1, layers=2, score="additive", positions="learned"),
    "marian": replace(
        PAIR, source_vocab=19, norm_place="post", shared="all", positions="sinusoidal-halves", activation="silu",
        readout_bias=True,
    ),
    "t5": T5,
    "t5-v1.1": replace(T5, activation="gelu-tanh", gated=True, shared="sides", readout_scale=1.0),
    "quick-gelu": replace(PAIR, activation="gelu-sigmoid", score="cosine", scaled=False, readout_scale=0.5),
}  # fmt: skip


@dataclass
class Run:
    """One text of a case, what is changed, and how many tokens each step reads."""

    tokens: list[int]
    source: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    heads: list[dict[str, Any]] = field(default_factory=list)
    masks: dict[str, Any] = field(default_factory=dict)
    score: str | None = None
    cell: dict[str, Any] | None = None


@dataclass
class Found:
    """What PyTorch computes: logits; weights, contexts and norms of values of every part and layer."""

    logits: Tensor
    reads: dict[tuple[str, int], dict[str, Tensor]]


def randomised(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The module with random weights that make attention sharp and norms uneven."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, one in module.named_parameters():
            if "norm" in name and name.endswith("weight"):
                one.normal_(1.0, 0.2)
            elif "sharpness" not in name:
                one.normal_(0.0, 0.3 if one.dim() == 1 else 1.0 / one.shape[-1] ** 0.5)
    return module.eval()


@torch.no_grad()
def pytorch(module: Any, run: Run) -> Found:
    """The logits and reads of a run, with the whole text read at once."""
    tokens, body = torch.tensor([run.tokens]), module.config.split()[0]
    contexts, norms, turns = dict[str, Tensor](), dict[str, Tensor](), Counter[str]()

    def seen(path: str, q: Tensor, memory: Memory, mask: Any, q_at: Any, k_at: Any, context: Tensor) -> None:
        name = tape_name(path, attentions(module)[path].shared_by, turns[path])
        turns[path] += 1
        values = memory.values[0]  # (H, Tk, D)
        out = module.get_submodule(path.removesuffix(".read")).out.weight.unflatten(1, (len(values), -1))
        contexts[name], norms[name] = context[0], torch.einsum("ohd,hkd->hko", out, values).norm(dim=-1)

    with record(module) as tape, observe(attentions(module), seen):
        if module.config.causal:
            source = torch.tensor([run.source]) if run.source else None
            features, _ = module.advance(tokens, module.start(source, rows=1, capacity=tokens.shape[1]))
            logits = module.readout(features)
        else:
            segments = torch.tensor([run.segments]) if run.segments and body.segment_kinds > 1 else None
            logits = module.readout(module.features(tokens, segments=segments))
    of = parts(module)
    reads = {
        (of[path_of(name)], tape.layer_number(name) or 0): {
            "weights": tape[name][0],
            "contexts": contexts[name],
            "norms": norms[name],
        }
        for name in tape
    }
    return Found(logits, reads)


def changed(module: Any, change: dict[str, Any]) -> dict[str, Any]:
    """The same change of a head for ``regard.edit``."""
    of = parts(module)
    path = [path for path, part in of.items() if part == change["part"]][change["layer"]]

    def function(weights: Tensor) -> Tensor:
        weights, head = weights.clone(), weights[:, change["head"]]
        if change["kind"] == "uniform":
            found = head.gt(0) / head.gt(0).sum(-1, keepdim=True)
        elif change["kind"] == "one-hot":
            found = torch.zeros_like(head).scatter_(-1, head.argmax(-1, keepdim=True), 1.0)
        else:
            found = torch.zeros_like(head)
        weights[:, change["head"]] = found
        return weights

    return {path: function}


def runs_of(module: Any, seed: int) -> list[Run]:
    """Texts of several lengths, each read at once, in steps, and with changes of heads."""
    rng = np.random.default_rng(seed)
    body = module.config.split()[0]
    made = []
    for length in (1, 9, 23):
        text = rng.integers(0, 17, length).tolist()
        source = rng.integers(0, 17, max(length - 2, 1)).tolist() if module.config.causal and body.reads_source else []
        segments = [int(at > length // 2) for at in range(length)] if body.segment_kinds > 1 else []
        strides = [length // 2, *[1] * (length - length // 2)] if length > 1 else [1]
        made.append(Run(text, source, segments, strides))
    if not (getattr(body, "groups", 0)):
        for kind, part in zip(("off", "uniform", "one-hot"), [*dict.fromkeys(parts(module).values())] * 3):
            heads = [{"kind": kind, "part": part, "layer": 0, "head": int(rng.integers(2))}]
            made.append(replace(made[1], heads=heads))
    if body.score in ("dot", "scaled_dot") and not getattr(body, "decoder_heads", 0):
        made.append(replace(made[1], score="dot" if body.score == "scaled_dot" else "scaled_dot"))
    return made


class Engine:
    """Cases that one Node process computes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cases = folder, list[dict[str, Any]]()
        self.weights = list[np.ndarray[Any, Any]]()
        self.size = 0

    def add(self, module: Any, runs: list[Run]) -> None:
        tensors = {}
        for name, one in module.state_dict().items():
            numbers = one.numpy().astype("<f4")
            tensors[name] = {"shape": list(numbers.shape), "offset": self.size}
            self.weights.append(numbers.ravel())
            self.size += numbers.size
        body, head = module.config.split()
        content = None if head is None else to_json(head.for_body(body), KINDS)
        config = to_json(body, KINDS)
        self.cases.append(
            {
                "family": config["kind"],
                "config": config,
                "head": content and {"name": content["kind"], "config": content},
                "tensors": tensors,
                "runs": [vars(run) for run in runs],
            }
        )

    def compute(self) -> list[list[dict[str, Any]]]:
        """The results of all runs of all cases."""
        np.concatenate(self.weights).tofile(self.folder / "weights.bin")
        (self.folder / "cases.json").write_text(json.dumps(self.cases))
        run = self.folder / "run.mjs"
        bundle = ["--bundle", "--platform=node", "--format=esm", f"--outfile={run}", "--log-level=error"]
        subprocess.run([ESBUILD, WEB / "parity" / "run.ts", *bundle], check=True)
        subprocess.run(["node", run, self.folder], check=True)
        found: list[list[dict[str, Any]]] = json.loads((self.folder / "results.json").read_text())
        return found


@dataclass
class Compared:
    """One run by PyTorch in single and in double precision, and by the engine."""

    name: str
    run: Run
    single: Found
    double: Found
    engine: dict[str, Any]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[Compared]:
    if shutil.which("node") is None or not ESBUILD.exists():
        pytest.skip("needs Node, and `npm ci` in web/")
    engine, known = Engine(tmp_path_factory.mktemp("engine")), []
    for name, config in MODELS.items():
        for seed in (1, 2):
            module = randomised(config.build(), seed)
            runs = runs_of(module, seed)
            engine.add(module, runs)
            singles = [by_pytorch(module, run) for run in runs]
            module.double()
            known.append(
                [(f"{name} {seed}", run, single, by_pytorch(module, run)) for run, single in zip(runs, singles)]
            )
    results = engine.compute()
    return [Compared(*one, found) for some, computed in zip(known, results) for one, found in zip(some, computed)]


def by_pytorch(module: Any, run: Run) -> Found:
    functions = {path: function for change in run.heads for path, function in changed(module, change).items()}
    with edit(module, functions), scored(module, run.score):
        return pytorch(module, run)


@contextmanager
def scored(module: Any, score: str | None) -> Iterator[None]:
    """Inside this block the scores of the model, which are products, have the scale of another one."""
    scores = [attention.score for attention in attentions(module).values()]
    before = [one.scale for one in scores] if score else []
    for one in scores if score else []:
        one.scale = 1.0 if score == "dot" else module.config.split()[0].head ** -0.5
    yield
    for one, scale in zip(scores, before):
        one.scale = scale


def logs(logits: Tensor, like: Tensor) -> Tensor:
    """The log-probabilities; of a detector, which has one output, the logits."""
    logits = logits.double().reshape(like.shape)
    return logits if like.shape[-1] == 1 else logits.log_softmax(-1)


def test_the_log_probabilities_are_those_of_pytorch(compared: list[Compared]) -> None:
    """PyTorch's own error in single precision is added where it is larger than the limit."""
    for one in compared:
        found = torch.tensor(one.engine["logs"], dtype=torch.double)
        if found.shape[-1] == 1:
            found = torch.tensor(one.engine["logits"], dtype=torch.double)
        single, double = logs(one.single.logits, found), logs(one.double.logits, found)
        near(found, double, LOGS, one.name, one.run)
        near(found, single, LOGS + worst(single, double), one.name, one.run)


def test_the_weights_contexts_and_norms_are_those_of_pytorch(compared: list[Compared]) -> None:
    for one in compared:
        reads = {(read["part"], read["layer"]): read for read in one.engine["reads"]}
        assert reads.keys() == one.single.reads.keys(), one.name
        for place, single in one.single.reads.items():
            double, found = one.double.reads[place], reads[place]
            for kind, limit in (("weights", WEIGHTS), ("contexts", LOGS), ("norms", LOGS)):
                exact = torch.tensor(found[kind], dtype=torch.double)
                near(exact, double[kind], limit, one.name, one.run, place, kind)
                own = worst(single[kind], double[kind])
                near(exact, single[kind], limit + own, one.name, one.run, place, kind)


def test_the_changes_and_the_other_score_matter(compared: list[Compared]) -> None:
    plain = {one.name: one for one in compared if len(one.run.tokens) == 9 and not (one.run.heads or one.run.score)}
    changed = [one for one in compared if one.run.heads or one.run.score]
    assert len(changed) > 100
    for one in changed:
        reads = [
            {(read["part"], read["layer"]): read["weights"] for read in each.engine["reads"]}
            for each in (plain[one.name], one)
        ]
        assert reads[0] != reads[1], f"{one.name}: {one.run}"


def worst(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b).abs().max())


def near(found: Tensor, known: Tensor, limit: float, *where: Any) -> None:
    assert found.shape == known.shape, where
    assert worst(known, found) < limit, (*where, worst(known, found))
