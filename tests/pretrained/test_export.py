"""Exported models in other tools: the same numbers, the same ids, the same sentences."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from references import CASES, Case, build

import regard
from regard import Penalty, file_io
from regard.checkpoint import save_step, set_pointer
from regard.config import to_json
from regard.data.fields import InputText, LabelField, TargetText
from regard.data.labelled import Labelled
from regard.data.public_tokenizers import read_tokenizers
from regard.data.sources import Lines, Pairs
from regard.data.streams import Book
from regard.data.tokenizers import OUR_SPECIAL_TOKENS, SpecialTokens, Tokenizer, train_tokenizer
from regard.errors import UserError
from regard.file_io import aside, load_tensors, save_tensors, write_json
from regard.heads import ClassHeadConfig
from regard.models import BertConfig, GptConfig, HeadedConfig, ModelConfig, TransformerConfig
from regard.objectives import Classification, MaskedTokens, TeacherForcing
from regard.pretrained.convert import deinterleave_sinusoids, untie_embeddings
from regard.pretrained.ct2 import write_ct2
from regard.pretrained.folder import CHECKPOINT_TYPES, read_model, read_settings, write_model
from regard.recipes import KINDS, Plan, Recipe, find_recipe
from regard.stored import recipe_json
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from saved import save_run
from tiny_public import LINES as TINY
from tiny_public import gpt2, marian

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SIZES = {"width": 12, "heads": 2, "layers": 2, "inner": 20, "context": 64, "dropout": 0.0}
SOURCES = ["ab ba", "abc cab", "bca", "a b c", "cc"]
TARGETS = ["xy yx", "xyz zxy", "yzx", "x y z", "zz"]
LINES = ["abc cab", "bca", "ab ba", "a b c", "cc a b"]
TRANSLATORS: dict[str, tuple[str, dict[str, Any]]] = {  # the checkpoint type that it is exported as, and its settings
    "pre": ("pegasus", {"shared": "target"}),
    "pre-joint": ("pegasus", {"shared": "all"}),
    "pre-separate": ("pegasus", {"shared": "none", "readout_bias": True, "activation": "gelu"}),
    "post": ("marian", {"shared": "target", "norm_place": "post"}),
    "post-joint": ("marian", {"shared": "all", "norm_place": "post", "scaled": False}),
    "post-sides": ("marian", {"shared": "sides", "norm_place": "post", "decoder_layers": 1, "decoder_heads": 3}),
    "explicit": (
        "marian",
        {"norm_place": "post", "decoder_layers": 2, "decoder_inner": 20, "head_width": 6, "furthest": 9},
    ),
    "t5": (
        "t5",
        {
            **{"positions": "t5", "norm": "rms", "epsilon": 1e-6, "attention_bias": False, "feed_bias": False},
            **{"score": "dot", "scaled": False, "shared": "all", "buckets": 8, "furthest": 12, "dropout": 0.2},
        },
    ),
    "odd": ("marian", {"width": 15, "heads": 3, "norm_place": "post", "positions": "sinusoidal-halves"}),
}


def randomize(module: torch.nn.Module, seed: int = 0, special_tokens: SpecialTokens = OUR_SPECIAL_TOKENS) -> None:
    """Make weights large enough that an error anywhere shows, and forbidden tokens improbable, as after training."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        if getattr(module, "readout_bias", None) is not None:
            module.readout_bias[
                [*special_tokens.forbidden, *([] if special_tokens.unk is None else [special_tokens.unk])]
            ] -= 30.0


def run_of(run: Path, config: ModelConfig, source: Tokenizer | None, target: Tokenizer) -> regard.Loaded:
    """A run whose only step is 7, with room for two more."""
    objective = MaskedTokens() if isinstance(config, BertConfig) else TeacherForcing()
    data = Lines() if source is None else Pairs()
    recipe = Recipe("tiny", "a tiny model", data, config, objective, Plan(keep=3), ("exact",))
    run.mkdir()
    write_json(run / "recipe.json", recipe_json(recipe, KINDS))
    add_step(run, 7, config, source, target)
    set_pointer(run, "best", 7)
    return regard.load(run, device="cpu")


def add_step(run: Path, step: int, config: ModelConfig, source: Tokenizer | None, target: Tokenizer) -> None:
    torch.manual_seed(step)
    module = config.build()
    randomize(module, step, target.special_tokens)
    files = {
        "model.json": to_json(config, KINDS),
        "weights.safetensors": lambda path: save_tensors(path, module.state_dict()),
        **({"fields/text.json": target.save} if source is None else {}),
        **({"fields/source.json": source.save, "fields/target.json": target.save} if source else {}),
    }
    save_step(run, step, files, keep=3)


