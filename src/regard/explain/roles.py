"""Do heads follow grammar? From a verb to its subject and its object, and back (Clark et al. 2019, §4.2).

`grammar_roles.txt` has 100 English sentences with a marked subject, verb and object. A head is right in a sentence if,
from the first word of a relation, it attends most to the second one among all other words. One half of the sentences
selects the head of each relation, the other half tests it.

In English the object mostly stands two or three words after the verb, so a head that always attends to such a place is
often right without any grammar. The baseline is the best fixed offset, selected on the same half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from regard.alignment import merge
from regard.explain.coreference import Head, Proportion, layer_number
from regard.explain.tokenized import TokenizedText, tokenize_sentence
from regard.report.sections import LineGallery, Section, Table, Text
from regard.verbs import Loaded

RELATIONS = (("verb", "subject"), ("subject", "verb"), ("verb", "object"), ("object", "verb"))  # from, to
ROLES = {"S": "subject", "V": "verb", "O": "object"}
MIN_SENTENCES = 20  # with fewer there is no result
SHOWN = 9  # of the sentences that a model can read, the one in the pictures; odd: it did not select the heads


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the index of each role in its words."""

    words: tuple[str, ...]
    roles: dict[str, int]


def role_sentences() -> list[Sentence]:
    """All sentences of the file. /S, /V or /O follows the subject, the verb and the object."""
    lines = files("regard.explain").joinpath("grammar_roles.txt").read_text(encoding="utf-8").splitlines()
    return [_parse_sentence(line) for line in lines]


def _parse_sentence(line: str) -> Sentence:
    words, marks = zip(*(word.partition("/")[::2] for word in line.split()))
    return Sentence(words, {ROLES[mark]: at for at, mark in enumerate(marks) if mark})


@dataclass(frozen=True)
class RelationScore:
    """The best head and the best offset of a relation, both selected on one half and tested on the other."""

    source: str  # the role from which the head attends
    target: str  # the role to which it should attend
    layer: str
    head: int
    selection: Proportion  # of the half that selected the head
    test: Proportion  # of the other half
    offset: int  # words from the source to the target
    offset_test: Proportion  # of the other half
    apart: Proportion  # of the sentences in which only one of head and offset is right: it is the head

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def verdict(self) -> str:
        """Which of the two is better, if the sentences of the test tell it with 95 % confidence (a sign test)."""
        low, high = self.apart.interval
        return "head" if low > 0.5 else "offset" if high < 0.5 else "no clear difference"


def most_attended(weights: Tensor, text: TokenizedText, query: int) -> Tensor:
    """The other word that each head attends to most from the word ``query``: (H, T, T) → (H,)

    The weights on the pieces of a word are added up; special tokens and punctuation marks are no words.
    """
    words = [-1 if separator else word for word, separator in zip(text.words, text.separators)]
    merged = torch.from_numpy(merge(weights.double().numpy(), words, words))[:, query]  # (H, words)
    merged[:, query] = -1.0
    return merged.argmax(dim=-1)


def score_relation(relation: tuple[str, str], hits: Tensor, distances: Tensor, names: Sequence[Head]) -> RelationScore:
    """Scores the heads of a relation by their hits (sentences, heads), beside the distances (sentences,) in words.

    Sentences 0, 2, 4 … select the head and the offset, the others test them.
    """
    best = int(hits[0::2].sum(dim=0).argmax())
    seen = distances[0::2].tolist()
    offset = max(seen, key=lambda one: (seen.count(one), -abs(one)))  # the most frequent, and of several the nearest
    head, fixed = hits[1::2, best], distances[1::2] == offset
    apart = head != fixed
    return RelationScore(
        *relation,
        *names[best],
        Proportion(int(hits[0::2, best].sum()), len(hits[0::2])),
        Proportion(int(head.sum()), len(head)),
        offset,
        Proportion(int(fixed.sum()), len(fixed)),
        Proportion(int((head & apart).sum()), int(apart.sum())),
    )


