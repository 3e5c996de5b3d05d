"""One example as a model reads it in training: its tokens, what is masked and predicted, where its parts end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch

from regard.config import Kinds
from regard.data.batches import IGNORED, Batch
from regard.data.fields import Field, LabelField, TextField
from regard.data.joined import PADDING
from regard.data.sources import Lines
from regard.data.streams import Book
from regard.data.tokenizers import Tokenizer
from regard.models import Bert
from regard.objectives import ReplacedTokens
from regard.recipes import KINDS, Recipe, find_task
from regard.report.sections import Interlinear, Section, Table, Text
from regard.training.prepare import Prepared, prepare

OWN_VOCAB, OWN_WINDOW = 400, 48  # tokens of the vocabulary and of a window of our own text
OWN_TEXT = (  # paragraphs
    "The heron stood in the shallow water and did not move. A fish came near. The bird waited until the fish "
    'was close, and then it struck. "What a patient bird!" said the girl on the bridge. She had watched it '
    "since noon. Her brother was less patient. He threw a stone into the river, and the heron flew away.",
    'In the evening they told their grandmother about it. She laughed. "A heron never hurries," she said, "but '
    'it never comes too late." The next morning the girl went to the bridge again. The heron was there. It '
    "stood in the shallow water, as if nothing had happened. This time her brother stayed at home. He was "
    "reading a book about birds.",
    "The river comes from the mountains. In spring, when the snow melts, the water rises and covers the "
    "meadows. Then the herons walk between the trees and look for frogs. In summer the river is narrow and "
    "slow. Children build dams of stones, and small fish hide under the bridge. Nobody knows how old the "
    "bridge is. The oldest people in the village say that it was always there.",
)
FIRST, LAST, NO_ANSWER = "first", "last", "no answer"  # what a model that answers questions predicts, at these tokens
REPLACED, ORIGINAL = "replaced", "original"  # what ELECTRA predicts of each token
SHOWN = {"mask": "masked", "random": "random", "kept": "kept"}  # what is shown at a chosen place, by the name in JSON
SENTENCES = {  # the answers to a question about two parts, by `objective.sentences`
    "next": ("the second part follows the first", "the second part comes from elsewhere"),
    "order": ("the two parts are in their order", "the two parts have changed places"),
}


@dataclass(frozen=True)
class Place:
    """One place of an input."""

    token: str  # what the model reads
    segment: int | None = None  # the part of the input that it belongs to
    chosen: str | None = None  # of a token that a masked model predicts, what is shown: mask, random or kept
    predicts: str | None = None  # what should be predicted at this place


@dataclass(frozen=True)
class ExamplePicture:
    """An example as data: the places of each input, and the answers that are predicted for the whole of it."""

    recipe: str
    task: str
    objective: str
    inputs: Mapping[str, tuple[Place, ...]]
    answers: Mapping[str, str]
    carried: str = ""  # what the model knows of the text before the example
    span: bool = False  # whether a span of the input is predicted, by its first and last token

    def sections(self) -> list[Section]:
        """The example as sections of a report."""
        found: list[Section] = [Text(self.about, f"{self.recipe}: one training example")]
        for name, places in self.inputs.items():
            lines: dict[str, list[str]] = {"reads": [place.token for place in places]}
            if any(place.segment is not None for place in places):
                lines["segment"] = [str(place.segment) for place in places]
            if any(place.chosen for place in places):
                lines["chosen"] = [SHOWN.get(place.chosen or "", "") for place in places]
            if any(place.predicts is not None for place in places):
                lines["predicts"] = [place.predicts or "" for place in places]
            marked = [at for at, place in enumerate(places) if place.chosen]
            found.append(Interlinear(name, [*lines], [*zip(*lines.values())], marked))
        if self.answers:
            found.append(Table("Predicted for the whole example", ["", "answer"], [*map(list, self.answers.items())]))
        return found

    @property
    def about(self) -> str:
        """What is predicted, in words."""
        places = [place for some in self.inputs.values() for place in some]
        chosen = [place.chosen for place in places if place.chosen]
        predicted = sum(place.predicts is not None for place in places)
        said = f"objective={self.objective}: the model reads {len(places)} tokens, special ones included."
        if chosen:
            shown = {name: chosen.count(name) for name in SHOWN}
            said += f" {len(chosen)} of them are chosen, and only these are predicted: {shown['mask']} show the mask, "
            said += f"{shown['random']} a random token and {shown['kept']} the token itself."
            if any(place.predicts in (REPLACED, ORIGINAL) for place in self.inputs.get("model", ())):
                said = f"objective={self.objective}: a generator predicts {len(chosen)} masked tokens. The model "
                said += "reads the text with tokens that are sampled from these predictions, and predicts for each "
                said += "token whether it was replaced; below, the answer is written at the masked places. The "
                said += "generator of this example is not trained."
        elif self.span:
            said += " It predicts the first and the last token of the answer; the first token of the input stands for "
            said += "no answer."
        elif predicted:
            said += f" It predicts {predicted} tokens; each stands below the token that is read just before it."
        return f"{said} {self.carried}".strip()


def example_picture(recipe: Recipe, kinds: Kinds = KINDS) -> ExamplePicture:
    """The first example of the first batch of a recipe. Without a training text, one of our own is used."""
    if isinstance(recipe.data, Book | Lines) and not recipe.data.train and not getattr(recipe.data, "files", ()):
        with TemporaryDirectory() as folder:
            file = Path(folder) / "text.txt"
            file.write_text("\n".join(OWN_TEXT), encoding="utf-8")
            data = replace(recipe.data, train=str(file), valid=str(file), vocab=min(recipe.data.vocab, OWN_VOCAB))
            if isinstance(data, Book):
                data = replace(data, window=min(data.window or OWN_WINDOW, recipe.model.longest or OWN_WINDOW))
            plan = replace(recipe.plan, batch_tokens=4 * OWN_WINDOW)
            return _pictured(prepare(replace(recipe, data=data, plan=plan), kinds=kinds), kinds)
    return _pictured(prepare(recipe, kinds=kinds, whole=False), kinds)


def _pictured(prepared: Prepared, kinds: Kinds) -> ExamplePicture:
    recipe, fields = prepared.recipe, prepared.fields
    task, batch = find_task(recipe, kinds), prepared.batches.batch(0)
    texts = [each.tokenizer for each in fields.values() if isinstance(each, TextField)]
    readers = {"source": texts[0], "tokens": texts[-1]} if texts else {}
    inputs = {
        name: _places(name, batch, tokenizer, task.head, fields)
        for name, tokenizer in readers.items()
        if name in batch.fields and batch[name].dim() == 2
    }
    if task.head == "choice":
        inputs = {
            f"choice {number}": _places("tokens", _choice(batch, number), texts[-1], task.head, fields)
            for number in range(batch["tokens"].shape[-1])
        }
    if isinstance(recipe.objective, ReplacedTokens):
        inputs = _replaced(prepared, recipe.objective, batch, texts[-1])
    if task.head == "vector":
        inputs = _related(batch, texts[-1])
    if task.head == "span":
        inputs = {name: _spanned(places, batch) for name, places in inputs.items()}
    objective = next(name for name, kind in kinds["objective"].items() if kind is type(recipe.objective))
    answers = _related_answer(batch) if task.head == "vector" else _answers(batch, recipe.objective, fields)
    return ExamplePicture(recipe.name, task.name, objective, inputs, answers, _carried(recipe), task.head == "span")


def _carried(recipe: Recipe) -> str:
    """How a model reads a text in windows that continue each other, in words; empty for any other model or order."""
    if not recipe.model.carries or getattr(recipe.data, "order", "") != "contiguous":
        return ""
    return "The next batch has the text that follows; the model then starts from its states of this text."


def _choice(batch: Batch, number: int) -> Batch:
    """One choice of each example, as a batch of texts. The inputs of a batch of C choices are (B, T, C)."""
    fields = {name: batch[name][..., number] for name in ("tokens", "segments")}
    return replace(batch, fields=fields, real={"tokens": fields["segments"] != PADDING})


def _related(batch: Batch, tokenizer: Tokenizer) -> dict[str, tuple[Place, ...]]:
    """The texts of the first pair, which are the first rows of a batch (`regard.tasks.related_texts`)."""
    found = {}
    for row, name in zip(range(len(batch["tokens"]) // len(batch["targets"])), ("first", "second", "negative")):
        real = batch.real["tokens"][row]
        found[name] = tuple(map(Place, tokenizer.pieces(batch["tokens"][row][real].tolist())))
    return found


def _related_answer(batch: Batch) -> dict[str, str]:
    """What is predicted of the first pair: which of several texts belongs to its first text."""
    negatives = int(batch["negatives"][0].sum())
    return {"target": f"the second text, among {negatives} other texts of the batch"}


def _spanned(places: tuple[Place, ...], batch: Batch) -> tuple[Place, ...]:
    """The places of a question with its passage, with the answer's first and last token; place 0 is no answer."""
    first, last = batch["targets"][0].tolist()
    names = {last: LAST, first: FIRST} if first != last else {first: f"{FIRST}, {LAST}" if first else NO_ANSWER}
    return tuple(replace(place, predicts=names.get(at)) for at, place in enumerate(places))


