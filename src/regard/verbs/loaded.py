"""A trained model with its tokenizers and settings, ready for use."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from regard.checkpoint import read_step, run_of
from regard.config import Kinds
from regard.data.example import Corpus
from regard.data.fields import Field, LabelField, NumberField, NumbersField, TagsField, TextField, in_direction
from regard.data.flat import Row, Values
from regard.data.joined import ChoiceField, JoinedText, JoinsParts, inputs_of
from regard.data.public_tokenizers import read_tokenizers as public_tokenizers
from regard.data.run_files import RunFiles, located
from regard.data.tokenizers import KINDS as OUR_KINDS
from regard.data.tokenizers import OUR_SPECIAL_TOKENS, SPECIALS, Tokenizer, check_vocab, word_tokenizer
from regard.data.vector_files import read_vectors
from regard.data.words import WordText
from regard.decode import CapturedDecoder, with_onednn
from regard.device import autocast, choose_device, choose_precision
from regard.errors import UserError, nearest
from regard.file_io import read_object
from regard.metrics import Metric
from regard.models import Model, TwoDirections, WordVectorsConfig, reads_whole
from regard.pretrained import is_public, read_model, read_settings
from regard.pretrained.elmo import OPTIONS, is_elmo, read_elmo
from regard.pretrained.folder import convert_module
from regard.pretrained.hub import resolve_hub_path
from regard.pretrained.public_heads import TASK, label_names
from regard.recipes import KINDS, Recipe, find_task, with_kinds
from regard.recording import intercepted
from regard.stored import load_model, read_fields, stored
from regard.tasks import TASKS, Task, fits, task_of
from regard.verbs.numbers import Inputs
from regard.verbs.pooling import transformer_folder

# The parts of the texts that a public checkpoint reads, by its head; those of other heads are two texts.
PARTS = {"span": ("question", "passage"), "choice": ("context", "choices 1")}
PAIR = ("first", "second")
MODEL_NAMES = {  # the name of a model in messages, by the head of its task
    "target": "a translator",
    "next": "a language model",
    "both": "a language model of both directions",
    "class": "a classifier",
    "choice": "a model of choices",
    "masked": "a masked language model",
    "replaced": "a detector of replaced tokens",
    "number": "a regression model",
    "vector": "a model of text vectors",
    "labels": "a classifier with several labels",
    "tag": "a tagger",
    "span": "a model that answers questions",
    "keys": "a model of independent answers",
    "context": "a model of contexts",
    "words": "a table of word vectors",
}
IMAGE_MODEL_NAMES = {"target": "a captioner"}  # the same, of a model whose source is an image
Outputs = TypeVar("Outputs", Tensor, np.ndarray[Any, Any], list[float])
IdPair = tuple[list[int], list[int]]  # ids of a source (may be empty) and of a target, without special tokens
# Fields of targets that are the same for all data, so that a public checkpoint needs no file for them.
PLAIN_FIELDS: dict[type[Any], Field] = {NumberField: NumberField(1), ChoiceField: ChoiceField()}
LONG = ("error", "truncate", "window")
LONG_CURE = (  # the end of a message about a text that is too long
    "shorten it, or give --long truncate (keeps its beginning) or --long window (keeps its end); "
    'in Python: load(…, long="truncate")'
)
PRECISIONS = ("auto", "float32", "bf16")
# A directory with a tokenizer has one of these files.
SPLITS = ("test", "valid", "train")
VOCAB_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "source.spm")


class NotFinite(UserError):  # noqa: N818
    """Outputs of a model are NaN or infinite, though its weights are finite."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model and its tokenizers, from a step of a run or from a public checkpoint."""

    path: Path  # of a run, a step of a run, or a public checkpoint; of a module, the name of its class
    module: Model  # on the device, in evaluation mode
    device: torch.device
    fields: Mapping[str, Field] = field(default_factory=dict)  # by name; empty for a checkpoint without a tokenizer
    recipe: Recipe | None = None  # None for a public checkpoint
    step: int = 0
    public: Mapping[str, Any] | None = None  # the config.json of a public checkpoint, with its generation_config
    precision: str = "float32"
    kinds: Kinds = field(default_factory=lambda: KINDS, repr=False)  # the tables of tasks and metrics
    own: nn.Module | None = field(default=None, repr=False)  # what its objective trains beside it, during a run
    long: str = "error"  # what to do with a text longer than the context: error, truncate or window (keep its end)
    warnings: tuple[str, ...] = ()  # what was left out of the file
    files: RunFiles | None = field(default=None, repr=False)  # that the data of its run names; None: not known
    given_task: Task | None = None  # the task of a public checkpoint, if its head does not tell, see `of_pairs`
    named: str = ""  # as the caller named it, such as hf:OWNER/NAME; empty: by its path

    @cached_property
    def task(self) -> Task:
        """The task that the model was trained for."""
        if self.given_task is not None:
            return self.given_task
        if self.recipe is not None:
            return find_task(self.recipe, self.kinds)
        return _public_task(self.module.config, self.public or {})

    @property
    def data(self) -> Any:
        """The data that the model was trained on; None for a public checkpoint."""
        return None if self.recipe is None else self.recipe.data

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """All metrics by name."""
        return self.kinds["metric"]

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the target, or of the text of a model without a source."""
        texts = self._texts()
        if not texts and any(isinstance(each, NumbersField) for each in self.fields.values()):
            raise UserError(f"{self.path}: this model reads numbers, not text; use: regard eval {self.path}")
        if not texts:
            cure = "add its tokenizer.json to use the model on text, or in Python load(model, tokenizer=…)"
            raise UserError(f"{self.path}: has no tokenizer; {cure}.")
        return texts[-1].tokenizer

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the source; None for a model without a source."""
        return self._texts()[0].tokenizer if len(self._texts()) > 1 else None

    @property
    def reads_images(self) -> bool:
        """Whether the source of the model is an image."""
        return self.module.config.source_grid is not None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model's input: the source, or the text."""
        return self.source_tokenizer or self.target_tokenizer

    def _texts(self) -> list[TextField]:
        return [each for each in self.fields.values() if isinstance(each, TextField)]

    @cached_property
    def halves(self) -> "tuple[Loaded, ...]":
        """The models of a model of both directions, forward and backward, each as a model of its own; else none."""
        if self.task.head != "both" or self.recipe is None:
            return ()
        two, halves = cast(TwoDirections, self.module), []
        for module in (two.onward, two.returning):
            direction = module.config.direction
            recipe = replace(self.recipe, model=replace(self.recipe.model, direction=direction))
            halves.append(replace(self, module=module, recipe=recipe, fields=in_direction(self.fields, direction)))
        return tuple(halves)

    @property
    def reads_backward(self) -> bool:
        """Whether the model reads texts from their ends: its ids and predictions are in reversed order."""
        return self.module.config.direction == "backward"

    def examples(self, split: str | None = None) -> tuple[str, Sequence[Any]]:
        """A part of the recipe's data, test (if there is one), valid or train: its name, and its examples."""
        if split is not None and split not in SPLITS:
            raise UserError(f"--split {split}: no such part.{nearest(split, SPLITS)}")
        if self.recipe is None:
            raise UserError(f"{self.path}: a public checkpoint comes without data; give --data FILE.")
        corpus = self.corpus()
        name = split or ("test" if corpus.test else "valid")
        found: Sequence[Any] = getattr(corpus, name)
        if not found:
            raise UserError(f"--split {name}: {self.recipe.name} has no such examples; give --data FILE.")
        return name, found

    def corpus(self) -> Corpus:
        """The data of its run, read from where its files are now."""
        corpus: Corpus = self.located_data.load()
        return corpus

    @cached_property
    def located_data(self) -> Any:
        """The data that the model was trained on, with the paths where its files are now."""
        assert self.recipe is not None, "a public checkpoint comes without data"
        return located(self.recipe.data, self.files or {})[0]

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has: not the decoders, which are made again, and whose packed weights cannot be copied."""
        return {name: value for name, value in vars(self).items() if name != "_decoders"}

    def encode(self, examples: Sequence[Any], longest: int | None = None) -> list[Row]:
        """The fields of each example as arrays; texts and sequences are truncated to `longest` places."""
        rows: list[dict[str, Values]] = [{} for _ in examples]
        for name, each in self.fields.items():
            values = [getattr(example, name) for example in examples]
            if longest is not None and isinstance(each, TextField):
                encoded: Sequence[Any] = each.shortened(values, longest)
            else:
                encoded = each.encode(values)
                if isinstance(each, NumbersField | TagsField):  # one at each place, or one of all
                    encoded = [one[:longest] for one in encoded]  # type: ignore[index]
            for row, one in zip(rows, encoded):
                row[name] = np.asarray(one, each.dtype)
        return list(rows)

    @property
    def forbidden(self) -> tuple[int, ...]:
        """The ids that must not be generated: special tokens except eos.

        The tokenizer of running text has no bos and eos of its own, but both are in the vocabulary.
        """
        special_tokens = self.target_tokenizer.special_tokens
        in_vocabulary = OUR_SPECIAL_TOKENS.ids if self.target_tokenizer.kind in OUR_KINDS else ()
        return tuple(sorted({*special_tokens.forbidden, *in_vocabulary} - {special_tokens.eos}))

    @property
    def opening(self) -> list[int]:
        """The ids before a prompt: bos or nothing.

        A model trained with regard reads bos if its tokenizer has one. A public checkpoint reads what its tokenizer
        adds before a text, which for most is nothing.
        """
        special_tokens = self.target_tokenizer.special_tokens
        begin = special_tokens.bos if self.public is None else special_tokens.prefix
        return [] if begin is None else [begin]

    @property
    def kind(self) -> str:
        """The name of the model in messages, such as "a translator"."""
        if not self.predicts(self.task.head):
            return "an encoder without an output layer"
        if self.task.made:
            return "a model of hidden spans"
        names = IMAGE_MODEL_NAMES if self.reads_images else MODEL_NAMES
        return names.get(self.task.head, f"a model of the task {self.task.name}")

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def about(self) -> str:
        """Which model this is, its task and its run, as a sentence for the pages."""
        trained = "" if self.recipe is None else f", recipe {self.recipe.name}, step {self.step}"
        what = f"{self.kind}, {self._class_name} with {self.parameter_count:,} parameters"
        return f"The model is {what}: {self.name}{trained}."

    @property
    def name(self) -> str:
        """What a page calls the model: as the caller named it, not where its files are on this machine."""
        return self.named or str(self.path)

    @property
    def _class_name(self) -> str:
        """The name of the model's class; under a head, that of its body."""
        body, head = self.module.config.split()
        return type(self.module).__name__ if head is None else type(body).__name__.removesuffix("Config")

    def __repr__(self) -> str:
        what = f"{self.kind}, {self._class_name} of {self.parameter_count:,} parameters"
        if self._texts() and (unused := self.module.config.token_vocab - self.target_tokenizer.size):
            what += f", {unused:,} of its {self.module.config.token_vocab:,} ids without a token"
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
        """The states (B, T, width) of the last layer at tokens (B, T), without gradient.

        True in `real` means "not padding"; padding may be on either side. Without `positions` (rows of the model's
        table of positions), the real tokens are numbered in order.
        """
        inputs = Inputs(tokens, real, source, source_real, segments, positions).checked(self.module.config)
        with self.autocast():
            return inputs.to(self.device).states(self.module)

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
        """The logits (B, T, V) at tokens (B, T): of the next token, or of the token itself (masked); see `states`."""
        inputs = Inputs(tokens, real, source, source_real, segments, positions).checked(self.module.config)
        with self.autocast():
            return inputs.to(self.device).logits(self.module)

    def predicts(self, head: str) -> bool:
        """Whether the model has the output layer for a head of a task; a public checkpoint may have none."""
        config = self.module.config
        return head in config.predicts and config.with_output(head) == config

    def check_finite(self, outputs: Outputs) -> Outputs:
        """The outputs themselves; NaN and infinite numbers are refused, where the outputs come to the host anyway.

        A model that counts gives the log-probability −∞ to what it has not seen.
        """
        values, counts = torch.as_tensor(outputs), self.module.config.learns_by == "counts"
        if not bool(((values < torch.inf) if counts else values.isfinite()).all()):
            cure = "some weights are too large; use another checkpoint, such as an earlier step"
            raise NotFinite(f"{self.path}: outputs of the model are NaN or infinite; {cure}.")
        return outputs

    def expect(self, verb: str, able: bool) -> None:
        """Refuse a verb that does not fit the model; the message names the verb to use instead."""
        if not able:
            fitting = self.task.verb if self.predicts(self.task.head) else "embed"
            cure = f"use: regard {fitting} {shlex.quote(str(self.path))}"
            raise UserError(f"{self.path}: this is {self.kind}, which cannot {verb}; {cure}")

    @property
    def longest(self) -> int | None:
        """The most tokens of a text, special tokens included; None: no limit."""
        return self.module.config.longest

    def read(self, texts: Sequence[str], numbers: Sequence[int] | None = None) -> list[list[int]]:
        """The ids of input texts: sources, or the lines of a language model.

        A text that is longer than the context is truncated or refused, see `long`; `numbers` are those of the texts in
        error messages (None: 1, 2, …).
        """
        tokens = self.tokenizer.encode_batch([text.strip() for text in texts])
        numbers = range(1, len(tokens) + 1) if numbers is None else numbers
        return [self.fit_context(ids, f"line {number}") for number, ids in zip(numbers, tokens)]

    @property
    def joined_text(self) -> JoinedText | None:
        """The field of a text of several parts, if the model reads such texts."""
        return next((each for each in self._texts() if isinstance(each, JoinedText)), None)

    def of_pairs(self) -> "Loaded":
        """A public checkpoint as a model of two texts: a head of classes, or of a number, does not tell what it reads.

        A run, and a model without such a head, stay as they are.
        """
        tasks = (each for each in self.kinds["task"].values() if JoinedText in each.fields.values())
        task = next((each for each in tasks if each.head == self.task.head), None)
        if self.recipe is not None or self.joined_text is not None or task is None:
            return self
        fields = {**self.fields, next(iter(task.fields)): JoinedText(self.tokenizer)}
        return replace(self, fields=fields, given_task=task)

    def joined_value(self, parts: Sequence[str]) -> Any:
        """The parts of a text (two texts, or a context and its choices) as the model's field reads them."""
        assert self.joined_text is not None
        return self.data.value(parts) if isinstance(self.data, JoinsParts) else self.joined_text.value(parts)

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of a table that have the parts of a text, as the model was trained: the key and name of each."""
        return (
            dict(self.data.part_columns)
            if isinstance(self.data, JoinsParts)
            else dict.fromkeys(PARTS.get(self.task.head, PAIR), "")
        )

    def read_joined(self, values: Sequence[Any], first: int = 1) -> list[Values]:
        """The ids and segments of texts of several parts, see `JoinedText`.

        A text that is longer than the context is refused, or its longest part is truncated, see `long`; `first` is the
        number of the first text in error messages.
        """
        field = self.joined_text
        assert field is not None
        if self.longest is None:
            return field.encode(values)
        if self.long == "window":
            raise UserError("--long window: a text of several parts is cut at the ends of its parts; give truncate.")
        for number, value in enumerate(values, first) if self.long == "error" else ():
            if (found := max(len(field.encode([parts])[0]) for parts in inputs_of(value))) > self.longest:
                raise UserError(
                    f"line {number}: {found} tokens with the special ones, but the model reads at most {self.longest}; "
                    'shorten it, or give --long truncate (cuts the longest part); in Python: load(…, long="truncate")'
                )
        return replace(field, longest=self.longest).encode(values)

    def fit_context(self, tokens: list[int], place: str) -> list[int]:
        """Tokens that fit in the context with their special tokens; longer ones are refused or cut, see `long`."""
        special_tokens = self.tokenizer.special_tokens
        whole = reads_whole(self.module.config)
        around = len(special_tokens.wrap_input([])) if whole else int(special_tokens.bos is not None)
        why = f" (a context of {self.longest}, of which {around} for special tokens)" if around else ""
        return self.cut(tokens, None if self.longest is None else max(self.longest - around, 0), place, why)

    def cut(self, tokens: list[int], most: int | None, place: str, why: str = "") -> list[int]:
        """At most `most` tokens; `long` decides whether the rest is cut or refused, with `why` in the message."""
        if most is None or len(tokens) <= most:
            return tokens
        if self.long == "error":
            raise UserError(f"{place}: {len(tokens)} tokens, but the model reads at most {most}{why}; {LONG_CURE}")
        return tokens[:most] if self.long == "truncate" else tokens[len(tokens) - most :]

    def captions(self, source: list[int], target: list[int]) -> tuple[list[str], list[str]]:
        """The labels of the columns (source) and rows (target and eos) of an alignment."""
        columns = self.source_tokenizer.pieces(source) if self.source_tokenizer else []
        end = self.target_tokenizer.special_tokens.eos
        return columns, self.target_tokenizer.pieces([*target, *([] if end is None else [end])])

    def autocast(self) -> AbstractContextManager[object]:
        """The autocast context of the model's precision; float32 if the weights are in bfloat16 already."""
        return autocast(self.precision if self._autocasts_weights else "float32", self.device)

    @property
    def decoder(self) -> Any:
        """The model for decoding: with captured steps on a GPU, with weights reordered for oneDNN on a CPU.

        The model itself if it has hooks or parametrizations, if its attention has readers (`regard.edit`), or if
        autocast converts its weights (a captured step would convert them at every step). After a change of the weights
        the decoder is made again.
        """
        hooked = any(part._forward_hooks or part._forward_pre_hooks for part in self.module.modules())
        if hooked or is_parametrized(self.module) or intercepted(self.module):
            return self.module
        weights = (*self.module.parameters(), *self.module.buffers())
        version = [(id(one), one.data_ptr(), one.dtype, one._version) for one in weights]
        made = self._decoders.get("made")
        if made is None or made[0] != version:
            decoder: Any = self.module
            if not self._autocasts_weights:
                decoder = CapturedDecoder(self.module) if self.device.type == "cuda" else with_onednn(self.module)
            made = self._decoders["made"] = version, decoder  # at once: two threads may make one each
        return made[1]

    @cached_property
    def _decoders(self) -> dict[str, tuple[Any, Any]]:
        return {}

    @property
    def _autocasts_weights(self) -> bool:
        return self.precision == "bf16" and next(self.module.parameters()).dtype != torch.bfloat16