@pytest.fixture
def translator(tmp_path: Path) -> Callable[..., regard.Loaded]:
    def make(tokens: str = "char", **settings: Any) -> regard.Loaded:
        joint = settings.get("shared") in ("all", "sides")
        texts = [SOURCES + TARGETS] * 2 if joint else [SOURCES, TARGETS[:2] if tokens == "word" else TARGETS]
        source, target = (train_tokenizer(tokens, lines, 40) for lines in texts)
        vocab = {"source_vocab": source.size, "target_vocab": target.size}
        return run_of(tmp_path / "run", TransformerConfig(**{**SIZES, **vocab, **settings}), source, target)

    return make


def opened(path: Path, auto: str) -> Any:
    model, report = getattr(transformers, auto).from_pretrained(path, output_loading_info=True)
    wrong = {what: found for what, found in report.items() if found}
    assert not wrong, wrong
    return model.eval()


DROPOUT = {"dropout": 0.1, "attention_dropout": 0.2}
PUBLIC_DROPOUT: dict[str, tuple[dict[str, float], dict[str, float]]] = {  # our settings, and theirs
    "gpt2": (DROPOUT, {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.2}),
    "openai-gpt": (DROPOUT, {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.2}),
    "t5": (
        {"dropout": 0.3, "attention_dropout": 0.3, "feed_dropout": 0.3, "output_dropout": 0.3},
        {"dropout_rate": 0.3},
    ),
    **dict.fromkeys(
        ("marian", "pegasus"),
        ({**DROPOUT, "feed_dropout": 0.3}, {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}),
    ),
    "distilbert": (DROPOUT, {"dropout": 0.1, "attention_dropout": 0.2}),
    **dict.fromkeys(
        ("bert", "roberta", "xlm-roberta", "albert", "electra"),
        (DROPOUT, {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}),
    ),
}


@pytest.mark.parametrize("name", CHECKPOINT_TYPES)
def test_each_dropout_is_written_under_its_name(name: str) -> None:
    kind, (ours, theirs) = CHECKPOINT_TYPES[name], PUBLIC_DROPOUT[name]
    written = kind.write_config(kind.config(**ours))
    assert theirs.items() <= written.items()


# -- to transformers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRANSLATORS)
@torch.no_grad()
def test_translators(name: str, translator: Callable[..., regard.Loaded], tmp_path: Path) -> None:
    kind, settings = TRANSLATORS[name]
    model = translator("word" if name in ("pre", "pre-separate") else "char", **settings)
    done = regard.export(model, tmp_path / "out")
    assert done.kind == kind
    theirs = opened(tmp_path / "out", "AutoModelForSeq2SeqLM")
    source, tokens = torch.tensor([[4, 5, 6, 4], [5, 4, 0, 0]]), torch.tensor([[1, 4, 5], [1, 5, 4]])
    found = theirs(input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=tokens).logits
    vocab = model.module.config.target_vocab
    expected = model.logits(tokens, source=source, source_real=source != 0)
    torch.testing.assert_close(found[..., :vocab], expected, atol=1e-4, rtol=0)
    if vocab < found.shape[-1]:  # the padding of a smaller vocabulary is never produced
        assert found[..., vocab:].max() < -1e8


@pytest.mark.parametrize("name", ["pre", "post-joint"])
def test_their_search_gives_the_same_tokens(
    name: str, translator: Callable[..., regard.Loaded], tmp_path: Path
) -> None:
    model = translator("char", **{**TRANSLATORS[name][1], "readout_bias": True})
    regard.export(model, tmp_path / "out")
    cut = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = opened(tmp_path / "out", "AutoModelForSeq2SeqLM")
    generated = theirs.generate(**cut(LINES, return_tensors="pt", padding=True), max_length=30, do_sample=False)
    ours = [[1, *one.tokens, *[2] * (one.ended == "end")] for one in regard.translate(model, LINES, limit=29)]
    assert [row[: len(one)] for row, one in zip(generated.tolist(), ours)] == ours
    assert all(set(row[len(one) :]) <= {0} for row, one in zip(generated.tolist(), ours))

    for stop, early in (("present", False), ("exact", "never")):  # False is the default of transformers
        given = cut(LINES, return_tensors="pt", padding=True)
        options = {"num_beams": 3, "length_penalty": 1.0, "early_stopping": early, "do_sample": False}
        found = theirs.generate(**given, **options, max_length=13).tolist()
        best = regard.translate(model, LINES, 3, penalty=Penalty(1.0, stop=stop), limit=12)
        ours = [[1, *one.tokens, *[2] * (one.ended == "end")] for one in best]
        assert [row[: len(one)] for row, one in zip(found, ours)] == ours


