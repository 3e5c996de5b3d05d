"""Turns a recipe into what training needs: the corpus, fields, batches, and the model's config with its sizes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.config import Kinds
from regard.data.batches import LENGTHS, Batches
from regard.data.characters import BEGIN, END
from regard.data.detokenize import SPACE
from regard.data.example import Corpus
from regard.data.fields import (
    AT_ONCE,
    EntityTags,
    Field,
    LabelField,
    TextField,
    encode,
    fit_fields,
    in_direction,
    running_field,
)
from regard.data.flat import Flat
from regard.data.joined import JoinedText, texts_of_a_row
from regard.data.related import SeparateTexts, SimilarityField
from regard.data.spelled import SpelledText, field_kinds
from regard.data.streams import (
    Book,
    RunningText,
    Streams,
    WindowRows,
    Windows,
    encode_running,
    encode_sample,
    tokenizer_sample,
    window_of,
)
from regard.data.text_files import Report, TextExamples
from regard.data.tokenizers import LINE_END, OUR_SPECIAL_TOKENS, WORDS, Tokenizer
from regard.data.words import Sentences, Words, WordText, first_word
from regard.device import choose_device
from regard.entities import names_entities
from regard.errors import UserError, is_out_of_memory
from regard.layers.embedding import init_embedding
from regard.models import ModelConfig
from regard.objectives.objective import CountsBatches, LossModule, ReadsSpelling, Trainer
from regard.recipes import KINDS, Recipe, find_task, model_config
from regard.stored import given_tokenizer, read_fields, stored_config
from regard.tasks import Task
from regard.training.extractor import Start
from regard.training.loop import GradientTrainer, Passed, schedule_width
from regard.training.optim import layers_of, place_in_schedule, rate_at
from regard.training.parallel import ALONE, Ranks
from regard.training.warm_start import WarmStart

WORD_KINDS = (*WORDS, "bpe", "byte-bpe")  # kinds of tokens that are words, or that begin words
FEW = 10  # validation examples; with fewer, a warning
SHORT = 200  # characters of a validation text; with fewer, a warning
FINETUNE_STEPS, FINETUNE_ROWS = 200, 8  # batches that fine-tune a small file become smaller, down to so many examples
FEW_STEPS = 100  # steps that fine-tune; with fewer, a warning
MANY_LONG = 0.05  # the part of the training examples that is too long; if it is larger, a warning
MANY_UNKNOWN, READ = 0.05, 1000  # the part of the tokens that a given model does not know; examples that are counted
ABSENT = {  # what metrics need that data may not have, and what to do then
    "tags": "the tags name no entities, as B-PER does; if they should, name another column with data.column=N",
    "predictions": "the pairs have no numbers; if they have, give data.number=COLUMN data.least=N",
}
NO_VECTOR = " "  # the name of a token that is no word: no file has it


@dataclass(frozen=True, eq=False)
class Prepared:
    """A recipe with its data loaded, ready for training on this machine."""

    recipe: Recipe  # as given, but with the model's settings of a warm start, and plan.steps from plan.epochs
    task: Task
    config: ModelConfig  # the model's config, with the sizes of the fields
    fields: Mapping[str, Field]
    corpus: Corpus  # without the training examples: the text is needed only to encode it, and may be large
    examples: int  # how many training examples there are
    batches: Batches | Windows | Sentences  # of the training examples
    device: torch.device
    kinds: Kinds
    text_bytes: int = 0  # of a large training text; 0 for any other
    encoded: float = 1.0  # the fraction of the training text that is in the batches; below 1 only for an estimate
    warnings: tuple[str, ...] = ()  # what is probably a mistake in the data or the plan, with its remedy

    def __repr__(self) -> str:
        size = f"{self.examples:,} examples, {len(self.batches):,} batches"
        return f"<Prepared {self.recipe.name}: {size}, on {self.device}>"

    def build(self) -> LossModule:
        """The model and its objective, on the device, with initial weights that depend on the seed."""
        if self.recipe.plan.threads:
            torch.set_num_threads(self.recipe.plan.threads)
        torch.manual_seed(self.recipe.plan.seed)
        model = self.config.build()
        if counting := [part for part in model.modules() if isinstance(part, CountsBatches)]:
            for batch in self.batches.part(0, 1):
                for part in counting:
                    part.count_batch(batch)
        if self.config.characters:  # not the characters of an extractor, whose words are its own
            names = _spelled_names(next(each for each in self.fields.values() if isinstance(each, TextField)).tokenizer)
            for spelled in model.modules():
                if isinstance(spelled, ReadsSpelling):
                    spelled.set_words(names)
        return LossModule(model, self.recipe.objective, self.fields).to(self.device)

    def trainer(self, ranks: Ranks = ALONE, passed: Passed = lambda: 0.0) -> Trainer:
        """What trains the model: the objective's own trainer if it has one, else gradients; `passed`: see `train`."""
        loss_module, plan = self.build(), self.recipe.plan
        width = schedule_width(loss_module.model, plan)

        def rate(steps: float) -> float:
            return rate_at(plan, place_in_schedule(plan, steps, passed()), width)

        own = self.recipe.objective.trainer(loss_module.model, self.batches, plan, rate)
        return own or GradientTrainer(loss_module, self.batches, plan, ranks, passed)

    @contextmanager
    def within_memory(self) -> Iterator[None]:
        """Turn a lack of memory inside the block into a UserError that names the settings to change."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            plan = self.recipe.plan
            lower = f"lower plan.batch_tokens ({plan.batch_tokens})"
            keep = f"raise plan.accumulate ({plan.accumulate}) in proportion to keep the size of a step"
            saves = [
                *([] if plan.checkpoint else ["set plan.checkpoint=true (a Transformer)"]),
                *(["set plan.precision=bf16"] if plan.precision == "float32" else []),
                "make the model smaller",
            ]
            raise UserError(f"out of memory on {self.device}: {lower} and {keep}, or {', or '.join(saves)}.") from error

    def init_embeddings(self, model: nn.Module) -> float | None:
        """Set the input embedding to the word vectors of the file `config.embedding`, if there is one.

        Returns the fraction of the words of the vocabulary that the file has.
        """
        path, config = self.config.embedding, self.config
        if not path:
            return None
        name, text = next((name, each) for name, each in self.fields.items() if isinstance(each, TextField))
        if text.tokenizer.kind not in WORD_KINDS:
            setting = "data.tokens" if name == "text" else f"data.{name}_tokens"
            cure = f"set {setting}=word or {setting}=bpe"
            raise UserError(f"model.embedding={path}: {setting}={text.tokenizer.kind} has no words; {cure}.")
        embedding = model.get_submodule(config.input_embedding)
        assert isinstance(embedding, nn.Embedding)
        names = _word_vector_names(text.tokenizer)
        found = init_embedding(embedding, path, names, config.embedding_width, config.embedding_scale)
        return found / sum(name != NO_VECTOR for name in names)


def prepare(
    recipe: Recipe,
    folder: Path | None = None,
    given: Start | None = None,
    kinds: Kinds = KINDS,
    report: Report | None = None,
    whole: bool = True,
    ranks: int = 1,
) -> Prepared:
    """Load the corpus; fit the fields, read those of a saved step, or take the tokenizers of a warm start.

    `report` is called while examples, or a large text, are encoded. Without `whole`, only a sample of a large text is
    encoded. Contiguous text is cut into lanes for this many `ranks`.
    """
    device = choose_device(recipe.plan.device)
    if given:
        recipe = given.recipe_for(recipe, kinds)
    task = find_task(recipe, kinds)
    corpus: Corpus = recipe.data.load(report) if isinstance(recipe.data, Book | Words) else recipe.data.load()
    if not corpus.train:
        file = getattr(recipe.data, "train", "")
        cure = f"data.train={file} is too short, give a longer file" if file else "set data.train"
        raise UserError(f"data: {recipe.name} has no training examples; {cure}.")
    if folder:
        config = stored_config(folder, kinds)
        fields = read_fields(folder, task, config)
    else:
        fields = given.fields_for(task, recipe, corpus.train) if given else _fitted(recipe, task, corpus, report)
        sizes = {name: field.size for name, field in fields.items()}
        names = {name: field.names for name, field in fields.items() if isinstance(field, LabelField)}
        config = model_config(recipe, task, kinds).with_sizes(sizes, padded=given is not None).with_names(names)
        fields = in_direction(fields, config.direction)
    fields = {
        name: each.within(_longest_row(config)) if isinstance(each, SeparateTexts) else each
        for name, each in fields.items()
    }
    for name, field in fields.items():
        if not isinstance(field, TextField):  # a class that is unknown stops the run here, not at an evaluation
            field.encode([getattr(example, name) for example in corpus.valid])
    batches: Batches | Windows | Sentences
    text, encoded, cut, advised = fields.get("text"), 1.0, 0, set[str]()
    if running_field(fields):
        batches, encoded = _windows(recipe, task, corpus, config, fields, report, whole, ranks)
    elif isinstance(text, WordText):
        ids, key = encode_running(text.tokenizer, corpus.train, report)
        batches = Sentences(ids, first_word(text.tokenizer), recipe.plan.batch_tokens, recipe.plan.seed, key, report)
    else:
        batches, cut = _batches(recipe, task, corpus, config, fields, report)
        if "plan.batch_tokens" in (advised := _advised(recipe, given)):
            recipe, batches = _smaller_batches(recipe, task, config, batches, ranks)
    size = len(corpus.train.text) if isinstance(corpus.train, TextExamples) else 0
    recipe, doubts = _with_metrics(_with_steps(recipe, len(batches) / encoded / ranks), fields, kinds)
    return Prepared(
        recipe=recipe,
        task=task,
        config=config,
        fields=fields,
        corpus=replace(corpus, train=()),
        examples=len(corpus.train),
        batches=batches,
        device=device,
        kinds=kinds,
        text_bytes=size,
        encoded=encoded,
        warnings=(
            *corpus.warnings,
            *doubts,
            *_warnings(recipe, config, corpus, running=not isinstance(batches, Batches)),
            *(_few_steps(recipe) if "plan.epochs" in advised else ()),
            *(_too_long(recipe, config, batches, cut) if isinstance(batches, Batches) else ()),
            *(_unknown(fields, corpus.train[:READ]) if given and isinstance(batches, Batches) else ()),
        ),
    )


def _fitted(recipe: Recipe, task: Task, corpus: Corpus, report: Report | None) -> dict[str, Field]:
    """The fields of a task, fitted to the training examples, or with the tokenizer that `data.tokenizer` names."""
    sample: Iterable[Any] = corpus.train
    if isinstance(corpus.train, TextExamples):  # a large text
        sample = tokenizer_sample(recipe.data, corpus.train, report)
    kinds = field_kinds(task.fields, recipe.model.reads_words)
    if path := getattr(recipe.data, "tokenizer", ""):
        tokenizer = given_tokenizer(path)
        return {name: kind(tokenizer) for name, kind in kinds.items()}  # type: ignore[call-arg]
    return fit_fields(kinds, sample, recipe.data)


def _batches(
    recipe: Recipe,
    task: Task,
    corpus: Corpus,
    config: ModelConfig,
    fields: Mapping[str, Field],
    report: Report | None,
) -> tuple[Batches, int]:
    """The batches of training examples that are not one running text, and how many of these were cut."""
    plan, limit, train = recipe.plan, _longest_row(config), corpus.train
    if task.pieces is not None:
        most = None if limit is None else min(limit, plan.batch_tokens)
        train = [one for some in task.pieces(fields, train, recipe.data, most) for one in some]
    cut = dict.fromkeys(task.cuts, limit) if limit is not None else {}
    columns = encode(fields, train, report, cut)
    texts = texts_of_a_row(fields, columns)
    if texts > 1 and config.split()[1] is None:
        why = "this model has an output layer of its own, which reads one text"
        raise UserError(f"data.both_orders=true: {why}; add head={task.head}.")
    corruption = recipe.objective.corruption(fields)
    batches = Batches(columns, task, max(plan.batch_tokens // texts, 2), plan.seed, limit, corruption)
    if recipe.objective.compares_rows and (largest := max(batches.shapes))[0] < 2:
        found = "every batch has one example, but this objective compares the examples of a batch"
        raise UserError(f"plan.batch_tokens={plan.batch_tokens}: {found}; give {2 * max(largest[1:])} or more.")
    return batches, sum(_longer(fields[name], name, train, columns[name], most) for name, most in cut.items())


def _advised(recipe: Recipe, given: Start | None) -> set[str]:
    """The names of the settings that the recipe, and not the user, gives to a run that fine-tunes a model."""
    used = given.finetune if isinstance(given, WarmStart) else ()
    return {setting.partition("=")[0] for setting in used if setting in recipe.finetune}


def _smaller_batches(
    recipe: Recipe, task: Task, config: ModelConfig, batches: Batches, ranks: int
) -> tuple[Recipe, Batches]:
    """The recipe with smaller batches if its epochs have too few steps to fine-tune a model, and these batches.

    A model that reads a small file a few times learns more from many small steps than from a few large ones, in the
    same time. No example is left out for that, and no passage is cut into shorter windows.
    """
    plan, window = recipe.plan, 0
    if task.pieces is not None:
        window = min(_longest_row(config) or plan.batch_tokens, plan.batch_tokens)
    while plan.epochs is not None and plan.epochs * len(batches) / plan.accumulate / ranks < FINETUNE_STEPS:
        half, smaller = plan.batch_tokens // 2, batches.halved()
        if smaller is None or half < window or smaller.rows / len(smaller) < FINETUNE_ROWS:
            break
        plan, batches = replace(plan, batch_tokens=half), smaller
    return replace(recipe, plan=plan), batches


def _longer(field: Field, name: str, examples: Sequence[Any], column: Flat, most: int) -> int:
    """How many texts of a column that was cut have more than so many tokens; only those that fill it are read again."""
    full = np.flatnonzero(column.lengths >= most).tolist()
    some = (
        [getattr(examples[place], name) for place in full[at : at + AT_ONCE]] for at in range(0, len(full), AT_ONCE)
    )
    return sum(len(one) > most for values in some for one in field.encode(values))  # type: ignore[arg-type]


def without_metrics(recipe: Recipe, needs: str, kinds: Kinds) -> Recipe:
    """The recipe without the metrics that need what its data does not have, such as tags that name entities.

    If one of these selects the best step, accuracy does so instead, or the loss if that is not measured.
    """
    known = kinds["metric"]
    metrics = tuple(name for name in recipe.metrics if name not in known or known[name].needs != needs)
    instead = "accuracy" if "accuracy" in metrics else "loss"
    select = recipe.plan.select if recipe.plan.select in ("loss", *metrics) else instead
    return replace(recipe, metrics=metrics, plan=replace(recipe.plan, select=select))


def _with_metrics(recipe: Recipe, fields: Mapping[str, Field], kinds: Kinds) -> tuple[Recipe, list[str]]:
    """The recipe with the metrics that its tags or numbers allow, and a warning if some are left out."""
    if any(isinstance(each, EntityTags) and not names_entities(each.names) for each in fields.values()):
        needs = "tags"
    elif any(isinstance(each, SimilarityField) and each.least is None for each in fields.values()):
        needs = "predictions"
    else:
        return recipe, []
    plain = without_metrics(recipe, needs, kinds)
    if not (left := [name for name in recipe.metrics if name not in plain.metrics]):
        return plain, []
    return plain, [f"{', '.join(left)} left out, and the best step selected by {plain.plan.select}: {ABSENT[needs]}."]


def _with_steps(recipe: Recipe, batches: float) -> Recipe:
    """The recipe with `plan.steps` from `plan.epochs`, if that is given, and each setting "epoch" as a number of steps.

    `batches` is the batches of an epoch.
    """
    plan = recipe.plan
    an_epoch = max(1, math.ceil(batches / plan.accumulate))
    if plan.unfreeze == "epoch":
        plan = replace(plan, unfreeze=an_epoch)
    if plan.evaluate == "epoch":
        plan = replace(plan, evaluate=an_epoch)
    if plan.epochs is None:
        return replace(recipe, plan=plan)
    if recipe.objective.learns_by == "counts":
        raise UserError(f"plan.epochs={plan.epochs:g}: a model that counts reads its text once; leave it out.")
    steps = max(1, math.ceil(plan.epochs * batches / plan.accumulate))
    return replace(recipe, plan=replace(plan, steps=steps))


def _warnings(recipe: Recipe, config: ModelConfig, corpus: Corpus, running: bool) -> Iterator[str]:
    """What is probably a mistake in the plan or in the size of the validation set."""
    plan, valid = recipe.plan, len(corpus.valid)
    warms_up = plan.schedule != "triangular" and "warmup" in recipe.objective.plan_settings
    if plan.warmup_steps >= plan.steps and warms_up:
        reached = f"the learning rate rises to the end and reaches {plan.steps / plan.warmup_steps:.0%} of its maximum"
        cure = f"lower plan.warmup, or raise plan.{'steps' if plan.epochs is None else 'epochs'}"
        yield f"plan.warmup={plan.warmup}: the run has {plan.steps} steps, so {reached}; {cure}."
    if plan.unfreeze:
        with torch.device("meta"):
            layers = layers_of(nn.ModuleDict({"model": config.build()}), plan)
        if late := [layer.name for layer in layers if (layer.start or 0) >= plan.steps]:
            reached = f"the run has {plan.steps} steps, so {', '.join(late)} would never train"
            cure = f"raise plan.{'steps' if plan.epochs is None else 'epochs'}, or set plan.unfreeze=0"
            yield f"plan.unfreeze: the next layer trains after every {plan.unfreeze} steps; {reached}; {cure}."
    if running and valid < FEW and (characters := sum(len(one.text) for one in corpus.valid)) < SHORT:
        found = f"the validation text has {characters} characters, too few to select the best step reliably"
        yield f"data.valid: {found}; give a longer text."
    if not running and valid < FEW:
        found = f"the validation set has {valid} example{'s' * (valid > 1)}, too few to select the best step reliably"
        yield f"data.valid: {found}; give data.valid=FILE or more training examples."


def _few_steps(recipe: Recipe) -> Iterator[str]:
    """A warning if the epochs that the recipe gives to a run that fine-tunes a model have few steps."""
    plan = recipe.plan
    if plan.epochs is not None and plan.steps < FEW_STEPS:
        more = math.ceil(plan.epochs * FEW_STEPS / plan.steps)
        found = f"the training file is small, so the run has {plan.steps} steps, which are few to fine-tune a model"
        yield f"plan.epochs={plan.epochs:g}: {found}; plan.epochs={more} has about {FEW_STEPS}."


def _too_long(recipe: Recipe, config: ModelConfig, batches: Batches, cut: int) -> Iterator[str]:
    """A warning if many training examples are cut, or left out, because they are too long."""
    budget, longest = recipe.plan.batch_tokens, _longest_row(config)
    if cut > MANY_LONG * batches.rows:
        found = f"{cut:,} of {batches.rows:,} training examples have more than {longest} tokens"
        yield f"{found}, the most that the model reads, and are cut; to keep all of them, use a model that reads more."
    if batches.dropped > MANY_LONG * batches.rows:
        most = f"more than {longest} tokens, the most that the model reads"
        cure = "shorten their texts, or train with a model that reads more"
        if longest is None or budget < longest:
            most, cure = f"more tokens than plan.batch_tokens={budget}", "raise it, or shorten their texts"
        found = f"{batches.dropped:,} of {batches.rows:,} training examples have {most}"
        yield f"{found}, and are left out; {cure}."


def _unknown(fields: Mapping[str, Field], examples: Sequence[Any]) -> Iterator[str]:
    """A warning if many tokens of the training texts are not in the vocabulary of a given model."""
    for name, field in fields.items():
        if not isinstance(field, TextField) or isinstance(field, SpelledText):  # an extractor tells it of words
            continue
        values = [getattr(example, name) for example in examples]
        joined = field.texts if isinstance(field, JoinedText) else tuple
        texts = [text for value in values for text in ([value] if isinstance(value, str) else joined(value))]
        ids = [token for text in field.tokenizer.encode_batch(texts) for token in text]
        part = sum(token == field.tokenizer.special_tokens.unk for token in ids) / max(len(ids), 1)
        if part > MANY_UNKNOWN:
            found = f"{part:.0%} of the tokens of the training texts are not in the vocabulary of the model of from="
            yield f"{found}; start from a model of similar texts, or from one with data.tokens=byte-bpe."


def _windows(
    recipe: Recipe,
    task: Task,
    corpus: Corpus,
    config: ModelConfig,
    fields: Mapping[str, Field],
    report: Report | None,
    whole: bool,
    ranks: int,
) -> tuple[Windows, float]:
    """The windows of the training text, and the fraction of the text that they cover."""
    found = running_field(fields)
    assert found is not None
    name, text = found
    plan, window = recipe.plan, window_of(recipe.data, config.longest)
    if not whole and (sample := encode_sample(text.tokenizer, corpus.train)):
        ids, part, key = *sample, ""
    else:
        (ids, key), part = encode_running(text.tokenizer, corpus.train, report), 1.0
    if recipe.data.order == "contiguous":
        if not config.carries:
            cure = "use model=lstm, or model=gpt with model.positions=xl model.memory=128, or data.order=random"
            raise UserError(f"data.order=contiguous: this model carries no state from window to window; {cure}.")
        if not recipe.objective.carries:
            why = "this objective starts every window from a fresh state"
            raise UserError(f"data.order=contiguous: {why}; use objective=teacher, or data.order=random.")
        lanes = plan.accumulate * ranks
        return Streams(ids, window, plan.batch_tokens, plan.seed, lanes, key, recipe.data.spread), part
    if isinstance(text, RunningText):
        return Windows(ids, window, plan.batch_tokens, plan.seed, key=key), part
    corruption = recipe.objective.corruption(fields)
    return WindowRows(ids, text, task, window, plan.batch_tokens, plan.seed, key, corruption, name), part


def _longest_row(config: ModelConfig) -> int | None:
    """The longest row of a batch: the model's longest text, rounded down to a width that batches have."""
    if config.longest is None:
        return None
    if config.reads_source and config.longest < LENGTHS[0]:
        name = config.longest_setting
        raise UserError(f"model.{name}={config.longest}: batches are padded to {LENGTHS[0]} tokens; give that or more.")
    return max((length for length in LENGTHS if length <= config.longest), default=config.longest)