def _places(name: str, batch: Batch, tokenizer: Tokenizer, head: str, fields: Mapping[str, Field]) -> tuple[Place, ...]:
    """The places of one input of the first example, without padding."""
    real = batch.real[name][0]
    ids, pieces = batch[name][0][real].tolist(), tokenizer.pieces(batch[name][0][real].tolist())
    segments: list[int | None] = [None] * len(ids)
    if name == "tokens" and "segments" in batch.fields:
        segments = batch["segments"][0][real].tolist()
    targets = batch.fields.get("targets")
    if name != "tokens" or targets is None or targets.shape != batch["tokens"].shape or targets.is_floating_point():
        return tuple(map(Place, pieces, segments))
    wanted = targets[0][real].tolist()
    tags = next((each.names for each in fields.values() if isinstance(each, LabelField)), None)
    names = [None if one == IGNORED else tags[one] if tags else tokenizer.pieces([one])[0] for one in wanted]
    chosen: list[str | None] = [None] * len(ids)
    if head == "masked":
        mask = tokenizer.special_tokens.mask
        chosen = [
            None if target == IGNORED else "mask" if token == mask else "kept" if token == target else "random"
            for token, target in zip(ids, wanted)
        ]
    return tuple(map(Place, pieces, segments, chosen, names))