@pytest.mark.parametrize("name", TRANSLATORS)
def test_an_exported_model_is_read_back(name: str, translator: Callable[..., regard.Loaded], tmp_path: Path) -> None:
    """It has the same tokenizers on both sides and gives the same translations."""
    model = translator("word", **TRANSLATORS[name][1])
    regard.export(model, tmp_path / "out")
    again = regard.load(tmp_path / "out", device="cpu")
    assert again.source_tokenizer is not None
    for ours, theirs in ((model.tokenizer, again.tokenizer), (model.target_tokenizer, again.target_tokenizer)):
        assert (ours.display_names, ours.special_tokens) == (theirs.display_names, theirs.special_tokens)
    generated = [[one.text for one in regard.translate(each, LINES, limit=12)] for each in (model, again)]
    assert generated[0] == generated[1]


@pytest.mark.parametrize("tokens", ["char", "word", "bpe"])
def test_our_tokenizers_give_the_same_ids_there(
    tokens: str, translator: Callable[..., regard.Loaded], tmp_path: Path
) -> None:
    model = translator(tokens)
    regard.export(model, tmp_path / "out")
    places = {"": model.source_tokenizer, "target": model.target_tokenizer}
    for place, ours in places.items():
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", subfolder=place)
        for text in ["ab ba", "xyz zxy", " a\tb é\n", "", "ä😀 unseen"]:
            assert theirs(text, add_special_tokens=False).input_ids == ours.encode(text), text
        assert [theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id] == [0, 1, 2, 3]
    assert theirs.decode(ours.encode("xy yx")) == "xy yx"


def test_one_tokenizer_is_written_once(translator: Callable[..., regard.Loaded], tmp_path: Path) -> None:
    regard.export(translator(shared="all"), tmp_path / "out")
    assert not (tmp_path / "out" / "target").exists()
    about = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    special_tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    assert special_tokens.items() <= about.items()
    assert about["max_length"] == SIZES["context"]
    assert special_tokens.items() <= json.loads((tmp_path / "out" / "config.json").read_text()).items()