@torch.inference_mode(False)  # weights that are made in inference mode cannot be used outside of it
def load(
    path: str | Path | nn.Module,
    device: str = "auto",
    precision: str = "auto",
    long: str = "error",
    allow_pickle: bool = False,
    download: bool = False,
    kinds: Kinds | None = None,
    tokenizer: Any = None,
) -> Loaded:
    """Load a model: the best step of a run (else its latest), the step whose directory is given, a directory of a
    public checkpoint (config.json, safetensors, tokenizer files; or options.json and *weights.hdf5 of ELMo),
    `hf:OWNER/NAME`, fetched only with `download`, or a file of word vectors (word2vec's text or binary, GloVe's text).

    A model of the `transformers` library in memory is copied, with its `tokenizer`; without one it reads ids only.

    The precision `auto` is bf16 on a GPU that supports it, else float32; it is float32 for a run that was trained with
    plan.precision=float32. In bf16 the weights take half the memory, and a few answers differ from those in float32
    (docs/decoding.md)."""
    for name, value, choices in (("precision", precision, PRECISIONS), ("long", long, LONG)):
        if value not in choices:
            raise UserError(f"{name}={value}: no such choice.{nearest(value, choices)}")
    chosen_device, named = choose_device(device), "" if isinstance(path, nn.Module) else str(path)
    if isinstance(path, nn.Module):
        with TemporaryDirectory() as place:
            ours, settings = convert_module(path, tokenizer, Path(place))
            loaded = _with_tokenizers(Path(type(path).__name__), ours, settings, Path(place))
    elif tokenizer is not None:
        raise UserError(f"tokenizer: {path} has its own; leave it out.")
    else:
        path = transformer_folder(resolve_hub_path(path, download, allow_pickle))
        if path.is_file():
            loaded = _load_vectors(path)
        elif is_elmo(path):
            loaded = Loaded(path, read_elmo(path), torch.device("cpu"), public=read_object(path / OPTIONS))
        elif is_public(path):
            settings = read_settings(path)
            loaded = _with_tokenizers(path, read_model(path, settings, allow_pickle), settings, path)
        else:
            loaded = read_step(path, partial(_load_step, path, with_kinds(kinds)))
    if precision == "auto" and loaded.recipe is not None and loaded.recipe.plan.precision == "float32":
        precision = "float32"
    precision = choose_precision(precision, chosen_device)
    module = loaded.module.to(chosen_device, torch.bfloat16 if precision == "bf16" else torch.float32).eval()
    return replace(loaded, module=module, device=chosen_device, precision=precision, long=long, named=named)