def _spelled_names(tokenizer: Tokenizer) -> list[str]:
    """The spelling of each token for a model that reads the characters of words; bos and eos end a sentence."""
    if tokenizer.kind not in WORDS:
        raise UserError(
            f"data.tokens={tokenizer.kind}: this model reads the characters of words; set data.tokens=word."
        )
    special = tokenizer.in_direction("forward").special_tokens
    names = tokenizer.pieces(range(tokenizer.size))
    for token, name in ((special.bos, BEGIN), (special.eos, END)):
        if token is not None:
            names[token] = name
    return [END if name == LINE_END else name for name in names]


def _word_vector_names(tokenizer: Tokenizer) -> list[str]:
    """The name of each token in a file of word vectors.

    A sub-word that begins a word has the name of that word, without '▁'. A sub-word inside a word has no vector, even
    if the file has a word of the same letters. Punctuation is always a word of its own. Special tokens have none.
    """
    pieces = tokenizer.pieces(range(tokenizer.size))
    for token in {*tokenizer.special_tokens.ids, *OUR_SPECIAL_TOKENS.ids}:
        pieces[token] = NO_VECTOR
    if tokenizer.kind in WORDS:
        return pieces
    return [NO_VECTOR if piece[:1].isalnum() else piece.removeprefix(SPACE) or NO_VECTOR for piece in pieces]
