"""Export: writes a model as a directory of `transformers`, `sentence-transformers`, `ctranslate2`, or of ELMo.

The directory is written under a temporary name and then renamed, so that it is complete or absent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers as rust
import torch
from tokenizers import processors

from regard.checkpoint import resolve, run_of
from regard.data.fields import EntityTags, LabelField
from regard.data.public_tokenizers import SETTINGS_FILES, TOKENIZER_TYPES, files_with_prefix
from regard.data.tokenizers import KINDS, SpecialTokens, Tokenizer
from regard.data.vector_files import write_vectors
from regard.data.words import first_word, vocabulary
from regard.errors import UserError, nearest
from regard.file_io import (
    as_user_error,
    aside,
    check_finite,
    check_writable,
    named_path,
    read_object,
    write_file,
    write_json,
)
from regard.models import Facts, reads_whole
from regard.pretrained import write_model
from regard.pretrained.ct2 import write_ct2
from regard.pretrained.elmo import OPTIONS, WEIGHTS, write_elmo
from regard.pretrained.folder import GENERATION, INDEX
from regard.pretrained.public_heads import HEAD_SETTINGS, LABELS, TASK, label_settings
from regard.stored import average as averaged
from regard.stored import check_weights
from regard.tasks import task_of
from regard.verbs.embedding import own_pooling
from regard.verbs.loaded import Loaded, load
from regard.verbs.pooling import LIMITS, MODULES, PLACES, POOLING, PROMPTS, sentence_files, sentence_settings
from regard.version import __version__

TOOLS = ("transformers", "sentence-transformers", "ctranslate2", "elmo", "word2vec", "glove")
# One of these pairs of files is in every directory that we write.
WHOLE = (("config.json", "model.safetensors"), ("config.json", "model.bin"), (OPTIONS, WEIGHTS))
VECTOR_FILES = ("word2vec", "glove")  # of these, formats of files of word vectors
LISTED = 4  # file names that an error lists
TOKENIZER_FILES = {  # the only names that files of a tokenizer are written under
    *(*SETTINGS_FILES, "target_vocab.json"),
    *(name for kind in TOKENIZER_TYPES.values() for name in kind.files),
}
WRITTEN_FOLDERS = ("target", PLACES["Pooling"])
WRITTEN = {  # all names that an exported model can have; only these are ever deleted
    *(f"{GENERATION}.json", *(name for pair in WHOLE for name in pair), *WRITTEN_FOLDERS),
    *(*TOKENIZER_FILES, *(f"target/{name}" for name in TOKENIZER_FILES)),
    *(f"{side}_vocabulary.json" for side in ("source", "target", "shared")),
    *(MODULES, PROMPTS, POOLING, *LIMITS),
}
GENERATION_SETTINGS = (  # settings of generation that older checkpoints keep in config.json
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id"),
    *("bad_words_ids", "num_beams", "max_length", "min_length", "length_penalty", "early_stopping"),
    *("no_repeat_ngram_size", "do_sample", "temperature", "top_k", "top_p"),
)
VERSION = "regard_version"  # the setting of a directory that says which version wrote it
STALE = (VERSION, "dtype", "torch_dtype", "transformers_version", "auto_map", "_name_or_path")  # about the files read


@dataclass(frozen=True)
class Exported:
    """The files that were written."""

    path: Path
    to: str
    # The type of a public checkpoint (marian, gpt2, elmo …); for ctranslate2, transformer; of word vectors, their
    # number, width and format.
    kind: str
    step: int  # of the run; 0 for a public checkpoint
    averaged: int  # the number of steps whose weights were averaged; 0: none
    files: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # files of a public checkpoint's directory that were not written


def export(
    model: Loaded | str | Path,
    path: str | Path,
    to: str = "transformers",
    average: int = 0,
    overwrite: bool = False,
) -> Exported:
    """Write a model, or the model in a directory, in the format of another tool.

    With `average=n` the weights are the mean of the newest n steps of its run.
    """
    if to not in TOOLS:
        raise UserError(f"--to {to} (in Python: to): no such tool.{nearest(to, TOOLS)}")
    place = named_path(path)
    if average < 0:
        raise UserError(f"--average {average} (in Python: average): give 1 or more.")
    check_writable(place)
    if not isinstance(model, Loaded):
        model = load(model, device="cpu")
    elif model.precision != "float32":
        cure = 'load it with precision="float32", or give its directory'
        raise UserError(f"{model.path}: loaded in {model.precision}, which rounds its weights; {cure}.")
    if average:
        model = _average(model, average)
    check_finite(model.module.state_dict(), model.path)
    if (to in VECTOR_FILES) != (model.task.head == "words"):
        cure = "--to transformers or ctranslate2" if to in VECTOR_FILES else "--to word2vec or --to glove"
        raise UserError(f"--to {to} (in Python: to): {model.path} is {model.kind}; give {cure}.")
    if to in VECTOR_FILES:
        kind = _to_vector_file(model, place, to, overwrite)
        return Exported(place, to, kind, model.step, average, (place.name,))
    with _placed(place, overwrite) as folder:
        match to:
            case "elmo":
                kind = write_elmo(model.module, folder)
            case "ctranslate2":
                kind = _to_ctranslate2(model, folder)
            case "sentence-transformers":
                kind = _to_sentence_transformers(model, folder)
            case _ if model.task.head == "vector":  # transformers has no such head: the files of the other tool say it
                kind = _to_sentence_transformers(model, folder)
            case _:
                kind = _to_transformers(model, folder)
        for settings in filter(Path.is_file, (folder / "config.json", folder / OPTIONS)):
            write_json(settings, {**read_object(settings), VERSION: __version__})
        files = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
        assert WRITTEN.issuperset(files), f"the table WRITTEN lacks some of {files}"
        left_out = _left_out(model, files)
    return Exported(place, to, kind, model.step, average, tuple(files), left_out)


def _average(model: Loaded, count: int) -> Loaded:
    if model.recipe is None:
        found = f"{model.path} is a public checkpoint; only a run has steps to average"
        raise UserError(f"--average {count} (in Python: average): {found}.")
    module = model.module.config.build()
    weights = averaged(run_of(resolve(model.path)), count, model.kinds)
    check_weights(module.state_dict(), weights, model.path)
    module.load_state_dict(weights)
    return replace(model, module=module.to(model.device).eval())


@contextmanager
def _placed(path: Path, overwrite: bool) -> Iterator[Path]:
    """A temporary folder to write in; it is renamed to `path` on success and removed on failure."""
    if os.path.lexists(path):
        if not overwrite:
            raise UserError(f"{path}: is there already; give another name, or --overwrite (in Python: overwrite=True).")
        if path.is_symlink() or not any(all((path / one).is_file() for one in pair) for pair in WHOLE):
            raise UserError(f"{path}: is no exported model, and is not overwritten; give another name.")
        there = {one.relative_to(path).as_posix(): one.is_dir() for one in path.rglob("*")}
        others = sorted(
            name for name, folder in there.items() if name not in WRITTEN or folder != (name in WRITTEN_FOLDERS)
        )
        if others:
            found = ", ".join(others[:LISTED]) + (", …" if len(others) > LISTED else "")
            raise UserError(f"{path}: has files that no export writes ({found}); move them, or give another name.")
    path = Path(os.path.abspath(path))
    with aside(path) as folder:
        new, old = folder / "new", folder / "old"
        with as_user_error(path):
            new.mkdir()
        try:
            yield new
            with as_user_error(path):
                if os.path.lexists(path):
                    os.rename(path, old)
                os.rename(new, path)
        finally:
            if os.path.lexists(old) and not os.path.lexists(path):
                with suppress(OSError):  # another process has put its export there meanwhile
                    os.rename(old, path)


def _to_vector_file(model: Loaded, path: Path, form: str, overwrite: bool) -> str:
    """Write the words and their vectors, without special tokens. Return what the file has, in words."""
    if os.path.lexists(path) and not overwrite:
        raise UserError(f"{path}: is there already; give another name, or --overwrite (in Python: overwrite=True).")
    first = first_word(model.tokenizer)
    with torch.no_grad():
        vectors = model.module.vectors[first:].float().cpu().numpy()  # type: ignore[index]
    words = vocabulary(model.tokenizer)[first:]
    write_vectors(path, words, vectors, form)
    binary = path.name.removesuffix(".gz").endswith(".bin")
    name = "GloVe text" if form == "glove" else "word2vec binary" if binary else "word2vec text"
    return f"{len(words):,} word vectors of width {vectors.shape[1]}, {name}"


def _to_ctranslate2(model: Loaded, folder: Path) -> str:
    if not model.module.config.reads_source:
        raise UserError(
            f"{model.path}: --to ctranslate2 is for translators, and this is {model.kind}; give --to transformers (in "
            'Python: to="transformers").'
        )
    write_ct2(model.module, folder, model.tokenizer, model.target_tokenizer)
    _write_tokenizers(model, folder)
    return "transformer"


def _to_transformers(model: Loaded, folder: Path) -> str:
    settings = _settings(model)
    labels = next((each for each in model.fields.values() if isinstance(each, LabelField)), None)
    if model.public is None:  # of the head of the checkpoint that training started from
        settings = {name: value for name, value in settings.items() if name not in HEAD_SETTINGS}
        if model.module.config.split()[1] is not None and model.task is not task_of(model.module.config):
            settings[TASK] = model.task.name
    if labels is not None:
        if not settings.get(LABELS):  # a public checkpoint keeps its names
            settings |= label_settings(labels.names, tags=isinstance(labels, EntityTags))
        settings.pop("num_labels", None)
    if model.module.config.one_per_text and settings.get("pad_token_id") is None:
        # GPT-2: its classifier reads the last token that is not padding.
        settings["pad_token_id"] = model.tokenizer.special_tokens.pad
    generation = settings.pop(GENERATION, None)
    kind = write_model(model.module, folder, settings, settings.get("model_type"))
    if model.module.config.causal:
        write_json(folder / f"{GENERATION}.json", generation or _generation(model, settings))
    _write_tokenizers(model, folder)
    if model.public is not None:
        _write_settings(folder, sentence_files(model.path))
    return kind


def _write_settings(folder: Path, files: Mapping[str, Any]) -> None:
    """Write files of settings by their names, which may have a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, content)


