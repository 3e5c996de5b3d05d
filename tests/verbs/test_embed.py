"""Embed: the mean of real states, the first, or all; as a directory of sentence-transformers asks for it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard import UserError, embed, export, load
from regard.verbs import Loaded
from regard.verbs.pooling import Pooling, pooling_of, transformer_folder
from tiny_public import bert, gpt2, transformers

TEXTS = ["The grey heron", "", "rain fell on the tin roof all through the night", "a", "the old harbour door"]


@pytest.fixture(scope="module")
def berts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("bert")
    return folder, bert(folder)


@pytest.fixture(scope="module")
def model(berts: tuple[Path, Any]) -> Loaded:
    return load(berts[0], device="cpu")


def sentences(
    root: Path, pooling: dict[str, Any], place: str = "", normal: bool = False, limits: dict[str, Any] | None = None
) -> Path:
    """A directory as `sentence-transformers` writes it, around a tiny BERT."""
    bert(root / place)
    kinds = [("Transformer", place), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] if normal else [])]
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(kinds)
    ]
    (root / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (root / "1_Pooling").mkdir()
    (root / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    if limits is not None:
        (root / place / "sentence_bert_config.json").write_text(json.dumps(limits), encoding="utf-8")
    return root


MEAN = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
FIRST = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def reference(folder: Path, body: Any, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """The states of a padded batch, and which of them are real."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        return body(**ids).last_hidden_state, ids["attention_mask"].bool()


def test_means_firsts_and_tokens_are_the_references(berts: tuple[Path, Any], model: Loaded) -> None:
    states, real = reference(berts[0], berts[1].bert, TEXTS)
    mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    most = states.masked_fill(~real[..., None], -1e9).amax(1)
    expected = {"mean": mean, "first": states[:, 0], "cls": states[:, 0], "max": most, "tokens": states[real]}
    for pool, vectors in expected.items():
        for normalise in (False, True):
            found = embed(model, TEXTS, pool, normalise)
            wanted = F.normalize(vectors, dim=-1) if normalise else vectors
            assert found.vectors.dtype == np.float32
            np.testing.assert_allclose(found.vectors, wanted, atol=1e-4)
            assert found.lengths.tolist() == (real.sum(1).tolist() if pool == "tokens" else [1] * len(TEXTS))
    np.testing.assert_array_equal(embed(model, TEXTS).vectors, embed(model, TEXTS, "mean", False).vectors)


@pytest.mark.parametrize("pool", ["mean", "first", "max", "tokens"])
@pytest.mark.parametrize("kind", ["bert", "gpt2", "language", "translator", "classifier"])
def test_order_and_company_change_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, translator: Callable[..., Path], kind: str, pool: str
) -> None:
    make = {"bert": bert, "gpt2": gpt2}
    if kind in make:
        make[kind](tmp_path)
    path = tmp_path if kind in make else translator() if kind == "translator" else request.getfixturevalue(kind)
    model = load(path, device="cpu", long="truncate")
    if pool == "first" and "next" in model.module.config.predicts:
        with pytest.raises(UserError, match="pool=first"):
            embed(model, TEXTS, pool)
        return
    together = embed(model, TEXTS, pool, batch_tokens=64)
    assert together.vectors.shape == (together.lengths.sum(), model.module.config.width)
    assert np.isfinite(together.vectors).all()
    ends = together.lengths.cumsum()
    for row, text in enumerate(TEXTS):
        alone = embed(model, [text], pool)
        np.testing.assert_allclose(
            alone.vectors, together.vectors[ends[row] - together.lengths[row] : ends[row]], atol=1e-5
        )
    assert embed(model, [], pool).vectors.shape == (0, model.module.config.width)


def test_a_translator_gives_the_states_of_its_source(translator: Callable[..., Path]) -> None:
    model = load(translator(), device="cpu")
    tokens = torch.tensor([model.tokenizer.encode("abc")])
    state = model.module.start(tokens)
    np.testing.assert_allclose(embed(model, ["abc"], "tokens").vectors, state.memory.values[0].detach(), atol=1e-6)


