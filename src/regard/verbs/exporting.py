"""A trained model as another tool reads it: a directory of the `transformers` library, or of the `ctranslate2` engine.

The directory is written under another name beside its place and then renamed, so that it is whole or not there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers as rust
from tokenizers import processors

from regard.average import average as averaged
from regard.checkpoint import read_json, resolve, write_json
from regard.data.public_tokenizers import files_with_prefix
from regard.data.special_tokens import SpecialTokens
from regard.data.tokenizers import KINDS, Tokenizer
from regard.errors import UserError, nearest
from regard.pretrained import write_model
from regard.pretrained.ct2 import write_ct2
from regard.verbs.loaded import KINDS_OF, Loaded, load

TOOLS = ("transformers", "ctranslate2")
WHOLE = ("model.safetensors", "model.bin")  # one of them, beside config.json, is in every directory that we write
SPEECH = "generation_config.json"
SPOKEN = (  # settings of generation that older checkpoints keep in config.json
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id"),
    *("bad_words_ids", "num_beams", "max_length", "min_length", "length_penalty", "early_stopping"),
    *("no_repeat_ngram_size", "do_sample", "temperature", "top_k", "top_p"),
)
STALE = ("dtype", "torch_dtype", "transformers_version", "auto_map", "_name_or_path")  # true of the old files alone


@dataclass(frozen=True)
class Exported:
    """What was written, and where."""

    path: Path
    to: str
    kind: str  # the type of a public checkpoint (marian, gpt2 …); of the engine's models, transformer
    step: int  # of the run; 0 for a public checkpoint
    averaged: int  # so many steps of the run went into it
    files: tuple[str, ...]


def export(
    model: Loaded | str | Path,
    path: str | Path,
    to: str = "transformers",
    average: int = 0,
    overwrite: bool = False,
) -> Exported:
    """Write a model, or the one in a directory, where another tool will find it.

    With `average` the weights are the mean of so many of the newest steps of its run.
    """
    if to not in TOOLS:
        raise UserError(f"--to {to}: no such tool.{nearest(to, TOOLS)}")
    if average < 0:
        raise UserError(f"--average {average}: give 1 or more.")
    if not isinstance(model, Loaded):
        model = load(model, device="cpu")
    if average:
        model = _average(model, average)
    with _placed(Path(path), overwrite) as folder:
        kind = _to_transformers(model, folder) if to == "transformers" else _to_ctranslate2(model, folder)
        files = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    return Exported(Path(path), to, kind, model.step, average, tuple(files))


def _average(model: Loaded, count: int) -> Loaded:
    if model.recipe is None:
        raise UserError(f"--average {count}: {model.path} is a public checkpoint; only a run has steps to average.")
    step = resolve(model.path)
    module = model.module.config.build()
    module.load_state_dict(averaged(step.parents[2] if step.parent.name == ".old" else step.parents[1], count))
    return replace(model, module=module.to(model.device).eval())


@contextmanager
def _placed(path: Path, overwrite: bool) -> Iterator[Path]:
    """A folder to write in, which takes the name `path` when all went well, and is gone if not."""
    if os.path.lexists(path):
        if not overwrite:
            raise UserError(f"{path}: is there already; give another name, or say --overwrite.")
        if (
            path.is_symlink()
            or not (path / "config.json").is_file()
            or not any((path / one).is_file() for one in WHOLE)
        ):
            raise UserError(f"{path}: is no exported model, and is not overwritten; give another name.")
    path = Path(os.path.abspath(path))
    half, old = (path.with_name(f".{path.name}.{what}") for what in ("half", "old"))
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        yield half
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(path, old)
        os.rename(half, path)
    finally:
        shutil.rmtree(half, ignore_errors=True)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)


def _to_ctranslate2(model: Loaded, folder: Path) -> str:
    if model.module.task != "translate":
        what = KINDS_OF[model.module.task]
        raise UserError(
            f"{model.path}: --to ctranslate2 is for translators, and this is {what}; say --to transformers."
        )
    write_ct2(model.module, folder, model.tokenizer, model.target_tokenizer)
    _put_tokenizers(model, folder)
    return "transformer"


def _to_transformers(model: Loaded, folder: Path) -> str:
    settings = _settings(model)
    kind = write_model(model.module, folder, settings, _came_as(model))
    if model.module.task in ("translate", "language"):
        _put_speech(model, folder, settings)
    _put_tokenizers(model, folder)
    return kind


def _came_as(model: Loaded) -> str | None:
    """The type of the public checkpoint that a model is, or that its training started from; its tokenizer knows."""
    if model.public is not None:
        return str(model.public["model_type"])
    if model.vocabulary is None or model.vocabulary.kind in KINDS:
        return None
    return str(json.loads(model.vocabulary.serialize())["config"]["model_type"])


def _settings(model: Loaded) -> dict[str, Any]:
    """What config.json says beside the network's own settings: those it came with, or its special tokens."""
    if model.public is not None:
        return {name: value for name, value in model.public.items() if name not in STALE}
    special_tokens = model.target_tokenizer.special_tokens
    match model.module.task:
        case "translate":
            return {
                "decoder_start_token_id": special_tokens.bos,
                **_ids(special_tokens, special_tokens.bos, special_tokens.eos),
            }
        case "language":
            return _ids(special_tokens, special_tokens.bos, special_tokens.eos)
        case _:
            return _ids(special_tokens, special_tokens.prefix, special_tokens.suffix)