def _to_sentence_transformers(model: Loaded, folder: Path) -> str:
    """Write the model without its head, and how `regard embed` pools its states."""
    config, pooling = model.module.config, own_pooling(model)
    if config.reads_source or config.causal:
        found = f"{model.path} is {model.kind}, and sentence-transformers reads a text whole"
        raise UserError(f"--to sentence-transformers (in Python: to): {found}; give --to transformers.")
    if not model.fields:
        raise UserError(f"{model.path}: has no tokenizer, without which no text has a vector; add its tokenizer.json.")
    settings = _settings(model)
    settings.pop("architectures", None)  # of the model with its output layers
    module: Any = model.module
    body = module if config.split()[1] is None else module.body
    kind = write_model(body, folder, settings, settings.get("model_type"))
    _write_tokenizers(model, folder)
    longest = min((limit for limit in (pooling.longest, model.longest) if limit is not None), default=None)
    files = sentence_files(model.path) if model.public is not None else {}
    _write_settings(folder, files | sentence_settings(replace(pooling, longest=longest), config.width))
    return kind


def _left_out(model: Loaded, written: Sequence[str]) -> tuple[str, ...]:
    """The files in the directory of a public checkpoint, other than its weights, that its export does not have."""
    if model.public is None or not model.path.is_dir():  # a run, or a model that was in memory
        return ()
    home = model.path.parent if (model.path.parent / MODULES).is_file() else model.path  # of sentence-transformers
    left_out = []
    for file in (file for file in home.rglob("*") if file.is_file()):
        name = file.relative_to(model.path if file.is_relative_to(model.path) else home)
        weights = file.parent == model.path and (file.suffix in (".safetensors", ".bin", ".hdf5") or file.name == INDEX)
        hidden = any(part.startswith(".") for part in name.parts)
        if not (weights or hidden or name.as_posix() in written):
            left_out.append(file.relative_to(home).as_posix())
    return tuple(sorted(left_out))