@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_the_settings_of_sentence_transformers(tmp_path: Path, place: str) -> None:
    limits = {"max_seq_length": 6, "do_lower_case": True}
    root = sentences(tmp_path, FIRST, place, normal=True, limits=limits)
    assert transformer_folder(root) == root / place
    assert pooling_of(root / place) == Pooling("first", True, longest=6, lower=True)
    model = load(transformer_folder(root), device="cpu", long="truncate")
    body = transformers.AutoModel.from_pretrained(root / place).eval()
    states, _ = reference(root / place, body, ["the grey", "rain fell on the"])  # four tokens and two marks
    found = embed(model, ["THE grey", "rain fell on the tin roof"])
    np.testing.assert_allclose(found.vectors, F.normalize(states[:, 0], dim=-1), atol=1e-4)
    plain = embed(model, ["the grey"], "mean", normalise=False)
    assert np.linalg.norm(plain.vectors) != pytest.approx(1.0, abs=1e-3)
    with pytest.raises(UserError, match="line 1: 6 tokens, but the model reads at most 4"):
        embed(load(transformer_folder(root), device="cpu"), ["rain fell on the tin roof"])


def test_tokens_past_the_limit_are_cut() -> None:
    for long, kept in (("truncate", {5: [1, 2, 3], 3: [1, 2, 3], 2: [1, 2], 0: []}), ("window", {2: [2, 3], 0: []})):
        model: Any = SimpleNamespace(long=long)
        assert {most: Loaded.cut(model, [1, 2, 3], most, "line 1") for most in kept} == kept
        assert Loaded.cut(model, [1, 2, 3], None, "line 1") == [1, 2, 3]
    with pytest.raises(UserError, match="line 7: 3 tokens, but the model reads at most 0"):
        Loaded.cut(SimpleNamespace(long="error"), [1, 2, 3], 0, "line 7")  # type: ignore[arg-type]


def test_the_prompt_is_the_default_one_if_there_is_one(tmp_path: Path) -> None:
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (tmp_path / "1_Pooling").mkdir()
    for prompts, included, prefix in (
        ({"prompts": {"query": "q: "}}, False, ""),  # no prompt, so that none is left out
        ({"prompts": {"query": "q: "}, "default_prompt_name": "query"}, True, "q: "),
        ({"prompts": {"query": "q: "}, "default_prompt_name": "other"}, True, ""),
        ({"prompts": None, "default_prompt_name": None}, True, ""),
        (
            {"prompts": {"query": "q: "}, "default_prompt_name": "query"},
            False,
            "include_prompt=false: is not supported",
        ),
        ({"prompts": {"query": 3}, "default_prompt_name": "query"}, True, "prompts should have a text for each name"),
        ({"prompts": ["q"], "default_prompt_name": "query"}, True, "prompts should have a text for each name"),
        ({"default_prompt_name": 3}, True, "prompts should have a text for each name"),
    ):
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
        pooling = {"pooling_mode_mean_tokens": True, "include_prompt": included}
        (tmp_path / "1_Pooling/config.json").write_text(json.dumps(pooling), encoding="utf-8")
        if " " in prefix and ":" not in prefix[:2]:
            with pytest.raises(UserError, match=prefix):
                pooling_of(tmp_path)
        else:
            assert pooling_of(tmp_path) == Pooling("mean", prefix=prefix)