def _load_step(path: Path, kinds: Kinds, folder: Path) -> Loaded:
    """The model of a step of a run; `path` is what the user named, the run or the step."""
    if not folder.name.isdecimal():
        raise UserError(f"{path}: a step outside its run, which has the recipe; name the run, or a step in its steps/.")
    run, module = stored(run_of(folder), kinds), load_model(folder, kinds)
    fields, step = read_fields(folder, find_task(run.recipe, kinds), module.config), int(folder.name)
    return Loaded(path, module, torch.device("cpu"), fields, run.recipe, step, kinds=kinds, files=run.files)


def _load_vectors(path: Path) -> Loaded:
    """The word vectors of a file."""
    warnings: list[str] = []
    words, vectors = read_vectors(path, warnings.append)
    module = WordVectorsConfig(vocab=len(SPECIALS) + len(words), width=vectors.shape[1]).build()
    with torch.no_grad():
        module.embedding.weight[: len(SPECIALS)] = 0
        module.embedding.weight[len(SPECIALS) :] = torch.from_numpy(vectors)
    fields = {"text": WordText(word_tokenizer(words))}
    return Loaded(path, module, torch.device("cpu"), fields, public={}, warnings=tuple(warnings))


def _public_task(config: Any, settings: Mapping[str, Any]) -> Task:
    """The task of a public checkpoint: the one that our export named in its settings, or the first that fits."""
    named = TASKS.get(str(settings.get(TASK)))
    return named if named is not None and fits(config, named) else task_of(config)


