"""Pooling of the states of a text into one vector, as a directory of `sentence-transformers` defines it.

Such a directory has a public checkpoint and a list of modules, `modules.json`: the model, a pooling, and possibly a
normalisation (Reimers & Gurevych 2019, section 3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import UserError, nearest
from regard.file_io import is_inside, read_json, read_object

POOLS = ("mean", "first", "last", "max", "tokens")
POOLING_MODES = {  # the names of `sentence-transformers`, of older and newer versions, → ours
    **{"mean_tokens": "mean", "cls_token": "first", "max_tokens": "max"},
    **{"mean": "mean", "cls": "first", "max": "max", "lasttoken": "last"},
}
MODE = "pooling_mode_"
MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
PLACES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}  # in a directory that we write
POOLING = f"{PLACES['Pooling']}/config.json"
LIMITS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


@dataclass(frozen=True)
class Pooling:
    """The pooling of states: their mean, the first or last, their maximum, or all states; normalised or not."""

    pool: str = "mean"
    normalise: bool = False
    longest: int | None = None  # the most tokens of a text, special tokens included, if fewer than the model reads
    lower: bool = False  # texts are lower-cased before tokenisation
    prefix: str = ""  # added before every text

    def __post_init__(self) -> None:
        if self.pool not in POOLS:
            raise UserError(f"pool={self.pool}: no such choice.{nearest(self.pool, (*POOLS, 'cls'))}")


def transformer_folder(path: Path) -> Path:
    """The directory of the model: in a directory of `sentence-transformers` it may be a subdirectory."""
    if (path / "config.json").is_file() or not (path / MODULES).is_file():
        return path
    return path / _read_modules(path)["Transformer"]


def pooling_of(path: Path) -> Pooling:
    """The pooling that the directory of a model defines; the mean if it defines none."""
    home = sentence_folder(path)
    return Pooling() if home is None else _read_pooling(home, _read_modules(home))


def sentence_folder(path: Path) -> Path | None:
    """The directory of `sentence-transformers` that the model in a directory belongs to; None: it belongs to none."""
    for home in (path, path.parent):
        if (home / MODULES).is_file():
            place = home / _read_modules(home)["Transformer"]
            if place.resolve() == path.resolve() or home == path:
                return home
    return None


def sentence_files(path: Path) -> dict[str, Any]:
    """The settings of `sentence-transformers` for a model, by the names of their files beside an exported model.

    Without any, or with modules that are not supported here, there are none.
    """
    try:
        if (home := sentence_folder(path)) is None:
            return {}
    except UserError:
        return {}
    modules = _read_modules(home)
    kept = {POOLING: home / modules["Pooling"] / "config.json", PROMPTS: home / PROMPTS}
    kept |= {name: home / modules["Transformer"] / name for name in LIMITS}
    return {MODULES: [_module(at, kind) for at, kind in enumerate(modules)]} | {
        name: read_object(file) for name, file in kept.items() if file.is_file()
    }


def sentence_settings(pooling: Pooling, width: int) -> dict[str, Any]:
    """The files of a directory of `sentence-transformers` that state a pooling of states of this width."""
    modes = {"mean_tokens": "mean", "cls_token": "first", "max_tokens": "max", "lasttoken": "last"}
    kinds = list(PLACES)[: 3 if pooling.normalise else 2]
    prompts = {"default": pooling.prefix} if pooling.prefix else {}
    return {
        MODULES: [_module(at, kind) for at, kind in enumerate(kinds)],
        POOLING: {
            "word_embedding_dimension": width,
            **{f"{MODE}{mode}": pool == pooling.pool for mode, pool in modes.items()},
        },
        LIMITS[0]: {"max_seq_length": pooling.longest, "do_lower_case": pooling.lower},
        PROMPTS: {
            "prompts": prompts,
            "default_prompt_name": next(iter(prompts), None),
            "similarity_fn_name": "cosine",
        },
    }


def _module(at: int, kind: str) -> dict[str, Any]:
    """An entry of `modules.json`."""
    return {"idx": at, "name": str(at), "path": PLACES[kind], "type": f"sentence_transformers.models.{kind}"}


def _read_modules(home: Path) -> dict[str, str]:
    """The modules of `modules.json`, in order: kind → path of its settings."""
    listed = read_json(home / MODULES)
    if not isinstance(listed, list) or not all(isinstance(one, dict) and "type" in one for one in listed):
        raise UserError(f"{home / MODULES}: should be a list of modules; restore the file.")
    kinds = [str(one["type"]).rpartition(".")[2] for one in listed]
    found = {kind: str(one.get("path", "")) for kind, one in zip(kinds, listed)}
    for kind, place in found.items():
        if not is_inside(place):
            raise UserError(f"{home / MODULES}: path={place!r}: is outside the directory; restore the file.")
        if kind not in PLACES:
            raise UserError(f"{home / MODULES}: {kind}: not supported; only Transformer, Pooling and Normalize are.")
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UserError(f"{home / MODULES}: {', '.join(kinds) or 'no modules'}: should be Transformer, Pooling.")
    return found


def _read_pooling(home: Path, modules: Mapping[str, str]) -> Pooling:
    place = home / modules["Transformer"]
    limits = next((read_object(place / name) for name in LIMITS if (place / name).is_file()), {})
    longest, path = limits.get("max_seq_length"), home / PROMPTS
    settings = read_object(path) if path.is_file() else {}
    pooling = home / modules["Pooling"] / "config.json"
    prompts, chosen = settings.get("prompts") or {}, settings.get("default_prompt_name")
    known = isinstance(prompts, dict) and isinstance(chosen, str)
    prefix = prompts.get(chosen) or "" if known else "" if chosen is None else None
    if not isinstance(prefix, str):
        raise UserError(f"{path}: prompts should have a text for each name; restore the file.")
    if longest is not None and not (type(longest) is int and longest > 0):
        raise UserError(f"{place}: max_seq_length={longest!r:.20}: should be a whole number above 0; restore the file.")
    if prefix and not read_object(pooling).get("include_prompt", True):
        raise UserError(f"{pooling}: include_prompt=false: is not supported; every token is pooled here.")
    return Pooling(
        pool=_pooling_mode(pooling),
        normalise="Normalize" in modules,
        longest=longest,
        lower=bool(limits.get("do_lower_case", False)),
        prefix=prefix,
    )


def _pooling_mode(path: Path) -> str:
    """The pooling mode in a file of settings."""
    settings = read_object(path)
    named = settings.get("pooling_mode") or []
    modes = [str(one) for one in (named if isinstance(named, list) else [named])]
    modes += [name.removeprefix(MODE) for name, on in settings.items() if name.startswith(MODE) and on is True]
    for mode in modes:
        if mode not in POOLING_MODES:
            raise UserError(
                f"{path}: {MODE}{mode}: not supported; it may be mean_tokens, cls_token, max_tokens or lasttoken."
            )
    if len(modes) != 1:
        raise UserError(f"{path}: {' + '.join(modes) or 'no pooling'}: should be one pooling mode.")
    return POOLING_MODES[modes[0]]