@dataclass(frozen=True, eq=False)
class Grammar:
    """How well the heads of a model find subject, verb and object."""

    sentences: int  # that the model can read
    skipped: int
    relations: list[RelationScore]  # none if there are too few sentences
    shown: tuple[TokenizedText, Sentence] | None  # the sentence of the pictures

    def summary(self) -> str:
        """The result in a few sentences."""
        skipped = f" {self.skipped} sentences were skipped, because the model cannot read them." if self.skipped else ""
        if not self.relations:
            return f"Subject, verb and object cannot be evaluated in this model.{skipped}"
        by_verdict = {
            verdict: ", ".join(one.name for one in self.relations if one.verdict == verdict) or "no relation"
            for verdict in ("head", "offset", "no clear difference")
        }
        return (
            f"The head is better than the best fixed offset for: {by_verdict['head']}. The offset is better for: "
            f"{by_verdict['offset']}. There is no clear difference for: {by_verdict['no clear difference']}. (This "
            "compares the sentences of the second half in which only one of the two is right; a difference is clear if "
            f"the 95% interval leaves out one half.){skipped}"
        )

    @property
    def numbers(self) -> dict[str, Any]:
        return {"sentences": self.sentences, "skipped": self.skipped, "relations": self.relations}

    def sections(self) -> list[Section]:
        """The result in words, the best head of each relation, and its picture on one sentence."""
        text = (
            "In “The clever fox behind the barn watched the sleeping chickens.”, “fox” is the subject of “watched”, "
            "and “chickens” is its object. Is there a head that attends from the verb most to its subject, or from the "
            "object most to its verb?\n\n"
        )
        sections: list[Section] = [Text(text + self.summary(), "Subject, verb and object")]
        if not self.relations:
            return sections
        rows = [
            (
                *(one.name, layer_number(one.layer), one.head, f"{one.selection.rate:.0%}", str(one.test)),
                f"{one.offset:+d}: {one.offset_test}",
            )
            for one in self.relations
        ]
        note = (
            f"How often the right word has the largest weight of all other words. Of {self.sentences} sentences, one "
            "half selected the head and the offset (the column “selected”); the last two columns are of the other "
            "half, with the 95% interval. An offset of -2 means: always the second word to the left."
        )
        columns = ["relation", "layer", "head", "selected", "other half", "best fixed offset"]
        sections.append(Table("The best head of each relation", columns, rows, note))
        if self.shown:
            tokens, sentence = self.shown
            views = [
                tokens.lines_from(
                    f"{one.name}: layer {layer_number(one.layer)}, head {one.head}",
                    *(one.layer, one.head, sentence.roles[one.source]),
                )
                for one in self.relations
            ]
            sections.append(LineGallery("The best heads on one sentence of the other half", views))
        return sections


def evaluate_roles(model: Loaded) -> Grammar:
    """Evaluates the heads of a model on all sentences.

    A word of a causal model attends to no later word, so there only the relations to an earlier word are measured.
    """
    config = model.module.config
    ahead = config.reads_source or not config.causal_attention
    relations = [one for one in RELATIONS if ahead or one in (("verb", "subject"), ("object", "verb"))]
    sentences = role_sentences()
    texts = [tokenize_sentence(model, one.words, list(one.roles.values())) for one in sentences]
    read = [(text, sentence) for text, sentence in zip(texts, sentences) if text is not None]
    skipped = len(sentences) - len(read)
    if len(read) < MIN_SENTENCES:
        return Grammar(len(read), skipped, [], None)
    names = [(layer, head) for layer, weights in read[0][0].weights.items() for head in range(len(weights))]
    scores = []
    for source, target in relations:
        found = [
            torch.cat([most_attended(weights, text, one.roles[source]) for weights in text.weights.values()])
            for text, one in read
        ]
        hits = torch.stack([heads == one.roles[target] for heads, (_, one) in zip(found, read)])
        distances = torch.tensor([one.roles[target] - one.roles[source] for _, one in read])
        scores.append(score_relation((source, target), hits, distances, names))
    return Grammar(len(read), skipped, scores, read[SHOWN])
