"""The ladder of pre-training: families of models at one size, on one text, with one tokenizer and one budget.

An entry is a family, or a family with one setting changed: a pair of these isolates one claim of a paper. Every entry
is pre-trained once, and then fine-tuned on labelled texts (the probe) with each seed; the same network also learns the
probe from scratch. `climb` does the work of one entry, so that several processes can share a device.
"""

import json
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from regard.config import override, to_json
from regard.data.fields import MASK, SENTINELS
from regard.data.labelled import Labelled
from regard.data.streams import tokenizer_sample
from regard.data.text_files import TextExamples
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError, nearest
from regard.file_io import atomic_write
from regard.heads import Pool
from regard.recipes import KINDS, Recipe, change, find_recipe, find_task, model_config, with_vocabularies
from regard.stored import given_tokenizer
from regard.training.ladder.cells import Cell, fit_size, measured, parameters, stored_data
from regard.training.ladder.side_by_side import Follow
from regard.training.warm_start import WarmStart, warm_start_from, warm_started

RATE = "plan.rate=1e-3"  # higher than in the recipe: the models are small, and have few steps
LAST = 10**9  # steps between two evaluations: only the last step is evaluated
# The settings of a probe in the name of its folder; those that later versions add are not among them.
KEYED = ("train", "valid", "text", "label", "labels", "steps", "rate", "batch_tokens", "pool")
DRAWN = 1  # the seed by which the labelled texts are drawn; all entries and seeds learn from the same texts


@dataclass(frozen=True)
class Entry:
    """A family with settings of its own."""

    family: str  # the name of the model in settings
    settings: tuple[str, ...] = ()
    changed: str = ""  # the setting in which it differs from its family, such as objective.places=masked
    fitted: bool = True  # whether its width is changed to have as many parameters as the others

    @property
    def name(self) -> str:
        return f"{self.family} {self.changed}" if self.changed else self.family

    @property
    def own_network(self) -> bool:
        """Whether no other entry has the same network, which learns the probe from scratch."""
        return not self.changed or self.changed.startswith("model.")


FAMILIES = {
    entry.family: entry
    for entry in (
        Entry("gpt"),
        Entry("transformer-xl"),
        Entry("lstm", ("plan.rate=3e-3",)),  # at the rate of a Transformer, it learns slowly
        Entry("bert"),
        Entry("roberta"),
        Entry("albert", fitted=False),  # to share weights is its purpose: it has the width of BERT, and is smaller
        Entry("electra"),
        Entry("masked-lstm", ("plan.rate=3e-3",)),
        Entry("t5"),
    )
}
# The kind of network by the directions in which it reads. RoBERTa, not BERT: it learns from masked tokens alone.
GRID = {"RNN": ("lstm", "masked-lstm"), "Transformer": ("gpt", "roberta")}


@dataclass(frozen=True)
class Pair:
    """Two entries that differ in one setting: a family as it is, and with another value."""

    family: str
    setting: str
    values: tuple[str, str]  # that of the family, and the other one
    claim: str

    @property
    def entries(self) -> tuple[Entry, Entry]:
        entry = FAMILIES[self.family]
        changed = f"{self.setting}={self.values[1]}"
        # With another number of parameters, if the setting is one of the model: the width stays.
        fitted = entry.fitted and not self.setting.startswith("model.")
        return entry, replace(entry, changed=changed, fitted=fitted)


PAIRS = {
    "next-sentence": Pair(
        "bert",
        "objective.sentences",
        ("next", "none"),
        "BERT asks whether the second part of a text follows the first (Devlin et al. 2019); RoBERTa leaves it out "
        "(Liu et al. 2019).",
    ),
    "masks": Pair(
        "roberta",
        "objective.static",
        ("0", "1"),
        "RoBERTa masks other tokens each time it reads a text; BERT had ten masks of a text for forty readings. Here a "
        "text has one mask, because a small text is read a few times only.",
    ),
    "sentence-order": Pair(
        "albert",
        "objective.sentences",
        ("order", "next"),
        "ALBERT asks for the order of two parts instead of whether one follows the other (Lan et al. 2020).",
    ),
    "shared-layers": Pair(
        "albert",
        "model.groups",
        ("1", "0"),
        "All layers of ALBERT share their weights (Lan et al. 2020). Without sharing, the model has more parameters.",
    ),
    "all-tokens": Pair(
        "electra",
        "objective.places",
        ("all", "masked"),
        "The loss of ELECTRA is on all tokens, not only on the 15 % that may be replaced (Clark et al. 2020).",
    ),
}