def _with_tokenizers(path: Path, module: Model, settings: Mapping[str, Any], folder: Path) -> Loaded:
    """A public model with the tokenizers of a folder. Without their files it gives states and logits alone."""
    has_tokenizer = any((folder / file).is_file() for file in VOCAB_FILES)
    source, target = public_tokenizers(folder, settings) if has_tokenizer else (None, None)
    source = source if module.config.reads_source else None  # under a head, T5 reads one text
    for tokenizer, vocab in ((source, module.config.source_vocab), (target, module.config.token_vocab)):
        if tokenizer is not None:
            check_vocab(tokenizer, vocab, path)
    tokenizers = [tokenizer for tokenizer in (source, target) if tokenizer is not None]
    kinds = _public_task(module.config, settings).fields
    fields: dict[str, Field] = {name: kind(one) for (name, kind), one in zip(kinds.items(), tokenizers)}  # type: ignore[call-arg]
    for name, kind in kinds.items() if fields else ():
        if kind in PLAIN_FIELDS:
            fields[name] = PLAIN_FIELDS[kind]
        if not issubclass(kind, LabelField):
            continue
        try:
            fields[name] = kind(label_names(settings, path / "config.json"))
        except UserError as error:
            raise UserError(f"{path / 'config.json'}: id2label: {error}") from error
    return Loaded(path, module, torch.device("cpu"), fields, public=settings)
