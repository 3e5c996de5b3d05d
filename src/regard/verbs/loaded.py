"""A trained model with everything that goes with it, ready to be used."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.checkpoint import read_json, resolve
from regard.config import Kinds, from_json
from regard.data.batches import Row
from regard.data.fields import Field, TextField
from regard.data.flat import Values
from regard.data.public_tokenizers import read_tokenizers as public_tokenizers
from regard.data.tokenizers import KINDS as OUR_KINDS
from regard.data.tokenizers import OUR_SPECIAL_TOKENS, Tokenizer, check_vocab
from regard.decode import CapturedDecoder, OneDnnDecoder, onednn_usable
from regard.device import autocast, choose_device
from regard.errors import UserError, nearest
from regard.layers.init import SkipInit
from regard.metrics import Metric
from regard.models import Model, reads_whole
from regard.pretrained import is_public, read_model, read_settings
from regard.pretrained.hub import resolve_hub_path
from regard.recipes import KINDS, Recipe, find_task, with_kinds
from regard.stored import load_weights, read_fields, stored_recipe
from regard.tasks import Task, task_of
from regard.verbs.numbers import checked, features, logits
from regard.verbs.pooling import transformer_in

KINDS_OF = {  # what messages call a model, by what its task has it predict
    "target": "a translator",
    "next": "a language model",
    "class": "a classifier",
    "masked": "a model that reads both ways",
}
IdPair = tuple[list[int], list[int]]  # ids of a source, if any, and of a target, both without special tokens
LONG = ("error", "truncate", "window")
PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model and its tokenizers, as one step of a run left them or as a public checkpoint has them."""

    path: Path  # what was asked for: a run, a step of one, or a directory of a public checkpoint
    module: Model  # on the device, in evaluation mode
    device: torch.device
    fields: Mapping[str, Field] = field(default_factory=dict)  # by column; empty: it came without a tokenizer
    recipe: Recipe | None = None  # None for a public checkpoint
    step: int = 0
    public: Mapping[str, Any] | None = None  # the config.json of a public checkpoint
    precision: str = "float32"
    kinds: Kinds = field(default_factory=lambda: KINDS, repr=False)  # the tables of tasks and metrics that it may use
    long: str = "error"  # what becomes of a text past the model's limit: error, truncate or window (its end is kept)

    @cached_property
    def task(self) -> Task:
        """What the model was trained to do."""
        return task_of(self.module.config) if self.recipe is None else find_task(self.recipe, self.kinds)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics that there are, by name."""
        return self.kinds["metric"]

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of what the model generates, or of the only text there is."""
        texts = self._texts()
        if not texts:
            raise UserError(f"{self.path}: has no tokenizer; put its tokenizer.json there to use the model on text.")
        return texts[-1].tokenizer

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the source; None for a model that reads none."""
        return self._texts()[0].tokenizer if len(self._texts()) > 1 else None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what the model reads."""
        return self.source_tokenizer or self.target_tokenizer

    def _texts(self) -> list[TextField]:
        return [each for each in self.fields.values() if isinstance(each, TextField)]

    def encode(self, examples: Sequence[Any], longest: int | None = None) -> list[Row]:
        """The fields of each example as arrays; texts are cut so that the model reads at most `longest` tokens."""
        rows: list[dict[str, Values]] = [{} for _ in examples]
        for name, each in self.fields.items():
            values = [getattr(example, name) for example in examples]
            if longest is not None and isinstance(each, TextField):
                ids = each.tokenizer.encode_batch(values)
                encoded: Sequence[Any] = [each.wrap(one[: each.room(longest)]) for one in ids]
            else:
                encoded = each.encode(values)
            for row, one in zip(rows, encoded):
                row[name] = np.asarray(one, each.dtype)
        return list(rows)

    @property
    def forbidden(self) -> tuple[int, ...]:
        """What it must not say: special tokens, but for its end.

        A model of running text has no begin and no end, but they are in its vocabulary all the same.
        """
        special_tokens = self.target_tokenizer.special_tokens
        ours = OUR_SPECIAL_TOKENS.ids if self.target_tokenizer.kind in OUR_KINDS else ()
        return tuple(sorted({*special_tokens.forbidden, *ours} - {special_tokens.eos}))

    @property
    def opening(self) -> list[int]:
        """What a language model reads before a text that it is to go on with.

        One trained here has learnt texts that begin with the mark. A public one reads what its tokenizer makes of a
        text: mostly that alone; of one that was exported from here, the mark too.
        """
        special_tokens = self.target_tokenizer.special_tokens
        begin = special_tokens.bos if self.public is None else special_tokens.prefix
        return [] if begin is None else [begin]

    @property
    def kind(self) -> str:
        """What messages call the model, such as "a translator"."""
        return KINDS_OF.get(self.task.head, f"a model of the task {self.task.name}")

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.module.parameters())
        what = f"{self.kind}, {type(self.module).__name__} of {size:,} parameters"
        return f"<Loaded {self.path}: {what}, on {self.device} in {self.precision}>"

    @torch.no_grad()
    def states(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The states (B, T, width) of the last layer at tokens (B, T); no gradient.

        True in `real` means "not padding", which may stand on either side. Positions, rows of the model's own table,
        are counted over the real tokens where none are given.
        """
        given = checked(self.module, tokens, real, source, source_real, segments, positions)
        with self.autocast():
            return features(self.module, *(None if one is None else one.to(self.device) for one in given))  # type: ignore[arg-type]

    @torch.no_grad()
    def logits(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The logits (B, T, V) at tokens (B, T), of what comes next or of what stands there; see `states`."""
        states = self.states(tokens, real, source, source_real, segments, positions)
        with self.autocast():
            return logits(self.module, None if real is None else real.to(self.device) != 0, states)

    def expect(self, verb: str, able: bool) -> None:
        """Refuse a verb that the model is not able to do; the message names the verb to use instead."""
        if not able:
            cure = f"use: regard {self.task.verb} {shlex.quote(str(self.path))}"
            raise UserError(f"{self.path}: this is {self.kind}, which cannot {verb}; {cure}")

    @property
    def longest(self) -> int | None:
        """The most tokens that a text may have; None where any length will do."""
        return self.module.config.longest

    def read(self, texts: Sequence[str], first: int = 1) -> list[list[int]]:
        """The tokens of texts that the model reads: sources, or the lines of a language model.

        One past the limit is cut (at its end, or with a window at its beginning) or refused by its number; `first` is
        the number of the first text.
        """
        tokens = self.tokenizer.encode_batch([text.strip() for text in texts])
        return [self.fitted(found, f"line {number}") for number, found in enumerate(tokens, first)]

    def fitted(self, tokens: list[int], place: str) -> list[int]:
        """Tokens that leave room for the special tokens around them, as `long` says."""
        special_tokens = self.tokenizer.special_tokens
        whole = reads_whole(self.module.config)
        around = len(special_tokens.wrap_input([])) if whole else int(special_tokens.bos is not None)
        most = None if self.longest is None else self.longest - around
        if most is None or len(tokens) <= most:
            return tokens
        if self.long == "error":
            why = f" (a context of {self.longest}, and {around} kept for special tokens)" if around else ""
            raise UserError(
                f"{place}: {len(tokens)} tokens, but the model reads at most {most}{why}; "
                "shorten it, or say --long truncate (its beginning is kept) or --long window (its end is)"
            )
        return tokens[:most] if self.long == "truncate" else tokens[-most:]

    def captions(self, source: list[int], target: list[int]) -> tuple[list[str], list[str]]:
        """What to write beside the columns (the source) and the rows (the target and its end) of an alignment."""
        columns = self.source_tokenizer.pieces(source) if self.source_tokenizer else []
        end = self.target_tokenizer.special_tokens.eos
        return columns, self.target_tokenizer.pieces([*target, *([] if end is None else [end])])

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of the model's matrix products; weights that are half already need no help."""
        return autocast(self.precision if self._converts else "float32", self.device)

    @property
    def decoder(self) -> Any:
        """The model as searches use it: steps captured on a GPU, weights reordered for oneDNN on a CPU.

        Not where weights are converted as they are used: a captured step would convert them at every step. A model that
        somebody has hooked into is taken as it is, and one whose weights have been written to is prepared again.
        """
        if any(part._forward_hooks or part._forward_pre_hooks for part in self.module.modules()):
            return self.module
        written = sum(weight._version for weight in self.module.parameters())
        if self._prepared.get("written") != written:
            self._prepared.update(written=written, decoder=self._prepare())
        return self._prepared["decoder"]

    @cached_property
    def _prepared(self) -> dict[str, Any]:
        return {}

    def _prepare(self) -> Any:
        if self.device.type == "cuda" and not self._converts:
            return CapturedDecoder(self.module)
        return OneDnnDecoder(self.module) if onednn_usable(self.module) and not self._converts else self.module

    @property
    def _converts(self) -> bool:
        return self.precision == "bf16" and next(self.module.parameters()).dtype != torch.bfloat16


def load(
    path: str | Path,
    device: str = "auto",
    precision: str = "float32",
    long: str = "error",
    allow_pickle: bool = False,
    download: bool = False,
    kinds: Kinds | None = None,
) -> Loaded:
    """A trained model: the best step of a run, or else its latest; the step whose directory is named; a directory of a
    public checkpoint (config.json, safetensors, tokenizer files); or `hf:OWNER/NAME`, fetched only with `download`."""
    for name, value, known in (("precision", precision, PRECISIONS), ("long", long, LONG)):
        if value not in known:
            raise UserError(f"{name}={value}: no such choice.{nearest(value, known)}")
    place, path = choose_device(device), transformer_in(resolve_hub_path(path, download, allow_pickle))
    found = _public(path, allow_pickle) if is_public(path) else _trained(path, with_kinds(kinds))
    module = found.module.to(place, torch.bfloat16 if precision == "bf16" else torch.float32).eval()
    return replace(found, module=module, device=place, precision=precision, long=long)


def _trained(path: Path, kinds: Kinds) -> Loaded:
    """What a run has made."""
    folder = resolve(path)
    if not folder.name.isdecimal():
        raise UserError(
            f"{path}: a step outside its run, which holds the recipe; name the run, or a step in its steps/."
        )
    run = folder.parents[2] if folder.parent.name == ".old" else folder.parents[1]
    recipe = stored_recipe(run, kinds)
    with SkipInit():
        module = from_json(read_json(folder / "model.json"), kinds, "model").build()
    load_weights(module, folder / "weights.safetensors")
    fields = read_fields(folder, find_task(recipe, kinds))
    return Loaded(path, module, torch.device("cpu"), fields, recipe, int(folder.name), kinds=kinds)


def _public(path: Path, allow_pickle: bool) -> Loaded:
    """What somebody else has made. Numbers can be had without a tokenizer, if its files are not there."""
    settings = read_settings(path)
    module = read_model(path, settings, allow_pickle)
    source, target = public_tokenizers(path, settings) if _has_tokenizer(path) else (None, None)
    for tokenizer, vocab in ((source, module.config.source_vocab), (target, module.config.token_vocab)):
        if tokenizer is not None:
            check_vocab(tokenizer, vocab, path)
    tokenizers = [tokenizer for tokenizer in (source, target) if tokenizer is not None]
    kinds = task_of(module.config).fields
    fields = {name: kind(tokenizer) for (name, kind), tokenizer in zip(kinds.items(), tokenizers)}  # type: ignore[call-arg]
    return Loaded(path, module, torch.device("cpu"), fields, public=settings)


def _has_tokenizer(path: Path) -> bool:
    files = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "source.spm")
    return any((path / file).is_file() for file in files)