@dataclass(frozen=True)
class Probe:
    """Labelled texts on which every pre-trained model is fine-tuned."""

    train: str = ""  # the file of the training texts, as in regard train classify; empty: no probe
    valid: str = ""  # the file of the validation texts; if empty, 2 % of the training texts are held out
    text: str = ""  # the column of the texts, for a file with a header; if empty, "text" in .csv and .jsonl
    label: str = ""  # the column of the labels, for a file with a header; if empty, "label" in .csv and .jsonl
    labels: int = 1000  # how many of the training texts are used, drawn at random; 0: all
    steps: int = 400  # of fine-tuning; the last step is evaluated, so the validation texts select nothing
    rate: float = 3e-4  # the learning rate; three times this for recurrent networks
    batch_tokens: int = 1024  # tokens of a batch
    pool: Pool = "mean"  # the states that a classifier reads, as head.pool; auto: the first or the last, as is usual

    def __post_init__(self) -> None:
        for name, least in (("labels", 0), ("steps", 1), ("batch_tokens", 2)):
            if getattr(self, name) < least:
                raise UserError(f"probe.{name}={getattr(self, name)}: give {least} or more.")
        if not 0 < self.rate < float("inf"):
            raise UserError(f"probe.rate={self.rate}: give a number above 0, such as 3e-4.")

    @property
    def key(self) -> dict[str, Any]:
        """The settings that results depend on. One that was added later counts only if it has no default value."""
        later = {one.name: one.default for one in fields(self) if one.name not in KEYED}
        return {name: value for name, value in vars(self).items() if name not in later or value != later[name]}

    def write(self, out: Path) -> "Probe":
        """The probe with the texts that are used, drawn and written to files: all entries learn from the same."""
        try:
            corpus = Labelled(self.train, self.valid, text=self.text, label=self.label).load()
        except UserError as error:  # it names settings of regard train classify
            raise UserError(re.sub(r"\bdata\.(?=(train|valid|text|label)\b)", "probe.", str(error))) from error
        train = [one for one in corpus.train if one.text]
        drawn = random.Random(DRAWN).sample(train, min(self.labels or len(train), len(train)))
        parts = {"train": drawn, "valid": [one for one in corpus.valid if one.text]}
        if missing := {one.label for one in parts["valid"]} - {one.label for one in drawn}:
            cure = "raise probe.labels, or give other files"
            raise UserError(f"probe.labels={self.labels}: no drawn text has the label {min(missing)!r:.40}; {cure}.")
        lines = {
            name: "".join(json.dumps({"text": one.text, "label": one.label}) + "\n" for one in examples)
            for name, examples in parts.items()
        }
        folder = out / f"probe-{_key([self.key, lines])}"  # results of other texts are not read
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in lines.items():
            with atomic_write(folder / f"{name}.jsonl") as file:
                file.write(content.encode())
        return replace(self, train=f"{folder}/train.jsonl", valid=f"{folder}/valid.jsonl", text="", label="")


@dataclass(frozen=True)
class Settings:
    """The settings of the ladder that are not settings of the recipe `pretrain`."""

    probe: Probe = field(default_factory=Probe)


@dataclass(frozen=True)
class Job:
    """An entry to pre-train and to probe."""

    entry: Entry
    cell: Cell
    probe: Probe | None  # its files are written; None: no probe
    seeds: tuple[int, ...]  # of the probe
    relative_rate: float = 1.0  # its learning rate, as a multiple of that of BERT

    @property
    def name(self) -> str:
        return self.entry.name