def test_a_prompt_of_the_models_own(tmp_path: Path) -> None:
    root = sentences(tmp_path, MEAN)
    settings = {"prompts": {"query": "the ", "passage": ""}, "default_prompt_name": "query"}
    plain = embed(load(root, device="cpu"), ["the heron"]).vectors
    (root / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")
    np.testing.assert_array_equal(embed(load(root, device="cpu"), ["heron"]).vectors, plain)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"pooling_mode_mean_tokens": False, "pooling_mode_mean_sqrt_len_tokens": True},
            "pooling_mode_mean_sqrt_len_tokens: not supported",
        ),
        ({"pooling_mode_cls_token": True}, "should be one pooling mode"),
        ({"pooling_mode_mean_tokens": False}, "no pooling"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode": "weightedmean"}, "pooling_mode_weightedmean"),
        ({"pooling_mode": 5}, "pooling_mode_5: not supported"),
        ({"pooling_mode": [["mean"]]}, "not supported"),
    ],
)
def test_poolings_that_we_lack(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    root = sentences(tmp_path, {**MEAN, **change})
    with pytest.raises(UserError, match=told):
        embed(load(root, device="cpu"), ["a"])


def test_modules_that_we_lack(tmp_path: Path) -> None:
    root = sentences(tmp_path, MEAN)
    listed = json.loads((root / "modules.json").read_text(encoding="utf-8"))
    listed.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (root / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    with pytest.raises(UserError, match="Dense: not supported"):
        embed(load(root, device="cpu"), ["a"])
    (root / "modules.json").write_text(json.dumps(listed[1:2]), encoding="utf-8")
    with pytest.raises(UserError, match="should be Transformer, Pooling"):
        embed(load(root, device="cpu"), ["a"])
    (root / "modules.json").write_text(json.dumps([listed[0], *listed[:2]]), encoding="utf-8")
    with pytest.raises(UserError, match="Transformer, Transformer, Pooling: should be Transformer, Pooling"):
        embed(load(root, device="cpu"), ["a"])
    (root / "modules.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="should be a list of modules"):
        embed(load(root, device="cpu"), ["a"])


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("place", ["../other", "/etc", "1_Pooling/../..", "1_Pooling\0"])
def test_modules_outside_the_directory_are_refused(tmp_path: Path, kind: int, place: str) -> None:
    listed = [{"type": f"models.{kind}", "path": ""} for kind in ("Transformer", "Pooling")]
    listed[kind]["path"] = place
    (tmp_path / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    with pytest.raises(UserError, match=rf"modules\.json: path={re.escape(repr(place))}: is outside the directory"):
        pooling_of(tmp_path)


def test_a_newer_file_names_its_pooling(tmp_path: Path) -> None:
    assert pooling_of(sentences(tmp_path / "cls", {"pooling_mode": "cls"})).pool == "first"
    assert pooling_of(sentences(tmp_path / "max", {"pooling_mode": "max"})).pool == "max"


@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_an_export_keeps_the_settings_of_sentence_transformers(tmp_path: Path, place: str) -> None:
    limits = {"max_seq_length": 6, "do_lower_case": True}
    root = sentences(tmp_path / "in", FIRST, place, normal=True, limits=limits)
    prompts = {"prompts": {"query": "the "}, "default_prompt_name": "query"}
    (root / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    (root / ".cache").mkdir()
    for name in ("README.md", ".cache/README.md"):  # files of hidden folders are not named
        (root / name).write_text("A model.", encoding="utf-8")
    before = load(root, device="cpu", long="truncate")
    done = export(load(root, device="cpu"), tmp_path / "out")
    assert done.left_out == ("README.md",)
    assert pooling_of(tmp_path / "out") == pooling_of(root / place) == Pooling("first", True, 6, True, "the ")
    after = load(tmp_path / "out", device="cpu", long="truncate")
    np.testing.assert_array_equal(embed(after, TEXTS).vectors, embed(before, TEXTS).vectors)
    np.testing.assert_allclose(np.linalg.norm(embed(after, TEXTS).vectors, axis=1), 1.0, atol=1e-5)
    modules = json.loads((tmp_path / "out" / "modules.json").read_text(encoding="utf-8"))
    assert [one["path"] for one in modules] == ["", "1_Pooling", "2_Normalize"]
    assert [one["type"].rpartition(".")[2] for one in modules] == ["Transformer", "Pooling", "Normalize"]
    assert json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text(encoding="utf-8")) == FIRST
    export(before, tmp_path / "out", overwrite=True)  # all of these are files of an export


def test_an_export_names_the_modules_that_it_lacks(tmp_path: Path) -> None:
    root = sentences(tmp_path / "in", MEAN)
    listed = json.loads((root / "modules.json").read_text(encoding="utf-8"))
    listed.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (root / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    assert export(root, tmp_path / "out").left_out == ("1_Pooling/config.json", "modules.json")


def test_a_choice_that_does_not_exist(model: Loaded) -> None:
    with pytest.raises(UserError, match=r'pool=meen: no such choice. Did you mean "mean"'):
        embed(model, ["a"], "meen")
    with pytest.raises(UserError, match="pass a list"):
        embed(model, "a")