@torch.no_grad()
def test_a_language_model(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("bpe", SOURCES, 40)
    model = run_of(tmp_path / "run", GptConfig(**{**SIZES, "vocab": tokenizer.size}), None, tokenizer)
    assert regard.export(tmp_path / "run", tmp_path / "first").kind == "gpt2"
    regard.export(model, tmp_path / "out")
    theirs, tokens = opened(tmp_path / "out", "AutoModelForCausalLM"), torch.tensor([[1, 4, 5, 6]])
    torch.testing.assert_close(theirs(tokens).logits, model.logits(tokens), atol=1e-4, rtol=0)
    assert (theirs.generation_config.eos_token_id, theirs.generation_config.suppress_tokens) == (2, [0, 1, 3])
    again, cut = (
        regard.load(tmp_path / "out", device="cpu"),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out"),
    )
    prompts = ["ab", "c b", "bca a"]
    generated = [one.tokens for one in regard.generate(model, prompts, limit=9)]
    assert [one.tokens for one in regard.generate(again, prompts, limit=9)] == generated
    given = cut(prompts, return_tensors="pt", padding=True)
    assert (given["input_ids"] == 1).sum(1).tolist() == [1, 1, 1]  # each begins with bos, as the lines of the run do
    found = theirs.generate(**given, max_new_tokens=9, do_sample=False)[:, given["input_ids"].shape[1] :].tolist()
    assert [[token for token in row if token not in (0, 2)] for row in found] == generated
    totals = [[one.total for one in regard.score(each, prompts)] for each in (model, again)]
    np.testing.assert_allclose(*totals, atol=1e-4)
    np.testing.assert_allclose(*(regard.embed(each, prompts).vectors for each in (model, again)), atol=1e-4)
    with pytest.raises(UserError, match=r"--to ctranslate2 is for translators, and this is a language model"):
        regard.export(model, tmp_path / "engine", to="ctranslate2")
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("whole", [True, False])
def test_a_language_model_that_started_from_a_public_one(whole: bool, tmp_path: Path) -> None:
    """It was trained on lines that begin with bos, and the exported tokenizer adds bos."""
    gpt2(tmp_path / "public")
    if not whole:  # the older files, without tokenizer.json
        state = json.loads((tmp_path / "public" / "tokenizer.json").read_text(encoding="utf-8"))["model"]
        merges = [" ".join(pair) for pair in state["merges"]]
        (tmp_path / "public" / "vocab.json").write_text(json.dumps(state["vocab"]), encoding="utf-8")
        (tmp_path / "public" / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")
        (tmp_path / "public" / "tokenizer.json").unlink()
    public = regard.load(tmp_path / "public", device="cpu")
    model = run_of(tmp_path / "run", public.module.config, None, public.target_tokenizer)
    regard.export(model, tmp_path / "out")
    cut, again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), regard.load(tmp_path / "out")
    theirs, prompts = opened(tmp_path / "out", "AutoModelForCausalLM"), ["the grey heron", "a lantern"]
    generated = [one.tokens for one in regard.generate(model, prompts, limit=9)]
    assert [one.tokens for one in regard.generate(again, prompts, limit=9)] == generated
    assert public.opening == []
    for prompt, tokens in zip(prompts, generated):
        given = cut(prompt, return_tensors="pt")
        assert given["input_ids"][0].tolist() == [*model.opening, *model.tokenizer.encode(prompt)]
        found = theirs.generate(**given, max_new_tokens=9, do_sample=False)[0, given["input_ids"].shape[1] :].tolist()
        assert found[: len(tokens)] == tokens


def test_a_model_of_running_text_gets_no_special_tokens(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("char", SOURCES, 40)
    config = GptConfig(**{**SIZES, "vocab": tokenizer.size})
    run_of(tmp_path / "run", config, None, tokenizer)
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    write_json(tmp_path / "run" / "recipe.json", recipe | {"data": to_json(Book(), KINDS)})
    model = regard.load(tmp_path / "run", device="cpu")
    regard.export(model, tmp_path / "out")
    again, cut = (
        regard.load(tmp_path / "out", device="cpu"),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out"),
    )
    assert cut("ab")["input_ids"] == tokenizer.encode("ab")
    generated = [[one.tokens for one in regard.generate(each, ["ab", "c"], limit=9)] for each in (model, again)]
    assert generated[0] == generated[1]
    totals = [[one.total for one in regard.score(each, ["ab ba", "cab"])] for each in (model, again)]
    np.testing.assert_allclose(*totals, atol=1e-4)


@torch.no_grad()
def test_a_model_that_fills(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("word", SOURCES, 40, mask="[MASK]")
    config = BertConfig(**{**SIZES, "vocab": tokenizer.size, "positions": "learned", "mask": 4})
    model = run_of(tmp_path / "run", config, None, tokenizer)
    assert regard.export(model, tmp_path / "out").kind == "bert"
    theirs = opened(tmp_path / "out", "AutoModelForMaskedLM")
    given = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")("ab [MASK] cc", return_tensors="pt")
    ours = tokenizer.wrap_input(tokenizer.encode("ab [MASK] cc"))
    assert given.input_ids.tolist() == [ours]
    torch.testing.assert_close(theirs(**given).logits, model.logits(torch.tensor([ours])), atol=1e-4, rtol=0)


def test_a_public_one_keeps_its_type_ids_and_files(public: Callable[[str], Any], tmp_path: Path) -> None:
    made = public("xlm-roberta-plain")
    settings = json.loads((made.path / "config.json").read_text())
    write_json(made.path / "config.json", {**settings, "id2label": {"0": "mine"}, "torch_dtype": "float16"})
    regard.export(made.path, tmp_path / "out")
    about = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (about["model_type"], about["id2label"], about["dtype"]) == ("xlm-roberta", {"0": "mine"}, "float32")
    assert "torch_dtype" not in about
    made = public("marian-plain")
    regard.export(made.path, tmp_path / "marian")
    speech = [json.loads((path / "generation_config.json").read_text()) for path in (made.path, tmp_path / "marian")]
    assert speech[0] == speech[1]


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_a_head_that_equals_the_embedding(tied: bool, tmp_path: Path) -> None:
    """If the settings tie nothing, the head is untied even if its values are equal to the embedding."""
    reference = build(
        Case("gpt2", "AutoModelForCausalLM", {**CASES["gpt2-plain"].settings, "tie_word_embeddings": tied})
    )
    reference.lm_head.weight = torch.nn.Parameter(reference.transformer.wte.weight.clone())
    reference.save_pretrained(tmp_path / "in")
    model = regard.load(tmp_path / "in", device="cpu")
    assert model.module.config.tied is tied
    regard.export(model, tmp_path / "out")
    tokens = torch.tensor([[5, 6, 7]])
    found = opened(tmp_path / "out", "AutoModelForCausalLM")(tokens).logits
    torch.testing.assert_close(found, reference.eval()(tokens).logits, atol=1e-4, rtol=0)


@torch.no_grad()
def test_scores_that_are_not_scaled(tmp_path: Path) -> None:
    reference = build(
        Case("gpt2", "AutoModelForCausalLM", {**CASES["gpt2-plain"].settings, "scale_attn_weights": False})
    )
    reference.save_pretrained(tmp_path / "in")
    model, tokens = regard.load(tmp_path / "in", device="cpu"), torch.tensor([[5, 6, 7]])
    expected = reference.eval()(tokens).logits
    torch.testing.assert_close(model.logits(tokens), expected, atol=1e-4, rtol=0)
    regard.export(model, tmp_path / "out")
    found = opened(tmp_path / "out", "AutoModelForCausalLM")(tokens).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_a_run_that_started_from_a_public_one(tmp_path: Path) -> None:
    """It is exported with the original tokenizer files and as the original type."""
    spm = pytest.importorskip("sentencepiece")
    folder = tmp_path / "public"
    folder.mkdir()
    (tmp_path / "text").write_text("".join(f"{line} and {line[::-1]} again\n" for line in SOURCES * 40))
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(folder / "source"), vocab_size=20, minloglevel=3
    )
    (folder / "source.model").rename(folder / "source.spm")
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    (folder / "source.vocab").unlink()
    pieces = spm.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    names = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    last = len(names) - 1
    source, target = read_tokenizers(folder, {"model_type": "marian", "decoder_start_token_id": last})
    public = {"norm_place": "post", "positions": "sinusoidal-halves", "shared": "all", "readout_bias": True}
    config = TransformerConfig(**{**SIZES, "source_vocab": len(names), "target_vocab": len(names), **public})
    model = run_of(tmp_path / "run", config, source, target)
    done = regard.export(tmp_path / "run", tmp_path / "out")
    assert done.kind == "marian"
    for name in ("source.spm", "target.spm", "vocab.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    about = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (about["pad_token_id"], about["decoder_start_token_id"], about["eos_token_id"]) == (last, last, 0)
    again = regard.load(tmp_path / "out", device="cpu")
    assert again.tokenizer.encode("ab again") == model.tokenizer.encode("ab again")
    generated = [[one.tokens for one in regard.translate(each, LINES, limit=12)] for each in (again, model)]
    assert generated[0] == generated[1]
    ctranslate2_gives_the_same_tokens(model, tmp_path / "engine", pieces)


def test_the_settings_of_generation_survive_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are those of the checkpoint that a run started from, and `transformers` has nothing to say about them."""
    marian(tmp_path / "public")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in zip(TINY[:4] * 3, TINY[1:4] * 4)), encoding="utf-8")
    plan = ["plan.steps=1", "plan.batch_tokens=256", "plan.warmup=0", "plan.threads=1", "plan.device=cpu"]
    start = warm_start_from(tmp_path / "public")
    recipe, start = warm_started(find_recipe("translate"), [f"data.train={pairs}", *plan], start, tmp_path / "public")
    list(Run(recipe, tmp_path / "run", init=start))
    regard.export(tmp_path / "run", tmp_path / "out")
    for name, renamed in (("config.json", {"activation_function": "silu"}), ("generation_config.json", {})):
        before, after = (json.loads((tmp_path / place / name).read_text()) for place in ("public", "out"))
        del before["transformers_version"], after["transformers_version" if name != "config.json" else "dtype"]
        before.pop("dtype", None)
        assert after.pop("regard_version", None) == (regard.__version__ if name == "config.json" else None)
        assert after == before | renamed
    transformers.logging.set_verbosity_warning()
    transformers.logging.enable_propagation()
    try:
        theirs = opened(tmp_path / "out", "AutoModelForSeq2SeqLM")
        generated = theirs.generate(torch.tensor([[5, 6, 7, 0]]))
    finally:
        transformers.logging.disable_propagation()
        transformers.logging.set_verbosity_error()
    assert not caplog.records
    assert generated[0, 0] == theirs.config.pad_token_id


# -- equivalent networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"width": 12}, {"width": 15, "heads": 3, "gated": True, "norm": "rms"}])
@torch.no_grad()
def test_features_can_be_permuted(settings: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = TransformerConfig(**{**SIZES, "source_vocab": 9, "target_vocab": 11, **settings}).build().eval().double()
    randomize(model)
    permuted = deinterleave_sinusoids(model).double()
    assert permuted.config.positions == "sinusoidal-halves"
    source, tokens = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[1, 4, 10]])
    found, expected = (
        each.readout(each.advance(tokens, each.start(source, capacity=3))[0]) for each in (permuted, model)
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)  # the sinusoids themselves are single precision
    with torch.no_grad():  # without the permutation the same weights are another network
        plain = TransformerConfig(
            **{**SIZES, "source_vocab": 9, "target_vocab": 11, **settings, "positions": "sinusoidal-halves"}
        ).build()
        plain.load_state_dict(model.state_dict())
        other = plain.double().eval()
        wrong = other.readout(other.advance(tokens, other.start(source, capacity=3))[0])
    assert (wrong - expected).abs().max() > 1e-2


def test_untied_embeddings_have_one_vocabulary_size() -> None:
    model = TransformerConfig(**{**SIZES, "source_vocab": 9, "target_vocab": 6, "shared": "target"}).build()
    untied = untie_embeddings(model)
    assert (untied.config.shared, untied.config.source_vocab, untied.config.target_vocab) == ("none", 9, 9)
    assert untied.readout_bias is not None
    assert untied.readout_bias[:6].eq(0).all()
    assert untied.readout_bias[6:].lt(-1e8).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "additive"}, r"has no model\.score=additive"),
        ({"gated": True}, r"has no model\.gated=true"),
        ({"positions": "learned"}, r"model\.positions=learned"),
        ({"positions": "relative", "furthest": 8}, r"has no model\.positions=relative"),
        ({"head_width": 5}, r"model\.head_width=5"),
        ({"windows": (4,)}, r"model\.windows=4"),
    ],
)
def test_settings_that_no_public_type_has_are_named(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = TransformerConfig(**{**SIZES, "source_vocab": 9, "target_vocab": 9, "norm_place": "post", **settings})
    with pytest.raises(UserError, match=message):
        write_model(config.build(), tmp_path, {})


def test_settings_of_the_first_weights_are_left_out(tmp_path: Path) -> None:
    config = BertConfig(**SIZES, vocab=9, initial=None, mimetic=True)
    assert write_model(config.build(), tmp_path, {}) == "bert"
    assert read_model(tmp_path, read_settings(tmp_path)).config == replace(config, initial=0.02, mimetic=False)


def test_a_t5_with_a_copy_start_is_exported_as_any_other(tmp_path: Path) -> None:
    settings = {**SIZES, **TRANSLATORS["t5"][1], "source_vocab": 9, "target_vocab": 9, "copies": True}
    model = TransformerConfig(**settings).build()
    assert write_model(model, tmp_path, {}) == "t5"
    again = read_model(tmp_path, read_settings(tmp_path))
    assert not again.config.copies
    for name, tensor in model.state_dict().items():
        assert again.state_dict()[name].equal(tensor), name


def test_other_families_are_refused(language: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model=lstmn: no public checkpoint type has such a model"):
        regard.export(language, tmp_path / "out")
    assert os.listdir(tmp_path) == []


# -- the directory ----------------------------------------------------------------------------------------------------


def test_an_existing_directory_is_kept_without_overwrite(
    translator: Callable[..., regard.Loaded], tmp_path: Path
) -> None:
    model, out = translator(), tmp_path / "out"
    regard.export(model, out)
    with pytest.raises(
        UserError, match=r"out: is there already; give another name, or --overwrite \(in Python: overwrite=True"
    ):
        regard.export(model, out)
    (out / "target" / "tokenizer.json").write_text("old")
    regard.export(model, out, overwrite=True)
    assert (out / "target" / "tokenizer.json").read_text() != "old"
    regard.export(model, out, to="ctranslate2", overwrite=True)
    regard.export(model, out, overwrite=True)
    with pytest.raises(UserError, match="is no exported model, and is not overwritten"):
        regard.export(model, model.path, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["out", "run"]
    with pytest.raises(UserError, match=r"--to onnx .in Python: to.: no such tool"):
        regard.export(model, out, to="onnx")


def test_an_export_removes_what_a_killed_one_has_left_and_nothing_that_is_written(
    translator: Callable[..., regard.Loaded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = translator(), tmp_path / "out"
    regard.export(model, out)
    if (child := os.fork()) == 0:
        os.rename = lambda old, new: os._exit(9)  # type: ignore[assignment]
        regard.export(model, out, overwrite=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    (left,) = tmp_path.glob(".out.*")
    others = [tmp_path / ".out.notes", tmp_path / ".out.x.aside", tmp_path / ".outer.x.aside"]
    for other in others[:2]:
        other.write_text("")
    others[2].mkdir()
    with aside(out) as written:
        regard.export(model, out, overwrite=True)
        assert written.is_dir()
        assert not left.exists()
        monkeypatch.setattr(file_io, "lock_file", lambda handle, wait=True: True)  # a file system without locks
        regard.export(model, out, overwrite=True)
        assert written.is_dir()
    assert {*tmp_path.glob(".out*")} == {*others}


def test_a_folder_that_was_taken_for_a_leftover_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_file, made = file_io.lock_file, list[Path]()

    def lock(handle: int, wait: bool = True) -> bool:
        made.extend(tmp_path.iterdir())
        if len(made) == 1:
            made[0].rmdir()
        return lock_file(handle, wait)

    monkeypatch.setattr(file_io, "lock_file", lock)
    with aside(tmp_path / "out") as folder:
        assert folder.is_dir()
        assert folder != made[0]


@pytest.mark.parametrize("name", ["mine", "notes/mine", "target/mine", "vocab.json/mine"])
def test_only_the_files_of_an_export_are_overwritten(
    translator: Callable[..., regard.Loaded], tmp_path: Path, name: str
) -> None:
    model, out = translator(), tmp_path / "out"
    regard.export(model, out)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("kept")
    with pytest.raises(UserError, match=rf"out: has files that no export writes \(.*{name}\); move them, or give"):
        regard.export(model, out, overwrite=True)
    assert (out / name).read_text() == "kept"


@pytest.mark.parametrize("name", ["../../escaped", "{tmp}/escaped", "config.json", "model.safetensors", "run.py"])
def test_a_tokenizer_writes_only_the_files_of_tokenizers(tmp_path: Path, name: str) -> None:
    tokenizer, name = train_tokenizer("char", LINES, 40), name.format(tmp=tmp_path)
    model = run_of(tmp_path / "run", GptConfig(**SIZES, vocab=tokenizer.size), None, tokenizer)
    files = {**tokenizer.files(), name: b"{}"}
    fields = {"text": TargetText(replace(tokenizer, export_files=lambda: files))}
    with pytest.raises(UserError, match=rf"run: its tokenizer has a file '{name}', which is no file of a tokenizer"):
        regard.export(replace(model, fields=fields), tmp_path / "out")
    assert os.listdir(tmp_path) == ["run"]


def test_a_failure_leaves_the_old_directory(
    translator: Callable[..., regard.Loaded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = translator(), tmp_path / "out"
    regard.export(model, out)
    before = (out / "model.safetensors").read_bytes()
    unfit = TransformerConfig(**{**SIZES, "source_vocab": 9, "target_vocab": 9, "score": "cosine"}).build()
    with pytest.raises(UserError, match="score=cosine"):
        regard.export(regard.Loaded(model.path, unfit, model.device, model.fields), out, overwrite=True)
    rename, renamed = os.rename, list[Path]()

    def full(old: Path, new: Path) -> None:  # the new directory gets its name by the second call
        renamed.append(new)
        if len(renamed) == 2:
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(UserError, match="out: cannot be written: No space left on device"):
        regard.export(model, out, overwrite=True)
    assert (out / "model.safetensors").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["out", "run"]


def test_the_mean_of_the_newest_steps(
    translator: Callable[..., regard.Loaded], public: Callable[[str], Any], tmp_path: Path
) -> None:
    model = translator(norm_place="post", positions="sinusoidal-halves")
    for step in (8, 9):
        add_step(model.path, step, model.module.config, model.source_tokenizer, model.target_tokenizer)
    steps = [load_tensors(model.path / "steps" / f"00000{n}" / "weights.safetensors") for n in (8, 9)]
    assert regard.export(model.path, tmp_path / "out", average=2).averaged == 2
    written = load_tensors(tmp_path / "out" / "model.safetensors")["model.decoder.layers.0.fc1.weight"]
    name = "decoder.blocks.0.feed.up.weight"
    torch.testing.assert_close(written, (steps[0][name] + steps[1][name]) / 2)
    assert not torch.allclose(written, steps[1][name])
    with pytest.raises(UserError, match=r"--average 2 .* is a public checkpoint"):
        regard.export(public("gpt2-plain").path, tmp_path / "other", average=2)


# -- to ctranslate2 ---------------------------------------------------------------------------------------------------


def make_it_stop(model: regard.Loaded) -> None:
    """Raise the bias of eos until the translations of a random model end before the limit."""
    for _ in range(100):
        if max(len(one.tokens) for one in regard.translate(model, LINES, limit=20, align=False)) < 19:
            break
        model.module.readout_bias.data[model.target_tokenizer.special_tokens.eos] += 0.5


def ctranslate2_gives_the_same_tokens(model: regard.Loaded, folder: Path, pieces: Any = None) -> None:
    engine = pytest.importorskip("ctranslate2")
    make_it_stop(model)
    regard.export(model, folder, to="ctranslate2")
    names = json.loads(next(folder.glob("[st]*[rd]_vocabulary.json")).read_text()) if pieces else None
    if pieces is None:
        cut = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        generated = folder / "target" / "tokenizer.json"
        id_of = tokenizers.Tokenizer.from_file(
            str(generated if generated.exists() else folder / "tokenizer.json")
        ).token_to_id
        given = [cut.encode(line, add_special_tokens=False).tokens for line in LINES]
    else:
        id_of, given = names.index, [pieces.encode(line, out_type=str) for line in LINES]
    translator = engine.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    for beam, penalty, most in ((1, 1.0, 40), (4, 0.0, 40), (4, 0.6, 40), (4, 1.0, 40), (4, 1.0, 3)):
        search = {"beam_size": beam, "length_penalty": penalty, "patience": 100.0 if beam > 1 else 1.0}
        limits = {"max_decoding_length": most, "min_decoding_length": 0}
        found = translator.translate_batch(given, **search, **limits, return_scores=True)
        for one, ours in zip(found, regard.translate(model, LINES, beam, 1, Penalty(penalty, stop="exact"), most)):
            assert [id_of(name) for name in one.hypotheses[0]] == ours.tokens
            assert np.isclose(one.scores[0], ours.score, atol=1e-4)


def test_ctranslate2_reads_which_special_tokens_are_added_to_a_source(
    translator: Callable[..., regard.Loaded], tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2")
    model = translator()
    source, target = model.source_tokenizer, model.target_tokenizer
    assert source is not None
    size = model.module.config.source_vocab
    names = [*("< pad >", "< bos >", "< eos >", "< unk >")]
    for prefix, suffix in ((None, None), (None, 2), (1, None), (3, 2)):
        folder = tmp_path / f"{prefix} {suffix}"
        folder.mkdir()
        special = replace(source.special_tokens, prefix=prefix, suffix=suffix)
        write_ct2(model.module, folder, replace(source, special_tokens=special), target)
        found = json.loads((folder / "config.json").read_text())
        assert (found["add_source_bos"], found["add_source_eos"]) == (prefix is not None, suffix is not None)
        assert found["bos_token"] == names[1 if prefix is None else prefix]
        assert [found[name] for name in ("decoder_start_token", "eos_token", "unk_token")] == names[1:]
        assert found["layer_norm_epsilon"] == pytest.approx(model.module.config.epsilon)
        for vocabulary in folder.glob("*_vocabulary.json"):
            assert json.loads(vocabulary.read_text())[:4] == names
            assert len(json.loads(vocabulary.read_text())) in (size, model.module.config.target_vocab)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_place": "post", "shared": "all", "activation": "silu"},
        {"positions": "learned", "norm": "rms", "score": "dot", "shared": "none", "activation": "gelu-sigmoid"},
        {"gated": True, "activation": "gelu-tanh", "attention_bias": False, "decoder_layers": 1, "decoder_heads": 3},
        {"positions": "none", "shared": "sides", "scaled": False, "last_norm": False, "readout_scale": 0.2},
    ],
    ids=["pre", "post", "learned", "gated", "bare"],
)
def test_the_ctranslate2_gives_the_same_tokens(
    settings: dict[str, Any], translator: Callable[..., regard.Loaded], tmp_path: Path
) -> None:
    ctranslate2_gives_the_same_tokens(translator(readout_bias=True, **settings), tmp_path / "out")


@pytest.mark.parametrize("headed", [False, True], ids=["masked", "classifier"])
@torch.no_grad()
def test_a_roberta_with_a_tokenizer_of_ours_counts_positions_after_its_padding(headed: bool, tmp_path: Path) -> None:
    """transformers tells padding by its id: that of the tokenizer, not the one of the published RoBERTa."""
    tokenizer = train_tokenizer("char", LINES, 40, mask="[MASK]")
    body = BertConfig(**SIZES, vocab=tokenizer.size, segments=1, epsilon=1e-5, first_position=2, neighbours=True)
    fields: dict[str, Any] = {"text": InputText(tokenizer)}
    data: Any = Lines()
    objective: Any = MaskedTokens()
    config: Any = body
    if headed:
        fields["label"] = LabelField(("bad", "good"))
        head = ClassHeadConfig(labels=2).for_body(body)
        data, objective, config = Labelled(), Classification(), HeadedConfig(replace(body, outputs=()), head)
    recipe = Recipe("tiny", "a tiny RoBERTa", data, body, objective, Plan(), ())
    model = regard.load(save_run(tmp_path / "run", recipe, config, fields))
    assert regard.export(model, tmp_path / "out").kind == "roberta"
    auto = "AutoModelForSequenceClassification" if headed else "AutoModelForMaskedLM"
    theirs = opened(tmp_path / "out", auto)
    tokens = torch.tensor([[1, 5, 6, 7, 2], [1, 6, 2, 0, 0]])
    found = theirs(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
    for one in (model, regard.load(tmp_path / "out")):  # and back
        states = one.module.features(tokens, tokens != 0)
        ours = one.module.readout(states, tokens != 0, 1) if headed else one.module.readout(states)
        real = slice(None) if headed else tokens != 0
        torch.testing.assert_close(found[real], ours[real], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "additive"}, r"model\.score=additive: ctranslate2 has only scaled_dot, dot"),
        ({"positions": "relative"}, r"model\.positions=relative: ctranslate2 has only none"),
        ({"windows": (4,)}, r"model\.windows=4"),
        ({"head_width": 5}, r"model\.head_width=5"),
    ],
)
def test_settings_that_ctranslate2_lacks_are_named(
    settings: dict[str, Any], message: str, translator: Callable[..., regard.Loaded], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        regard.export(translator(**settings), tmp_path / "out", to="ctranslate2")
    assert os.listdir(tmp_path) == ["run"]