@dataclass(frozen=True)
class Pretrained:
    """What a job found: the results of `measure`."""

    entry: Entry
    cell: Mapping[str, Any] | None  # None: training diverged
    tuned: Sequence[Mapping[str, Any]] = ()  # the probe from the pre-trained weights, with each seed
    scratch: Sequence[Mapping[str, Any]] = ()  # the probe from new weights, with each seed
    diverged: int = 0  # runs of the probe that diverged


def select(words: Sequence[str]) -> tuple[list[Entry], list[Pair]]:
    """The entries and the pairs with these names, without names all of them. A pair has two entries."""
    for word in words:
        if word not in FAMILIES and word not in PAIRS:
            near = nearest(word, [*FAMILIES, *PAIRS])
            raise UserError(f"ladder pretrain {word}: neither a family nor a pair of this ladder.{near}")
    pairs = [pair for name, pair in PAIRS.items() if name in words or not words]
    bases = {pair.family for pair in pairs}
    found = [entry for name, entry in FAMILIES.items() if name in words or name in bases or not words]
    return [*found, *(pair.entries[1] for pair in pairs)], pairs


def jobs(
    settings: Sequence[str], probe: Probe, entries: Sequence[Entry], seeds: int, minutes: float | None, out: Path
) -> list[Job]:
    """A job for each entry. `settings` are those of the recipe, for all entries."""
    bert = _recipe(FAMILIES["bert"], settings)
    tokenizer = bert.data.tokenizer or _known_tokenizer(settings, out) or str(_shared_tokenizer(bert, out))
    vocab = given_tokenizer(tokenizer).size
    target = parameters(_sized(bert, vocab))
    written = probe.write(out) if probe.train else None
    found = []
    for entry in entries:
        recipe = _recipe(entry, [*settings, f"data.tokenizer={tokenizer}"])
        sized = _sized(recipe, vocab)
        model = with_vocabularies(fit_size(entry.name, sized, target) if entry.fitted else sized)
        plan = replace(recipe.plan, minutes=minutes, patience=0)
        cell = Cell(entry.name, plan.seed, replace(recipe, model=model, plan=plan), _place(entry, out), part="valid")
        every = tuple(range(plan.seed, plan.seed + seeds))
        found.append(Job(entry, cell, written, every, plan.rate / bert.plan.rate))
    return found


def _recipe(entry: Entry, settings: Sequence[str]) -> Recipe:
    """The recipe of an entry. A setting of the model is for the Transformers that have it."""
    kind: Any = KINDS["model"][entry.family]
    known = {f"model.{one.name}" for one in fields(kind)}
    attends = "model.heads" in known
    given = [one for one in settings if not one.startswith("model.") or (attends and one.partition("=")[0] in known)]
    changed = [entry.changed] if entry.changed else []
    recipe = change(find_recipe("pretrain"), [f"model={entry.family}", RATE, *entry.settings, *given, *changed], KINDS)
    if "masked" in recipe.model.predicts:
        recipe = replace(recipe, metrics=("filled", *recipe.metrics))
    return recipe


def _sized(recipe: Recipe, vocab: int) -> Any:
    """The config of a recipe's model for a vocabulary of this size."""
    task = find_task(recipe, KINDS)
    return model_config(recipe, task, KINDS).with_sizes(dict.fromkeys(task.fields, vocab))


def _place(entry: Entry, out: Path) -> Path:
    """The directory of the run that pre-trains an entry."""
    return out / "cells" / entry.name.replace(" ", "-").replace("=", "-") / "pretrain"


def _known_tokenizer(settings: Sequence[str], out: Path) -> str:
    """The file of the tokenizer that the cells of this ladder have already; empty if none has one for the same data.

    Its name follows from all settings of the data, which may have been others in the version that started the ladder.
    """
    for entry in select([])[0]:
        data = stored_data(_place(entry, out))
        file = getattr(data, "tokenizer", "")
        there = file and Path(file).parent == out and Path(file).is_file()
        with suppress(UserError):  # an entry that is not asked for now need not have these settings
            if there and replace(data, tokenizer="") == _recipe(entry, settings).data:
                return str(file)
    return ""


