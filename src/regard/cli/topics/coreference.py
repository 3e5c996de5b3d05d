"""Coreference in the heads of a model: scores every head on all pairs of sentences about "it", and reports the best."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.cli.topics.tokenized import TokenizedText, tokenize

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explain.coreference import HeadScore, HeadScores, Proportion
    from regard.explain.pronouns import Version
    from regard.verbs.loaded import Loaded

MIN_PAIRS = 10  # with fewer pairs there is no result
MAX_HEADS = 10  # in the terminal
COLUMNS = ("layer", "head", "correct noun", "shifts with the ending")


@dataclass(frozen=True, eq=False)
class Coreference:
    """How well the heads of a model resolve "it"."""

    query: str  # the word whose attention is evaluated, as text
    pairs: int  # number of pairs that were used
    skipped: int  # number of pairs that are too long for the model, or have a word that it cannot represent
    scores: "HeadScores | None"  # None: too few pairs
    sentences: list[tuple[TokenizedText, int]]  # both versions of each pair, with the index of the query word

    def summary(self) -> str:
        """The result in a few sentences."""
        skipped = f" {self.skipped} pairs were skipped, because the model cannot read them." if self.skipped else ""
        if self.scores is None:
            return f"“it” cannot be evaluated in this model.{skipped}"
        selection, best = self.scores.best_on_selection, self.scores.best_on_test
        return (
            f"The best head for “it” is layer {layer_number(best.layer)}, head {best.head}. It was selected on one "
            f"half of {self.pairs} pairs of sentences ({selection.correct.rate:.0%} correct). In the other half, "
            f"{self.query} attends more to the correct noun than to the wrong one in {_format(best.correct)} of "
            f"{best.correct.count} sentences. When the ending changes, the attention shifts towards the noun that is "
            f"then correct in {_format(best.shifted)} of {best.shifted.count} pairs. Chance is 50%.{skipped}"
        )

    def ranked(self) -> "list[HeadScore]":
        """All heads, from the best to the worst over all pairs."""
        return sorted(self.scores.heads, key=lambda one: -one.correct.successes) if self.scores else []

    def rows(self) -> list[list[str]]:
        """The rows of a table with the columns COLUMNS."""
        return [
            [layer_number(one.layer), str(one.head), f"{one.correct.rate:.0%}", f"{one.shifted.rate:.0%}"]
            for one in self.ranked()
        ]

    def data(self) -> dict[str, object]:
        scores = self.scores
        return {
            "query": self.query,
            "pairs": self.pairs,
            "skipped": self.skipped,
            "heads": [_data(one) for one in scores.heads] if scores else [],
            "best_on_selection": _data(scores.best_on_selection) if scores else None,
            "best_on_test": _data(scores.best_on_test) if scores else None,
        }


def layer_number(layer: str) -> str:
    """3 for stack.blocks.3.attention.read, and for stack.blocks.0.attention.read[3], where layers share a module."""
    numbers = re.findall(r"\d+", layer)
    return numbers[-1] if numbers else layer


def evaluate_coreference(model: "Loaded") -> Coreference:
    """Evaluates the heads of a model on all pairs of sentences.

    The query is the word "it". A causal model has not read the ending at "it", so there the query is the last word, the
    first one at which such a model can know the answer.
    """
    import torch

    from regard.explain.coreference import preference, score_heads
    from regard.explain.pronouns import pairs
    from regard.models import reads_whole

    ahead = reads_whole(model.module.config)
    names: list[tuple[str, int]] = []
    preferences: list[Tensor] = []
    sentences: list[tuple[TokenizedText, int]] = []
    skipped = 0
    for pair in pairs():
        texts = [text for version in pair if (text := _tokenize_version(model, version)) is not None]
        if len(texts) < 2:
            skipped += 1
            continue
        queries = [version.pronoun if ahead else version.last for version in pair]
        by_layer = [
            {name: preference(weights, text.words, version, query) for name, weights in text.weights.items()}
            for text, version, query in zip(texts, pair, queries)
        ]
        names = [(layer, head) for layer, values in by_layer[0].items() for head in range(len(values))]
        preferences.append(torch.stack([torch.cat(list(layers.values())) for layers in by_layer]))  # (2, heads)
        sentences += zip(texts, queries)
    scores = score_heads(torch.stack(preferences), names) if len(preferences) >= MIN_PAIRS else None
    return Coreference("“it”" if ahead else "the last word", len(preferences), skipped, scores, sentences)


def _tokenize_version(model: "Loaded", version: "Version") -> TokenizedText | None:
    """The tokenized sentence; None if it is too long, or if a noun, "it" or the last word cannot be recovered."""
    longest, (tokens,) = model.longest, model.tokenizer.encode_batch([version.text])
    if longest is not None and len(tokens) + len(model.tokenizer.special_tokens.wrap_input([])) + 1 > longest:
        return None
    text = tokenize(model, version.text)
    words = [""] * (max(text.words, default=-1) + 1)
    for word, piece in zip(text.words, model.tokenizer.detokenizer(text.tokens)):
        if word >= 0:
            words[word] += piece.decode("utf-8", errors="replace").strip()
    if len(words) <= version.last:
        return None
    needed = (*version.nouns, version.pronoun, version.last)
    same = all(words[at].rstrip(".").lower() == version.words[at].lower() for at in needed)
    return text if same else None


def _format(proportion: "Proportion") -> str:
    low, high = proportion.interval
    return f"{proportion.rate:.0%} ({low:.0%} to {high:.0%})"


def _data(score: "HeadScore") -> dict[str, object]:
    proportions = {"correct": score.correct, "shifted": score.shifted}
    return {
        "layer": score.layer,
        "head": score.head,
        **{name: {"rate": p.rate, "count": p.count, "interval": p.interval} for name, p in proportions.items()},
    }