def _ids(special_tokens: SpecialTokens, first: int | None, last: int | None) -> dict[str, int | None]:
    return {"pad_token_id": special_tokens.pad, "bos_token_id": first, "eos_token_id": last}


def _put_speech(model: Loaded, folder: Path, settings: Mapping[str, Any]) -> None:
    """How the model is to generate: as it came, or as its special tokens say."""
    there = model.path / SPEECH
    if model.public is not None and there.is_file():
        write_json(folder / SPEECH, read_json(there))
        return
    speech = {name: settings[name] for name in SPOKEN if name in settings}
    if model.public is None:
        speech |= {"suppress_tokens": list(model.forbidden), "max_length": model.longest or 512}
    write_json(folder / SPEECH, speech)


def _put_tokenizers(model: Loaded, folder: Path) -> None:
    """The files of the tokenizer; where what is said has another one, that one's in target/."""
    if model.vocabulary is None:
        return
    read, said = (_handed(one, model) for one in (model.tokenizer, model.vocabulary))
    for place, files in ((folder, read), (folder / "target", said if said != read else {})):
        for name, data in files.items():
            place.mkdir(exist_ok=True)
            (place / name).write_bytes(data)


def _handed(tokenizer: Tokenizer, model: Loaded) -> dict[str, bytes]:
    """A tokenizer's files. One of ours is told what the model takes, and what stands around a text that it reads."""
    files = tokenizer.files()
    if tokenizer.kind not in KINDS:
        trained = model.module.task == "language" and model.public is None
        return files_with_prefix(tokenizer, *model.opening) if trained and model.opening else files
    inner = rust.Tokenizer.from_str(files["tokenizer.json"].decode())
    before, after = (
        [] if mark is None else [mark] for mark in (tokenizer.special_tokens.prefix, tokenizer.special_tokens.suffix)
    )
    if model.module.task == "language":
        before = model.opening
    if around := [*before, *after]:
        first, last = ([inner.id_to_token(mark) for mark in special_tokens] for special_tokens in (before, after))
        names = [(inner.id_to_token(mark), mark) for mark in around]
        pair = [*first, "$A", *last, "$B:1", *(f"{name}:1" for name in last)]
        inner.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last], pair=pair, special_tokens=names
        )
    settings = json.loads(files["tokenizer_config.json"])
    segments = ["token_type_ids"] if model.module.task == "fill" else []
    settings["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    settings["padding_side"] = "left" if model.module.task == "language" else "right"
    if model.longest is not None:
        settings["model_max_length"] = model.longest
    text = {"tokenizer.json": inner.to_str(pretty=True), "tokenizer_config.json": json.dumps(settings, indent=2)}
    return files | {name: one.encode() for name, one in text.items()}