def _shared_tokenizer(recipe: Recipe, out: Path) -> Path:
    """The file of the tokenizer of all entries. It has a mask and sentinels, whatever a family needs."""
    data = recipe.data
    path = out / f"tokenizer-{_key(to_json(data, KINDS))}.json"
    if not path.exists():
        examples = data.load().train
        if not examples:
            raise UserError(f"data.train={data.train}: has no text; give another file.")
        sample = tokenizer_sample(data, examples) if isinstance(examples, TextExamples) else examples
        texts = (one.text for one in sample)
        out.mkdir(parents=True, exist_ok=True)
        train_tokenizer(data.tokens, texts, data.vocab, mask=MASK, sentinels=SENTINELS).save(path)
    return path


def _key(settings: Any) -> str:
    """A name for settings: files that were made with other settings have another name."""
    return f"{crc32(json.dumps(settings, sort_keys=True).encode()):08x}"


def climb(job: Job, follow: Follow) -> Pretrained:
    """Pre-train an entry, then learn the probe with each seed. What is on disk already is read."""
    cell = measured(job.cell, follow)
    if cell is None or job.probe is None:
        return Pretrained(job.entry, cell)
    given = warm_start_from(job.cell.out)
    found: dict[str, list[Any]] = {"tuned": [], "scratch": []}
    for seed in job.seeds:
        for name, results in found.items():
            if name == "scratch" and not job.entry.own_network:
                continue
            recipe, start = fine_tuning(job, given, seed)
            start = start if name == "tuned" else start._replace(weights=dict)  # the tokenizer and sizes alone
            place = job.cell.out.parent / Path(job.probe.train).parent.name / name / f"seed-{seed}"
            results.append(measured(Cell(name, seed, recipe, place, part="valid", start=start), follow))
            if seed != job.seeds[0] and place.is_dir():
                shutil.rmtree(place)  # the result stays; the weights of many seeds would take gigabytes
    tuned, scratch = ([one for one in results if one is not None] for results in found.values())
    diverged = sum(results.count(None) for results in found.values())
    return Pretrained(job.entry, cell, tuned, scratch, diverged)


def fine_tuning(job: Job, given: WarmStart, seed: int) -> tuple[Recipe, WarmStart]:
    """The recipe of the probe from a pre-trained model, and the model.

    A model that reads a source and writes a target writes the label, as T5 does. Any other gets a head and is a
    classifier.
    """
    assert job.probe is not None
    probe, plan = job.probe, job.cell.recipe.plan
    rate = probe.rate * job.relative_rate
    classifies = not given.config.split()[0].reads_source
    own = [f"head.pool={probe.pool}"] if classifies else ["data.source=text", "data.target=label"]
    metric = "accuracy" if classifies else "exact"
    settings = [
        f"data.train={probe.train}",
        f"data.valid={probe.valid}",
        *own,
        *(f"plan.{name}={getattr(plan, name)}" for name in ("device", "precision", "threads")),
        f"plan.steps={probe.steps}",
        f"plan.rate={rate:.3g}",
        f"plan.batch_tokens={probe.batch_tokens}",
        "plan.warmup=0.1",
        f"plan.evaluate={LAST}",
        f"plan.select={metric}",
        f"plan.seed={seed}",
        "plan.schedule=linear",
        "plan.patience=0",
        "plan.keep=1",
        f"metrics={metric}",
    ]
    return warm_started(find_recipe("classify" if classifies else "translate"), settings, given, job.cell.out)


def probe_of(settings: Sequence[str]) -> Probe:
    """The probe that settings describe: probe.train=FILE, or probe=FILE in short, and others."""
    named = [re.sub("^probe=", "probe.train=", one) for one in settings]
    probe = override(Settings(), named, KINDS).probe
    if settings and not probe.train:
        raise UserError(f"{settings[0]}: probe.train is not set; give the labelled texts with probe.train=FILE")
    return probe