def _settings(model: Loaded) -> dict[str, Any]:
    """The settings of config.json that are not of the network, and those of generation.

    They are those of the public checkpoint that the model is, or that its training started from; a run has its special
    tokens too.
    """
    original = _original(model)
    kept = {name: value for name, value in original.items() if name not in STALE}
    if model.public is not None:
        return kept
    special_tokens = model.target_tokenizer.special_tokens
    if not model.module.config.causal:
        return _ids(special_tokens, special_tokens.prefix, special_tokens.suffix) | kept
    start = {"decoder_start_token_id": special_tokens.bos} if model.module.config.reads_source else {}
    return start | _ids(special_tokens, special_tokens.bos, special_tokens.eos) | kept


def _original(model: Loaded) -> Mapping[str, Any]:
    """The settings of the public checkpoint that a model is, or that its training started from."""
    if model.public is not None:
        return model.public
    if not model.fields or model.target_tokenizer.kind in KINDS:
        return {}
    return json.loads(model.target_tokenizer.serialize())["config"]


def _ids(special_tokens: SpecialTokens, first: int | None, last: int | None) -> dict[str, int | None]:
    return {"pad_token_id": special_tokens.pad, "bos_token_id": first, "eos_token_id": last}


def _generation(model: Loaded, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of generation of a model that came without a file of them."""
    found = {name: settings[name] for name in GENERATION_SETTINGS if name in settings}
    if not _original(model):
        found |= {"suppress_tokens": list(model.forbidden), "max_length": model.longest or 512}
    return found


def _write_tokenizers(model: Loaded, folder: Path) -> None:
    """Write the files of the tokenizer; those of another target tokenizer go to target/."""
    if not model.fields:
        return
    source, target = (_tokenizer_files(one, model) for one in (model.tokenizer, model.target_tokenizer))
    for place, files in ((folder, source), (folder / "target", target if target != source else {})):
        for name, data in files.items():
            if name not in TOKENIZER_FILES:
                found = f"its tokenizer has a file {name!r}, which is no file of a tokenizer"
                raise UserError(f"{model.path}: {found}; restore the tokenizer, or use another run.")
            write_file(place / name, data)


def _tokenizer_files(tokenizer: Tokenizer, model: Loaded) -> dict[str, bytes]:
    """The files of a tokenizer. Ours get the inputs of the model and the special tokens around a text."""
    files = tokenizer.files()
    config: Facts = model.module.config
    left_to_right = not reads_whole(config)
    if tokenizer.kind not in KINDS:
        trained = left_to_right and model.public is None
        return files_with_prefix(tokenizer, *model.opening) if trained and model.opening else files
    inner = rust.Tokenizer.from_str(files["tokenizer.json"].decode())
    before, after = (
        [] if mark is None else [mark] for mark in (tokenizer.special_tokens.prefix, tokenizer.special_tokens.suffix)
    )
    if left_to_right:
        before = model.opening
    if around := [*before, *after]:
        first, last = ([inner.id_to_token(mark) for mark in special_tokens] for special_tokens in (before, after))
        names = [(inner.id_to_token(mark), mark) for mark in around]
        pair = [*first, "$A", *last, "$B:1", *(f"{name}:1" for name in last)]
        inner.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last], pair=pair, special_tokens=names
        )
    settings = json.loads(files["tokenizer_config.json"])
    segments = ["token_type_ids"] if config.segment_kinds else []
    settings["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    settings["padding_side"] = "left" if left_to_right else "right"
    if model.longest is not None:
        settings["model_max_length"] = model.longest
    text = {"tokenizer.json": inner.to_str(pretty=True), "tokenizer_config.json": json.dumps(settings, indent=2)}
    return files | {name: one.encode() for name, one in text.items()}