@torch.no_grad()
def _replaced(
    prepared: Prepared, objective: ReplacedTokens, batch: Batch, tokenizer: Tokenizer
) -> dict[str, tuple[Place, ...]]:
    """What the generator reads and predicts in the first example, and what the model reads and predicts."""
    made = prepared.build().eval()
    text = objective.replace(cast(Bert, made.model), batch.to(prepared.device), made.own).text[0].cpu()
    real, targets = batch.real["tokens"][0], batch["targets"][0]
    answers = [
        None if target == IGNORED else ORIGINAL if token == target else REPLACED
        for token, target in zip(text[real].tolist(), targets[real].tolist())
    ]
    model = (Place(piece, predicts=one) for piece, one in zip(tokenizer.pieces(text[real].tolist()), answers))
    return {"generator": _places("tokens", batch, tokenizer, "masked", prepared.fields), "model": tuple(model)}


def _answers(batch: Batch, objective: Any, fields: Mapping[str, Field]) -> dict[str, str]:
    """What is predicted for the first example as a whole, by question."""
    found = {}
    if "next" in batch.fields and (answer := int(batch["next"][0])) != IGNORED:
        found[objective.sentences] = SENTENCES[objective.sentences][answer]
    targets: Any = batch.fields.get("targets", torch.zeros(1, 1))
    if targets.dim() == 1:
        label = next((each.names for each in fields.values() if isinstance(each, LabelField)), None)
        found["target"] = label[int(targets[0])] if label else f"{float(targets[0]):g}"
    return found
